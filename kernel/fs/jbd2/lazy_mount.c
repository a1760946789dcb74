// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lazy writeback journaling from one mount to the next: the log outlives the
 * mount.
 *
 * Unmounting writes no metadata home.  The journal superblock keeps naming the
 * oldest transaction that is needed, and the file system keeps needs_recovery
 * set, so for everybody else this is a file system that crashed: a stock
 * kernel or e2fsck replays the log.  The next lazy mount does not.  Where
 * recovery writes blocks home, it notes where in the log they are, and applies
 * a transaction to the map by the same function as at run time when the scan
 * comes to its commit block (lazy_scan.c).  Most of the log is not read at all:
 * snapshots in it say what is there (lazy_snapshot.c).  Nothing is written.
 *
 *	 s_start                                       head
 *	   |  T100  |  T101  | ...            |  T117  | T118 |  T119 ...
 *	---+--------+--------+----------------+--------+------+-----------
 *	   ^ tail: oldest transaction with                ^ tombstone: a commit
 *	     a live copy                                    block, nothing else
 *
 * Whose log is it?  A log is only taken over when the last to move its ends
 * was this code.  The marker, in the padding of the journal superblock, holds
 * a copy of s_sequence and s_start.  All others (stock kernels, e2fsck) keep
 * the padding as it is and change at least one of the two when they replay or
 * use the log, so the marker turns invalid by itself.  Then stock recovery
 * comes first, and lazy journaling starts on an empty log.
 *
 * Rules, continued from lazy.c:
 *
 *  INV-K9  Transaction ids in the log are contiguous from the tail to the
 *          head.  Stock recovery skips one, which ends the log for good; here
 *          the log goes on.
 *  INV-K10 No block of a transaction that was never completed can be taken for
 *          part of a newer one.  The transaction that a crash interrupted may
 *          have left blocks, even a commit block, behind the head, and its id
 *          would be used again.  So it is used up: the tombstone, a committed
 *          transaction without blocks, takes the id.  It is written by the
 *          first commit, and is durable before anything follows it.  A mount
 *          that commits nothing writes nothing.  A log that begins anew takes
 *          ids that no remains in it have (lazy_skip_remains()).
 *  INV-K11 The marker names a transaction that was durable when it was
 *          written.  A log that ends before it is damaged in the middle, and
 *          by more than lazy_scan.c can bridge; it is refused, because to go
 *          on would bury what lies behind the damage.
 *  INV-K12 What was read before the map existed counts for nothing when it
 *          does (jbd2_lazy_trust_nothing()).  The superblock and the group
 *          descriptors, which the file system uses without asking, are read
 *          again (jbd2_lazy_refresh()).
 *
 * The superblock of the file system is in the map like any other block: the
 * copy in the log wins, as in stock recovery.  ext4 logs it once more when it
 * unmounts, so that a replay ends with a superblock that is up to date.
 */

#include <linux/buffer_head.h>
#include <linux/blkdev.h>
#include <linux/sched/mm.h>
#include "lazy.h"

#define LAZY_MAGIC	0x4c5a5931U	/* "LZY1" */
#define LAZY_VERSION	2U

/*
 * The end of s_padding; new fields of the format are taken from its start.
 * Covered by s_checksum.
 */
struct lazy_marker {
	__be32 magic;
	__be32 version;
	__be32 sequence;	/* s_sequence and s_start, as we wrote them */
	__be32 start;
	__be32 known;		/* the newest transaction then (INV-K11) */
	__be32 snap_log_blk;	/* the newest snapshot; snap_blocks 0: none */
	__be32 snap_blocks;
	__be32 snap_tid;
	__be32 snap_start;	/* where its transaction begins */
	__be32 snap_digest[2];	/* of the map, high and low half */
	__be32 end;		/* the log block behind @known */
	__be32 reserved[4];
};

#define LAZY_MARKER_WORD	24	/* of the 40 of s_padding */

static struct lazy_marker *lazy_marker_of(const journal_superblock_t *sb)
{
	BUILD_BUG_ON(LAZY_MARKER_WORD * sizeof(sb->s_padding[0]) +
		     sizeof(struct lazy_marker) != sizeof(sb->s_padding));
	return (struct lazy_marker *)&sb->s_padding[LAZY_MARKER_WORD];
}

