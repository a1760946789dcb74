/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of lazy writeback journaling share: lazy.c (commit, start and
 * stop), lazy_read.c (reads), lazy_demote.c (the way home), lazy_mount.c (from
 * one mount to the next), lazy_scan.c (reading the log), lazy_snapshot.c (so
 * that little of it need be read), lazy_clean.c (the cleaner), lazy_scrub.c
 * (damage).
 */
#ifndef _FS_JBD2_LAZY_H
#define _FS_JBD2_LAZY_H

#include <linux/bio.h>
#include <linux/completion.h>
#include <linux/jbd2.h>
#include <linux/jbd2_lazy.h>
#include "jmap.h"

/* A block on its way home. */
struct lazy_item {
	u64 home;
	unsigned long log_blk;
	struct buffer_head *bh;
};

/* What a descriptor says of a copy. */
struct lazy_tag {
	u64 home;
	u32 flags;
	u32 csum;
};

/* A snapshot in the log; blocks is 0 if there is none. */
struct snap_ref {
	u32 log_blk;
	u32 blocks;
	tid_t tid;		/* the transaction that it is part of */
	u32 start;		/* the log block where that begins */
	u64 digest;		/* of the map (jbd2_jmap_digest_of()) */
};

/* What the marker in the journal superblock says. */
struct lazy_mark {
	tid_t known;		/* a transaction that is durable */
	u32 end;		/* the log block behind it */
	struct snap_ref snapshot;	/* the newest, of @known or before it */
};

/* lazy_snapshot.c [commit thread, load] */
struct lazy_snapshots {
	u32 period;		/* log blocks from one to the next */
	u32 since;		/* log blocks that a mount would scan */
	bool closing;		/* one is due soon [none] */
	bool urgent;		/* one is due at once [none] */
	bool unmarked;		/* the marker points at an older one */
	u32 reserved;		/* blocks, or 0 for no snapshot */
	struct snap_ref fresh;	/* written, not yet committed */

	void *buffer;
	u32 buffer_blocks;
	size_t buffer_bytes;
	atomic_t pending;	/* writes */
	bool failed;
	struct completion done;

	atomic64_t logged, written, count;	/* since the mount */
};

/* lazy_scrub.c [clean_mutex, or load] */
struct lazy_scrub {
	struct log_reader *reader;	/* while it runs */
	void *descriptor;	/* a block, while it runs */
	bool placed;		/* tid and blk are where it goes on */
	tid_t tid;
	unsigned long blk;
	u32 left;		/* log blocks from blk to the head */
	bool whole;		/* all of the log, or a burst */
	u32 burst;		/* log blocks that are left of it */
	bool used;		/* something was committed since [none] */
	unsigned long next;	/* the next burst, in jiffies */
	unsigned int asked;	/* to scrub all [clean_lock] */
	unsigned int serving, served;	/* of these [clean_done] */
	int err;
	unsigned long bad;	/* the newest damaged log block that the tail
				 * has to pass, or 0
				 */
	atomic64_t blocks, damaged;
};

struct jbd2_lazy {
	journal_t *journal;
	struct jmap map;
	u64 homes;			/* blocks of j_fs_dev [load] */
	struct jbd2_log_extent *extents;
	unsigned int nr_extents;
	/* Of the committing transaction [commit thread only]. */
	struct list_head revokes;	/* written */
	u32 copies, revoked;		/* that it holds */
	struct lazy_item *batch;	/* [j_checkpoint_mutex] */
	unsigned int batch_len;

	/* lazy_read.c */
	struct bio_set reads;
	refcount_t refs;		/* mount, and reads of copies */
	struct completion unused;
	unsigned long last_read;	/* log block that was read last, or 0;
					 * a hint [none]
					 */
	atomic64_t inserted, dropped, demoted, emergency, log_reads;

