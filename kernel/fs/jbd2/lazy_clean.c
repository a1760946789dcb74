// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cleaner of lazy writeback journaling: it frees the tail of the log
 * before anybody has to wait for it.
 *
 * A copy at the tail was not written again for a whole revolution of the log.
 * There are two ways to be rid of it:
 *
 *   re-log   the block is filed in the running transaction as it is, and the
 *            new copy takes the old one's place.  Costs log space.
 *   demote   the block goes home (lazy.c).  Costs a write somewhere on the
 *            disk, but frees for good.
 *
 * Policy "watermarks".  A copy written in order costs a hundredth of a write
 * somewhere on the disk, so re-logging is the rule, as long as not too much of
 * the log is live.  What is ahead of the head is written next, and is cleaned
 * in time:
 *
 *	head   reserve   for users   next transaction
 *	 |--------|----------|-----------|- - - - - - - - - - - - - - -|
 *	  nothing live but what is being re-logged | at most 3/4 live
 *
 * "reserve" is the largest transaction: so much jbd2 wants free before a handle
 * starts.  Users stop earlier, so that the cleaner can still start one.  The
 * third part lets one transaction run while another commits.
 *
 * When more than three quarters of what lies behind are live, re-logging copies
 * the same blocks again and again, and some have to go home: in ascending
 * order, each sweep from where the last one ended.  So nearly all that the log
 * has of a region is written at once, in long runs, and the region is left
 * alone for long.  What its owner changed a short while ago stays.  As long as
 * that frees blocks, nothing is re-logged, unless somebody waits.
 *
 * What is not in memory is read from the log first, for a whole sweep at once:
 * its copies lie all over the log, and between small pieces others would send
 * the arm away.  So a sweep is as long as memory allows.
 *
 * Re-logging joins a transaction that is running.  Only one that it fills by
 * half, or for which somebody waits, is committed earlier than otherwise.  When
 * the disk has been idle for a while, nothing is re-logged, and blocks go home
 * until no more than half of the log is live.
 *
 * Policy "fixed" is that of the FAST'17 paper: every so many commits, the
 * oldest so many transactions are re-logged, whatever they hold.  It can be
 * chosen with CONFIG_JBD2_LAZY_DEBUG only, for comparison.
 *
 * The rules, continued from lazy_mount.c:
 *
 *  INV-K13 A block is re-logged only if its log copy is still the newest and
 *          it is not being freed, tested and filed under b_state_lock, which
 *          forget takes after JMAP_REVOKING is set.  So either the test sees
 *          the free, or forget sees the block in the transaction and takes it
 *          out again.  Nothing cancels a revoke: the block is filed without
 *          jbd2_journal_get_write_access().
 *  INV-K14 The cleaner does nothing between jbd2_journal_lock_updates() and the
 *          first commit after jbd2_journal_unlock_updates(): a frozen file
 *          system, which commits nothing, stays as it is.  The commit that a
 *          freeze makes itself does not count.
 *
 * Lock order: clean_mutex > (handle) > j_checkpoint_mutex > as in lazy.c.  A
 * handle is never open while j_checkpoint_mutex is taken.
 */

#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/freezer.h>
#include <linux/kthread.h>
#include <linux/sched/mm.h>
#include <linux/sort.h>
#include "lazy.h"

/* Most blocks that are looked at in one go, but for a sweep. */
#define CLEAN_BATCH_MAX	8192U
/* Blocks that go home without letting go of j_checkpoint_mutex. */
#define HOME_CHUNK	256U
/* As many are read before a look whether the cleaner shall stop. */
#define READ_CHUNK	1024U
/* Credits of one handle that re-logs. */
#define RELOG_CHUNK	64U
/* No commit for so long, and none to come: the disk is idle. */
#define IDLE_TIME	(5 * HZ)
/* What its owner wrote into so small a part of the log last is not cold. */
#define YOUNG_PART	32U
/* So soon it is looked again whether there is a transaction to join. */
#define JOIN_TIME	DIV_ROUND_UP(HZ, 100)
/* So long a handle waits for the cleaner, before it sends blocks home. */
#define WAIT_TIME	HZ

/* "fixed": after so many commits, so many transactions. */
#define FIXED_COMMITS	10U
#define FIXED_OLDEST	2U

