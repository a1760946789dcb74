// SPDX-License-Identifier: GPL-2.0-only
/*
 * Snapshots of the map, in the log, so that a mount need not read all of it.
 *
 * A snapshot is part of a transaction T.  It says what a scan of the log from
 * the tail to the beginning of T would find.  A mount starts at the beginning
 * of T, takes the snapshot in when it comes to it, and scans on to the end:
 *
 *	 tail                            T               head
 *	  |                              |tags [####] c  |
 *	--+------------------------------+---------------+--
 *	  |<--- what the snapshot says ->|<-- scanned -->|
 *
 * It stands alone: it has no part in what it says of other snapshots, of T, or
 * of anything behind T.  Revokes that come later are scanned.
 *
 * It is a cache.  The marker in the journal superblock (lazy_mount.c) names the
 * newest one, and the digest of the map when it was written, which jmap.c keeps
 * up to date with each change.  If a snapshot is not what the marker says, the
 * whole log is scanned, and the map is the same then.
 *
 *  INV-K15 A snapshot says what a scan from the tail to its transaction would.
 *          Of it counts what lies at or behind the tail of the mount: a copy
 *          in front of it is passed over.  So it holds also the blocks that
 *          went home since they were logged (JMAP_DEMOTED), because they may
 *          not be durable there.
 *
 * One is due when an eighth of the log was written since the last one, or, when
 * the file system is about to be unmounted, 2 MiB of 4 KiB blocks, which are
 * read in an instant.  It is written with the transaction that makes it due.
 * With three quarters of the log live it costs 1.8 % of what is logged.
 *
 * On the disk each is a row of revoke blocks without revokes (r_count is 16),
 * behind which come twelve bytes for each copy.  So stock recovery checks its
 * checksums and finds nothing to do.
 *
 * Locking: the commit thread does all of it, or the mount before there is one.
 * Others read what the marker points at only, under mark_lock.
 */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/slab.h>
#include "lazy.h"

/* A snapshot is due when so small a part of the log was written. */
#define PERIOD_PART	8U
/* When the journal is about to be closed, so many blocks are enough. */
#define CLOSING_BLOCKS	512U
/* Blocks that are written in one go. */
#define BUFFER_MOST	64U

/* ------------------------------------------------------------------------- */
/* Format: Documentation/filesystems/ext4/journal.rst                        */

#define SNAP_MAGIC	0x4c5a5953U	/* "LZYS" */
#define SNAP_GAP_BITS	13

struct snap_header {
	jbd2_journal_revoke_header_t revoke;
	__be32 magic;
	__be32 index;			/* of the block in its snapshot */
	__be32 slot;			/* where the first gap is counted from */
	__be16 nr_records;
	__be16 reserved;
};

struct snap_record {
	__be16 what;			/* kind and gap */
	__be16 hi;
	__be32 lo;
	__be32 csum;
};

static u32 snap_room(u32 size)
{
	return size - sizeof(struct jbd2_journal_block_tail);
}

/* Records that fit into a block. */
static u32 snap_per_block(u32 size)
{
	return (snap_room(size) - sizeof(struct snap_header)) /
	       sizeof(struct snap_record);
}

/**
 * jbd2_snap_block_init() - begin a block of a snapshot
 * @block: filled in
 * @data: @size bytes
 * @size: of a log block
 * @nr_slots: of the log
 * @tid: the transaction that it is part of
 * @index: of the block in the snapshot
 * @slot: the last slot that was mentioned
 */
void jbd2_snap_block_init(struct snap_block *block, void *data, u32 size,
			  u32 nr_slots, tid_t tid, u32 index, u32 slot)
{
	struct snap_header *header = data;

	memset(data, 0, size);
	header->revoke.r_header.h_magic = cpu_to_be32(JBD2_MAGIC_NUMBER);
	header->revoke.r_header.h_blocktype = cpu_to_be32(JBD2_REVOKE_BLOCK);
	header->revoke.r_header.h_sequence = cpu_to_be32(tid);
	header->revoke.r_count = cpu_to_be32(sizeof(header->revoke));
	header->magic = cpu_to_be32(SNAP_MAGIC);
	header->index = cpu_to_be32(index);
	header->slot = cpu_to_be32(slot);
	block->data = data;
	block->nr_slots = nr_slots;
	block->slot = slot;
	block->records = 0;
	block->most = snap_per_block(size);
}

