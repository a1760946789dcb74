// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulated drives' driver, kernel half: /dev/shd0, /dev/shd1, …
 *
 * The drive itself is a library that does no I/O, reads no clock and never
 * sleeps (shingle_drive_abi.h). This driver gives it requests and the time,
 * and asks it what has happened:
 *
 *	queue_rq ---> put(data of a write)... submit(now)
 *	                                         |
 *	hrtimer <--- armed for next_event() <----+
 *	   |
 *	   +-------> advance(now) ---> completions; get(data of a read)
 *
 * "now" is CLOCK_MONOTONIC, the virtual clock. Completions therefore arrive at
 * the drive's time, to within the clock's resolution (256 ns) and the clock
 * event device's minimum (1 us), never early.
 *
 * Locking: model_lock, one for all drives, around every call into the model.
 * The drives share nothing that the machine could see, but the model's heap is
 * one (crates/drive-abi/src/heap.rs), and has no lock of its own. All of it is
 * the simulation's own work, takes no virtual time, and stands for hardware.
 * With interrupts off the clock does not move when it is read, so times handed
 * to the model never run backwards.
 *
 * Files of the host (drive, trace, saved state) are the other half's business,
 * see shingle_user.c.
 */

#define pr_fmt(fmt) "shingle: " fmt

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/cleanup.h>
#include <linux/ctype.h>
#include <linux/device.h>
#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/panic_notifier.h>
#include <linux/sizes.h>
#include <linux/ratelimit.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <init.h>
#include <os.h>
#include "shingle.h"
#include "shingle_drive_abi.h"
#include "shingle_sg.h"

#define MAX_TAGS		256
#define MAX_EXTENTS		1024
#define COMPLETIONS_AT_ONCE	32
#define ZONES_AT_ONCE		64
/* A trace is gathered, and written out when this is half full. */
#define TRACE_BYTES		SZ_256K
#define LATENCIES_BYTES		SZ_1M

/* As an AHCI port offers them, so that requests have a real disk's shape. */
#define SATA_SEGMENTS		168
#define SATA_SEGMENT_BYTES	SZ_64K
/* What one DATA SET MANAGEMENT with one block of ranges can trim. */
#define SATA_TRIM_SECTORS	(64 * 65535)
/*
 * A host's patience, as drivers/scsi has it for a disk (sd.h): SD_TIMEOUT, which
 * queue/io_timeout changes, twice as long for a flush, and SD_MAX_RETRIES. The
 * link is up again about so long after a hard reset.
 */
#define TIMEOUT_S		30
#define FLUSH_TIMEOUTS		2
#define RETRIES_MAX		5
#define RESET_MS		1000

static void __printf(2, 3) __noreturn fail(int status, const char *fmt, ...)
{
	static char text[512];
	va_list args;
	int len;

	va_start(args, fmt);
	len = scnprintf(text, sizeof(text), "shingle: ");
	len += vscnprintf(text + len, sizeof(text) - len, fmt, args);
	va_end(args);
	shingle_complain(text, len);
	shingle_exit(status);
	unreachable();
}

/*
 * What is known of a drive before there is memory: names of the host's files.
 * They are taken off the command line: the guest has no use for them, and must
 * not be able to tell one run from another.
 */
struct shingle_files {
	char	*drive, *save, *trace, *faults;
};

static struct shingle_files files[SHINGLE_DRIVES];

/*
 * "shingle.drive" stands before "=FILE" for the first drive, before "1=FILE"
 * for the next one, and so on. NULL: the word is another one.
 */
static char *__init file_of(char *rest, const char *name, unsigned int *number)
{
	char *digits = rest;

	*number = 0;
	while (isdigit(*rest))
		*number = min(*number * 10 + *rest++ - '0', SHINGLE_DRIVES);
	if (*rest != '=')
		return NULL;
	if ((rest != digits && *digits == '0') || *number >= SHINGLE_DRIVES) {
		*rest = '\0';
		fail(SHINGLE_EXIT_SETUP,
		     "shingle.%s%s= is no drive's: expected shingle.%s= for /dev/shd0, or a number from 1 to %u\n",
		     name, digits, name, SHINGLE_DRIVES - 1);
	}
	return rest + 1;
}

