/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included before every file of the module ext4lazy, so that it can be loaded
 * beside the kernel's own ext4 and jbd2.  What a macro cannot rename,
 * compose.py does.
 */
#ifndef _EXT4LAZY_ONE_MODULE_H
#define _EXT4LAZY_ONE_MODULE_H

/* jbd2 exports its functions; here they stay inside. */
#define __DISABLE_EXPORTS

#define CONFIG_JBD2_LAZY 1

/* ext2 and ext3 are for the kernel's ext4. */
#undef CONFIG_EXT4_USE_FOR_EXT2

#undef CONFIG_EXT4_KUNIT_TESTS
#undef CONFIG_EXT4_KUNIT_TESTS_MODULE

#include <linux/slab.h>

/* A name of its own for each cache that is called after its structure. */
#undef KMEM_CACHE
#define KMEM_CACHE(__struct, __flags)					\
	kmem_cache_create("ext4lazy_" #__struct, sizeof(struct __struct), \
			  __alignof__(struct __struct), (__flags), NULL)

int ext4lazy_init_journal(void);
void ext4lazy_exit_journal(void);
int ext4lazy_init_fs(void);
void ext4lazy_exit_fs(void);

#endif
