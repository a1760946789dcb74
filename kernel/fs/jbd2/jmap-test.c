// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the map of lazy writeback journaling.
 */

#include <kunit/test.h>
#include <linux/random.h>
#include "jmap.h"

#define FIRST	1UL	/* jbd2 keeps its superblock in log block 0 */
#define BLOCKS	1024UL	/* the smallest journal */

static bool revoke_of(void *ctx, u64 home)
{
	return home == *(u64 *)ctx;
}

static int jmap_test_init(struct kunit *test)
{
	struct jmap *map = kunit_kzalloc(test, sizeof(*map), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, map);
	KUNIT_ASSERT_EQ(test, jbd2_jmap_init(map, FIRST, FIRST + BLOCKS), 0);
	test->priv = map;
	return 0;
}

static void jmap_test_exit(struct kunit *test)
{
	if (test->priv)
		jbd2_jmap_destroy(test->priv);
}

/* Log block @log, which may be beyond the end, on the ring. */
static unsigned long ring(unsigned long log)
{
	return FIRST + (log - FIRST) % BLOCKS;
}

/*
 * Commit a transaction of @n copies: a descriptor, the copies, a commit block.
 * Returns the log block behind it.
 */
static unsigned long commit(struct jmap *map, tid_t tid, unsigned long log,
			    const u64 *homes, unsigned int n,
			    bool (*revoking)(void *, u64), void *ctx)
{
	unsigned long end = log + n + 2, b;
	unsigned int i;

	for (i = 0; i < n; i++)
		jbd2_jmap_note(map, ring(log + 1 + i), homes[i], false,
			       log + i);
	jbd2_jmap_apply_begin(map, tid, ring(log));
	for (b = log; b < end; b++)
		jbd2_jmap_apply_slot(map, ring(b), revoking, ctx);
	jbd2_jmap_apply_end(map, ring(end));
	return end;
}

static void noted_copy_is_found_only_after_commit(struct kunit *test)
{
	struct jmap *map = test->priv;
	unsigned long log;
	u64 home = 4711;

	KUNIT_EXPECT_TRUE(test, jbd2_jmap_note(map, 2, home, false, 0));
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_lookup(map, home, &log, NULL));
	commit(map, 1, FIRST, &home, 1, NULL, NULL);
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, home, &log, NULL));
	KUNIT_EXPECT_EQ(test, log, 2);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_home_of(map, 2, &home));
	KUNIT_EXPECT_EQ(test, home, 4711);
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_home_of(map, 1, &home));
}

static void newer_copy_takes_the_place_of_older(struct kunit *test)
{
	struct jmap *map = test->priv;
	u64 homes[] = { 10, 20 };
	unsigned long log;

	log = commit(map, 1, FIRST, homes, 2, NULL, NULL);
	commit(map, 2, log, homes, 1, NULL, NULL);
	KUNIT_EXPECT_EQ(test, map->nr_live, 2);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_lookup(map, 10, &log, NULL));
	KUNIT_EXPECT_EQ(test, log, 6);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_lookup(map, 20, &log, NULL));
	KUNIT_EXPECT_EQ(test, log, 3);
}

static void revoked_block_is_dropped(struct kunit *test)
{
	struct jmap *map = test->priv;
	u64 home = 10;

	commit(map, 1, FIRST, &home, 1, NULL, NULL);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_drop(map, home));
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_drop(map, home));
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_lookup(map, home, NULL, NULL));
	KUNIT_EXPECT_EQ(test, map->nr_live, 0);
}

static void block_being_revoked_does_not_go_home(struct kunit *test)
{
	struct jmap *map = test->priv;
	unsigned long log;
	u64 home = 10;

	commit(map, 1, FIRST, &home, 1, NULL, NULL);
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, home, &log, NULL));
	jbd2_jmap_set_revoking(map, home, true);
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_drop_if(map, home, log));
	jbd2_jmap_set_revoking(map, home, false);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_drop_if(map, home, log));
}

static void newer_copy_inherits_the_revoke(struct kunit *test)
{
	struct jmap *map = test->priv;
	unsigned long log, end;
	u64 home = 10;

	end = commit(map, 1, FIRST, &home, 1, NULL, NULL);
	jbd2_jmap_set_revoking(map, home, true);
	commit(map, 2, end, &home, 1, NULL, NULL);
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, home, &log, NULL));
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_drop_if(map, home, log));
}

static void first_copy_asks_the_running_transaction(struct kunit *test)
{
	struct jmap *map = test->priv;
	u64 homes[] = { 10, 20 };
	unsigned long log;

	commit(map, 1, FIRST, homes, 2, revoke_of, &homes[0]);
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, 10, &log, NULL));
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_drop_if(map, 10, log));
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, 20, &log, NULL));
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_drop_if(map, 20, log));
}

