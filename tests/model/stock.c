// SPDX-License-Identifier: GPL-2.0-only
/*
 * The part of jbd2 that the files under test work with, on one thread: commit,
 * checkpoint lists, the tail, mount and unmount. The order of writes, flushes
 * and hooks is that of fs/jbd2/commit.c, checkpoint.c and journal.c.
 */

#include "model.h"

struct checkpoint {
	transaction_t t;
	u32 buffers;
	struct checkpoint *next;
};

journal_t journal;
struct block_device device;
struct open_transaction *running, *committing;
bool stock_mutex_busy;

static struct open_transaction transactions[2];
static journal_superblock_t superblock;

/* ------------------------------------------------------------------------- */
/* Log space                                                                  */

int jbd2_journal_next_log_block(journal_t *journal, unsigned long long *block)
{
	unsigned long blk = journal->j_head;

	if (journal->j_free <= 1)
		model_fail("the log overflows");
	journal->j_head++;
	journal->j_free--;
	if (journal->j_head == journal->j_last) {
		journal->j_head = journal->j_first;
		stats.wraps++;
	}
	*block = disk_phys(blk);
	return 0;
}

long stock_space_left(void)
{
	long free = (long)journal.j_free - 32;

	if (committing)
		free -= atomic_read(&committing->t.t_outstanding_credits);
	return max(free, 0L);
}

static u32 tags_per_block(void)
{
	return (BLOCK - sizeof(journal_header_t) - 16 -
		sizeof(struct jbd2_journal_block_tail) - 16) /
	       sizeof(journal_block_tag3_t);
}

static u32 revokes_per_block(void)
{
	return (BLOCK - sizeof(jbd2_journal_revoke_header_t) -
		sizeof(struct jbd2_journal_block_tail)) /
	       (journal.has_64bit ? 8 : 4);
}

static void compute_limits(void)
{
	int most = jbd2_lazy_max_transaction(&journal, journal.j_total_len / 3);

	journal.j_max_transaction_buffers = most;
	journal.j_revoke_records_per_block = revokes_per_block();
	journal.j_transaction_overhead_buffers =
		1 + DIV_ROUND_UP(most, tags_per_block());
}

/* ------------------------------------------------------------------------- */
/* The journal superblock and the tail                                        */

static int write_superblock(blk_opf_t flags)
{
	if (journal.j_lazy)
		jbd2_lazy_stamp(&journal);
	sb_write(&superblock, flags);
	return 0;
}

void jbd2_journal_abort(journal_t *journal, int error)
{
	if (is_journal_aborted(journal))
		return;
	journal->j_flags |= JBD2_ABORT;
	journal->j_errno = error;
	superblock.s_errno = cpu_to_be32(error);
	write_superblock(REQ_FUA);
	stats.aborts++;
}

int jbd2_journal_update_sb_log_tail(journal_t *journal, tid_t tid,
				    unsigned long block, blk_opf_t flags)
{
	if (is_journal_aborted(journal))
		return -EIO;
	BUG_ON(!mutex_is_locked(&journal->j_checkpoint_mutex));
	superblock.s_sequence = cpu_to_be32(tid);
	superblock.s_start = cpu_to_be32(block);
	write_superblock(flags);
	journal->j_flags &= ~JBD2_FLUSHED;
	return 0;
}

static void mark_journal_empty(blk_opf_t flags)
{
	if (!superblock.s_start)
		return;
	superblock.s_sequence = cpu_to_be32(journal.j_tail_sequence);
	superblock.s_start = 0;
	superblock.s_head = cpu_to_be32(journal.j_head);
	write_superblock(flags);
	journal.j_flags |= JBD2_FLUSHED;
}

int jbd2_journal_get_log_tail(journal_t *journal, tid_t *tid,
			      unsigned long *block)
{
	transaction_t *t;
	int ret;

	read_lock(&journal->j_state_lock);
	spin_lock(&journal->j_list_lock);
	if ((t = journal->j_checkpoint_transactions) ||
	    (t = journal->j_committing_transaction)) {
		*tid = t->t_tid;
		*block = t->t_log_start;
	} else if ((t = journal->j_running_transaction)) {
		*tid = t->t_tid;
		*block = journal->j_head;
	} else {
		*tid = journal->j_transaction_sequence;
		*block = journal->j_head;
	}
	jbd2_lazy_oldest(journal, tid, block);
	ret = tid_gt(*tid, journal->j_tail_sequence);
	spin_unlock(&journal->j_list_lock);
	read_unlock(&journal->j_state_lock);
	return ret;
}

