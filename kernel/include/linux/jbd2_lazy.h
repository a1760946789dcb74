/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lazy writeback journaling: the hooks of jbd2 and of its file system.
 * See fs/jbd2/lazy.c.  A journal without it has j_lazy == NULL, and each hook
 * is then one test.  A kernel without it tests for a constant NULL, and the
 * compiler leaves the hooks out.
 */
#ifndef _LINUX_JBD2_LAZY_H
#define _LINUX_JBD2_LAZY_H

#include <linux/jbd2.h>

struct jbd2_lazy;

/* A run of log blocks that is contiguous on the journal device. */
struct jbd2_log_extent {
	u64 phys;		/* first block on j_dev, in journal blocks */
	u32 log;		/* first block in the log */
};

struct jbd2_lazy_stats {
	u64 live_blocks;	/* home blocks whose newest copy is in the log */
	u64 log_blocks;		/* blocks of the log */
	u64 log_used;		/* of these, from the tail to the head */
	u64 memory_bytes;
	u64 relogged;		/* copies that the cleaner wrote again */
	u64 swept;		/* blocks that the cleaner sent home */
	u64 emergency;		/* blocks sent home because the log was full */
	u64 damaged_blocks;	/* log blocks that were found damaged */
	/* the rest with CONFIG_JBD2_LAZY_DEBUG only */
	u64 inserted;		/* copies put into the map */
	u64 dropped;		/* by a revoke */
	u64 demoted;		/* sent home, by whomever */
	u64 log_reads;		/* reads served from the log */
	u64 rebuilt;		/* live blocks that the mount found in the log */
	u64 logged_blocks;	/* log blocks written since the mount */
	u64 snapshot_blocks;	/* of these, for snapshots of the map */
	u64 snapshots;		/* how many, that were committed */
	u64 mount_blocks;	/* log blocks that the mount read */
	u64 mount_snapshots;	/* 1 if it used a snapshot */
	u64 scrubbed_blocks;	/* log blocks that were read to be checked */
	u64 damage_left;	/* 1 if the tail has to pass damage */
};

/* How the cleaner works; see fs/jbd2/lazy_clean.c. */
enum jbd2_lazy_policy {
	JBD2_LAZY_WATERMARKS,
	JBD2_LAZY_FIXED,
	JBD2_LAZY_OFF,
};

static inline struct jbd2_lazy *jbd2_lazy(journal_t *journal)
{
	return IS_ENABLED(CONFIG_JBD2_LAZY) ? journal->j_lazy : NULL;
}

int jbd2_lazy_start(journal_t *journal, struct jbd2_log_extent *extents,
		    unsigned int nr_extents);
void jbd2_lazy_stop(journal_t *journal);
u64 jbd2_lazy_digest(journal_t *journal);
void jbd2_lazy_closing(journal_t *journal);
const char *jbd2_lazy_policy(journal_t *journal);
int jbd2_lazy_set_policy(journal_t *journal, const char *name);
bool jbd2_lazy_log_kept(journal_t *journal);
bool jbd2_lazy_log_gone(journal_t *journal);
void jbd2_lazy_stats(journal_t *journal, struct jbd2_lazy_stats *stats);
int jbd2_lazy_refresh(journal_t *journal, struct buffer_head **bhs,
		      unsigned int n);
int jbd2_lazy_demote_now(journal_t *journal, u32 span);
int jbd2_lazy_relog_now(journal_t *journal, u32 span);
int jbd2_lazy_scrub(journal_t *journal);
void jbd2_lazy_pass_damage(journal_t *journal);

/* Called by jbd2 itself, or from below. */
unsigned long __jbd2_lazy_log_block(journal_t *journal, u64 home);
bool __jbd2_lazy_newest(journal_t *journal, struct buffer_head *bh);
void __jbd2_lazy_filed(journal_t *journal, struct buffer_head *bh);
void __jbd2_lazy_note_tag(journal_t *journal, transaction_t *transaction,
			  const journal_block_tag_t *tag);
