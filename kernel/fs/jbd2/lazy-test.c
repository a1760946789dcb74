// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of lazy writeback journaling: which log blocks a read takes along,
 * and what is left on the disk: the marker in the journal superblock (whose log
 * is it?), and snapshots of the map.
 */

#include <kunit/test.h>
#include "lazy.h"

static const struct lazy_mark mark = {
	.known = 41,
	.end = 17,
	.snapshot = {
		.log_blk = 7, .blocks = 3, .tid = 40, .start = 5,
		.digest = 0x123456789abcdef0,
	},
};

/* A read that comes round to its own block would read that one twice. */
static void what_is_read_around_has_no_block_twice(struct kunit *test)
{
	/* j_last of the smallest log that mke2fs makes, and of longer ones. */
	static const unsigned long lasts[] = { 1024, 1025, 1026, 5000 };
	unsigned long own, blk, i, nr, met;
	journal_t *journal;
	unsigned int k;

	journal = kunit_kzalloc(test, sizeof(*journal), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, journal);
	journal->j_first = 1;
	for (k = 0; k < ARRAY_SIZE(lasts); k++) {
		journal->j_last = lasts[k];
		for (own = journal->j_first; own < journal->j_last; own++) {
			blk = own;
			nr = jbd2_lazy_near(journal, &blk);
			for (i = met = 0; i < nr; i++) {
				met += blk == own;
				blk = jbd2_lazy_next_log_blk(journal, blk);
			}
			KUNIT_ASSERT_EQ_MSG(test, met, 1UL, "%lu of %lu", own,
					    lasts[k]);
		}
	}
}

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
	jbd2_lazy_mark(sb, &mark);
}

static void padding_cleared(journal_superblock_t *sb)
{
	memset(sb->s_padding, 0, sizeof(sb->s_padding));
}

/* Version 1 had snapshots that brought freed blocks back. */
static void older_version(journal_superblock_t *sb)
{
	sb->s_padding[25] = (__force __u32)cpu_to_be32(1);
}

static void newer_version(journal_superblock_t *sb)
{
	sb->s_padding[25] = (__force __u32)cpu_to_be32(3);
}

static const struct marker_case marker_cases[] = {
	{ "nobody touched the log", nothing, true },
	{ "stock recovery emptied it", replayed, false },
	{ "somebody moved the tail within a transaction id", tail_moved, false },
	{ "somebody used the log on", next_transaction, false },
	{ "an empty log needs no owner", emptied, false },
	{ "a journal made anew", padding_cleared, false },
	{ "a marker of the first version", older_version, false },
	{ "a marker of a version to come", newer_version, false },
};

static void marker_says_who_moved_the_tail(struct kunit *test)
{
	journal_superblock_t *sb = kunit_kzalloc(test, sizeof(*sb), GFP_KERNEL);
	const struct marker_case *each;
	struct lazy_mark found;

	KUNIT_ASSERT_NOT_NULL(test, sb);
	for (each = marker_cases;
	     each < marker_cases + ARRAY_SIZE(marker_cases); each++) {
		memset(sb, 0, sizeof(*sb));
		sb->s_sequence = cpu_to_be32(100);
		sb->s_start = cpu_to_be32(5);
		jbd2_lazy_mark(sb, &mark);
		each->change(sb);
		KUNIT_EXPECT_EQ_MSG(test, jbd2_lazy_marked(sb, &found),
				    each->ours, "%s", each->name);
		if (!each->ours)
			continue;
		KUNIT_EXPECT_MEMEQ(test, &found, &mark, sizeof(found));
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
	jbd2_lazy_mark(sb, &mark);
	KUNIT_EXPECT_MEMNEQ(test, sb, before, sizeof(*sb));
	/* Upstream takes new fields from the start of the padding. */
	memcpy(&sb->s_padding[24], &before->s_padding[24],
	       16 * sizeof(sb->s_padding[0]));
	KUNIT_EXPECT_MEMEQ(test, sb, before, sizeof(*sb));
}

/* ------------------------------------------------------------------------- */
/* Snapshots                                                                  */

#define SLOTS	100000U
#define TID	77

struct snap_said {
	enum snap_kind kind;
	u32 slot;
	u64 value;
	u32 csum;
};

/* In the order in which a snapshot says it: the marks go round once. */
static const struct snap_said said[] = {
	{ SNAP_MARK, SLOTS - 3, U32_MAX },
	{ SNAP_MARK, 5, 78 },
	{ SNAP_COPY, 0, 0, 1 },
	{ SNAP_ESCAPED, 1, 1, U32_MAX },
	{ SNAP_COPY, 8192, 2 },		/* the largest gap */
	{ SNAP_COPY, 8192 + 8192, 3 },	/* one more */
	{ SNAP_COPY, SLOTS - 1, (1ULL << 48) - 1, 4711 },
};

static const u32 block_sizes[] = { 1024, 2048, 4096 };

/* Put what was said into a block; returns how much of it fits. */
static u32 snap_say(struct snap_block *block)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(said); i++)
		if (!jbd2_snap_put(block, said[i].kind, said[i].slot,
				   said[i].value, said[i].csum))
			break;
	return i;
}

