// SPDX-License-Identifier: GPL-2.0-only
/*
 * Histories of a lazy journal, and what must be true in each.
 *
 * A history is a row of bytes: a header that says how large the log is and so
 * on, then one operation after the other. 0 is no operation, so that a history
 * gets simpler by zeros. Every row of bytes is a history.
 *
 * What must be true is told by a list of the transactions that are durable, by
 * the rule that any recovery has: all tags in order, then all revokes, of each
 * transaction from the tail on. After each mount the map is what that gives,
 * and each block holds what was synced last, in the log or at home.
 */

#include <stdarg.h>
#include <stdio.h>
#include "model.h"

enum kind { FREE, META, FREEING, FILE_DATA, FILE_FREEING };

struct statistics stats;
bool failed, verbose;
u32 model_period_part, model_closing_blocks, model_reader_bytes;
u32 model_reader_first, model_advance, model_stretch, model_gap_bits;
u32 model_buffer;
struct home homes[HOMES_MOST];
u32 nr_homes;

static char failure[512];
static const u8 *history, *history_end;
static u32 slots, layout_kind, versions;
/* Blocks that are damaged at once at most, each at most so far from the last. */
static u32 damage_run = 3;
#define DAMAGE_STEP	4U
/* More than the mount searches for the next whole block. */
#define DAMAGE_MOST	(2 * (BLOCK / 16 + 2U))
static bool escapes, high_homes, warned, may_warn, quiet;
/* A transaction that holds a snapshot and is not durable, and the last that is. */
static bool cut_snapshot;
static tid_t newest_snapshot;
/* What a damaged log block held. */
static unsigned long damaged_blk;
static u8 undamaged[BLOCK];

/* The durable transactions of the log, oldest first. */
struct durable {
	tid_t tid;
	u32 log_start, log_end;
	u32 nr_tags, nr_revoked;
	u32 *tags, *blks, *revoked;
};

static struct durable *log_list;
static u32 nr_log, log_room;
static u32 owner[SLOTS_MOST + 1];

/* ------------------------------------------------------------------------- */
/* What is said                                                               */

void model_fail(const char *format, ...)
{
	va_list list;

	if (failed)
		return;
	failed = true;
	va_start(list, format);
	vsnprintf(failure, sizeof(failure), format, list);
	va_end(list);
	if (verbose)
		printf("FAILED: %s\n", failure);
}

void model_say(int level, const char *format, ...)
{
	va_list list;
	char line[400];

	va_start(list, format);
	vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	if (verbose)
		printf("  kernel %d: %s", level, line);
	if (level > 4 || quiet)
		return;
	warned = true;
	if (!may_warn && !disk_had_error()) {
		line[strcspn(line, "\n")] = 0;
		model_fail("there is no damage, but: %s", line);
	}
}

#define say(...) do { if (verbose) printf(__VA_ARGS__); } while (0)

bool jbd2_lazy_mutant(const char *name)
{
	static const char *mutant;

	if (!mutant)
		mutant = getenv("MODEL_MUTANT") ?: "";
	return !strcmp(mutant, name);
}

/* ------------------------------------------------------------------------- */
/* Contents                                                                   */

u64 home_number(u32 home)
{
	if (!high_homes)
		return home;
	/* Neighbours differ in the upper half only. */
	return (u64)(home % 2 * 0x7a31) << 32 | (home / 2 + 1);
}

u32 home_of_number(u64 number)
{
	u32 home = number;

	if (high_homes)
		home = ((u32)number - 1) * 2 + (number >> 32 != 0);
	if (home >= nr_homes || home_number(home) != number)
		model_fail("there is no home block %llu",
			   (unsigned long long)number);
	return home < nr_homes ? home : 0;
}

bool version_escaped(u32 version)
{
	return escapes && version % 5 == 3;
}

/* A copy as it is in the log: never with the journal's magic number. */
void copy_fill(u8 *data, u32 home, u32 version)
{
	u32 *words = (u32 *)data;

	memset(data, version, BLOCK);
	words[0] = version_escaped(version) ? 0 : version;
	words[1] = home;
	words[2] = version;
}

static bool copy_is(unsigned long log_blk, u32 home, u32 version)
{
	const u32 *words = (const u32 *)(log_blk == damaged_blk ? undamaged :
				disk_block(log_blk));

	return words[1] == home && words[2] == version &&
	       words[0] == (version_escaped(version) ? 0 : version);
}

/* ------------------------------------------------------------------------- */
/* What is durable                                                            */

static void log_list_clear(void)
{
	u32 i;

	for (i = 0; i < nr_log; i++)
		free(log_list[i].tags);
	nr_log = 0;
	for (i = 0; i < nr_homes; i++)
		homes[i].truth_blk = 0;
}

static void log_list_add(tid_t tid, u32 log_start, u32 log_blk,
			 const struct open_transaction *t)
{
	struct durable *new;
	u32 tags = t ? t->nr_tags : 0, revoked = t ? t->nr_revokes : 0, i;

	if (nr_log == log_room) {
		log_room = 2 * log_room + 64;
		log_list = realloc(log_list, log_room * sizeof(*log_list));
	}
	/* But for one that the tail has passed before it was written. */
	if (nr_log && log_list[nr_log - 1].tid + 1 != tid &&
	    !tid_gt(journal.j_tail_sequence, log_list[nr_log - 1].tid))
		model_fail("transaction %u comes after %u", tid,
			   log_list[nr_log - 1].tid);
	new = &log_list[nr_log++];
	new->tid = tid;
	new->log_start = log_start;
	new->log_end = jbd2_lazy_next_log_blk(&journal, log_blk);
	new->nr_tags = tags;
	new->nr_revoked = revoked;
	new->tags = malloc((2 * tags + revoked + 1) * sizeof(u32));
	new->blks = new->tags + tags;
	new->revoked = new->blks + tags;
	for (i = 0; i < tags; i++) {
		new->tags[i] = t->tags[i];
		new->blks[i] = t->blks[i];
	}
	for (i = 0; i < revoked; i++)
		new->revoked[i] = t->revoked[i];
}

