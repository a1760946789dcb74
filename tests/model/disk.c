// SPDX-License-Identifier: GPL-2.0-only
/*
 * A disk with a write cache, in memory: the log as bytes, all other blocks as
 * a number that says which version of its contents each has.
 *
 * A write that is neither forced (REQ_FUA) nor flushed may be lost by a power
 * cut, each by itself, and one that is kept may be torn.
 */

#include "model.h"

struct cached {
	enum { LOG, HOME, SUPERBLOCK } what;
	u32 where;
	u32 version;
	u8 *data;
};

static u32 nr_blocks, homes_here;
static u8 durable[(SLOTS_MOST + FIRST) * BLOCK], current[sizeof(durable)];
static u32 home_on_disk[HOMES_MOST], home_in_cache[HOMES_MOST];
static journal_superblock_t sb_durable, sb_current;
static struct cached *cache;
static u32 nr_cached, cache_room;
static u32 events, cut_at;
static bool cut;
static u32 fail_write;
static bool had_error, fail_though_written;
static u8 damaged[SLOTS_MOST + FIRST];
static struct jbd2_log_extent layout[4];
static unsigned int nr_layout;

#define DAMAGED_UNREADABLE 1

void disk_start(u32 slots, u32 nr)
{
	nr_blocks = slots + FIRST;
	homes_here = nr;
	memset(durable, 0, (size_t)nr_blocks * BLOCK);
	memset(current, 0, (size_t)nr_blocks * BLOCK);
	memset(damaged, 0, nr_blocks);
	memset(home_on_disk, 0, sizeof(home_on_disk));
	memset(home_in_cache, 0, sizeof(home_in_cache));
	memset(&sb_durable, 0, sizeof(sb_durable));
	sb_current = sb_durable;
	nr_cached = 0;
	cut_at = 0;
	events = 0;
	cut = false;
	fail_write = 0;
	had_error = false;
}

void disk_stop(void)
{
	u32 i;

	for (i = 0; i < nr_cached; i++)
		free(cache[i].data);
	nr_cached = 0;
}

void disk_cut_after(u32 nth)
{
	events = 0;
	cut_at = nth;
}

void disk_fail_write(u32 nth, bool though_written)
{
	fail_though_written = though_written;
	fail_write = nth;
}

bool disk_had_error(void)
{
	return had_error;
}

bool disk_is_cut(void)
{
	return cut;
}

/* Whether this write or flush still happens. */
static bool powered(void)
{
	if (!cut && cut_at && ++events >= cut_at)
		cut = true;
	return !cut;
}

static void settle(const struct cached *one)
{
	switch (one->what) {
	case LOG:
		memcpy(durable + one->where * BLOCK, one->data, BLOCK);
		break;
	case HOME:
		home_on_disk[one->where] = one->version;
		break;
	case SUPERBLOCK:
		memcpy(&sb_durable, one->data, sizeof(sb_durable));
		break;
	}
}

static void remember(int what, u32 where, u32 version, const void *data,
		     size_t bytes)
{
	struct cached *one;

	if (nr_cached == cache_room) {
		cache_room = 2 * cache_room + 64;
		cache = realloc(cache, cache_room * sizeof(*cache));
	}
	one = &cache[nr_cached++];
	one->what = what;
	one->where = where;
	one->version = version;
	one->data = NULL;
	if (data) {
		one->data = malloc(bytes);
		memcpy(one->data, data, bytes);
	}
}

/* What is forced is durable at once; older writes of the block are moot. */
static void forget(int what, u32 where)
{
	u32 i, kept = 0;

	for (i = 0; i < nr_cached; i++) {
		if (cache[i].what == what && cache[i].where == where)
			free(cache[i].data);
		else
			cache[kept++] = cache[i];
	}
	nr_cached = kept;
}

static void flush_all(void)
{
	u32 i;

	for (i = 0; i < nr_cached; i++) {
		settle(&cache[i]);
		free(cache[i].data);
	}
	nr_cached = 0;
	on_flush();
}

void disk_flush(void)
{
	if (powered())
		flush_all();
}

int blkdev_issue_flush(struct block_device *bdev)
{
	disk_flush();
	return 0;
}

