// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lazy writeback journaling: reads.
 *
 *  INV-K7  (reads)  Lookup in the map and the read itself happen under the
 *          buffer's lock.  Whoever supersedes or demotes the block needs it
 *          up to date first, hence the same lock, so the log copy cannot be
 *          reused below the reader.
 *  INV-K8  (trust)  What is in memory of a block that is in the map counts
 *          only if BH_Newest says so.
 *
 * The file system shares the page cache of its device with user space, whose
 * buffered reads and writes know no map: of a block in the map they bring the
 * older contents from home into memory, and leave the buffer up to date.  So
 * "up to date" is not enough.  BH_Newest is set
 *
 *  - when the copy in the log was read, before the buffer is up to date
 *    (lazy_end_read());
 *  - when a transaction takes the buffer, because who asks for write access
 *    has read the block or overwrites all of it (__jbd2_lazy_filed()).  A block
 *    enters the map by such a buffer only, so its buffer has the bit by then;
 *  - when the block is found not to be in the map, to save the next look-up:
 *    what was read from home then is the newest.
 *
 * It goes with the buffer head, and otherwise only when a buffer is read from
 * the log.  An up to date buffer without it whose block is in the map is
 * stale; it is read from the log, under its lock, like one that is not up to
 * date.  No stale buffer belongs to a transaction.
 */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/crc32.h>
#include <linux/pagemap.h>
#include <linux/pagevec.h>
#include <linux/sort.h>
#include "lazy.h"

/*
 * Log blocks read with one that is needed: 512 KiB, which a disk transfers in
 * less time than it takes to get there.
 */
#define LAZY_READ_AHEAD	128U
/*
 * With the second one in the same neighbourhood, on a disk that rotates: as
 * much as one way is worth.
 */
#define LAZY_READ_NEAR	1024UL

/* Read-ahead gives up sooner than it waits or takes from the reserves. */
#define GFP_LAZY_AHEAD	(GFP_NOWAIT | __GFP_NOMEMALLOC | __GFP_NORETRY | \
			 __GFP_NOWARN)

/* A read of a copy. */
struct lazy_read {
	struct jbd2_lazy *lazy;		/* with a reference */
	struct jmap_slot copy;
	struct bio bio;			/* the last one */
};

int jbd2_lazy_read_init(struct jbd2_lazy *lazy)
{
	refcount_set(&lazy->refs, 1);
	init_completion(&lazy->unused);
	return bioset_init(&lazy->reads, BIO_POOL_SIZE,
			   offsetof(struct lazy_read, bio), BIOSET_NEED_BVECS);
}

static void lazy_put(struct jbd2_lazy *lazy)
{
	if (refcount_dec_and_test(&lazy->refs))
		complete(&lazy->unused);
}

/* Waits for read-ahead. */
void jbd2_lazy_read_destroy(struct jbd2_lazy *lazy)
{
	lazy_put(lazy);
	wait_for_completion(&lazy->unused);
	bioset_exit(&lazy->reads);
}

unsigned long jbd2_lazy_next_log_blk(journal_t *journal, unsigned long blk)
{
	return blk + 1 == journal->j_last ? journal->j_first : blk + 1;
}

unsigned long jbd2_lazy_prev_log_blk(journal_t *journal, unsigned long blk)
{
	return (blk == journal->j_first ? journal->j_last : blk) - 1;
}

unsigned long jbd2_lazy_log_distance(journal_t *journal, unsigned long from,
				     unsigned long to)
{
	return to >= from ? to - from :
			    to + journal->j_last - journal->j_first - from;
}

u64 jbd2_lazy_phys(struct jbd2_lazy *lazy, unsigned long log_blk)
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

/* What a tag says of a copy; its checksum still depends on the transaction. */
void jbd2_lazy_tag_get(journal_t *journal, const journal_block_tag_t *tag,
		       struct lazy_tag *what)
{
	const journal_block_tag3_t *tag3 = (const void *)tag;

