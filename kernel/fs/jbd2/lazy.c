// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lazy writeback journaling (Aghayev, Ts'o, Gibson, Desnoyers: "Evolving Ext4
 * for Shingled Disks", FAST'17).
 *
 * Stock jbd2 writes a metadata block twice: to the log, and a little later to
 * its home location, where thousands of such blocks lie scattered.  Here the
 * copy in the log is enough.  After commit the buffer is simply clean, the map
 * (jmap.c) says where in the log its newest copy is, and a later read goes
 * there.  Only when the log runs short of room, or is to be left empty, do
 * blocks go home.  The log outlives the mount: see lazy_mount.c.
 *
 * A home block is in one of three states:
 *
 *            commit                      demote
 *   HOME  -----------> LAZY (in map)  -----------> CP (dirty, on a checkpoint
 *    ^                  |   ^                       |     list, as in stock)
 *    |   revoke         |   |  commit               |
 *    +------------------+   +-----------------------+
 *    +----------------------------------------------+
 *                       written home
 *
 * CP is exactly the state in which stock jbd2 leaves a committed buffer, so
 * all that follows a demotion (write-ahead order, re-modification, forget,
 * write errors, abort, tail, flush) is stock code.  Demotion takes no log
 * space: a full log can always be emptied.
 *
 * The rules, each of which is a corruption of *file data* when it is broken:
 *
 *  INV-K5  (liveness)  A log copy may be overwritten only when a newer copy or
 *          a revoke of the block is durable in the log, or the block is
 *          durable at home.  jbd2_journal_get_log_tail() asks
 *          __jbd2_lazy_oldest(); a demoted block pins the tail by its
 *          checkpoint transaction instead.
 *  INV-K6  (freed blocks)  The buffer of a freed block never becomes dirty:
 *          this kernel has no alias cleaning, so the stale buffer would be
 *          written over file data that reuses the block.  A block counts as
 *          freed from before jbd2_journal_forget() until its revoke commits:
 *          JMAP_REVOKING or BH_Revoked.  Demotion refuses such a block under
 *          b_state_lock, which forget takes too.
 *  INV-K7, INV-K8 (reads) are in lazy_read.c.
 *
 * Lock order: j_checkpoint_mutex > buffer lock > b_state_lock > j_list_lock >
 * jmap.lock > j_revoke_lock.
 */

#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/jbd2_lazy.h>
#include <linux/random.h>
#include "lazy.h"

/* Tests: be slow where a race would have to be won. */
void jbd2_lazy_debug_delay(void)
{
	if (IS_ENABLED(CONFIG_JBD2_LAZY_DELAYS) && !get_random_u32_below(8))
		msleep(get_random_u32_below(30));
}

/* ------------------------------------------------------------------------- */
/* Commit                                                                     */

/*
 * jbd2_journal_next_log_block() was just called for this copy, and only the
 * commit thread moves j_head: the copy's log block is the one before it.
 */
void __jbd2_lazy_note_tag(journal_t *journal, transaction_t *transaction,
			  const journal_block_tag_t *tag)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	unsigned long blk = jbd2_lazy_prev_log_blk(journal, journal->j_head);
	struct lazy_tag what;

	jbd2_lazy_tag_get(journal, tag, &what);
	lazy->copies++;
	if (jbd2_jmap_note(&lazy->map, blk, what.home,
			   what.flags & JBD2_FLAG_ESCAPE,
			   jbd2_lazy_csum_of_tag(journal, transaction->t_tid,
						 what.csum)))
		return;
	pr_err("JBD2: %s: the head of the log has reached log block %lu, which is needed\n",
	       journal->j_devname, blk);
	jbd2_journal_abort(journal, -EFSCORRUPTED);
}

/* Revoke records stay until the transaction is applied. */
void __jbd2_lazy_keep_revoke(journal_t *journal, struct list_head *record)
{
	list_add_tail(record, &journal->j_lazy->revokes);
	journal->j_lazy->revoked++;
}

/*
 * What the transaction holds, so that a mount that finds damage in it knows
 * what is missing.  Others look at the first of these words only.
 */
void __jbd2_lazy_count(journal_t *journal, struct commit_header *commit)
{
	commit->h_chksum[1] = cpu_to_be32(journal->j_lazy->copies);
	commit->h_chksum[2] = cpu_to_be32(journal->j_lazy->revoked);
}

void __jbd2_lazy_revoking(journal_t *journal, u64 home, bool revoking)
{
	jbd2_jmap_set_revoking(&journal->j_lazy->map, home, revoking);
}

static bool lazy_running_revokes(void *journal, u64 home)
{
	return jbd2_journal_find_revoke(journal, home);
}

/* Tests: a transaction holds one copy of a block, so all of its are found. */
static void lazy_check_applied(journal_t *journal, unsigned long blk,
			       unsigned long end, u32 copies)
{
	u64 home;

	for (; blk != end; blk = jbd2_lazy_next_log_blk(journal, blk))
		copies -= jbd2_jmap_home_of(&journal->j_lazy->map, blk, &home);
	WARN_ON_ONCE(copies);
}