/* Sign the tail that @sb names. */
void jbd2_lazy_mark(journal_superblock_t *sb, const struct lazy_mark *mark)
{
	const struct snap_ref *snapshot = &mark->snapshot;
	struct lazy_marker *marker = lazy_marker_of(sb);

	memset(marker, 0, sizeof(*marker));
	marker->magic = cpu_to_be32(LAZY_MAGIC);
	marker->version = cpu_to_be32(LAZY_VERSION);
	marker->sequence = sb->s_sequence;
	marker->start = sb->s_start;
	marker->known = cpu_to_be32(mark->known);
	marker->end = cpu_to_be32(mark->end);
	if (!snapshot->blocks)
		return;
	marker->snap_log_blk = cpu_to_be32(snapshot->log_blk);
	marker->snap_blocks = cpu_to_be32(snapshot->blocks);
	marker->snap_tid = cpu_to_be32(snapshot->tid);
	marker->snap_start = cpu_to_be32(snapshot->start);
	marker->snap_digest[0] = cpu_to_be32(upper_32_bits(snapshot->digest));
	marker->snap_digest[1] = cpu_to_be32(lower_32_bits(snapshot->digest));
}

/* Whether there is a log, and lazy journaling was the last to move its tail. */
bool jbd2_lazy_marked(const journal_superblock_t *sb, struct lazy_mark *mark)
{
	const struct lazy_marker *marker = lazy_marker_of(sb);
	struct snap_ref *snapshot = &mark->snapshot;

	mark->known = be32_to_cpu(marker->known);
	mark->end = be32_to_cpu(marker->end);
	snapshot->log_blk = be32_to_cpu(marker->snap_log_blk);
	snapshot->blocks = be32_to_cpu(marker->snap_blocks);
	snapshot->tid = be32_to_cpu(marker->snap_tid);
	snapshot->start = be32_to_cpu(marker->snap_start);
	snapshot->digest = (u64)be32_to_cpu(marker->snap_digest[0]) << 32 |
			   be32_to_cpu(marker->snap_digest[1]);
	return marker->magic == cpu_to_be32(LAZY_MAGIC) &&
	       marker->version == cpu_to_be32(LAZY_VERSION) &&
	       marker->sequence == sb->s_sequence &&
	       marker->start == sb->s_start && sb->s_start;
}

/**
 * jbd2_lazy_log_kept() - whether the log can be taken over as it is
 * @journal: a journal that is not loaded yet
 *
 * If not, it is for stock recovery.  The features are not looked at:
 * jbd2_lazy_start() refuses wrong ones.  That of checksums may have been lost
 * by damage, which then no checksum shows, and stock recovery would find
 * nothing in the log.
 */
bool jbd2_lazy_log_kept(journal_t *journal)
{
	struct lazy_mark mark;

	return jbd2_lazy_marked(journal->j_superblock, &mark) &&
	       journal->j_tail >= journal->j_first &&
	       journal->j_tail < journal->j_last;
}
EXPORT_SYMBOL(jbd2_lazy_log_kept);

/**
 * jbd2_lazy_log_gone() - whether somebody emptied the log below its map
 * @journal: a lazy journal that is loaded
 *
 * While the file system is read-only e2fsck may replay the log, as it does on
 * the root: then the map tells of nothing that is there, and what is committed
 * would go into a log that is empty for everybody else.  Called with
 * j_checkpoint_mutex held, or while nothing can move the tail.
 */
bool jbd2_lazy_log_gone(journal_t *journal)
{
	return !(journal->j_flags & JBD2_FLUSHED) &&
	       !jbd2_lazy_log_kept(journal);
}
EXPORT_SYMBOL(jbd2_lazy_log_gone);

/* ------------------------------------------------------------------------- */
/* Load: from the log to the map                                              */

/*
 * Keep ready what the tombstone needs.  Its contents come when it is written:
 * the page cache must not show a commit block that is not on the disk, because
 * the next mount may read it from there.
 */
static int lazy_plan_tombstone(struct jbd2_lazy *lazy)
{
	journal_t *journal = lazy->journal;

	lazy->tombstone = __getblk(journal->j_dev,
				   jbd2_lazy_phys(lazy, lazy->scan_start),
				   journal->j_blocksize);
	return lazy->tombstone ? 0 : -ENOMEM;
}

/* The commit block that uses up its id. */
static void lazy_fill_tombstone(struct jbd2_lazy *lazy)
{
	journal_t *journal = lazy->journal;
	struct buffer_head *bh = lazy->tombstone;
	struct commit_header *commit = (struct commit_header *)bh->b_data;

	memset(bh->b_data, 0, journal->j_blocksize);
	commit->h_magic = cpu_to_be32(JBD2_MAGIC_NUMBER);
	commit->h_blocktype = cpu_to_be32(JBD2_COMMIT_BLOCK);
	commit->h_sequence = cpu_to_be32(lazy->scan_tid);
	commit->h_commit_sec = cpu_to_be64(ktime_get_real_seconds());
	commit->h_chksum[0] = cpu_to_be32(jbd2_chksum(journal,
						      journal->j_csum_seed,
						      commit,
						      journal->j_blocksize));
}

