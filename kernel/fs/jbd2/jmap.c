// SPDX-License-Identifier: GPL-2.0-only
/*
 * jmap: the map of lazy writeback journaling.
 *
 * With lazy writeback journaling the newest committed copy of a metadata block
 * may live in the journal only.  This map finds it: home block -> log block.
 * It has one slot per log block, so a slot number is a log position and the
 * map is at the same time the reverse map, log block -> home block.  A slot
 * that holds the newest copy of its home block is linked into a hash chain;
 * all others are out of every chain.  Nothing is allocated after jbd2_jmap_init().
 *
 *	 tail                cursor                     end      head
 *	  |  stale  .  stale   |  live . stale . live    | noted   |
 *	--+--------------------+-------------------------+---------+--
 *	  ^ a mark <= cursor: the tail of the log as far as the map cares
 *
 * A transaction's life here:
 *
 *  jbd2_jmap_note()        while it is written: the slot remembers the home block
 *                     but is not found by anybody yet.
 *  jmap_apply_*()     once its commit record is durable: every noted slot is
 *                     linked and takes the place of an older one; the caller
 *                     then drops the blocks that the transaction revoked.
 *
 * "All tags, then all revokes" is what recovery computes from the same
 * transaction, so the map always equals what a scan of the committed log gives.
 * But for one thing: a scan does not know what went home.  Such a slot stays in
 * its chain as JMAP_DEMOTED.  No look-up for a copy finds it, a snapshot
 * (lazy_snapshot.c) holds it, and a revoke takes it out.
 *
 * Invariants (they are numbered in ARCHITECTURE.md, too):
 *
 *  INV-K1  At most one slot per home block is linked, and then none of its
 *          slots is JMAP_DEMOTED, of which there is one at most, too.
 *  INV-K2  A linked slot's transaction is committed, and no newer committed
 *          transaction holds a tag or a revoke for its home block.
 *  INV-K3  Slots in [cursor, end) are the only ones that may be linked, and
 *          the mark at the front of the ring is not behind the cursor.
 *  INV-K4  A linked slot whose home block is revoked by a running or
 *          committing transaction has JMAP_REVOKING.  (The caller sets it; a
 *          slot linked later asks revoking() below.)
 *
 * Locking: jbd2_jmap_note() and jmap_apply_*() are called by the commit thread only,
 * and it alone puts slots into chains and takes them out.  Others turn a linked
 * slot into a demoted one and change JMAP_REVOKING and JMAP_RELOGGED, under
 * map->lock.  The only lock that is taken below map->lock is j_revoke_lock, by
 * revoking() in jbd2_jmap_apply_slot().
 */

#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include "jmap.h"

/* Slots that are looked at without letting go of a lock. */
#define JMAP_ADVANCE	65536U
#define JMAP_STRETCH	1024U

u64 jbd2_jmap_slot_home(const struct jmap_slot *slot)
{
	return (u64)slot->home_hi << 32 | slot->home_lo;
}

static u32 *jmap_head(struct jmap *map, u64 home)
{
	return &map->heads[hash_64(home, map->hash_bits)];
}

/* Log blocks from slot @a forward to slot @b. */
u32 jbd2_jmap_distance(const struct jmap *map, u32 a, u32 b)
{
	return b >= a ? b - a : b + map->nr_slots - a;
}

static u32 jmap_slot_of(const struct jmap *map, unsigned long log_blk)
{
	return log_blk - map->first;
}

static u32 jmap_next_slot(const struct jmap *map, u32 slot)
{
	return slot + 1 == map->nr_slots ? 0 : slot + 1;
}

/**
 * jbd2_jmap_init() - make an empty map
 * @map: the map
 * @first: first log block that holds transactions
 * @last: the log block behind the last one
 *
 * Return: 0, or -ENOMEM, or -EINVAL for an empty range.
 */
