// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reading the log of a lazy journal: in one pass, in order, all of it.
 *
 * Stock recovery reads a kept log three times, one descriptor after the other,
 * and waits for each.  A log of the smallest transactions has a descriptor in
 * every third block, and then each costs a turn of the disk.  So everything is
 * read, copies included, as fast as the disk gives it.  What a mount has to
 * read is bounded in log blocks (lazy_snapshot.c), hence in time, no matter
 * what is in them.
 *
 * One pass is enough, because a transaction is applied to the map when the
 * scan comes to its commit block, as at run time: its tags, then its revokes.
 *
 * Damage.  The log is never emptied, so one bad block must not cost what lies
 * behind it.  What cannot be read, or has a wrong checksum, is told by what
 * comes next; copies never begin with the journal's magic number, so the next
 * block of the transaction is found among them.  The commit block says how many
 * copies and revokes its transaction holds (__jbd2_lazy_count()).
 *
 *	next whole block                what was damaged	what it costs
 *	of the same transaction,        a descriptor            its copies
 *	  whose commit block tells      a snapshot              nothing
 *	                                a revoke block          the mount
 *	at once, of the next one        a commit block          nothing; the
 *					  mount, if more is damaged before it
 *	a later one, further behind     more than that          the mount
 *	none, as none can be read       more than that          the mount
 *	none, and the marker says that  a commit block          nothing
 *	the transaction ends here
 *	none                            the log ends here
 *
 * Revokes cannot be guessed, and without one a freed block would be written
 * over the data that have its place, hence no mount.  Whatever a snapshot tells
 * of is not read, and damage there costs nothing (lazy_snapshot.c).
 */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/highmem.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "lazy.h"

/*
 * Enough is in flight that the disk never waits; the first request is small,
 * because often little is needed.  No request is smaller than that, unless it
 * is the last.
 */
#define READER_CHUNKS	4U
#define READER_BYTES	(512U << 10)
#define READER_FIRST	(64U << 10)

struct log_chunk {
	void *data;
	unsigned long log_blk;
	u32 nr;
	atomic_t pending;
	struct completion done;
	bool failed;
};

struct log_reader {
	struct jbd2_lazy *lazy;
	void *memory;
	struct log_chunk chunks[READER_CHUNKS];
	unsigned int oldest, count;	/* chunks in flight or in use */
	u32 used;			/* blocks of the oldest that were taken */
	unsigned long next;		/* log block to be requested next */
	u32 left;			/* blocks that may be requested */
	u32 ahead;			/* blocks that were, but not yet taken */
	u32 size;			/* of the next request */
};

static void reader_put(struct log_chunk *chunk)
{
	if (atomic_dec_and_test(&chunk->pending))
		complete_all(&chunk->done);
}

static void reader_end_io(struct bio *bio)
{
	struct log_chunk *chunk = bio->bi_private;

	if (bio->bi_status)
		WRITE_ONCE(chunk->failed, true);
	bio_put(bio);
	reader_put(chunk);
}

/* Log blocks from @log_blk on, at most @most, that lie side by side. */
static u32 reader_run(struct jbd2_lazy *lazy, unsigned long log_blk, u32 most)
{
	u64 phys = jbd2_lazy_phys(lazy, log_blk);
	u32 nr = 1;

	while (nr < most && jbd2_lazy_phys(lazy, log_blk + nr) == phys + nr)
		nr++;
	return nr;
}

static struct bio *reader_bio(struct jbd2_lazy *lazy, unsigned long log_blk,
			      void *data, u32 nr)
{
	journal_t *journal = lazy->journal;
	u32 bytes = nr * journal->j_blocksize, part;
	struct bio *bio;

	flush_kernel_vmap_range(data, bytes);
	bio = bio_alloc(journal->j_dev, DIV_ROUND_UP(bytes, PAGE_SIZE) + 1,
			REQ_OP_READ | REQ_META, GFP_KERNEL);
	bio->bi_iter.bi_sector = jbd2_lazy_phys(lazy, log_blk) *
				 (journal->j_blocksize >> SECTOR_SHIFT);
	for (; bytes; bytes -= part, data += part) {
		part = min_t(u32, bytes, PAGE_SIZE - offset_in_page(data));
		__bio_add_page(bio, vmalloc_to_page(data), part,
			       offset_in_page(data));
	}
	return bio;
}

