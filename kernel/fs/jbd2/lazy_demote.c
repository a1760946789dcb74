// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lazy writeback journaling: demotion, which sends blocks home when the log
 * runs short of room or is to be left empty.  See lazy.c, INV-K5 and INV-K6.
 */

#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/sched/mm.h>
#include <linux/sort.h>
#include "lazy.h"

/* Most blocks that are demoted in one go when the log is full. */
#define LAZY_BATCH_MAX	4096U

int jbd2_lazy_demote_init(struct jbd2_lazy *lazy)
{
	lazy->batch_len = min(lazy->map.nr_slots / 64 + 1, LAZY_BATCH_MAX);
	lazy->batch = kvmalloc_array(lazy->batch_len, sizeof(*lazy->batch),
				     GFP_KERNEL);
	return lazy->batch ? 0 : -ENOMEM;
}

int jbd2_lazy_cmp_home(const void *a, const void *b)
{
	const struct lazy_item *x = a, *y = b;

	return x->home < y->home ? -1 : x->home > y->home;
}

/*
 * The checkpoint transaction that pins the log tail, made from @spare if it is
 * not there.  Looked up for each block, because the checkpoint list is emptied
 * by others as soon as its buffers are written.
 *
 * Called with j_checkpoint_mutex, hence a stable tail, and j_list_lock held.
 */
static transaction_t *lazy_tail_transaction(journal_t *journal,
					    transaction_t **spare)
{
	transaction_t *first = journal->j_checkpoint_transactions, *t;

	if (first && first->t_tid == journal->j_tail_sequence)
		return first;

	t = *spare;
	*spare = NULL;
	t->t_journal = journal;
	t->t_tid = journal->j_tail_sequence;
	t->t_log_start = journal->j_tail;
	t->t_state = T_FINISHED;
	INIT_LIST_HEAD(&t->t_inode_list);
	INIT_LIST_HEAD(&t->t_private_list);
	if (first) {
		t->t_cpnext = first;
		t->t_cpprev = first->t_cpprev;
		t->t_cpprev->t_cpnext = t;
		first->t_cpprev = t;
	} else {
		t->t_cpnext = t;
		t->t_cpprev = t;
	}
	journal->j_checkpoint_transactions = t;
	return t;
}

/* Whether the copy that was looked up is still the newest one. */
static bool lazy_still_newest(struct jbd2_lazy *lazy,
			      const struct lazy_item *item)
{
	unsigned long now;

	return jbd2_jmap_lookup(&lazy->map, item->home, &now, NULL) &&
	       now == item->log_blk;
}

/*
 * Put one block that is up to date into the stock state after a commit.
 *
 * Return: 1 if it was demoted, 0 if its log copy is no longer needed, -EBUSY
 * if a transaction holds or frees it.
 */
static int lazy_demote_one(struct jbd2_lazy *lazy, struct lazy_item *item,
			   transaction_t **spare)
{
	journal_t *journal = lazy->journal;
	struct buffer_head *bh = item->bh;
	struct journal_head *jh;
	transaction_t *tail;
	int ret;

	lock_buffer(bh);
	jh = jbd2_journal_add_journal_head(bh);
	spin_lock(&jh->b_state_lock);
	spin_lock(&journal->j_list_lock);
	if (jh->b_transaction || jh->b_next_transaction) {
		ret = -EBUSY;
	} else if (jh->b_cp_transaction) {
		/* Somebody else demoted it since the caller looked it up. */
		ret = WARN_ON_ONCE(lazy_still_newest(lazy, item) &&
				   !is_journal_aborted(journal)) ? -EBUSY : 0;
	} else if (buffer_revoked(bh)) {
		/* Freed: the revoke record may not be there yet (INV-K6). */
		ret = -EBUSY;
	} else if (jbd2_jmap_drop_if(&lazy->map, item->home, item->log_blk)) {
		/* j_list_lock keeps the tail until the list pins it. */
		tail = lazy_tail_transaction(journal, spare);
		set_buffer_meta(bh);
		mark_buffer_dirty(bh);
		__jbd2_journal_insert_checkpoint(jh, tail);
		ret = 1;
	} else {
		ret = lazy_still_newest(lazy, item) ? -EBUSY : 0;
	}
	spin_unlock(&journal->j_list_lock);
	spin_unlock(&jh->b_state_lock);
	jbd2_journal_put_journal_head(jh);
	unlock_buffer(bh);

	if (ret == 1)
		atomic64_inc(&lazy->demoted);
	return ret;
}

/*
 * Demote @n blocks: read what is not in memory, then file them in the order of
 * their homes, in which the checkpoint writes them.
 *
 * Return: how many were demoted, or -EIO.  *@busy counts those that were not
 * because a transaction holds them.
 */
