/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between the two halves of the driver of the simulated drives.
 *
 * shingle_kern.c is the block driver, compiled as kernel code. shingle_user.c
 * is compiled against the host's libc: it owns the host's files and memory.
 * Only types that both worlds know appear here.
 *
 * Everything below runs on a kernel stack of 16 KiB: no stdio, no large
 * locals, no malloc (which would be the guest's kmalloc).
 */
#ifndef __UM_SHINGLE_H
#define __UM_SHINGLE_H

/* Exit statuses of the machine; 0 is an orderly power off. */
#define SHINGLE_EXIT_PANIC	1
#define SHINGLE_EXIT_SETUP	2	/* a file of the lab cannot be used */
#define SHINGLE_EXIT_POWER_CUT	3	/* shingle.cut was reached */
#define SHINGLE_EXIT_HOST	4	/* the host failed: disk full and such */

/* So many at most, numbered from 0: /dev/shd0, /dev/shd1, ... */
#define SHINGLE_DRIVES		16U

/* All return 0 or a negative errno unless said otherwise. */
int shingle_reserve(unsigned long long bytes);
int shingle_map_drive(unsigned int number, const char *path, const void **map,
		      unsigned long long *len);
/*
 * Opens a directory and, where the text is long enough, replaces its path by a
 * short name that is the same in every run and that the host understands.
 */
int shingle_rename_directory(char *path);
/* Reads a whole file; its length, or -EFBIG if that is more than @len. */
int shingle_read_file(const char *path, void *buf, unsigned int len);
int shingle_trace_open(unsigned int number, const char *path);
int shingle_trace_write(unsigned int number, const void *data,
			unsigned int len);
/* One drive is saved at a time. */
int shingle_save_begin(const char *path);
/* The callback of shingle_drive_save(); ctx is not used. */
int shingle_save_write(void *ctx, const void *data, unsigned long long len);
/* Publishes the file under its name if err is 0; removes it otherwise. */
int shingle_save_end(const char *path, int err);

/* Writes straight to the host's stderr; for messages before the end. */
void shingle_complain(const char *text, unsigned int len);
/* Kills every process of this machine, then ends with this status; does not return. */
void shingle_exit(int status);

/* Bytes asked for when the reserve was used up; 0: it never was. */
extern unsigned long long shingle_reserve_refused;

#endif
