/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulated drive, as the machine sees it (crates/drive-abi).
 *
 * The drive is sans-I/O: it never sleeps, reads no clock and does no I/O. The
 * caller says what time it is, in virtual nanoseconds, and never lets time run
 * backwards. Not thread-safe: one call at a time. Sectors have 512 bytes.
 *
 * Plain C for both halves of a UML driver. The 64-bit types are the compiler's
 * own, because the kernel and libc disagree on what they are called.
 */
#ifndef SHINGLE_DRIVE_ABI_H
#define SHINGLE_DRIVE_ABI_H

typedef unsigned long long shingle_u64;
typedef unsigned int shingle_u32;
typedef int shingle_s32;

struct shingle_drive;

struct shingle_geometry {
	shingle_u64 capacity_sectors;
	shingle_u32 logical_block_bytes;
	shingle_u32 physical_block_bytes;
	shingle_u32 queue_depth;
	shingle_u32 max_request_sectors;
	shingle_u32 volatile_cache;	/* boolean */
	shingle_u32 fua;		/* boolean */
	shingle_u32 discard;		/* boolean */
	shingle_u32 zoned;		/* 0 none (also host-aware), 2 host-managed */
	shingle_u64 zone_sectors;	/* 0 if the drive reports no zones */
	shingle_u32 zones;		/* that the drive reports */
	shingle_u32 open_max;		/* zones open at a time; 0: no limit */
	shingle_u32 read_restricted;	/* boolean: no reads beyond a write pointer */
};

struct shingle_zone {
	shingle_u64 start;
	shingle_u64 sectors;
	shingle_u64 capacity_sectors;
	shingle_u64 write_pointer;
	shingle_u32 type;		/* enum blk_zone_type */
	shingle_u32 condition;		/* enum blk_zone_cond */
};

struct shingle_completion {
	shingle_u64 tag;
	shingle_s32 status;		/* 0 or -errno */
	shingle_u32 sense;		/* key << 16 | code << 8 | qualifier; 0: none */
};

enum shingle_op {
	SHINGLE_READ,
	SHINGLE_WRITE,
	SHINGLE_FLUSH,
	SHINGLE_DISCARD,
	SHINGLE_WRITE_ZEROES,
	SHINGLE_ZONE_OPEN,
	SHINGLE_ZONE_CLOSE,
	SHINGLE_ZONE_FINISH,
	SHINGLE_ZONE_RESET,
	SHINGLE_ZONE_RESET_ALL,
};

enum shingle_flag {
	SHINGLE_F_FUA = 1,
	SHINGLE_F_META = 2,
	SHINGLE_F_SYNC = 4,
};

enum shingle_class {
	SHINGLE_CLASS_JOURNAL = 1,
	SHINGLE_CLASS_SUPERBLOCK = 2,
};

#define SHINGLE_NEVER (~0ULL)

/*
 * Switches on the drive of a drive file. @file stays mapped until the process
 * ends: contents are read from it in place. NULL on failure, and a sentence
 * that ends with NUL in @err.
 */
struct shingle_drive *shingle_drive_open(const void *file, shingle_u64 len,
					 shingle_u64 seed, char *err,
					 shingle_u32 err_len);

/*
 * From now on things go wrong as the plan in @plan says, which `shingle-drive
 * faults check -o` wrote. 0, or -EINVAL and a sentence that ends with NUL in
 * @err; then nothing was changed. The plan need not stay.
 */
shingle_s32 shingle_drive_set_faults(struct shingle_drive *drive,
				     const void *plan, shingle_u64 len,
				     char *err, shingle_u32 err_len);

void shingle_drive_geometry(const struct shingle_drive *drive,
			    struct shingle_geometry *geometry);

/* Reports at most @max zones, from number @first on; returns how many. */
shingle_u32 shingle_drive_zones(const struct shingle_drive *drive,
				shingle_u32 first, struct shingle_zone *out,
				shingle_u32 max);

/*
 * Data of a write, piece by piece, before its submit. 0; -ENOMEM (then do not
 * submit; end the request with it); -EINVAL (beyond max_request_sectors).
 */
shingle_s32 shingle_drive_put(struct shingle_drive *drive, shingle_u64 tag,
			      shingle_u32 offset_bytes, const void *data,
			      shingle_u32 bytes);