int jbd2_lazy_demote(struct jbd2_lazy *lazy, struct lazy_item *items,
		     unsigned int n, unsigned int *busy)
{
	journal_t *journal = lazy->journal;
	unsigned int i, demoted = 0;
	transaction_t *spare = NULL;
	unsigned int nofs = memalloc_nofs_save();
	/*
	 * One, small, for each move of the tail.  Nobody could go on without:
	 * the log may be full, and this is what empties it.  Stock jbd2 has the
	 * same need for each transaction that it starts.
	 */
	gfp_t gfp = GFP_NOFS | __GFP_NOFAIL;
	int err;

	lockdep_assert_held(&journal->j_checkpoint_mutex);

	err = jbd2_lazy_fetch(lazy, items, n);
	sort(items, n, sizeof(*items), jbd2_lazy_cmp_home, NULL);
	for (i = 0; i < n; i++) {
		int ret;

		if (!items[i].bh)
			continue;
		wait_on_buffer(items[i].bh);
		if (!err && !jbd2_lazy_trusts(lazy, items[i].bh))
			err = min(jbd2_lazy_read_again(lazy, &items[i]), 0);
		if (!err && jbd2_lazy_trusts(lazy, items[i].bh)) {
			if (!spare)
				spare = jbd2_journal_alloc_transaction(gfp);
			jbd2_lazy_debug_delay();
			ret = lazy_demote_one(lazy, &items[i], &spare);
			if (ret > 0)
				demoted++;
			else if (ret < 0)
				(*busy)++;
		}
		brelse(items[i].bh);
		cond_resched();
	}
	jbd2_journal_free_transaction(spare);
	memalloc_nofs_restore(nofs);
	return err ?: demoted;
}

/* Blocks that may be pinned in memory at once on their way home. */
unsigned int jbd2_lazy_batch_max(void)
{
	return clamp(totalram_pages() / 16, 256UL, 65536UL);
}

/*
 * Demote the copies among the oldest @span log blocks, as many as the batch
 * holds.  Called with j_checkpoint_mutex held, which guards the batch.
 *
 * Return: as jbd2_lazy_demote().
 */
static int lazy_demote_oldest(struct jbd2_lazy *lazy, u32 span,
			      unsigned int *busy)
{
	unsigned int max = min(lazy->batch_len, jbd2_lazy_batch_max()), n = 0;
	u32 pos, left;

	pos = jbd2_jmap_scan_start(&lazy->map, &left);
	left = min(left, span);
	while (n < max && jbd2_jmap_next_live(&lazy->map, &pos, &left,
					      &lazy->batch[n].home,
					      &lazy->batch[n].log_blk, NULL))
		n++;
	return n ? jbd2_lazy_demote(lazy, lazy->batch, n, busy) : 0;
}

/* Log blocks that the tail can let go of at once. */
static long lazy_tail_room(journal_t *journal)
{
	unsigned long block;
	tid_t tid;

	return jbd2_journal_get_log_tail(journal, &tid, &block) ?
		jbd2_lazy_log_distance(journal, journal->j_tail, block) : 0;
}

/* How many log blocks the handle that wants @nblocks lacks. */
static long lazy_lacks(journal_t *journal, int nblocks)
{
	long left;

	read_lock(&journal->j_state_lock);
	left = jbd2_log_space_left(journal);
	read_unlock(&journal->j_state_lock);
	return max(nblocks - left, 0L);
}

/*
 * Whether a commit makes room: one that is under way, or that of a transaction
 * to which the cleaner added the oldest copies; the latter is started.
 */
static bool lazy_wait_commit(journal_t *journal, tid_t *tid)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	unsigned int flags = 0;
	bool start = false, wait = false;
	unsigned long blk;
	u32 pos, left;
	u64 home;

	pos = jbd2_jmap_scan_start(&lazy->map, &left);
	jbd2_jmap_next_live(&lazy->map, &pos, &left, &home, &blk, &flags);
	read_lock(&journal->j_state_lock);
	if (journal->j_committing_transaction) {
		*tid = journal->j_committing_transaction->t_tid;
		wait = true;
	} else if (journal->j_running_transaction && flags & JMAP_RELOGGED) {
		*tid = journal->j_running_transaction->t_tid;
		wait = true;
		start = true;
	}
	read_unlock(&journal->j_state_lock);
	if (start)
		jbd2_log_start_commit(journal, *tid);
	return wait;
}

/*
 * The log is full: send the copies in its oldest part home.
 *
 * At least a sixteenth of the log at a time, so that handles do not queue up
 * here for a few blocks each.  Called with j_checkpoint_mutex held and without
 * a handle, from __jbd2_log_wait_for_space().
 */