/* The largest transaction, which jbd2 keeps free for every handle. */
static u32 lazy_reserve(struct jbd2_lazy *lazy)
{
	return lazy->journal->j_max_transaction_buffers;
}

/* What users leave to the cleaner on top of that. */
static u32 lazy_user_reserve(struct jbd2_lazy *lazy)
{
	return min(lazy_reserve(lazy), lazy->map.nr_slots / 16) +
	       lazy->map.nr_slots / 64;
}

/* Log blocks ahead of the head that hold nothing live but what is re-logged. */
static u32 lazy_ahead(struct jbd2_lazy *lazy)
{
	return min(2 * lazy_reserve(lazy) + lazy_user_reserve(lazy),
		   lazy->map.nr_slots / 8 * 5);
}

/* With more live blocks than this, re-logging is dear. */
static u32 lazy_live_most(struct jbd2_lazy *lazy, bool idle)
{
	u32 behind = lazy->map.nr_slots - lazy_ahead(lazy);

	return idle ? behind / 2 : behind / 4 * 3;
}

static u32 lazy_free_blocks(struct jbd2_lazy *lazy)
{
	return READ_ONCE(lazy->journal->j_free);
}

/* Let go of the log in front of the oldest live copy, if that is worth it. */
static void lazy_clean_tail(struct jbd2_lazy *lazy)
{
	journal_t *journal = lazy->journal;
	unsigned long block, all = ULONG_MAX;
	tid_t tid;

	/* What was written home is still on the checkpoint lists. */
	jbd2_journal_shrink_checkpoint_list(journal, &all);

	mutex_lock_io(&journal->j_checkpoint_mutex);
	if (jbd2_journal_get_log_tail(journal, &tid, &block) &&
	    jbd2_lazy_log_distance(journal, journal->j_tail, block) >=
		    max(lazy_reserve(lazy), lazy->map.mark_span))
		jbd2_cleanup_journal_tail(journal);
	mutex_unlock(&journal->j_checkpoint_mutex);
}

/*
 * Begin to read what is not in memory, in one sweep over the log: if others
 * wrote between two pieces, each of them would cost two seeks.
 */
static void lazy_clean_read(struct jbd2_lazy *lazy, struct lazy_item *items,
			    unsigned int n)
{
	unsigned int i;

	jbd2_lazy_fetch(lazy, items, n);
	for (i = 0; i < n; i++)
		brelse(items[i].bh);
}

/* ------------------------------------------------------------------------- */
/* Home                                                                       */

/* A freeze waits for clean_mutex, and a suspend for us. */
static bool lazy_clean_must_stop(struct jbd2_lazy *lazy)
{
	return READ_ONCE(lazy->clean_paused) || kthread_should_stop() ||
	       freezing(current);
}

/* Send blocks home in one ascending sweep. */
static int lazy_clean_home(struct jbd2_lazy *lazy, struct lazy_item *items,
			   unsigned int n)
{
	journal_t *journal = lazy->journal;
	unsigned int i, j, chunk, busy = 0;
	struct buffer_head *bh;
	struct blk_plug plug;
	int ret, err = 0, home = 0;

	sort(items, n, sizeof(*items), jbd2_lazy_cmp_log, NULL);
	for (i = 0; i < n && !lazy_clean_must_stop(lazy); i += chunk) {
		chunk = min(n - i, READ_CHUNK);
		lazy_clean_read(lazy, items + i, chunk);
	}
	sort(items, n, sizeof(*items), jbd2_lazy_cmp_home, NULL);
	for (i = 0; i < n; i += chunk) {
		chunk = min(n - i, HOME_CHUNK);
		mutex_lock_io(&journal->j_checkpoint_mutex);
		ret = is_journal_aborted(journal) ?
			      -EIO :
			      jbd2_lazy_demote(lazy, items + i, chunk, &busy);
		mutex_unlock(&journal->j_checkpoint_mutex);
		if (is_journal_aborted(journal))
			return -EIO;
		/* A copy cannot be read: others go home all the same. */
		if (ret < 0)
			err = ret;
		else
			home += ret;
		/*
		 * Written here, without the mutex, which a commit may want.
		 * A block that a transaction took meanwhile is clean.
		 */
		blk_start_plug(&plug);
		for (j = i; j < i + chunk; j++) {
			bh = __find_get_block(journal->j_fs_dev, items[j].home,
					      journal->j_blocksize);
			if (bh)
				write_dirty_buffer(bh, REQ_META);
			brelse(bh);
		}
		blk_finish_plug(&plug);
		for (j = i; j < i + chunk; j++) {
			bh = __find_get_block(journal->j_fs_dev, items[j].home,
					      journal->j_blocksize);
			if (bh)
				wait_on_buffer(bh);
			brelse(bh);
		}
		cond_resched();
		if (lazy_clean_must_stop(lazy))
			break;
	}
	atomic64_add(home, &lazy->swept);
	return home ?: err;
}