int jbd2_jmap_init(struct jmap *map, unsigned long first, unsigned long last)
{
	/* The caller says it, and can do without. */
	gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;
	u32 nr;

	if (last <= first || last - first > U32_MAX - 1)
		return -EINVAL;
	nr = last - first;

	memset(map, 0, sizeof(*map));
	rwlock_init(&map->lock);
	map->first = first;
	map->nr_slots = nr;
	/* Chains of four to eight slots when the whole log is live. */
	map->hash_bits = ilog2(max(nr / 4, 16U));
	/*
	 * The tail can only rest on a mark.  A coarse ring keeps it small, but
	 * 1,024 blocks are the whole of a minimal journal, hence the clamp.
	 */
	map->mark_span = clamp(nr / 64, 16U, 1024U);
	map->nr_marks = nr / map->mark_span + 2;

	map->slots = kvcalloc(nr, sizeof(*map->slots), gfp);
	map->heads = kvcalloc(1UL << map->hash_bits, sizeof(*map->heads), gfp);
	map->marks = kvcalloc(map->nr_marks, sizeof(*map->marks), gfp);
	if (!map->slots || !map->heads || !map->marks) {
		jbd2_jmap_destroy(map);
		return -ENOMEM;
	}
	return 0;
}

void jbd2_jmap_destroy(struct jmap *map)
{
	kvfree(map->slots);
	kvfree(map->heads);
	kvfree(map->marks);
	map->slots = NULL;
	map->heads = NULL;
	map->marks = NULL;
}

/* Memory that the map holds, in bytes. */
size_t jbd2_jmap_bytes(const struct jmap *map)
{
	return map->nr_slots * sizeof(*map->slots) +
	       (sizeof(*map->heads) << map->hash_bits) +
	       map->nr_marks * sizeof(*map->marks);
}

/* The link that points to the slot of @home, or the chain's end. */
static u32 *jmap_find(struct jmap *map, u64 home)
{
	u32 *link = jmap_head(map, home);

	while (*link && jbd2_jmap_slot_home(&map->slots[*link - 1]) != home)
		link = &map->slots[*link - 1].next;
	return link;
}

/* The same, but only of the newest copy: one that is not JMAP_DEMOTED. */
static u32 *jmap_find_live(struct jmap *map, u64 home)
{
	static u32 none;
	u32 *link = jmap_find(map, home);

	return *link && !(map->slots[*link - 1].flags & JMAP_LINKED) ?
		&none : link;
}

/**
 * jbd2_jmap_digest_of() - a number for what one slot holds
 * @slot: its number
 * @copy: home block, checksum, and whether it is JMAP_ESCAPED
 *
 * The sum over all slots that are linked or demoted is the digest of the map.
 */
u64 jbd2_jmap_digest_of(u32 slot, const struct jmap_slot *copy)
{
	u64 a = jbd2_jmap_slot_home(copy) << 1;
	u64 b = (u64)slot << 32 | copy->csum;

	if (copy->flags & JMAP_ESCAPED)
		a |= 1;
	/* Two rounds of the finalizer of splitmix64. */
	a = (a ^ b * GOLDEN_RATIO_64) * 0xbf58476d1ce4e5b9ULL;
	a = (a ^ a >> 27) * 0x94d049bb133111ebULL;
	return a ^ a >> 31;
}

/* A slot becomes the newest copy of its home block. */
static void jmap_link(struct jmap *map, u32 nr)
{
	struct jmap_slot *slot = &map->slots[nr];
	u32 *head = jmap_head(map, jbd2_jmap_slot_home(slot));

	slot->next = *head;
	*head = nr + 1;
	map->nr_live++;
	map->digest += jbd2_jmap_digest_of(nr, slot);
}

static void jmap_unlink(struct jmap *map, u32 *link)
{
	u32 nr = *link - 1;
	struct jmap_slot *slot = &map->slots[nr];

	if (slot->flags & JMAP_LINKED)
		map->nr_live--;
	else
		map->nr_demoted--;
	map->digest -= jbd2_jmap_digest_of(nr, slot);
	*link = slot->next;
	slot->next = 0;
	slot->flags = 0;
}

/* The log block is written anew: what the tail has passed is no more. */
static void jmap_recycle(struct jmap *map, struct jmap_slot *slot)
{
	if (slot->flags & JMAP_DEMOTED)
		jmap_unlink(map, jmap_find(map, jbd2_jmap_slot_home(slot)));
}

