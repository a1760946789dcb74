// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pass-through to the simulated drive: ioctl(SG_IO) on /dev/shdN.
 *
 * Linux does not show the zones of host-aware disks; programs reach them by
 * sending the disk's own commands. This is the small part of SPC, SBC and ZBC
 * that such programs (sg3-utils) need, so that they run on the simulated drive
 * as on a real one:
 *
 *	TEST UNIT READY, INQUIRY (pages 00h, 80h, 83h, B1h, B6h),
 *	READ CAPACITY (10) and (16), REPORT ZONES,
 *	OPEN ZONE, CLOSE ZONE, FINISH ZONE, RESET WRITE POINTER
 *
 * Commands that change zones go through the queue and take the drive's time;
 * the others take none. As with a real disk, the block layer knows nothing of
 * what is passed through: where it follows a zone's write pointer itself, it
 * refuses a write first, and asks for a report after that.
 *
 * Every answer is put together in a buffer first and cut to what the command
 * and the caller have room for. No command here takes data.
 */

#include <linux/blkdev.h>
#include <linux/capability.h>
#include <linux/cleanup.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/unaligned.h>
#include <scsi/scsi_proto.h>
#include <scsi/sg.h>
#include "shingle_sg.h"

#define CDB_BYTES		16
#define SENSE_BYTES		18
#define ANSWER_BYTES		96	/* of all commands but REPORT ZONES */
#define ZONE_BYTES		64	/* a descriptor, and the list's head */
#define ZONES_AT_ONCE		64

#define ZONED_HOST_MANAGED	2

/* Sense, as in struct shingle_completion. */
#define SENSE(key, code)	((key) << 16 | (code))
#define INVALID_COMMAND		SENSE(ILLEGAL_REQUEST, 0x2000)
#define OUT_OF_RANGE		SENSE(ILLEGAL_REQUEST, 0x2100)
#define INVALID_FIELD		SENSE(ILLEGAL_REQUEST, 0x2400)
#define TOO_MANY_OPEN		SENSE(DATA_PROTECT, 0x550e)
#define INTERNAL_FAILURE	SENSE(HARDWARE_ERROR, 0x4400)

#define VPD_PAGES		0x00
#define VPD_SERIAL		0x80
#define VPD_IDENTIFICATION	0x83
#define VPD_CHARACTERISTICS	0xb1
#define VPD_ZONES		0xb6

static const char vendor[] = "SHINGLE ";
static const char product[] = "SIMULATED DRIVE ";
static const char revision[] = "0001";
#define SERIAL_BYTES		8

/* One command on its way. */
struct sg_command {
	struct gendisk	*disk;
	u8		cdb[CDB_BYTES];
	u8		*answer;	/* zeroed, @room bytes */
	u32		room;
	u32		len;		/* of the answer, @room at most */
};

static bool is_host_managed(const struct shingle_geometry *g)
{
	return g->zoned == ZONED_HOST_MANAGED;
}

static u64 to_lba(const struct shingle_geometry *g, u64 sector)
{
	return div_u64(sector, g->logical_block_bytes >> SECTOR_SHIFT);
}

static bool to_sector(const struct shingle_geometry *g, u64 lba, u64 *sector)
{
	*sector = lba * (g->logical_block_bytes >> SECTOR_SHIFT);
	return lba < to_lba(g, g->capacity_sectors);
}

/* No answer is longer than the command allows. */
static void answer(struct sg_command *c, u32 len, u32 allocated)
{
	c->len = min3(len, allocated, c->room);
}

static void inquiry_standard(struct sg_command *c)
{
	u8 *a = c->answer;

	a[2] = 0x07;		/* SPC-5 */
	a[3] = 0x02;		/* format of this answer */
	a[4] = 96 - 5;
	a[7] = 0x02;		/* commands are queued */
	memcpy(a + 8, vendor, 8);
	memcpy(a + 16, product, 16);
	memcpy(a + 32, revision, 4);
	put_unaligned_be16(0x00c0, a + 58);	/* SBC-3 */
	put_unaligned_be16(0x0620, a + 60);	/* ZBC */
}