	what->flags = be32_to_cpu(tag3->t_flags);
	what->csum = be32_to_cpu(tag3->t_checksum);
	what->home = be32_to_cpu(tag3->t_blocknr);
	if (jbd2_has_feature_64bit(journal))
		what->home |= (u64)be32_to_cpu(tag3->t_blocknr_high) << 32;
}

/* The checksum of the contents of a log block. */
u32 jbd2_lazy_csum(journal_t *journal, const void *data)
{
	return jbd2_chksum(journal, 0, data, journal->j_blocksize);
}

/*
 * What jbd2_lazy_csum() must give for a copy that @tid logged with a tag that says
 * @csum.  That is the checksum of the transaction id and the contents together;
 * without the id a slot of the map need not know its transaction.
 */
u32 jbd2_lazy_csum_of_tag(journal_t *journal, tid_t tid, u32 csum)
{
	__be32 sequence = cpu_to_be32(tid);
	u32 id = jbd2_chksum(journal, journal->j_csum_seed, &sequence,
			     sizeof(sequence));

	return csum ^ __crc32c_le_shift(id, journal->j_blocksize);
}

/* ------------------------------------------------------------------------- */
/* Trust (INV-K8)                                                             */

/* Whether what is at home is not the newest. */
static bool lazy_logged(struct jbd2_lazy *lazy, u64 home)
{
	return jbd2_jmap_lookup(&lazy->map, home, NULL, NULL);
}

/* jbd2_lazy_newest() of a buffer without the bit. */
bool __jbd2_lazy_newest(journal_t *journal, struct buffer_head *bh)
{
	/* The bit is set before the block enters the map, so look at it last. */
	if (lazy_logged(journal->j_lazy, bh->b_blocknr))
		return buffer_newest(bh);
	set_buffer_newest(bh);
	return true;
}
EXPORT_SYMBOL(__jbd2_lazy_newest);

/* Whether what is in memory may be logged again, or go home. */
bool jbd2_lazy_trusts(struct jbd2_lazy *lazy, struct buffer_head *bh)
{
	return buffer_uptodate(bh) && jbd2_lazy_newest(lazy->journal, bh);
}

/*
 * A transaction takes a buffer.
 *
 * Called with b_state_lock and j_list_lock held.
 */
void __jbd2_lazy_filed(journal_t *journal, struct buffer_head *bh)
{
	/* Tests: some reader of metadata in the file system did not ask. */
	if (IS_ENABLED(CONFIG_JBD2_LAZY_DEBUG))
		WARN_ON_ONCE(buffer_uptodate(bh) && !buffer_newest(bh) &&
			     jbd2_jmap_lookup(&journal->j_lazy->map,
					      bh->b_blocknr, NULL, NULL));
	set_buffer_newest(bh);
}

/* What is in memory does not count; the buffer is locked. */
static void lazy_distrust(struct buffer_head *bh)
{
	WARN_ON_ONCE(buffer_jbddirty(bh));
	/* User space wrote a part of what was stale. */
	clear_buffer_dirty(bh);
	clear_buffer_uptodate(bh);
	clear_buffer_verified(bh);
	clear_buffer_newest(bh);
}

/*
 * The map was built from a kept log: nothing in memory counts that was there
 * before (INV-K12).  A buffer may have outlived an earlier mount, with the bit,
 * and with changes that were never committed.  Nobody reads through the map
 * yet.
 */
void jbd2_lazy_trust_nothing(struct jbd2_lazy *lazy)
{
	struct address_space *mapping = lazy->journal->j_fs_dev->bd_mapping;
	struct buffer_head *head, *bh;
	struct folio_batch batch;
	struct folio *folio;
	pgoff_t index = 0;
	unsigned int i;

	folio_batch_init(&batch);
	while (filemap_get_folios(mapping, &index, ULONG_MAX, &batch)) {
		for (i = 0; i < folio_batch_count(&batch); i++) {
			folio = batch.folios[i];
			folio_lock(folio);
			head = folio->mapping == mapping ?
				folio_buffers(folio) : NULL;
			bh = head;
			while (bh) {
				clear_buffer_newest(bh);
				bh = bh->b_this_page;
				if (bh == head)
					break;
			}
			folio_unlock(folio);
		}
		folio_batch_release(&batch);
		cond_resched();
	}
}