/* ------------------------------------------------------------------------- */
/* Re-log                                                                     */

/* File one block in the transaction of @handle as it is (INV-K13). */
static bool lazy_relog_one(struct jbd2_lazy *lazy, handle_t *handle,
			   struct lazy_item *item)
{
	journal_t *journal = lazy->journal;
	struct buffer_head *bh = item->bh;
	struct journal_head *jh;
	bool filed = false;

	jbd2_lazy_debug_delay();
	lock_buffer(bh);
	jh = jbd2_journal_add_journal_head(bh);
	spin_lock(&jh->b_state_lock);
	spin_lock(&journal->j_list_lock);
	if (!jbd2_lazy_trusts(lazy, bh) || buffer_dirty(bh) ||
	    buffer_revoked(bh) || jh->b_transaction || jh->b_next_transaction ||
	    jh->b_cp_transaction || is_handle_aborted(handle))
		goto unlock;
	if (!jbd2_jmap_relog(&lazy->map, item->home, item->log_blk))
		goto unlock;
	jh->b_modified = 1;
	handle->h_total_credits--;
	set_buffer_meta(bh);
	set_buffer_jbddirty(bh);
	__jbd2_journal_file_buffer(jh, handle->h_transaction, BJ_Metadata);
	filed = true;
unlock:
	spin_unlock(&journal->j_list_lock);
	spin_unlock(&jh->b_state_lock);
	jbd2_journal_put_journal_head(jh);
	unlock_buffer(bh);
	jbd2_lazy_debug_delay();
	return filed;
}

/* Whether there is a running transaction to join, and its @tid. */
static bool lazy_joinable(struct jbd2_lazy *lazy, tid_t *tid)
{
	journal_t *journal = lazy->journal;
	transaction_t *running;
	bool found;

	read_lock(&journal->j_state_lock);
	running = journal->j_running_transaction;
	found = running && running->t_state == T_RUNNING;
	if (found)
		*tid = running->t_tid;
	read_unlock(&journal->j_state_lock);
	return found;
}

/* Re-log @n blocks. */
static int lazy_clean_relog(struct jbd2_lazy *lazy, struct lazy_item *items,
			    unsigned int n)
{
	journal_t *journal = lazy->journal;
	unsigned int i, j, chunk, most;
	int err = 0, relogged = 0;
	handle_t *handle;

	lazy_clean_read(lazy, items, n);
	most = clamp(journal->j_max_transaction_buffers / 16U, 1U, RELOG_CHUNK);
	for (i = 0; i < n; i += chunk) {
		chunk = min(n - i, most);
		err = jbd2_lazy_fetch(lazy, items + i, chunk);
		for (j = i; j < i + chunk; j++) {
			if (!items[j].bh)
				continue;
			wait_on_buffer(items[j].bh);
			if (!err && !jbd2_lazy_trusts(lazy, items[j].bh))
				err = min(jbd2_lazy_read_again(lazy, &items[j]),
					  0);
		}
		if (!err) {
			handle = jbd2_journal_start(journal, chunk);
			err = PTR_ERR_OR_ZERO(handle);
		}
		for (j = i; j < i + chunk; j++) {
			if (!err && lazy_relog_one(lazy, handle, &items[j]))
				relogged++;
			brelse(items[j].bh);
		}
		if (!err)
			err = jbd2_journal_stop(handle);
		if (err)
			break;
		cond_resched();
	}
	atomic64_add(relogged, &lazy->relogged);
	return err ?: relogged;
}