/**
 * __jbd2_lazy_recover() - jbd2_journal_recover() of a log that is kept
 * @journal: the journal
 *
 * Return: 0; -EFSCORRUPTED, with a message, if the log cannot be what was
 * written; -EIO, -ENOMEM.
 */
int __jbd2_lazy_recover(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	const struct snap_ref *newest = &lazy->mark.snapshot;
	struct log_reader *reader;
	int err = -EAGAIN;

	reader = jbd2_lazy_reader_alloc(lazy);
	if (!reader)
		return -ENOMEM;
	lazy->homes = div_u64(bdev_nr_bytes(journal->j_fs_dev),
			      journal->j_blocksize);
	jbd2_lazy_marked(journal->j_superblock, &lazy->mark);
	if (jbd2_lazy_snapshot_usable(lazy)) {
		err = jbd2_lazy_scan(lazy, reader, true);
		if (err == -EAGAIN)
			pr_warn("JBD2: %s: the snapshot of transaction %u at log block %u is damaged, scanning the whole log\n",
				journal->j_devname, newest->tid,
				newest->log_blk);
	} else {
		lazy->mark.snapshot.blocks = 0;
	}
	if (err == -EAGAIN) {
		err = jbd2_lazy_scan(lazy, reader, false);
		/* That passed it by.  Others have to read it. */
		if (!err && newest->blocks)
			jbd2_lazy_damaged(lazy, newest->log_blk);
	}
	jbd2_lazy_reader_free(reader);
	if (err) {
		pr_err("JBD2: %s: the kept log is damaged\n",
		       journal->j_devname);
		return err;
	}
	if (tid_gt(lazy->mark.known, lazy->scan_tid - 1)) {	/* INV-K11 */
		pr_err("JBD2: %s: the kept log ends with transaction %u, but %u was committed\n",
		       journal->j_devname, lazy->scan_tid - 1,
		       lazy->mark.known);
		return -EFSCORRUPTED;
	}
	/* The file system takes note, as of an error at run time. */
	if (lazy->lost)
		journal->j_errno = -EFSCORRUPTED;
	jbd2_lazy_snapshot_loaded(lazy);
	jbd2_lazy_durable(lazy, lazy->scan_tid - 1, lazy->scan_start);
	lazy->rebuilt = lazy->map.nr_live;
	pr_info("JBD2: %s: kept %llu blocks in the log, %lu log blocks, transactions %u to %u; read %u snapshots, %llu log blocks\n",
		journal->j_devname, lazy->rebuilt, lazy->scanned,
		journal->j_tail_sequence, lazy->scan_tid - 1, lazy->loaded,
		lazy->scan_blocks);
	jbd2_lazy_trust_nothing(lazy); /* INV-K12 */
	/*
	 * What was read may be in the drive's cache only, and the blocks that
	 * it freed are about to be used again, unless nothing can be written.
	 */
	if (!bdev_read_only(journal->j_dev))
		err = blkdev_issue_flush(journal->j_dev);
	return err ?: lazy_plan_tombstone(lazy);
}

/*
 * journal_reset() of a log that is kept: the tail stays, the head is behind
 * the tombstone.
 */
int __jbd2_lazy_reset(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	unsigned long total = journal->j_last - journal->j_first, used;

	used = lazy->scanned + 1;
	if (used + 1 >= total) {
		pr_err("JBD2: %s: the kept log leaves no room\n",
		       journal->j_devname);
		return -EFSCORRUPTED;
	}
	journal->j_head = jbd2_lazy_next_log_blk(journal, lazy->scan_start);
	journal->j_free = total - used;
	/* j_tail and j_tail_sequence are those of the journal superblock. */
	journal->j_transaction_sequence = lazy->scan_tid + 1;
	journal->j_commit_sequence = lazy->scan_tid;
	journal->j_commit_request = lazy->scan_tid;
	lazy->sealed = lazy->scan_tid;
	return 0;
}

/*
 * Before the first commit writes anything: the tombstone (INV-K10).  The
 * commit thread, or the thread that unmounts in its place.
 */