static void superseded_copy_does_not_go_home(struct kunit *test)
{
	struct jmap *map = test->priv;
	unsigned long end;
	u64 home = 10;

	end = commit(map, 1, FIRST, &home, 1, NULL, NULL);
	commit(map, 2, end, &home, 1, NULL, NULL);
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_drop_if(map, home, 2));
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_lookup(map, home, NULL, NULL));
}

static void escape_and_large_block_number_survive(struct kunit *test)
{
	struct jmap *map = test->priv;
	u64 home = (1ULL << 48) - 3, got;
	unsigned int flags;
	unsigned long log;

	jbd2_jmap_note(map, 5, home, true, 0);
	jbd2_jmap_apply_begin(map, 1, 4);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_apply_slot(map, 5, NULL, NULL));
	jbd2_jmap_apply_end(map, 6);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_home_of(map, 5, &got));
	KUNIT_EXPECT_EQ(test, got, home);
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, home, &log, &flags));
	KUNIT_EXPECT_TRUE(test, flags & JMAP_ESCAPED);
	/* A later copy that is not escaped loses the flag. */
	commit(map, 2, 7, &home, 1, NULL, NULL);
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, home, &log, &flags));
	KUNIT_EXPECT_FALSE(test, flags & JMAP_ESCAPED);
}

static void empty_range_is_refused(struct kunit *test)
{
	struct jmap map;

	KUNIT_EXPECT_EQ(test, jbd2_jmap_init(&map, 5, 5), -EINVAL);
	KUNIT_EXPECT_EQ(test, jbd2_jmap_init(&map, 5, 4), -EINVAL);
}

static void tail_rests_on_the_oldest_live_transaction(struct kunit *test)
{
	struct jmap *map = test->priv;
	unsigned long log = FIRST, start[4], blk;
	u64 homes[20];
	tid_t tid;
	int i, t;

	KUNIT_EXPECT_FALSE(test, jbd2_jmap_oldest(map, &tid, &blk));
	/* Four transactions, each longer than the distance of two marks. */
	for (t = 0; t < 4; t++) {
		for (i = 0; i < 20; i++)
			homes[i] = t * 100 + i;
		start[t] = log;
		log = commit(map, 10 + t, log, homes, 20, NULL, NULL);
	}
	for (t = 0; t < 4; t++) {
		KUNIT_ASSERT_TRUE(test, jbd2_jmap_oldest(map, &tid, &blk));
		KUNIT_EXPECT_EQ(test, tid, 10 + t);
		KUNIT_EXPECT_EQ(test, blk, start[t]);
		for (i = 0; i < 20; i++)
			KUNIT_EXPECT_TRUE(test, jbd2_jmap_drop(map, t * 100 + i));
	}
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_oldest(map, &tid, &blk));
}

/* What the map keeps up to date is what adding up its slots gives. */
static u64 digest_by_hand(struct jmap *map)
{
	u32 pos = 0, left = map->nr_slots, slot;
	struct jmap_slot copy;
	u64 sum = 0;

	while (jbd2_jmap_next_copy(map, &pos, &left, &slot, &copy))
		sum += jbd2_jmap_digest_of(slot, &copy);
	return sum;
}

/*
 * Random transactions, revokes and demotions around the ring many times,
 * against an array.  The tail follows jbd2_jmap_oldest(), as jbd2's does; a copy
 * below it must never be needed (L1).
 */