/* ------------------------------------------------------------------------- */
/* Policy                                                                     */

/*
 * Put the live blocks of the oldest @span log blocks into the batch, as many as
 * it holds.
 */
static unsigned int lazy_clean_collect(struct jbd2_lazy *lazy, u32 span)
{
	struct lazy_item *batch = lazy->clean_batch;
	unsigned int flags, n = 0;
	u32 pos, left;

	pos = jbd2_jmap_scan_start(&lazy->map, &left);
	left = min(left, span);
	while (n < lazy->clean_batch_len &&
	       jbd2_jmap_next_live(&lazy->map, &pos, &left, &batch[n].home,
				   &batch[n].log_blk, &flags)) {
		/* Being freed, or filed again: its commit is the end of it. */
		if (!(flags & (JMAP_REVOKING | JMAP_RELOGGED)))
			n++;
	}
	return n;
}

/*
 * Put the live blocks into @batch whose homes come next, up to half of the @len
 * that it holds, in ascending order.
 */
static unsigned int lazy_clean_collect_home(struct jbd2_lazy *lazy,
					    struct lazy_item *batch,
					    unsigned int len)
{
	unsigned int flags, n = 0, most = len / 2;
	struct lazy_item item;
	u64 last = U64_MAX;
	u32 pos, left, all;

	pos = jbd2_jmap_scan_start(&lazy->map, &all);
	left = all;
	while (jbd2_jmap_next_live(&lazy->map, &pos, &left, &item.home,
				   &item.log_blk, &flags)) {
		if (flags & (JMAP_REVOKING | JMAP_RELOGGED) ||
		    item.home < lazy->sweep_from || item.home > last ||
		    (left < all / YOUNG_PART && !(flags & JMAP_SURVIVOR)))
			continue;
		batch[n++] = item;
		if (n < len)
			continue;
		sort(batch, n, sizeof(*batch), jbd2_lazy_cmp_home, NULL);
		n = most;
		last = batch[n - 1].home;
	}
	sort(batch, n, sizeof(*batch), jbd2_lazy_cmp_home, NULL);
	n = min(n, most);
	/* Behind the last one it begins again from the start. */
	lazy->sweep_from = n == most ? batch[n - 1].home + 1 : 0;
	return n;
}

/* One sweep, as long as memory allows. */
static int lazy_clean_sweep(struct jbd2_lazy *lazy)
{
	unsigned int len = min(lazy->map.nr_slots / 8, jbd2_lazy_batch_max());
	struct lazy_item *items;
	int ret;

	items = kvmalloc_array(len, sizeof(*items), GFP_NOFS | __GFP_NOWARN);
	if (!items) {
		items = lazy->clean_batch;
		len = lazy->clean_batch_len;
	}
	ret = lazy_clean_home(lazy, items,
			      lazy_clean_collect_home(lazy, items, len));
	if (items != lazy->clean_batch)
		kvfree(items);
	return ret;
}

/* Re-log what is live in the oldest @span log blocks. */
int jbd2_lazy_clean_relog_span(struct jbd2_lazy *lazy, u32 span)
{
	unsigned int n = lazy_clean_collect(lazy, span);

	return lazy_clean_relog(lazy, lazy->clean_batch, n);
}

/*
 * Re-log what is live ahead of the head, if there is a transaction to join or
 * somebody waits for one.
 *
 * Return: how many were re-logged, or an error.
 */
static int lazy_clean_ahead(struct jbd2_lazy *lazy)
{
	journal_t *journal = lazy->journal;
	u32 span = jbd2_jmap_span_ahead(&lazy->map, lazy_ahead(lazy));
	unsigned int n = span ? lazy_clean_collect(lazy, span) : 0;
	int ret;
	tid_t tid;

	lazy->clean_starved = false;
	if (!n)
		return 0;
	if (!lazy_joinable(lazy, &tid) && !atomic_read(&lazy->waiters)) {
		lazy->clean_starved = true;
		return 0;
	}
	ret = lazy_clean_relog(lazy, lazy->clean_batch, n);
	/* So much is worth a commit: it frees the tail the sooner. */
	if (ret > 0 && ret >= lazy_reserve(lazy) / 2 &&
	    lazy_joinable(lazy, &tid))
		jbd2_log_start_commit(journal, tid);
	return ret;
}