static void becomes_true(const struct open_transaction *t)
{
	u32 i, j;

	for (i = 0; i < t->nr_tags; i++) {
		struct home *home = &homes[t->tags[i]];

		stats.copies++;
		stats.superseded += home->copies > 0;
		stats.escaped += version_escaped(home->truth);
		home->copies++;
		home->truth_is_file = false;
		home->truth_blk = t->blks[i];
		owner[t->blks[i]] = t->tags[i];
	}
	for (i = 0; i < t->nr_revokes; i++) {
		struct home *home = &homes[t->revoked[i]];

		stats.revokes++;
		stats.superseded_then_revoked += home->copies > 1;
		for (j = 0; j < t->nr_tags; j++)
			stats.tagged_and_revoked += t->tags[j] == t->revoked[i];
		home->copies = 0;
		home->truth = ANY;
		home->truth_is_file = false;
		home->truth_blk = 0;
	}
	for (i = 0; i < nr_homes; i++)
		if (homes[i].kind == FILE_FREEING &&
		    homes[i].freed_by == t->t.t_tid)
			homes[i].truth = ANY;
}

/* What the committing transaction holds of each block, for becomes_true(). */
static void copies_become_true(const struct open_transaction *t)
{
	u32 i;

	for (i = 0; i < t->nr_tags; i++) {
		const u32 *words = (const u32 *)disk_block(t->blks[i]);

		homes[t->tags[i]].truth = words[2];
		homes[t->tags[i]].unsynced = false;
	}
}

void on_log_write(unsigned long log_blk, const u8 *data, blk_opf_t opf)
{
	const __be32 *words = (const __be32 *)data;
	u32 type = be32_to_cpu(words[1]);
	tid_t tid = be32_to_cpu(words[2]);
	struct home *home = &homes[owner[log_blk]];

	if (home->truth_blk == log_blk && !home->truth_is_file &&
	    home->truth != ANY &&
	    !home_durable(owner[log_blk], home->truth))
		model_fail("log block %lu is overwritten, the only copy of block %u",
			   log_blk, owner[log_blk]);
	if (home->truth_blk == log_blk)
		home->truth_blk = 0;
	if (words[0] != cpu_to_be32(JBD2_MAGIC_NUMBER))
		return;
	if (type == JBD2_REVOKE_BLOCK && committing &&
	    words[4] == cpu_to_be32(0x4c5a5953)) {
		committing->has_snapshot = true;
		cut_snapshot = true;
		stats.snapshot_blocks++;
	}
	if (type != JBD2_COMMIT_BLOCK)
		return;
	/* The flush was done: this is the moment. */
	if (committing && committing->t.t_tid == tid) {
		log_list_add(tid, committing->t.t_log_start, log_blk,
			     committing);
		copies_become_true(committing);
		becomes_true(committing);
		stats.transactions++;
		stats.snapshots_written += committing->has_snapshot;
		if (committing->has_snapshot)
			newest_snapshot = tid;
		cut_snapshot = false;
	} else {
		log_list_add(tid, log_blk, log_blk, NULL);
	}
}

void on_flush(void)
{
	u32 i;

	for (i = 0; i < nr_homes; i++)
		if (homes[i].unsynced) {
			homes[i].unsynced = false;
			homes[i].truth = homes[i].memory;
			homes[i].truth_is_file = true;
		}
}

/* The transaction that holds the block is applied. */
void committed_home(u32 home)
{
	struct home *h = &homes[home];

	if (!h->rev_committing) {
		h->live = true;
		return;
	}
	h->live = false;
	if (h->kind == FREEING && !h->rev_running)
		h->kind = FREE;
}

/* ------------------------------------------------------------------------- */
/* What must be true                                                          */

/* By the rule, where the newest copy is; 0: at home. */
static void expected_map(tid_t tail, u32 *expected)
{
	u32 i, j;

	memset(expected, 0, nr_homes * sizeof(*expected));
	for (i = 0; i < nr_log; i++) {
		struct durable *t = &log_list[i];

		if (tid_gt(tail, t->tid))
			continue;
		for (j = 0; j < t->nr_tags; j++)
			expected[t->tags[j]] = t->blks[j];
		for (j = 0; j < t->nr_revoked; j++)
			expected[t->revoked[j]] = 0;
	}
}

static void check_contents(const u32 *in_log)
{
	u32 i;

	for (i = 0; i < nr_homes && !failed; i++) {
		struct home *home = &homes[i];

		if (home->truth_is_file && in_log && in_log[i])
			model_fail("block %u is a file's and in the map", i);
		if (home->truth == ANY)
			continue;
		if (in_log && in_log[i]) {
			if (!copy_is(in_log[i], i, home->truth))
				model_fail("log block %u does not hold block %u as it was synced",
					   in_log[i], i);
		} else if (home_read(i) != home->truth) {
			model_fail("block %u holds version %u at home, %u was synced (%s)",
				   i, home_read(i), home->truth,
				   home->truth_is_file ? "a file's" :
							 "metadata");
		}
	}
}

static void check_map(const u32 *expected)
{
	struct jmap *map = &journal.j_lazy->map;
	u32 i, live = 0;

	for (i = 0; i < nr_homes && !failed; i++) {
		unsigned long log_blk = 0;
		unsigned int flags = 0;
		bool found = jbd2_jmap_lookup(map, home_number(i), &log_blk, &flags);

		live += found;
		if ((found ? log_blk : 0) != expected[i])
			model_fail("block %u is at log block %lu, and should be at %u (0: at home)",
				   i, found ? log_blk : 0, expected[i]);
		else if (found && !(flags & JMAP_ESCAPED) !=
				  !version_escaped(homes[i].truth))
			model_fail("block %u: escaped or not?", i);
	}
	if (!failed && map->nr_live != live)
		model_fail("%u slots are live, of %u blocks", map->nr_live,
			   live);
}