static void equals_a_plain_array_over_many_revolutions(struct kunit *test)
{
	enum { HOMES = 300, ROUNDS = 20000 };
	struct jmap *map = test->priv;
	unsigned long *where = kunit_kcalloc(test, HOMES, sizeof(*where),
					     GFP_KERNEL);
	unsigned long log = FIRST, tail = FIRST, got, blk;
	u32 seed = 20170227;
	struct rnd_state rnd;
	tid_t tid, t;
	u64 homes[24];
	u32 live = 0;
	int i, n;

	KUNIT_ASSERT_NOT_NULL(test, where);
	prandom_seed_state(&rnd, seed);
	for (tid = 1; tid <= ROUNDS; tid++) {
		u64 h;

		n = prandom_u32_state(&rnd) % ARRAY_SIZE(homes);
		/* Distinct homes: a transaction logs a block once. */
		homes[0] = prandom_u32_state(&rnd) % HOMES;
		for (i = 1; i < n; i++)
			homes[i] = (homes[i - 1] + 7) % HOMES;
		/* Room: demote from the tail, as the real thing does. */
		while (log + n + 2 - tail > BLOCKS - 2) {
			u32 pos, left;
			u64 home;

			pos = jbd2_jmap_scan_start(map, &left);
			if (jbd2_jmap_next_live(map, &pos, &left, &home, &blk,
						NULL)) {
				KUNIT_ASSERT_TRUE(test,
						  jbd2_jmap_drop_if(map, home,
								    blk));
				where[home] = 0;
			}
			if (!jbd2_jmap_oldest(map, &t, &blk))
				tail = log;
			else
				while (ring(tail) != blk)
					tail++;
		}
		for (i = 0; i < n; i++)
			where[homes[i]] = log + 1 + i;
		log = commit(map, tid, log, homes, n, NULL, NULL);
		for (i = prandom_u32_state(&rnd) % 4; i; i--) {
			h = prandom_u32_state(&rnd) % HOMES;
			KUNIT_ASSERT_EQ_MSG(test, jbd2_jmap_drop(map, h),
					    where[h] != 0, "seed %u tid %u",
					    seed, tid);
			where[h] = 0;
		}
		if (jbd2_jmap_oldest(map, &t, &blk))
			while (ring(tail) != blk) {
				tail++;
				KUNIT_ASSERT_LE(test, tail, log);
			}
		for (h = 0, live = 0; h < HOMES; h++) {
			bool found = jbd2_jmap_lookup(map, h, &got, NULL);

			live += found;
			KUNIT_ASSERT_EQ_MSG(test, found, where[h] != 0,
					    "seed %u tid %u home %llu",
					    seed, tid, h);
			if (!found)
				continue;
			KUNIT_ASSERT_EQ(test, got, ring(where[h]));
			KUNIT_ASSERT_GE_MSG(test, where[h], tail,
					    "seed %u tid %u: the tail passed a live copy",
					    seed, tid);
		}
		KUNIT_ASSERT_EQ(test, live, map->nr_live);
		if (!(tid % 64))
			KUNIT_ASSERT_EQ_MSG(test, map->digest,
					    digest_by_hand(map),
					    "seed %u tid %u", seed, tid);
	}
	KUNIT_EXPECT_GT(test, log, 100 * BLOCKS);
}

static void tail_behind_a_live_copy_is_noticed(struct kunit *test)
{
	struct jmap *map = test->priv;
	u64 homes[] = { 10, 20 };
	unsigned long second, third;

	second = commit(map, 1, FIRST, homes, 2, NULL, NULL);
	third = commit(map, 2, second, homes, 1, NULL, NULL);
	/* 20 lives in the first transaction, 10 in the second. */
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_live_before(map, FIRST));
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_live_before(map, second));
	jbd2_jmap_drop(map, 20);
	second = FIRST + 4;
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_live_before(map, second));
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_live_before(map, third));
}

static void digest_knows_each_copy_and_its_place(struct kunit *test)
{
	struct jmap *map = test->priv;
	u64 homes[] = { 10, 20 }, empty, one, other;
	unsigned long log;

	empty = jbd2_jmap_digest(map);
	log = commit(map, 1, FIRST, homes, 1, NULL, NULL);
	one = jbd2_jmap_digest(map);
	KUNIT_EXPECT_NE(test, one, empty);
	/* The same block in another place. */
	log = commit(map, 2, log, homes, 1, NULL, NULL);
	other = jbd2_jmap_digest(map);
	KUNIT_EXPECT_NE(test, other, one);
	/* Another block comes and goes. */
	commit(map, 3, log, homes + 1, 1, NULL, NULL);
	KUNIT_EXPECT_NE(test, jbd2_jmap_digest(map), other);
	jbd2_jmap_drop(map, 20);
	KUNIT_EXPECT_EQ(test, jbd2_jmap_digest(map), other);
}

static void span_ahead_ends_with_a_transaction(struct kunit *test)
{
	struct jmap *map = test->priv;
	unsigned long end = FIRST;
	u64 homes[98];
	tid_t tid;
	int i;

	/* Nine transactions of 100 blocks; 124 blocks are free. */
	for (tid = 1; tid <= 9; tid++) {
		for (i = 0; i < 98; i++)
			homes[i] = tid * 1000 + i;
		end = commit(map, tid, end, homes, 98, NULL, NULL);
	}
	/* The cursor is behind the first descriptor. */
	KUNIT_EXPECT_EQ(test, jbd2_jmap_span_ahead(map, 100), 0);
	KUNIT_EXPECT_EQ(test, jbd2_jmap_span_ahead(map, 124), 0);
	KUNIT_EXPECT_EQ(test, jbd2_jmap_span_ahead(map, 125), 99);
	KUNIT_EXPECT_EQ(test, jbd2_jmap_span_ahead(map, 224), 99);
	KUNIT_EXPECT_EQ(test, jbd2_jmap_span_ahead(map, 225), 199);
	/* No transaction begins so far ahead: all of it. */
	KUNIT_EXPECT_EQ(test, jbd2_jmap_span_ahead(map, 1000), 899);
}