static void reader_submit(struct log_reader *reader, u32 most)
{
	journal_t *journal = reader->lazy->journal;
	struct log_chunk *chunk;
	u32 done, run;

	chunk = &reader->chunks[(reader->oldest + reader->count) %
				READER_CHUNKS];
	chunk->log_blk = reader->next;
	chunk->nr = min3(min(reader->left, most), reader->size,
			 (u32)(journal->j_last - reader->next));
	chunk->failed = false;
	atomic_set(&chunk->pending, 1);
	reinit_completion(&chunk->done);
	for (done = 0; done < chunk->nr; done += run) {
		struct bio *bio;

		run = reader_run(reader->lazy, chunk->log_blk + done,
				 chunk->nr - done);
		bio = reader_bio(reader->lazy, chunk->log_blk + done,
				 chunk->data + done * journal->j_blocksize,
				 run);
		bio->bi_private = chunk;
		bio->bi_end_io = reader_end_io;
		atomic_inc(&chunk->pending);
		submit_bio(bio);
	}
	reader_put(chunk);

	reader->count++;
	reader->left -= chunk->nr;
	reader->ahead += chunk->nr;
	reader->next += chunk->nr;
	if (reader->next == journal->j_last)
		reader->next = journal->j_first;
	reader->size = min(reader->size * 2,
			   READER_BYTES / journal->j_blocksize);
}

struct log_reader *jbd2_lazy_reader_alloc(struct jbd2_lazy *lazy)
{
	struct log_reader *reader = kzalloc(sizeof(*reader), GFP_KERNEL);
	unsigned int i;

	if (!reader)
		return NULL;
	reader->memory = vmalloc(READER_CHUNKS * READER_BYTES);
	if (!reader->memory) {
		kfree(reader);
		return NULL;
	}
	reader->lazy = lazy;
	for (i = 0; i < READER_CHUNKS; i++) {
		reader->chunks[i].data = reader->memory + i * READER_BYTES;
		init_completion(&reader->chunks[i].done);
	}
	return reader;
}

static void reader_wait(struct log_reader *reader)
{
	for (; reader->count; reader->count--) {
		wait_for_completion_io(&reader->chunks[reader->oldest].done);
		reader->oldest = (reader->oldest + 1) % READER_CHUNKS;
	}
}

void jbd2_lazy_reader_free(struct log_reader *reader)
{
	if (!reader)
		return;
	reader_wait(reader);
	vfree(reader->memory);
	kfree(reader);
}

static u32 reader_first(struct log_reader *reader)
{
	return READER_FIRST / reader->lazy->journal->j_blocksize;
}

/* Whether to request more, if @most blocks may be on their way. */
static bool reader_wants(struct log_reader *reader, u32 most)
{
	u32 more = min(most - min(most, reader->ahead), reader->left);

	return reader->count < READER_CHUNKS && more &&
	       (!reader->count || more >= min(reader->left,
					      reader_first(reader)));
}

/* Read on at @log_blk, and no more than @nr blocks. */
void jbd2_lazy_reader_seek(struct log_reader *reader, unsigned long log_blk,
			   u32 nr)
{
	reader_wait(reader);
	reader->used = 0;
	reader->next = log_blk;
	reader->left = nr;
	reader->ahead = 0;
	reader->size = reader_first(reader);
}

/* One block by itself, to find out which one of many it was. */
static int reader_read_one(struct log_reader *reader, unsigned long log_blk,
			   void *data)
{
	struct bio *bio = reader_bio(reader->lazy, log_blk, data, 1);
	int err = submit_bio_wait(bio);

	bio_put(bio);
	invalidate_kernel_vmap_range(data, reader->lazy->journal->j_blocksize);
	return err;
}

/**
 * jbd2_lazy_reader_next() - the next block of the log
 * @reader: the reader
 * @wanted: how many are wanted for sure or nearly so, this one included
 *
 * Return: its contents, valid until the next call; an error pointer, -EIO.
 */