void __jbd2_lazy_apply(journal_t *journal, transaction_t *transaction);
void __jbd2_lazy_hold(struct journal_head *jh);
void __jbd2_lazy_revoking(journal_t *journal, u64 home, bool revoking);
void __jbd2_lazy_keep_revoke(journal_t *journal, struct list_head *record);
void __jbd2_lazy_count(journal_t *journal, struct commit_header *commit);
bool __jbd2_lazy_oldest(journal_t *journal, tid_t *tid, unsigned long *block);
int __jbd2_lazy_demote_tail(journal_t *journal, int nblocks, tid_t *tid,
			    bool *wait);
int __jbd2_lazy_drain(journal_t *journal);
int __jbd2_lazy_room(journal_t *journal);
int __jbd2_lazy_recover(journal_t *journal);
void __jbd2_lazy_reserve(journal_t *journal, transaction_t *transaction);
void __jbd2_lazy_snapshot(journal_t *journal, transaction_t *transaction);
int __jbd2_lazy_reset(journal_t *journal);
void __jbd2_lazy_commit_begin(journal_t *journal);
void __jbd2_lazy_stamp(journal_t *journal);
int __jbd2_lazy_seal(journal_t *journal);
void __jbd2_lazy_quiesce(journal_t *journal);
void __jbd2_lazy_pause(journal_t *journal);
void __jbd2_lazy_unpause(journal_t *journal);

/*
 * Whether a buffer that is up to date holds the newest contents of its block;
 * @journal may be NULL.
 */
static inline bool jbd2_lazy_newest(journal_t *journal, struct buffer_head *bh)
{
	return buffer_newest(bh) || !journal || !jbd2_lazy(journal) ||
	       __jbd2_lazy_newest(journal, bh);
}

/* The log block of the newest committed copy of a block, or 0. */
static inline unsigned long jbd2_lazy_log_block(journal_t *journal, u64 home)
{
	return jbd2_lazy(journal) ? __jbd2_lazy_log_block(journal, home) : 0;
}

void __jbd2_lazy_submit_read(journal_t *journal, struct buffer_head *bh,
			     blk_opf_t opf);

/*
 * submit_bh() for a read of a metadata block: reads the newest committed copy,
 * be it at home or in the log.  The buffer is locked and has its b_end_io;
 * @journal may be NULL.
 */
static inline void jbd2_lazy_submit_read(journal_t *journal,
					 struct buffer_head *bh, blk_opf_t opf)
{
	if (journal && jbd2_lazy(journal))
		__jbd2_lazy_submit_read(journal, bh, opf);
	else
		submit_bh(opf, bh);
}

/* A transaction takes a buffer. */
static inline void jbd2_lazy_filed(journal_t *journal, struct buffer_head *bh)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_filed(journal, bh);
}

/* One copy of a metadata block is in the log (commit thread). */
static inline void jbd2_lazy_note_tag(journal_t *journal,
				      transaction_t *transaction,
				      const journal_block_tag_t *tag)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_note_tag(journal, transaction, tag);
}

/* The transaction's commit record is durable, or the journal is aborted. */
static inline void jbd2_lazy_apply(journal_t *journal,
				   transaction_t *transaction)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_apply(journal, transaction);
}

/* Whether a committed buffer may become clean without going home. */
static inline bool jbd2_lazy_hold(journal_t *journal, struct journal_head *jh)
{
	if (!jbd2_lazy(journal) || is_journal_aborted(journal))
		return false;
	__jbd2_lazy_hold(jh);
	return true;
}

/* A revoke of @home begins in, or is taken back from, the running transaction. */
static inline void jbd2_lazy_revoking(journal_t *journal, u64 home,
				      bool revoking)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_revoking(journal, home, revoking);
}