/**
 * jbd2_jmap_note() - remember what the committing transaction puts in a log block
 * @map: the map
 * @log_blk: the log block
 * @home: home block of the copy
 * @escaped: the copy's first word was JBD2_MAGIC_NUMBER and is stored as 0
 * @csum: jbd2_lazy_csum() of what the log block holds
 *
 * Return: false if the log block holds a newest copy, which the tail never
 * passes (INV-K3): it is about to be lost, and the journal has to be aborted.
 */
bool jbd2_jmap_note(struct jmap *map, unsigned long log_blk, u64 home,
		    bool escaped, u32 csum)
{
	struct jmap_slot *slot = &map->slots[jmap_slot_of(map, log_blk)];
	bool free;

	write_lock(&map->lock);
	free = !(slot->flags & JMAP_LINKED);
	if (free) {
		jmap_recycle(map, slot);
		slot->home_lo = lower_32_bits(home);
		slot->home_hi = upper_32_bits(home);
		slot->csum = csum;
		slot->flags = JMAP_NOTED | (escaped ? JMAP_ESCAPED : 0);
	}
	write_unlock(&map->lock);
	return free;
}

/**
 * jbd2_jmap_apply_begin() - start to apply a committed transaction
 * @map: the map
 * @tid: its transaction id
 * @log_start: its first log block
 */
void jbd2_jmap_apply_begin(struct jmap *map, tid_t tid, unsigned long log_start)
{
	u32 start = jmap_slot_of(map, log_start), last;
	struct jmap_mark *mark;

	write_lock(&map->lock);
	if (!map->nr_live) {
		/* Nothing pins the log: older marks mean nothing any more. */
		map->mark_count = 0;
		map->cursor = start;
		map->end = start;
	}
	if (map->mark_count) {
		last = (map->mark_head + map->mark_count - 1) % map->nr_marks;
		if (jbd2_jmap_distance(map, map->marks[last].slot, start) <
			    map->mark_span &&
		    !map->mark_wanted)
			goto out;
	}
	/* A missing mark makes the tail coarser, never wrong. */
	if (map->mark_count < map->nr_marks) {
		map->mark_wanted = false;
		mark = &map->marks[(map->mark_head + map->mark_count) %
				   map->nr_marks];
		mark->tid = tid;
		mark->slot = start;
		map->mark_count++;
	}
out:
	write_unlock(&map->lock);
}

/**
 * jbd2_jmap_apply_slot() - link a log block of the transaction that is applied
 * @map: the map
 * @log_blk: the log block; descriptor, revoke and commit blocks are skipped
 * @revoking: whether the running transaction has a revoke for a home block;
 *            called with map->lock held; NULL if none runs
 * @ctx: passed to @revoking
 *
 * Return: true if the log block held a copy.
 */
bool jbd2_jmap_apply_slot(struct jmap *map, unsigned long log_blk,
			  bool (*revoking)(void *ctx, u64 home), void *ctx)
{
	u32 nr = jmap_slot_of(map, log_blk);
	struct jmap_slot *slot = &map->slots[nr];
	u16 inherited = 0, old;
	u32 *link;
	u64 home;

	write_lock(&map->lock);
	if (!(slot->flags & JMAP_NOTED)) {
		jmap_recycle(map, slot);
		write_unlock(&map->lock);
		return false;
	}
	home = jbd2_jmap_slot_home(slot);
	link = jmap_find(map, home);
	if (*link) {
		old = map->slots[*link - 1].flags;
		inherited = old & JMAP_REVOKING;
		if (old & JMAP_RELOGGED)
			inherited |= JMAP_SURVIVOR;
		jmap_unlink(map, link);
	}
	if (revoking && revoking(ctx, home))
		inherited |= JMAP_REVOKING;
	slot->flags = JMAP_LINKED | inherited | (slot->flags & JMAP_ESCAPED);
	jmap_link(map, nr);
	write_unlock(&map->lock);
	return true;
}

/* Every slot of the transaction is linked; @log_end is behind its last block. */
void jbd2_jmap_apply_end(struct jmap *map, unsigned long log_end)
{
	write_lock(&map->lock);
	map->end = jmap_slot_of(map, log_end);
	write_unlock(&map->lock);
}

/* The log block behind the newest transaction that was applied. */
unsigned long jbd2_jmap_end(struct jmap *map)
{
	return map->first + READ_ONCE(map->end);
}

