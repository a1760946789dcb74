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
 *  INV-K7  (reads)  Lookup in the map and the read itself happen under the
 *          buffer's lock.  Whoever supersedes or demotes the block needs it
 *          up to date first, hence the same lock, so the log copy cannot be
 *          reused below the reader.
 *  INV-K8  (page cache)  User space reads of the block device fill the page
 *          cache that the file system trusts.  While the journal is lazy, the
 *          device's ->read_folio looks into the map as well.
 *
 * Lock order: j_checkpoint_mutex > buffer lock > b_state_lock > j_list_lock >
 * jmap.lock > j_revoke_lock.
 *
 * Known holes: O_DIRECT reads of the mounted device see the home copy, as they
 * do after a crash; a read that loaded the device's old ->read_folio before
 * the mount and inserts its folio after the first commit.
 */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/delay.h>
#include <linux/jbd2_lazy.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/sched/mm.h>
#include <linux/sort.h>
#include "lazy.h"

#define CREATE_TRACE_POINTS
#include <trace/events/jbd2_lazy.h>

/* Most blocks that are demoted in one go when the log is full. */
#define LAZY_BATCH_MAX	4096U

/*
 * Log blocks read with one that is needed: 512 KiB, which a disk transfers in
 * less time than it takes to get there.
 */
#define LAZY_READ_AHEAD	128U
/* With the second one in the same neighbourhood: as much as one way is worth. */
#define LAZY_READ_NEAR	1024U

/* Tests: be slow where a race would have to be won. */
void lazy_debug_delay(void)
{
	if (IS_ENABLED(CONFIG_JBD2_LAZY_DEBUG) && !get_random_u32_below(8))
		msleep(get_random_u32_below(30));
}

static DEFINE_MUTEX(lazy_mutex);
static HLIST_HEAD(lazy_list);
static const struct address_space_operations *bdev_aops;

/*
 * A copy of the block device's operations with our ->read_folio.  It is one
 * for all devices and never goes away, because the page cache may load a
 * pointer to it and use it after the device was unmounted.
 */
static struct address_space_operations lazy_aops;

/* The lazy journal of a block device's page cache, with a reference, or NULL. */
static struct jbd2_lazy *lazy_get(struct address_space *mapping)
{
	struct jbd2_lazy *lazy;

	if (likely(!mapping || READ_ONCE(mapping->a_ops) != &lazy_aops))
		return NULL;
	rcu_read_lock();
	hlist_for_each_entry_rcu(lazy, &lazy_list, node)
		if (lazy->mapping == mapping &&
		    refcount_inc_not_zero(&lazy->refs))
			goto out;
	lazy = NULL;
out:
	rcu_read_unlock();
	return lazy;
}

static void lazy_put(struct jbd2_lazy *lazy)
{
	if (refcount_dec_and_test(&lazy->refs))
		complete(&lazy->unused);
}

/* ------------------------------------------------------------------------- */
/* Reads (INV-K7, INV-K8)                                                     */

unsigned long lazy_next_log_blk(journal_t *journal, unsigned long blk)
{
	return blk + 1 == journal->j_last ? journal->j_first : blk + 1;
}

