/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * jmap: where in the journal the newest committed copy of a metadata block is.
 * See jmap.c for the mechanism and its rules.
 */
#ifndef _FS_JBD2_JMAP_H
#define _FS_JBD2_JMAP_H

#include <linux/jbd2.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* One per log block; the slot of log block b is slots[b - first]. */
struct jmap_slot {
	u32 home_lo;		/* home block of the copy in this log block */
	u16 home_hi;
	u16 flags;
	u32 next;		/* next slot of the hash chain, plus 1; 0 ends it */
	u32 csum;		/* jbd2_lazy_csum() of what it must hold */
};

#define JMAP_LINKED	0x0001	/* in the hash: the newest committed copy */
#define JMAP_NOTED	0x0002	/* written by the committing transaction */
#define JMAP_ESCAPED	0x0004	/* the copy begins with 0 for JBD2_MAGIC_NUMBER */
#define JMAP_REVOKING	0x0008	/* a transaction not yet committed revokes it */
#define JMAP_RELOGGED	0x0010	/* the cleaner filed the block as it is */
#define JMAP_SURVIVOR	0x0020	/* written by the cleaner, not by its owner */
#define JMAP_DEMOTED	0x0040	/* in the hash, but at home or on its way there */

/* A transaction at which the journal tail may come to rest. */
struct jmap_mark {
	tid_t tid;
	u32 slot;		/* of the first log block of the transaction */
};

struct jmap {
	rwlock_t lock;		/* leaf; guards all that follows */
	struct jmap_slot *slots;
	u32 *heads;		/* slot number plus 1; 0 is an empty chain */
	struct jmap_mark *marks;	/* ring, oldest first */
	unsigned long first;	/* log block of slot 0 */
	u32 nr_slots;
	u32 nr_live;		/* linked slots */
	u32 nr_demoted;		/* slots with JMAP_DEMOTED */
	u64 digest;		/* sum of jbd2_jmap_digest_of() over both */
	u32 cursor;		/* no slot from the tail up to here is linked */
	u32 end;		/* behind the newest applied transaction */
	u32 nr_marks, mark_head, mark_count;
	u32 mark_span;		/* least log blocks from one mark to the next */
	bool mark_wanted;	/* the next transaction gets one in any case */
	u8 hash_bits;
};

int jbd2_jmap_init(struct jmap *map, unsigned long first, unsigned long last);
void jbd2_jmap_destroy(struct jmap *map);
size_t jbd2_jmap_bytes(const struct jmap *map);

bool jbd2_jmap_note(struct jmap *map, unsigned long log_blk, u64 home,
		    bool escaped, u32 csum);
void jbd2_jmap_apply_begin(struct jmap *map, tid_t tid,
			   unsigned long log_start);
bool jbd2_jmap_apply_slot(struct jmap *map, unsigned long log_blk,
			  bool (*revoking)(void *ctx, u64 home), void *ctx);
void jbd2_jmap_apply_end(struct jmap *map, unsigned long log_end);

bool jbd2_jmap_lookup(struct jmap *map, u64 home, unsigned long *log_blk,
		      unsigned int *flags);
bool jbd2_jmap_copy_of(struct jmap *map, u64 home, unsigned long *log_blk,
		       struct jmap_slot *copy);
bool jbd2_jmap_home_of(struct jmap *map, unsigned long log_blk, u64 *home);
bool jbd2_jmap_drop(struct jmap *map, u64 home);
bool jbd2_jmap_drop_if(struct jmap *map, u64 home, unsigned long log_blk);
bool jbd2_jmap_relog(struct jmap *map, u64 home, unsigned long log_blk);
u32 jbd2_jmap_span_of(struct jmap *map, unsigned int marks);
u32 jbd2_jmap_span_ahead(struct jmap *map, u32 ahead);
unsigned long jbd2_jmap_end(struct jmap *map);
u32 jbd2_jmap_span_past(struct jmap *map, unsigned long log_blk);
bool jbd2_jmap_mark_behind(struct jmap *map, unsigned long log_blk, tid_t *tid,
			   unsigned long *at);
void jbd2_jmap_set_revoking(struct jmap *map, u64 home, bool revoking);
bool jbd2_jmap_oldest(struct jmap *map, tid_t *tid, unsigned long *log_blk);
bool jbd2_jmap_next_live(struct jmap *map, u32 *pos, u32 *nr, u64 *home,
			 unsigned long *log_blk, unsigned int *flags);
u32 jbd2_jmap_scan_start(struct jmap *map, u32 *nr);
u32 jbd2_jmap_distance(const struct jmap *map, u32 a, u32 b);
u64 jbd2_jmap_slot_home(const struct jmap_slot *slot);
u64 jbd2_jmap_digest_of(u32 slot, const struct jmap_slot *copy);
bool jbd2_jmap_next_copy(struct jmap *map, u32 *pos, u32 *nr, u32 *slot,
			 struct jmap_slot *copy);
bool jbd2_jmap_mark_at(struct jmap *map, u32 nr, struct jmap_mark *mark);

void jbd2_jmap_reset(struct jmap *map, tid_t tid, unsigned long log_blk);
bool jbd2_jmap_load_copy(struct jmap *map, u32 slot,
			 const struct jmap_slot *copy);
void jbd2_jmap_load_mark(struct jmap *map, tid_t tid, u32 slot);
void jbd2_jmap_unnote(struct jmap *map, unsigned long log_blk);

bool jbd2_jmap_live_before(struct jmap *map, unsigned long log_blk);
u64 jbd2_jmap_digest(struct jmap *map);

#endif /* _FS_JBD2_JMAP_H */