#define FILE_PARAM(what)						\
static int __init what##_param(char *rest, int *add)			\
{									\
	unsigned int number;						\
	char *file = file_of(rest, #what, &number);			\
									\
	if (!file)							\
		return 0;						\
	files[number].what = file;					\
	*add = 0;							\
	return 0;							\
}

FILE_PARAM(drive)
__uml_setup("shingle.drive", drive_param,
	    "shingle.drive[N]=<file>\n"
	    "    The drive behind /dev/shd0, or /dev/shdN: a drive file, which is not\n"
	    "    written to.\n\n"
);

FILE_PARAM(save)
__uml_setup("shingle.save", save_param,
	    "shingle.save[N]=<file>\n"
	    "    Where the drive's new state goes when the guest asks for it.\n\n"
);

FILE_PARAM(trace)
__uml_setup("shingle.trace", trace_param,
	    "shingle.trace[N]=<file>\n"
	    "    Where the trace of all the drive's requests goes.\n\n"
);

FILE_PARAM(faults)
__uml_setup("shingle.faults", faults_param,
	    "shingle.faults[N]=<file>\n"
	    "    What goes wrong in the drive: a plan of shingle-drive faults check.\n\n"
);

static ulong cut;
module_param(cut, ulong, 0444);
MODULE_PARM_DESC(cut, "power is cut after this many requests of all drives; 0: never");

static ulong memory_mb = 16384;
module_param(memory_mb, ulong, 0444);
MODULE_PARM_DESC(memory_mb, "most host memory that the drives' contents may take");

/* Serialises every call into the model: see this file's head. */
static DEFINE_SPINLOCK(model_lock);

static struct shingle_dev {
	unsigned int		number;		/* constant */
	struct shingle_files	*file;		/* constant but for ->trace */
	struct shingle_drive	*drive;		/* [model_lock] */
	struct request		*request[MAX_TAGS]; /* [model_lock] in the drive */
	struct list_head	sent;		/* [model_lock] the same, as sent */
	struct hrtimer		timer;		/* [model_lock] next_event() */
	struct shingle_geometry	geometry;	/* constant */
	struct blk_mq_tag_set	tag_set;
	struct gendisk		*disk;
	/* Of the host's memory: no machine has more or less for them. */
	u8			*trace;		/* [model_lock] not written yet */
	u32			trace_fill;	/* [model_lock] */
	char			*latencies;	/* [model_lock] the last snapshot */
	u32			latencies_len;	/* [model_lock] */
} drives[SHINGLE_DRIVES];

static unsigned int drives_nr;			/* constant from boot on */
static u64 requests;				/* [model_lock] of all drives */

#define for_each_drive(shd) \
	for ((shd) = drives; (shd) < drives + drives_nr; (shd)++)

static void trace_write_out(struct shingle_dev *shd)
{
	int err;

	if (!shd->file->trace || !shd->trace_fill)
		return;
	err = shingle_trace_write(shd->number, shd->trace, shd->trace_fill);
	shd->trace_fill = 0;
	if (err) {
		/* Also keeps shingle_at_end() from trying again. */
		const char *name = shd->file->trace;

		shd->file->trace = NULL;
		fail(SHINGLE_EXIT_HOST,
		     "writing the trace %s failed: error %d\n", name, -err);
	}
}

static void trace_drain(struct shingle_dev *shd)
{
	u32 len;

	if (!shd->file->trace)
		return;
	do {
		len = shingle_drive_trace_take(shd->drive,
					       shd->trace + shd->trace_fill,
					       TRACE_BYTES - shd->trace_fill);
		shd->trace_fill += len;
		if (shd->trace_fill > TRACE_BYTES / 2)
			trace_write_out(shd);
	} while (len);
}

static int save_drive(struct shingle_dev *shd)
{
	int err;

	err = shingle_save_begin(shd->file->save);
	if (err)
		return err;
	err = shingle_drive_save(shd->drive, shingle_save_write, NULL);
	return shingle_save_end(shd->file->save, err);
}

/* All drives lose power at once. */
static void __noreturn power_cut(u64 now_ns)
{
	struct shingle_dev *shd;
	int err;

	for_each_drive(shd) {
		shingle_drive_power_cut(shd->drive, now_ns);
		trace_drain(shd);
		trace_write_out(shd);
	}
	for_each_drive(shd) {
		if (!shd->file->save)
			continue;
		err = save_drive(shd);
		if (err)
			fail(SHINGLE_EXIT_HOST,
			     "saving to %s after the power cut failed: error %d\n",
			     shd->file->save, -err);
	}
	fail(SHINGLE_EXIT_POWER_CUT, "power cut after request %llu\n",
	     requests);
}

/* Moves data between a request and the model, segment by segment. */
static int put_data(struct shingle_dev *shd, struct request *rq)
{
	struct req_iterator iter;
	struct bio_vec bv;
	u32 offset = 0;
	int err;

	rq_for_each_segment(bv, rq, iter) {
		err = shingle_drive_put(shd->drive, rq->tag, offset,
					bvec_virt(&bv), bv.bv_len);
		if (err)
			return err;
		offset += bv.bv_len;
	}
	return 0;
}

static int get_data(struct shingle_dev *shd, struct request *rq)
{
	struct req_iterator iter;
	struct bio_vec bv;
	u64 sector = blk_rq_pos(rq);
	int err;

	rq_for_each_segment(bv, rq, iter) {
		err = shingle_drive_get(shd->drive, sector, bvec_virt(&bv),
					bv.bv_len);
		if (err)
			return err;
		sector += bv.bv_len >> SECTOR_SHIFT;
	}
	return 0;
}

static blk_status_t to_status(int err)
{
	if (err == -ENOMEM)
		pr_err_once("the drives' contents no longer fit into %lu MiB of host memory (%llu bytes refused); see shingle.memory_mb\n",
			    memory_mb, shingle_reserve_refused);
	return errno_to_blk_status(err);
}

/* What goes with each request, in memory of the block layer. */
struct shingle_cmd {
	struct list_head sent;		/* in shingle_dev::sent */
	blk_status_t	status;		/* kept here until ->complete */
	u32		sense;		/* as in struct shingle_completion */
	u32		retries;	/* after it took too long */
	u32		op;		/* these two only of a pass-through */
	u64		sector;
};

/* What the additional sense code says, in the words of ZBC. */
static const char *sense_text(u32 sense)
{
	switch (sense & 0xffff) {
	case 0x2100:
		return "no such address";
	case 0x2104:
		return "not at the write pointer";
	case 0x2105:
		return "beyond the end of the zone";
	case 0x2106:
		return "a read beyond the write pointer";
	case 0x2107:
		return "a read across zones of different types";
	case 0x2400:
		return "no command for a zone of this type";
	case 0x2708:
		return "the zone is read-only";
	case 0x2c0e:
		return "the zone is offline";
	case 0x550e:
		return "too many open zones";
	default:
		return "see SPC";
	}
}

/* The tools that pass commands through print the sense themselves. */
static void tell_sense(struct request *rq, u32 sense)
{
	if (!sense || blk_rq_is_passthrough(rq))
		return;
	pr_err_ratelimited("%s at sector %llu, %u sectors: sense %xh, %02xh/%02xh: %s\n",
			   blk_op_str(req_op(rq)), (u64)blk_rq_pos(rq),
			   blk_rq_sectors(rq),
			   sense >> 16, (sense >> 8) & 0xff, sense & 0xff,
			   sense_text(sense));
}

static void finish(struct shingle_dev *shd,
		   const struct shingle_completion *done)
{
	struct request *rq;
	struct shingle_cmd *cmd;
	int err = done->status;

	if (WARN_ON(done->tag >= MAX_TAGS || !shd->request[done->tag]))
		return;
	rq = shd->request[done->tag];
	cmd = blk_mq_rq_to_pdu(rq);
	shd->request[done->tag] = NULL;
	list_del(&cmd->sent);
	if (!err && req_op(rq) == REQ_OP_READ)
		err = get_data(shd, rq);
	cmd->status = to_status(err);
	cmd->sense = done->sense;
	tell_sense(rq, done->sense);
	blk_mq_complete_request(rq);
}

/* Tells the model the time, and the block layer what is done. */
static void catch_up(struct shingle_dev *shd, u64 now_ns)
{
	static struct shingle_completion done[COMPLETIONS_AT_ONCE];
	u32 i, n;

	lockdep_assert_held(&model_lock);
	do {
		n = shingle_drive_advance(shd->drive, now_ns, done,
					  ARRAY_SIZE(done));
		for (i = 0; i < n; i++)
			finish(shd, &done[i]);
	} while (n == ARRAY_SIZE(done));
	trace_drain(shd);
}

static void arm(struct shingle_dev *shd)
{
	u64 next_ns = shingle_drive_next_event(shd->drive);

	lockdep_assert_held(&model_lock);
	if (next_ns < KTIME_MAX)
		hrtimer_start(&shd->timer, ns_to_ktime(next_ns),
			      HRTIMER_MODE_ABS_HARD);
	else
		hrtimer_try_to_cancel(&shd->timer);
}

static enum hrtimer_restart timer_fires(struct hrtimer *timer)
{
	struct shingle_dev *shd = container_of(timer, struct shingle_dev, timer);
	unsigned long flags;

	spin_lock_irqsave(&model_lock, flags);
	catch_up(shd, ktime_get_ns());
	arm(shd);
	spin_unlock_irqrestore(&model_lock, flags);
	return HRTIMER_NORESTART;
}

/* The drive's name of a request, and where it is: a zone command has no length. */
static int drive_op(struct request *rq, u64 *sector, u32 *sectors)
{
	struct shingle_cmd *cmd = blk_mq_rq_to_pdu(rq);

	*sector = blk_rq_pos(rq);
	*sectors = 0;
	switch (req_op(rq)) {
	case REQ_OP_READ:
		*sectors = blk_rq_sectors(rq);
		return SHINGLE_READ;
	case REQ_OP_WRITE:
		*sectors = blk_rq_sectors(rq);
		return SHINGLE_WRITE;
	case REQ_OP_FLUSH:
		*sector = 0;
		return SHINGLE_FLUSH;
	case REQ_OP_DISCARD:
		*sectors = blk_rq_sectors(rq);
		return SHINGLE_DISCARD;
	case REQ_OP_ZONE_OPEN:
		return SHINGLE_ZONE_OPEN;
	case REQ_OP_ZONE_CLOSE:
		return SHINGLE_ZONE_CLOSE;
	case REQ_OP_ZONE_FINISH:
		return SHINGLE_ZONE_FINISH;
	case REQ_OP_ZONE_RESET:
		return SHINGLE_ZONE_RESET;
	case REQ_OP_ZONE_RESET_ALL:
		*sector = 0;
		return SHINGLE_ZONE_RESET_ALL;
	case REQ_OP_DRV_OUT:
		*sector = cmd->sector;
		return cmd->op;
	default:
		return -EOPNOTSUPP;
	}
}

static u32 drive_flags(struct request *rq)
{
	u32 flags = 0;

	if (rq->cmd_flags & REQ_FUA)
		flags |= SHINGLE_F_FUA;
	if (rq->cmd_flags & REQ_META)
		flags |= SHINGLE_F_META;
	if (rq->cmd_flags & REQ_SYNC)
		flags |= SHINGLE_F_SYNC;
	return flags;
}

static int submit(struct shingle_dev *shd, struct request *rq, u64 now_ns)
{
	struct shingle_cmd *cmd = blk_mq_rq_to_pdu(rq);
	u64 sector;
	u32 sectors;
	int op = drive_op(rq, &sector, &sectors);
	int err;

	if (op < 0)
		return op;
	if (op == SHINGLE_WRITE) {
		err = put_data(shd, rq);
		if (err)
			return err;
	}
	err = shingle_drive_submit(shd->drive, now_ns, rq->tag, op,
				   drive_flags(rq), sector, sectors);
	if (err)
		return err;
	shd->request[rq->tag] = rq;
	list_add_tail(&cmd->sent, &shd->sent);
	requests++;
	if (requests == cut)
		power_cut(now_ns);
	return 0;
}

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx,
			     const struct blk_mq_queue_data *bd)
{
	struct shingle_dev *shd = hctx->queue->queuedata;
	struct request *rq = bd->rq;
	unsigned long flags;
	u64 now_ns;
	int err;

	if (!(rq->rq_flags & RQF_DONTPREP)) {
		struct shingle_cmd *cmd = blk_mq_rq_to_pdu(rq);

		cmd->retries = 0;
		rq->rq_flags |= RQF_DONTPREP;
	}
	if (req_op(rq) == REQ_OP_FLUSH)
		rq->timeout = FLUSH_TIMEOUTS * rq->q->rq_timeout;
	blk_mq_start_request(rq);
	spin_lock_irqsave(&model_lock, flags);
	now_ns = ktime_get_ns();
	if (shingle_drive_next_event(shd->drive) <= now_ns)
		catch_up(shd, now_ns);
	err = submit(shd, rq, now_ns);
	arm(shd);
	spin_unlock_irqrestore(&model_lock, flags);
	/* Not returned: -ENOMEM would be taken for "try again later". */
	if (err)
		blk_mq_end_request(rq, to_status(err));
	return BLK_STS_OK;
}