void __jbd2_lazy_commit_begin(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	struct buffer_head *bh = lazy->tombstone;

	if (!bh || is_journal_aborted(journal))
		return;
	/*
	 * Nothing is left for it to cover if the log was emptied meanwhile, and
	 * jbd2_journal_flush() may have erased the block below the buffer.
	 */
	if (tid_gt(journal->j_tail_sequence, lazy->scan_tid))
		goto out;
	lock_buffer(bh);
	lazy_fill_tombstone(lazy);
	clear_buffer_dirty(bh);
	set_buffer_uptodate(bh);
	get_bh(bh);
	bh->b_end_io = end_buffer_write_sync;
	submit_bh(REQ_OP_WRITE | REQ_PREFLUSH | REQ_FUA |
		  JBD2_JOURNAL_REQ_FLAGS, bh);
	wait_on_buffer(bh);
	if (!buffer_uptodate(bh)) {
		pr_err("JBD2: %s: cannot continue the kept log\n",
		       journal->j_devname);
		jbd2_journal_abort(journal, -EIO);
	}
out:
	brelse(bh);
	lazy->tombstone = NULL;
}

/* ------------------------------------------------------------------------- */
/* The journal superblock                                                     */

/* A transaction is durable; @end is the log block behind it. */
void jbd2_lazy_durable(struct jbd2_lazy *lazy, tid_t tid, unsigned long end)
{
	spin_lock(&lazy->mark_lock);
	lazy->mark.known = tid;
	lazy->mark.end = end;
	spin_unlock(&lazy->mark_lock);
}

/*
 * The journal superblock is about to be written: sign it.
 *
 * Called with its buffer locked.
 */
void __jbd2_lazy_stamp(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	journal_superblock_t *sb = journal->j_superblock;
	struct lazy_mark mark;

	/*
	 * An error: what is signed stays so.  Unless the tail was about to
	 * move, and then the log is for stock recovery.
	 */
	if (is_journal_aborted(journal))
		return;
	spin_lock(&lazy->mark_lock);
	mark = lazy->mark;
	spin_unlock(&lazy->mark_lock);
	if (tid_gt(be32_to_cpu(sb->s_sequence), mark.snapshot.tid))
		mark.snapshot.blocks = 0;
	jbd2_lazy_mark(sb, &mark);

	if (IS_ENABLED(CONFIG_JBD2_LAZY_DEBUG) && sb->s_start)	/* INV-K5 */
		WARN_ON_ONCE(jbd2_jmap_live_before(&lazy->map,
						   be32_to_cpu(sb->s_start)));
}

/**
 * __jbd2_lazy_seal() - leave the log to the next mount
 * @journal: the journal; nothing is committing
 *
 * Writes the journal superblock with the present tail, unless nothing was
 * committed since the last time.  All that was demoted and written home is
 * made durable first.
 *
 * Return: 1 if the log is kept; 0 if it holds nothing that is needed, somebody
 * emptied it, or the journal is aborted; an error of the write, and then the journal is aborted.
 */
int __jbd2_lazy_seal(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	unsigned long block;
	int ret = 0;
	tid_t tid;

	mutex_lock_io(&journal->j_checkpoint_mutex);
	if (is_journal_aborted(journal) || jbd2_lazy_log_gone(journal))
		goto unlock;
	ret = 1;
	if (journal->j_superblock->s_start &&
	    lazy->sealed == journal->j_commit_sequence &&
	    !READ_ONCE(journal->j_checkpoint_transactions))
		goto unlock;
	ret = 0;
	if (!READ_ONCE(lazy->map.nr_live) &&
	    !READ_ONCE(journal->j_checkpoint_transactions))
		goto unlock;
	/* A file system that is frozen or read-only leaves nothing dirty. */
	ret = jbd2_lazy_checkpoint(journal);
	if (!ret)
		ret = blkdev_issue_flush(journal->j_fs_dev);
	if (ret) {
		jbd2_journal_abort(journal, ret);
		goto unlock;
	}
	if (!jbd2_journal_get_log_tail(journal, &tid, &block)) {
		/* The map is coarse; the tail never moves back. */
		tid = journal->j_tail_sequence;
		block = journal->j_tail;
	}
	ret = __jbd2_update_log_tail(journal, tid, block);
	if (!ret) {
		lazy->sealed = journal->j_commit_sequence;
		ret = 1;
	}
unlock:
	mutex_unlock(&journal->j_checkpoint_mutex);
	return ret;
}

/* The journal goes away. */
void jbd2_lazy_forget_mount(struct jbd2_lazy *lazy)
{
	brelse(lazy->tombstone);
}
