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
 * Policy "watermarks".  Between the reserve that every handle wants to see
 * free and a whole log there are three marks, at an eighth, a quarter and two
 * fifths:
 *
 *	 0      reserve     low          high      idle              log
 *	 |---------|---------|------------|---------|-----------------|
 *	  emergency| cleaning goes on     |         | at rest
 *	           | when idle: blocks go home      |
 *
 * Most copies die by themselves, so the first thing is always to move the
 * tail.  The rest is re-logged: a copy written in order costs a hundredth of a
 * write somewhere on the disk.  Only when more than three fifths of the tail are
 * live, so that copying frees little, blocks that were re-logged before and
 * have not been changed since go home (second chance); and when more than four
 * fifths are, all do.  What goes home goes in ascending order, thousands of
 * blocks at a time: one sweep over the disk.
 *
 * Re-logging never makes a commit of its own: it joins a transaction that is
 * running, with at most as much as the last one wrote.  When the disk
 * has been idle for a while, nothing is re-logged; blocks go home.
 *
 * Policy "fixed" is that of the FAST'17 paper: every so many commits, the
 * oldest so many transactions are re-logged, whatever they hold.
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
#include <trace/events/jbd2_lazy.h>

/* Most blocks that are looked at in one go. */
#define CLEAN_BATCH_MAX	4096U
/* Blocks that go home without letting go of j_checkpoint_mutex. */
#define HOME_CHUNK	256U
/* Credits of one handle that re-logs. */
#define RELOG_CHUNK	64U
/* Re-logged even into a transaction that follows a small one. */
#define RELOG_LEAST	32U
/* No commit for so long: the disk is idle. */
#define IDLE_TIME	(5 * HZ)
/* So soon it is looked again whether there is a transaction to join. */
#define JOIN_TIME	DIV_ROUND_UP(HZ, 100)

/* "fixed": after so many commits, so many transactions. */
#define FIXED_COMMITS	10U
#define FIXED_OLDEST	2U

static const char * const lazy_policies[] = {
	[JBD2_LAZY_WATERMARKS] = "watermarks",
	[JBD2_LAZY_FIXED] = "fixed",
	[JBD2_LAZY_OFF] = "off",
};

/*
 * Free log blocks at which cleaning begins, and at which it ends.  The longer
 * a copy is left alone, the likelier it dies by itself.
 */
static u32 lazy_low_mark(struct jbd2_lazy *lazy)
{
	u32 reserve = lazy->journal->j_max_transaction_buffers;

	return reserve + (lazy->map.nr_slots - reserve) / 8;
}

static u32 lazy_high_mark(struct jbd2_lazy *lazy)
{
	u32 reserve = lazy->journal->j_max_transaction_buffers;

	return reserve + (lazy->map.nr_slots - reserve) / 4;
}

/* Free log blocks at which an idle disk is left alone. */
static u32 lazy_idle_mark(struct jbd2_lazy *lazy)
{
	u32 reserve = lazy->journal->j_max_transaction_buffers;

	return reserve + (lazy->map.nr_slots - reserve) / 5 * 2;
}

/*
 * Free log blocks below which handles are about to wait.  Without them there is
 * no transaction to join, and only what goes home makes room.
 */
static u32 lazy_late_mark(struct jbd2_lazy *lazy)
{
	u32 reserve = lazy->journal->j_max_transaction_buffers;

	return reserve + reserve / 8;
}

static u32 lazy_free_blocks(struct jbd2_lazy *lazy)
{
	return READ_ONCE(lazy->journal->j_free);
}

/* Let go of the log in front of the oldest live copy, if that is worth it. */
static void lazy_clean_tail(struct jbd2_lazy *lazy)
{
	journal_t *journal = lazy->journal;
	unsigned long block, freed, all = ULONG_MAX;
	tid_t tid;

	/* What was written home is still on the checkpoint lists. */
	jbd2_journal_shrink_checkpoint_list(journal, &all);

	mutex_lock_io(&journal->j_checkpoint_mutex);
	if (jbd2_journal_get_log_tail(journal, &tid, &block)) {
		freed = block - journal->j_tail;
		if (block < journal->j_tail)
			freed += lazy->map.nr_slots;
		if (freed >= max(lazy->map.nr_slots / 64, lazy->map.mark_span))
			jbd2_cleanup_journal_tail(journal);
	}
	mutex_unlock(&journal->j_checkpoint_mutex);
}