	/* lazy_mount.c */
	unsigned long scanned;		/* log blocks from the tail on that hold
					 * transactions [load]
					 */
	unsigned long scan_start;	/* the log block behind them [load] */
	tid_t scan_tid;			/* the first that is not there [load] */
	spinlock_t mark_lock;		/* leaf */
	struct lazy_mark mark;		/* of all that is durable [mark_lock,
					 * load]
					 */
	u64 scan_blocks;		/* log blocks that were read [load] */
	u32 loaded;			/* snapshots that were read [load] */
	u32 lost;			/* copies that damage cost [load] */
	u64 rebuilt;			/* live blocks found at mount */
	struct buffer_head *tombstone;	/* to be written before the first
					 * commit, or NULL [commit thread]
					 */
	tid_t sealed;			/* newest transaction that the journal
					 * superblock knows [j_checkpoint_mutex]
					 */

	struct lazy_snapshots snaps;
	struct lazy_scrub scrub;

	/* lazy_clean.c */
	struct task_struct *cleaner;	/* or NULL */
	wait_queue_head_t clean_wait;
	bool clean_wanted;		/* [clean_wait] */
	wait_queue_head_t clean_done;	/* for the end of a step */
	unsigned long steps;		/* that ended [clean_done] */
	atomic_t waiters;		/* handles that wait for a step */
	struct mutex clean_mutex;	/* a step of the cleaner */
	spinlock_t clean_lock;		/* leaf */
	unsigned int clean_locks;	/* lock_updates() in effect
					 * [clean_lock]
					 */
	bool clean_paused;		/* no step begins; set before waiting
					 * for clean_mutex [clean_lock]
					 */
	enum jbd2_lazy_policy policy;	/* [clean_mutex] */
	struct lazy_item *clean_batch;	/* [clean_mutex] */
	unsigned int clean_batch_len;
	unsigned int commits;		/* since the last fixed cleaning */
	unsigned long last_commit;	/* when, in jiffies */
	bool clean_starved;		/* no transaction to join
					 * [clean_mutex]
					 */
	u64 sweep_from;			/* home block at which the next sweep
					 * begins [clean_mutex]
					 */
	atomic64_t relogged, swept;
};

/* lazy.c */
void jbd2_lazy_debug_delay(void);

/* lazy_read.c */
int jbd2_lazy_read_init(struct jbd2_lazy *lazy);
void jbd2_lazy_read_destroy(struct jbd2_lazy *lazy);
unsigned long jbd2_lazy_next_log_blk(journal_t *journal, unsigned long blk);
unsigned long jbd2_lazy_prev_log_blk(journal_t *journal, unsigned long blk);
unsigned long jbd2_lazy_log_distance(journal_t *journal, unsigned long from,
				     unsigned long to);
unsigned int jbd2_lazy_near(journal_t *journal, unsigned long *blk);
u64 jbd2_lazy_phys(struct jbd2_lazy *lazy, unsigned long log_blk);
void jbd2_lazy_tag_get(journal_t *journal, const journal_block_tag_t *tag,
		       struct lazy_tag *what);
u32 jbd2_lazy_csum(journal_t *journal, const void *data);
u32 jbd2_lazy_csum_of_tag(journal_t *journal, tid_t tid, u32 csum);
bool jbd2_lazy_trusts(struct jbd2_lazy *lazy, struct buffer_head *bh);
void jbd2_lazy_trust_nothing(struct jbd2_lazy *lazy);
int jbd2_lazy_cmp_log(const void *a, const void *b);
int jbd2_lazy_fetch(struct jbd2_lazy *lazy, struct lazy_item *items,
		    unsigned int n);
int jbd2_lazy_read_again(struct jbd2_lazy *lazy, struct lazy_item *item);

/* lazy_demote.c */
int jbd2_lazy_demote_init(struct jbd2_lazy *lazy);
int jbd2_lazy_cmp_home(const void *a, const void *b);
unsigned int jbd2_lazy_batch_max(void);
int jbd2_lazy_demote(struct jbd2_lazy *lazy, struct lazy_item *items,
		     unsigned int n, unsigned int *busy);
int jbd2_lazy_checkpoint(journal_t *journal);

/* lazy_mount.c */
void jbd2_lazy_mark(journal_superblock_t *sb, const struct lazy_mark *mark);
bool jbd2_lazy_marked(const journal_superblock_t *sb, struct lazy_mark *mark);
void jbd2_lazy_durable(struct jbd2_lazy *lazy, tid_t tid, unsigned long end);
void jbd2_lazy_forget_mount(struct jbd2_lazy *lazy);