/*
 * Called between the durable commit record and the processing of t_forget, so
 * before the commit callback makes freed blocks reusable: all tags, then all
 * revokes.
 */
void __jbd2_lazy_apply(journal_t *journal, transaction_t *transaction)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	bool aborted = is_journal_aborted(journal);
	unsigned long blk = transaction->t_log_start;
	unsigned long end = journal->j_head;	/* moved by this thread only */
	unsigned long long revoked;
	u32 blocks = 0, copies = 0;

	/* Tests: the next transaction runs meanwhile. */
	if (IS_ENABLED(CONFIG_JBD2_LAZY_DELAYS) && !get_random_u32_below(4))
		msleep(get_random_u32_below(100));
	if (!aborted) {
		jbd2_jmap_apply_begin(&lazy->map, transaction->t_tid, blk);
		for (; blk != end; blk = jbd2_lazy_next_log_blk(journal, blk)) {
			blocks++;
			if (!jbd2_jmap_apply_slot(&lazy->map, blk,
						  lazy_running_revokes,
						  journal))
				continue;
			atomic64_inc(&lazy->inserted);
			copies++;
			cond_resched();
		}
		jbd2_jmap_apply_end(&lazy->map, end);
		if (IS_ENABLED(CONFIG_JBD2_LAZY_DEBUG))
			lazy_check_applied(journal, transaction->t_log_start,
					   end, copies);
	}

	lazy->copies = 0;
	lazy->revoked = 0;
	while (jbd2_journal_pop_revoke(&lazy->revokes, &revoked)) {
		if (!aborted && jbd2_jmap_drop(&lazy->map, revoked))
			atomic64_inc(&lazy->dropped);
		cond_resched();
	}
	if (!aborted) {
		jbd2_lazy_durable(lazy, transaction->t_tid, end);
		jbd2_lazy_snapshot_committed(lazy, blocks);
		jbd2_lazy_clean_after_commit(lazy, blocks);
	}
}

/*
 * A buffer of a transaction that was applied.  Each block that was logged is
 * in the map now, or its own revoke took it out, in which case it must not go
 * home either (INV-K6).  Both ways it becomes clean, unless the next
 * transaction has changed it already.
 *
 * Called with b_state_lock and j_list_lock held.
 */
void __jbd2_lazy_hold(struct journal_head *jh)
{
	if (!jh->b_next_transaction || !jh->b_modified)
		clear_buffer_jbddirty(jh2bh(jh));
}

bool __jbd2_lazy_oldest(journal_t *journal, tid_t *tid, unsigned long *block)
{
	return jbd2_jmap_oldest(&journal->j_lazy->map, tid, block);
}

/* ------------------------------------------------------------------------- */
/* Start and stop                                                             */

/*
 * The log is empty, but blocks of older transactions lie about in it.  Whoever
 * emptied it may have stopped in front of damage, and would give the same ids
 * out again; then the remains could be taken for the continuation.  Each of
 * these transactions has a block at least, so their ids end before these.
 *
 * Called with j_state_lock held.
 */
static void lazy_skip_remains(journal_t *journal)
{
	tid_t skipped = journal->j_lazy->map.nr_slots;

	journal->j_tail_sequence += skipped;
	journal->j_transaction_sequence += skipped;
	journal->j_commit_sequence += skipped;
	journal->j_commit_request += skipped;
}

/**
 * jbd2_lazy_start() - make a journal lazy
 * @journal: a journal without a transaction yet: either one that is loaded,
 *           with an empty log, or one that is not and keeps its log, see
 *           jbd2_lazy_log_kept()
 * @extents: where the log lies, in ascending order and without holes;
 *           kvmalloc()ed, owned by the journal from a successful call on
 * @nr_extents: how many
 *
 * Return: 0, or -EINVAL if the journal has a feature that this cannot work
 * with, -ENOMEM.
 */