/* After a reset: to be sent again, or given up. */
static void retry(struct shingle_dev *shd, struct request *rq)
{
	struct shingle_cmd *cmd = blk_mq_rq_to_pdu(rq);
	bool late = time_after_eq(jiffies, rq->deadline);

	lockdep_assert_held(&model_lock);
	shd->request[rq->tag] = NULL;
	list_del(&cmd->sent);
	/* What only happened to wait beside it is not counted. */
	if (late)
		cmd->retries++;
	if (cmd->retries <= RETRIES_MAX) {
		blk_mq_requeue_request(rq, false);
		return;
	}
	pr_err("%s: %s at sector %llu is given up after %u retries\n",
	       shd->disk->disk_name, blk_op_str(req_op(rq)),
	       (u64)blk_rq_pos(rq), RETRIES_MAX);
	cmd->status = BLK_STS_IOERR;
	cmd->sense = 0;
	blk_mq_complete_request(rq);
}

/*
 * As libata does it: the link is reset, the drive forgets all requests, and
 * they are sent again, in their order: a drive that is late with a part of its
 * queue would otherwise be late with the same ones until they are given up.
 * Unlike a SCSI host, this one does not first wait until the others have ended
 * or are late, too.
 */
static enum blk_eh_timer_return timed_out(struct request *rq)
{
	struct shingle_dev *shd = rq->q->queuedata;
	struct shingle_cmd *cmd, *next;
	unsigned long flags;
	u64 now_ns;

