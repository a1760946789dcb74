/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between the driver of the simulated drive and its pass-through of commands.
 */
#ifndef __UM_SHINGLE_SG_H
#define __UM_SHINGLE_SG_H

#include <linux/blkdev.h>
#include "shingle_drive_abi.h"

/* What shingle_kern.c offers. */

const struct shingle_geometry *shingle_geometry(struct gendisk *disk);
/* Reports at most @max zones, from number @first on; returns how many. */
u32 shingle_zones(struct gendisk *disk, u32 first, struct shingle_zone *zones,
		  u32 max);
/*
 * Sends a zone command and sleeps until the drive has executed it. 0 or
 * -errno; the drive's sense, 0 if there is none, in @sense.
 */
int shingle_zone_command(struct gendisk *disk, u32 op, u64 sector, u32 *sense);

/* What shingle_sg.c offers: ioctl(SG_IO) on the block device. */
int shingle_sg_ioctl(struct block_device *bdev, blk_mode_t mode,
		     unsigned int cmd, unsigned long arg);

#endif