u64 lazy_phys(struct jbd2_lazy *lazy, unsigned long log_blk)
{
	unsigned int lo = 0, hi = lazy->nr_extents - 1;

	while (lo < hi) {
		unsigned int mid = (lo + hi + 1) / 2;

		if (lazy->extents[mid].log <= log_blk)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lazy->extents[lo].phys + (log_blk - lazy->extents[lo].log);
}

/* A read of a copy. */
struct lazy_read {
	struct jbd2_lazy *lazy;		/* with a reference */
	unsigned long log_blk;
	struct jmap_slot copy;
	struct bio bio;			/* the last one */
};

static struct bio_set lazy_reads;

static bool lazy_copy_good(struct lazy_read *read, struct buffer_head *bh)
{
	void *data;
	u32 csum;

	data = kmap_local_folio(bh->b_folio, bh_offset(bh));
	csum = lazy_csum(read->lazy->journal, data);
	kunmap_local(data);
	return csum == read->copy.csum;
}

static void lazy_end_read(struct bio *bio)
{
	struct lazy_read *read = container_of(bio, struct lazy_read, bio);
	struct jbd2_lazy *lazy = read->lazy;
	struct buffer_head *bh = bio->bi_private;
	bool good = !bio->bi_status && lazy_copy_good(read, bh);
	__be32 magic = cpu_to_be32(JBD2_MAGIC_NUMBER);

	if (good && read->copy.flags & JMAP_ESCAPED)
		/* The log holds 0 where the block has the magic number. */
		memcpy_to_folio(bh->b_folio, bh_offset(bh),
				(const char *)&magic, sizeof(magic));
	if (bio_flagged(bio, BIO_QUIET))
		set_bit(BH_Quiet, &bh->b_state);
	bh->b_end_io(bh, good);
	bio_put(bio);
	lazy_put(lazy);
}

/* Read one block from where it is newest. */
static void lazy_submit_one(struct jbd2_lazy *lazy, struct buffer_head *bh,
			    blk_opf_t opf)
{
	journal_t *journal = lazy->journal;
	struct jmap_slot copy;
	struct lazy_read *read;
	unsigned long log_blk;
	struct bio *bio;

	WARN_ON_ONCE(!buffer_locked(bh));	/* INV-K7 */
	if (!jmap_copy_of(&lazy->map, bh->b_blocknr, &log_blk, &copy)) {
		submit_bh(opf, bh);
		return;
	}

	bio = bio_alloc_bioset(journal->j_dev, 1, opf | REQ_META, GFP_NOIO,
			       &lazy_reads);
	bio->bi_iter.bi_sector = lazy_phys(lazy, log_blk) *
				 (journal->j_blocksize >> SECTOR_SHIFT);
	bio_add_folio_nofail(bio, bh->b_folio, bh->b_size, bh_offset(bh));
	bio->bi_end_io = lazy_end_read;
	bio->bi_private = bh;
	read = container_of(bio, struct lazy_read, bio);
	refcount_inc(&lazy->refs);
	read->lazy = lazy;
	read->log_blk = log_blk;
	read->copy = copy;
	atomic64_inc(&lazy->log_reads);
	submit_bio(bio);
}

/*
 * What was logged together is read together: @nr blocks from @log_blk on, as
 * far as they are the newest copies and not in memory.  Waits for no I/O.
 */
static void lazy_read_ahead(struct jbd2_lazy *lazy, unsigned long log_blk,
			    unsigned int nr)
{
	journal_t *journal = lazy->journal;
	u64 home;

	for (; nr; nr--, log_blk = lazy_next_log_blk(journal, log_blk)) {
		struct buffer_head *bh;

		if (!jmap_home_of(&lazy->map, log_blk, &home))
			continue;
		bh = bdev_getblk(journal->j_fs_dev, home, journal->j_blocksize,
				 GFP_NOWAIT | __GFP_NOWARN);
		if (!bh)
			break;
		if (!buffer_uptodate(bh) && trylock_buffer(bh)) {
			if (buffer_uptodate(bh)) {
				unlock_buffer(bh);
			} else {
				clear_buffer_verified(bh);
				get_bh(bh);
				bh->b_end_io = end_buffer_read_sync;
				lazy_submit_one(lazy, bh,
						REQ_OP_READ | REQ_RAHEAD);
			}
		}
		brelse(bh);
	}
}

/*
 * A directory is looked at in the order of its hashes, so the blocks needed
 * next are before the present one as often as behind it.  After a second read
 * in the same neighbourhood, all of that is read, in the order of the log.
 */
static void lazy_read_around(struct jbd2_lazy *lazy, struct buffer_head *bh,
			     blk_opf_t opf, unsigned long log_blk)
{
	unsigned long first = lazy->journal->j_first;
	unsigned long last = READ_ONCE(lazy->last_read);
	unsigned int before = 0, behind = LAZY_READ_AHEAD;

	WRITE_ONCE(lazy->last_read, log_blk);
	if (last && abs_diff(last, log_blk) < LAZY_READ_NEAR) {
		before = (log_blk - first) % LAZY_READ_NEAR;
		behind = LAZY_READ_NEAR - before - 1;
	}
	lazy_read_ahead(lazy, log_blk - before, before);
	lazy_submit_one(lazy, bh, opf);
	lazy_read_ahead(lazy, lazy_next_log_blk(lazy->journal, log_blk),
			behind);
}

static void lazy_submit_read(struct jbd2_lazy *lazy, struct buffer_head *bh,
			     blk_opf_t opf)
{
	unsigned long log_blk;
	struct blk_plug plug;

	/*
	 * Read-ahead by the file system means neighbours at home. In the log
	 * they lie apart, and each would cost a visit: leave them.
	 */
	if (opf & REQ_RAHEAD && jmap_lookup(&lazy->map, bh->b_blocknr,
					    NULL, NULL)) {
		bh->b_end_io(bh, 0);
		return;
	}
	blk_start_plug(&plug);
	if (jmap_lookup(&lazy->map, bh->b_blocknr, &log_blk, NULL))
		lazy_read_around(lazy, bh, opf, log_blk);
	else
		lazy_submit_one(lazy, bh, opf);
	blk_finish_plug(&plug);
}

/**
 * jbd2_lazy_submit_read() - submit_bh() for a read of a metadata block
 * @bh: the buffer, locked, with b_end_io set
 * @opf: REQ_OP_READ and flags
 *
 * Reads the newest committed copy, be it at home or in the log.  A buffer of
 * anything but a block device with a lazy journal goes to submit_bh().
 */
void jbd2_lazy_submit_read(struct buffer_head *bh, blk_opf_t opf)
{
	struct jbd2_lazy *lazy = lazy_get(READ_ONCE(bh->b_folio->mapping));

	if (!lazy) {
		submit_bh(opf, bh);
		return;
	}
	lazy_submit_read(lazy, bh, opf);
	lazy_put(lazy);
}
EXPORT_SYMBOL(jbd2_lazy_submit_read);

/*
 * Read the blocks of a folio one by one, each from where it is newest, and
 * wait.
 */
static int lazy_read_buffers(struct jbd2_lazy *lazy, struct folio *folio)
{
	unsigned int size = lazy->journal->j_blocksize;
	struct buffer_head *head = folio_buffers(folio), *bh;
	struct inode *inode = folio->mapping->host;
	u64 block = div_u64(folio_pos(folio), size);
	u64 blocks = div_u64(i_size_read(inode), size);
	bool ok = true;

	if (!head)
		head = create_empty_buffers(folio, size, 0);
	bh = head;
	do {
		/* Locked first: once mapped, others find it. */
		lock_buffer(bh);
		if (!buffer_mapped(bh) && block < blocks) {
			bh->b_bdev = lazy->journal->j_fs_dev;
			bh->b_blocknr = block;
			set_buffer_mapped(bh);
		}
		if (buffer_uptodate(bh)) {
			unlock_buffer(bh);
		} else if (!buffer_mapped(bh)) {
			folio_zero_range(folio, bh_offset(bh), size);
			set_buffer_uptodate(bh);
			unlock_buffer(bh);
		} else {
			get_bh(bh);
			bh->b_end_io = end_buffer_read_sync;
			lazy_submit_one(lazy, bh, REQ_OP_READ);
		}
		block++;
	} while ((bh = bh->b_this_page) != head);

	do {
		wait_on_buffer(bh);
		ok &= buffer_uptodate(bh);
	} while ((bh = bh->b_this_page) != head);
	folio_end_read(folio, ok);
	return ok ? 0 : -EIO;
}

/* Blocks that somebody read before the map was there. */
struct lazy_stale {
	struct lazy_item *items;
	unsigned int nr, room;
};

static int lazy_stale_add(struct lazy_stale *stale, u64 home,
			  unsigned long log_blk)
{
	unsigned int room = max(2 * stale->room, 64U);
	struct lazy_item *grown;

	if (stale->nr == stale->room) {
		grown = kvrealloc(stale->items, room * sizeof(*grown),
				  GFP_KERNEL);
		if (!grown)
			return -ENOMEM;
		stale->items = grown;
		stale->room = room;
	}
	stale->items[stale->nr++] = (struct lazy_item) {
		.home = home,
		.log_blk = log_blk,
	};
	return 0;
}

/* What of a locked folio is stale is not up to date any more. */
static int lazy_stale_folio(struct jbd2_lazy *lazy, struct folio *folio,
			    struct lazy_stale *stale)
{
	struct buffer_head *head = folio_buffers(folio), *bh;
	u64 block = div_u64(folio_pos(folio), lazy->journal->j_blocksize);
	unsigned long log_blk;
	int err = 0;

	if (!head)
		head = create_empty_buffers(folio, lazy->journal->j_blocksize,
					    0);
	bh = head;
	do {
		lock_buffer(bh);
		if (!buffer_dirty(bh) &&
		    jmap_lookup(&lazy->map, block, &log_blk, NULL)) {
			bh->b_bdev = lazy->journal->j_fs_dev;
			bh->b_blocknr = block;
			set_buffer_mapped(bh);
			clear_buffer_uptodate(bh);
			clear_buffer_verified(bh);
			/* The file system's, "this bitmap was checked". */
			clear_bit(BH_JBDPrivateStart, &bh->b_state);
			err = lazy_stale_add(stale, block, log_blk);
		}
		unlock_buffer(bh);
		block++;
	} while (!err && (bh = bh->b_this_page) != head);
	return err;
}

/*
 * The map has just been built from a kept log: read again what somebody read
 * before (INV-K12), all of it in one sweep over the log.  A folio enters the
 * page cache locked and is filled by ->read_folio, which knows the map already,
 * so that none can be missed.
 */
int lazy_refresh(struct jbd2_lazy *lazy)
{
	unsigned int size = lazy->journal->j_blocksize;
	struct lazy_stale stale = {};
	struct folio_batch batch;
	pgoff_t index = 0;
	unsigned int i;
	int err = 0;

	invalidate_bdev(lazy->journal->j_fs_dev);
	folio_batch_init(&batch);
	while (!err && filemap_get_folios(lazy->mapping, &index, ULONG_MAX,
					  &batch)) {
		for (i = 0; i < folio_batch_count(&batch); i++) {
			struct folio *folio = batch.folios[i];

			folio_lock(folio);
			if (!err && folio->mapping == lazy->mapping &&
			    (folio_buffers(folio) ||
			     folio_test_uptodate(folio)) &&
			    jmap_holds_range(&lazy->map,
					     div_u64(folio_pos(folio), size),
					     max(folio_size(folio) / size,
						 1UL)))
				err = lazy_stale_folio(lazy, folio, &stale);
			folio_unlock(folio);
		}
		folio_batch_release(&batch);
		cond_resched();
	}
	if (!err)
		err = lazy_fetch(lazy, stale.items, stale.nr);
	for (i = 0; i < stale.nr; i++) {
		struct buffer_head *bh = stale.items[i].bh;

		if (!bh)
			continue;
		wait_on_buffer(bh);
		if (!buffer_uptodate(bh))
			err = -EIO;
		brelse(bh);
	}
	kvfree(stale.items);
	return err;
}

/* ->read_folio of the block device below a lazy journal; the folio is locked. */
static int lazy_read_folio(struct file *file, struct folio *folio)
{
	struct jbd2_lazy *lazy = lazy_get(folio->mapping);
	unsigned int size;
	int err;

	if (!lazy)
		return bdev_aops->read_folio(file, folio);

	size = lazy->journal->j_blocksize;
	/*
	 * A block that enters the map from now on is up to date in this very
	 * folio, which cannot go away while it is locked; it is not read.
	 */
	if (jmap_holds_range(&lazy->map, div_u64(folio_pos(folio), size),
			     max(folio_size(folio) / size, 1UL)))
		err = lazy_read_buffers(lazy, folio);
	else
		err = bdev_aops->read_folio(file, folio);
	lazy_put(lazy);
	return err;
}

/*
 * ->readahead of the block device.  Where the map has copies, nothing is read:
 * waiting for one buffer while other folios of the batch are locked could wait
 * for somebody who wants those.  The cache then reads each folio that is
 * needed by ->read_folio.  These folios are new, locked and without buffers,
 * so no block in them can enter the map meanwhile.
 */
static void lazy_readahead(struct readahead_control *rac)
{
	struct jbd2_lazy *lazy = lazy_get(rac->mapping);
	unsigned int size;

	if (!lazy) {
		bdev_aops->readahead(rac);
		return;
	}
	size = lazy->journal->j_blocksize;
	if (!jmap_holds_range(&lazy->map, div_u64(readahead_pos(rac), size),
			      readahead_length(rac) / size))
		bdev_aops->readahead(rac);
	lazy_put(lazy);
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
	unsigned long head = journal->j_head;
	struct lazy_tag what;

	if (head == journal->j_first)
		head = journal->j_last;
	lazy_tag_get(journal, tag, &what);
	if (jmap_note(&lazy->map, head - 1, what.home,
		      what.flags & JBD2_FLAG_ESCAPE,
		      lazy_csum_of_tag(journal, transaction->t_tid, what.csum)))
		return;
	pr_err("JBD2: %s: the head of the log has reached log block %lu, which is needed\n",
	       journal->j_devname, head - 1);
	jbd2_journal_abort(journal, -EFSCORRUPTED);
}

/* Revoke records stay until the transaction is applied. */
void __jbd2_lazy_keep_revoke(journal_t *journal, struct list_head *record)
{
	list_add_tail(record, &journal->j_lazy->revokes);
}

void __jbd2_lazy_revoking(journal_t *journal, u64 home, bool revoking)
{
	jmap_set_revoking(&journal->j_lazy->map, home, revoking);
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

	for (; blk != end; blk = lazy_next_log_blk(journal, blk))
		copies -= jmap_home_of(&journal->j_lazy->map, blk, &home);
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
	u64 home;

	/* Tests: the next transaction runs meanwhile. */
	if (IS_ENABLED(CONFIG_JBD2_LAZY_DEBUG))
		msleep(get_random_u32_below(100));
	if (!aborted) {
		jmap_apply_begin(&lazy->map, transaction->t_tid, blk);
		for (; blk != end; blk = lazy_next_log_blk(journal, blk)) {
			blocks++;
			if (!jmap_apply_slot(&lazy->map, blk, &home,
					     lazy_running_revokes, journal))
				continue;
			trace_jbd2_lazy_insert(journal, home, blk);
			atomic64_inc(&lazy->inserted);
			copies++;
			cond_resched();
		}
		jmap_apply_end(&lazy->map, end);
		if (IS_ENABLED(CONFIG_JBD2_LAZY_DEBUG))
			lazy_check_applied(journal, transaction->t_log_start,
					   end, copies);
	}

	while (jbd2_journal_pop_revoke(&lazy->revokes, &revoked)) {
		if (!aborted && jmap_drop(&lazy->map, revoked, &blk)) {
			trace_jbd2_lazy_drop(journal, revoked, blk);
			atomic64_inc(&lazy->dropped);
		}
		cond_resched();
	}
	if (!aborted) {
		lazy_snapshot_committed(lazy, blocks);
		lazy_clean_after_commit(lazy, blocks);
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
	if (!jmap_oldest(&journal->j_lazy->map, tid, block))
		return false;
	trace_jbd2_lazy_tail(journal, *tid, *block);
	return true;
}

/* ------------------------------------------------------------------------- */
/* Demotion                                                                   */

int lazy_cmp_home(const void *a, const void *b)
{
	const struct lazy_item *x = a, *y = b;

	return x->home < y->home ? -1 : x->home > y->home;
}

static int lazy_cmp_log(const void *a, const void *b)
{
	const struct lazy_item *x = a, *y = b;

	return x->log_blk < y->log_blk ? -1 : x->log_blk > y->log_blk;
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

	return jmap_lookup(&lazy->map, item->home, &now, NULL) &&
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
	} else if (jmap_drop_if(&lazy->map, item->home, item->log_blk)) {
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

	if (ret == 1) {
		trace_jbd2_lazy_demote(journal, item->home, item->log_blk);
		atomic64_inc(&lazy->demoted);
	}
	return ret;
}

/*
 * Read blocks that are not in memory, in the order of the log, without waiting.
 * Sorts @items by log block; each gets a referenced buffer, or NULL.
 *
 * Return: 0, or -EIO if a buffer could not be had.
 */
int lazy_fetch(struct jbd2_lazy *lazy, struct lazy_item *items,
	       unsigned int n)
{
	journal_t *journal = lazy->journal;
	struct blk_plug plug;
	unsigned int i;
	int err = 0;

	sort(items, n, sizeof(*items), lazy_cmp_log, NULL);
	blk_start_plug(&plug);
	for (i = 0; i < n; i++) {
		struct buffer_head *bh;

		bh = __getblk(journal->j_fs_dev, items[i].home,
			      journal->j_blocksize);
		items[i].bh = bh;
		if (!bh) {
			err = -EIO;
			continue;
		}
		if (buffer_uptodate(bh))
			continue;
		lock_buffer(bh);
		if (buffer_uptodate(bh)) {
			unlock_buffer(bh);
			continue;
		}
		get_bh(bh);
		bh->b_end_io = end_buffer_read_sync;
		lazy_submit_one(lazy, bh, REQ_OP_READ | REQ_META);
	}
	blk_finish_plug(&plug);
	return err;
}

/* The same for one, which has a buffer; waits.  Return: 0 if it is up to date. */
int lazy_read_item(struct jbd2_lazy *lazy, struct lazy_item *item)
{
	struct buffer_head *bh = item->bh;

	lock_buffer(bh);
	if (buffer_uptodate(bh)) {
		unlock_buffer(bh);
		return 0;
	}
	get_bh(bh);
	bh->b_end_io = end_buffer_read_sync;
	lazy_submit_one(lazy, bh, REQ_OP_READ | REQ_META);
	wait_on_buffer(bh);
	return buffer_uptodate(bh) ? 0 : -EIO;
}

/*
 * Demote @n blocks: read what is not in memory, then file them in the order of
 * their homes, in which the checkpoint writes them.
 *
 * Return: how many were demoted, or -EIO.  *@busy counts those that were not
 * because a transaction holds them.
 */
int lazy_demote(struct jbd2_lazy *lazy, struct lazy_item *items,
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

	err = lazy_fetch(lazy, items, n);
	sort(items, n, sizeof(*items), lazy_cmp_home, NULL);
	for (i = 0; i < n; i++) {
		int ret;

		if (!items[i].bh)
			continue;
		wait_on_buffer(items[i].bh);
		if (!err && !buffer_uptodate(items[i].bh))
			err = min(lazy_read_again(lazy, &items[i]), 0);
		if (!err && buffer_uptodate(items[i].bh)) {
			if (!spare)
				spare = jbd2_journal_alloc_transaction(gfp);
			lazy_debug_delay();
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
static unsigned int lazy_batch_max(void)
{
	return clamp(totalram_pages() / 16, 256UL, 65536UL);
}

/*
 * Demote the copies among the oldest @span log blocks, as many as the batch
 * holds.  Called with j_checkpoint_mutex held, which guards the batch.
 *
 * Return: as lazy_demote().
 */
static int lazy_demote_oldest(struct jbd2_lazy *lazy, u32 span,
			      unsigned int *busy)
{
	unsigned int max = min(lazy->batch_len, lazy_batch_max()), n = 0;
	u32 pos, left;

	pos = jmap_scan_start(&lazy->map, &left);
	left = min(left, span);
	while (n < max && jmap_next_live(&lazy->map, &pos, &left,
					 &lazy->batch[n].home,
					 &lazy->batch[n].log_blk, NULL))
		n++;
	return n ? lazy_demote(lazy, lazy->batch, n, busy) : 0;
}

/* Log blocks that the tail can let go of at once. */
static long lazy_tail_room(journal_t *journal)
{
	unsigned long block;
	long room;
	tid_t tid;

	if (!jbd2_journal_get_log_tail(journal, &tid, &block))
		return 0;
	room = block - journal->j_tail;
	return room < 0 ? room + journal->j_last - journal->j_first : room;
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

	pos = jmap_scan_start(&lazy->map, &left);
	jmap_next_live(&lazy->map, &pos, &left, &home, &blk, &flags);
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
	u32 span = max_t(u32, nblocks, lazy->map.nr_slots / 16);
	unsigned int busy = 0;
	bool start = false;
	long room;
	int ret;

	/* What costs no write home comes first: the caller moves the tail. */
	room = lazy_tail_room(journal);
	if (room >= nblocks)
		return 0;
	if (lazy_wait_commit(journal, tid)) {
		*wait = true;
		return 0;
	}
	if (room)
		return 0;
	if (lazy_clean_wait(lazy))
		return 1;

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
int lazy_checkpoint(journal_t *journal)
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
 * Return: 0, or the error of a read from the log or of a checkpoint.
 */
int __jbd2_lazy_drain(journal_t *journal)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	unsigned int max = lazy_batch_max(), busy, i, n, cap, chunk;
	struct lazy_item *items;
	u32 pos, left;
	int err = 0;

	mutex_lock(&journal->j_checkpoint_mutex);
	while (!err && !is_journal_aborted(journal)) {
		pos = jmap_scan_start(&lazy->map, &left);
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
			if (!jmap_next_live(&lazy->map, &pos, &left,
					    &items[n].home, &items[n].log_blk,
					    NULL))
				break;
		sort(items, n, sizeof(*items), lazy_cmp_home, NULL);
		busy = 0;
		for (i = 0; i < n && !err; i += chunk) {
			chunk = min(n - i, max);
			err = lazy_demote(lazy, items + i, chunk, &busy);
			if (err >= 0)
				err = lazy_checkpoint(journal);
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
 * with, -EBUSY if it is in use, -ENOMEM.
 */
int jbd2_lazy_start(journal_t *journal, struct jbd2_log_extent *extents,
		    unsigned int nr_extents)
{
	struct address_space *mapping = journal->j_fs_dev->bd_mapping;
	struct jbd2_lazy *lazy;
	int err;

	if (!jbd2_has_feature_csum3(journal) ||
	    jbd2_has_feature_fast_commit(journal) ||
	    jbd2_has_feature_async_commit(journal) ||
	    !(journal->j_flags & JBD2_BARRIER) || !nr_extents) {
		pr_err("JBD2: %s: the journal has not the features of a lazy one\n",
		       journal->j_devname);
		return -EINVAL;
	}

	lazy = kzalloc(sizeof(*lazy), GFP_KERNEL);
	if (!lazy)
		return -ENOMEM;
	err = jmap_init(&lazy->map, journal->j_first, journal->j_last);
	if (err)
		goto free_lazy;
	err = -ENOMEM;
	lazy->batch_len = min(lazy->map.nr_slots / 64 + 1, LAZY_BATCH_MAX);
	lazy->batch = kvmalloc_array(lazy->batch_len, sizeof(*lazy->batch),
				     GFP_KERNEL);
	if (!lazy->batch)
		goto free_map;
	err = lazy_clean_init(lazy);
	if (err)
		goto free_batch;
	lazy->journal = journal;
	err = lazy_snapshot_init(lazy);
	if (err)
		goto free_clean;
	lazy->mapping = mapping;
	lazy->extents = extents;
	lazy->nr_extents = nr_extents;
	INIT_LIST_HEAD(&lazy->revokes);
	refcount_set(&lazy->refs, 1);
	init_completion(&lazy->unused);
	lazy->recovered = !(journal->j_flags & JBD2_LOADED);

	mutex_lock(&lazy_mutex);
	err = -EBUSY;
	if (READ_ONCE(mapping->a_ops) == &lazy_aops)
		goto unlock;
	if (!bdev_aops) {
		err = bioset_init(&lazy_reads, BIO_POOL_SIZE,
				  offsetof(struct lazy_read, bio),
				  BIOSET_NEED_BVECS);
		if (err)
			goto unlock;
		err = -EBUSY;
		bdev_aops = mapping->a_ops;
		lazy_aops = *bdev_aops;
		lazy_aops.read_folio = lazy_read_folio;
		lazy_aops.readahead = lazy_readahead;
		/* The page cache may hold on to the table for ever. */
		__module_get(THIS_MODULE);
	}
	write_lock(&journal->j_state_lock);
	if (!journal->j_running_transaction &&
	    !journal->j_committing_transaction &&
	    !journal->j_checkpoint_transactions) {
		journal->j_lazy = lazy;
		/* The first commit signs the journal superblock. */
		if (!lazy->recovered) {
			lazy_skip_remains(journal);
			journal->j_flags |= JBD2_FLUSHED;
			jmap_apply_end(&lazy->map, journal->j_head);
		}
		err = 0;
	}
	write_unlock(&journal->j_state_lock);
	if (err)
		goto unlock;
	hlist_add_head_rcu(&lazy->node, &lazy_list);
	/* Whoever sees the table finds the journal in the list. */
	smp_store_release(&mapping->a_ops, &lazy_aops);
	mutex_unlock(&lazy_mutex);
	/* Clears none: it computes all limits of a transaction anew. */
	jbd2_journal_clear_features(journal, 0, 0, 0);
	lazy_clean_start(lazy);
	return 0;

unlock:
	mutex_unlock(&lazy_mutex);
	lazy_snapshot_destroy(lazy);
free_clean:
	lazy_clean_destroy(lazy);
free_batch:
	kvfree(lazy->batch);
free_map:
	jmap_destroy(&lazy->map);
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
	mutex_lock(&lazy_mutex);
	/* Nobody starts to look for the journal after this. */
	smp_store_release(&lazy->mapping->a_ops, bdev_aops);
	hlist_del_rcu(&lazy->node);
	mutex_unlock(&lazy_mutex);
	lazy_put(lazy);
	wait_for_completion(&lazy->unused);

	while (jbd2_journal_pop_revoke(&lazy->revokes, &block))
		;	/* left over when the journal was aborted */
	journal->j_lazy = NULL;
	lazy_forget_mount(lazy);
	lazy_snapshot_destroy(lazy);
	lazy_clean_destroy(lazy);
	jmap_destroy(&lazy->map);
	kvfree(lazy->extents);
	kvfree(lazy->batch);
	kfree_rcu(lazy, rcu);
}

/**
 * jbd2_lazy_stats() - what the map holds and has done
 * @journal: the journal
 * @stats: filled in
 *
 * Return: false if the journal is not lazy.
 */
bool jbd2_lazy_stats(journal_t *journal, struct jbd2_lazy_stats *stats)
{
	struct jbd2_lazy *lazy = journal->j_lazy;

	if (!lazy)
		return false;
	stats->live_blocks = READ_ONCE(lazy->map.nr_live);
	stats->log_blocks = lazy->map.nr_slots;
	stats->log_used = lazy->map.nr_slots - READ_ONCE(journal->j_free);
	stats->rebuilt = lazy->rebuilt;
	stats->relogged = atomic64_read(&lazy->relogged);
	stats->swept = atomic64_read(&lazy->swept);
	stats->memory_bytes = jmap_bytes(&lazy->map) + sizeof(*lazy) +
			      lazy->batch_len * sizeof(*lazy->batch) +
			      lazy->nr_extents * sizeof(*lazy->extents) +
			      lazy_clean_bytes(lazy) +
			      lazy->snaps.buffer_bytes;
	stats->logged_blocks = atomic64_read(&lazy->snaps.logged);
	stats->snapshot_blocks = atomic64_read(&lazy->snaps.written);
	stats->snapshots = atomic64_read(&lazy->snaps.count);
	stats->mount_blocks = lazy->scan_blocks;
	stats->mount_snapshots = lazy->loaded;
	stats->inserted = atomic64_read(&lazy->inserted);
	stats->dropped = atomic64_read(&lazy->dropped);
	stats->demoted = atomic64_read(&lazy->demoted);
	stats->emergency = atomic64_read(&lazy->emergency);
	stats->log_reads = atomic64_read(&lazy->log_reads);
	stats->scrubbed_blocks = atomic64_read(&lazy->scrub.blocks);
	stats->damaged_blocks = atomic64_read(&lazy->scrub.damaged);
	stats->lost_blocks = lazy->lost;
	stats->damage_left = lazy_damage_left(lazy);
	return true;
}
EXPORT_SYMBOL(jbd2_lazy_stats);

/* The log block of the newest committed copy of a block, or 0. */
unsigned long jbd2_lazy_log_block(journal_t *journal, u64 home)
{
	unsigned long log_blk;

	return journal->j_lazy && jmap_lookup(&journal->j_lazy->map, home,
					      &log_blk, NULL) ? log_blk : 0;
}
EXPORT_SYMBOL(jbd2_lazy_log_block);

/* A number that says what the map holds; see jmap_digest(). */
u64 jbd2_lazy_digest(journal_t *journal)
{
	return jmap_digest(&journal->j_lazy->map);
}
EXPORT_SYMBOL(jbd2_lazy_digest);