/**
 * jbd2_jmap_lookup() - find the newest committed copy of a block
 * @map: the map
 * @home: the home block
 * @log_blk: where to put the log block, or NULL
 * @flags: where to put the slot's flags, or NULL
 *
 * Return: false if the copy at home is the newest.
 */
bool jbd2_jmap_lookup(struct jmap *map, u64 home, unsigned long *log_blk,
		      unsigned int *flags)
{
	bool found;
	u32 link;

	read_lock(&map->lock);
	link = *jmap_find_live(map, home);
	found = link;
	if (found) {
		if (log_blk)
			*log_blk = map->first + link - 1;
		if (flags)
			*flags = map->slots[link - 1].flags;
	}
	read_unlock(&map->lock);
	return found;
}

/* The same, with all that is known of the copy. */
bool jbd2_jmap_copy_of(struct jmap *map, u64 home, unsigned long *log_blk,
		       struct jmap_slot *copy)
{
	u32 link;

	read_lock(&map->lock);
	link = *jmap_find_live(map, home);
	if (link) {
		*log_blk = map->first + link - 1;
		*copy = map->slots[link - 1];
	}
	read_unlock(&map->lock);
	return link;
}

/* The home block of a log block; false if its copy is not the newest. */
bool jbd2_jmap_home_of(struct jmap *map, unsigned long log_blk, u64 *home)
{
	struct jmap_slot *slot = &map->slots[jmap_slot_of(map, log_blk)];
	bool linked;

	read_lock(&map->lock);
	linked = slot->flags & JMAP_LINKED;
	*home = jbd2_jmap_slot_home(slot);
	read_unlock(&map->lock);
	return linked;
}

/**
 * jbd2_jmap_drop() - forget a block: it was revoked
 * @map: the map
 * @home: the home block
 *
 * Return: true if it was in the map.
 */
bool jbd2_jmap_drop(struct jmap *map, u64 home)
{
	bool found = false;
	u32 *link;

	write_lock(&map->lock);
	link = jmap_find(map, home);
	if (*link) {
		found = map->slots[*link - 1].flags & JMAP_LINKED;
		jmap_unlink(map, link);
	}
	write_unlock(&map->lock);
	return found;
}

/**
 * jbd2_jmap_drop_if() - forget a block that goes home, unless that is forbidden
 * @map: the map
 * @home: the home block
 * @log_blk: the log block that the caller's contents came from
 *
 * Return: true if @log_blk still held the newest copy and no transaction
 * revokes the block; it is then no longer found.
 */
bool jbd2_jmap_drop_if(struct jmap *map, u64 home, unsigned long log_blk)
{
	u32 nr = jmap_slot_of(map, log_blk);
	bool may;

	write_lock(&map->lock);
	may = *jmap_find_live(map, home) == nr + 1 &&
	      !(map->slots[nr].flags & JMAP_REVOKING);
	if (may) {
		/* A scan of the log would find it, and so shall a snapshot. */
		map->slots[nr].flags &= JMAP_ESCAPED;
		map->slots[nr].flags |= JMAP_DEMOTED;
		map->nr_live--;
		map->nr_demoted++;
	}
	write_unlock(&map->lock);
	return may;
}

/*
 * Move the cursor towards the first live slot; map->lock held for writing, and
 * often j_list_lock.  A step is bounded: behind the first live slot the cursor
 * makes the tail coarser, never wrong, and the next call goes on.
 */
static void jmap_advance(struct jmap *map)
{
	u32 most = JMAP_ADVANCE;

	while (map->cursor != map->end && most-- &&
	       !(map->slots[map->cursor].flags & JMAP_LINKED))
		map->cursor = jmap_next_slot(map, map->cursor);
}

/**
 * jbd2_jmap_relog() - the cleaner is about to file a block as it is
 * @map: the map
 * @home: the home block
 * @log_blk: the log block that the caller's contents came from
 *
 * Return: true if @log_blk still holds the newest copy and no transaction
 * revokes the block.
 */
bool jbd2_jmap_relog(struct jmap *map, u64 home, unsigned long log_blk)
{
	u32 nr = jmap_slot_of(map, log_blk);
	bool may;

	write_lock(&map->lock);
	may = *jmap_find_live(map, home) == nr + 1 &&
	      !(map->slots[nr].flags & JMAP_REVOKING);
	if (may)
		map->slots[nr].flags |= JMAP_RELOGGED;
	write_unlock(&map->lock);
	return may;
}