void *jbd2_lazy_reader_next(struct log_reader *reader, u32 wanted)
{
	u32 size = reader->lazy->journal->j_blocksize;
	struct log_chunk *chunk = &reader->chunks[reader->oldest];
	void *data;

	if (reader->count && reader->used == chunk->nr) {
		reader->oldest = (reader->oldest + 1) % READER_CHUNKS;
		reader->count--;
		reader->used = 0;
		chunk = &reader->chunks[reader->oldest];
	}
	while (reader_wants(reader, wanted))
		reader_submit(reader, wanted - reader->ahead);
	reader->ahead--;
	if (!reader->used) {
		wait_for_completion_io(&chunk->done);
		invalidate_kernel_vmap_range(chunk->data, chunk->nr * size);
	}
	data = chunk->data + reader->used * size;
	if (chunk->failed &&
	    reader_read_one(reader, chunk->log_blk + reader->used, data)) {
		reader->used++;
		return ERR_PTR(-EIO);
	}
	reader->used++;
	return data;
}

/* ------------------------------------------------------------------------- */
/* The scan                                                                   */

struct log_scan {
	struct jbd2_lazy *lazy;
	struct log_reader *reader;
	tid_t tid;			/* of the transaction that is read */
	unsigned long start;		/* its first log block */
	unsigned long blk;		/* next log block */
	u32 used;			/* log blocks from the tail to blk */
	u32 scanned;			/* of these, by this scan */
	u32 copies;			/* that its descriptors tell of */
	unsigned long damaged;		/* a block of this transaction, or 0 */
	bool load;			/* begin with the snapshot */
	void *descriptor;		/* a block */
	u64 *revokes;
	u32 nr_revokes, room;
};

/* As many as a descriptor can tell of are searched for the next whole block. */
static u32 scan_search(struct log_scan *scan)
{
	return scan->lazy->journal->j_blocksize / sizeof(journal_block_tag3_t) +
	       1;
}

static void *scan_take(struct log_scan *scan, u32 wanted)
{
	scan->blk = jbd2_lazy_next_log_blk(scan->lazy->journal, scan->blk);
	scan->used++;
	scan->scanned++;
	scan->lazy->scan_blocks++;
	return jbd2_lazy_reader_next(scan->reader, wanted);
}

/* The search behind the end is needed anyway; a long log is a guess. */
static void *scan_next(struct log_scan *scan)
{
	return scan_take(scan, 1 + scan_search(scan) + scan->scanned);
}

/* Whether the checksum in the last four bytes of a block is right. */
bool jbd2_lazy_tail_csum_ok(journal_t *journal, void *data)
{
	struct jbd2_journal_block_tail *tail = data + journal->j_blocksize -
					       sizeof(*tail);
	__be32 found = tail->t_checksum;
	u32 csum;

	tail->t_checksum = 0;
	csum = jbd2_chksum(journal, journal->j_csum_seed, data,
			   journal->j_blocksize);
	tail->t_checksum = found;
	return found == cpu_to_be32(csum);
}

static bool scan_commit_csum_ok(journal_t *journal, void *data)
{
	struct commit_header *commit = data;
	__be32 found = commit->h_chksum[0];
	u32 csum;

	commit->h_chksum[0] = 0;
	csum = jbd2_chksum(journal, journal->j_csum_seed, data,
			   journal->j_blocksize);
	if (found != cpu_to_be32(csum)) {
		/* Only the header may have become durable, as in stock. */
		memset(data + sizeof(*commit), 0,
		       journal->j_blocksize - sizeof(*commit));
		csum = jbd2_chksum(journal, journal->j_csum_seed, data,
				   journal->j_blocksize);
	}
	commit->h_chksum[0] = found;
	return found == cpu_to_be32(csum);
}

/**
 * jbd2_lazy_tag_next() - the next tag of a descriptor
 * @journal: the journal
 * @data: the descriptor, whose checksum is right
 * @at: 0 at first
 * @what: where to put what it says
 *
 * Return: false if there is none.
 */
bool jbd2_lazy_tag_next(journal_t *journal, const void *data, u32 *at,
			struct lazy_tag *what)
{
	u32 end = journal->j_blocksize -
		  sizeof(struct jbd2_journal_block_tail);

	if (!*at)
		*at = sizeof(journal_header_t);
	else if (what->flags & JBD2_FLAG_LAST_TAG)
		return false;
	if (*at + sizeof(journal_block_tag3_t) > end)
		return false;
	jbd2_lazy_tag_get(journal, data + *at, what);
	*at += sizeof(journal_block_tag3_t);
	if (!(what->flags & JBD2_FLAG_SAME_UUID))
		*at += 16;
	return true;
}