/* One step.  Returns whether another one may do more. */
static bool lazy_clean_step(struct jbd2_lazy *lazy, bool idle)
{
	int relogged = 0, home = 0;

	lazy_clean_tail(lazy);
	if (READ_ONCE(lazy->map.nr_live) > lazy_live_most(lazy, idle))
		home = lazy_clean_sweep(lazy);
	if ((!home && !idle) || (home >= 0 && atomic_read(&lazy->waiters)))
		relogged = lazy_clean_ahead(lazy);
	lazy_clean_tail(lazy);
	return relogged >= 0 && home >= 0 && relogged + home;
}

/* The paper's: re-log what is live in the oldest transactions. */
static void lazy_clean_fixed(struct jbd2_lazy *lazy)
{
	u32 span = jbd2_jmap_span_of(&lazy->map, FIXED_OLDEST);
	unsigned int passes = span / lazy->clean_batch_len + 1;

	/* What a small batch cannot hold is left to the next pass. */
	while (span && passes--) {
		if (jbd2_lazy_clean_relog_span(lazy, span) < 0)
			break;
		span = jbd2_jmap_span_of(&lazy->map, FIXED_OLDEST);
	}
	lazy_clean_tail(lazy);
}

static void lazy_clean(struct jbd2_lazy *lazy, bool idle)
{
	bool more = true;

	while (more && !kthread_should_stop()) {
		mutex_lock(&lazy->clean_mutex);
		more = false;
		if (READ_ONCE(lazy->clean_paused) ||
		    is_journal_aborted(lazy->journal)) {
			;
		} else if (lazy->policy == JBD2_LAZY_FIXED) {
			if (lazy->commits >= FIXED_COMMITS) {
				lazy->commits = 0;
				lazy_clean_fixed(lazy);
			}
		} else if (lazy->policy == JBD2_LAZY_WATERMARKS) {
			more = lazy_clean_step(lazy, idle);
		}
		mutex_unlock(&lazy->clean_mutex);
		try_to_freeze();
		WRITE_ONCE(lazy->steps, lazy->steps + 1);
		wake_up_all(&lazy->clean_done);
		/* Idle work ends when there is other work. */
		if (idle && READ_ONCE(lazy->clean_wanted))
			more = false;
	}
}

#ifdef CONFIG_JBD2_LAZY_DEBUG
/**
 * jbd2_lazy_relog_now() - for tests: re-log while other handles run
 * @journal: a lazy journal
 * @span: log blocks, from the oldest on
 *
 * Return: how many were re-logged, or an error.
 */
int jbd2_lazy_relog_now(journal_t *journal, u32 span)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	int ret = 0;

	mutex_lock(&lazy->clean_mutex);
	if (!lazy->clean_paused)
		ret = jbd2_lazy_clean_relog_span(lazy, span);
	mutex_unlock(&lazy->clean_mutex);
	return ret;
}
EXPORT_SYMBOL(jbd2_lazy_relog_now);
#endif

/* Whether the cleaner has anything to do. */
static bool lazy_clean_due(struct jbd2_lazy *lazy, bool idle)
{
	return lazy_free_blocks(lazy) < lazy_ahead(lazy) ||
	       READ_ONCE(lazy->map.nr_live) > lazy_live_most(lazy, idle);
}

/*
 * Whether nothing is or was changed for a while.  Under load there may be as
 * long between two commits, as jbd2's own interval is no shorter.
 */
static bool lazy_clean_idle(struct jbd2_lazy *lazy)
{
	journal_t *journal = lazy->journal;

	return !READ_ONCE(journal->j_running_transaction) &&
	       !READ_ONCE(journal->j_committing_transaction) &&
	       time_after_eq(jiffies, READ_ONCE(lazy->last_commit) + IDLE_TIME);
}

/* How long until there may be something to do that no commit announces. */
static long lazy_clean_timeout(struct jbd2_lazy *lazy)
{
	bool works = lazy->policy == JBD2_LAZY_WATERMARKS;

	if (jbd2_lazy_scrub_busy(lazy))
		return 0;
	if (READ_ONCE(lazy->clean_paused) || lazy_clean_idle(lazy))
		return MAX_SCHEDULE_TIMEOUT;
	if (works && lazy->clean_starved)
		return JOIN_TIME;
	return (works && lazy_clean_due(lazy, true)) ||
			       jbd2_lazy_scrub_due(lazy) ?
		       IDLE_TIME :
		       MAX_SCHEDULE_TIMEOUT;
}