static void snapshot_says_what_was_put_in(struct kunit *test)
{
	struct snap_block block;
	u32 size, slot, csum, i;
	enum snap_kind kind;
	u64 value;
	void *data;

	for (size = 0; size < ARRAY_SIZE(block_sizes); size++) {
		data = kunit_kmalloc(test, block_sizes[size], GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, data);
		jbd2_snap_block_init(&block, data, block_sizes[size], SLOTS,
				     TID, 0, 0);
		KUNIT_EXPECT_EQ(test, snap_say(&block), ARRAY_SIZE(said));

		KUNIT_ASSERT_TRUE(test, jbd2_snap_block_open(&block, data,
							     block_sizes[size],
							     SLOTS, TID, 0));
		for (i = 0; i < ARRAY_SIZE(said); i++) {
			KUNIT_ASSERT_EQ(test,
					jbd2_snap_get(&block, &kind, &slot,
						      &value, &csum),
					1);
			KUNIT_EXPECT_EQ(test, kind, said[i].kind);
			KUNIT_EXPECT_EQ(test, value, said[i].value);
			KUNIT_EXPECT_EQ(test, csum, said[i].csum);
			KUNIT_EXPECT_EQ(test, slot, said[i].slot);
		}
		KUNIT_EXPECT_EQ(test,
				jbd2_snap_get(&block, &kind, &slot, &value,
					      &csum),
				0);
	}
}

static void snapshot_is_a_revoke_block_without_revokes(struct kunit *test)
{
	const jbd2_journal_revoke_header_t *header;
	struct snap_block block;
	void *data = kunit_kmalloc(test, 4096, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, data);
	jbd2_snap_block_init(&block, data, 4096, SLOTS, TID, 3, 0);
	snap_say(&block);
	header = data;
	KUNIT_EXPECT_EQ(test, be32_to_cpu(header->r_header.h_blocktype),
			JBD2_REVOKE_BLOCK);
	KUNIT_EXPECT_EQ(test, be32_to_cpu(header->r_header.h_sequence), TID);
	KUNIT_EXPECT_EQ(test, be32_to_cpu(header->r_count), sizeof(*header));
}

/* A block holds what fits, leaves the checksum alone, and the next goes on. */
static void snapshot_goes_on_in_the_next_block(struct kunit *test)
{
	u32 fits = (1024 - 32 - 4) / 12, slot, csum, i;
	struct snap_block block, next;
	enum snap_kind kind;
	char *data = kunit_kmalloc(test, 1024, GFP_KERNEL);
	char *more = kunit_kmalloc(test, 1024, GFP_KERNEL);
	u64 value;

	KUNIT_ASSERT_NOT_NULL(test, data);
	KUNIT_ASSERT_NOT_NULL(test, more);
	jbd2_snap_block_init(&block, data, 1024, SLOTS, TID, 1, 0);
	for (i = 0; i + 1 < fits; i++)
		KUNIT_ASSERT_TRUE(test,
				  jbd2_snap_put(&block, SNAP_COPY, i, i, ~0U));
	/* One record is left, and a wide gap takes two. */
	KUNIT_EXPECT_FALSE(test,
			   jbd2_snap_put(&block, SNAP_COPY, i + 8192, 1, ~0U));
	KUNIT_EXPECT_TRUE(test, jbd2_snap_put(&block, SNAP_COPY, i, i, ~0U));
	KUNIT_EXPECT_FALSE(test, jbd2_snap_put(&block, SNAP_COPY, i, 1, ~0U));
	KUNIT_EXPECT_EQ(test, *(u32 *)(data + 1020), 0);

	jbd2_snap_block_init(&next, more, 1024, SLOTS, TID, 2, block.slot);
	KUNIT_EXPECT_TRUE(test,
			  jbd2_snap_put(&next, SNAP_COPY, i + 8192, 1, 9));
	KUNIT_ASSERT_TRUE(test, jbd2_snap_block_open(&next, more, 1024, SLOTS,
						     TID, 2));
	KUNIT_EXPECT_EQ(test, jbd2_snap_get(&next, &kind, &slot, &value, &csum),
			1);
	KUNIT_EXPECT_EQ(test, slot, fits - 1 + 8192);
	KUNIT_EXPECT_EQ(test, csum, 9);
}

