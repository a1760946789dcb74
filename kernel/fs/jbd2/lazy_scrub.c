// SPDX-License-Identifier: GPL-2.0-only
/*
 * Damage in the log of a running lazy journal: finding it, and getting past it.
 *
 * A log that is never emptied holds some blocks for years.  The file system
 * does not notice when one of them goes bad: the map knows where the copies
 * are, and what is in memory is not read again.  The next one to read the log
 * does.  Stock recovery gives up at a bad descriptor, commit or revoke block,
 * snapshots included, and loses everything behind it; and it fails for a bad
 * copy, even one that a newer one replaces.  So no bad block may stay between
 * the tail and the head, whatever it holds.
 *
 * The scrub finds it.  It goes over the log from the tail to the head,
 * descriptors, copies and all.  When the disk falls idle it reads a part, at
 * most 128 MiB in half an hour, and goes on from there the next time.  A disk
 * that is not used is not woken up.  On demand it reads all.  A mount that had
 * to look past damage tells of it, too.
 *
 * Getting past it takes what makes the tail pass everything else: all that is
 * live up to the next place where the tail can rest is written again at the
 * head, in order, from memory where possible.  A copy that is in memory is as
 * good as new, and a bad descriptor or commit block costs nothing, because the
 * map knows what it said.
 *
 * A newest copy that cannot be read and is not in memory stays where it is.
 * Reads of that block fail, as those of a bad sector at home do.  When the log
 * has no room left without it, the journal is aborted, and e2fsck is due; it
 * replays all the rest.
 *
 * All is done by the cleaner's thread, under clean_mutex, in slices, between
 * which it cleans.  Reading goes on while the tail and the head move: a block
 * that looks bad is none if the tail has passed it meanwhile.
 */

#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/kthread.h>
#include "lazy.h"

/* Idle scrubbing: so many blocks, and then none for LAZY_SCRUB_PAUSE. */
#define SCRUB_BURST	32768U
/* Blocks that are read before the cleaner looks whether it is needed. */
#define SCRUB_SLICE	1024U
/* Tries to get past a bad block that did not move anything. */
#define PASS_TRIES	3U

/* Where the log that is in use begins, and the log blocks from there on. */
static u32 scrub_used(struct jbd2_lazy *lazy, tid_t *tid, unsigned long *tail)
{
	journal_t *journal = lazy->journal;
	u32 used;

	read_lock(&journal->j_state_lock);
	*tid = journal->j_tail_sequence;
	*tail = journal->j_tail;
	used = lazy->map.nr_slots - journal->j_free;
	read_unlock(&journal->j_state_lock);
	return used;
}

/* Log blocks from the tail to @log_blk; false if that is not in use. */
static bool scrub_distance(struct jbd2_lazy *lazy, unsigned long log_blk,
			   u32 *distance)
{
	unsigned long tail;
	tid_t tid;
	u32 used = scrub_used(lazy, &tid, &tail);

	*distance = jbd2_lazy_log_distance(lazy->journal, tail, log_blk);
	return *distance < used;
}

/**
 * jbd2_lazy_damaged() - a log block is damaged
 * @lazy: a journal whose log is loaded, or being loaded
 * @log_blk: the block
 *
 * The cleaner gets the tail past it.
 */
void jbd2_lazy_damaged(struct jbd2_lazy *lazy, unsigned long log_blk)
{
	struct lazy_scrub *scrub = &lazy->scrub;
	journal_t *journal = lazy->journal;
	u32 distance;

	atomic64_inc(&scrub->damaged);
	/* One that the tail has passed meanwhile is no bound any more. */
	if (!scrub->bad || !scrub_distance(lazy, scrub->bad, &distance) ||
	    distance <
		    jbd2_lazy_log_distance(journal, journal->j_tail, log_blk))
		WRITE_ONCE(scrub->bad, log_blk);
}

/* Whether the tail still has to pass a bad block. */
bool jbd2_lazy_damage_left(struct jbd2_lazy *lazy)
{
	unsigned long bad = READ_ONCE(lazy->scrub.bad);
	u32 distance;

	return bad && scrub_distance(lazy, bad, &distance);
}

/* ------------------------------------------------------------------------- */
/* Reading                                                                    */

/* Whether the tail is past what the scrub takes its place to be. */
static bool scrub_overtaken(struct jbd2_lazy *lazy)
{
	unsigned long tail;
	tid_t tid;

	scrub_used(lazy, &tid, &tail);
	return tid_gt(tid, lazy->scrub.tid);
}