/* Note what a descriptor says of the blocks behind it. */
static int scan_descriptor(struct log_scan *scan, const void *data)
{
	struct jbd2_lazy *lazy = scan->lazy;
	journal_t *journal = lazy->journal;
	struct lazy_tag tag;
	u32 at = 0;

	memcpy(scan->descriptor, data, journal->j_blocksize);
	while (jbd2_lazy_tag_next(journal, scan->descriptor, &at, &tag)) {
		if (tag.home >= lazy->homes ||
		    scan->used + 1 >= lazy->map.nr_slots ||
		    !jbd2_jmap_note(&lazy->map, scan->blk, tag.home,
				    tag.flags & JBD2_FLAG_ESCAPE,
				    jbd2_lazy_csum_of_tag(journal, scan->tid,
							  tag.csum))) {
			pr_err("JBD2: %s: log block %lu of transaction %u cannot be a copy of block %llu\n",
			       journal->j_devname, scan->blk, scan->tid,
			       tag.home);
			return -EFSCORRUPTED;
		}
		scan->copies++;
		/* The copy is not needed to know where it is. */
		scan_next(scan);
	}
	return 0;
}

static int scan_revokes(struct log_scan *scan, const void *data)
{
	journal_t *journal = scan->lazy->journal;
	const jbd2_journal_revoke_header_t *header = data;
	u32 length = jbd2_has_feature_64bit(journal) ? 8 : 4;
	u32 end = be32_to_cpu(header->r_count), at = sizeof(*header), room;
	u64 *grown;

	if (end > journal->j_blocksize -
	    sizeof(struct jbd2_journal_block_tail)) {
		pr_err("JBD2: %s: log block %lu of transaction %u cannot hold %u bytes of revokes\n",
		       journal->j_devname, scan->blk, scan->tid, end);
		return -EFSCORRUPTED;
	}
	for (; at + length <= end; at += length) {
		if (scan->nr_revokes == scan->room) {
			room = max(2 * scan->room, 1024U);
			grown = kvrealloc(scan->revokes, room * sizeof(*grown),
					  GFP_KERNEL);
			if (!grown)
				return -ENOMEM;
			scan->revokes = grown;
			scan->room = room;
		}
		scan->revokes[scan->nr_revokes++] = length == 8 ?
			be64_to_cpup(data + at) : be32_to_cpup(data + at);
	}
	return 0;
}

/*
 * The transaction ends before @end.  What is lost of it, its commit block says;
 * if that is damaged, nothing else may be.
 */
static int scan_report(struct log_scan *scan,
		       const struct commit_header *commit, unsigned long end)
{
	struct jbd2_lazy *lazy = scan->lazy;
	const char *name = lazy->journal->j_devname;
	unsigned long damaged = scan->damaged;
	u32 copies = scan->copies;
	bool whole = !damaged;

	if (commit) {
		copies = be32_to_cpu(commit->h_chksum[1]);
		whole = copies >= scan->copies &&
			be32_to_cpu(commit->h_chksum[2]) == scan->nr_revokes;
	} else if (whole) {
		damaged = jbd2_lazy_prev_log_blk(lazy->journal, end);
	}
	if (!whole) {
		pr_err("JBD2: %s: log block %lu of transaction %u is damaged, and which blocks were freed is lost; run e2fsck\n",
		       name, damaged, scan->tid);
		return -EFSCORRUPTED;
	}
	if (copies > scan->copies)
		pr_warn("JBD2: %s: descriptor in log block %lu of transaction %u is damaged, %u blocks of metadata are lost; run e2fsck\n",
			name, damaged, scan->tid, copies - scan->copies);
	else if (damaged)
		pr_warn("JBD2: %s: log block %lu of transaction %u is damaged, nothing is lost\n",
			name, damaged, scan->tid);
	lazy->lost += copies - scan->copies;
	if (damaged)
		jbd2_lazy_damaged(lazy, damaged);
	return 0;
}

/*
 * The transaction is complete up to @end: all tags, then all revokes.  Without
 * @commit the block before @end is damaged.
 */