int __jbd2_update_log_tail(journal_t *journal, tid_t tid, unsigned long block)
{
	unsigned long freed;
	int ret = jbd2_journal_update_sb_log_tail(journal, tid, block, REQ_FUA);

	if (ret)
		return ret;
	freed = block - journal->j_tail;
	if (block < journal->j_tail)
		freed += journal->j_last - journal->j_first;
	journal->j_free += freed;
	journal->j_tail_sequence = tid;
	journal->j_tail = block;
	stats.tail_moves += freed > 0;
	return 0;
}

int jbd2_cleanup_journal_tail(journal_t *journal)
{
	unsigned long block;
	tid_t tid;

	if (is_journal_aborted(journal))
		return -EIO;
	if (!jbd2_journal_get_log_tail(journal, &tid, &block))
		return 1;
	blkdev_issue_flush(journal->j_fs_dev);
	return __jbd2_update_log_tail(journal, tid, block);
}

/* ------------------------------------------------------------------------- */
/* Checkpoint lists                                                           */

/* As lazy_tail_transaction() in lazy.c. */
transaction_t *checkpoint_of_tail(void)
{
	transaction_t *first = journal.j_checkpoint_transactions;
	struct checkpoint *new;

	if (first && first->t_tid == journal.j_tail_sequence)
		return first;
	new = calloc(1, sizeof(*new));
	new->t.t_tid = journal.j_tail_sequence;
	new->t.t_log_start = journal.j_tail;
	new->next = first ? container_of(first, struct checkpoint, t) : NULL;
	journal.j_checkpoint_transactions = &new->t;
	return &new->t;
}

void checkpoint_add(u32 home)
{
	transaction_t *t = checkpoint_of_tail();

	container_of(t, struct checkpoint, t)->buffers++;
	homes[home].checkpoint = t;
	homes[home].dirty = true;
}

void checkpoint_remove(u32 home)
{
	struct checkpoint *from, *each, *before = NULL;

	if (!homes[home].checkpoint)
		return;
	from = container_of(homes[home].checkpoint, struct checkpoint, t);
	homes[home].checkpoint = NULL;
	homes[home].dirty = false;
	if (--from->buffers)
		return;
	each = container_of(journal.j_checkpoint_transactions,
			    struct checkpoint, t);
	for (; each != from; each = each->next)
		before = each;
	if (before)
		before->next = from->next;
	else
		journal.j_checkpoint_transactions =
			from->next ? &from->next->t : NULL;
	free(from);
}

/* What was written home is let go of: by a commit, or by the shrinker. */
void clean_checkpoint_list(void)
{
	u32 i;

	for (i = 0; i < nr_homes; i++)
		if (homes[i].checkpoint && !homes[i].dirty &&
		    !homes[i].in_running && !homes[i].in_committing &&
		    !homes[i].rev_running && !homes[i].rev_committing)
			checkpoint_remove(i);
}

int jbd2_log_do_checkpoint(journal_t *journal)
{
	transaction_t *t;
	u32 i;
	int ret = jbd2_cleanup_journal_tail(journal);

	if (ret <= 0)
		return ret;
	t = journal->j_checkpoint_transactions;
	for (i = 0; t && i < nr_homes; i++) {
		struct home *home = &homes[i];

		if (home->checkpoint != t)
			continue;
		if (home->in_running || home->in_committing ||
		    home->rev_running || home->rev_committing) {
			/* Stock waits for its commit; so must the caller. */
			return -EBUSY;
		}
		if (home->dirty)
			home_write(i, home->memory);
		home->dirty = false;
		stats.written_home++;
		checkpoint_remove(i);
		if (journal->j_checkpoint_transactions != t)
			break;
	}
	ret = jbd2_cleanup_journal_tail(journal);
	return min(ret, 0);
}

/* ------------------------------------------------------------------------- */
/* Transactions                                                               */

struct open_transaction *stock_running(void)
{
	u32 i;

	if (running)
		return running;
	for (i = 0; i < 2; i++)
		if (!transactions[i].open)
			running = &transactions[i];
	memset(running, 0, sizeof(*running));
	running->open = true;
	running->t.t_journal = &journal;
	running->t.t_tid = journal.j_transaction_sequence++;
	if (!journal.j_transaction_sequence)
		stats.tid_wraps++;
	INIT_LIST_HEAD(&running->revokes);
	atomic_set(&running->t.t_outstanding_credits,
		   journal.j_transaction_overhead_buffers);
	journal.j_running_transaction = &running->t;
	return running;
}