/* Whether the tail has to pass a log block because of a newer one. */
static bool scrub_passed_over(struct jbd2_lazy *lazy, u32 distance)
{
	unsigned long bad = lazy->scrub.bad;
	u32 newer;

	return bad && scrub_distance(lazy, bad, &newer) && distance <= newer;
}

/*
 * A block is not what it has to be.
 *
 * Return: false if the tail has passed it while it was read.
 */
static bool scrub_report(struct jbd2_lazy *lazy, unsigned long log_blk,
			 const struct lazy_tag *tag, bool unreadable)
{
	const char *name = lazy->journal->j_devname;
	const char *what = unreadable ? "cannot be read" : "is damaged";
	u32 distance;

	if (!scrub_distance(lazy, log_blk, &distance))
		return false;
	if (scrub_passed_over(lazy, distance))
		return true;
	if (tag)
		pr_warn("JBD2: %s: log block %lu, a copy of block %llu, %s; the tail is moved past it\n",
			name, log_blk, tag->home, what);
	else
		pr_warn("JBD2: %s: log block %lu of transaction %u %s; the tail is moved past it\n",
			name, log_blk, lazy->scrub.tid, what);
	jbd2_lazy_damaged(lazy, log_blk);
	/* It may be of the snapshot that a mount would want. */
	if (!tag)
		WRITE_ONCE(lazy->snaps.urgent, true);
	return true;
}

static void *scrub_take(struct jbd2_lazy *lazy, u32 wanted)
{
	struct lazy_scrub *scrub = &lazy->scrub;

	scrub->blk = jbd2_lazy_next_log_blk(lazy->journal, scrub->blk);
	scrub->left--;
	atomic64_inc(&scrub->blocks);
	return jbd2_lazy_reader_next(scrub->reader, wanted);
}

/* The copies behind a descriptor, until the tail passes them. */
static void scrub_copies(struct jbd2_lazy *lazy, u32 wanted)
{
	struct lazy_scrub *scrub = &lazy->scrub;
	journal_t *journal = lazy->journal;
	u32 at = 0, tags = 0, csum;
	struct lazy_tag tag;

	while (jbd2_lazy_tag_next(journal, scrub->descriptor, &at, &tag))
		tags++;
	for (at = 0; scrub->left && tags; tags--) {
		unsigned long blk = scrub->blk;
		void *data = scrub_take(lazy, max(wanted, tags));

		jbd2_lazy_tag_next(journal, scrub->descriptor, &at, &tag);
		if (scrub_overtaken(lazy))
			return;
		csum = jbd2_lazy_csum_of_tag(journal, scrub->tid, tag.csum);
		if (IS_ERR(data) || jbd2_lazy_csum(journal, data) != csum)
			scrub_report(lazy, blk, &tag, IS_ERR(data));
		cond_resched();
	}
}

static void scrub_place(struct jbd2_lazy *lazy, tid_t tid,
			unsigned long log_blk)
{
	struct lazy_scrub *scrub = &lazy->scrub;

	scrub->tid = tid;
	scrub->blk = log_blk;
	scrub->placed = true;
}

/* Where to go on, or from the tail; how far it is to the head. */
static bool scrub_find_place(struct jbd2_lazy *lazy)
{
	struct lazy_scrub *scrub = &lazy->scrub;
	/*
	 * What is being committed has no commit block yet.  Looked at before
	 * the tail, so that it ends a transaction; the tail may pass it.
	 */
	unsigned long end = jbd2_jmap_end(&lazy->map), tail;
	tid_t tid;
	u32 used = scrub_used(lazy, &tid, &tail), distance;

	distance = jbd2_lazy_log_distance(lazy->journal, tail, end);
	used = distance > used ? 0 : distance;
	if (!scrub->placed || tid_gt(tid, scrub->tid) ||
	    jbd2_lazy_log_distance(lazy->journal, tail, scrub->blk) >= used)
		scrub_place(lazy, tid, tail);
	distance = jbd2_lazy_log_distance(lazy->journal, tail, scrub->blk);
	scrub->left = used - min(used, distance);
	return scrub->left;
}

/*
 * Read a part of the log.
 *
 * Return: false at the head.
 */