/* Whatever is in the place of a block is not taken for it. */
static void snapshot_of_another_is_refused(struct kunit *test)
{
	struct snap_block block;
	__be32 *data = kunit_kmalloc(test, 1024, GFP_KERNEL);
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, data);
	jbd2_snap_block_init(&block, data, 1024, SLOTS, TID, 1, 0);
	jbd2_snap_put(&block, SNAP_COPY, 1, 1, 0);
	KUNIT_ASSERT_TRUE(test, jbd2_snap_block_open(&block, data, 1024, SLOTS,
						     TID, 1));
	KUNIT_EXPECT_FALSE(test, jbd2_snap_block_open(&block, data, 1024, SLOTS,
						      TID, 2));
	KUNIT_EXPECT_FALSE(test, jbd2_snap_block_open(&block, data, 1024, SLOTS,
						      TID + 1, 1));
	/* Every word of the header but r_count, all bits up. */
	for (i = 0; i < 8; i++) {
		__be32 was = data[i];

		if (i == 3)
			continue;
		data[i] = cpu_to_be32(U32_MAX);
		KUNIT_EXPECT_FALSE_MSG(test,
				       jbd2_snap_block_open(&block, data, 1024,
							    SLOTS, TID, 1),
				       "word %u", i);
		data[i] = was;
	}
}

/* A slot, or a skip, that is none of the log's. */
static void snapshot_with_a_slot_beyond_the_log_is_refused(struct kunit *test)
{
	struct snap_block block;
	enum snap_kind kind;
	u32 slot, csum;
	u64 value;
	void *data = kunit_kmalloc(test, 1024, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, data);
	jbd2_snap_block_init(&block, data, 1024, SLOTS, TID, 0, 0);
	KUNIT_ASSERT_TRUE(test,
			  jbd2_snap_put(&block, SNAP_COPY, SLOTS - 1, 1, 0));
	KUNIT_ASSERT_TRUE(test, jbd2_snap_block_open(&block, data, 1024,
						     SLOTS / 2, TID, 0));
	KUNIT_EXPECT_EQ(test,
			jbd2_snap_get(&block, &kind, &slot, &value, &csum),
			-EFSCORRUPTED);
}

static struct kunit_case lazy_test_cases[] = {
	KUNIT_CASE(what_is_read_around_has_no_block_twice),
	KUNIT_CASE(marker_says_who_moved_the_tail),
	KUNIT_CASE(marker_stays_within_the_padding),
	KUNIT_CASE(snapshot_says_what_was_put_in),
	KUNIT_CASE(snapshot_is_a_revoke_block_without_revokes),
	KUNIT_CASE(snapshot_goes_on_in_the_next_block),
	KUNIT_CASE(snapshot_of_another_is_refused),
	KUNIT_CASE(snapshot_with_a_slot_beyond_the_log_is_refused),
	{}
};

static struct kunit_suite lazy_test_suite = {
	.name = "jbd2_lazy_format",
	.test_cases = lazy_test_cases,
};

kunit_test_suite(lazy_test_suite);

MODULE_DESCRIPTION("KUnit tests of the format of lazy writeback journaling");
MODULE_LICENSE("GPL");
