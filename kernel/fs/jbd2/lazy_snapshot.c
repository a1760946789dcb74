// SPDX-License-Identifier: GPL-2.0-only
/*
 * Snapshots of the map, in the log, so that a mount need not read all of it.
 *
 * A snapshot says what a scan of the log from one place to another would find
 * there.  A full one begins at the tail; a delta begins where the one before
 * it was written.  A mount reads the last full one, the deltas since, and then
 * scans what was logged after the newest.  Together they are the chain:
 *
 *	 tail                                                      head
 *	  |        full    delta          delta          delta      |
 *	--+-------[####]----[#]------------[#]------------[#]-------+--
 *	  |<------|    |<---| |<-----------| |<-----------| |scanned|
 *
 * What decides how long a mount takes after a crash is what was logged since
 * the newest snapshot, no matter what: it is read as a whole (lazy_scan.c).  So
 * a snapshot is due when that many log blocks have been written, and it is
 * part of the transaction that makes it due, in front of the commit block.
 * What has to be scanned is then at most
 *
 *	period + the largest transaction + one commit block,
 *
 * the largest transaction being one that the crash cut off.  With 4 KiB blocks
 * and a log of 2 GiB or more that is 128 MiB + 192 MiB.
 *
 * Each is a row of revoke blocks without revokes (r_count is 16), behind which
 * come eight bytes for each copy.  So it is part of a transaction like any
 * other, committed or not; stock recovery checks its checksums and finds
 * nothing to do.  The marker in the journal superblock points at the newest
 * one, whose first block names the others.
 *
 * A snapshot is a cache.  If one of the chain is not what it should be, the
 * whole log is scanned.  The map is the same then, because a snapshot holds
 * what a scan finds, not what the map holds: also the blocks that went home
 * since, which may not have been durable there when the snapshot was (a slot
 * that is JMAP_DEMOTED).
 *
 *  INV-K15 The chain tells what a scan from the tail to its newest snapshot
 *          would.  Of it counts what lies at or behind the tail: snapshots of
 *          older transactions and copies in front of the tail are passed over.
 *
 * Writing them costs at most 1 % of the log.  A copy is 8 bytes in one delta
 * and perhaps 8 more in the delta that drops it, of 4 KiB logged: 0.4 %.  Full
 * snapshots are only written as long as all snapshots together stay within
 * 0.9 %.  When the file system is about to be unmounted, a delta is due sooner.
 *
 * Locking: all is done by the commit thread, or by the mount before there is
 * one; only what the marker points at is read by others, under snap_lock.
 */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/slab.h>
#include "lazy.h"

/* Log blocks from one snapshot to the next; see above. */
#define PERIOD_LEAST	1024U
#define PERIOD_MOST	32768U
/* When the journal is about to be closed, so small a part of it is enough. */
#define CLOSING_PART	64U
/* A smaller log is read in an instant. */
#define LOG_LEAST	4096U
/* A chain that is shorter is not worth a full snapshot. */
#define CHAIN_LEAST	4U
/* When the journal is about to be closed, a longer one becomes two. */
#define CHAIN_CLOSING	2U
/* Of a thousand log blocks, so many may be snapshots before one is full. */
#define BUDGET		9U
/* Blocks that are written in one go. */
#define BUFFER_MOST	64U

/* ------------------------------------------------------------------------- */
/* Format: docs/journal-lazy.md                                               */

#define SNAP_MAGIC	0x4c5a5953U	/* "LZYS" */
#define SNAP_LAST	0x0001
#define SNAP_GAP_BITS	13

struct snap_header {
	jbd2_journal_revoke_header_t revoke;
	__be32 magic;
	__be32 id;
	__be16 index;			/* of the block in its snapshot */
	__be16 flags;
	__be16 nr_chain;		/* block 0: entries of the chain */
	__be16 nr_records;
	__be32 slot;			/* where the first gap is counted from */
};

struct snap_account {			/* block 0, behind the header */
	__be64 logged;
	__be64 spent;
};