/* Each mark is the beginning of a transaction, and the tail may rest on it. */
static void check_marks(void)
{
	struct jmap *map = &journal.j_lazy->map;
	u32 i, j, before = 0;

	for (i = 0; i < map->mark_count && !failed; i++) {
		struct jmap_mark *mark =
			&map->marks[(map->mark_head + i) % map->nr_marks];
		struct jmap_mark *first = &map->marks[map->mark_head];
		u32 distance = jbd2_jmap_distance(map, first->slot, mark->slot);

		for (j = 0; j < nr_log; j++)
			if (log_list[j].tid == mark->tid)
				break;
		if (j < nr_log &&
		    log_list[j].log_start != mark->slot + map->first)
			model_fail("transaction %u begins at %u, and not at %lu",
				   mark->tid, log_list[j].log_start,
				   mark->slot + map->first);
		if (j == nr_log && mark->tid != journal.j_tail_sequence)
			model_fail("there is a mark for transaction %u, which is none",
				   mark->tid);
		if (i && distance <= before)
			model_fail("marks are not in order");
		before = distance;
	}
}

/* The map that runs, which knows what went home. */
static void check_running(void)
{
	u32 expected[HOMES_MOST], i;

	if (disk_is_cut() || failed || is_journal_aborted(&journal))
		return;
	for (i = 0; i < nr_homes; i++)
		expected[i] = homes[i].live ? homes[i].truth_blk : 0;
	check_map(expected);
	check_marks();
}

/* ------------------------------------------------------------------------- */
/* Stock recovery, from what is on the disk                                   */

static bool stock_csum_ok(const u8 *data)
{
	u8 copy[BLOCK] __attribute__((aligned(16)));
	__be32 found;

	memcpy(copy, data, BLOCK);
	memcpy(&found, copy + BLOCK - 4, 4);
	memset(copy + BLOCK - 4, 0, 4);
	return found == cpu_to_be32(jbd2_chksum(&journal, journal.j_csum_seed,
						copy, BLOCK));
}

static tid_t stock_replay(void)
{
	struct found {
		tid_t tid;
		u32 home, blk;		/* blk 0: a revoke */
	} *all = NULL;
	u32 nr = 0, room = 0, committed = 0, left = slots, i, j;
	unsigned long blk = journal.j_tail;
	tid_t tid = journal.j_tail_sequence;

	while (left--) {
		const u8 *data = disk_block(blk);
		const __be32 *words = (const __be32 *)data;
		u32 at;

		if (words[0] != cpu_to_be32(JBD2_MAGIC_NUMBER) ||
		    be32_to_cpu(words[2]) != tid)
			break;
		blk = jbd2_lazy_next_log_blk(&journal, blk);
		if (be32_to_cpu(words[1]) == JBD2_COMMIT_BLOCK) {
			committed = nr;
			tid++;
			continue;
		}
		if (!stock_csum_ok(data))
			break;
		if (nr + BLOCK / 4 > room) {
			room = 2 * room + BLOCK / 4;
			all = realloc(all, room * sizeof(*all));
		}
		if (be32_to_cpu(words[1]) == JBD2_REVOKE_BLOCK) {
			u32 length = journal.has_64bit ? 8 : 4;

			for (at = 16; at + length <= be32_to_cpu(words[3]);
			     at += length) {
				u64 home = length == 8 ?
					get_unaligned_be64(data + at) :
					get_unaligned_be32(data + at);

				all[nr++] = (struct found) {
					tid, home_of_number(home), 0 };
			}
			continue;
		}
		for (at = 12;;) {
			const __be32 *tag = (const __be32 *)(data + at);
			u32 flags = be32_to_cpu(tag[1]);
			u64 home = be32_to_cpu(tag[0]);

			if (journal.has_64bit)
				home |= (u64)be32_to_cpu(tag[2]) << 32;
			all[nr++] = (struct found) {
				tid, home_of_number(home), blk };
			blk = jbd2_lazy_next_log_blk(&journal, blk);
			left -= !!left;
			at += flags & JBD2_FLAG_SAME_UUID ? 16 : 32;
			if (flags & JBD2_FLAG_LAST_TAG || at + 16 > BLOCK - 4)
				break;
		}
	}
	for (i = 0; i < committed; i++) {
		const u32 *words;
		bool revoked = false;

		if (!all[i].blk)
			continue;
		for (j = 0; j < committed && !revoked; j++)
			revoked = !all[j].blk && all[j].home == all[i].home &&
				  tid_geq(all[j].tid, all[i].tid);
		words = (const u32 *)disk_block(all[i].blk);
		if (!revoked)
			home_write(all[i].home, words[2]);
	}
	free(all);
	return tid - 1;
}

/* ------------------------------------------------------------------------- */
/* Bytes                                                                      */

static u32 take(void)
{
	return history < history_end ? *history++ : 0;
}

/* ------------------------------------------------------------------------- */
/* Operations on a mounted file system                                        */

static bool has_room(u32 more_tags, u32 more_revokes)
{
	u32 used = journal.j_transaction_overhead_buffers + more_tags +
		   more_revokes;

	if (running)
		used += running->nr_tags + running->nr_revokes;
	return used + 2 < (u32)journal.j_max_transaction_buffers &&
	       (!running || (running->nr_tags + more_tags < TAGS_MOST &&
			     running->nr_revokes + more_revokes < TAGS_MOST));
}