/* ------------------------------------------------------------------------- */
/* Home                                                                       */

/* Send blocks home in one ascending sweep.  Sorts @items. */
static int lazy_clean_home(struct jbd2_lazy *lazy, struct lazy_item *items,
			   unsigned int n)
{
	journal_t *journal = lazy->journal;
	unsigned int i, j, chunk, busy = 0;
	struct buffer_head *bh;
	struct blk_plug plug;
	int ret, home = 0;

	sort(items, n, sizeof(*items), lazy_cmp_home, NULL);
	for (i = 0; i < n; i += chunk) {
		chunk = min(n - i, HOME_CHUNK);
		mutex_lock_io(&journal->j_checkpoint_mutex);
		ret = is_journal_aborted(journal) ? -EIO :
			lazy_demote(lazy, items + i, chunk, &busy);
		mutex_unlock(&journal->j_checkpoint_mutex);
		if (ret < 0)
			return ret;
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
	}
	atomic64_add(home, &lazy->swept);
	return home;
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

	lazy_debug_delay();
	lock_buffer(bh);
	jh = jbd2_journal_add_journal_head(bh);
	spin_lock(&jh->b_state_lock);
	spin_lock(&journal->j_list_lock);
	if (!buffer_uptodate(bh) || buffer_dirty(bh) || buffer_revoked(bh) ||
	    jh->b_transaction || jh->b_next_transaction ||
	    jh->b_cp_transaction || is_handle_aborted(handle))
		goto unlock;
	if (!jmap_relog(&lazy->map, item->home, item->log_blk))
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
	lazy_debug_delay();
	return filed;
}

/* How many blocks may join the running transaction. */
static unsigned int lazy_relog_budget(struct jbd2_lazy *lazy)
{
	journal_t *journal = lazy->journal;
	unsigned int budget = 0;

	lazy->clean_starved = true;
	read_lock(&journal->j_state_lock);
	if (journal->j_running_transaction &&
	    journal->j_running_transaction->t_state == T_RUNNING) {
		tid_t tid = journal->j_running_transaction->t_tid;

		if (lazy->relog_tid != tid) {
			lazy->relog_tid = tid;
			lazy->relog_left = READ_ONCE(lazy->commit_blocks) +
					   RELOG_LEAST;
		}
		budget = lazy->relog_left;
		lazy->clean_starved = false;
	}
	read_unlock(&journal->j_state_lock);
	return budget;
}

/* Re-log @n blocks. */
static int lazy_clean_relog(struct jbd2_lazy *lazy, struct lazy_item *items,
			    unsigned int n)
{
	journal_t *journal = lazy->journal;
	unsigned int i, j, chunk, most;
	int err, relogged = 0;
	handle_t *handle;

	most = clamp(journal->j_max_transaction_buffers / 16U, 1U, RELOG_CHUNK);
	for (i = 0; i < n; i += chunk) {
		chunk = min(n - i, most);
		err = lazy_fetch(lazy, items + i, chunk);
		for (j = i; j < i + chunk; j++)
			if (items[j].bh)
				wait_on_buffer(items[j].bh);
		if (!err) {
			handle = jbd2_journal_start(journal, chunk);
			err = PTR_ERR_OR_ZERO(handle);
		}
		for (j = i; j < i + chunk; j++) {
			if (!err && lazy_relog_one(lazy, handle, &items[j])) {
				trace_jbd2_lazy_relog(journal, items[j].home,
						      items[j].log_blk);
				relogged++;
			}
			brelse(items[j].bh);
		}
		if (err)
			return err;
		err = jbd2_journal_stop(handle);
		if (err)
			return err;
		cond_resched();
	}
	atomic64_add(relogged, &lazy->relogged);
	return relogged;
}

/* ------------------------------------------------------------------------- */
/* Policy                                                                     */

/* What lies at the tail of the log; both are parts of clean_batch. */
struct lazy_tail {
	struct lazy_item *hot;		/* to be re-logged, oldest first */
	struct lazy_item *home;		/* to go home; up to its end */
	unsigned int nr_hot, nr_home;
};

