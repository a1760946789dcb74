// SPDX-License-Identifier: GPL-2.0-only
/*
 * jmap: the map of lazy writeback journaling.
 *
 * With lazy writeback journaling the newest committed copy of a metadata block
 * may live in the journal only.  This map finds it: home block -> log block.
 * It has one slot per log block, so a slot number is a log position and the
 * map is at the same time the reverse map, log block -> home block.  A slot
 * that holds the newest copy of its home block is linked into a hash chain;
 * all others are out of every chain.  Nothing is allocated after jmap_init().
 *
 *	 tail                cursor                     end      head
 *	  |  stale  .  stale   |  live . stale . live    | noted   |
 *	--+--------------------+-------------------------+---------+--
 *	  ^ a mark <= cursor: the tail of the log as far as the map cares
 *
 * A transaction's life here:
 *
 *  jmap_note()        while it is written: the slot remembers the home block
 *                     but is not found by anybody yet.
 *  jmap_apply_*()     once its commit record is durable: every noted slot is
 *                     linked and takes the place of an older one; the caller
 *                     then drops the blocks that the transaction revoked.
 *
 * "All tags, then all revokes" is what recovery computes from the same
 * transaction, so the map always equals what a scan of the committed log gives.
 * But for one thing: a scan does not know what went home.  Such a slot stays in
 * its chain as JMAP_DEMOTED, found by nobody who looks for a copy, so that a
 * snapshot (lazy_snapshot.c) holds it and a revoke still takes it out.
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
 * Locking: map->lock is a leaf.  jmap_note() and jmap_apply_*() are called by
 * the commit thread only; a slot that is not linked belongs to that thread.
 */

#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include "jmap.h"

u64 jmap_slot_home(const struct jmap_slot *slot)
{
	return (u64)slot->home_hi << 32 | slot->home_lo;
}

static u32 *jmap_head(struct jmap *map, u64 home)
{
	return &map->heads[hash_64(home, map->hash_bits)];
}

/* Log blocks from slot @a forward to slot @b. */
u32 jmap_distance(const struct jmap *map, u32 a, u32 b)
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
 * jmap_init() - make an empty map
 * @map: the map
 * @first: first log block that holds transactions
 * @last: the log block behind the last one
 *
 * Return: 0, or -ENOMEM, or -EINVAL for an empty range.
 */
int jmap_init(struct jmap *map, unsigned long first, unsigned long last)
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
	/* More than a few are for e2fsck. */
	map->lost_most = clamp(nr / 128, 8U, 1024U);

	map->slots = kvcalloc(nr, sizeof(*map->slots), gfp);
	map->heads = kvcalloc(1UL << map->hash_bits, sizeof(*map->heads), gfp);
	map->marks = kvcalloc(map->nr_marks, sizeof(*map->marks), gfp);
	map->lost = kvcalloc(map->lost_most, sizeof(*map->lost), gfp);
	if (!map->slots || !map->heads || !map->marks || !map->lost) {
		jmap_destroy(map);
		return -ENOMEM;
	}
	return 0;
}

void jmap_destroy(struct jmap *map)
{
	kvfree(map->slots);
	kvfree(map->heads);
	kvfree(map->marks);
	kvfree(map->lost);
	map->slots = NULL;
	map->heads = NULL;
	map->marks = NULL;
	map->lost = NULL;
}

/* Memory that the map holds, in bytes. */
size_t jmap_bytes(const struct jmap *map)
{
	return map->nr_slots * sizeof(*map->slots) +
	       (sizeof(*map->heads) << map->hash_bits) +
	       map->nr_marks * sizeof(*map->marks) +
	       map->lost_most * sizeof(*map->lost);
}