	spin_lock_irqsave(&model_lock, flags);
	now_ns = ktime_get_ns();
	catch_up(shd, now_ns);
	if (shd->request[rq->tag] != rq) {
		arm(shd);
		spin_unlock_irqrestore(&model_lock, flags);
		return BLK_EH_DONE;
	}
	/* A drive with zones has all the time it wants: see Drive::reset(). */
	if (shingle_drive_reset(shd->drive, now_ns)) {
		arm(shd);
		spin_unlock_irqrestore(&model_lock, flags);
		return BLK_EH_RESET_TIMER;
	}
	pr_warn("%s: %s at sector %llu took longer than %u s: the link is reset\n",
		shd->disk->disk_name, blk_op_str(req_op(rq)),
		(u64)blk_rq_pos(rq), rq->timeout / HZ);
	list_for_each_entry_safe(cmd, next, &shd->sent, sent)
		retry(shd, blk_mq_rq_from_pdu(cmd));
	arm(shd);
	spin_unlock_irqrestore(&model_lock, flags);
	blk_mq_delay_kick_requeue_list(rq->q, RESET_MS);
	return BLK_EH_DONE;
}

static void complete_rq(struct request *rq)
{
	struct shingle_cmd *cmd = blk_mq_rq_to_pdu(rq);

	blk_mq_end_request(rq, cmd->status);
}