static void snap_put_record(struct snap_block *block, enum snap_kind kind,
			    u32 gap, u64 value, u32 csum)
{
	struct snap_record *record = block->data + sizeof(struct snap_header);
	struct snap_header *header = block->data;

	record += block->records++;
	record->what = cpu_to_be16(kind << SNAP_GAP_BITS | gap);
	record->hi = cpu_to_be16(upper_32_bits(value));
	record->lo = cpu_to_be32(lower_32_bits(value));
	record->csum = cpu_to_be32(csum);
	header->nr_records = cpu_to_be16(block->records);
}

/**
 * jbd2_snap_put() - add a record
 * @block: the block
 * @kind: what it says
 * @slot: of which slot
 * @value: a home block, or a transaction id
 * @csum: of the copy
 *
 * Return: false if there is no room.
 */
bool jbd2_snap_put(struct snap_block *block, enum snap_kind kind, u32 slot,
		   u64 value, u32 csum)
{
	u32 gap = slot >= block->slot ? slot - block->slot :
		  slot + block->nr_slots - block->slot;
	bool far = gap >> SNAP_GAP_BITS;

	if (block->most - block->records < 1 + far)
		return false;
	if (far)
		snap_put_record(block, SNAP_SKIP, 0, gap, 0);
	snap_put_record(block, kind, far ? 0 : gap, value, csum);
	block->slot = slot;
	return true;
}

/**
 * jbd2_snap_block_open() - read a block of a snapshot
 * @block: filled in
 * @data: the block, whose checksum is right
 * @size: of a log block
 * @nr_slots: of the log
 * @tid: the transaction that it should be part of
 * @index: which block of the snapshot it should be
 *
 * Return: false if it is something else.
 */
bool jbd2_snap_block_open(struct snap_block *block, void *data, u32 size,
			  u32 nr_slots, tid_t tid, u32 index)
{
	const struct snap_header *header = data;

	block->data = data;
	block->nr_slots = nr_slots;
	block->slot = be32_to_cpu(header->slot);
	block->records = 0;
	block->most = be16_to_cpu(header->nr_records);
	return header->revoke.r_header.h_magic ==
			cpu_to_be32(JBD2_MAGIC_NUMBER) &&
	       header->revoke.r_header.h_blocktype ==
			cpu_to_be32(JBD2_REVOKE_BLOCK) &&
	       header->revoke.r_header.h_sequence == cpu_to_be32(tid) &&
	       header->magic == cpu_to_be32(SNAP_MAGIC) &&
	       header->index == cpu_to_be32(index) &&
	       block->slot < nr_slots && block->most <= snap_per_block(size);
}

/**
 * jbd2_snap_get() - the next record
 * @block: the block
 * @kind: where to put what it says
 * @slot: where to put the slot
 * @value: where to put a home block or a transaction id
 * @csum: where to put the checksum of the copy
 *
 * Return: 1; 0 if there is none; -EFSCORRUPTED.
 */
int jbd2_snap_get(struct snap_block *block, enum snap_kind *kind, u32 *slot,
		  u64 *value, u32 *csum)
{
	const struct snap_record *record;
	u32 gap;

	while (block->records < block->most) {
		record = block->data + sizeof(struct snap_header);
		record += block->records++;
		*kind = be16_to_cpu(record->what) >> SNAP_GAP_BITS;
		gap = be16_to_cpu(record->what) & (BIT(SNAP_GAP_BITS) - 1);
		*value = (u64)be16_to_cpu(record->hi) << 32 |
			 be32_to_cpu(record->lo);
		*csum = be32_to_cpu(record->csum);
		if (*kind == SNAP_SKIP)
			gap = min_t(u64, *value, U32_MAX);
		if (*kind > SNAP_SKIP || gap >= block->nr_slots)
			return -EFSCORRUPTED;
		block->slot += gap;
		if (block->slot >= block->nr_slots)
			block->slot -= block->nr_slots;
		*slot = block->slot;
		if (*kind != SNAP_SKIP)
			return 1;
	}
	return 0;
}

/* ------------------------------------------------------------------------- */
/* When                                                                       */

/* The most blocks of a snapshot of the present map. */
static u32 snap_blocks_most(struct jbd2_lazy *lazy)
{
	const struct jmap *map = &lazy->map;
	/* The slots go round at most twice: marks, then copies. */
	u64 skips = 2 * (map->nr_slots >> SNAP_GAP_BITS) + 2;
	u64 records = (u64)READ_ONCE(map->nr_live) +
		      READ_ONCE(map->nr_demoted) +
		      READ_ONCE(map->mark_count) + skips;

	/* A skip may not fit in front of what it leads to. */
	return 1 + div_u64(records,
			   snap_per_block(lazy->journal->j_blocksize) - 1);
}