/* The link that points to the slot of @home, or the chain's end. */
static u32 *jmap_find(struct jmap *map, u64 home)
{
	u32 *link = jmap_head(map, home);

	while (*link && jmap_slot_home(&map->slots[*link - 1]) != home)
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

static void jmap_unlink(struct jmap *map, u32 *link)
{
	struct jmap_slot *slot = &map->slots[*link - 1];

	if (slot->flags & JMAP_LINKED)
		map->nr_live--;
	else
		map->nr_demoted--;
	*link = slot->next;
	slot->next = 0;
	slot->flags = 0;
}

/* The log block is written anew: what the tail has passed is no more. */
static void jmap_recycle(struct jmap *map, struct jmap_slot *slot)
{
	if (slot->flags & JMAP_DEMOTED) {
		jmap_unlink(map, jmap_find(map, jmap_slot_home(slot)));
	} else if (slot->flags & JMAP_DROPPED) {
		map->nr_dropped--;
		slot->next = 0;
		slot->flags = 0;
	}
}

/**
 * jmap_note() - remember what the committing transaction puts in a log block
 * @map: the map
 * @log_blk: the log block
 * @home: home block of the copy
 * @escaped: the copy's first word was JBD2_MAGIC_NUMBER and is stored as 0
 */
void jmap_note(struct jmap *map, unsigned long log_blk, u64 home, bool escaped)
{
	struct jmap_slot *slot = &map->slots[jmap_slot_of(map, log_blk)];

	write_lock(&map->lock);
	/* The tail never passes a linked slot (INV-K3), so this one is free. */
	if (!WARN_ON_ONCE(slot->flags & JMAP_LINKED)) {
		jmap_recycle(map, slot);
		slot->home_lo = lower_32_bits(home);
		slot->home_hi = upper_32_bits(home);
		slot->flags = JMAP_NOTED | (escaped ? JMAP_ESCAPED : 0);
	}
	write_unlock(&map->lock);
}

/* What a log block must hold that was noted, or holds the newest copy. */
void jmap_set_csum(struct jmap *map, unsigned long log_blk, u64 home, u32 csum)
{
	struct jmap_slot *slot = &map->slots[jmap_slot_of(map, log_blk)];

	write_lock(&map->lock);
	if (slot->flags & (JMAP_NOTED | JMAP_LINKED) &&
	    !(slot->flags & JMAP_CHECKED) && jmap_slot_home(slot) == home) {
		slot->csum = csum;
		slot->flags |= JMAP_CHECKED;
	}
	write_unlock(&map->lock);
}

/* Whether a block is lost; map->lock held. */
static u64 *jmap_find_lost(struct jmap *map, u64 home)
{
	u32 i;

	for (i = 0; i < map->nr_lost; i++)
		if (map->lost[i] == home)
			return &map->lost[i];
	return NULL;
}

/* A block has new contents, or is free; map->lock held for writing. */
static void jmap_regain(struct jmap *map, u64 home)
{
	u64 *lost = jmap_find_lost(map, home);

	if (lost)
		*lost = map->lost[--map->nr_lost];
}

/**
 * jmap_apply_begin() - start to apply a committed transaction
 * @map: the map
 * @tid: its transaction id
 * @log_start: its first log block
 */
void jmap_apply_begin(struct jmap *map, tid_t tid, unsigned long log_start)
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
		if (jmap_distance(map, map->marks[last].slot, start) <
		    map->mark_span && !map->mark_wanted)
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
 * jmap_apply_slot() - link a log block of the transaction that is applied
 * @map: the map
 * @log_blk: the log block; descriptor, revoke and commit blocks are skipped
 * @home: where to put the home block of the copy
 * @revoking: whether the running transaction has a revoke for a home block;
 *            called with map->lock held
 * @ctx: passed to @revoking
 *
 * Return: true if the log block held a copy.
 */
bool jmap_apply_slot(struct jmap *map, unsigned long log_blk, u64 *home,
		     bool (*revoking)(void *ctx, u64 home), void *ctx)
{
	u32 nr = jmap_slot_of(map, log_blk);
	struct jmap_slot *slot = &map->slots[nr];
	u16 inherited = 0, old;
	u32 *link;

	write_lock(&map->lock);
	if (!(slot->flags & JMAP_NOTED)) {
		jmap_recycle(map, slot);
		write_unlock(&map->lock);
		return false;
	}
	*home = jmap_slot_home(slot);
	link = jmap_find(map, *home);
	if (*link) {
		old = map->slots[*link - 1].flags;
		inherited = old & JMAP_REVOKING;
		if (old & JMAP_RELOGGED)
			inherited |= JMAP_SURVIVOR;
		if (old & JMAP_LINKED)
			map->nr_superseded++;
		jmap_unlink(map, link);
	}
	if (!(inherited & JMAP_REVOKING) && revoking(ctx, *home))
		inherited |= JMAP_REVOKING;
	slot->flags = JMAP_LINKED | inherited |
		      (slot->flags & (JMAP_ESCAPED | JMAP_CHECKED));
	jmap_regain(map, *home);
	link = jmap_head(map, *home);
	slot->next = *link;
	*link = nr + 1;
	map->nr_live++;
	write_unlock(&map->lock);
	return true;
}

/* Every slot of the transaction is linked; @log_end is behind its last block. */
void jmap_apply_end(struct jmap *map, unsigned long log_end)
{
	write_lock(&map->lock);
	map->end = jmap_slot_of(map, log_end);
	write_unlock(&map->lock);
}

/* The log block behind the newest transaction that was applied. */
unsigned long jmap_end(struct jmap *map)
{
	return map->first + READ_ONCE(map->end);
}

/**
 * jmap_lookup() - find the newest committed copy of a block
 * @map: the map
 * @home: the home block
 * @log_blk: where to put the log block, or NULL
 * @flags: where to put the slot's flags, or NULL
 *
 * Return: false if the copy at home is the newest.
 */
bool jmap_lookup(struct jmap *map, u64 home, unsigned long *log_blk,
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
bool jmap_copy_of(struct jmap *map, u64 home, unsigned long *log_blk,
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

/* Whether a block's newest copy is gone, and what is at home is older. */
bool jmap_is_lost(struct jmap *map, u64 home)
{
	bool lost;

	if (!READ_ONCE(map->nr_lost))
		return false;
	read_lock(&map->lock);
	lost = jmap_find_lost(map, home);
	read_unlock(&map->lock);
	return lost;
}

/* The home block of a log block; false if its copy is not the newest. */
bool jmap_home_of(struct jmap *map, unsigned long log_blk, u64 *home)
{
	struct jmap_slot *slot = &map->slots[jmap_slot_of(map, log_blk)];
	bool linked;

	read_lock(&map->lock);
	linked = slot->flags & JMAP_LINKED;
	*home = jmap_slot_home(slot);
	read_unlock(&map->lock);
	return linked;
}

/* Whether what is at home is not the newest of one of [home, home + nr). */
bool jmap_holds_range(struct jmap *map, u64 home, unsigned int nr)
{
	for (; nr--; home++)
		if (jmap_lookup(map, home, NULL, NULL) ||
		    jmap_is_lost(map, home))
			return true;
	return false;
}

/**
 * jmap_drop() - forget a block: it was revoked
 * @map: the map
 * @home: the home block
 * @log_blk: where to put the log block that held it
 *
 * Return: true if it was in the map.
 */
bool jmap_drop(struct jmap *map, u64 home, unsigned long *log_blk)
{
	struct jmap_slot *slot;
	bool found = false;
	u32 *link;

	write_lock(&map->lock);
	jmap_regain(map, home);
	link = jmap_find(map, home);
	if (*link) {
		*log_blk = map->first + *link - 1;
		slot = &map->slots[*link - 1];
		found = slot->flags & JMAP_LINKED;
		jmap_unlink(map, link);
		/* For the next snapshot. */
		slot->flags = JMAP_DROPPED;
		slot->next = map->generation;
		map->nr_dropped++;
	}
	write_unlock(&map->lock);
	return found;
}

/* map->lock held for writing; see jmap_drop_if(). */
static bool jmap_send_home(struct jmap *map, u64 home, unsigned long log_blk)
{
	u32 nr = jmap_slot_of(map, log_blk);

	if (*jmap_find_live(map, home) != nr + 1 ||
	    map->slots[nr].flags & JMAP_REVOKING)
		return false;
	/* A scan of the log would find it, and so shall a snapshot. */
	map->slots[nr].flags &= JMAP_ESCAPED;
	map->slots[nr].flags |= JMAP_DEMOTED;
	map->nr_live--;
	map->nr_demoted++;
	return true;
}

/**
 * jmap_drop_if() - forget a block that goes home, unless that is forbidden
 * @map: the map
 * @home: the home block
 * @log_blk: the log block that the caller's contents came from
 *
 * Return: true if @log_blk still held the newest copy and no transaction
 * revokes the block; it is then no longer found.
 */
bool jmap_drop_if(struct jmap *map, u64 home, unsigned long log_blk)
{
	bool may;

	write_lock(&map->lock);
	may = jmap_send_home(map, home, log_blk);
	write_unlock(&map->lock);
	return may;
}

/**
 * jmap_lose() - forget a block whose newest copy cannot be read
 * @map: the map
 * @home: the home block
 * @log_blk: the log block that cannot be read
 *
 * Until the block is written anew or freed, jmap_is_lost() tells that the copy
 * at home is not to be used.
 *
 * Return: 1; 0 if @log_blk does not hold the newest copy any more or the block
 * is being freed; -ENOSPC if too many are lost already.
 */
int jmap_lose(struct jmap *map, u64 home, unsigned long log_blk)
{
	int ret = -ENOSPC;

	write_lock(&map->lock);
	if (map->nr_lost < map->lost_most) {
		ret = jmap_send_home(map, home, log_blk);
		if (ret)
			map->lost[map->nr_lost++] = home;
	}
	write_unlock(&map->lock);
	return ret;
}

/* Move the cursor to the first live slot; map->lock held for writing. */
static void jmap_advance(struct jmap *map)
{
	while (map->cursor != map->end &&
	       !(map->slots[map->cursor].flags & JMAP_LINKED))
		map->cursor = jmap_next_slot(map, map->cursor);
}

/**
 * jmap_relog() - the cleaner is about to file a block as it is
 * @map: the map
 * @home: the home block
 * @log_blk: the log block that the caller's contents came from
 *
 * Return: true if @log_blk still holds the newest copy and no transaction
 * revokes the block.
 */
bool jmap_relog(struct jmap *map, u64 home, unsigned long log_blk)
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
u32 jmap_span_of(struct jmap *map, unsigned int marks)
{
	u32 slot, span = 0;

	write_lock(&map->lock);
	if (map->nr_live) {
		jmap_advance(map);
		slot = map->end;
		if (map->mark_count > marks)
			slot = map->marks[(map->mark_head + marks) %
					  map->nr_marks].slot;
		span = jmap_distance(map, map->cursor, slot);
		if (span > jmap_distance(map, map->cursor, map->end))
			span = 0;	/* all before the cursor */
	}
	write_unlock(&map->lock);
	return span;
}

/*
 * Log blocks from the cursor to the first mark that leaves @ahead log blocks
 * between the head and itself: were they dead, the tail could rest there.
 */
u32 jmap_span_ahead(struct jmap *map, u32 ahead)
{
	u32 i, slot, live, span = 0;

	write_lock(&map->lock);
	if (!map->nr_live)
		goto out;
	jmap_advance(map);
	live = jmap_distance(map, map->cursor, map->end);
	slot = map->end;
	for (i = 0; i < map->mark_count; i++) {
		slot = map->marks[(map->mark_head + i) % map->nr_marks].slot;
		if (jmap_distance(map, map->end, slot) >= ahead)
			break;
	}
	if (i == map->mark_count)
		slot = map->end;
	span = jmap_distance(map, map->cursor, slot);
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

	if (map->mark_count && jmap_distance(map, first->slot, slot) >=
			       jmap_distance(map, first->slot, map->end))
		return first;
	for (i = 1; i < map->mark_count; i++) {
		mark = &map->marks[(map->mark_head + i) % map->nr_marks];
		if (jmap_distance(map, first->slot, mark->slot) >
		    jmap_distance(map, first->slot, slot))
			return mark;
	}
	return NULL;
}

/**
 * jmap_span_past() - what has to go for the tail to pass a log block
 * @map: the map
 * @log_blk: the log block
 *
 * If there is no mark behind it yet, the next transaction gets one.
 *
 * Return: log blocks from the cursor to the mark; 0 if none is live there.
 */
u32 jmap_span_past(struct jmap *map, unsigned long log_blk)
{
	u32 slot = jmap_slot_of(map, log_blk), first, to, span = 0;
	struct jmap_mark *mark;

	write_lock(&map->lock);
	if (!map->nr_live || !map->mark_count)
		goto out;
	jmap_advance(map);
	first = map->marks[map->mark_head].slot;
	/* The tail may be there already, or could be. */
	if (jmap_distance(map, first, slot) >=
	    jmap_distance(map, first, map->end))
		goto out;
	mark = jmap_find_mark(map, slot);
	if (!mark)
		map->mark_wanted = true;
	to = mark ? mark->slot : map->end;
	if (jmap_distance(map, first, to) >
	    jmap_distance(map, first, map->cursor))
		span = jmap_distance(map, map->cursor, to);
out:
	write_unlock(&map->lock);
	return span;
}

/* A transaction that begins behind a log block, and where; false if unknown. */
bool jmap_mark_behind(struct jmap *map, unsigned long log_blk, tid_t *tid,
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
void jmap_set_revoking(struct jmap *map, u64 home, bool revoking)
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
 * jmap_oldest() - the oldest transaction that the map still needs
 * @map: the map
 * @tid: where to put its transaction id
 * @log_blk: where to put its first log block
 *
 * Slots only die between two revolutions of the log, so the cursor moves
 * forward only and the scan is paid for once per log block.
 *
 * Return: false if the map needs nothing of the log.
 */
bool jmap_oldest(struct jmap *map, tid_t *tid, unsigned long *log_blk)
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
		if (jmap_distance(map, mark->slot, map->cursor) <
		    jmap_distance(map, mark->slot, next->slot))
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
u32 jmap_scan_start(struct jmap *map, u32 *nr)
{
	u32 start;

	write_lock(&map->lock);
	if (map->nr_live)
		jmap_advance(map);
	start = map->cursor;
	*nr = map->nr_live ? jmap_distance(map, map->cursor, map->end) : 0;
	write_unlock(&map->lock);
	return start;
}

/**
 * jmap_next_live() - the next live slot in log order
 * @map: the map
 * @pos: where to go on; from jmap_scan_start() at first
 * @nr: slots left; from jmap_scan_start() at first
 * @home: where to put the home block
 * @log_blk: where to put the log block
 * @flags: where to put the slot's flags, or NULL
 *
 * Return: false if none is left.
 */
bool jmap_next_live(struct jmap *map, u32 *pos, u32 *nr, u64 *home,
		    unsigned long *log_blk, unsigned int *flags)
{
	bool found = false;

	read_lock(&map->lock);
	while (*nr && !found) {
		struct jmap_slot *slot = &map->slots[*pos];

		if (slot->flags & JMAP_LINKED) {
			*home = jmap_slot_home(slot);
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
/* For snapshots                                                              */

/* Slots that are looked at without letting go of the lock. */
#define JMAP_STRETCH	1024U

/**
 * jmap_next_with() - the next slot with one of these flags, in log order
 * @map: the map
 * @any: the flags
 * @pos: where to go on
 * @nr: slots left
 * @slot: where to put its number
 * @copy: where to put what it holds
 *
 * Return: false if none is left.
 */
bool jmap_next_with(struct jmap *map, unsigned int any, u32 *pos, u32 *nr,
		    u32 *slot, struct jmap_slot *copy)
{
	bool found = false;
	u32 stretch;

	while (*nr && !found) {
		read_lock(&map->lock);
		for (stretch = 0; *nr && !found && stretch < JMAP_STRETCH;
		     stretch++) {
			if (map->slots[*pos].flags & any) {
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

/* The snapshots that are written from now on say what is dropped from now on. */
void jmap_set_generation(struct jmap *map, u32 generation)
{
	write_lock(&map->lock);
	map->generation = generation;
	write_unlock(&map->lock);
}

/**
 * jmap_copy_marks() - the next mark within a part of the log
 * @map: the map
 * @from: first slot of the part
 * @span: its length
 * @pos: how many marks were looked at; 0 at first
 * @mark: where to put the mark
 *
 * Return: 1, or 0 if none is left.
 */
u32 jmap_copy_marks(struct jmap *map, u32 from, u32 span, u32 *pos,
		    struct jmap_mark *mark)
{
	u32 found = 0;

	read_lock(&map->lock);
	while (!found && *pos < map->mark_count) {
		*mark = map->marks[(map->mark_head + *pos) % map->nr_marks];
		found = jmap_distance(map, from, mark->slot) < span;
		(*pos)++;
	}
	read_unlock(&map->lock);
	return found;
}

/* Whether a transaction that begins at @start would get a mark. */
bool jmap_marks_next(struct jmap *map, u32 start)
{
	bool marks = true;
	u32 last;

	read_lock(&map->lock);
	if (map->nr_live && map->mark_count) {
		last = (map->mark_head + map->mark_count - 1) % map->nr_marks;
		marks = jmap_distance(map, map->marks[last].slot, start) >=
			map->mark_span || map->mark_wanted;
	}
	read_unlock(&map->lock);
	return marks;
}

/* Forget everything; nobody else uses the map yet. */
void jmap_reset(struct jmap *map)
{
	memset(map->slots, 0, map->nr_slots * sizeof(*map->slots));
	memset(map->heads, 0, sizeof(*map->heads) << map->hash_bits);
	map->nr_live = 0;
	map->nr_demoted = 0;
	map->nr_dropped = 0;
	map->nr_superseded = 0;
	map->nr_lost = 0;
	map->mark_wanted = false;
	map->mark_head = 0;
	map->mark_count = 0;
	map->cursor = 0;
	map->end = 0;
}

/* The log begins with transaction @tid, at @log_blk. */
void jmap_load_tail(struct jmap *map, tid_t tid, unsigned long log_blk)
{
	map->cursor = jmap_slot_of(map, log_blk);
	map->end = map->cursor;
	jmap_load_mark(map, tid, map->cursor);
}

/* A transaction at which the tail may rest, behind the last such one. */
void jmap_load_mark(struct jmap *map, tid_t tid, u32 slot)
{
	u32 at = (map->mark_head + map->mark_count) % map->nr_marks;

	if (map->mark_count == map->nr_marks)
		return;		/* coarser, never wrong */
	map->marks[at].tid = tid;
	map->marks[at].slot = slot;
	map->mark_count++;
}

/**
 * jmap_load_copy() - link a copy that is newer than all that were loaded
 * @map: the map, which nobody else uses yet
 * @slot: where the copy is
 * @home: its home block
 * @escaped: as for jmap_note()
 *
 * Return: false if the slot holds another copy.
 */
bool jmap_load_copy(struct jmap *map, u32 slot, u64 home, bool escaped)
{
	struct jmap_slot *this = &map->slots[slot];
	u32 *link;

	if (this->flags & (JMAP_LINKED | JMAP_NOTED))
		return false;
	jmap_recycle(map, this);
	link = jmap_find(map, home);
	if (*link)
		jmap_unlink(map, link);
	this->home_lo = lower_32_bits(home);
	this->home_hi = upper_32_bits(home);
	this->flags = JMAP_LINKED | (escaped ? JMAP_ESCAPED : 0);
	link = jmap_head(map, home);
	this->next = *link;
	*link = slot + 1;
	map->nr_live++;
	return true;
}

/* What was noted of a transaction that turned out not to be complete. */
void jmap_unnote(struct jmap *map, unsigned long log_blk)
{
	struct jmap_slot *slot = &map->slots[jmap_slot_of(map, log_blk)];

	if (slot->flags & JMAP_NOTED)
		slot->flags = 0;
}

/* For debugging: whether a copy is live between the cursor and @log_blk. */
bool jmap_live_before(struct jmap *map, unsigned long log_blk)
{
	u32 nr = jmap_slot_of(map, log_blk), slot;
	bool found = false;

	read_lock(&map->lock);
	slot = map->cursor;
	if (map->nr_live && jmap_distance(map, slot, nr) <=
			    jmap_distance(map, slot, map->end))
		for (; slot != nr && !found; slot = jmap_next_slot(map, slot))
			found = map->slots[slot].flags & JMAP_LINKED;
	read_unlock(&map->lock);
	return found;
}

/*
 * For debugging: a number that is equal for equal contents of two maps of the
 * same log, no matter in which order they were filled.
 */
u64 jmap_digest(struct jmap *map)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < map->nr_slots; i++) {
		struct jmap_slot *slot = &map->slots[i];

		if (!(i % 4096))
			cond_resched();
		read_lock(&map->lock);
		if (slot->flags & JMAP_LINKED)
			sum += hash_64_generic(jmap_slot_home(slot) << 1 |
					       !!(slot->flags & JMAP_ESCAPED),
					       64) ^
			       hash_64_generic(i + 1, 64);
		read_unlock(&map->lock);
	}
	return sum;
}
