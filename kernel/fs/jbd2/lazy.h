/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of lazy writeback journaling share: lazy.c (reads, commit,
 * demotion), lazy_mount.c (from one mount to the next), lazy_clean.c (the
 * cleaner).
 */
#ifndef _FS_JBD2_LAZY_H
#define _FS_JBD2_LAZY_H

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

struct jbd2_lazy {
	journal_t *journal;
	struct address_space *mapping;	/* of j_fs_dev */
	struct jmap map;
	struct jbd2_log_extent *extents;
	unsigned int nr_extents;
	struct list_head revokes;	/* written by the committing transaction
					 * [commit thread only]
					 */
	struct lazy_item *batch;	/* [j_checkpoint_mutex] */
	unsigned int batch_len;
	struct hlist_node node;		/* in lazy_list [lazy_mutex, RCU] */
	refcount_t refs;		/* mount, and readers of the device */
	struct completion unused;
	struct rcu_head rcu;

	unsigned long last_read;	/* log block that was read last, a hint
					 * [none]
					 */
	atomic64_t inserted, dropped, demoted, emergency, log_reads;

	/* lazy_mount.c */
	bool recovered;			/* the log was kept by the last mount
					 * [set before load]
					 */
	unsigned long scanned;		/* log blocks scanned [load] */
	unsigned long scan_start;	/* first block of the transaction that
					 * is scanned [load]
					 */
	int scan_error;			/* [load] */
	u64 rebuilt;			/* live blocks found at mount */
	struct buffer_head *tombstone;	/* to be written before the first
					 * commit, or NULL [commit thread]
					 */
	unsigned long tombstone_blk;	/* its log block */
	tid_t tombstone_tid;
	tid_t sealed;			/* newest transaction that the journal
					 * superblock knows [j_checkpoint_mutex]
					 */

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
unsigned long lazy_next_log_blk(journal_t *journal, unsigned long blk);
u64 lazy_phys(struct jbd2_lazy *lazy, unsigned long log_blk);
int lazy_refresh(struct jbd2_lazy *lazy);
int lazy_cmp_home(const void *a, const void *b);
int lazy_fetch(struct jbd2_lazy *lazy, struct lazy_item *items,
	       unsigned int n);
int lazy_demote(struct jbd2_lazy *lazy, struct lazy_item *items,
		unsigned int n, unsigned int *busy);
int lazy_checkpoint(journal_t *journal);
void lazy_debug_delay(void);

/* lazy_mount.c */
void lazy_mark(journal_superblock_t *sb, tid_t known);
bool lazy_marked(const journal_superblock_t *sb, tid_t *known);
void lazy_forget_mount(struct jbd2_lazy *lazy);

/* lazy_clean.c */
int lazy_clean_init(struct jbd2_lazy *lazy);
void lazy_clean_start(struct jbd2_lazy *lazy);
void lazy_clean_destroy(struct jbd2_lazy *lazy);
size_t lazy_clean_bytes(struct jbd2_lazy *lazy);
bool lazy_clean_wait(struct jbd2_lazy *lazy);
void lazy_clean_after_commit(struct jbd2_lazy *lazy, u32 blocks);

#endif /* _FS_JBD2_LAZY_H */