static int scan_apply(struct log_scan *scan, const struct commit_header *commit,
		      unsigned long end)
{
	struct jbd2_lazy *lazy = scan->lazy;
	unsigned long blk = scan->start;
	u32 i;
	int err;

	/* Damage in front of the snapshot led past it. */
	if (scan->load && !lazy->loaded)
		return -EAGAIN;
	err = scan_report(scan, commit, end);
	if (err)
		return err;
	jbd2_jmap_apply_begin(&lazy->map, scan->tid, blk);
	for (; blk != end; blk = jbd2_lazy_next_log_blk(lazy->journal, blk))
		jbd2_jmap_apply_slot(&lazy->map, blk, NULL, NULL);
	jbd2_jmap_apply_end(&lazy->map, end);
	for (i = 0; i < scan->nr_revokes; i++)
		jbd2_jmap_drop(&lazy->map, scan->revokes[i]);
	scan->nr_revokes = 0;
	scan->copies = 0;
	scan->damaged = 0;
	scan->start = end;
	scan->tid++;
	cond_resched();
	return 0;
}

/* Whether a block is a whole one of the log, and then of which transaction. */
bool jbd2_lazy_block_valid(journal_t *journal, void *data, tid_t *tid)
{
	const journal_header_t *header = data;

	if (IS_ERR(data) || header->h_magic != cpu_to_be32(JBD2_MAGIC_NUMBER))
		return false;
	*tid = be32_to_cpu(header->h_sequence);
	switch (be32_to_cpu(header->h_blocktype)) {
	case JBD2_DESCRIPTOR_BLOCK:
	case JBD2_REVOKE_BLOCK:
		return jbd2_lazy_tail_csum_ok(journal, data);
	case JBD2_COMMIT_BLOCK:
		return scan_commit_csum_ok(journal, data);
	}
	return false;
}

/* A whole block of the transaction. */
static int scan_process(struct log_scan *scan, void *data)
{
	const journal_header_t *header = data;

	switch (be32_to_cpu(header->h_blocktype)) {
	case JBD2_DESCRIPTOR_BLOCK:
		return scan_descriptor(scan, data);
	case JBD2_REVOKE_BLOCK:
		return scan_revokes(scan, data);
	default:
		return scan_apply(scan, data, scan->blk);
	}
}

/*
 * The block before the present one is none of the transaction, but perhaps a
 * whole one of @found, which is later: is it the end of the log, or damage?
 * See above.
 *
 * Return: the block to go on with, NULL at the end, or an error pointer.
 */
static void *scan_damage(struct log_scan *scan, tid_t found)
{
	struct jbd2_lazy *lazy = scan->lazy;
	journal_t *journal = lazy->journal;
	unsigned long behind = scan->blk, at;
	u32 search = scan_search(scan), most = search, unread = 0, i;
	void *data;
	tid_t tid;
	int err;

	for (i = 0; i < most && unread < search; i++) {
		if (scan->used + 1 >= lazy->map.nr_slots)
			break;
		at = scan->blk;
		data = scan_take(scan, most - i);
		if (IS_ERR(data)) {
			unread++;
			most++;
		}
		if (!jbd2_lazy_block_valid(journal, data, &tid))
			continue;
		if (tid == scan->tid) {
			scan->damaged = jbd2_lazy_prev_log_blk(journal, behind);
			return data;
		}
		/* Whatever else is there: each has a block at least. */
		if (!tid_gt(tid, scan->tid) || tid - scan->tid > i + 1)
			break;
		if (i) {
			found = tid;
			break;
		}
		err = scan_apply(scan, NULL, at);
		return err ? ERR_PTR(err) : data;
	}
	if (tid_gt(found, scan->tid) && found - scan->tid < lazy->map.nr_slots) {
		/* Not the end: what is before it was committed. */
		if (tid_gt(found - 1, lazy->mark.known))
			lazy->mark.known = found - 1;
		return NULL;
	}
	if (unread == search) {
		pr_err("JBD2: %s: %u log blocks behind %lu cannot be read, so where the log ends is not known\n",
		       journal->j_devname, unread, behind - 1);
		return ERR_PTR(-EIO);
	}
	/* Nothing tells a commit block from a revoke block but where it is. */
	if (lazy->mark.known != scan->tid || lazy->mark.end != behind)
		return NULL;
	return ERR_PTR(scan_apply(scan, NULL, behind));	/* NULL for 0 */
}

