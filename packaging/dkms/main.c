// SPDX-License-Identifier: GPL-2.0-only
/* Start and end of the module ext4lazy: the journal first, then ext4. */

#include <linux/init.h>
#include <linux/module.h>

static int __init ext4lazy_init(void)
{
	int err;

	err = ext4lazy_init_journal();
	if (err)
		return err;
	err = ext4lazy_init_fs();
	if (err) {
		ext4lazy_exit_journal();
		return err;
	}
	pr_info("ext4lazy: ext4 of Linux " EXT4LAZY_FROM " with journal_lazy, version " EXT4LAZY_VERSION "\n");
	return 0;
}

static void __exit ext4lazy_exit(void)
{
	ext4lazy_exit_fs();
	ext4lazy_exit_journal();
}

module_init(ext4lazy_init);
module_exit(ext4lazy_exit);
MODULE_VERSION(EXT4LAZY_VERSION);
MODULE_INFO(ext4_from, EXT4LAZY_FROM);