static bool demote_one(u32 i, unsigned long log_blk)
{
	struct jmap *map = &journal.j_lazy->map;
	struct home *home = &homes[i];

	if (home->in_running || home->in_committing || home->checkpoint ||
	    home->revoked)
		return false;
	if (!jbd2_jmap_drop_if(map, home_number(i), log_blk))
		return false;
	if (home->rev_running || home->rev_committing)
		model_fail("block %u goes home while it is being freed", i);
	if (!disk_is_cut() && !copy_is(log_blk, i, home->truth))
		model_fail("block %u goes home from a log block that does not hold it",
			   i);
	home->memory = home->truth;
	home->live = false;
	checkpoint_add(i);
	stats.demoted++;
	return true;
}

/* The oldest copies, in so many log blocks. */
static u32 demote_oldest(u32 span)
{
	struct jmap *map = &journal.j_lazy->map;
	unsigned long log_blk;
	u32 pos, left, nr = 0;
	u64 number;

	pos = jbd2_jmap_scan_start(map, &left);
	left = min(left, span);
	while (!failed && jbd2_jmap_next_live(map, &pos, &left, &number, &log_blk,
					 NULL))
		nr += demote_one(home_of_number(number), log_blk);
	return nr;
}

static void checkpoint(void)
{
	int left = 40;

	mutex_lock(&journal.j_checkpoint_mutex);
	while (journal.j_checkpoint_transactions && left-- &&
	       !jbd2_log_do_checkpoint(&journal))
		;
	mutex_unlock(&journal.j_checkpoint_mutex);
}

static int move_tail(void)
{
	int ret;

	mutex_lock(&journal.j_checkpoint_mutex);
	ret = jbd2_cleanup_journal_tail(&journal);
	mutex_unlock(&journal.j_checkpoint_mutex);
	return ret;
}

static void nothing(int when)
{
}

static void commit(void (*meanwhile)(int when))
{
	say("commit %u at %lu\n", stock_running()->t.t_tid, journal.j_head);
	stock_commit(meanwhile);
	check_running();
}

/* As __jbd2_log_wait_for_space(). */
static bool make_room(void)
{
	u32 tries;

	for (tries = 0; tries < 100 && !failed; tries++) {
		if (is_journal_aborted(&journal))
			return false;
		if (stock_space_left() >= journal.j_max_transaction_buffers)
			return true;
		if (committing)
			return false;
		stats.log_full++;
		if (!move_tail() && tries % 2 == 0)
			continue;
		demote_oldest(slots / 16 + 1);
		checkpoint();
		if (tries % 4 == 3 && running)
			commit(nothing);
	}
	if (!failed)
		model_fail("there is no way to get more log space");
	return false;
}

static void change(u32 i)
{
	struct home *home = &homes[i];
	struct open_transaction *t;

	if (home->kind == FILE_DATA || home->kind == FILE_FREEING)
		return;
	if (home->kind == FREEING) {
		/* Only its own transaction takes a revoke back. */
		if (!home->rev_running || home->in_running ||
		    !stock_cancel_revoke(i))
			return;
		__jbd2_lazy_revoking(&journal, home_number(i), false);
		home->revoked = false;
		stats.revokes_cancelled++;
	}
	t = stock_running();
	if (home->kind == FREE && home->copies == 0)
		stats.reused_for_metadata++;
	home->kind = META;
	home->memory = ++versions;
	home->dirty = false;
	if (home->in_running)
		return;
	home->in_running = true;
	t->tags[t->nr_tags++] = i;
}

static void change_some(u32 first, u32 nr)
{
	u32 i;

	if (!make_room())
		return;
	for (i = 0; i < nr && has_room(1, 0) && !failed; i++)
		change((first + i) % nr_homes);
	say("change %u of %u on\n", i, first % nr_homes);
}

/* jbd2_journal_revoke() and forget; @keep: the tag stays. */
static void free_block(u32 i, bool keep)
{
	struct open_transaction *t;
	struct home *home = &homes[i];
	bool joined = home->in_running || home->in_committing;
	u32 j;

	if (home->kind != META)
		return;
	t = stock_running();
	__jbd2_lazy_revoking(&journal, home_number(i), true);
	home->revoked = true;
	home->kind = FREEING;
	stats.revoked_while_committing += home->in_committing;
	if (home->in_running && !keep) {
		for (j = 0; t->tags[j] != i; j++)
			;
		t->tags[j] = t->tags[--t->nr_tags];
		home->in_running = false;
	}
	/* Written already: it may go; else it stays until the commit. */
	if (home->checkpoint && !home->dirty && !joined)
		checkpoint_remove(i);
	home->dirty = false;
	stock_revoke(i);
	__jbd2_lazy_revoking(&journal, home_number(i), true);
}

static void free_some(u32 first, u32 nr, bool keep)
{
	u32 i;

	if (!make_room())
		return;
	for (i = 0; i < nr && has_room(0, 1) && !failed; i++)
		free_block((first + i) % nr_homes, keep);
	say("free %u of %u on\n", i, first % nr_homes);
}

/* What the cleaner asks, and what it makes the next transaction do. */
static void pass_over(u32 part)
{
	struct jmap *map = &journal.j_lazy->map;
	unsigned long blk = journal.j_tail, at;
	u32 used = slots - journal.j_free, i, span;
	tid_t tid;

	for (i = used * part / 64; i; i--)
		blk = jbd2_lazy_next_log_blk(&journal, blk);
	span = jbd2_jmap_span_past(map, blk);
	if (span > used || jbd2_jmap_span_of(map, part) > used ||
	    jbd2_jmap_span_ahead(map, part) > used)
		model_fail("more of the log is to be cleaned than is used");
	/* Marks of an empty map mean nothing, nor does what is not applied. */
	if (map->nr_live && jbd2_jmap_mark_behind(map, blk, &tid, &at) &&
	    jbd2_lazy_log_distance(&journal, journal.j_tail, blk) <
	    jbd2_lazy_log_distance(&journal, journal.j_tail, jbd2_jmap_end(map)) &&
	    jbd2_lazy_log_distance(&journal, journal.j_tail, at) <=
	    jbd2_lazy_log_distance(&journal, journal.j_tail, blk))
		model_fail("the mark at %lu is not behind %lu", at, blk);
}