static u32 revoke_blocks(const struct open_transaction *t)
{
	return DIV_ROUND_UP(t->nr_revokes, revokes_per_block());
}

static void compute_credits(struct open_transaction *t)
{
	atomic_set(&t->t.t_outstanding_credits,
		   journal.j_transaction_overhead_buffers + t->nr_tags +
		   revoke_blocks(t));
	atomic_set(&t->t.t_outstanding_revokes, t->nr_revokes);
}

void stock_revoke(u32 home)
{
	struct open_transaction *t = stock_running();
	struct revoke *record = calloc(1, sizeof(*record));

	record->home = home_number(home);
	list_add_tail(&record->hash, &t->revokes);
	t->nr_revokes++;
	homes[home].rev_running = true;
}

bool stock_cancel_revoke(u32 home)
{
	struct list_head *each;

	list_for_each(each, &running->revokes) {
		struct revoke *record = container_of(each, struct revoke, hash);

		if (record->home != home_number(home))
			continue;
		list_del(each);
		free(record);
		running->nr_revokes--;
		homes[home].rev_running = false;
		return true;
	}
	return false;
}

bool jbd2_journal_find_revoke(journal_t *journal, unsigned long long home)
{
	return homes[home_of_number(home)].rev_running;
}

bool jbd2_journal_pop_revoke(struct list_head *list, unsigned long long *home)
{
	struct revoke *record;

	if (list_empty(list))
		return false;
	record = container_of(list->next, struct revoke, hash);
	*home = record->home;
	list_del(&record->hash);
	free(record);
	return true;
}

unsigned long long jbd2_journal_revoked(struct list_head *record)
{
	return container_of(record, struct revoke, hash)->home;
}

/* ------------------------------------------------------------------------- */
/* Commit                                                                     */

/* An error ends the journal before the commit block, or with it. */
static void write_at(u64 phys, const void *data, blk_opf_t flags)
{
	struct bio *bio = bio_alloc(journal.j_dev, 1, REQ_OP_WRITE | flags, 0);

	bio->bi_iter.bi_sector = phys * (BLOCK >> SECTOR_SHIFT);
	__bio_add_page(bio, virt_to_page(data), BLOCK, offset_in_page(data));
	if (submit_bio_wait(bio))
		jbd2_journal_abort(&journal, -EIO);
	bio_put(bio);
}

static void put_header(void *data, u32 type, tid_t tid)
{
	journal_header_t *header = data;

	memset(data, 0, BLOCK);
	header->h_magic = cpu_to_be32(JBD2_MAGIC_NUMBER);
	header->h_blocktype = cpu_to_be32(type);
	header->h_sequence = cpu_to_be32(tid);
}

static void put_tail_csum(void *data)
{
	struct jbd2_journal_block_tail *tail = data + BLOCK - sizeof(*tail);

	tail->t_checksum = 0;
	tail->t_checksum = cpu_to_be32(jbd2_chksum(&journal,
						   journal.j_csum_seed, data,
						   BLOCK));
}

static void write_revokes(struct open_transaction *t)
{
	u8 data[BLOCK] __attribute__((aligned(16)));
	jbd2_journal_revoke_header_t *header = (void *)data;
	u32 length = journal.has_64bit ? 8 : 4, at = 0, nr = 0;
	unsigned long long phys;

	while (!list_empty(&t->revokes)) {
		struct list_head *first = t->revokes.next;
		struct revoke *record = container_of(first, struct revoke,
						     hash);

		/* Records are let go of, and nothing is written. */
		if (is_journal_aborted(&journal)) {
			list_del(first);
			jbd2_lazy_keep_revoke(&journal, first);
			continue;
		}
		if (!at) {
			jbd2_journal_next_log_block(&journal, &phys);
			put_header(data, JBD2_REVOKE_BLOCK, t->t.t_tid);
			at = sizeof(*header);
		}
		if (length == 8)
			put_unaligned_be64(record->home, data + at);
		else
			put_unaligned_be32(record->home, data + at);
		at += length;
		t->revoked[nr++] = home_of_number(record->home);
		list_del(first);
		jbd2_lazy_keep_revoke(&journal, first);
		if (at + length > BLOCK - sizeof(struct jbd2_journal_block_tail) ||
		    list_empty(&t->revokes)) {
			header->r_count = cpu_to_be32(at);
			put_tail_csum(data);
			write_at(phys, data, 0);
			at = 0;
		}
	}
}

