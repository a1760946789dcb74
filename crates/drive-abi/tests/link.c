// SPDX-License-Identifier: GPL-2.0-only
/*
 * The drive's object, linked as the machine links it (static, at a fixed
 * address), with memory that can run out. usage: link FILE.drive
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "../../../machine/arch/um/drivers/shingle_drive_abi.h"

/* As src/layout.rs asserts it of the same structures. */
#define SIZE(type, bytes)						\
	_Static_assert(sizeof(struct type) == (bytes), #type)
#define AT(type, field, bytes)						\
	_Static_assert(offsetof(struct type, field) == (bytes),		\
		       #type "." #field)

SIZE(shingle_geometry, 64);
AT(shingle_geometry, capacity_sectors, 0);
AT(shingle_geometry, logical_block_bytes, 8);
AT(shingle_geometry, physical_block_bytes, 12);
AT(shingle_geometry, queue_depth, 16);
AT(shingle_geometry, max_request_sectors, 20);
AT(shingle_geometry, volatile_cache, 24);
AT(shingle_geometry, fua, 28);
AT(shingle_geometry, discard, 32);
AT(shingle_geometry, zoned, 36);
AT(shingle_geometry, zone_sectors, 40);
AT(shingle_geometry, zones, 48);
AT(shingle_geometry, open_max, 52);
AT(shingle_geometry, read_restricted, 56);
SIZE(shingle_zone, 40);
AT(shingle_zone, start, 0);
AT(shingle_zone, sectors, 8);
AT(shingle_zone, capacity_sectors, 16);
AT(shingle_zone, write_pointer, 24);
AT(shingle_zone, type, 32);
AT(shingle_zone, condition, 36);
SIZE(shingle_completion, 16);
AT(shingle_completion, tag, 0);
AT(shingle_completion, status, 8);
AT(shingle_completion, sense, 12);

static shingle_u64 chunk_bytes_left = 64 << 20;

void *shingle_host_alloc_chunk(shingle_u64 bytes)
{
	void *chunk;

	if (bytes > chunk_bytes_left)
		return NULL;
	chunk_bytes_left -= bytes;
	chunk = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return chunk == MAP_FAILED ? NULL : chunk;
}

void shingle_host_panic(const char *message, shingle_u32 len)
{
	fprintf(stderr, "%.*s\n", (int)len, message);
	exit(1);
}

#define CHECK(what)							\
	do {								\
		if (!(what)) {						\
			fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
			exit(1);					\
		}							\
	} while (0)

static shingle_u64 now;

static void wait_for(struct shingle_drive *drive, shingle_u64 tag)
{
	struct shingle_completion done;

	for (;;) {
		shingle_u64 next = shingle_drive_next_event(drive);

		CHECK(next != SHINGLE_NEVER);
		if (next > now)
			now = next;
		if (shingle_drive_advance(drive, now, &done, 1) == 1) {
			CHECK(done.tag == tag && done.status == 0);
			return;
		}
	}
}

static shingle_s32 write_block(struct shingle_drive *drive, shingle_u64 block,
			       const void *data)
{
	shingle_s32 status = shingle_drive_put(drive, 7, 0, data, 4096);

	if (status)
		return status;
	status = shingle_drive_submit(drive, now, 7, SHINGLE_WRITE, 0,
				      block * 8, 8);
	if (!status)
		wait_for(drive, 7);
	return status;
}

static shingle_s32 count_bytes(void *ctx, const void *data, shingle_u64 bytes)
{
	(void)data;
	*(shingle_u64 *)ctx += bytes;
	return 0;
}

int main(int argc, char **argv)
{
	static unsigned char file[1 << 20], block[4096], back[4096];
	static char report[8192];
	struct shingle_geometry geometry;
	struct shingle_drive *drive;
	shingle_u64 saved = 0;
	char err[256];
	size_t len;
	FILE *f;
	int i;

	CHECK(argc == 2);
	f = fopen(argv[1], "rb");
	CHECK(f);
	len = fread(file, 1, sizeof(file), f);
	file[20] ^= 1;
	CHECK(!shingle_drive_open(file, len, 1, err, sizeof(err)));
	CHECK(strstr(err, "header"));
	file[20] ^= 1;
	drive = shingle_drive_open(file, len, 1, err, sizeof(err));
	CHECK(drive);
	shingle_drive_geometry(drive, &geometry);
	CHECK(geometry.capacity_sectors > 1 << 20);
	CHECK(shingle_drive_set_faults(drive, "nonsense", 8, err,
				       sizeof(err)) == -22);
	CHECK(strstr(err, "SHGLFLT1"));

	for (i = 0; i < 4096; i++)
		block[i] = i * 7 / 3;
	CHECK(!write_block(drive, 77, block));
	CHECK(!shingle_drive_submit(drive, now, 9, SHINGLE_FLUSH, 0, 0, 0));
	wait_for(drive, 9);
	CHECK(!shingle_drive_get(drive, 77 * 8, back, 4096));
	CHECK(!memcmp(block, back, 4096));
	CHECK(shingle_drive_report(drive, now, report, sizeof(report)) < 8192);
	CHECK(shingle_drive_latencies(drive, report, sizeof(report)) < 8192);
	CHECK(!memcmp(report, "{\"data_written\":{\"count\":1,", 27));
	CHECK(!shingle_drive_save(drive, count_bytes, &saved));
	CHECK(saved > 4096 && saved < 16384);

	/* Until the memory is used up: an error, and the drive lives on. */
	for (i = 0; i < 1 << 20; i++) {
		memcpy(block, &i, sizeof(i));
		if (write_block(drive, 100 + i, block))
			break;
	}
	CHECK(i > 5000 && i < 20000);
	memcpy(block, &i, sizeof(i));
	CHECK(write_block(drive, 100 + i, block) == -12);
	CHECK(!shingle_drive_get(drive, 77 * 8, back, 4096));
	CHECK(!shingle_drive_submit(drive, now, 9, SHINGLE_FLUSH, 0, 0, 0));
	wait_for(drive, 9);
	CHECK(!shingle_drive_submit(drive, now, 9, SHINGLE_READ, 0, 1 << 24, 8));
	wait_for(drive, 9);
	puts("ok");
	return 0;
}