static bool scrub_slice(struct jbd2_lazy *lazy)
{
	struct lazy_scrub *scrub = &lazy->scrub;
	journal_t *journal = lazy->journal;
	u32 all, done;

	if (!scrub_find_place(lazy))
		return false;
	all = scrub->left;
	jbd2_lazy_reader_seek(scrub->reader, scrub->blk, scrub->left);
	while (scrub->left && (done = all - scrub->left) < SCRUB_SLICE) {
		unsigned long blk = scrub->blk;
		void *data = scrub_take(lazy, SCRUB_SLICE - done);
		const journal_header_t *header = data;
		tid_t tid;

		if (!jbd2_lazy_block_valid(journal, data, &tid) ||
		    tid != scrub->tid) {
			bool found = !scrub_overtaken(lazy) &&
				scrub_report(lazy, blk, NULL, IS_ERR(data));

			/* What follows it is not known. */
			scrub->placed = found &&
					jbd2_jmap_mark_behind(&lazy->map, blk,
							      &scrub->tid,
							      &scrub->blk);
			return scrub->placed || !found;
		}
		if (header->h_blocktype ==
		    cpu_to_be32(JBD2_DESCRIPTOR_BLOCK)) {
			memcpy(scrub->descriptor, data, journal->j_blocksize);
			scrub_copies(lazy, SCRUB_SLICE - done);
		} else if (header->h_blocktype ==
			   cpu_to_be32(JBD2_COMMIT_BLOCK)) {
			scrub->tid++;
		}
	}
	return scrub->left;
}

/* Let go of the memory. */
void jbd2_lazy_scrub_end(struct jbd2_lazy *lazy)
{
	struct lazy_scrub *scrub = &lazy->scrub;

	jbd2_lazy_reader_free(scrub->reader);
	kfree(scrub->descriptor);
	scrub->reader = NULL;
	scrub->descriptor = NULL;
}

static int scrub_begin(struct jbd2_lazy *lazy)
{
	struct lazy_scrub *scrub = &lazy->scrub;

	if (!scrub->reader)
		scrub->reader = jbd2_lazy_reader_alloc(lazy);
	if (!scrub->descriptor)
		scrub->descriptor = kmalloc(lazy->journal->j_blocksize,
					    GFP_KERNEL);
	if (scrub->reader && scrub->descriptor)
		return 0;
	jbd2_lazy_scrub_end(lazy);
	return -ENOMEM;
}

/* Whether the cleaner has to let go of clean_mutex. */
static bool scrub_interrupted(struct jbd2_lazy *lazy)
{
	return (current == lazy->cleaner && kthread_should_stop()) ||
	       is_journal_aborted(lazy->journal);
}

/* ------------------------------------------------------------------------- */
/* Getting past it                                                            */

/* Commit what was re-logged, and what was waiting to be, and let go of it. */
static int scrub_let_go(struct jbd2_lazy *lazy)
{
	journal_t *journal = lazy->journal;
	transaction_t *running;
	bool wait = false;
	tid_t tid = 0;
	int err = 0;

	read_lock(&journal->j_state_lock);
	running = journal->j_running_transaction ?:
		  journal->j_committing_transaction;
	if (running) {
		tid = running->t_tid;
		wait = true;
	}
	read_unlock(&journal->j_state_lock);
	if (wait) {
		jbd2_log_start_commit(journal, tid);
		err = jbd2_log_wait_commit(journal, tid);
	}
	if (err)
		return err;
	mutex_lock_io(&journal->j_checkpoint_mutex);
	/* What was on its way home holds the tail, too. */
	err = jbd2_lazy_checkpoint(journal);
	if (!err)
		jbd2_cleanup_journal_tail(journal);
	mutex_unlock(&journal->j_checkpoint_mutex);
	return err;
}

/* Get the tail past the newest bad block, and so past all of them. */
static void scrub_pass_damage(struct jbd2_lazy *lazy)
{
	struct lazy_scrub *scrub = &lazy->scrub;
	unsigned long tail, before;
	unsigned int tries = 0;
	int relogged;
	u32 span;
	tid_t tid;

	while (jbd2_lazy_damage_left(lazy)) {
		/* An unmount is not paused, also without a commit before it. */
		if (scrub_interrupted(lazy) ||
		    (current == lazy->cleaner && READ_ONCE(lazy->clean_paused)))
			return;
		scrub_used(lazy, &tid, &before);
		span = jbd2_jmap_span_past(&lazy->map, scrub->bad);
		relogged = span ? jbd2_lazy_clean_relog_span(lazy, span) : 0;
		if (relogged < 0 || scrub_let_go(lazy))
			break;		/* until it is found again */
		scrub_used(lazy, &tid, &tail);
		if (!relogged && tail == before && ++tries == PASS_TRIES)
			return;		/* again with the next commit */
	}
	WRITE_ONCE(scrub->bad, 0);
}