static void block_that_the_cleaner_filed_is_a_survivor_once(struct kunit *test)
{
	struct jmap *map = test->priv;
	unsigned long log, at;
	unsigned int flags;
	u64 home = 10;

	log = commit(map, 1, FIRST, &home, 1, NULL, NULL);
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, home, &at, &flags));
	KUNIT_EXPECT_FALSE(test, flags & JMAP_SURVIVOR);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_relog(map, home, at));
	log = commit(map, 2, log, &home, 1, NULL, NULL);
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_relog(map, home, at));
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, home, &at, &flags));
	KUNIT_EXPECT_TRUE(test, flags & JMAP_SURVIVOR);
	/* Its owner writes it again: warm. */
	commit(map, 3, log, &home, 1, NULL, NULL);
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, home, &at, &flags));
	KUNIT_EXPECT_FALSE(test, flags & (JMAP_SURVIVOR | JMAP_RELOGGED));
}

static void block_being_revoked_is_not_filed_again(struct kunit *test)
{
	struct jmap *map = test->priv;
	unsigned long at;
	u64 home = 10;

	commit(map, 1, FIRST, &home, 1, NULL, NULL);
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_lookup(map, home, &at, NULL));
	jbd2_jmap_set_revoking(map, home, true);
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_relog(map, home, at));
	jbd2_jmap_set_revoking(map, home, false);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_relog(map, home, at));
}

static void head_that_reaches_a_newest_copy_is_noticed(struct kunit *test)
{
	struct jmap *map = test->priv;
	struct jmap_slot copy;
	unsigned long log, at;
	u64 home = 10;

	log = commit(map, 1, FIRST, &home, 1, NULL, NULL);
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_note(map, 2, 20, false, 0));
	KUNIT_ASSERT_TRUE(test, jbd2_jmap_copy_of(map, home, &at, &copy));
	KUNIT_EXPECT_EQ(test, at, 2);
	KUNIT_EXPECT_EQ(test, copy.csum, FIRST);
	commit(map, 2, log, &home, 1, NULL, NULL);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_note(map, 2, 20, false, 0));
}

static void loaded_map_has_the_digest_of_the_one_that_was_saved(struct kunit *test)
{
	struct jmap *map = test->priv;
	struct jmap_slot *copies;
	u32 pos = 0, left = BLOCKS, *slots, n = 0, i;
	u64 homes[] = { 10, 1ULL << 40, 30 }, digest;
	unsigned long log = FIRST, at;

	copies = kunit_kcalloc(test, 8, sizeof(*copies), GFP_KERNEL);
	slots = kunit_kcalloc(test, 8, sizeof(*slots), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, copies);
	KUNIT_ASSERT_NOT_NULL(test, slots);
	log = commit(map, 1, log, homes, 3, NULL, NULL);
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_note(map, log + 1, 40, true, 7));
	commit(map, 2, log, homes, 1, NULL, NULL);
	/* Superseded, revoked, and on its way home. */
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_drop(map, 30));
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_lookup(map, 1ULL << 40, &at, NULL));
	digest = map->digest;
	KUNIT_EXPECT_TRUE(test, jbd2_jmap_drop_if(map, 1ULL << 40, at));
	KUNIT_EXPECT_EQ(test, map->digest, digest);
	KUNIT_EXPECT_EQ(test, map->digest, digest_by_hand(map));
	KUNIT_EXPECT_NE(test, jbd2_jmap_digest(map), digest);
	while (jbd2_jmap_next_copy(map, &pos, &left, &slots[n], &copies[n]))
		n++;
	KUNIT_ASSERT_EQ(test, n, 2);
	jbd2_jmap_reset(map, 1, FIRST);
	KUNIT_EXPECT_EQ(test, map->digest, 0);
	for (i = 0; i < n; i++)
		KUNIT_EXPECT_TRUE(test, jbd2_jmap_load_copy(map, slots[i],
							    &copies[i]));
	KUNIT_EXPECT_EQ(test, map->digest, digest);
	KUNIT_EXPECT_EQ(test, map->nr_live, 2);
	KUNIT_EXPECT_EQ(test, map->nr_demoted, 0);
	/* Neither a slot nor a home block twice. */
	KUNIT_EXPECT_FALSE(test,
			   jbd2_jmap_load_copy(map, slots[0], &copies[0]));
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_load_copy(map, 500, &copies[0]));
	KUNIT_EXPECT_FALSE(test,
			   jbd2_jmap_load_copy(map, slots[0], &copies[1]));
}