static void write_tags(struct open_transaction *t)
{
	u8 data[BLOCK] __attribute__((aligned(16)));
	u8 copy[BLOCK] __attribute__((aligned(16)));
	unsigned long long phys, at_phys;
	u32 i, at = 0;

	for (i = 0; i < t->nr_tags && !is_journal_aborted(&journal); i++) {
		struct home *home = &homes[t->tags[i]];
		u64 number = home_number(t->tags[i]);
		__be32 sequence = cpu_to_be32(t->t.t_tid);
		journal_block_tag3_t *tag;
		u32 flags = 0, csum;
		bool last;

		if (!at) {
			jbd2_journal_next_log_block(&journal, &phys);
			put_header(data, JBD2_DESCRIPTOR_BLOCK, t->t.t_tid);
			at = sizeof(journal_header_t);
		} else {
			flags |= JBD2_FLAG_SAME_UUID;
		}
		t->blks[i] = journal.j_head;
		jbd2_journal_next_log_block(&journal, &at_phys);
		copy_fill(copy, t->tags[i], home->memory);
		write_at(at_phys, copy, 0);
		csum = jbd2_chksum(&journal, journal.j_csum_seed, &sequence,
				   sizeof(sequence));
		csum = jbd2_chksum(&journal, csum, copy, BLOCK);
		if (version_escaped(home->memory))
			flags |= JBD2_FLAG_ESCAPE;
		tag = (void *)(data + at);
		tag->t_blocknr = cpu_to_be32(number);
		tag->t_blocknr_high = cpu_to_be32(number >> 32);
		tag->t_flags = cpu_to_be32(flags);
		tag->t_checksum = cpu_to_be32(csum);
		jbd2_lazy_note_tag(&journal, &t->t, (void *)tag);
		at += sizeof(*tag) + (flags & JBD2_FLAG_SAME_UUID ? 0 : 16);
		last = at + sizeof(*tag) + 16 +
		       sizeof(struct jbd2_journal_block_tail) > BLOCK;
		if (last || i + 1 == t->nr_tags) {
			tag->t_flags |= cpu_to_be32(JBD2_FLAG_LAST_TAG);
			put_tail_csum(data);
			write_at(phys, data, 0);
			at = 0;
		}
	}
}

static void write_commit_record(struct open_transaction *t)
{
	u8 data[BLOCK] __attribute__((aligned(16)));
	struct commit_header *commit = (void *)data;
	unsigned long long phys;

	jbd2_journal_next_log_block(&journal, &phys);
	put_header(data, JBD2_COMMIT_BLOCK, t->t.t_tid);
	commit->h_commit_sec = cpu_to_be64(1);
	jbd2_lazy_count(&journal, commit);
	commit->h_chksum[0] = cpu_to_be32(jbd2_chksum(&journal,
						      journal.j_csum_seed,
						      data, BLOCK));
	write_at(phys, data, REQ_PREFLUSH | REQ_FUA);
}

static void end_transaction(struct open_transaction *t)
{
	u32 i;

	for (i = 0; i < nr_homes; i++) {
		struct home *home = &homes[i];

		if (!home->in_committing && !home->rev_committing)
			continue;
		checkpoint_remove(i);
		committed_home(i);
		home->in_committing = false;
		home->rev_committing = false;
	}
	t->open = false;
	journal.j_commit_sequence = t->t.t_tid;
	journal.j_committing_transaction = NULL;
	committing = NULL;
}