struct snap_entry {			/* block 0, behind the account */
	__be32 log_blk;
	__be32 blocks;
	__be32 tid;
	__be32 id;
};

struct snap_record {
	__be16 what;			/* kind and gap */
	__be16 hi;
	__be32 lo;
};

static u32 snap_room(u32 size)
{
	return size - sizeof(struct jbd2_journal_block_tail);
}

/**
 * snap_block_init() - begin a block of a snapshot
 * @block: filled in
 * @data: @size bytes
 * @size: of a log block
 * @nr_slots: of the log
 * @tid: the transaction that it is part of
 * @id: of the snapshot
 * @index: of the block in it
 * @slot: the last slot that was mentioned
 */
void snap_block_init(struct snap_block *block, void *data, u32 size,
		     u32 nr_slots, tid_t tid, u32 id, u32 index, u32 slot)
{
	struct snap_header *header = data;

	memset(data, 0, size);
	header->revoke.r_header.h_magic = cpu_to_be32(JBD2_MAGIC_NUMBER);
	header->revoke.r_header.h_blocktype = cpu_to_be32(JBD2_REVOKE_BLOCK);
	header->revoke.r_header.h_sequence = cpu_to_be32(tid);
	header->revoke.r_count = cpu_to_be32(sizeof(header->revoke));
	header->magic = cpu_to_be32(SNAP_MAGIC);
	header->id = cpu_to_be32(id);
	header->index = cpu_to_be16(index);
	header->slot = cpu_to_be32(slot);
	block->data = data;
	block->size = size;
	block->nr_slots = nr_slots;
	block->slot = slot;
	block->records = 0;
	block->at = sizeof(*header);
}

/* How many snapshots the first block of one can name. */
u32 snap_chain_most(u32 size)
{
	return (snap_room(size) - sizeof(struct snap_header) -
		sizeof(struct snap_account) - sizeof(struct snap_record)) /
	       sizeof(struct snap_entry);
}

/* The account and the chain, in block 0, before any record. */
void snap_put_chain(struct snap_block *block, u64 logged, u64 spent,
		    const struct snap_ref *chain, u32 nr)
{
	struct snap_header *header = block->data;
	struct snap_account *account = block->data + block->at;
	struct snap_entry *entry = (void *)(account + 1);
	u32 i;

	account->logged = cpu_to_be64(logged);
	account->spent = cpu_to_be64(spent);
	for (i = 0; i < nr; i++, entry++) {
		entry->log_blk = cpu_to_be32(chain[i].log_blk);
		entry->blocks = cpu_to_be32(chain[i].blocks);
		entry->tid = cpu_to_be32(chain[i].tid);
		entry->id = cpu_to_be32(chain[i].id);
	}
	header->nr_chain = cpu_to_be16(nr);
	block->at = (void *)entry - block->data;
}

static void snap_put_record(struct snap_block *block, enum snap_kind kind,
			    u32 gap, u64 value)
{
	struct snap_record *record = block->data + block->at;

	record->what = cpu_to_be16(kind << SNAP_GAP_BITS | gap);
	record->hi = cpu_to_be16(upper_32_bits(value));
	record->lo = cpu_to_be32(lower_32_bits(value));
	block->at += sizeof(*record);
	block->records++;
}

/**
 * snap_put() - add a record
 * @block: the block
 * @kind: what it says
 * @slot: of which slot; it is kept but for SNAP_DROP, and then ignored
 * @value: a home block, or a transaction id
 *
 * Return: false if there is no room.
 */
bool snap_put(struct snap_block *block, enum snap_kind kind, u32 slot,
	      u64 value)
{
	u32 left = (snap_room(block->size) - block->at) /
		   sizeof(struct snap_record);
	u32 gap = 0;

	if (kind != SNAP_DROP)
		gap = slot >= block->slot ? slot - block->slot :
			slot + block->nr_slots - block->slot;
	if (left < 1 + (gap >> SNAP_GAP_BITS != 0))
		return false;
	if (gap >> SNAP_GAP_BITS) {
		snap_put_record(block, SNAP_SKIP, 0, gap);
		gap = 0;
	}
	snap_put_record(block, kind, gap, value);
	if (kind != SNAP_DROP)
		block->slot = slot;
	return true;
}