static const struct blk_mq_ops shingle_mq_ops = {
	.queue_rq = queue_rq,
	.complete = complete_rq,
	.timeout = timed_out,
};

const struct shingle_geometry *shingle_geometry(struct gendisk *disk)
{
	struct shingle_dev *shd = disk->private_data;

	return &shd->geometry;
}

/* Zones */

u32 shingle_zones(struct gendisk *disk, u32 first, struct shingle_zone *zones,
		  u32 max)
{
	struct shingle_dev *shd = disk->private_data;
	unsigned long flags;
	u32 n;

	spin_lock_irqsave(&model_lock, flags);
	n = shingle_drive_zones(shd->drive, first, zones, max);
	spin_unlock_irqrestore(&model_lock, flags);
	return n;
}

static int report_zones(struct gendisk *disk, sector_t sector,
			unsigned int nr_zones, report_zones_cb cb, void *data)
{
	u32 first = div64_u64(sector, shingle_geometry(disk)->zone_sectors);
	struct shingle_zone *zones __free(kfree) = NULL;
	u32 told = 0, n, i;
	int err;

	zones = kmalloc_array(ZONES_AT_ONCE, sizeof(*zones), GFP_KERNEL);
	if (!zones)
		return -ENOMEM;
	while (told < nr_zones) {
		n = shingle_zones(disk, first + told, zones,
				  min_t(u32, nr_zones - told, ZONES_AT_ONCE));
		if (!n)
			break;
		for (i = 0; i < n; i++, told++) {
			struct blk_zone zone = {
				.start = zones[i].start,
				.len = zones[i].sectors,
				.wp = zones[i].write_pointer,
				.type = zones[i].type,
				.cond = zones[i].condition,
				.capacity = zones[i].capacity_sectors,
			};

			err = cb(&zone, told, data);
			if (err)
				return err;
		}
	}
	return told;
}

int shingle_zone_command(struct gendisk *disk, u32 op, u64 sector, u32 *sense)
{
	struct shingle_cmd *cmd;
	struct request *rq;
	blk_status_t status;

	rq = blk_mq_alloc_request(disk->queue, REQ_OP_DRV_OUT, 0);
	if (IS_ERR(rq))
		return PTR_ERR(rq);
	cmd = blk_mq_rq_to_pdu(rq);
	cmd->op = op;
	cmd->sector = sector;
	cmd->sense = 0;
	status = blk_execute_rq(rq, false);
	*sense = cmd->sense;
	blk_mq_free_request(rq);
	return blk_status_to_errno(status);
}

static const struct block_device_operations shingle_fops = {
	.owner = THIS_MODULE,
	.report_zones = report_zones,
	.ioctl = shingle_sg_ioctl,
};

/* /sys/block/shdN/shingle */

static struct shingle_dev *to_shd(struct device *dev)
{
	return dev_to_disk(dev)->private_data;
}

/* One read(2) is one consistent snapshot: it has to fit into a page. */
static ssize_t report(struct shingle_dev *shd, char *page)
{
	unsigned long flags;
	u32 n;

	spin_lock_irqsave(&model_lock, flags);
	n = shingle_drive_report(shd->drive, ktime_get_ns(), page,
				 PAGE_SIZE - 2);
	spin_unlock_irqrestore(&model_lock, flags);
	if (n > PAGE_SIZE - 2)
		return -EFBIG;
	page[n++] = '\n';
	page[n] = '\0';
	return n;
}

static ssize_t counters_show(struct device *dev, struct device_attribute *attr,
			     char *buf)
{
	return report(to_shd(dev), buf);
}
static DEVICE_ATTR_RO(counters);

static ssize_t clean_show(struct device *dev, struct device_attribute *attr,
			  char *buf)
{
	static const char key[] = "\"clean\":";
	ssize_t len = report(to_shd(dev), buf);
	const char *value;

	if (len < 0)
		return len;
	value = strstr(buf, key);
	if (!value)
		return -EIO;
	value = skip_spaces(value + strlen(key));
	return sysfs_emit(buf, "%d\n", *value == '1');
}
static DEVICE_ATTR_RO(clean);