/* The cleaner's way: lazy_relog_one(). */
static void relog(u32 span)
{
	struct jmap *map = &journal.j_lazy->map;
	unsigned long log_blk;
	u32 pos, left;
	u64 number;

	if (!make_room())
		return;
	stock_running();
	pos = jbd2_jmap_scan_start(map, &left);
	left = min(left, span);
	while (!failed && has_room(1, 0) &&
	       jbd2_jmap_next_live(map, &pos, &left, &number, &log_blk, NULL)) {
		u32 i = home_of_number(number);
		struct home *home = &homes[i];

		if (home->revoked || home->in_running || home->in_committing ||
		    home->checkpoint ||
		    !jbd2_jmap_relog(map, number, log_blk))
			continue;
		if (home->rev_running || home->rev_committing)
			model_fail("block %u is filed while it is being freed",
				   i);
		home->memory = home->truth;
		home->in_running = true;
		running->tags[running->nr_tags++] = i;
		stats.relogged++;
	}
	say("relog %u log blocks\n", span);
}

static void file_data(u32 first, u32 nr)
{
	u32 i;

	/* Without power, a commit frees nothing. */
	if (disk_is_cut())
		return;
	for (i = first; i < first + nr; i++) {
		struct home *home = &homes[i % nr_homes];

		if (home->kind != FREE && home->kind != FILE_DATA)
			continue;
		stats.reused_for_files += home->kind == FREE;
		home->kind = FILE_DATA;
		home->memory = ++versions;
		home->truth = ANY;
		home->truth_is_file = false;
		home->unsynced = true;
		home_write(i % nr_homes, home->memory);
	}
	say("file data in %u blocks of %u on\n", nr, first % nr_homes);
}

static void free_file(u32 first, u32 nr)
{
	u32 i;

	if (!make_room())
		return;
	for (i = first; i < first + nr; i++) {
		struct home *home = &homes[i % nr_homes];

		if (home->kind != FILE_DATA || home->unsynced)
			continue;
		home->kind = FILE_FREEING;
		home->freed_by = stock_running()->t.t_tid;
	}
}

/* Blocks of files that a committed transaction freed. */
static void files_freed(tid_t tid)
{
	u32 i;

	for (i = 0; i < nr_homes; i++)
		if (homes[i].kind == FILE_FREEING && homes[i].freed_by == tid)
			homes[i].kind = FREE;
}

/* The flusher writes some of what is dirty. */
static void write_back(u32 first, u32 nr)
{
	u32 i;

	for (i = first; i < first + nr; i++) {
		struct home *home = &homes[i % nr_homes];

		if (!home->dirty)
			continue;
		home_write(i % nr_homes, home->memory);
		home->dirty = false;
		stats.written_home++;
	}
}

static u32 meanwhile_plan;

static void step(bool alone);

static void meanwhile(int when)
{
	u32 nr = meanwhile_plan >> 2 * when & 3;

	/* The journal superblock is written before the commit block. */
	if (meanwhile_plan >> 9 & 1 && when == 1)
		move_tail();
	while (nr-- && !failed && !is_journal_aborted(&journal))
		step(false);
}

static void commit_with(u32 plan)
{
	tid_t tid = stock_running()->t.t_tid;

	meanwhile_plan = plan;
	stock_mutex_busy = plan >> 8 & 1;
	commit(meanwhile);
	stock_mutex_busy = false;
	if (!is_journal_aborted(&journal))
		files_freed(tid);
}

/* ------------------------------------------------------------------------- */
/* Mounts                                                                     */

static void remember_truth(const u32 *expected)
{
	u32 i;

	for (i = 0; i < nr_homes; i++) {
		struct home *home = &homes[i];
		u32 truth = home->truth, blk = home->truth_blk;
		u32 copies = home->copies;
		bool is_file = home->truth_is_file;

		memset(home, 0, sizeof(*home));
		home->truth = truth;
		home->truth_is_file = is_file;
		home->truth_blk = expected ? expected[i] : 0;
		if (!home->truth_blk && expected)
			home->truth_blk = blk;
		home->memory = truth;
		home->live = expected && expected[i];
		home->copies = copies;
		home->kind = truth == ANY ? FREE : is_file ? FILE_DATA : META;
	}
}

/* What is in memory goes; what is on the disk stays. */
static void power_off(u32 luck)
{
	struct lazy_mark mark;
	u32 i;

	for (i = 0; i < nr_homes; i++) {
		if (homes[i].checkpoint && homes[i].truth != ANY &&
		    !homes[i].truth_is_file &&
		    !home_durable(i, homes[i].truth))
			stats.demoted_not_durable++;
		homes[i].unsynced = false;
	}
	stats.crashes_in_snapshot += cut_snapshot;
	cut_snapshot = false;
	if (journal.j_lazy)
		stock_unload();
	disk_crash(luck);
	if (jbd2_lazy_marked(sb_read(), &mark) && newest_snapshot &&
	    mark.snapshot.tid != newest_snapshot)
		stats.crashes_before_marker++;
}