/* Takes over a revoke record that was written; true if it did. */
static inline bool jbd2_lazy_keep_revoke(journal_t *journal,
					 struct list_head *record)
{
	if (!jbd2_lazy(journal))
		return false;
	__jbd2_lazy_keep_revoke(journal, record);
	return true;
}

/* The commit block is filled in, but for its checksum. */
static inline void jbd2_lazy_count(journal_t *journal,
				   struct commit_header *commit)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_count(journal, commit);
}

/* Moves the tail (@tid, @block) back to what the map still needs. */
static inline void jbd2_lazy_oldest(journal_t *journal, tid_t *tid,
				    unsigned long *block)
{
	tid_t lazy_tid;
	unsigned long lazy_block;

	if (jbd2_lazy(journal) &&
	    __jbd2_lazy_oldest(journal, &lazy_tid, &lazy_block) &&
	    tid_gt(*tid, lazy_tid)) {
		*tid = lazy_tid;
		*block = lazy_block;
	}
}

/*
 * A handle wants @nblocks of the log, and they are not free: send the oldest
 * copies home, by way of the checkpoint list.  Returns how many; if none could
 * go because a transaction holds them, sets @wait and the @tid whose commit
 * frees them.
 */
static inline int jbd2_lazy_demote_tail(journal_t *journal, int nblocks,
					tid_t *tid, bool *wait)
{
	return jbd2_lazy(journal) ?
		__jbd2_lazy_demote_tail(journal, nblocks, tid, wait) : 0;
}

/* Send everything home; no handle is open and none can start. */
static inline int jbd2_lazy_drain(journal_t *journal)
{
	return jbd2_lazy(journal) ? __jbd2_lazy_drain(journal) : 0;
}

/* The last handle of the transaction is closed; the next one has none yet. */
static inline void jbd2_lazy_reserve(journal_t *journal,
				     transaction_t *transaction)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_reserve(journal, transaction);
}

/* Every tag and revoke of the transaction is written. */
static inline void jbd2_lazy_snapshot(journal_t *journal,
				      transaction_t *transaction)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_snapshot(journal, transaction);
}

/* Before a commit writes anything. */
static inline void jbd2_lazy_commit_begin(journal_t *journal)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_commit_begin(journal);
}

/* The journal superblock is about to be written. */
static inline void jbd2_lazy_stamp(journal_t *journal)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_stamp(journal);
}

/* Leave the log to the next mount.  Returns 1 if it is kept. */
static inline int jbd2_lazy_seal(journal_t *journal)
{
	return jbd2_lazy(journal) ? __jbd2_lazy_seal(journal) : 0;
}

/* The journal is about to be destroyed. */
static inline void jbd2_lazy_quiesce(journal_t *journal)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_quiesce(journal);
}

/* Updates are about to be locked out. */
static inline void jbd2_lazy_pause(journal_t *journal)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_pause(journal);
}

/* Updates are no longer locked out. */
static inline void jbd2_lazy_unpause(journal_t *journal)
{
	if (jbd2_lazy(journal))
		__jbd2_lazy_unpause(journal);
}

/*
 * The most blocks of a transaction, of which stock jbd2 allows @most, a third
 * of the log.  So much is always kept free, and would be lost to the map.  A
 * sixteenth, but no less than an online resize may ask for at once: 1,024
 * reserved descriptor blocks and a few more; and no more than 192 MiB of 4 KiB
 * blocks, because a mount after a crash has to read one that was cut off.
 */
static inline int jbd2_lazy_max_transaction(journal_t *journal, int most)
{
	return jbd2_lazy(journal) ?
		min(most, clamp(most / 16 * 3, 1280, 49152)) : most;
}

/* Free log blocks that a handle wants to see before it starts. */
static inline int jbd2_lazy_room(journal_t *journal)
{
	return jbd2_lazy(journal) ? __jbd2_lazy_room(journal) :
				 journal->j_max_transaction_buffers;
}

#endif /* _LINUX_JBD2_LAZY_H */