/* @meanwhile: what the next transaction does at this time, and other threads. */
void stock_commit(void (*meanwhile)(int when))
{
	struct open_transaction *t = stock_running();
	unsigned long first_block = 0;
	tid_t first_tid = 0;
	bool update_tail;
	long freed;
	u32 i;

	jbd2_lazy_commit_begin(&journal);
	if (journal.j_flags & JBD2_FLUSHED) {
		mutex_lock_io(&journal.j_checkpoint_mutex);
		jbd2_journal_update_sb_log_tail(&journal,
						journal.j_tail_sequence,
						journal.j_tail, 0);
		mutex_unlock(&journal.j_checkpoint_mutex);
	}
	clean_checkpoint_list();
	for (i = 0; i < nr_homes; i++) {
		homes[i].revoked = false;
		homes[i].rev_committing = homes[i].rev_running;
		homes[i].rev_running = false;
		homes[i].in_committing = homes[i].in_running;
		homes[i].in_running = false;
	}
	compute_credits(t);
	jbd2_lazy_reserve(&journal, &t->t);
	committing = t;
	running = NULL;
	journal.j_committing_transaction = &t->t;
	journal.j_running_transaction = NULL;
	t->t.t_log_start = journal.j_head;

	write_revokes(t);
	write_tags(t);
	meanwhile(0);
	if (journal.j_lazy)
		jbd2_lazy_snapshot(&journal, &t->t);
	meanwhile(1);

	update_tail = jbd2_journal_get_log_tail(&journal, &first_tid,
						&first_block);
	if (update_tail) {
		freed = (long)first_block - (long)journal.j_tail;
		if (first_block < journal.j_tail)
			freed += journal.j_last - journal.j_first;
		if (freed < journal.j_max_transaction_buffers)
			update_tail = false;
	}
	if (!is_journal_aborted(&journal))
		write_commit_record(t);
	if (update_tail) {
		mutex_lock_io(&journal.j_checkpoint_mutex);
		if (tid_gt(first_tid, journal.j_tail_sequence))
			__jbd2_update_log_tail(&journal, first_tid,
					       first_block);
		mutex_unlock(&journal.j_checkpoint_mutex);
	}
	meanwhile(2);
	/* Somebody may hold it, and take long. */
	if (stock_mutex_busy)
		mutex_lock(&journal.j_checkpoint_mutex);
	jbd2_lazy_apply(&journal, &t->t);
	if (stock_mutex_busy)
		mutex_unlock(&journal.j_checkpoint_mutex);
	if (!is_journal_aborted(&journal))
		end_transaction(t);
	meanwhile(3);
}

/* ------------------------------------------------------------------------- */
/* Start and stop                                                             */

void stock_start(u32 slots, tid_t tid, bool has_64bit)
{
	memset(&journal, 0, sizeof(journal));
	memset(&superblock, 0, sizeof(superblock));
	memset(transactions, 0, sizeof(transactions));
	device.bytes = 1ull << 56;
	journal.j_total_len = slots + FIRST;
	journal.has_64bit = has_64bit;
	journal.j_csum_seed = 0x12345678;
	superblock.s_header.h_magic = cpu_to_be32(JBD2_MAGIC_NUMBER);
	superblock.s_blocksize = cpu_to_be32(BLOCK);
	superblock.s_maxlen = cpu_to_be32(journal.j_total_len);
	superblock.s_first = cpu_to_be32(FIRST);
	superblock.s_sequence = cpu_to_be32(tid);
	sb_write(&superblock, REQ_PREFLUSH | REQ_FUA);
}

/* As jbd2_lazy_start(), without what is for reads and for the cleaner. */
static int lazy_start(u32 kind)
{
	struct jbd2_lazy *lazy = kzalloc(sizeof(*lazy), GFP_KERNEL);
	int err = -ENOMEM;

	if (!lazy)
		return err;
	lazy->extents = disk_extents(kind, &lazy->nr_extents);
	err = jbd2_jmap_init(&lazy->map, journal.j_first, journal.j_last);
	if (err)
		goto free_lazy;
	lazy->journal = &journal;
	err = jbd2_lazy_snapshot_init(lazy);
	if (err) {
		jbd2_jmap_destroy(&lazy->map);
		goto free_lazy;
	}
	/* As a larger log has. */
	if (model_buffer) {
		free(lazy->snaps.buffer);
		lazy->snaps.buffer_blocks = model_buffer;
		lazy->snaps.buffer_bytes = PAGE_ALIGN(model_buffer * BLOCK);
		if (posix_memalign(&lazy->snaps.buffer, PAGE_SIZE,
				   lazy->snaps.buffer_bytes))
			abort();
	}
	INIT_LIST_HEAD(&lazy->revokes);
	spin_lock_init(&lazy->mark_lock);
	journal.j_lazy = lazy;
	if (journal.j_flags & JBD2_LOADED) {
		tid_t skipped = lazy->map.nr_slots;	/* lazy_skip_remains() */

		journal.j_tail_sequence += skipped;
		journal.j_transaction_sequence += skipped;
		journal.j_commit_sequence += skipped;
		journal.j_commit_request += skipped;
		journal.j_flags |= JBD2_FLUSHED;
		lazy->mark.known = journal.j_commit_sequence;
		lazy->sealed = journal.j_commit_sequence - 1;
		jbd2_jmap_apply_end(&lazy->map, journal.j_head);
	}
	return 0;

free_lazy:
	free(lazy->extents);
	free(lazy);
	return err;
}