static void mounted(bool kept)
{
	u32 expected[HOMES_MOST];
	const journal_superblock_t *sb = sb_read();

	if (!kept) {
		log_list_clear();
		memset(owner, 0, sizeof(owner));
		check_contents(NULL);
		remember_truth(NULL);
		return;
	}
	expected_map(be32_to_cpu(sb->s_sequence), expected);
	check_map(expected);
	check_marks();
	check_contents(expected);
	if (!failed && nr_log &&
	    tid_geq(log_list[nr_log - 1].tid, be32_to_cpu(sb->s_sequence)) &&
	    journal.j_lazy->scan_tid != log_list[nr_log - 1].tid + 1)
		model_fail("the log ends with transaction %u, not with %u",
			   log_list[nr_log - 1].tid,
			   journal.j_lazy->scan_tid - 1);
	if (journal.j_lazy->loaded)
		stats.snapshots_read++;
	else
		stats.full_scans++;
	if (disk_remains(journal.j_lazy->scan_tid))
		stats.remains++;
	remember_truth(expected);
}

/* Mount lazily, and look at everything. */
static void mount(void)
{
	const journal_superblock_t *sb = sb_read();
	struct lazy_mark mark;
	bool kept = jbd2_lazy_marked(sb, &mark);
	int err;

	say("mount: tail %u at %u\n", be32_to_cpu(sb->s_sequence),
	    be32_to_cpu(sb->s_start));
	err = stock_mount_with(layout_kind, true, stock_replay);
	if (err)
		model_fail("the mount fails: %d", err);
	else
		mounted(kept);
}

static void mount_without_memory(u32 nth)
{
	struct lazy_mark mark;
	int err;

	if (!jbd2_lazy_marked(sb_read(), &mark))
		return;
	quiet = true;
	alloc_fail_at(nth);
	err = stock_mount_with(layout_kind, true, stock_replay);
	alloc_fail_at(0);
	quiet = false;
	if (err == -ENOMEM)
		stats.mounts_without_memory++;
	else if (err)
		model_fail("a mount without memory fails with %d", err);
	stock_unload();
}

static void crash(u32 luck)
{
	say("power cut, luck %u\n", luck);
	power_off(luck);
	stats.crash_mounts++;
	mount();
}

/* The file system is unmounted; ext4 logs its superblock once more. */
static void unmount_and_mount(u32 luck)
{
	int kept;

	if (running && running->nr_tags + running->nr_revokes == 0 && luck % 2)
		luck++;
	if (luck % 4) {
		if (!make_room())
			return;
		jbd2_lazy_closing(&journal);
		if (luck % 4 > 1 && has_room(1, 0))
			change(0);
	}
	disk_flush();
	if (running)
		commit_with(0);
	if (luck % 8 < 3) {
		write_back(luck, nr_homes);
		clean_checkpoint_list();
	} else if (luck % 8 < 6) {
		checkpoint();
	}
	kept = __jbd2_lazy_seal(&journal);
	say("unmount: %s\n", kept ? "kept" : "empty");
	if (kept < 0 && !is_journal_aborted(&journal))
		model_fail("unmount fails: %d", kept);
	if (!kept && !is_journal_aborted(&journal))
		stock_mark_empty();
	/* All is durable, so luck is not needed. */
	power_off(luck);
	stats.clean_mounts++;
	mount();
}

static void drain(void)
{
	u32 tries = 0;

	if (running)
		commit_with(0);
	while (journal.j_lazy->map.nr_live && tries++ < 20 && !failed) {
		demote_oldest(slots);
		checkpoint();
	}
	checkpoint();
	if (is_journal_aborted(&journal))
		return;
	if (journal.j_lazy->map.nr_live)
		model_fail("a drain leaves %u blocks",
			   journal.j_lazy->map.nr_live);
	stock_empty();
	say("drained\n");
	stats.drains++;
	check_contents(NULL);
}

static void stock_has_it(u32 luck)
{
	int err;

	say("a stock kernel replays the log\n");
	power_off(luck);
	err = stock_mount_with(layout_kind, false, stock_replay);
	if (err)
		model_fail("stock fails: %d", err);
	log_list_clear();
	check_contents(NULL);
	disk_crash(0);
	mount();
}

static bool mount_damaged(unsigned long blk, u32 how)
{
	bool loaded;

	memcpy(undamaged, disk_block(blk), BLOCK);
	damaged_blk = blk;
	disk_damage(blk, how);
	say("damage %u to log block %lu\n", how % 4, blk);
	may_warn = true;
	warned = false;
	mount();
	may_warn = false;
	damaged_blk = 0;
	loaded = !failed && journal.j_lazy && journal.j_lazy->loaded;
	disk_restore(blk, undamaged);
	return loaded;
}

/*
 * Damage a block of the snapshot that the marker points at, which costs a scan
 * of the log and nothing else, or what is in front of it, which is not read.
 */
static void damage_and_mount(u32 luck, u32 how)
{
	const journal_superblock_t *sb;
	unsigned long blk, tail;
	const struct snap_ref *ref;
	struct lazy_mark mark;
	u32 i, span;

	power_off(luck);
	sb = sb_read();
	tail = be32_to_cpu(sb->s_start);
	stats.crash_mounts++;
	ref = &mark.snapshot;
	if (!jbd2_lazy_marked(sb, &mark) || !ref->blocks ||
	    tid_gt(be32_to_cpu(sb->s_sequence), ref->tid)) {
		mount();
		return;
	}
	blk = ref->log_blk;
	span = jbd2_lazy_log_distance(&journal, tail, ref->start);
	if (how % 8 < 5 || !span) {
		for (i = how / 8 % ref->blocks; i; i--)
			blk = jbd2_lazy_next_log_blk(&journal, blk);
		if (mount_damaged(blk, how))
			model_fail("nobody notices the damage");
		stats.damaged_snapshots++;
		stats.snapshots_refused += warned;
		return;
	}
	blk = tail;
	for (i = how * 7919 % span; i; i--)
		blk = jbd2_lazy_next_log_blk(&journal, blk);
	if (*(const __be32 *)disk_block(blk) == cpu_to_be32(JBD2_MAGIC_NUMBER))
		stats.damage_passed++;
	else
		stats.damaged_copies++;
	if (!mount_damaged(blk, how) || warned)
		model_fail("damage in front of a snapshot is noticed");
}