static ssize_t set_class(struct shingle_dev *shd, const char *buf, size_t count,
			 u32 class)
{
	char *copy, *line, *rest;
	u64 *extents;
	u32 n = 0;
	unsigned long flags;
	int err = 0;

	copy = kmemdup_nul(buf, count, GFP_KERNEL);
	extents = kmalloc_array(MAX_EXTENTS, 2 * sizeof(u64), GFP_KERNEL);
	if (!copy || !extents) {
		err = -ENOMEM;
		goto out;
	}
	for (rest = copy; (line = strsep(&rest, "\n"));) {
		line = strim(line);
		if (!*line)
			continue;
		if (n == MAX_EXTENTS) {
			err = -E2BIG;
			goto out;
		}
		if (sscanf(line, "%llu %llu", &extents[2 * n],
			   &extents[2 * n + 1]) != 2) {
			err = -EINVAL;
			goto out;
		}
		n++;
	}
	spin_lock_irqsave(&model_lock, flags);
	err = shingle_drive_set_class(shd->drive, class, extents, n);
	spin_unlock_irqrestore(&model_lock, flags);
out:
	kfree(extents);
	kfree(copy);
	return err ?: count;
}

static ssize_t journal_extents_store(struct device *dev,
				     struct device_attribute *attr,
				     const char *buf, size_t count)
{
	return set_class(to_shd(dev), buf, count, SHINGLE_CLASS_JOURNAL);
}
static DEVICE_ATTR_WO(journal_extents);

static ssize_t superblock_extents_store(struct device *dev,
					struct device_attribute *attr,
					const char *buf, size_t count)
{
	return set_class(to_shd(dev), buf, count, SHINGLE_CLASS_SUPERBLOCK);
}
static DEVICE_ATTR_WO(superblock_extents);

static ssize_t mark_store(struct device *dev, struct device_attribute *attr,
			  const char *buf, size_t count)
{
	struct shingle_dev *shd = to_shd(dev);
	unsigned long flags;

	spin_lock_irqsave(&model_lock, flags);
	shingle_drive_mark(shd->drive, ktime_get_ns(), buf, count);
	trace_drain(shd);
	spin_unlock_irqrestore(&model_lock, flags);
	return count;
}
static DEVICE_ATTR_WO(mark);

/* Of a crash drive: its contents become those of this state of its file. */
static ssize_t state_store(struct device *dev, struct device_attribute *attr,
			   const char *buf, size_t count)
{
	unsigned long flags;
	u32 state;
	int err;

	err = kstrtou32(buf, 10, &state);
	if (err)
		return err;
	spin_lock_irqsave(&model_lock, flags);
	err = shingle_drive_set_state(to_shd(dev)->drive, state);
	spin_unlock_irqrestore(&model_lock, flags);
	return err ?: count;
}
static DEVICE_ATTR_WO(state);

static ssize_t save_store(struct device *dev, struct device_attribute *attr,
			  const char *buf, size_t count)
{
	struct shingle_dev *shd = to_shd(dev);
	unsigned long flags;
	bool yes;
	int err;

	if (kstrtobool(buf, &yes) || !yes)
		return -EINVAL;
	if (!shd->file->save) {
		pr_err("the machine was started without shingle.save for %s\n",
		       shd->disk->disk_name);
		return -ENXIO;
	}
	spin_lock_irqsave(&model_lock, flags);
	err = save_drive(shd);
	spin_unlock_irqrestore(&model_lock, flags);
	if (err)
		pr_err("saving to %s failed: error %d\n", shd->file->save,
		       -err);
	return err ?: count;
}
static DEVICE_ATTR_WO(save);

/* How long requests took. A read from the start is a new snapshot. */
static ssize_t latency_read(struct file *file, struct kobject *kobj,
			    struct bin_attribute *attr, char *buf, loff_t off,
			    size_t count)
{
	struct shingle_dev *shd = to_shd(kobj_to_dev(kobj));
	unsigned long flags;
	ssize_t n = -EFBIG;

	spin_lock_irqsave(&model_lock, flags);
	if (!off)
		shd->latencies_len = shingle_drive_latencies(shd->drive,
							     shd->latencies,
							     LATENCIES_BYTES);
	if (shd->latencies_len <= LATENCIES_BYTES)
		n = memory_read_from_buffer(buf, count, &off, shd->latencies,
					    shd->latencies_len);
	spin_unlock_irqrestore(&model_lock, flags);
	return n;
}
static BIN_ATTR_RO(latency, 0);

static struct bin_attribute *shingle_bin_attrs[] = {
	&bin_attr_latency,
	NULL
};

static struct attribute *shingle_attrs[] = {
	&dev_attr_counters.attr,
	&dev_attr_clean.attr,
	&dev_attr_journal_extents.attr,
	&dev_attr_superblock_extents.attr,
	&dev_attr_mark.attr,
	&dev_attr_state.attr,
	&dev_attr_save.attr,
	NULL
};

static const struct attribute_group shingle_group = {
	.name = "shingle",
	.attrs = shingle_attrs,
	.bin_attrs = shingle_bin_attrs,
};

static const struct attribute_group *shingle_groups[] = {
	&shingle_group,
	NULL
};

/* The model's own assertion failed; called by the library. */
void shingle_host_panic(const char *text, u32 len)
{
	panic("the drive model stopped: %.*s", (int)len, text);
}