void snap_block_end(struct snap_block *block, bool last)
{
	struct snap_header *header = block->data;

	header->nr_records = cpu_to_be16(block->records);
	header->flags = cpu_to_be16(last ? SNAP_LAST : 0);
}

/**
 * snap_block_open() - read a block of a snapshot
 * @block: filled in
 * @data: the block, whose checksum is right
 * @size: of a log block
 * @nr_slots: of the log
 * @ref: the snapshot that it should be of
 * @index: which block of it
 *
 * Return: false if it is something else.
 */
bool snap_block_open(struct snap_block *block, void *data, u32 size,
		     u32 nr_slots, const struct snap_ref *ref, u32 index)
{
	const struct snap_header *header = data;
	u32 chain = be16_to_cpu(header->nr_chain);
	bool last = be16_to_cpu(header->flags) & SNAP_LAST;

	block->data = data;
	block->size = size;
	block->nr_slots = nr_slots;
	block->slot = be32_to_cpu(header->slot);
	block->records = be16_to_cpu(header->nr_records);
	block->at = sizeof(*header);
	if (!index)
		block->at += sizeof(struct snap_account) +
			     chain * sizeof(struct snap_entry);
	return header->revoke.r_header.h_magic ==
			cpu_to_be32(JBD2_MAGIC_NUMBER) &&
	       header->revoke.r_header.h_blocktype ==
			cpu_to_be32(JBD2_REVOKE_BLOCK) &&
	       header->revoke.r_header.h_sequence == cpu_to_be32(ref->tid) &&
	       header->magic == cpu_to_be32(SNAP_MAGIC) &&
	       header->id == cpu_to_be32(ref->id) &&
	       header->index == cpu_to_be16(index) &&
	       last == (index + 1 == ref->blocks) &&
	       (!index || !chain) && chain <= snap_chain_most(size) &&
	       block->slot < nr_slots &&
	       block->at + block->records * sizeof(struct snap_record) <=
			snap_room(size);
}

/* The account and the chain of a block 0 that was opened. */
u32 snap_get_chain(const struct snap_block *block, u64 *logged, u64 *spent,
		   struct snap_ref *chain)
{
	const struct snap_header *header = block->data;
	const struct snap_account *account = (const void *)(header + 1);
	const struct snap_entry *entry = (const void *)(account + 1);
	u32 i, nr = be16_to_cpu(header->nr_chain);

	*logged = be64_to_cpu(account->logged);
	*spent = be64_to_cpu(account->spent);
	for (i = 0; i < nr; i++, entry++) {
		chain[i].log_blk = be32_to_cpu(entry->log_blk);
		chain[i].blocks = be32_to_cpu(entry->blocks);
		chain[i].tid = be32_to_cpu(entry->tid);
		chain[i].id = be32_to_cpu(entry->id);
	}
	return nr;
}

/**
 * snap_get() - the next record
 * @block: the block
 * @kind: where to put what it says
 * @slot: where to put the slot, which SNAP_DROP has none of
 * @value: where to put a home block or a transaction id
 *
 * Return: 1; 0 if there is none; -EFSCORRUPTED.
 */