/* ------------------------------------------------------------------------- */
/* Reads (INV-K7)                                                             */

static bool lazy_copy_good(struct lazy_read *read, struct buffer_head *bh)
{
	void *data;
	u32 csum;

	data = kmap_local_folio(bh->b_folio, bh_offset(bh));
	csum = jbd2_lazy_csum(read->lazy->journal, data);
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
	if (good)
		set_buffer_newest(bh);
	if (bio_flagged(bio, BIO_QUIET))
		set_bit(BH_Quiet, &bh->b_state);
	bh->b_end_io(bh, good);
	bio_put(bio);
	lazy_put(lazy);
}

/*
 * Read one block from where it is newest.  Read-ahead gives up without memory,
 * or if the newest is not in the log.
 */
static void lazy_submit_one(struct jbd2_lazy *lazy, struct buffer_head *bh,
			    blk_opf_t opf)
{
	journal_t *journal = lazy->journal;
	bool ahead = opf & REQ_RAHEAD;
	struct jmap_slot copy;
	struct lazy_read *read;
	unsigned long log_blk;
	struct bio *bio;

	WARN_ON_ONCE(!buffer_locked(bh));	/* INV-K7 */
	if (!jbd2_jmap_copy_of(&lazy->map, bh->b_blocknr, &log_blk, &copy)) {
		if (ahead)
			bh->b_end_io(bh, 0);
		else
			submit_bh(opf, bh);
		return;
	}

	lazy_distrust(bh);
	bio = bio_alloc_bioset(journal->j_dev, 1, opf | REQ_META,
			       ahead ? GFP_LAZY_AHEAD : GFP_NOIO, &lazy->reads);
	if (!bio) {
		bh->b_end_io(bh, 0);
		return;
	}
	bio->bi_iter.bi_sector = jbd2_lazy_phys(lazy, log_blk) *
				 (journal->j_blocksize >> SECTOR_SHIFT);
	bio_add_folio_nofail(bio, bh->b_folio, bh->b_size, bh_offset(bh));
	bio->bi_end_io = lazy_end_read;
	bio->bi_private = bh;
	read = container_of(bio, struct lazy_read, bio);
	refcount_inc(&lazy->refs);
	read->lazy = lazy;
	read->copy = copy;
	atomic64_inc(&lazy->log_reads);
	submit_bio(bio);
}

/* Give a new, locked folio of the device its buffers; false without memory. */
static bool lazy_add_buffers(journal_t *journal, struct folio *folio)
{
	struct address_space *mapping = folio->mapping;
	unsigned int size = journal->j_blocksize;
	u64 block = div_u64(folio_pos(folio), size);
	u64 end = div_u64(i_size_read(mapping->host), size);
	struct buffer_head *head, *bh, *last;

	head = folio_alloc_buffers(folio, size, GFP_LAZY_AHEAD | __GFP_ACCOUNT);
	if (!head)
		return false;
	for (bh = head; bh; bh = bh->b_this_page, block++) {
		bh->b_bdev = journal->j_fs_dev;
		bh->b_blocknr = block;
		if (block < end)
			set_buffer_mapped(bh);
		last = bh;
	}
	last->b_this_page = head;
	/* For __find_get_block(), which takes no folio lock. */
	spin_lock(&mapping->i_private_lock);
	folio_attach_private(folio, head);
	spin_unlock(&mapping->i_private_lock);
	return true;
}

/*
 * The buffer of a block, made if need be.  bdev_getblk() waits for the lock of
 * the folio, and its holder may wait for a buffer that the caller has locked.
 *
 * Return: NULL if that would need waiting, or memory that is short.
 */
static struct buffer_head *lazy_getblk_nowait(journal_t *journal, u64 block)
{
	struct block_device *bdev = journal->j_fs_dev;
	unsigned int size = journal->j_blocksize;
	struct buffer_head *bh;
	struct folio *folio;
	bool have;