/* "SHD0" and so on, filled up with spaces. */
static void put_serial(const struct sg_command *c, u8 *a)
{
	char text[SERIAL_BYTES + 1];

	snprintf(text, sizeof(text), "SHD%-*d", SERIAL_BYTES - 3,
		 c->disk->first_minor);
	memcpy(a, text, SERIAL_BYTES);
}

/* Returns the page's length without its head of four bytes, or 0. */
static u32 inquiry_page(struct sg_command *c)
{
	const struct shingle_geometry *g = shingle_geometry(c->disk);
	u8 *a = c->answer;

	switch (c->cdb[2]) {
	case VPD_PAGES:
		a[4] = VPD_PAGES;
		a[5] = VPD_SERIAL;
		a[6] = VPD_IDENTIFICATION;
		a[7] = VPD_CHARACTERISTICS;
		if (!g->zones)
			return 4;
		a[8] = VPD_ZONES;
		return 5;
	case VPD_SERIAL:
		put_serial(c, a + 4);
		return 8;
	case VPD_IDENTIFICATION:
		a[4] = 0x02;	/* the text is ASCII */
		a[5] = 0x01;	/* by vendor, of the logical unit */
		a[7] = 8 + 16 + 8;
		memcpy(a + 8, vendor, 8);
		memcpy(a + 16, product, 16);
		put_serial(c, a + 32);
		return 4 + a[7];
	case VPD_CHARACTERISTICS:
		/* ZONED: 01b is host-aware; host-managed shows in the type. */
		if (g->zones && !is_host_managed(g))
			a[8] = 0x01 << 4;
		return 60;
	case VPD_ZONES:
		if (!g->zones)
			return 0;
		/* URSWRZ: may be read beyond the write pointer. */
		a[4] = !g->read_restricted;
		put_unaligned_be32(U32_MAX, a + 8);
		put_unaligned_be32(U32_MAX, a + 12);
		put_unaligned_be32(U32_MAX, a + 16);
		if (is_host_managed(g) && g->open_max)
			put_unaligned_be32(g->open_max, a + 16);
		else if (g->open_max)
			put_unaligned_be32(g->open_max, a + 8);
		return 60;
	default:
		return 0;
	}
}

static u32 inquiry(struct sg_command *c)
{
	const struct shingle_geometry *g = shingle_geometry(c->disk);
	bool vital = c->cdb[1] & 0x01;
	u32 len = 96;

	if (c->cdb[1] & 0x02 || (!vital && c->cdb[2]))
		return INVALID_FIELD;
	if (vital) {
		len = inquiry_page(c);
		if (!len)
			return INVALID_FIELD;
		c->answer[1] = c->cdb[2];
		put_unaligned_be16(len, c->answer + 2);
		len += 4;
	} else {
		inquiry_standard(c);
	}
	c->answer[0] = is_host_managed(g) ? TYPE_ZBC : TYPE_DISK;
	answer(c, len, get_unaligned_be16(c->cdb + 3));
	return 0;
}

static u32 read_capacity_10(struct sg_command *c)
{
	const struct shingle_geometry *g = shingle_geometry(c->disk);
	u64 last = to_lba(g, g->capacity_sectors) - 1;

	put_unaligned_be32(min_t(u64, last, U32_MAX), c->answer);
	put_unaligned_be32(g->logical_block_bytes, c->answer + 4);
	answer(c, 8, 8);
	return 0;
}

static u32 read_capacity_16(struct sg_command *c)
{
	const struct shingle_geometry *g = shingle_geometry(c->disk);
	u8 *a = c->answer;

	if ((c->cdb[1] & 0x1f) != SAI_READ_CAPACITY_16)
		return INVALID_FIELD;
	put_unaligned_be64(to_lba(g, g->capacity_sectors) - 1, a);
	put_unaligned_be32(g->logical_block_bytes, a + 8);
	if (g->zones)
		a[12] = 0x01 << 4;	/* RC BASIS: the last of all blocks */
	a[13] = ilog2(g->physical_block_bytes / g->logical_block_bytes);
	if (g->discard)
		a[14] = 0x80;		/* LBPME */
	answer(c, 32, get_unaligned_be32(c->cdb + 10));
	return 0;
}