/**
 * jbd2_lazy_pass_damage() - get the tail past known damage, before an unmount
 * @journal: a lazy journal
 *
 * Others do not read past it.  An e2fsck that finds errors throws the log away.
 */
void jbd2_lazy_pass_damage(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;

	mutex_lock(&lazy->clean_mutex);
	scrub_pass_damage(lazy);
	mutex_unlock(&lazy->clean_mutex);
}
EXPORT_SYMBOL(jbd2_lazy_pass_damage);

/* ------------------------------------------------------------------------- */
/* When                                                                       */

/* Whether a part is read as soon as the disk is idle. */
bool jbd2_lazy_scrub_due(struct jbd2_lazy *lazy)
{
	return lazy->scrub.used && time_after(jiffies, lazy->scrub.next);
}

/* Whether there is something to do that waits for nothing. */
bool jbd2_lazy_scrub_busy(struct jbd2_lazy *lazy)
{
	struct lazy_scrub *scrub = &lazy->scrub;

	return scrub->reader || READ_ONCE(scrub->asked) != scrub->served;
}

/* A transaction was committed. */
bool jbd2_lazy_scrub_after_commit(struct jbd2_lazy *lazy)
{
	lazy->scrub.used = true;
	return jbd2_lazy_scrub_due(lazy) || READ_ONCE(lazy->scrub.bad);
}

static void scrub_finish(struct jbd2_lazy *lazy)
{
	struct lazy_scrub *scrub = &lazy->scrub;

	jbd2_lazy_scrub_end(lazy);
	scrub->burst = 0;
	scrub->used = false;
	scrub->next = jiffies + LAZY_SCRUB_PAUSE;
	scrub->placed &= !scrub->whole;
	if (!scrub->whole)
		return;
	scrub->whole = false;
	WRITE_ONCE(scrub->served, scrub->serving);
	wake_up_all(&lazy->clean_done);
}

/**
 * jbd2_lazy_scrub_step() - the cleaner has nothing better to do
 * @lazy: the journal
 * @idle: whether the disk is idle
 *
 * Called with clean_mutex held.
 */
void jbd2_lazy_scrub_step(struct jbd2_lazy *lazy, bool idle)
{
	struct lazy_scrub *scrub = &lazy->scrub;
	bool more;

	if (!scrub->whole && READ_ONCE(scrub->asked) != scrub->served) {
		scrub->serving = READ_ONCE(scrub->asked);
		scrub->whole = true;
		scrub->placed = false;
	} else if (!scrub->whole && !scrub->burst && idle &&
		   jbd2_lazy_scrub_due(lazy)) {
		scrub->burst = SCRUB_BURST;
	}
	if (scrub->whole || scrub->burst) {
		scrub->err = scrub_begin(lazy);
		more = !scrub->err && !scrub_interrupted(lazy) &&
		       scrub_slice(lazy);
		scrub->burst -= min(scrub->burst, SCRUB_SLICE);
		if (more && (scrub->whole || scrub->burst))
			return;
		scrub_pass_damage(lazy);
		scrub_finish(lazy);
	} else if (scrub->bad) {
		scrub_pass_damage(lazy);
	}
}

/**
 * jbd2_lazy_scrub() - read all of the log that is in use, and get past damage
 * @journal: a lazy journal
 *
 * Return: 0, whatever was found; -EINTR; -ENODEV if the journal has no cleaner;
 * -ENOMEM.
 */
int jbd2_lazy_scrub(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	struct lazy_scrub *scrub = &lazy->scrub;
	unsigned int ticket;
	int err;

	if (!lazy->cleaner)
		return -ENODEV;
	spin_lock(&lazy->clean_lock);
	ticket = ++scrub->asked;
	spin_unlock(&lazy->clean_lock);
	jbd2_lazy_clean_wake(lazy);
	err = wait_event_killable(lazy->clean_done,
				  (int)(READ_ONCE(scrub->served) - ticket) >= 0);
	return err ? -EINTR : READ_ONCE(scrub->err);
}
EXPORT_SYMBOL(jbd2_lazy_scrub);
