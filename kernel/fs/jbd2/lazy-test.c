// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the marker in the journal superblock: whose log is it?
 */

#include <kunit/test.h>
#include "lazy.h"

#define KNOWN	41

static const struct snap_ref snapshot = {
	.log_blk = 7, .blocks = 3, .tid = 40, .id = 2,
};

struct marker_case {
	const char *name;
	void (*change)(journal_superblock_t *sb);
	bool ours;
};

static void nothing(journal_superblock_t *sb)
{
}

static void replayed(journal_superblock_t *sb)
{
	sb->s_sequence = cpu_to_be32(105);
	sb->s_start = 0;
}

static void tail_moved(journal_superblock_t *sb)
{
	sb->s_start = cpu_to_be32(77);
}

static void next_transaction(journal_superblock_t *sb)
{
	sb->s_sequence = cpu_to_be32(101);
}

static void emptied(journal_superblock_t *sb)
{
	sb->s_start = 0;
	lazy_mark(sb, KNOWN, &snapshot);
}

static void padding_cleared(journal_superblock_t *sb)
{
	memset(sb->s_padding, 0, sizeof(sb->s_padding));
}

static void newer_version(journal_superblock_t *sb)
{
	sb->s_padding[25] = (__force __u32)cpu_to_be32(2);
}

static const struct marker_case marker_cases[] = {
	{ "nobody touched the log", nothing, true },
	{ "stock recovery emptied it", replayed, false },
	{ "somebody moved the tail within a transaction id", tail_moved, false },
	{ "somebody used the log on", next_transaction, false },
	{ "an empty log needs no owner", emptied, false },
	{ "a journal made anew", padding_cleared, false },
	{ "a marker of a version to come", newer_version, false },
};

static void marker_says_who_moved_the_tail(struct kunit *test)
{
	journal_superblock_t *sb = kunit_kzalloc(test, sizeof(*sb), GFP_KERNEL);
	const struct marker_case *each;
	struct snap_ref found;
	tid_t known;

	KUNIT_ASSERT_NOT_NULL(test, sb);
	for (each = marker_cases;
	     each < marker_cases + ARRAY_SIZE(marker_cases); each++) {
		memset(sb, 0, sizeof(*sb));
		sb->s_sequence = cpu_to_be32(100);
		sb->s_start = cpu_to_be32(5);
		lazy_mark(sb, KNOWN, &snapshot);
		each->change(sb);
		KUNIT_EXPECT_EQ_MSG(test, lazy_marked(sb, &known, &found), each->ours,
				    "%s", each->name);
		if (!each->ours)
			continue;
		KUNIT_EXPECT_EQ(test, known, KNOWN);
		KUNIT_EXPECT_MEMEQ(test, &found, &snapshot, sizeof(found));
	}
}

static void marker_stays_within_the_padding(struct kunit *test)
{
	journal_superblock_t *sb = kunit_kzalloc(test, sizeof(*sb), GFP_KERNEL);
	journal_superblock_t *before = kunit_kzalloc(test, sizeof(*sb),
						     GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, sb);
	KUNIT_ASSERT_NOT_NULL(test, before);
	memset(sb, 0xa5, sizeof(*sb));
	memcpy(before, sb, sizeof(*sb));
	lazy_mark(sb, KNOWN, &snapshot);
	KUNIT_EXPECT_MEMNEQ(test, sb, before, sizeof(*sb));
	/* Upstream takes new fields from the start of the padding. */
	memcpy(&sb->s_padding[24], &before->s_padding[24],
	       16 * sizeof(sb->s_padding[0]));
	KUNIT_EXPECT_MEMEQ(test, sb, before, sizeof(*sb));
}

static struct kunit_case lazy_test_cases[] = {
	KUNIT_CASE(marker_says_who_moved_the_tail),
	KUNIT_CASE(marker_stays_within_the_padding),
	{}
};

static struct kunit_suite lazy_test_suite = {
	.name = "jbd2_lazy_marker",
	.test_cases = lazy_test_cases,
};

kunit_test_suite(lazy_test_suite);

MODULE_DESCRIPTION("KUnit tests of the marker of lazy writeback journaling");
MODULE_LICENSE("GPL");