	bh = __find_get_block(bdev, block, size);
	if (bh)
		return bh;
	folio = __filemap_get_folio(bdev->bd_mapping,
				    block * size >> PAGE_SHIFT,
				    FGP_LOCK | FGP_CREAT | FGP_NOWAIT,
				    GFP_LAZY_AHEAD);
	if (IS_ERR(folio))
		return NULL;
	/* What user space has read into it stays as it is. */
	have = !folio_buffers(folio) && !folio_test_uptodate(folio) &&
	       lazy_add_buffers(journal, folio);
	folio_unlock(folio);
	folio_put(folio);
	return have ? __find_get_block(bdev, block, size) : NULL;
}

/* Read a log block if it is the newest copy of what is not in memory. */
static void lazy_read_ahead(struct jbd2_lazy *lazy, unsigned long log_blk)
{
	struct buffer_head *bh;
	u64 home;

	if (!jbd2_jmap_home_of(&lazy->map, log_blk, &home))
		return;
	bh = lazy_getblk_nowait(lazy->journal, home);
	if (!bh)
		return;
	if (!jbd2_lazy_trusts(lazy, bh) && trylock_buffer(bh)) {
		if (jbd2_lazy_trusts(lazy, bh)) {
			unlock_buffer(bh);
		} else {
			get_bh(bh);
			bh->b_end_io = end_buffer_read_sync;
			lazy_submit_one(lazy, bh, REQ_OP_READ | REQ_RAHEAD);
		}
	}
	brelse(bh);
}

/*
 * The neighbourhood of a log block: where it begins, and of how many blocks it
 * is.  No block is in it twice, however short the log.
 */
unsigned int jbd2_lazy_near(journal_t *journal, unsigned long *blk)
{
	*blk -= (*blk - journal->j_first) % LAZY_READ_NEAR;
	return min(LAZY_READ_NEAR, journal->j_last - journal->j_first);
}

/*
 * Read a copy, and with it what was logged together with it, as far as these
 * are the newest copies and not in memory: what lies behind it.  A directory is
 * looked at in the order of its hashes, so the blocks needed next are before
 * the present one as often as behind it.  After a second read in the same
 * neighbourhood all of that is read, in the order of the log.
 */
static void lazy_read_around(struct jbd2_lazy *lazy, struct buffer_head *bh,
			     blk_opf_t opf, unsigned long log_blk)
{
	journal_t *journal = lazy->journal;
	unsigned long last = READ_ONCE(lazy->last_read), blk = log_blk;
	unsigned int nr = LAZY_READ_AHEAD + 1;

	WRITE_ONCE(lazy->last_read, log_blk);
	if (current->flags & PF_MEMALLOC) {
		nr = 1;
	} else if (last && abs_diff(last, log_blk) < LAZY_READ_NEAR &&
		   !bdev_nonrot(journal->j_dev)) {
		nr = jbd2_lazy_near(journal, &blk);
	}
	for (; nr; nr--, blk = jbd2_lazy_next_log_blk(journal, blk)) {
		if (blk == log_blk)
			lazy_submit_one(lazy, bh, opf);
		else
			lazy_read_ahead(lazy, blk);
	}
}

/* jbd2_lazy_submit_read() of a lazy journal. */
void __jbd2_lazy_submit_read(journal_t *journal, struct buffer_head *bh,
			     blk_opf_t opf)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	unsigned long log_blk;
	struct blk_plug plug;

	if (!jbd2_jmap_lookup(&lazy->map, bh->b_blocknr, &log_blk, NULL)) {
		submit_bh(opf, bh);
		return;
	}
	lazy_distrust(bh);
	/*
	 * Read-ahead by the file system means neighbours at home. In the log
	 * they lie apart, and each would cost a visit: leave them.
	 */
	if (opf & REQ_RAHEAD) {
		bh->b_end_io(bh, 0);
		return;
	}
	blk_start_plug(&plug);
	lazy_read_around(lazy, bh, opf, log_blk);
	blk_finish_plug(&plug);
}
EXPORT_SYMBOL(__jbd2_lazy_submit_read);