/* Whether REPORT ZONES with this option lists a zone; -1: no such option. */
static int option_lists(u8 option, const struct shingle_zone *zone)
{
	static const u8 conditions[] = {
		[ZBC_ZONE_REPORTING_OPTION_EMPTY] = BLK_ZONE_COND_EMPTY,
		[ZBC_ZONE_REPORTING_OPTION_IMPLICIT_OPEN] = BLK_ZONE_COND_IMP_OPEN,
		[ZBC_ZONE_REPORTING_OPTION_EXPLICIT_OPEN] = BLK_ZONE_COND_EXP_OPEN,
		[ZBC_ZONE_REPORTING_OPTION_CLOSED] = BLK_ZONE_COND_CLOSED,
		[ZBC_ZONE_REPORTING_OPTION_FULL] = BLK_ZONE_COND_FULL,
		[ZBC_ZONE_REPORTING_OPTION_READONLY] = BLK_ZONE_COND_READONLY,
		[ZBC_ZONE_REPORTING_OPTION_OFFLINE] = BLK_ZONE_COND_OFFLINE,
	};

	switch (option) {
	case ZBC_ZONE_REPORTING_OPTION_ALL:
		return true;
	case ZBC_ZONE_REPORTING_OPTION_NEED_RESET_WP:
	case ZBC_ZONE_REPORTING_OPTION_NON_SEQWRITE:
		return false;
	case ZBC_ZONE_REPORTING_OPTION_NON_WP:
		return zone->condition == BLK_ZONE_COND_NOT_WP;
	}
	if (option >= ARRAY_SIZE(conditions))
		return -1;
	return zone->condition == conditions[option];
}

static void describe_zone(const struct shingle_geometry *g, u8 *d,
			  const struct shingle_zone *zone)
{
	u64 pointer = U64_MAX;	/* without meaning in the other conditions */

	if (zone->condition >= BLK_ZONE_COND_EMPTY &&
	    zone->condition <= BLK_ZONE_COND_CLOSED)
		pointer = to_lba(g, zone->write_pointer);
	d[0] = zone->type;
	d[1] = zone->condition << 4;
	put_unaligned_be64(to_lba(g, zone->sectors), d + 8);
	put_unaligned_be64(to_lba(g, zone->start), d + 16);
	put_unaligned_be64(pointer, d + 24);
}

static u32 report_zones(struct sg_command *c)
{
	const struct shingle_geometry *g = shingle_geometry(c->disk);
	u32 room = min(c->room, get_unaligned_be32(c->cdb + 10));
	struct shingle_zone *zones __free(kfree) = NULL;
	u8 option = c->cdb[14] & 0x3f;
	bool partial = c->cdb[14] & ZBC_REPORT_ZONE_PARTIAL;
	u32 next, n, i, listed = 0, written = 0;
	bool same_type = true, same_size = true;
	struct shingle_zone first;
	u64 start;
	int lists;

	if (!to_sector(g, get_unaligned_be64(c->cdb + 2), &start))
		return OUT_OF_RANGE;
	zones = kmalloc_array(ZONES_AT_ONCE, sizeof(*zones), GFP_KERNEL);
	if (!zones)
		return INTERNAL_FAILURE;
	shingle_zones(c->disk, 0, &first, 1);
	if (option_lists(option, &first) < 0)
		return INVALID_FIELD;
	next = div64_u64(start, g->zone_sectors);
	while ((n = shingle_zones(c->disk, next, zones, ZONES_AT_ONCE))) {
		for (i = 0; i < n; i++) {
			lists = option_lists(option, &zones[i]);
			if (!lists)
				continue;
			if (!listed)
				first = zones[i];
			listed++;
			same_type &= zones[i].type == first.type;
			same_size &= zones[i].sectors == first.sectors;
			if (ZONE_BYTES * (listed + 1) > room)
				continue;
			describe_zone(g, c->answer + ZONE_BYTES * listed,
				      &zones[i]);
			written++;
		}
		next += n;
	}
	if (room >= ZONE_BYTES) {
		put_unaligned_be32(ZONE_BYTES * (partial ? written : listed),
				   c->answer);
		/* SAME: 1 is both, 3 is size only, 0 is neither. */
		c->answer[4] = !same_size ? 0 : same_type ? 1 : 3;
		put_unaligned_be64(to_lba(g, g->capacity_sectors) - 1,
				   c->answer + 8);
	}
	answer(c, ZONE_BYTES * (written + 1), room);
	return 0;
}