static u32 random_next(u32 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* @luck 0: every cached write is lost; 255: none is. */
void disk_crash(u32 luck)
{
	u32 state = luck * 2654435761u + 12345, i;

	for (i = 0; i < nr_cached; i++) {
		struct cached *one = &cache[i];
		bool keep = luck == 255 || (luck && random_next(&state) & 1);

		if (!keep) {
			stats.lost_writes++;
		} else if (luck % 4 == 1 && one->what == LOG &&
			   !(random_next(&state) % 8)) {
			memcpy(durable + one->where * BLOCK, one->data,
			       BLOCK / 2);
			stats.torn_writes++;
		} else {
			settle(one);
		}
		free(one->data);
	}
	nr_cached = 0;
	memcpy(current, durable, (size_t)nr_blocks * BLOCK);
	memcpy(home_in_cache, home_on_disk, sizeof(home_in_cache));
	sb_current = sb_durable;
	cut = false;
	cut_at = 0;
	fail_write = 0;
	had_error = false;
}

u8 *disk_block(unsigned long log_blk)
{
	return current + log_blk * BLOCK;
}

void disk_damage(unsigned long log_blk, u32 how)
{
	u8 *data = current + log_blk * BLOCK;

	switch (how % 4) {
	case 0:
		damaged[log_blk] = DAMAGED_UNREADABLE;
		return;
	case 1:
		memset(data, 0, BLOCK);
		break;
	case 2:
		data[how % BLOCK] ^= 1 << how / 4 % 8;
		break;
	default:
		memset(data + BLOCK / 2, 0x5a, BLOCK / 2);
		break;
	}
	memcpy(durable + log_blk * BLOCK, data, BLOCK);
}

void disk_restore(unsigned long log_blk, const u8 *data)
{
	damaged[log_blk] = 0;
	memcpy(current + log_blk * BLOCK, data, BLOCK);
	memcpy(durable + log_blk * BLOCK, data, BLOCK);
}

void home_write(u32 home, u32 version)
{
	if (!powered())
		return;
	home_in_cache[home] = version;
	remember(HOME, home, version, NULL, 0);
}

u32 home_read(u32 home)
{
	return home_in_cache[home];
}

bool home_durable(u32 home, u32 version)
{
	return home_on_disk[home] == version;
}

void sb_write(const journal_superblock_t *sb, blk_opf_t opf)
{
	if (opf & REQ_PREFLUSH)
		disk_flush();
	if (!powered())
		return;
	sb_current = *sb;
	if (opf & REQ_FUA) {
		forget(SUPERBLOCK, 0);
		sb_durable = *sb;
	} else {
		remember(SUPERBLOCK, 0, 0, sb, sizeof(*sb));
	}
}

const journal_superblock_t *sb_read(void)
{
	return &sb_current;
}

/* Whole blocks in the log of transaction @tid or a later one. */
u32 disk_remains(tid_t tid)
{
	u32 i, nr = 0;

	for (i = FIRST; i < nr_blocks; i++) {
		const journal_header_t *header = (void *)disk_block(i);

		nr += header->h_magic == cpu_to_be32(JBD2_MAGIC_NUMBER) &&
		      tid_geq(be32_to_cpu(header->h_sequence), tid);
	}
	return nr;
}

/* ------------------------------------------------------------------------- */
/* Where the log is                                                           */

struct jbd2_log_extent *disk_extents(u32 kind, unsigned int *nr)
{
	struct jbd2_log_extent *extents = calloc(4, sizeof(*extents));
	u32 first = 0, i;

	*nr = 1 + kind % 4;
	for (i = 0; i < *nr; i++) {
		u32 last = i + 1 == *nr ? nr_blocks :
				nr_blocks * (i + 1) / (*nr + kind % 3);

		extents[i].log = first;
		/* Behind the homes, the later parts in front of the first. */
		extents[i].phys = HOMES_MOST +
			(i % 2 ? 8 : 4 * SLOTS_MOST) + first;
		first = last;
	}
	memcpy(layout, extents, sizeof(layout));
	nr_layout = *nr;
	return extents;
}

static u32 extent_len(unsigned int i)
{
	return (i + 1 == nr_layout ? nr_blocks : layout[i + 1].log) -
	       layout[i].log;
}

static bool log_block_at(u64 phys, unsigned long *log_blk)
{
	unsigned int i;

	for (i = 0; i < nr_layout; i++)
		if (phys >= layout[i].phys &&
		    phys < layout[i].phys + extent_len(i)) {
			*log_blk = layout[i].log + (phys - layout[i].phys);
			return true;
		}
	return false;
}

u64 disk_phys(unsigned long log_blk)
{
	unsigned int i;

	for (i = 0; i < nr_layout; i++)
		if (log_blk >= layout[i].log &&
		    log_blk < layout[i].log + extent_len(i))
			return layout[i].phys + (log_blk - layout[i].log);
	model_fail("there is no log block %lu", log_blk);
	return 0;
}

static int log_read(u64 phys, void *data)
{
	unsigned long log_blk;

	if (!log_block_at(phys, &log_blk) || log_blk < FIRST) {
		model_fail("block %llu is read, which is not of the log",
			   (unsigned long long)phys);
		return -EIO;
	}
	if (damaged[log_blk] == DAMAGED_UNREADABLE)
		return -EIO;
	memcpy(data, current + log_blk * BLOCK, BLOCK);
	return 0;
}

static int log_write(u64 phys, const void *data, blk_opf_t opf)
{
	unsigned long log_blk;
	int err = 0;

	if (!log_block_at(phys, &log_blk) || log_blk < FIRST) {
		model_fail("block %llu is written, which is not of the log",
			   (unsigned long long)phys);
		return -EIO;
	}
	if (fail_write && !--fail_write) {
		stats.write_errors++;
		had_error = true;
		/* Some errors come though all was written. */
		if (!fail_though_written)
			return -EIO;
		err = -EIO;
	}
	if (opf & REQ_PREFLUSH)
		disk_flush();
	if (!powered())
		return err;
	on_log_write(log_blk, data, opf);
	damaged[log_blk] = 0;
	memcpy(current + log_blk * BLOCK, data, BLOCK);
	if (opf & REQ_FUA) {
		forget(LOG, log_blk);
		memcpy(durable + log_blk * BLOCK, data, BLOCK);
	} else {
		remember(LOG, log_blk, 0, data, BLOCK);
	}
	return err;
}

/* ------------------------------------------------------------------------- */
/* bios and buffers                                                           */

struct bio *bio_alloc(struct block_device *bdev, unsigned int vecs,
		      blk_opf_t opf, gfp_t gfp)
{
	struct bio *bio = calloc(1, sizeof(*bio) + vecs * sizeof(bio->vec[0]));

	bio->opf = opf;
	bio->room = vecs;
	return bio;
}

void __bio_add_page(struct bio *bio, struct page *page, unsigned int len,
		    unsigned int offset)
{
	if (bio->nr == bio->room) {
		model_fail("a bio of %u pages gets one more", bio->room);
		return;
	}
	bio->vec[bio->nr].data = (char *)page + offset;
	bio->vec[bio->nr++].len = len;
}

static int transfer(struct bio *bio)
{
	u64 phys = bio->bi_iter.bi_sector / (BLOCK >> SECTOR_SHIFT);
	unsigned int i;
	u32 at;
	int err = 0;

	for (i = 0; i < bio->nr; i++)
		for (at = 0; at < bio->vec[i].len; at += BLOCK, phys++) {
			void *data = bio->vec[i].data + at;

			err = (bio->opf & REQ_OP_WRITE ?
			       log_write(phys, data, bio->opf) :
			       log_read(phys, data)) ?: err;
		}
	return err;
}

void submit_bio(struct bio *bio)
{
	bio->bi_status = transfer(bio);
	bio->bi_end_io(bio);
}

int submit_bio_wait(struct bio *bio)
{
	return transfer(bio);
}

struct buffer_head *__getblk(struct block_device *bdev, u64 block, u32 size)
{
	struct buffer_head *bh = calloc(1, sizeof(*bh));

	bh->b_data = calloc(1, size);
	bh->b_blocknr = block;
	bh->b_size = size;
	bh->b_count = 1;
	return bh;
}

void brelse(struct buffer_head *bh)
{
	if (!bh || --bh->b_count)
		return;
	free(bh->b_data);
	free(bh);
}

void submit_bh(blk_opf_t opf, struct buffer_head *bh)
{
	bh->b_end_io(bh, !log_write(bh->b_blocknr, bh->b_data, opf));
}

void end_buffer_write_sync(struct buffer_head *bh, int uptodate)
{
	bh->uptodate = uptodate;
	bh->locked = false;
	brelse(bh);
}

/* ------------------------------------------------------------------------- */
/* Memory and checksums                                                       */

static u32 allocations, fail_at;

void alloc_fail_at(u32 nth)
{
	allocations = 0;
	fail_at = nth;
}

u32 alloc_count(void)
{
	return allocations;
}

void *model_alloc(size_t bytes)
{
	void *memory;

	if (++allocations == fail_at)
		return NULL;
	/* Pages are pages: bios name them. */
	if (bytes >= PAGE_SIZE)
		return posix_memalign(&memory, PAGE_SIZE, bytes) ? NULL :
								   memory;
	return malloc(bytes);
}

static u32 table[8][256];

static void make_table(void)
{
	u32 i, j, crc;

	for (i = 0; i < 256; i++) {
		crc = i;
		for (j = 0; j < 8; j++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
		table[0][i] = crc;
	}
	for (i = 0; i < 256; i++)
		for (j = 1; j < 8; j++)
			table[j][i] = table[j - 1][i] >> 8 ^
				      table[0][table[j - 1][i] & 255];
}

/* crc32c as the kernel's: neither inverted before nor behind. */
u32 model_crc32c(u32 crc, const void *data, size_t len)
{
	const u8 *p = data;

	if (!table[0][1])
		make_table();
#ifdef __SSE4_2__
	u64 wide = crc, word;

	for (; len >= 8; len -= 8, p += 8) {
		memcpy(&word, p, 8);
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = wide;
#else
	for (; len >= 8; len -= 8, p += 8) {
		u32 a, b;

		memcpy(&a, p, 4);
		memcpy(&b, p + 4, 4);
		a ^= crc;
		crc = table[7][a & 255] ^ table[6][a >> 8 & 255] ^
		      table[5][a >> 16 & 255] ^ table[4][a >> 24] ^
		      table[3][b & 255] ^ table[2][b >> 8 & 255] ^
		      table[1][b >> 16 & 255] ^ table[0][b >> 24];
	}
#endif
	while (len--)
		crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
	return crc;
}

/* What @len zeros make of it. */
u32 __crc32c_le_shift(u32 crc, size_t len)
{
	static const u8 zeros[BLOCK];

	if (len != BLOCK)
		model_fail("a checksum is shifted by %zu bytes", len);
	return model_crc32c(crc, zeros, BLOCK);
}