/* Forget the mount; nothing is written. */
void stock_unload(void)
{
	struct jbd2_lazy *lazy = journal.j_lazy;
	unsigned long long home;
	u32 i;

	for (i = 0; i < nr_homes; i++)
		checkpoint_remove(i);
	for (i = 0; i < 2; i++)
		if (transactions[i].open)
			while (jbd2_journal_pop_revoke(&transactions[i].revokes,
						       &home))
				;
	memset(transactions, 0, sizeof(transactions));
	running = NULL;
	committing = NULL;
	if (!lazy)
		return;
	while (jbd2_journal_pop_revoke(&lazy->revokes, &home))
		;
	jbd2_lazy_forget_mount(lazy);
	jbd2_lazy_snapshot_destroy(lazy);
	jbd2_jmap_destroy(&lazy->map);
	free(lazy->extents);
	free(lazy);
	journal.j_lazy = NULL;
}

static void load_superblock(void)
{
	superblock = *sb_read();
	journal.j_superblock = &superblock;
	journal.j_flags = JBD2_BARRIER;
	journal.j_errno = 0;
	mutex_init(&journal.j_checkpoint_mutex);
	rwlock_init(&journal.j_state_lock);
	spin_lock_init(&journal.j_list_lock);
	journal.j_running_transaction = NULL;
	journal.j_committing_transaction = NULL;
	journal.j_checkpoint_transactions = NULL;
	journal.j_first = be32_to_cpu(superblock.s_first);
	journal.j_last = be32_to_cpu(superblock.s_maxlen);
	journal.j_tail_sequence = be32_to_cpu(superblock.s_sequence);
	journal.j_tail = be32_to_cpu(superblock.s_start);
	journal.j_dev = &device;
	journal.j_fs_dev = &device;
	journal.j_blocksize = BLOCK;
	strcpy(journal.j_devname, "model");
	compute_limits();
}

/* As the end of jbd2_journal_destroy(). */
void stock_mark_empty(void)
{
	journal.j_tail_sequence = ++journal.j_transaction_sequence;
	mark_journal_empty(REQ_PREFLUSH | REQ_FUA);
}

/*
 * Mount: take the log over, or let stock recovery (@replay, which returns the
 * last transaction) empty it and begin anew.
 */
int stock_mount_with(u32 kind, bool lazily, tid_t (*replay)(void))
{
	unsigned int nr;
	int err;

	load_superblock();
	free(disk_extents(kind, &nr));
	if (lazily && jbd2_lazy_log_kept(&journal)) {
		err = lazy_start(kind);
		if (!err)
			err = __jbd2_lazy_recover(&journal);
		if (!err)
			err = __jbd2_lazy_reset(&journal);
		journal.j_flags |= JBD2_LOADED;
		return err;
	}
	journal.j_transaction_sequence = be32_to_cpu(superblock.s_sequence);
	if (superblock.s_start) {
		journal.j_transaction_sequence = replay() + 1;
		disk_flush();
		stats.stock_replays++;
	}
	journal.j_head = journal.j_first;
	journal.j_tail = journal.j_head;
	journal.j_free = journal.j_last - journal.j_first;
	journal.j_tail_sequence = journal.j_transaction_sequence;
	journal.j_commit_sequence = journal.j_transaction_sequence - 1;
	journal.j_commit_request = journal.j_commit_sequence;
	journal.j_flags |= JBD2_LOADED;
	if (superblock.s_start) {
		mutex_lock(&journal.j_checkpoint_mutex);
		jbd2_journal_update_sb_log_tail(&journal,
						journal.j_tail_sequence,
						journal.j_tail, REQ_FUA);
		mutex_unlock(&journal.j_checkpoint_mutex);
	} else {
		journal.j_flags |= JBD2_FLUSHED;
	}
	if (lazily)
		return lazy_start(kind);
	/* Stock unmounts at once. */
	stock_mark_empty();
	return 0;
}

/* As the end of jbd2_journal_flush(). */
void stock_empty(void)
{
	mutex_lock(&journal.j_checkpoint_mutex);
	jbd2_cleanup_journal_tail(&journal);
	J_ASSERT(journal.j_head == journal.j_tail || is_journal_aborted(&journal));
	mark_journal_empty(REQ_PREFLUSH | REQ_FUA);
	mutex_unlock(&journal.j_checkpoint_mutex);
}