static int lazy_cleaner(void *arg)
{
	struct jbd2_lazy *lazy = arg;
	bool idle;

	set_freezable();
	/* Reclaim may wait for a freeze, which waits for clean_mutex. */
	memalloc_nofs_save();
	while (!kthread_should_stop()) {
		try_to_freeze();
		wait_event_freezable_timeout(lazy->clean_wait,
					     READ_ONCE(lazy->clean_wanted) ||
					     kthread_should_stop(),
					     lazy_clean_timeout(lazy));
		/* What is looked at from here on was there before the wish. */
		smp_store_mb(lazy->clean_wanted, false);
		if (kthread_should_stop())
			break;
		idle = lazy_clean_idle(lazy);
		if (lazy_clean_due(lazy, idle) ||
		    atomic_read(&lazy->waiters) ||
		    lazy->policy == JBD2_LAZY_FIXED)
			lazy_clean(lazy, idle);
		mutex_lock(&lazy->clean_mutex);
		jbd2_lazy_scrub_step(lazy, idle);
		mutex_unlock(&lazy->clean_mutex);
	}
	return 0;
}

/* There is something to do. */
void jbd2_lazy_clean_wake(struct jbd2_lazy *lazy)
{
	WRITE_ONCE(lazy->clean_wanted, true);
	wake_up(&lazy->clean_wait);
}

/* A transaction of @blocks log blocks was applied to the map. */
void jbd2_lazy_clean_after_commit(struct jbd2_lazy *lazy, u32 blocks)
{
	WRITE_ONCE(lazy->last_commit, jiffies);
	lazy->commits++;
	/* The file system is at work (INV-K14). */
	spin_lock(&lazy->clean_lock);
	if (!lazy->clean_locks)
		WRITE_ONCE(lazy->clean_paused, false);
	spin_unlock(&lazy->clean_lock);
	if (jbd2_lazy_scrub_after_commit(lazy) ||
	    lazy->policy == JBD2_LAZY_FIXED || lazy_clean_due(lazy, true))
		jbd2_lazy_clean_wake(lazy);
}

/* ------------------------------------------------------------------------- */
/* Start and stop                                                             */

int jbd2_lazy_clean_init(struct jbd2_lazy *lazy)
{
	lazy->last_commit = jiffies;
	lazy->scrub.next = jiffies + LAZY_SCRUB_PAUSE;
	mutex_init(&lazy->clean_mutex);
	spin_lock_init(&lazy->clean_lock);
	init_waitqueue_head(&lazy->clean_wait);
	init_waitqueue_head(&lazy->clean_done);
	/* Until the file system commits something. */
	lazy->clean_paused = true;
	lazy->policy = JBD2_LAZY_WATERMARKS;
	lazy->clean_batch_len = clamp(lazy->map.nr_slots / 32, 2U,
				      CLEAN_BATCH_MAX);
	lazy->clean_batch = kvmalloc_array(lazy->clean_batch_len,
					   sizeof(*lazy->clean_batch),
					   GFP_KERNEL);
	return lazy->clean_batch ? 0 : -ENOMEM;
}

/*
 * Free log blocks that the present task wants to see before it starts a handle.
 * The cleaner comes first.
 */
int __jbd2_lazy_room(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	int most = journal->j_max_transaction_buffers;

	if (READ_ONCE(lazy->policy) != JBD2_LAZY_WATERMARKS ||
	    current == READ_ONCE(lazy->cleaner))
		return most;
	return min_t(u32, most + lazy_user_reserve(lazy),
		     lazy->map.nr_slots / 2);
}

/*
 * A handle finds too little room: let the cleaner make it, as long as it can.
 * Called with j_checkpoint_mutex held, which is let go meanwhile; without a
 * handle, which the cleaner might wait for.
 *
 * Return: whether it re-logged anything.
 */