static void __init load_faults(struct shingle_dev *shd)
{
	static char plan[SZ_64K] __initdata, why[256] __initdata;
	const char *faults = shd->file->faults;
	int len;

	len = shingle_read_file(faults, plan, sizeof(plan));
	if (len < 0)
		fail(SHINGLE_EXIT_SETUP,
		     "the fault plan %s cannot be used: error %d\n", faults,
		     -len);
	if (shingle_drive_set_faults(shd->drive, plan, len, why, sizeof(why)))
		fail(SHINGLE_EXIT_SETUP, "the fault plan %s is refused: %s\n",
		     faults, why);
}

/*
 * A hole in the numbers, or files of a drive that is not there, are mistakes;
 * but a machine without any drive lets those of the first be named.
 */
static void __init count_drives(void)
{
	unsigned int i;

	for (i = 0; i < SHINGLE_DRIVES; i++) {
		drives[i].number = i;
		drives[i].file = &files[i];
	}
	while (drives_nr < SHINGLE_DRIVES && files[drives_nr].drive)
		drives_nr++;
	for (i = max(drives_nr, 1U); i < SHINGLE_DRIVES; i++) {
		const struct shingle_files *f = &files[i];
		const char *name = f->drive ? "drive" : f->save ? "save" :
				   f->trace ? "trace" :
				   f->faults ? "faults" : NULL;

		if (name)
			fail(SHINGLE_EXIT_SETUP,
			     "shingle.%s is given for shd%u, and no shingle.drive for shd%u: drives are numbered without a hole\n",
			     name, i, drives_nr);
	}
}

/* Memory of the host for the drives' contents, and for what goes out. */
static void __init reserve(void)
{
	struct shingle_dev *shd;
	int err;

	err = shingle_reserve(((u64)memory_mb << 20) +
			      drives_nr * (TRACE_BYTES + LATENCIES_BYTES));
	if (err)
		fail(SHINGLE_EXIT_SETUP,
		     "no room for %lu MiB of drive contents: error %d\n",
		     memory_mb, -err);
	for_each_drive(shd) {
		shd->trace = shingle_host_alloc_chunk(TRACE_BYTES);
		shd->latencies = shingle_host_alloc_chunk(LATENCIES_BYTES);
	}
}

static void __init check_geometry(const struct shingle_dev *shd)
{
	const struct shingle_geometry *g = &shd->geometry;

	if (g->zoned && !is_power_of_2(g->zone_sectors))
		fail(SHINGLE_EXIT_SETUP,
		     "the drive file %s has zones of %llu sectors; Linux takes only zones whose size is a power of two\n",
		     shd->file->drive, g->zone_sectors);
	if (!g->queue_depth || g->queue_depth > MAX_TAGS)
		fail(SHINGLE_EXIT_SETUP, "a queue depth of %u is impossible\n",
		     g->queue_depth);
}

/* Drives have their own randomness; the first has what one alone would have. */
static u64 __init seed_of(const struct shingle_dev *shd)
{
	return os_random_seed + shd->number * GOLDEN_RATIO_64;
}

static void __init open_drive(struct shingle_dev *shd)
{
	static char why[256] __initdata;
	const char *name = shd->file->drive;
	const void *map;
	u64 len;
	int err;

	err = shingle_map_drive(shd->number, name, &map, &len);
	if (err)
		fail(SHINGLE_EXIT_SETUP,
		     "the drive file %s cannot be used: %s (error %d)\n", name,
		     err == -ENOENT ? "there is no such file" :
		     err == -EACCES ? "permission denied" :
		     err == -ENODATA ? "it is empty" :
		     err == -EFBIG ? "it is larger than 1 TiB" :
		     err == -ENOTBLK ? "it is no regular file" : "see the error",
		     -err);
	shd->drive = shingle_drive_open(map, len, seed_of(shd), why,
					sizeof(why) - 1);
	if (!shd->drive)
		fail(SHINGLE_EXIT_SETUP, "the drive file %s is refused: %s\n",
		     name, why);
	if (shd->file->faults)
		load_faults(shd);
	shingle_drive_geometry(shd->drive, &shd->geometry);
	check_geometry(shd);
	if (!shd->file->trace)
		return;
	trace_drain(shd);	/* the drive traces from the first call on */
	err = shingle_trace_open(shd->number, shd->file->trace);
	if (err)
		fail(SHINGLE_EXIT_SETUP,
		     "the trace file %s cannot be made: error %d\n",
		     shd->file->trace, -err);
}