/* The youngest @n of the hot blocks go home, too. */
static void lazy_send_home(struct lazy_tail *tail, unsigned int n)
{
	tail->nr_hot -= n;
	tail->nr_home += n;
	tail->home -= n;
	memmove(tail->home, tail->hot + tail->nr_hot, n * sizeof(*tail->hot));
}

/* The live blocks of the oldest @span log blocks, as many as the batch holds. */
static void lazy_clean_collect(struct jbd2_lazy *lazy, u32 span, bool idle,
			       struct lazy_tail *tail)
{
	unsigned int flags, n = 0, live = 0;
	struct lazy_item item;
	u32 pos, left;

	tail->hot = lazy->clean_batch;
	tail->nr_hot = 0;
	tail->home = lazy->clean_batch + lazy->clean_batch_len;
	tail->nr_home = 0;

	pos = jmap_scan_start(&lazy->map, &left);
	span = min(left, span);
	left = span;
	while (n < lazy->clean_batch_len &&
	       jmap_next_live(&lazy->map, &pos, &left, &item.home,
			      &item.log_blk, &flags)) {
		live++;
		/* Being freed, or filed again: its commit is the end of it. */
		if (flags & (JMAP_REVOKING | JMAP_RELOGGED))
			continue;
		if (idle || (lazy->clean_dear && flags & JMAP_SURVIVOR)) {
			*--tail->home = item;
			tail->nr_home++;
		} else {
			tail->hot[tail->nr_hot++] = item;
		}
		n++;
	}
	lazy->clean_dear = live > (span - left) / 5 * 3;
	/* Copying would free next to nothing. */
	if (n > (span - left) / 5 * 4)
		lazy_send_home(tail, tail->nr_hot);
}

/* Re-log all of it, oldest or not. */
static int lazy_clean_relog_all(struct jbd2_lazy *lazy, struct lazy_tail *tail)
{
	int ret = lazy_clean_relog(lazy, tail->hot, tail->nr_hot);

	return ret < 0 ? ret :
		lazy_clean_relog(lazy, tail->home, tail->nr_home);
}

/* One step.  Returns whether another one may do more. */
static bool lazy_clean_step(struct jbd2_lazy *lazy, bool idle)
{
	u32 goal = idle ? lazy_idle_mark(lazy) : lazy_high_mark(lazy);
	u32 late = lazy_late_mark(lazy), free, span;
	unsigned int budget, hot;
	struct lazy_tail tail;
	int done = 0, ret;

	lazy_clean_tail(lazy);
	free = lazy_free_blocks(lazy);
	lazy->clean_starved = false;
	if (free >= goal)
		return false;

	/*
	 * What is re-logged holds the tail until it is committed: one step for
	 * each transaction has to do.
	 */
	span = goal - free;
	budget = lazy_relog_budget(lazy);
	if (lazy->clean_starved && free < late)
		span = 2 * late - free - lazy->journal->j_max_transaction_buffers;
	span = max(span, 2 * lazy->map.mark_span);
	lazy_clean_collect(lazy, span, idle, &tail);
	if (lazy->clean_starved && free < late)
		lazy_send_home(&tail, tail.nr_hot);
	hot = min(tail.nr_hot, budget);
	if (hot) {
		ret = lazy_clean_relog(lazy, tail.hot, hot);
		if (ret < 0)
			return false;
		lazy->relog_left -= min(lazy->relog_left, hot);
		done += ret;
	}
	if (tail.nr_home) {
		ret = lazy_clean_home(lazy, tail.home, tail.nr_home);
		if (ret < 0)
			return false;
		done += ret;
	}
	lazy_clean_tail(lazy);
	return done;
}