static u32 zone_command(struct sg_command *c, u32 op, u64 sector)
{
	u32 sense;
	int err = shingle_zone_command(c->disk, op, sector, &sense);

	return sense ?: err ? INTERNAL_FAILURE : 0;
}

/* Whether OPEN, CLOSE or FINISH with the ALL bit is about such a zone. */
static bool all_concerns(u32 op, u32 condition)
{
	bool open = condition == BLK_ZONE_COND_IMP_OPEN ||
		    condition == BLK_ZONE_COND_EXP_OPEN;

	switch (op) {
	case SHINGLE_ZONE_OPEN:
		return condition == BLK_ZONE_COND_CLOSED;
	case SHINGLE_ZONE_CLOSE:
		return open;
	default:
		return open || condition == BLK_ZONE_COND_CLOSED;
	}
}

/* With @count, the zones are only counted. */
static u32 for_all(struct sg_command *c, u32 op,
		   bool (*concerns)(u32 op, u32 condition), u32 *count)
{
	struct shingle_zone zone;
	u32 next, sense;

	for (next = 0; shingle_zones(c->disk, next, &zone, 1); next++) {
		if (!concerns(op, zone.condition))
			continue;
		if (count) {
			++*count;
			continue;
		}
		sense = zone_command(c, op, zone.start);
		if (sense)
			return sense;
	}
	return 0;
}

static bool is_open_by_command(u32 op, u32 condition)
{
	return condition == BLK_ZONE_COND_EXP_OPEN;
}

static u32 command_for_all(struct sg_command *c, u32 op)
{
	const struct shingle_geometry *g = shingle_geometry(c->disk);
	u32 open = 0;

	if (op == SHINGLE_ZONE_RESET)
		return zone_command(c, SHINGLE_ZONE_RESET_ALL, 0);
	if (op == SHINGLE_ZONE_OPEN && g->open_max) {
		/* All of them, or none. */
		for_all(c, op, all_concerns, &open);
		for_all(c, op, is_open_by_command, &open);
		if (open > g->open_max)
			return TOO_MANY_OPEN;
	}
	return for_all(c, op, all_concerns, NULL);
}

static u32 zbc_out(struct sg_command *c)
{
	const struct shingle_geometry *g = shingle_geometry(c->disk);
	u64 sector;
	u32 op;

	switch (c->cdb[1] & 0x1f) {
	case ZO_CLOSE_ZONE:
		op = SHINGLE_ZONE_CLOSE;
		break;
	case ZO_FINISH_ZONE:
		op = SHINGLE_ZONE_FINISH;
		break;
	case ZO_OPEN_ZONE:
		op = SHINGLE_ZONE_OPEN;
		break;
	case ZO_RESET_WRITE_POINTER:
		op = SHINGLE_ZONE_RESET;
		break;
	default:
		return INVALID_FIELD;
	}
	if (c->cdb[14] & 0x01)
		return command_for_all(c, op);
	if (!to_sector(g, get_unaligned_be64(c->cdb + 2), &sector))
		return OUT_OF_RANGE;
	return zone_command(c, op, sector);
}