int __jbd2_lazy_demote_tail(journal_t *journal, int nblocks, tid_t *tid,
			    bool *wait)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	long lacks = lazy_lacks(journal, nblocks), room;
	unsigned int busy = 0;
	bool start = false;
	u32 span;
	int ret;

	if (!lacks)
		return 1;
	/* What costs no write home comes first: the caller moves the tail. */
	room = lazy_tail_room(journal);
	if (room >= lacks)
		return 0;
	if (lazy_wait_commit(journal, tid)) {
		*wait = true;
		return 0;
	}
	if (room)
		return 0;
	/* The mutex may have been let go, and others may have made room. */
	if (jbd2_lazy_clean_wait(lazy) || !lazy_lacks(journal, nblocks))
		return 1;

	span = max_t(u32, lacks, lazy->map.nr_slots / 16);
	ret = lazy_demote_oldest(lazy, span, &busy);
	if (ret < 0) {
		pr_err("JBD2: %s: cannot read a metadata block from the journal\n",
		       journal->j_devname);
		jbd2_journal_abort(journal, ret);
		return 0;
	}
	atomic64_add(ret, &lazy->emergency);
	if (ret || !READ_ONCE(lazy->map.nr_live))
		return ret;

	/*
	 * What is left is in a transaction, whose commit replaces the copies;
	 * or it died while we looked, and the caller looks again.
	 */
	ret = 1;
	read_lock(&journal->j_state_lock);
	if (journal->j_committing_transaction) {
		*tid = journal->j_committing_transaction->t_tid;
		*wait = true;
		ret = 0;
	} else if (busy && journal->j_running_transaction) {
		*tid = journal->j_running_transaction->t_tid;
		*wait = true;
		start = true;
		ret = 0;
	}
	read_unlock(&journal->j_state_lock);
	if (start)
		jbd2_log_start_commit(journal, *tid);
	cond_resched();
	return ret;
}

#ifdef CONFIG_JBD2_LAZY_DEBUG
/**
 * jbd2_lazy_demote_now() - for tests: demote with room to spare in the log
 * @journal: a lazy journal
 * @span: log blocks, from the oldest on
 *
 * When the log is full, nobody can start a handle, which hides races with the
 * reuse of freed blocks.  Here nobody waits, and the buffers stay dirty until
 * the flusher or a checkpoint comes by.
 *
 * Return: how many were demoted, or -EIO.
 */
int jbd2_lazy_demote_now(journal_t *journal, u32 span)
{
	unsigned int busy = 0;
	int ret;

	mutex_lock(&journal->j_checkpoint_mutex);
	ret = is_journal_aborted(journal) ? -EIO :
		lazy_demote_oldest(journal->j_lazy, span, &busy);
	mutex_unlock(&journal->j_checkpoint_mutex);
	return ret;
}
EXPORT_SYMBOL(jbd2_lazy_demote_now);
#endif

/* Write what is on the checkpoint lists home; j_checkpoint_mutex is held. */
int jbd2_lazy_checkpoint(journal_t *journal)
{
	int err = 0;

	/*
	 * A transaction that is just finishing is on the list, too, with
	 * nothing to write: let kjournald end it.
	 */
	while (!err && READ_ONCE(journal->j_checkpoint_transactions)) {
		err = jbd2_log_do_checkpoint(journal);
		cond_resched();
	}
	return err;
}

/*
 * Send everything home, in one sweep over the disk if memory allows a list of
 * it, else in pieces of the log.
 *
 * Return: 0; -EROFS if somebody emptied the log; or the error of a read from the
 * log or of a checkpoint.
 */
int __jbd2_lazy_drain(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	unsigned int max = jbd2_lazy_batch_max(), busy, i, n, cap, chunk;
	struct lazy_item *items;
	u32 pos, left;
	int err = 0;

	mutex_lock(&journal->j_checkpoint_mutex);
	if (!is_journal_aborted(journal) && jbd2_lazy_log_gone(journal)) {
		mutex_unlock(&journal->j_checkpoint_mutex);
		return -EROFS;
	}
	while (!err && !is_journal_aborted(journal)) {
		pos = jbd2_jmap_scan_start(&lazy->map, &left);
		cap = READ_ONCE(lazy->map.nr_live);
		if (!left || !cap)
			break;
		items = kvmalloc_array(cap, sizeof(*items),
				       GFP_NOFS | __GFP_NOWARN);
		if (!items) {
			items = lazy->batch;
			cap = lazy->batch_len;
		}
		for (n = 0; n < cap; n++)
			if (!jbd2_jmap_next_live(&lazy->map, &pos, &left,
						 &items[n].home,
						 &items[n].log_blk, NULL))
				break;
		sort(items, n, sizeof(*items), jbd2_lazy_cmp_home, NULL);
		busy = 0;
		for (i = 0; i < n && !err; i += chunk) {
			chunk = min(n - i, max);
			err = jbd2_lazy_demote(lazy, items + i, chunk, &busy);
			if (err >= 0)
				err = jbd2_lazy_checkpoint(journal);
		}
		if (items != lazy->batch)
			kvfree(items);
		/* Every transaction is committed: nothing can hold a block. */
		if (WARN_ON_ONCE(busy))
			err = -EBUSY;
	}
	mutex_unlock(&journal->j_checkpoint_mutex);
	if (err)
		jbd2_journal_abort(journal, err);
	return err;
}