static void tail_gets_past_a_block_at_the_next_mark(struct kunit *test)
{
	struct jmap *map = test->priv;
	unsigned long log = FIRST, begins[3], at;
	u64 homes[16];
	unsigned int i, t;
	tid_t tid;

	/* Each is as long as the least distance of two marks. */
	for (t = 0; t < 3; t++) {
		for (i = 0; i < ARRAY_SIZE(homes); i++)
			homes[i] = 100 * t + i;
		begins[t] = log;
		log = commit(map, t + 1, log, homes, ARRAY_SIZE(homes),
			     NULL, NULL);
	}
	KUNIT_ASSERT_TRUE(test,
			  jbd2_jmap_mark_behind(map, begins[0] + 3, &tid, &at));
	KUNIT_EXPECT_EQ(test, tid, 2);
	KUNIT_EXPECT_EQ(test, at, begins[1]);
	/* From the first live copy, which is behind a descriptor. */
	KUNIT_EXPECT_EQ(test, jbd2_jmap_span_past(map, begins[0] + 3),
			begins[1] - begins[0] - 1);
	KUNIT_EXPECT_FALSE(test, map->mark_wanted);
	/* None is behind the last one: the next transaction gets one. */
	KUNIT_EXPECT_FALSE(test, jbd2_jmap_mark_behind(map, begins[2] + 3, &tid,
						       &at));
	KUNIT_EXPECT_EQ(test, jbd2_jmap_span_past(map, begins[2] + 3),
			log - begins[0] - 1);
	KUNIT_EXPECT_TRUE(test, map->mark_wanted);
	commit(map, 4, log, homes, 1, NULL, NULL);
	commit(map, 5, log + 3, homes, 1, NULL, NULL);
	KUNIT_EXPECT_FALSE(test, map->mark_wanted);
	KUNIT_ASSERT_TRUE(test,
			  jbd2_jmap_mark_behind(map, begins[2] + 3, &tid, &at));
	KUNIT_EXPECT_EQ(test, tid, 4);
	/* What the tail can pass already holds nothing. */
	for (i = 0; i < ARRAY_SIZE(homes); i++)
		jbd2_jmap_drop(map, i);
	KUNIT_EXPECT_EQ(test, jbd2_jmap_span_past(map, begins[0] + 3), 0);
}

static struct kunit_case jmap_test_cases[] = {
	KUNIT_CASE(noted_copy_is_found_only_after_commit),
	KUNIT_CASE(newer_copy_takes_the_place_of_older),
	KUNIT_CASE(revoked_block_is_dropped),
	KUNIT_CASE(block_being_revoked_does_not_go_home),
	KUNIT_CASE(newer_copy_inherits_the_revoke),
	KUNIT_CASE(first_copy_asks_the_running_transaction),
	KUNIT_CASE(superseded_copy_does_not_go_home),
	KUNIT_CASE(escape_and_large_block_number_survive),
	KUNIT_CASE(empty_range_is_refused),
	KUNIT_CASE(tail_rests_on_the_oldest_live_transaction),
	KUNIT_CASE(equals_a_plain_array_over_many_revolutions),
	KUNIT_CASE(tail_behind_a_live_copy_is_noticed),
	KUNIT_CASE(digest_knows_each_copy_and_its_place),
	KUNIT_CASE(span_ahead_ends_with_a_transaction),
	KUNIT_CASE(block_that_the_cleaner_filed_is_a_survivor_once),
	KUNIT_CASE(block_being_revoked_is_not_filed_again),
	KUNIT_CASE(head_that_reaches_a_newest_copy_is_noticed),
	KUNIT_CASE(loaded_map_has_the_digest_of_the_one_that_was_saved),
	KUNIT_CASE(tail_gets_past_a_block_at_the_next_mark),
	{}
};

static struct kunit_suite jmap_test_suite = {
	.name = "jbd2_jmap",
	.init = jmap_test_init,
	.exit = jmap_test_exit,
	.test_cases = jmap_test_cases,
};

kunit_test_suites(&jmap_test_suite);

MODULE_DESCRIPTION("KUnit tests of jbd2's map of lazy writeback journaling");
MODULE_LICENSE("GPL");