bool jbd2_lazy_clean_wait(struct jbd2_lazy *lazy)
{
	journal_t *journal = lazy->journal;
	s64 relogged = atomic64_read(&lazy->relogged);
	unsigned long steps = READ_ONCE(lazy->steps), left;

	read_lock(&journal->j_state_lock);
	left = jbd2_log_space_left(journal);
	read_unlock(&journal->j_state_lock);
	if (!lazy->cleaner || current == lazy->cleaner ||
	    READ_ONCE(lazy->policy) != JBD2_LAZY_WATERMARKS ||
	    READ_ONCE(lazy->clean_paused) || left < lazy_reserve(lazy))
		return false;
	mutex_unlock(&journal->j_checkpoint_mutex);
	atomic_inc(&lazy->waiters);
	jbd2_lazy_clean_wake(lazy);
	wait_event_timeout(lazy->clean_done, READ_ONCE(lazy->steps) != steps,
			   WAIT_TIME);
	atomic_dec(&lazy->waiters);
	mutex_lock_io(&journal->j_checkpoint_mutex);
	return atomic64_read(&lazy->relogged) != relogged;
}

/* Start the thread.  The log works without it, only slower. */
void jbd2_lazy_clean_start(struct jbd2_lazy *lazy)
{
	struct task_struct *task;

	task = kthread_run(lazy_cleaner, lazy, "jbd2_lazy/%s",
			   lazy->journal->j_devname);
	if (IS_ERR(task))
		pr_warn("JBD2: %s: no cleaner (%ld)\n",
			lazy->journal->j_devname, PTR_ERR(task));
	else
		lazy->cleaner = task;
}

void jbd2_lazy_clean_destroy(struct jbd2_lazy *lazy)
{
	jbd2_lazy_scrub_end(lazy);
	kvfree(lazy->clean_batch);
}

/* Memory of the cleaner, in bytes. */
size_t jbd2_lazy_clean_bytes(struct jbd2_lazy *lazy)
{
	return lazy->clean_batch_len * sizeof(*lazy->clean_batch);
}

/* The journal is about to be destroyed: no handle of ours from here on. */
void __jbd2_lazy_quiesce(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;

	if (lazy->cleaner)
		kthread_stop(lazy->cleaner);
	lazy->cleaner = NULL;
}

/* Updates are about to be locked out (INV-K14). */
void __jbd2_lazy_pause(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;

	spin_lock(&lazy->clean_lock);
	lazy->clean_locks++;
	WRITE_ONCE(lazy->clean_paused, true);
	spin_unlock(&lazy->clean_lock);
	/* Wait for a step that began before. */
	mutex_lock(&lazy->clean_mutex);
	mutex_unlock(&lazy->clean_mutex);
}

/* Updates are no longer locked out; the next commit wakes the cleaner. */
void __jbd2_lazy_unpause(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;

	spin_lock(&lazy->clean_lock);
	lazy->clean_locks--;
	spin_unlock(&lazy->clean_lock);
}

#ifdef CONFIG_JBD2_LAZY_DEBUG
static const char * const lazy_policies[] = {
	[JBD2_LAZY_WATERMARKS] = "watermarks",
	[JBD2_LAZY_FIXED] = "fixed",
	[JBD2_LAZY_OFF] = "off",
};

/**
 * jbd2_lazy_policy() - the name of the cleaner's policy
 * @journal: a lazy journal
 */
const char *jbd2_lazy_policy(journal_t *journal)
{
	return lazy_policies[READ_ONCE(journal->j_lazy->policy)];
}
EXPORT_SYMBOL(jbd2_lazy_policy);

/**
 * jbd2_lazy_set_policy() - choose the cleaner's policy
 * @journal: a lazy journal
 * @name: one of lazy_policies, with or without a newline
 *
 * Return: 0, or -EINVAL.
 */
int jbd2_lazy_set_policy(journal_t *journal, const char *name)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	int policy = sysfs_match_string(lazy_policies, name);

	if (policy < 0)
		return policy;
	mutex_lock(&lazy->clean_mutex);
	WRITE_ONCE(lazy->policy, policy);
	mutex_unlock(&lazy->clean_mutex);
	jbd2_lazy_clean_wake(lazy);
	return 0;
}
EXPORT_SYMBOL(jbd2_lazy_set_policy);
#endif