/* Log blocks from the cursor to the end of the oldest @marks marks. */
u32 jbd2_jmap_span_of(struct jmap *map, unsigned int marks)
{
	u32 slot, span = 0;

	write_lock(&map->lock);
	if (map->nr_live) {
		jmap_advance(map);
		slot = map->end;
		if (map->mark_count > marks)
			slot = map->marks[(map->mark_head + marks) %
					  map->nr_marks].slot;
		span = jbd2_jmap_distance(map, map->cursor, slot);
		if (span > jbd2_jmap_distance(map, map->cursor, map->end))
			span = 0;	/* all before the cursor */
	}
	write_unlock(&map->lock);
	return span;
}

/*
 * Log blocks from the cursor to the first mark that leaves @ahead log blocks
 * between the head and itself: were they dead, the tail could rest there.
 */
u32 jbd2_jmap_span_ahead(struct jmap *map, u32 ahead)
{
	u32 i, slot, live, span = 0;

	write_lock(&map->lock);
	if (!map->nr_live)
		goto out;
	jmap_advance(map);
	live = jbd2_jmap_distance(map, map->cursor, map->end);
	slot = map->end;
	for (i = 0; i < map->mark_count; i++) {
		slot = map->marks[(map->mark_head + i) % map->nr_marks].slot;
		if (jbd2_jmap_distance(map, map->end, slot) >= ahead)
			break;
	}
	if (i == map->mark_count)
		slot = map->end;
	span = jbd2_jmap_distance(map, map->cursor, slot);
	if (span > live)
		span = 0;	/* the mark is before the cursor */
out:
	write_unlock(&map->lock);
	return span;
}

/* The first mark behind a slot, or NULL; map->lock held. */
static struct jmap_mark *jmap_find_mark(struct jmap *map, u32 slot)
{
	struct jmap_mark *first = &map->marks[map->mark_head], *mark;
	u32 i;

	if (map->mark_count &&
	    jbd2_jmap_distance(map, first->slot, slot) >=
		    jbd2_jmap_distance(map, first->slot, map->end))
		return first;
	for (i = 1; i < map->mark_count; i++) {
		mark = &map->marks[(map->mark_head + i) % map->nr_marks];
		if (jbd2_jmap_distance(map, first->slot, mark->slot) >
		    jbd2_jmap_distance(map, first->slot, slot))
			return mark;
	}
	return NULL;
}

/**
 * jbd2_jmap_span_past() - what has to go for the tail to pass a log block
 * @map: the map
 * @log_blk: the log block
 *
 * If there is no mark behind it yet, the next transaction gets one.
 *
 * Return: log blocks from the cursor to the mark; 0 if none is live there.
 */
u32 jbd2_jmap_span_past(struct jmap *map, unsigned long log_blk)
{
	u32 slot = jmap_slot_of(map, log_blk), first, to, span = 0;
	struct jmap_mark *mark;

	write_lock(&map->lock);
	if (!map->nr_live || !map->mark_count)
		goto out;
	jmap_advance(map);
	first = map->marks[map->mark_head].slot;
	/* The tail may be there already, or could be. */
	if (jbd2_jmap_distance(map, first, slot) >=
	    jbd2_jmap_distance(map, first, map->end))
		goto out;
	mark = jmap_find_mark(map, slot);
	if (!mark)
		map->mark_wanted = true;
	to = mark ? mark->slot : map->end;
	if (jbd2_jmap_distance(map, first, to) >
	    jbd2_jmap_distance(map, first, map->cursor))
		span = jbd2_jmap_distance(map, map->cursor, to);
out:
	write_unlock(&map->lock);
	return span;
}

/* A transaction that begins behind a log block, and where; false if unknown. */
bool jbd2_jmap_mark_behind(struct jmap *map, unsigned long log_blk, tid_t *tid,
			   unsigned long *at)
{
	struct jmap_mark *mark;

	read_lock(&map->lock);
	mark = jmap_find_mark(map, jmap_slot_of(map, log_blk));
	if (mark) {
		*tid = mark->tid;
		*at = map->first + mark->slot;
	}
	read_unlock(&map->lock);
	return mark;
}