int snap_get(struct snap_block *block, enum snap_kind *kind, u32 *slot,
	     u64 *value)
{
	const struct snap_record *record;
	u32 gap;

	while (block->records) {
		record = block->data + block->at;
		block->at += sizeof(*record);
		block->records--;
		*kind = be16_to_cpu(record->what) >> SNAP_GAP_BITS;
		gap = be16_to_cpu(record->what) & (BIT(SNAP_GAP_BITS) - 1);
		*value = (u64)be16_to_cpu(record->hi) << 32 |
			 be32_to_cpu(record->lo);
		if (*kind == SNAP_SKIP) {
			if (*value >= block->nr_slots)
				return -EFSCORRUPTED;
			gap = *value;
		}
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

static u32 snap_slot(struct jbd2_lazy *lazy, unsigned long log_blk)
{
	return log_blk - lazy->map.first;
}

/* Records that fit into a block, but for the first. */
static u32 snap_per_block(struct jbd2_lazy *lazy)
{
	return (snap_room(lazy->journal->j_blocksize) -
		sizeof(struct snap_header)) / sizeof(struct snap_record);
}

/* Whether @blocks more are within what snapshots may cost. */
static bool snap_affordable(struct lazy_snapshots *snaps, u32 blocks)
{
	return snaps->spent + blocks <= div_u64(snaps->logged * BUDGET, 1000);
}

/* What begins after @keep snapshots of the chain, the tail being @tail. */
static unsigned long snap_begin(struct lazy_snapshots *snaps, u32 keep,
				unsigned long tail)
{
	return keep ? snaps->chain[keep - 1].log_blk : tail;
}

/*
 * The most blocks of a snapshot that is written after @keep others, by a
 * transaction that comes to at most @coming log blocks.
 */
static u32 snap_blocks_most(struct jbd2_lazy *lazy, u32 keep, u32 span,
			    u32 coming, u32 revokes)
{
	u64 records = keep ? span + READ_ONCE(lazy->map.nr_dropped) :
			     READ_ONCE(lazy->map.nr_live) +
			     READ_ONCE(lazy->map.nr_demoted) + coming;

	records += revokes + span / lazy->map.mark_span + 2 +
		   (lazy->map.nr_slots >> SNAP_GAP_BITS) + 2;
	/* The first block is full of other things. */
	return 2 + div_u64(records, snap_per_block(lazy) - 1);
}

/* What the tail has passed is of no use to a mount. */
static void snap_forget_old(struct lazy_snapshots *snaps, tid_t tail)
{
	u32 old = 0;

	while (old < snaps->nr_chain && tid_gt(tail, snaps->chain[old].tid))
		old++;
	snaps->nr_chain -= old;
	memmove(snaps->chain, snaps->chain + old,
		snaps->nr_chain * sizeof(*snaps->chain));
}

/* Whether all but @keep snapshots can be written again as part of this one. */
static bool snap_may_absorb(struct jbd2_lazy *lazy, u32 keep,
			    unsigned long head)
{
	struct lazy_snapshots *snaps = &lazy->snaps;
	u32 span = lazy_log_distance(lazy->journal,
				     snaps->chain[keep - 1].log_blk, head);

	return snap_affordable(snaps, snap_blocks_most(lazy, keep, span, 0, 0));
}

/*
 * Small snapshots, of mounts that did little, are written once more as part of
 * this one, as long as that can be afforded.  For the next mount each of the
 * others is a way to another place, so large ones are when the journal is
 * about to be closed.
 */
static u32 snap_absorb(struct jbd2_lazy *lazy, unsigned long head, bool closing)
{
	struct lazy_snapshots *snaps = &lazy->snaps;
	u32 keep = snaps->nr_chain, span;

	while (keep > 1) {
		span = lazy_log_distance(lazy->journal,
					 snaps->chain[keep - 2].log_blk,
					 snaps->chain[keep - 1].log_blk);
		if (span >= snaps->period / 2 ||
		    !snap_may_absorb(lazy, keep - 1, head))
			break;
		keep--;
	}
	if (closing && keep > CHAIN_CLOSING && snap_may_absorb(lazy, 1, head))
		keep = 1;
	return keep;
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
	u32 revokes = atomic_read(&transaction->t_outstanding_revokes);
	u32 overhead = journal->j_transaction_overhead_buffers;
	u32 keep, span, blocks, due = snaps->period;
	bool closing = READ_ONCE(snaps->closing);
	unsigned long tail, head, room;
	tid_t tail_tid;

	snaps->reserved = 0;
	if (!snaps->period)
		return;
	read_lock(&journal->j_state_lock);
	tail = journal->j_tail;
	tail_tid = journal->j_tail_sequence;
	head = journal->j_head;
	room = journal->j_free;
	read_unlock(&journal->j_state_lock);

	if (closing) {
		WRITE_ONCE(snaps->closing, false);
		due /= CLOSING_PART;
	}
	/* One of the chain may be damaged. */
	if (READ_ONCE(snaps->anew)) {
		WRITE_ONCE(snaps->anew, false);
		snaps->urgent = true;
		snaps->nr_chain = 0;
	}
	if (snaps->urgent)
		due = 0;
	snap_forget_old(snaps, tail_tid);
	keep = snaps->nr_chain;
	/* Of the credits, those for descriptors are many more than are used. */
	span = lazy_log_distance(journal, snap_begin(snaps, keep, tail), head);
	if (span + coming - min(coming, overhead) < due)
		return;
	blocks = snap_blocks_most(lazy, 0, lazy->map.nr_slots, coming, revokes);
	if (keep == snaps->chain_most ||
	    (keep >= CHAIN_LEAST && snap_affordable(snaps, blocks)))
		keep = 0;
	else
		keep = snap_absorb(lazy, head, closing);
	span = lazy_log_distance(journal, snap_begin(snaps, keep, tail), head) +
	       coming;
	blocks = snap_blocks_most(lazy, keep, span, coming, revokes);
	/* What handles may count on stays free; next time, then. */
	if (blocks > U16_MAX || room < coming + blocks + 64)
		return;
	/* The next transaction's handles shall see the log without it. */
	atomic_add(blocks, &transaction->t_outstanding_credits);
	snaps->reserved = blocks;
	snaps->keep = keep;
	snaps->tail = tail;
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
	u32 id;
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

	snaps->failed = false;
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
	if (snaps->failed && !writer->err)
		writer->err = -EIO;
	atomic64_add(writer->filled, &snaps->written);
	writer->filled = 0;
}

static void snap_begin_block(struct snap_writer *writer, u32 slot)
{
	struct jbd2_lazy *lazy = writer->lazy;
	u32 size = lazy->journal->j_blocksize;

	snap_block_init(&writer->block,
			lazy->snaps.buffer + writer->filled * size, size,
			lazy->map.nr_slots, writer->tid, writer->id,
			writer->index, slot);
}

static void snap_end_block(struct snap_writer *writer, bool last)
{
	struct jbd2_lazy *lazy = writer->lazy;
	journal_t *journal = lazy->journal;
	struct jbd2_journal_block_tail *tail;

	snap_block_end(&writer->block, last);
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
		     u64 value)
{
	if (writer->err || snap_put(&writer->block, kind, slot, value))
		return;
	/* More than was reserved: what is written means nothing to anybody. */
	if (writer->index + 1 >= writer->lazy->snaps.reserved) {
		writer->err = -ENOSPC;
		return;
	}
	snap_end_block(writer, false);
	snap_begin_block(writer, writer->block.slot);
	if (!writer->err)
		snap_put(&writer->block, kind, slot, value);
}

/* Copies in [@from, @from + @span) that have one of @flags, and marks. */
static void snap_add_copies(struct snap_writer *writer, unsigned int any,
			    u32 from, u32 span)
{
	struct jmap *map = &writer->lazy->map;
	struct jmap_mark mark = {};
	u32 pos = from, left = span, slot, marks = 0;
	struct jmap_slot copy;
	bool marked;

	marked = !(any & JMAP_NOTED) &&
		 jmap_copy_marks(map, from, span, &marks, &mark);
	while (!writer->err &&
	       jmap_next_with(map, any, &pos, &left, &slot, &copy)) {
		while (marked && jmap_distance(map, from, mark.slot) <=
				 jmap_distance(map, from, slot)) {
			snap_add(writer, SNAP_MARK, mark.slot, mark.tid);
			marked = jmap_copy_marks(map, from, span, &marks,
						 &mark);
		}
		snap_add(writer,
			 copy.flags & JMAP_ESCAPED ? SNAP_ESCAPED : SNAP_COPY,
			 slot, jmap_slot_home(&copy));
	}
	for (; marked && !writer->err;
	     marked = jmap_copy_marks(map, from, span, &marks, &mark))
		snap_add(writer, SNAP_MARK, mark.slot, mark.tid);
}

/* Blocks from before @from that were revoked since the chain's last. */
static void snap_add_drops(struct snap_writer *writer, u32 generation,
			   u32 tail, u32 from)
{
	struct jmap *map = &writer->lazy->map;
	u32 pos = tail, left = jmap_distance(map, tail, from), slot;
	struct jmap_slot copy;

	if (!READ_ONCE(map->nr_dropped))
		return;
	while (!writer->err && jmap_next_with(map, JMAP_DROPPED, &pos, &left,
					      &slot, &copy))
		if ((s32)(copy.next - generation) >= 0)
			snap_add(writer, SNAP_DROP, 0, jmap_slot_home(&copy));
}

/*
 * Write the snapshot that was reserved.  All tags and revokes of the
 * transaction are written, but they are not in the map.
 */
void __jbd2_lazy_snapshot(journal_t *journal, transaction_t *transaction)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	struct lazy_snapshots *snaps = &lazy->snaps;
	struct jmap *map = &lazy->map;
	struct snap_writer writer = {
		.lazy = lazy,
		.tid = transaction->t_tid,
		.id = map->generation,
	};
	unsigned long begin = snap_begin(snaps, snaps->keep, snaps->tail);
	u32 from = snap_slot(lazy, begin);
	u32 own = snap_slot(lazy, transaction->t_log_start);
	u32 head = snap_slot(lazy, journal->j_head);
	struct list_head *each;

	snaps->fresh.blocks = 0;
	if (!snaps->reserved || is_journal_aborted(journal))
		return;
	snaps->fresh.log_blk = journal->j_head;
	snap_begin_block(&writer, from);
	snap_put_chain(&writer.block, snaps->logged, snaps->spent,
		       snaps->chain, snaps->keep);
	/* What the newest snapshot that is kept does not know is dropped. */
	if (snaps->keep)
		snap_add_drops(&writer, snaps->chain[snaps->keep - 1].id + 1,
			       snap_slot(lazy, snaps->tail), from);
	snap_add_copies(&writer, JMAP_LINKED | JMAP_DEMOTED, from,
			jmap_distance(map, from, own));
	if (jmap_marks_next(map, own))
		snap_add(&writer, SNAP_MARK, own, transaction->t_tid);
	snap_add_copies(&writer, JMAP_NOTED, own,
			jmap_distance(map, own, head));
	list_for_each(each, &lazy->revokes)
		snap_add(&writer, SNAP_DROP, 0, jbd2_journal_revoked(each));
	if (!writer.err)
		snap_end_block(&writer, true);

	if (writer.err && writer.err != -ENOSPC) {
		pr_err("JBD2: %s: cannot write a snapshot to the log (%d)\n",
		       journal->j_devname, writer.err);
		jbd2_journal_abort(journal, writer.err);
	}
	if (writer.err)
		return;
	snaps->fresh.blocks = writer.index;
	snaps->fresh.tid = transaction->t_tid;
	snaps->fresh.id = writer.id;
}

/*
 * A transaction of @blocks log blocks is durable, and with it the snapshot that
 * it holds, if it holds one.  Called before it is applied to the map.
 */
void lazy_snapshot_committed(struct jbd2_lazy *lazy, u32 blocks)
{
	struct lazy_snapshots *snaps = &lazy->snaps;
	journal_t *journal = lazy->journal;

	snaps->logged += blocks;
	atomic64_add(blocks, &snaps->logged_now);
	if (snaps->fresh.blocks) {
		snaps->spent += snaps->fresh.blocks;
		snaps->nr_chain = snaps->keep;
		snaps->chain[snaps->nr_chain++] = snaps->fresh;
		snaps->fresh.blocks = 0;
		jmap_set_generation(&lazy->map, lazy->map.generation + 1);
		spin_lock(&snaps->lock);
		snaps->newest = snaps->chain[snaps->nr_chain - 1];
		spin_unlock(&snaps->lock);
		snaps->unmarked = true;
		snaps->urgent = false;
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

/* What the marker of a log that begins with @tail points at. */
void lazy_snapshot_newest(struct jbd2_lazy *lazy, tid_t tail,
			  struct snap_ref *ref)
{
	struct lazy_snapshots *snaps = &lazy->snaps;

	spin_lock(&snaps->lock);
	*ref = snaps->newest;
	spin_unlock(&snaps->lock);
	if (tid_gt(tail, ref->tid))
		ref->blocks = 0;
}

/* ------------------------------------------------------------------------- */
/* Reading                                                                    */

static bool snap_ref_ok(struct jbd2_lazy *lazy, const struct snap_ref *ref)
{
	journal_t *journal = lazy->journal;

	return ref->log_blk >= journal->j_first &&
	       ref->log_blk < journal->j_last && ref->blocks &&
	       ref->blocks < lazy->map.nr_slots;
}

static bool snap_load_block(struct jbd2_lazy *lazy, struct log_reader *reader,
			    const struct snap_ref *ref, u32 index,
			    struct snap_block *block)
{
	void *data = lazy_reader_next(reader, ref->blocks - index);

	lazy->scan_blocks++;
	return !IS_ERR(data) && lazy_tail_csum_ok(lazy->journal, data) &&
	       snap_block_open(block, data, lazy->journal->j_blocksize,
			       lazy->map.nr_slots, ref, index);
}

/* Put what a snapshot says into the map. */
static bool snap_load(struct jbd2_lazy *lazy, struct log_reader *reader,
		      const struct snap_ref *ref)
{
	u64 homes = div_u64(bdev_nr_bytes(lazy->journal->j_fs_dev),
			    lazy->journal->j_blocksize), value;
	u32 tail = snap_slot(lazy, lazy->journal->j_tail), slot, i;
	u32 span = jmap_distance(&lazy->map, tail,
				 snap_slot(lazy, ref->log_blk));
	struct snap_block block;
	enum snap_kind kind;
	unsigned long blk;
	int ret;

	jmap_set_generation(&lazy->map, ref->id);
	lazy_reader_seek(reader, ref->log_blk, ref->blocks);
	for (i = 0; i < ref->blocks; i++) {
		if (!snap_load_block(lazy, reader, ref, i, &block))
			return false;
		while ((ret = snap_get(&block, &kind, &slot, &value)) > 0) {
			bool kept = jmap_distance(&lazy->map, tail, slot) <
				    span;

			if (kind == SNAP_DROP) {
				jmap_drop(&lazy->map, value, &blk);
			} else if (kind == SNAP_MARK) {
				if (kept && slot != tail)
					jmap_load_mark(&lazy->map, value, slot);
			} else if (value >= homes ||
				   (kept &&
				    !jmap_load_copy(&lazy->map, slot, value,
						    kind == SNAP_ESCAPED))) {
				return false;
			}
		}
		if (ret)
			return false;
		cond_resched();
	}
	return true;
}

/**
 * lazy_snapshot_load() - fill the map from the chain that the marker points at
 * @lazy: a journal that is being loaded, with an empty map
 * @reader: to read with
 * @newest: what the marker points at
 *
 * Return: whether the map holds all up to the newest snapshot.  If not, it is
 * empty again, a message says why unless there is no snapshot, and the chain
 * tells where a scan has to look away.
 */
bool lazy_snapshot_load(struct jbd2_lazy *lazy, struct log_reader *reader,
			const struct snap_ref *newest)
{
	struct lazy_snapshots *snaps = &lazy->snaps;
	journal_t *journal = lazy->journal;
	const struct snap_ref *bad = newest;
	struct snap_block block;
	u32 i, nr;

	/* Behind the tail, or a kernel that knows none of this was here. */
	if (!newest->blocks || !snaps->period ||
	    tid_gt(journal->j_tail_sequence, newest->tid))
		return false;
	if (!snap_ref_ok(lazy, newest))
		goto damaged;
	snaps->chain[0] = *newest;
	snaps->nr_chain = 1;
	lazy_reader_seek(reader, newest->log_blk, 1);
	if (!snap_load_block(lazy, reader, newest, 0, &block))
		goto damaged;
	nr = snap_get_chain(&block, &snaps->logged, &snaps->spent,
			    snaps->chain);
	snaps->chain[nr++] = *newest;
	snaps->nr_chain = nr;
	snap_forget_old(snaps, journal->j_tail_sequence);
	for (i = 0; i < snaps->nr_chain; i++) {
		bad = &snaps->chain[i];
		if (!snap_ref_ok(lazy, bad) || !snap_load(lazy, reader, bad))
			goto damaged;
	}
	jmap_set_generation(&lazy->map, newest->id + 1);
	jmap_apply_end(&lazy->map, newest->log_blk);
	snaps->newest = *newest;
	lazy->loaded = snaps->nr_chain;
	return true;

damaged:
	pr_warn("JBD2: %s: the snapshot of transaction %u at log block %u is damaged, scanning the whole log\n",
		journal->j_devname, bad->tid, bad->log_blk);
	lazy_snapshot_forget(lazy);
	return false;
}

/* The map is empty again. */
void lazy_snapshot_forget(struct jbd2_lazy *lazy)
{
	journal_t *journal = lazy->journal;

	lazy->loaded = 0;
	lazy->lost = 0;
	memset(&lazy->snaps.newest, 0, sizeof(lazy->snaps.newest));
	jmap_reset(&lazy->map);
	jmap_load_tail(&lazy->map, journal->j_tail_sequence, journal->j_tail);
}

/* The next snapshot is the first one. */
void lazy_snapshot_start_anew(struct jbd2_lazy *lazy)
{
	struct lazy_snapshots *snaps = &lazy->snaps;

	/* Damage is only looked past once. */
	snaps->urgent = snaps->nr_chain;
	snaps->nr_chain = 0;
	snaps->logged = 0;
	snaps->spent = 0;
}

/* ------------------------------------------------------------------------- */
/* Start and stop                                                             */

int lazy_snapshot_init(struct jbd2_lazy *lazy)
{
	struct lazy_snapshots *snaps = &lazy->snaps;
	journal_t *journal = lazy->journal;
	u32 slots = lazy->map.nr_slots;

	spin_lock_init(&snaps->lock);
	init_completion(&snaps->done);
	if (slots < LOG_LEAST)
		return 0;
	snaps->chain_most = snap_chain_most(journal->j_blocksize);
	snaps->chain = kcalloc(snaps->chain_most + 1, sizeof(*snaps->chain),
			       GFP_KERNEL);
	snaps->buffer_blocks = clamp(slots / 4096, 1U, BUFFER_MOST);
	snaps->buffer_bytes = PAGE_ALIGN(snaps->buffer_blocks *
					 journal->j_blocksize);
	snaps->buffer = alloc_pages_exact(snaps->buffer_bytes, GFP_KERNEL);
	if (!snaps->chain || !snaps->buffer) {
		lazy_snapshot_destroy(lazy);
		return -ENOMEM;
	}
	snaps->period = clamp(slots / 16, PERIOD_LEAST, PERIOD_MOST);
	return 0;
}

void lazy_snapshot_destroy(struct jbd2_lazy *lazy)
{
	struct lazy_snapshots *snaps = &lazy->snaps;

	if (snaps->buffer)
		free_pages_exact(snaps->buffer, snaps->buffer_bytes);
	kfree(snaps->chain);
}

/* Memory for snapshots, in bytes. */
size_t lazy_snapshot_bytes(struct jbd2_lazy *lazy)
{
	struct lazy_snapshots *snaps = &lazy->snaps;

	return snaps->period ? snaps->buffer_bytes +
		(snaps->chain_most + 1) * sizeof(*snaps->chain) : 0;
}