/*
 * What is found in a log with damage that no snapshot covers may be less, if
 * that is said, but no block that was freed comes back, and nothing that is
 * older than what was found is taken for it without a word.
 */
static void check_damaged(tid_t tail, tid_t known)
{
	struct jbd2_lazy *lazy = journal.j_lazy;
	u32 expected[HOMES_MOST], i, nr = nr_log;
	tid_t last = lazy->scan_tid - 1;

	if (tid_gt(known, last))
		model_fail("the log ends with %u, and %u was durable", last,
			   known);
	while (nr_log && tid_gt(log_list[nr_log - 1].tid, last))
		nr_log--;
	expected_map(tail, expected);
	nr_log = nr;
	for (i = 0; i < nr_homes && !failed; i++) {
		unsigned long log_blk = 0;
		bool found = jbd2_jmap_lookup(&lazy->map, home_number(i), &log_blk,
					 NULL);

		if (found && !expected[i])
			model_fail("block %u, which was freed, comes back through damage",
				   i);
		else if (log_blk != expected[i] && !lazy->lost)
			model_fail("block %u is at log block %lu, should be at %u, and nothing is said to be lost",
				   i, log_blk, expected[i]);
	}
}

static unsigned long blocks_on(unsigned long blk, u32 steps)
{
	while (steps--)
		blk = jbd2_lazy_next_log_blk(&journal, blk);
	return blk;
}

/*
 * Damage @run blocks, side by side or with others between, anywhere in the log;
 * half of the last ones are the last block of the log, mostly a commit block.
 * Now and then a stretch cannot be read that is wider than what is searched.
 */
static void damage_anywhere(u32 luck, u32 where, u32 how, u32 run)
{
	u32 apart = 1 + how / 4 % DAMAGE_STEP;
	const journal_superblock_t *sb;
	u8 before[DAMAGE_MOST][BLOCK];
	unsigned long blks[DAMAGE_MOST], end;
	struct lazy_mark mark;
	u32 i, span = 0;
	int err;

	/* Half of the logs end where the marker says. */
	if (luck % 2) {
		if (running)
			commit_with(0);
		if (__jbd2_lazy_seal(&journal) < 0 &&
		    !is_journal_aborted(&journal))
			model_fail("sealing fails");
	}
	power_off(luck / 2);
	sb = sb_read();
	stats.crash_mounts++;
	if (jbd2_lazy_marked(sb, &mark) && nr_log)
		span = jbd2_lazy_log_distance(&journal, be32_to_cpu(sb->s_start),
					 log_list[nr_log - 1].log_end);
	if (!span || tid_gt(be32_to_cpu(sb->s_sequence),
			    log_list[nr_log - 1].tid)) {
		mount();
		return;
	}
	/* Often near the end, where nothing behind tells what was there. */
	end = blocks_on(be32_to_cpu(sb->s_start), span - 1);
	blks[0] = blocks_on(be32_to_cpu(sb->s_start),
			    where % 2 ? where / 2 % span :
					span - 1 - where / 2 % min(span, 12U));
	if (how % 4 == 0 && how / 32 % 4 == 3) {
		run = DAMAGE_MOST;
		apart = 1;
	}
	for (i = 0; i < run; i++) {
		if (i)
			blks[i] = blocks_on(blks[i - 1], apart);
		if (i && i + 1 == run && how / 16 % 2 && run < DAMAGE_MOST)
			blks[i] = end;
		memcpy(before[i], disk_block(blks[i]), BLOCK);
		disk_damage(blks[i], how);
		say("damage %u to log block %lu\n", how % 4, blks[i]);
	}
	may_warn = true;
	warned = false;
	err = stock_mount_with(layout_kind, true, stock_replay);
	may_warn = false;
	if (err == -EFSCORRUPTED)
		stats.damage_refused++;
	else if (err == -EIO && run == DAMAGE_MOST)
		stats.holes_refused++;
	else if (err)
		model_fail("the mount fails: %d", err);
	else
		check_damaged(be32_to_cpu(sb->s_sequence), run == DAMAGE_MOST ?
			      log_list[nr_log - 1].tid : mark.known);
	stats.damage_bridged += !err && warned;
	while (run--)
		disk_restore(blks[run], before[run]);
	if (journal.j_lazy)
		stock_unload();
	if (!failed)
		mount();
}

/* ------------------------------------------------------------------------- */
/* A history                                                                  */

static u32 span_of(u32 byte)
{
	return 1 + byte % 16 * (byte >> 6 ? byte >> 6 : 1);
}