/* lazy_scan.c */
struct log_reader;

bool jbd2_lazy_tag_next(journal_t *journal, const void *data, u32 *at,
			struct lazy_tag *what);
bool jbd2_lazy_block_valid(journal_t *journal, void *data, tid_t *tid);

struct log_reader *jbd2_lazy_reader_alloc(struct jbd2_lazy *lazy);
void jbd2_lazy_reader_free(struct log_reader *reader);
void jbd2_lazy_reader_seek(struct log_reader *reader, unsigned long log_blk,
			   u32 nr);
void *jbd2_lazy_reader_next(struct log_reader *reader, u32 wanted);
bool jbd2_lazy_tail_csum_ok(journal_t *journal, void *data);
int jbd2_lazy_scan(struct jbd2_lazy *lazy, struct log_reader *reader,
		   bool load);

/* lazy_snapshot.c */
enum snap_kind {
	SNAP_COPY,		/* a slot holds a copy of a home block */
	SNAP_ESCAPED,		/* the same, JMAP_ESCAPED */
	SNAP_MARK,		/* a transaction begins at a slot */
	SNAP_SKIP,		/* slots, more than fit into a gap */
};

/* A block of a snapshot that is written or read. */
struct snap_block {
	void *data;
	u32 nr_slots;
	u32 slot;		/* that the last record was of */
	u32 records;		/* written, or read */
	u32 most;		/* that fit, or that are there */
};

void jbd2_snap_block_init(struct snap_block *block, void *data, u32 size,
			  u32 nr_slots, tid_t tid, u32 index, u32 slot);
bool jbd2_snap_put(struct snap_block *block, enum snap_kind kind, u32 slot,
		   u64 value, u32 csum);
bool jbd2_snap_block_open(struct snap_block *block, void *data, u32 size,
			  u32 nr_slots, tid_t tid, u32 index);
int jbd2_snap_get(struct snap_block *block, enum snap_kind *kind, u32 *slot,
		  u64 *value, u32 *csum);

int jbd2_lazy_snapshot_init(struct jbd2_lazy *lazy);
void jbd2_lazy_snapshot_destroy(struct jbd2_lazy *lazy);
void jbd2_lazy_snapshot_committed(struct jbd2_lazy *lazy, u32 blocks);
bool jbd2_lazy_snapshot_usable(struct jbd2_lazy *lazy);
bool jbd2_lazy_snapshot_take(struct jbd2_lazy *lazy, u32 index, void *data,
			     u64 *digest);
void jbd2_lazy_snapshot_loaded(struct jbd2_lazy *lazy);

/* lazy_clean.c */
int jbd2_lazy_clean_init(struct jbd2_lazy *lazy);
void jbd2_lazy_clean_start(struct jbd2_lazy *lazy);
void jbd2_lazy_clean_destroy(struct jbd2_lazy *lazy);
size_t jbd2_lazy_clean_bytes(struct jbd2_lazy *lazy);
bool jbd2_lazy_clean_wait(struct jbd2_lazy *lazy);
void jbd2_lazy_clean_after_commit(struct jbd2_lazy *lazy, u32 blocks);
void jbd2_lazy_clean_wake(struct jbd2_lazy *lazy);
int jbd2_lazy_clean_relog_span(struct jbd2_lazy *lazy, u32 span);

/* lazy_scrub.c */
#define LAZY_SCRUB_PAUSE	(30 * 60 * HZ)

void jbd2_lazy_damaged(struct jbd2_lazy *lazy, unsigned long log_blk);
bool jbd2_lazy_damage_left(struct jbd2_lazy *lazy);
bool jbd2_lazy_scrub_due(struct jbd2_lazy *lazy);
bool jbd2_lazy_scrub_busy(struct jbd2_lazy *lazy);
bool jbd2_lazy_scrub_after_commit(struct jbd2_lazy *lazy);
void jbd2_lazy_scrub_step(struct jbd2_lazy *lazy, bool idle);
void jbd2_lazy_scrub_end(struct jbd2_lazy *lazy);

#endif /* _FS_JBD2_LAZY_H */