int jbd2_lazy_cmp_log(const void *a, const void *b)
{
	const struct lazy_item *x = a, *y = b;

	return x->log_blk < y->log_blk ? -1 : x->log_blk > y->log_blk;
}

/*
 * Read blocks that are not in memory, or stale there, in the order of the log,
 * without waiting.  Sorts @items by log block; each gets a referenced buffer,
 * or NULL.
 *
 * Return: 0, or -EIO if a buffer could not be had.
 */
int jbd2_lazy_fetch(struct jbd2_lazy *lazy, struct lazy_item *items,
		    unsigned int n)
{
	journal_t *journal = lazy->journal;
	struct blk_plug plug;
	unsigned int i;
	int err = 0;

	sort(items, n, sizeof(*items), jbd2_lazy_cmp_log, NULL);
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
		if (jbd2_lazy_trusts(lazy, bh))
			continue;
		lock_buffer(bh);
		if (jbd2_lazy_trusts(lazy, bh)) {
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
static int lazy_read_item(struct jbd2_lazy *lazy, struct lazy_item *item)
{
	struct buffer_head *bh = item->bh;

	lock_buffer(bh);
	if (jbd2_lazy_trusts(lazy, bh)) {
		unlock_buffer(bh);
		return 0;
	}
	get_bh(bh);
	bh->b_end_io = end_buffer_read_sync;
	lazy_submit_one(lazy, bh, REQ_OP_READ | REQ_META);
	wait_on_buffer(bh);
	return buffer_uptodate(bh) ? 0 : -EIO;
}

/**
 * jbd2_lazy_read_again() - a copy that is to be written again could not be read
 * @lazy: the journal
 * @item: the copy, with its buffer
 *
 * Return: 1 if the buffer is up to date now; 0 if nobody needs the copy any
 * more; -EIO, with a message.
 */
int jbd2_lazy_read_again(struct jbd2_lazy *lazy, struct lazy_item *item)
{
	journal_t *journal = lazy->journal;
	unsigned long now;

	if (!is_journal_aborted(journal) && !lazy_read_item(lazy, item))
		return 1;
	if (!jbd2_jmap_lookup(&lazy->map, item->home, &now, NULL) ||
	    now != item->log_blk)
		return 0;
	if (!is_journal_aborted(journal))
		pr_err_ratelimited("JBD2: %s: block %llu of metadata cannot be read from log block %lu; run e2fsck\n",
				   journal->j_devname, item->home,
				   item->log_blk);
	return -EIO;
}

/**
 * jbd2_lazy_refresh() - read buffers again that were read before the map was
 * @journal: a journal that is loaded, with a kept log
 * @bhs: the buffers, which the file system holds and uses without asking
 * @n: how many
 *
 * Those that are in the log are read in the order of the log (INV-K12).
 *
 * Return: 0, -EIO, or -ENOMEM.
 */
int jbd2_lazy_refresh(journal_t *journal, struct buffer_head **bhs,
		      unsigned int n)
{
	struct jbd2_lazy *lazy = journal->j_lazy;
	struct lazy_item *items;
	unsigned int i, nr = 0;
	int err;

	items = kvmalloc_array(n, sizeof(*items), GFP_KERNEL);
	if (!items)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		items[nr].home = bhs[i]->b_blocknr;
		nr += jbd2_jmap_lookup(&lazy->map, items[nr].home,
				       &items[nr].log_blk, NULL);
	}
	err = jbd2_lazy_fetch(lazy, items, nr);
	for (i = 0; i < nr; i++) {
		if (!items[i].bh)
			continue;
		wait_on_buffer(items[i].bh);
		if (!buffer_uptodate(items[i].bh))
			err = -EIO;
		brelse(items[i].bh);
	}
	kvfree(items);
	return err;
}
EXPORT_SYMBOL(jbd2_lazy_refresh);