static void step(bool alone)
{
	u32 op = take(), first, nr;

	if (!op)
		return;
	op %= 32;
	switch (op) {
	case 1 ... 8:
		first = take();
		nr = op < 6 ? span_of(take()) : nr_homes * op / 16;
		change_some(first, nr);
		break;
	case 9 ... 11:
		first = take();
		free_some(first, op == 11 ? nr_homes / 3 : span_of(take()),
			  op == 9 && first % 8 == 0);
		break;
	case 12 ... 16:
		if (alone)
			commit_with(op == 12 ? take() | take() << 8 : 0);
		break;
	case 17:
		demote_oldest(span_of(take()) * 2);
		break;
	case 18:
		write_back(take(), nr_homes / 3);
		break;
	case 19:
		first = take();
		if (first % 4 < 2)
			clean_checkpoint_list();
		else if (alone && first % 4 == 2)
			checkpoint();
		if (first % 8 < 6)
			move_tail();
		break;
	case 20:
		relog(slots / 32 * (1 + take() % 8));
		break;
	case 21:
	case 22:
		first = take();
		file_data(first, span_of(take()));
		break;
	case 23:
		free_file(take(), 1 + nr_homes / 8);
		break;
	case 24:
		first = take();
		if (first % 4 == 1)
			disk_fail_write(1 + first / 8, first / 4 % 2);
		else if (first % 4 == 2)
			pass_over(first / 4);
		else
			disk_flush();
		break;
	case 25:
		if (alone)
			unmount_and_mount(take());
		break;
	case 26:
		if (alone)
			crash(take());
		break;
	case 27:
	case 28:
		if (!alone)
			break;
		first = take();
		nr = 1 + first % (op == 27 ? 8 : 200);
		say("the power fails at write %u of a commit\n", nr);
		disk_cut_after(nr);
		commit_with((take() << 2 & 0xff) | (first & 1) << 9);
		stats.crashes_in_commit++;
		crash(first / 8 % 4 ? take() : 255 * (first / 32 % 2));
		break;
	case 29:
		if (!alone)
			break;
		first = take();
		nr = take();
		if (first % 2)
			damage_and_mount(nr, take());
		else
			damage_anywhere(nr, take() | take() << 8, take(),
					1 + first / 2 % damage_run);
		break;
	case 30:
		first = take();
		if (!alone) {
			if (first % 16 == 0 && committing)
				jbd2_journal_abort(&journal, -EIO);
			break;
		}
		switch (first % 8) {
		case 0:
			drain();
			break;
		case 1:
			stock_has_it(take());
			break;
		case 2:
			power_off(take());
			mount_without_memory(1 + first / 8);
			mount();
			break;
		case 3:
			power_off(take());
			stats.read_only_mounts++;
			mount();
			if (!failed)
				crash(0);
			break;
		default:
			if (running)
				commit_with(0);
			jbd2_lazy_closing(&journal);
			if (__jbd2_lazy_seal(&journal) < 0)
				model_fail("sealing fails");
			stats.seals++;
		}
		break;
	case 31:
		jbd2_lazy_closing(&journal);
		break;
	}
}

static const u32 sizes[] = { 300, 400, 300, 200, 600, 128, 400, 1500 };
static const u32 many[] = { 24, 48, 12, 90, 60, 6, 130, 400 };

static void run(const u8 *bytes, size_t nr)
{
	u32 header[7], i;

	history = bytes;
	history_end = bytes + nr;
	for (i = 0; i < ARRAY_SIZE(header); i++)
		header[i] = take();
	slots = sizes[header[0] % 8];
	nr_homes = min(many[header[1] % 8], slots / 3);
	layout_kind = header[2];
	escapes = header[3] % 4;
	high_homes = header[3] / 4 % 2;
	model_period_part = 4 << header[4] % 5;
	model_closing_blocks = header[4] / 16 % 4 ? 4 << header[4] / 16 % 4 : 512;
	model_reader_bytes = header[6] % 4 ? 4096 << 2 * (header[6] % 4 - 1) :
					     128 << 10;
	model_reader_first = BLOCK << header[6] / 4 % 4;
	model_advance = header[6] / 16 % 4 ? 4 << 2 * (header[6] / 16 % 4) :
					     65536;
	model_stretch = header[6] / 64 ? 8 << header[6] / 64 : 1024;
	model_gap_bits = header[2] / 16 % 4 ? 2 * (header[2] / 16 % 4) : 13;
	model_buffer = header[4] / 64 ? 1 + header[4] / 64 : 0;
	failed = false;
	failure[0] = 0;
	may_warn = false;
	quiet = false;
	versions = 0;
	cut_snapshot = false;
	newest_snapshot = 0;
	damaged_blk = 0;
	memset(homes, 0, sizeof(homes));
	memset(owner, 0, sizeof(owner));
	disk_start(slots, nr_homes);
	stock_start(slots, header[5] % 4 ? header[5] : -(slots + 4 + header[5] / 8),
		    high_homes || header[3] / 8 % 2);
	mount();
	while (history < history_end && !failed) {
		step(true);
		if (!failed && is_journal_aborted(&journal)) {
			say("the journal is aborted\n");
			crash(take());
		}
	}
	if (!failed)
		crash(137);
	if (!failed)
		stock_has_it(0);
	if (journal.j_lazy)
		stock_unload();
	log_list_clear();
	disk_stop();
}

/* ------------------------------------------------------------------------- */
/* As a server: a length, a history; back come a length and what failed.      */

static bool read_all(void *data, size_t bytes)
{
	return fread(data, 1, bytes, stdin) == bytes;
}

static void print_statistics(void)
{
#define PRINT(name) fprintf(stderr, "%s %llu\n", #name, \
			    (unsigned long long)stats.name);
	STATISTICS(PRINT)
#undef PRINT
}

int main(int argc, char **argv)
{
	static u8 bytes[1 << 16];
	u32 length;

	if (getenv("DAMAGE_RUN"))
		damage_run = atoi(getenv("DAMAGE_RUN"));
	if (argc == 3) {
		const char *hex = argv[2];

		verbose = true;
		setvbuf(stdout, NULL, _IOLBF, 0);
		for (length = 0; hex[2 * length] && length < sizeof(bytes);
		     length++)
			if (sscanf(hex + 2 * length, "%2hhx", &bytes[length]) != 1)
				return 2;
		run(bytes, length);
		printf("%s\n", failed ? failure : "nothing is wrong");
		return failed;
	}
	while (read_all(&length, sizeof(length)) && length <= sizeof(bytes) &&
	       read_all(bytes, length)) {
		run(bytes, length);
		length = strlen(failure);
		fwrite(&length, sizeof(length), 1, stdout);
		fwrite(failure, 1, length, stdout);
		fflush(stdout);
	}
	print_statistics();
	return 0;
}
