/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the model test: disk.c (a disk with a write cache that forgets),
 * stock.c (the part of jbd2 that the files under test work with), history.c
 * (histories, and what must be true after each step).
 */
#ifndef MODEL_H
#define MODEL_H

#include "kernel.h"
#include <linux/jbd2.h>
#include <linux/jbd2_lazy.h>
#include "lazy.h"

/* Small, so that a snapshot of a small log has several blocks. */
#define BLOCK 512
#define HOMES_MOST 512U
#define SLOTS_MOST 2048U
#define TAGS_MOST 700U
/* Log block 0 is the journal superblock. */
#define FIRST 1UL

/* What was reached; a number that stays 0 over all histories is a fault. */
#define STATISTICS(each)						\
	each(transactions) each(copies) each(superseded) each(revokes)	\
	each(superseded_then_revoked) each(tagged_and_revoked)		\
	each(revoked_while_committing) each(revokes_cancelled)		\
	each(escaped) each(relogged) each(demoted) each(written_home)	\
	each(demoted_not_durable) each(reused_for_files)		\
	each(reused_for_metadata) each(tail_moves) each(wraps)		\
	each(tid_wraps) each(snapshots_written) each(snapshot_blocks)	\
	each(snapshots_read) each(snapshots_refused)			\
	each(crashes_before_marker) each(full_scans)		\
	each(clean_mounts) each(crash_mounts) each(crashes_in_commit)	\
	each(crashes_in_snapshot) each(lost_writes) each(torn_writes)	\
	each(remains) each(seals) each(drains) each(stock_replays)	\
	each(aborts) each(damaged_snapshots) each(damaged_copies)	\
	each(damage_passed) each(damage_bridged) each(damage_refused) each(holes_refused) \
	each(mounts_without_memory) each(read_only_mounts)		\
	each(log_full) each(write_errors)

struct statistics {
#define FIELD(name) u64 name;
	STATISTICS(FIELD)
#undef FIELD
};

extern struct statistics stats;
extern bool failed, verbose;

/* Numbers that the source has as constants; build.py makes variables of them. */
extern u32 model_period_part, model_closing_blocks, model_reader_bytes;
extern u32 model_reader_first, model_advance, model_stretch, model_gap_bits;
extern u32 model_buffer;

/* --- disk.c --- */

void disk_start(u32 slots, u32 homes);
void disk_stop(void);
/* Everything from the nth write or flush on is lost; 0: none. */
void disk_cut_after(u32 nth);
bool disk_is_cut(void);
/* The nth write to the log from here on is an error. */
void disk_fail_write(u32 nth, bool though_written);
bool disk_had_error(void);	/* since the power came */
/* The power comes back: which writes of the cache were done? */
void disk_crash(u32 luck);
u8 *disk_block(unsigned long log_blk);	/* as it would be read */
void disk_damage(unsigned long log_blk, u32 how);	/* until it is written */
void disk_restore(unsigned long log_blk, const u8 *data);
void home_write(u32 home, u32 version);
u32 home_read(u32 home);
bool home_durable(u32 home, u32 version);
void sb_write(const journal_superblock_t *sb, blk_opf_t opf);
const journal_superblock_t *sb_read(void);
void disk_flush(void);
u64 disk_phys(unsigned long log_blk);
struct jbd2_log_extent *disk_extents(u32 kind, unsigned int *nr);
u32 disk_remains(tid_t tid);
void alloc_fail_at(u32 nth);
u32 alloc_count(void);
/* Called for each block of the log that is written while there is power. */
void on_log_write(unsigned long log_blk, const u8 *data, blk_opf_t opf);
/* All that was written is durable. */
void on_flush(void);

/* --- stock.c --- */

struct revoke {
	struct list_head hash;
	u64 home;
};

/* A transaction as the file system makes it. */
struct open_transaction {
	transaction_t t;
	bool open;
	u32 tags[TAGS_MOST], nr_tags;	/* homes */
	u32 blks[TAGS_MOST];		/* where in the log they are */
	struct list_head revokes;
	u32 nr_revokes;
	u32 revoked[TAGS_MOST];		/* homes */
	bool has_snapshot;
};

extern journal_t journal;
extern struct block_device device;
extern struct open_transaction *running, *committing;
extern bool stock_mutex_busy;

void stock_start(u32 slots, tid_t tid, bool has_64bit);
int stock_mount_with(u32 kind, bool lazily, tid_t (*replay)(void));
void stock_unload(void);
struct open_transaction *stock_running(void);
void stock_revoke(u32 home);
bool stock_cancel_revoke(u32 home);
void stock_commit(void (*meanwhile)(int when));
int jbd2_cleanup_journal_tail(journal_t *journal);
void stock_empty(void);
void stock_mark_empty(void);
long stock_space_left(void);
transaction_t *checkpoint_of_tail(void);
void checkpoint_add(u32 home);
void checkpoint_remove(u32 home);
void clean_checkpoint_list(void);

/* --- history.c, asked by stock.c --- */

struct home {
	u8 kind;
	bool in_running, in_committing;
	bool revoked;			/* BH_Revoked */
	bool rev_running, rev_committing;
	bool dirty;			/* and on a checkpoint list */
	transaction_t *checkpoint;
	u32 memory;			/* what the file system has */
	bool live;			/* the map must find it */
	/* what a crash may not change */
	u32 truth;			/* a version, or ANY */
	bool truth_is_file;
	u32 truth_blk;			/* its newest copy in the log, or 0 */
	u32 copies;			/* in the log since it was free */
	bool unsynced;			/* file data in the write cache */
	tid_t freed_by;			/* a file's block */
};

#define ANY 0

extern struct home homes[HOMES_MOST];
extern u32 nr_homes;

u64 home_number(u32 home);
u32 home_of_number(u64 number);
bool version_escaped(u32 version);
void copy_fill(u8 *data, u32 home, u32 version);
void committed_home(u32 home);

#endif /* MODEL_H */