/* A transaction begins, or takes back, a revoke of @home (INV-K4). */
void jbd2_jmap_set_revoking(struct jmap *map, u64 home, bool revoking)
{
	u32 link;

	write_lock(&map->lock);
	link = *jmap_find_live(map, home);
	if (link && revoking)
		map->slots[link - 1].flags |= JMAP_REVOKING;
	else if (link)
		map->slots[link - 1].flags &= ~JMAP_REVOKING;
	write_unlock(&map->lock);
}

/**
 * jbd2_jmap_oldest() - the oldest transaction that the map still needs
 * @map: the map
 * @tid: where to put its transaction id
 * @log_blk: where to put its first log block
 *
 * Slots only die between two revolutions of the log, so the cursor moves
 * forward only and the scan is paid for once per log block.
 *
 * Return: false if the map needs nothing of the log.
 */
bool jbd2_jmap_oldest(struct jmap *map, tid_t *tid, unsigned long *log_blk)
{
	struct jmap_mark *mark, *next;
	bool found = false;

	write_lock(&map->lock);
	if (!map->nr_live)
		goto out;
	jmap_advance(map);
	/*
	 * cursor == end: all that is live belongs to a transaction that is
	 * being applied.  It pins the log itself, as the committing one.
	 */
	while (map->mark_count > 1) {
		mark = &map->marks[map->mark_head];
		next = &map->marks[(map->mark_head + 1) % map->nr_marks];
		if (jbd2_jmap_distance(map, mark->slot, map->cursor) <
		    jbd2_jmap_distance(map, mark->slot, next->slot))
			break;
		map->mark_head = (map->mark_head + 1) % map->nr_marks;
		map->mark_count--;
	}
	if (!WARN_ON_ONCE(!map->mark_count)) {
		mark = &map->marks[map->mark_head];
		*tid = mark->tid;
		*log_blk = map->first + mark->slot;
		found = true;
	}
out:
	write_unlock(&map->lock);
	return found;
}

/* Where a scan of the live slots starts, and over how many slots it goes. */
u32 jbd2_jmap_scan_start(struct jmap *map, u32 *nr)
{
	u32 start;

	write_lock(&map->lock);
	if (map->nr_live)
		jmap_advance(map);
	start = map->cursor;
	*nr = map->nr_live ? jbd2_jmap_distance(map, map->cursor, map->end) : 0;
	write_unlock(&map->lock);
	return start;
}

/**
 * jbd2_jmap_next_live() - the next live slot in log order
 * @map: the map
 * @pos: where to go on; from jbd2_jmap_scan_start() at first
 * @nr: slots left; from jbd2_jmap_scan_start() at first
 * @home: where to put the home block
 * @log_blk: where to put the log block
 * @flags: where to put the slot's flags, or NULL
 *
 * Return: false if none is left.
 */
bool jbd2_jmap_next_live(struct jmap *map, u32 *pos, u32 *nr, u64 *home,
			 unsigned long *log_blk, unsigned int *flags)
{
	bool found = false;

	read_lock(&map->lock);
	while (*nr && !found) {
		struct jmap_slot *slot = &map->slots[*pos];

		if (slot->flags & JMAP_LINKED) {
			*home = jbd2_jmap_slot_home(slot);
			*log_blk = map->first + *pos;
			if (flags)
				*flags = slot->flags;
			found = true;
		}
		*pos = jmap_next_slot(map, *pos);
		(*nr)--;
	}
	read_unlock(&map->lock);
	return found;
}

/* ------------------------------------------------------------------------- */
/* For snapshots and for the mount                                            */

/**
 * jbd2_jmap_next_copy() - the next slot that a scan of the log would find
 * @map: the map
 * @pos: where to go on
 * @nr: slots left
 * @slot: where to put its number
 * @copy: where to put what it holds
 *
 * Return: false if none is left.
 */
bool jbd2_jmap_next_copy(struct jmap *map, u32 *pos, u32 *nr, u32 *slot,
			 struct jmap_slot *copy)
{
	bool found = false;
	u32 stretch;