/*
 * Submits a request. 0 means that its completion will come, perhaps by an
 * advance to this very moment: read next_event afterwards. -EBUSY: more than
 * queue_depth requests; -EINVAL: beyond the end; -EOPNOTSUPP: discard;
 * -ENOMEM: as above.
 */
shingle_s32 shingle_drive_submit(struct shingle_drive *drive, shingle_u64 now_ns,
				 shingle_u64 tag, shingle_u32 op,
				 shingle_u32 flags, shingle_u64 sector,
				 shingle_u32 sectors);

/* Data of a read, after its completion. 0 or -EIO (damaged drive file). */
shingle_s32 shingle_drive_get(struct shingle_drive *drive, shingle_u64 sector,
			      void *data, shingle_u32 bytes);

/* When to advance next if the host does nothing; SHINGLE_NEVER: no need to. */
shingle_u64 shingle_drive_next_event(const struct shingle_drive *drive);

/* Lets time pass. Returns how many completions there are; if @max, ask again. */
shingle_u32 shingle_drive_advance(struct shingle_drive *drive, shingle_u64 now_ns,
				  struct shingle_completion *out, shingle_u32 max);

/*
 * Counters as JSON, without NUL. Returns the length; nothing of use was
 * written if that is more than @len. 8 KiB always suffice.
 */
shingle_u32 shingle_drive_report(struct shingle_drive *drive, shingle_u64 now_ns,
				 char *buf, shingle_u32 len);

/*
 * How long requests took, by class and direction, as JSON without NUL. Returns
 * the length; nothing of use was written if that is more than @len. 1 MiB
 * always suffices.
 */
shingle_u32 shingle_drive_latencies(const struct shingle_drive *drive, char *buf,
				    shingle_u32 len);

/* @count pairs of (first sector, sectors), in place of what was told before. */
shingle_s32 shingle_drive_set_class(struct shingle_drive *drive,
				    shingle_u32 class_,
				    const shingle_u64 *extents, shingle_u32 count);

void shingle_drive_mark(struct shingle_drive *drive, shingle_u64 now_ns,
			const char *text, shingle_u32 len);

/*
 * Sets a crash drive (its file begins with SHGLCRS1) to a state of its file.
 * Nothing may be under way. 0 or -EINVAL.
 */
shingle_s32 shingle_drive_set_state(struct shingle_drive *drive,
				    shingle_u32 state);

/*
 * Takes finished bytes of the trace; returns how many. A crash drive's is its
 * record: every write and flush, with the data. The drive keeps a trace
 * from the first call on (@len may be 0): without one, tracing costs nothing.
 * Take at least every 10,000 requests; what does not fit is lost and counted.
 */
shingle_u32 shingle_drive_trace_take(struct shingle_drive *drive, void *buf,
				     shingle_u32 len);

/*
 * The link is reset, as after a request that took too long: every request is
 * forgotten, and may be submitted again. What is in the drive's buffer stays.
 * 0, or -EOPNOTSUPP of a crash drive and of one with zones: nothing happened.
 */
shingle_s32 shingle_drive_reset(struct shingle_drive *drive, shingle_u64 now_ns);

/* What is not durable is gone, and so is every request. */
void shingle_drive_power_cut(struct shingle_drive *drive, shingle_u64 now_ns);

/*
 * Writes the drive file as a power cut now would leave it, in order, through
 * @write. Returns 0 or the first status of @write that is not 0. The file that
 * was opened must not be the one being written.
 */
shingle_s32 shingle_drive_save(struct shingle_drive *drive,
			       shingle_s32 (*write)(void *ctx, const void *data,
						    shingle_u64 bytes),
			       void *ctx);

/*
 * What the drive needs from the machine.
 *
 * Zeroed, page-aligned, never given back; NULL when the reserve is used up:
 * from then on every write ends with -ENOMEM.
 */
void *shingle_host_alloc_chunk(shingle_u64 bytes);

/* A mistake in the drive itself. @message has no NUL. Does not return. */
void shingle_host_panic(const char *message, shingle_u32 len);

#endif /* SHINGLE_DRIVE_ABI_H */