/*
 * A transaction is about to be committed, and no handle is open: is a snapshot
 * due, and is there room for it in the log?
 */
void __jbd2_lazy_reserve(journal_t *journal, transaction_t *transaction)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	struct lazy_snapshots *snaps = &lazy->snaps;
	u32 coming = atomic_read(&transaction->t_outstanding_credits);
	u32 overhead = journal->j_transaction_overhead_buffers;
	u32 due = snaps->period, blocks;
	unsigned long room;

	snaps->reserved = 0;
	if (READ_ONCE(snaps->closing)) {
		WRITE_ONCE(snaps->closing, false);
		due = min(due, CLOSING_BLOCKS);
	}
	if (READ_ONCE(snaps->urgent))
		due = 0;
	/* Of the credits, those for descriptors are many more than are used. */
	if (snaps->since + coming - min(coming, overhead) < due)
		return;
	blocks = snap_blocks_most(lazy);
	read_lock(&journal->j_state_lock);
	room = journal->j_free;
	read_unlock(&journal->j_state_lock);
	/* What handles may count on stays free; next time, then. */
	if (room < coming + blocks + 64)
		return;
	/* The next transaction's handles shall see the log without it. */
	atomic_add(blocks, &transaction->t_outstanding_credits);
	snaps->reserved = blocks;
}

/* The file system is about to leave the log to the next mount. */
void jbd2_lazy_closing(journal_t *journal)
{
	if (journal->j_lazy)
		WRITE_ONCE(journal->j_lazy->snaps.closing, true);
}
EXPORT_SYMBOL(jbd2_lazy_closing);

/* ------------------------------------------------------------------------- */
/* Writing                                                                    */

struct snap_writer {
	struct jbd2_lazy *lazy;
	struct snap_block block;
	tid_t tid;
	u32 index;			/* of the block that is filled */
	u32 filled;			/* blocks of the buffer before it */
	int err;
};

static void snap_end_io(struct bio *bio)
{
	struct lazy_snapshots *snaps = bio->bi_private;

	if (bio->bi_status)
		WRITE_ONCE(snaps->failed, true);
	bio_put(bio);
	if (atomic_dec_and_test(&snaps->pending))
		complete(&snaps->done);
}

/* Write what is in the buffer to the head of the log, and wait. */
static void snap_flush(struct snap_writer *writer)
{
	struct jbd2_lazy *lazy = writer->lazy;
	struct lazy_snapshots *snaps = &lazy->snaps;
	journal_t *journal = lazy->journal;
	u32 size = journal->j_blocksize, i;
	unsigned long long phys, next = 0;
	struct bio *bio = NULL;
	void *data;

	WRITE_ONCE(snaps->failed, false);
	atomic_set(&snaps->pending, 1);
	reinit_completion(&snaps->done);
	for (i = 0; i < writer->filled && !writer->err; i++) {
		writer->err = jbd2_journal_next_log_block(journal, &phys);
		if (writer->err)
			break;
		data = snaps->buffer + i * size;
		if (bio && phys != next) {
			submit_bio(bio);
			bio = NULL;
		}
		if (!bio) {
			bio = bio_alloc(journal->j_dev, BUFFER_MOST,
					REQ_OP_WRITE | JBD2_JOURNAL_REQ_FLAGS,
					GFP_NOIO);
			bio->bi_iter.bi_sector = phys * (size >> SECTOR_SHIFT);
			bio->bi_private = snaps;
			bio->bi_end_io = snap_end_io;
			atomic_inc(&snaps->pending);
		}
		__bio_add_page(bio, virt_to_page(data), size,
			       offset_in_page(data));
		next = phys + 1;
	}
	if (bio)
		submit_bio(bio);
	if (!atomic_dec_and_test(&snaps->pending))
		wait_for_completion_io(&snaps->done);
	if (READ_ONCE(snaps->failed) && !writer->err)
		writer->err = -EIO;
	atomic64_add(writer->filled, &snaps->written);
	writer->filled = 0;
}

static void snap_begin_block(struct snap_writer *writer, u32 slot)
{
	struct jbd2_lazy *lazy = writer->lazy;
	u32 size = lazy->journal->j_blocksize;

	jbd2_snap_block_init(&writer->block,
			     lazy->snaps.buffer + writer->filled * size, size,
			     lazy->map.nr_slots, writer->tid, writer->index,
			     slot);
}