	while (*nr && !found) {
		read_lock(&map->lock);
		for (stretch = 0; *nr && !found && stretch < JMAP_STRETCH;
		     stretch++) {
			if (map->slots[*pos].flags &
			    (JMAP_LINKED | JMAP_DEMOTED)) {
				*slot = *pos;
				*copy = map->slots[*pos];
				found = true;
			}
			*pos = jmap_next_slot(map, *pos);
			(*nr)--;
		}
		read_unlock(&map->lock);
		if (!found)
			cond_resched();
	}
	return found;
}

/* The mark with this number, the oldest being 0; false if there is none. */
bool jbd2_jmap_mark_at(struct jmap *map, u32 nr, struct jmap_mark *mark)
{
	bool found;

	read_lock(&map->lock);
	found = nr < map->mark_count;
	if (found)
		*mark = map->marks[(map->mark_head + nr) % map->nr_marks];
	read_unlock(&map->lock);
	return found;
}

/*
 * Forget everything: the log begins with transaction @tid, at @log_blk.  Nobody
 * else uses the map yet, as with all that follows.
 */
void jbd2_jmap_reset(struct jmap *map, tid_t tid, unsigned long log_blk)
{
	memset(map->slots, 0, map->nr_slots * sizeof(*map->slots));
	memset(map->heads, 0, sizeof(*map->heads) << map->hash_bits);
	map->nr_live = 0;
	map->nr_demoted = 0;
	map->digest = 0;
	map->mark_wanted = false;
	map->mark_head = 0;
	map->mark_count = 0;
	map->cursor = jmap_slot_of(map, log_blk);
	map->end = map->cursor;
	jbd2_jmap_load_mark(map, tid, map->cursor);
}

/* A transaction at which the tail may rest, behind the last such one. */
void jbd2_jmap_load_mark(struct jmap *map, tid_t tid, u32 slot)
{
	u32 at = (map->mark_head + map->mark_count) % map->nr_marks;

	if (map->mark_count == map->nr_marks)
		return;		/* coarser, never wrong */
	map->marks[at].tid = tid;
	map->marks[at].slot = slot;
	map->mark_count++;
}

/**
 * jbd2_jmap_load_copy() - link a copy that a snapshot tells of
 * @map: the map
 * @slot: where the copy is
 * @copy: its home block, checksum, and whether it is JMAP_ESCAPED
 *
 * Return: false if the map has the slot, or the home block, already.
 */
bool jbd2_jmap_load_copy(struct jmap *map, u32 slot,
			 const struct jmap_slot *copy)
{
	struct jmap_slot *this = &map->slots[slot];

	if (this->flags || *jmap_find(map, jbd2_jmap_slot_home(copy)))
		return false;
	*this = *copy;
	this->flags = JMAP_LINKED | (copy->flags & JMAP_ESCAPED);
	jmap_link(map, slot);
	return true;
}

/* What was noted of a transaction that turned out not to be complete. */
void jbd2_jmap_unnote(struct jmap *map, unsigned long log_blk)
{
	struct jmap_slot *slot = &map->slots[jmap_slot_of(map, log_blk)];

	if (slot->flags & JMAP_NOTED)
		slot->flags = 0;
}

/* For debugging: whether a copy is live between the cursor and @log_blk. */
bool jbd2_jmap_live_before(struct jmap *map, unsigned long log_blk)
{
	u32 nr = jmap_slot_of(map, log_blk), slot;
	bool found = false;

	read_lock(&map->lock);
	slot = map->cursor;
	if (map->nr_live && jbd2_jmap_distance(map, slot, nr) <=
				    jbd2_jmap_distance(map, slot, map->end))
		for (; slot != nr && !found; slot = jmap_next_slot(map, slot))
			found = map->slots[slot].flags & JMAP_LINKED;
	read_unlock(&map->lock);
	return found;
}

/*
 * For debugging: the digest of what is linked alone, which a scan of the log
 * after a power cut has to give again.
 */
u64 jbd2_jmap_digest(struct jmap *map)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < map->nr_slots; i++) {
		if (!(i % 4096))
			cond_resched();
		read_lock(&map->lock);
		if (map->slots[i].flags & JMAP_LINKED)
			sum += jbd2_jmap_digest_of(i, &map->slots[i]);
		read_unlock(&map->lock);
	}
	return sum;
}