static u32 execute(struct sg_command *c)
{
	bool has_zones = shingle_geometry(c->disk)->zones;

	switch (c->cdb[0]) {
	case TEST_UNIT_READY:
		return 0;
	case INQUIRY:
		return inquiry(c);
	case READ_CAPACITY:
		return read_capacity_10(c);
	case SERVICE_ACTION_IN_16:
		return read_capacity_16(c);
	case ZBC_IN:
		if (!has_zones)
			return INVALID_COMMAND;
		if ((c->cdb[1] & 0x1f) != ZI_REPORT_ZONES)
			return INVALID_FIELD;
		return report_zones(c);
	case ZBC_OUT:
		return has_zones ? zbc_out(c) : INVALID_COMMAND;
	default:
		return INVALID_COMMAND;
	}
}

/* Sense in the fixed format (SPC). */
static int put_sense(struct sg_io_hdr *h, u32 sense)
{
	u8 data[SENSE_BYTES] = {
		[0] = 0x70,
		[2] = sense >> 16,
		[7] = SENSE_BYTES - 8,
		[12] = sense >> 8,
		[13] = sense,
	};

	h->status = SAM_STAT_CHECK_CONDITION;
	h->masked_status = h->status >> 1;
	h->driver_status = 0x08;	/* there is sense */
	h->info |= SG_INFO_CHECK;
	if (!h->sbp)
		return 0;
	h->sb_len_wr = min_t(u32, h->mx_sb_len, sizeof(data));
	return copy_to_user(h->sbp, data, h->sb_len_wr) ? -EFAULT : 0;
}

static int perform(struct sg_io_hdr *h, struct sg_command *c)
{
	u8 *buffer __free(kvfree) = NULL;
	u32 sense;
	u32 wanted = h->dxfer_direction == SG_DXFER_FROM_DEV ||
		     h->dxfer_direction == SG_DXFER_TO_FROM_DEV ?
		     h->dxfer_len : 0;

	c->room = max(wanted, ANSWER_BYTES);
	buffer = kvzalloc(c->room, GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	c->answer = buffer;
	sense = execute(c);
	if (sense) {
		h->resid = h->dxfer_len;
		return put_sense(h, sense);
	}
	c->len = min(c->len, wanted);
	h->resid = h->dxfer_len - c->len;
	return copy_to_user(h->dxferp, buffer, c->len) ? -EFAULT : 0;
}

static int sg_io(struct block_device *bdev, blk_mode_t mode,
		 struct sg_io_hdr __user *argp)
{
	u32 max_bytes = queue_max_hw_sectors(bdev_get_queue(bdev)) <<
			SECTOR_SHIFT;
	struct sg_command c = { .disk = bdev->bd_disk };
	struct sg_io_hdr h;
	u64 began_ns;
	int err;

	if (copy_from_user(&h, argp, sizeof(h)))
		return -EFAULT;
	if (h.interface_id != SG_INTERFACE_ID_ORIG)
		return -EINVAL;
	if (h.cmd_len > sizeof(c.cdb) || h.iovec_count)
		return -EINVAL;
	if (h.dxfer_len > max_bytes)
		return -EIO;
	if (copy_from_user(c.cdb, h.cmdp, h.cmd_len))
		return -EFAULT;
	if (c.cdb[0] == ZBC_OUT && !(mode & BLK_OPEN_WRITE) &&
	    !capable(CAP_SYS_RAWIO))
		return -EPERM;
	h.status = 0;
	h.masked_status = 0;
	h.msg_status = 0;
	h.sb_len_wr = 0;
	h.host_status = 0;
	h.driver_status = 0;
	h.info = 0;
	h.resid = 0;
	began_ns = ktime_get_ns();
	err = perform(&h, &c);
	if (err)
		return err;
	h.duration = div_u64(ktime_get_ns() - began_ns, NSEC_PER_MSEC);
	return copy_to_user(argp, &h, sizeof(h)) ? -EFAULT : 0;
}

int shingle_sg_ioctl(struct block_device *bdev, blk_mode_t mode,
		     unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case SG_GET_VERSION_NUM:
		return put_user(30536, (int __user *)arg);
	case SG_IO:
		return sg_io(bdev, mode, (void __user *)arg);
	default:
		return -ENOTTY;
	}
}