static void snap_end_block(struct snap_writer *writer, bool last)
{
	struct jbd2_lazy *lazy = writer->lazy;
	journal_t *journal = lazy->journal;
	struct jbd2_journal_block_tail *tail;

	tail = writer->block.data + snap_room(journal->j_blocksize);
	tail->t_checksum = cpu_to_be32(jbd2_chksum(journal,
						   journal->j_csum_seed,
						   writer->block.data,
						   journal->j_blocksize));
	writer->filled++;
	writer->index++;
	if (last || writer->filled == lazy->snaps.buffer_blocks)
		snap_flush(writer);
}

static void snap_add(struct snap_writer *writer, enum snap_kind kind, u32 slot,
		     u64 value, u32 csum)
{
	if (writer->err ||
	    jbd2_snap_put(&writer->block, kind, slot, value, csum))
		return;
	/* More than was reserved: what is written means nothing to anybody. */
	if (writer->index + 1 >= writer->lazy->snaps.reserved) {
		writer->err = -ENOSPC;
		return;
	}
	snap_end_block(writer, false);
	snap_begin_block(writer, writer->block.slot);
	if (!writer->err)
		jbd2_snap_put(&writer->block, kind, slot, value, csum);
}

/*
 * Write the snapshot that was reserved.  All tags and revokes of the
 * transaction are written, but they are not in the map, which nobody else puts
 * anything into or takes anything out of meanwhile.
 */
void __jbd2_lazy_snapshot(journal_t *journal, transaction_t *transaction)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	struct lazy_snapshots *snaps = &lazy->snaps;
	struct jmap *map = &lazy->map;
	struct snap_writer writer = {
		.lazy = lazy,
		.tid = transaction->t_tid,
	};
	u32 i, pos = 0, left = map->nr_slots, slot;
	struct jmap_slot copy;
	struct jmap_mark mark;

	snaps->fresh.blocks = 0;
	if (!snaps->reserved || is_journal_aborted(journal))
		return;
	snaps->fresh.log_blk = journal->j_head;
	snaps->fresh.start = transaction->t_log_start;
	snaps->fresh.tid = transaction->t_tid;
	snaps->fresh.digest = map->digest;
	snap_begin_block(&writer, 0);
	for (i = 0; !writer.err && jbd2_jmap_mark_at(map, i, &mark); i++)
		snap_add(&writer, SNAP_MARK, mark.slot, mark.tid, 0);
	while (!writer.err &&
	       jbd2_jmap_next_copy(map, &pos, &left, &slot, &copy))
		snap_add(&writer,
			 copy.flags & JMAP_ESCAPED ? SNAP_ESCAPED : SNAP_COPY,
			 slot, jbd2_jmap_slot_home(&copy), copy.csum);
	if (!writer.err)
		snap_end_block(&writer, true);
	if (!writer.err) {
		snaps->fresh.blocks = writer.index;
	} else if (writer.err != -ENOSPC) {
		pr_err("JBD2: %s: cannot write a snapshot to the log (%d)\n",
		       journal->j_devname, writer.err);
		jbd2_journal_abort(journal, writer.err);
	}
}

/*
 * A transaction of @blocks log blocks is durable, and with it the snapshot that
 * it holds, if it holds one.
 */
void jbd2_lazy_snapshot_committed(struct jbd2_lazy *lazy, u32 blocks)
{
	struct lazy_snapshots *snaps = &lazy->snaps;
	journal_t *journal = lazy->journal;

	snaps->since += blocks;
	atomic64_add(blocks, &snaps->logged);
	if (snaps->fresh.blocks) {
		spin_lock(&lazy->mark_lock);
		lazy->mark.snapshot = snaps->fresh;
		spin_unlock(&lazy->mark_lock);
		snaps->fresh.blocks = 0;
		/* The mount scans its transaction, too. */
		snaps->since = blocks;
		snaps->unmarked = true;
		WRITE_ONCE(snaps->urgent, false);
		atomic64_inc(&snaps->count);
	}
	snaps->reserved = 0;
	/* Whoever holds the mutex may write the marker anyway, or take long. */
	if (!snaps->unmarked || !mutex_trylock(&journal->j_checkpoint_mutex))
		return;
	if (!jbd2_journal_update_sb_log_tail(journal, journal->j_tail_sequence,
					     journal->j_tail, REQ_FUA))
		snaps->unmarked = false;
	mutex_unlock(&journal->j_checkpoint_mutex);
}