/*
 * At the snapshot that the marker points at: take it in, or pass it by, because
 * it could not be used.
 *
 * Return: 0; -EAGAIN if it is not what was written.
 */
static int scan_snapshot(struct log_scan *scan)
{
	struct jbd2_lazy *lazy = scan->lazy;
	const struct snap_ref *ref = &lazy->mark.snapshot;
	u64 digest = 0;
	u32 i;

	if (!ref->blocks || ref->tid != scan->tid || ref->log_blk != scan->blk)
		return 0;
	if (scan->used + ref->blocks >= lazy->map.nr_slots)
		return scan->load ? -EAGAIN : 0;
	for (i = 0; i < ref->blocks; i++) {
		void *data = scan_take(scan, ref->blocks - i + scan_search(scan));

		if (scan->load &&
		    !jbd2_lazy_snapshot_take(lazy, i, data, &digest))
			return -EAGAIN;
	}
	lazy->loaded = scan->load;
	return 0;
}

/*
 * One block that is no copy.
 *
 * Return: 1 to go on, 0 if the log ends before it, or an error.
 */
static int scan_block(struct log_scan *scan)
{
	journal_t *journal = scan->lazy->journal;
	void *data;
	tid_t tid;
	int err;

	err = scan_snapshot(scan);
	if (err)
		return err;
	if (scan->used + 1 >= scan->lazy->map.nr_slots) {
		pr_err("JBD2: %s: the kept log has no end\n",
		       journal->j_devname);
		return -EFSCORRUPTED;
	}
	data = scan_next(scan);
	if (!jbd2_lazy_block_valid(journal, data, &tid))
		tid = scan->tid - 1;
	if (tid != scan->tid) {
		data = scan_damage(scan, tid);
		if (IS_ERR_OR_NULL(data))
			return PTR_ERR_OR_ZERO(data);
	}
	err = scan_process(scan, data);
	return err ?: 1;
}

/**
 * jbd2_lazy_scan() - put the log into the map
 * @lazy: a journal that is being loaded
 * @reader: to read with
 * @load: begin with the snapshot of the marker, not with the tail
 *
 * Sets scan_tid and scan_start to the transaction that is not in the log any
 * more and to where it would begin, scanned to the distance from the tail to
 * there.  Raises mark.known if a later transaction shows that more was durable.
 *
 * Return: 0; -EAGAIN if the snapshot is not what was written; -EFSCORRUPTED,
 * with a message, if the log cannot be that; -EIO, -ENOMEM.
 */
int jbd2_lazy_scan(struct jbd2_lazy *lazy, struct log_reader *reader,
		   bool load)
{
	const struct snap_ref *snapshot = &lazy->mark.snapshot;
	journal_t *journal = lazy->journal;
	unsigned long begin = load ? snapshot->start : journal->j_tail;
	u32 used = jbd2_lazy_log_distance(journal, journal->j_tail, begin);
	struct log_scan scan = {
		.lazy = lazy,
		.reader = reader,
		.tid = load ? snapshot->tid : journal->j_tail_sequence,
		.start = begin,
		.blk = begin,
		.used = used,
		.load = load,
	};
	int ret;

	jbd2_jmap_reset(&lazy->map, journal->j_tail_sequence, journal->j_tail);
	lazy->loaded = 0;
	lazy->lost = 0;
	scan.descriptor = kmalloc(journal->j_blocksize, GFP_KERNEL);
	if (!scan.descriptor)
		return -ENOMEM;
	jbd2_lazy_reader_seek(reader, begin, lazy->map.nr_slots - used);
	do {
		ret = scan_block(&scan);
	} while (ret > 0);
	/* The log does not go on where the marker says. */
	if (!ret && load && !lazy->loaded)
		ret = -EAGAIN;

	lazy->scan_start = scan.start;
	lazy->scan_tid = scan.tid;
	lazy->scanned =
		used + jbd2_lazy_log_distance(journal, begin, scan.start);
	/* What a transaction that is not complete left in the map. */
	for (; scan.start != scan.blk;
	     scan.start = jbd2_lazy_next_log_blk(journal, scan.start))
		jbd2_jmap_unnote(&lazy->map, scan.start);
	kvfree(scan.revokes);
	kfree(scan.descriptor);
	return ret;
}