/* The paper's: re-log what is live in the oldest transactions. */
static void lazy_clean_fixed(struct jbd2_lazy *lazy)
{
	u32 span = jmap_span_of(&lazy->map, FIXED_OLDEST);
	unsigned int passes = span / lazy->clean_batch_len + 1;
	struct lazy_tail tail;

	/* What a small batch cannot hold is left to the next pass. */
	while (span && passes--) {
		lazy_clean_collect(lazy, span, false, &tail);
		if (lazy_clean_relog_all(lazy, &tail) < 0)
			break;
		span = jmap_span_of(&lazy->map, FIXED_OLDEST);
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
	struct lazy_tail tail;
	int ret = 0;

	mutex_lock(&lazy->clean_mutex);
	if (!lazy->clean_paused) {
		lazy_clean_collect(lazy, span, false, &tail);
		ret = lazy_clean_relog_all(lazy, &tail);
	}
	mutex_unlock(&lazy->clean_mutex);
	return ret;
}
EXPORT_SYMBOL(jbd2_lazy_relog_now);
#endif

/* How long until there may be something to do that no commit announces. */
static long lazy_clean_timeout(struct jbd2_lazy *lazy)
{
	if (lazy_free_blocks(lazy) >= lazy_idle_mark(lazy) ||
	    READ_ONCE(lazy->clean_paused) ||
	    lazy->policy != JBD2_LAZY_WATERMARKS)
		return MAX_SCHEDULE_TIMEOUT;
	return lazy->clean_starved ? JOIN_TIME : IDLE_TIME;
}

static int lazy_cleaner(void *arg)
{
	struct jbd2_lazy *lazy = arg;
	bool cleaning = false, idle;
	u32 free;

	set_freezable();
	while (!kthread_should_stop()) {
		wait_event_freezable_timeout(lazy->clean_wait,
					     READ_ONCE(lazy->clean_wanted) ||
					     kthread_should_stop(),
					     lazy_clean_timeout(lazy));
		WRITE_ONCE(lazy->clean_wanted, false);
		if (kthread_should_stop())
			break;
		free = lazy_free_blocks(lazy);
		if (free < lazy_low_mark(lazy))
			cleaning = true;
		if (free >= lazy_high_mark(lazy))
			cleaning = false;
		idle = time_after_eq(jiffies, READ_ONCE(lazy->last_commit) +
					      IDLE_TIME);
		if (idle || cleaning || lazy->policy == JBD2_LAZY_FIXED)
			lazy_clean(lazy, idle);
	}
	return 0;
}

/* A transaction of @blocks log blocks was applied to the map. */
void lazy_clean_after_commit(struct jbd2_lazy *lazy, u32 blocks)
{
	WRITE_ONCE(lazy->commit_blocks, blocks);
	WRITE_ONCE(lazy->last_commit, jiffies);
	lazy->commits++;
	/* The file system is at work (INV-K14). */
	spin_lock(&lazy->clean_lock);
	if (!lazy->clean_locks)
		WRITE_ONCE(lazy->clean_paused, false);
	spin_unlock(&lazy->clean_lock);
	if (lazy->policy == JBD2_LAZY_FIXED ||
	    lazy_free_blocks(lazy) < lazy_idle_mark(lazy)) {
		WRITE_ONCE(lazy->clean_wanted, true);
		wake_up(&lazy->clean_wait);
	}
}

/* ------------------------------------------------------------------------- */
/* Start and stop                                                             */

int lazy_clean_init(struct jbd2_lazy *lazy)
{
	lazy->last_commit = jiffies;
	mutex_init(&lazy->clean_mutex);
	spin_lock_init(&lazy->clean_lock);
	init_waitqueue_head(&lazy->clean_wait);
	/* Until the file system commits something. */
	lazy->clean_paused = true;
	lazy->policy = JBD2_LAZY_WATERMARKS;
	lazy->clean_batch_len = min(lazy->map.nr_slots / 32 + 1,
				    CLEAN_BATCH_MAX);
	lazy->clean_batch = kvmalloc_array(lazy->clean_batch_len,
					   sizeof(*lazy->clean_batch),
					   GFP_KERNEL);
	return lazy->clean_batch ? 0 : -ENOMEM;
}

/* Start the thread.  The log works without it, only slower. */
void lazy_clean_start(struct jbd2_lazy *lazy)
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

void lazy_clean_destroy(struct jbd2_lazy *lazy)
{
	kvfree(lazy->clean_batch);
}

/* Memory of the cleaner, in bytes. */
size_t lazy_clean_bytes(struct jbd2_lazy *lazy)
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
	WRITE_ONCE(lazy->clean_wanted, true);
	wake_up(&lazy->clean_wait);
	return 0;
}
EXPORT_SYMBOL(jbd2_lazy_set_policy);