int jbd2_lazy_start(journal_t *journal, struct jbd2_log_extent *extents,
		    unsigned int nr_extents)
{
	struct jbd2_lazy *lazy;
	int err;

	if (!jbd2_has_feature_csum3(journal) ||
	    jbd2_has_feature_fast_commit(journal) ||
	    jbd2_has_feature_async_commit(journal) ||
	    !(journal->j_flags & JBD2_BARRIER) || !nr_extents) {
		pr_err("JBD2: %s: the journal lacks a feature that journal_lazy needs\n",
		       journal->j_devname);
		return -EINVAL;
	}

	lazy = kzalloc(sizeof(*lazy), GFP_KERNEL);
	if (!lazy)
		return -ENOMEM;
	err = jbd2_jmap_init(&lazy->map, journal->j_first, journal->j_last);
	if (err)
		goto free_lazy;
	err = jbd2_lazy_demote_init(lazy);
	if (err)
		goto free_map;
	err = jbd2_lazy_clean_init(lazy);
	if (err)
		goto free_batch;
	lazy->journal = journal;
	err = jbd2_lazy_snapshot_init(lazy);
	if (err)
		goto free_clean;
	err = jbd2_lazy_read_init(lazy);
	if (err)
		goto free_snapshot;
	lazy->extents = extents;
	lazy->nr_extents = nr_extents;
	INIT_LIST_HEAD(&lazy->revokes);
	spin_lock_init(&lazy->mark_lock);

	write_lock(&journal->j_state_lock);
	journal->j_lazy = lazy;
	/* The first commit signs the journal superblock. */
	if (journal->j_flags & JBD2_LOADED) {
		lazy_skip_remains(journal);
		journal->j_flags |= JBD2_FLUSHED;
		lazy->mark.known = journal->j_commit_sequence;
		lazy->sealed = journal->j_commit_sequence - 1;
		jbd2_jmap_apply_end(&lazy->map, journal->j_head);
	}
	write_unlock(&journal->j_state_lock);
	/* Clears none: it computes all limits of a transaction anew. */
	jbd2_journal_clear_features(journal, 0, 0, 0);
	jbd2_lazy_clean_start(lazy);
	return 0;

free_snapshot:
	jbd2_lazy_snapshot_destroy(lazy);
free_clean:
	jbd2_lazy_clean_destroy(lazy);
free_batch:
	kvfree(lazy->batch);
free_map:
	jbd2_jmap_destroy(&lazy->map);
free_lazy:
	kfree(lazy);
	return err;
}
EXPORT_SYMBOL(jbd2_lazy_start);

/**
 * jbd2_lazy_stop() - end lazy journaling, after a seal, a drain or an abort
 * @journal: the journal; no transaction exists
 */
void jbd2_lazy_stop(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	unsigned long long block;

	if (!lazy)
		return;
	jbd2_lazy_read_destroy(lazy);
	while (jbd2_journal_pop_revoke(&lazy->revokes, &block))
		;	/* left over when the journal was aborted */
	journal->j_lazy = NULL;
	jbd2_lazy_forget_mount(lazy);
	jbd2_lazy_snapshot_destroy(lazy);
	jbd2_lazy_clean_destroy(lazy);
	jbd2_jmap_destroy(&lazy->map);
	kvfree(lazy->extents);
	kvfree(lazy->batch);
	kfree(lazy);
}

/**
 * jbd2_lazy_stats() - what the map holds and has done
 * @journal: a lazy journal
 * @stats: filled in
 */
void jbd2_lazy_stats(journal_t *journal, struct jbd2_lazy_stats *stats)
{
	struct jbd2_lazy *lazy = journal->j_lazy;

	*stats = (struct jbd2_lazy_stats){
		.live_blocks = READ_ONCE(lazy->map.nr_live),
		.log_blocks = lazy->map.nr_slots,
		.log_used = lazy->map.nr_slots - READ_ONCE(journal->j_free),
		.memory_bytes = jbd2_jmap_bytes(&lazy->map) + sizeof(*lazy) +
				lazy->batch_len * sizeof(*lazy->batch) +
				lazy->nr_extents * sizeof(*lazy->extents) +
				jbd2_lazy_clean_bytes(lazy) +
				lazy->snaps.buffer_bytes,
		.relogged = atomic64_read(&lazy->relogged),
		.swept = atomic64_read(&lazy->swept),
		.emergency = atomic64_read(&lazy->emergency),
		.damaged_blocks = atomic64_read(&lazy->scrub.damaged),
		.inserted = atomic64_read(&lazy->inserted),
		.dropped = atomic64_read(&lazy->dropped),
		.demoted = atomic64_read(&lazy->demoted),
		.log_reads = atomic64_read(&lazy->log_reads),
		.rebuilt = lazy->rebuilt,
		.logged_blocks = atomic64_read(&lazy->snaps.logged),
		.snapshot_blocks = atomic64_read(&lazy->snaps.written),
		.snapshots = atomic64_read(&lazy->snaps.count),
		.mount_blocks = lazy->scan_blocks,
		.mount_snapshots = lazy->loaded,
		.scrubbed_blocks = atomic64_read(&lazy->scrub.blocks),
		.damage_left = jbd2_lazy_damage_left(lazy),
	};
}
EXPORT_SYMBOL(jbd2_lazy_stats);

/* jbd2_lazy_log_block() of a lazy journal. */
unsigned long __jbd2_lazy_log_block(journal_t *journal, u64 home)
{
	unsigned long log_blk;

	return jbd2_jmap_lookup(&journal->j_lazy->map, home, &log_blk, NULL) ?
		       log_blk :
		       0;
}
EXPORT_SYMBOL(__jbd2_lazy_log_block);

#ifdef CONFIG_JBD2_LAZY_DEBUG
/* A number that says what the map holds; see jbd2_jmap_digest(). */
u64 jbd2_lazy_digest(journal_t *journal)
{
	return jbd2_jmap_digest(&journal->j_lazy->map);
}
EXPORT_SYMBOL(jbd2_lazy_digest);
#endif