/* ------------------------------------------------------------------------- */
/* Reading                                                                    */

/* Whether a mount can start at what the marker points at. */
bool jbd2_lazy_snapshot_usable(struct jbd2_lazy *lazy)
{
	const struct snap_ref *ref = &lazy->mark.snapshot;
	journal_t *journal = lazy->journal;

	/* Or it is in front of the tail. */
	return ref->blocks && ref->blocks < lazy->map.nr_slots &&
	       !tid_gt(journal->j_tail_sequence, ref->tid) &&
	       ref->start >= journal->j_first && ref->start < journal->j_last;
}

/**
 * jbd2_lazy_snapshot_take() - put what a block of a snapshot says into the map
 * @lazy: a journal that is being loaded
 * @index: which block of it
 * @data: its contents, or an error pointer
 * @digest: the sum over what was taken so far; 0 at first
 *
 * Return: false if it is not what was written.
 */
bool jbd2_lazy_snapshot_take(struct jbd2_lazy *lazy, u32 index, void *data,
			     u64 *digest)
{
	const struct snap_ref *ref = &lazy->mark.snapshot;
	struct jmap *map = &lazy->map;
	journal_t *journal = lazy->journal;
	u32 tail = journal->j_tail - map->first, slot;
	u32 span = jbd2_jmap_distance(map, tail, ref->start - map->first);
	struct jmap_slot copy = {};
	struct snap_block block;
	enum snap_kind kind;
	u64 value;
	int ret;

	if (IS_ERR(data) || !jbd2_lazy_tail_csum_ok(journal, data) ||
	    !jbd2_snap_block_open(&block, data, journal->j_blocksize,
				  map->nr_slots, ref->tid, index))
		return false;
	for (;;) {
		bool kept;

		ret = jbd2_snap_get(&block, &kind, &slot, &value, &copy.csum);
		if (ret <= 0)
			break;
		kept = jbd2_jmap_distance(map, tail, slot) < span;
		if (kind == SNAP_MARK) {
			/* The tail is a mark already. */
			if (kept && slot != tail)
				jbd2_jmap_load_mark(map, value, slot);
			continue;
		}
		copy.home_lo = lower_32_bits(value);
		copy.home_hi = upper_32_bits(value);
		copy.flags = kind == SNAP_ESCAPED ? JMAP_ESCAPED : 0;
		*digest += jbd2_jmap_digest_of(slot, &copy);
		if (kept && (value >= lazy->homes ||
			     !jbd2_jmap_load_copy(map, slot, &copy)))
			return false;
	}
	cond_resched();
	return !ret && (index + 1 < ref->blocks || *digest == ref->digest);
}

/* The mount has the map. */
void jbd2_lazy_snapshot_loaded(struct jbd2_lazy *lazy)
{
	struct lazy_snapshots *snaps = &lazy->snaps;
	struct snap_ref *ref = &lazy->mark.snapshot;
	unsigned long from = lazy->journal->j_tail;

	/* Damage is only looked past once. */
	snaps->urgent = lazy->lost || (ref->blocks && !lazy->loaded);
	if (lazy->loaded)
		from = ref->start;
	else
		ref->blocks = 0;
	snaps->since =
		jbd2_lazy_log_distance(lazy->journal, from, lazy->scan_start);
}

/* ------------------------------------------------------------------------- */
/* Start and stop                                                             */

int jbd2_lazy_snapshot_init(struct jbd2_lazy *lazy)
{
	struct lazy_snapshots *snaps = &lazy->snaps;
	u32 size = lazy->journal->j_blocksize;

	init_completion(&snaps->done);
	snaps->period = lazy->map.nr_slots / PERIOD_PART;
	snaps->buffer_blocks = clamp(lazy->map.nr_slots / 4096, 1U,
				     BUFFER_MOST);
	snaps->buffer_bytes = PAGE_ALIGN(snaps->buffer_blocks * size);
	snaps->buffer = alloc_pages_exact(snaps->buffer_bytes, GFP_KERNEL);
	return snaps->buffer ? 0 : -ENOMEM;
}

void jbd2_lazy_snapshot_destroy(struct jbd2_lazy *lazy)
{
	if (lazy->snaps.buffer)
		free_pages_exact(lazy->snaps.buffer, lazy->snaps.buffer_bytes);
}