static int __init add_disk_of(struct shingle_dev *shd, int major)
{
	const struct shingle_geometry *g = &shd->geometry;
	struct queue_limits lim = {
		.logical_block_size = g->logical_block_bytes,
		.physical_block_size = g->physical_block_bytes,
		.max_hw_sectors = g->max_request_sectors,
		.max_segments = SATA_SEGMENTS,
		.max_segment_size = SATA_SEGMENT_BYTES,
		.features = BLK_FEAT_ROTATIONAL,
	};
	int err;

	if (g->volatile_cache)
		lim.features |= BLK_FEAT_WRITE_CACHE;
	if (g->volatile_cache && g->fua)
		lim.features |= BLK_FEAT_FUA;
	if (g->zoned) {
		lim.features |= BLK_FEAT_ZONED;
		lim.chunk_sectors = g->zone_sectors;
		lim.zone_write_granularity = g->physical_block_bytes;
		lim.max_open_zones = g->open_max;
		/* Zone append is the block layer's: no such command in ZBC. */
	}
	if (g->discard && g->zoned) {
		/* Only whole zones can be forgotten. */
		lim.max_hw_discard_sectors = g->zone_sectors;
		lim.discard_granularity = g->zone_sectors << SECTOR_SHIFT;
	} else if (g->discard) {
		lim.max_hw_discard_sectors = SATA_TRIM_SECTORS;
		lim.discard_granularity = g->physical_block_bytes;
	}

	shd->tag_set.ops = &shingle_mq_ops;
	shd->tag_set.nr_hw_queues = 1;
	shd->tag_set.queue_depth = g->queue_depth;
	shd->tag_set.numa_node = NUMA_NO_NODE;
	shd->tag_set.cmd_size = sizeof(struct shingle_cmd);
	shd->tag_set.timeout = TIMEOUT_S * HZ;
	shd->tag_set.flags = BLK_MQ_F_SHOULD_MERGE;
	err = blk_mq_alloc_tag_set(&shd->tag_set);
	if (err)
		return err;
	shd->disk = blk_mq_alloc_disk(&shd->tag_set, &lim, shd);
	if (IS_ERR(shd->disk))
		return PTR_ERR(shd->disk);
	shd->disk->major = major;
	shd->disk->first_minor = shd->number;
	shd->disk->minors = 1;
	shd->disk->private_data = shd;
	snprintf(shd->disk->disk_name, DISK_NAME_LEN, "shd%u", shd->number);
	shd->disk->fops = &shingle_fops;
	/* Looking for a partition table would be requests nobody asked for. */
	shd->disk->flags |= GENHD_FL_NO_PART;
	set_capacity(shd->disk, g->capacity_sectors);
	if (g->zoned && blk_revalidate_disk_zones(shd->disk))
		fail(SHINGLE_EXIT_SETUP,
		     "Linux does not take the zones of %s: at least one must be sequential, and all have one size\n",
		     shd->file->drive);
	return device_add_disk(NULL, shd->disk, shingle_groups);
}

static int __init shingle_init(void)
{
	struct shingle_dev *shd;
	int major, err;

	count_drives();
	if (!drives_nr)
		return 0;
	reserve();
	/* sg3-utils take the major that all disks without one share for NVMe. */
	major = register_blkdev(0, "shd");
	if (major < 0)
		fail(SHINGLE_EXIT_SETUP, "no major number: error %d\n", -major);
	for_each_drive(shd) {
		open_drive(shd);
		hrtimer_init(&shd->timer, CLOCK_MONOTONIC,
			     HRTIMER_MODE_ABS_HARD);
		shd->timer.function = timer_fires;
		INIT_LIST_HEAD(&shd->sent);
		err = add_disk_of(shd, major);
		if (err)
			fail(SHINGLE_EXIT_SETUP,
			     "adding the disk shd%u failed: error %d\n",
			     shd->number, -err);
	}
	return 0;
}
device_initcall(shingle_init);

/*
 * The guest mounts this directory. One byte more in its path can mean one
 * system call more in a guest program, and so another time for all that
 * follows: the guest gets a name of constant length.
 */
static int __init out_param(char *path, int *add)
{
	int err = shingle_rename_directory(path);

	if (err)
		fail(SHINGLE_EXIT_SETUP,
		     "the directory %s of shingle.out cannot be opened: error %d\n",
		     path, -err);
	return 0;
}

__uml_setup("shingle.out=", out_param,
	    "shingle.out=<directory>\n"
	    "    A directory of the host that the guest mounts and writes to.\n\n"
);

/* Power off, or a fatal signal. */
static void shingle_at_end(void)
{
	struct shingle_dev *shd;

	for_each_drive(shd) {
		if (shd->drive)
			trace_drain(shd);
		trace_write_out(shd);
	}
}

__uml_exitcall(shingle_at_end);

/*
 * The message and the stack are on the console. Stock UML goes on to abort(),
 * which leaves a core of the size of the guest; the lab wants a status.
 */
static int panic_ends_machine(struct notifier_block *self,
			      unsigned long unused, void *text)
{
	struct shingle_dev *shd;

	for_each_drive(shd)
		trace_write_out(shd);
	shingle_exit(SHINGLE_EXIT_PANIC);
	return NOTIFY_DONE;
}

static struct notifier_block panic_notifier = {
	.notifier_call = panic_ends_machine,
	.priority = INT_MAX,	/* before UML's own, which does not return */
};

static int __init register_panic_notifier(void)
{
	return atomic_notifier_chain_register(&panic_notifier_list,
					      &panic_notifier);
}

__uml_postsetup(register_panic_notifier);
