// SPDX-License-Identifier: GPL-2.0-only
/*
 * The journal_lazy mount option: lazy writeback journaling for ext4.
 *
 * fs/jbd2/lazy.c does the work; here is what only the file system knows:
 * with which options it goes together, where the journal lies, and the files
 * in /sys/fs/ext4/<device>/journal_lazy.
 */

#include <linux/jbd2_lazy.h>
#include "ext4.h"
#include "ext4_jbd2.h"
#include "ext4_extents.h"

/**
 * ext4_lazy_refusal() - why the present options exclude journal_lazy
 * @sb: the file system
 *
 * Return: a name for the message, or NULL if they go together.
 */
static const char *ext4_lazy_refusal(struct super_block *sb)
{
	/* Data in the log is read by paths that know no map, and freed without
	 * a revoke.
	 */
	if (test_opt(sb, DATA_FLAGS) == EXT4_MOUNT_JOURNAL_DATA)
		return "data=journal";
	/* Without delayed allocation single files may journal their data. */
	if (!test_opt(sb, DELALLOC))
		return "nodelalloc";
	/* Its replay writes home below copies that stay in the log. */
	if (test_opt2(sb, JOURNAL_FAST_COMMIT) ||
	    ext4_has_feature_fast_commit(sb))
		return "fast commit";
	/* The commit record may be durable before the copies are. */
	if (test_opt(sb, JOURNAL_ASYNC_COMMIT))
		return "journal_async_commit";
	if (!test_opt(sb, BARRIER))
		return "barrier=0";
#ifdef CONFIG_QUOTA
	/* Quota files that are visible are read as files, past the map. */
	for (int i = 0; i < EXT4_MAXQUOTAS; i++)
		if (rcu_access_pointer(EXT4_SB(sb)->s_qf_names[i]))
			return "usrjquota= or grpjquota= (use the quota feature)";
#endif
	return NULL;
}

/* Where the log lies, as an array that covers it without holes. */
static int ext4_lazy_extents(journal_t *journal,
			     struct jbd2_log_extent **extents,
			     unsigned int *nr_extents)
{
	struct inode *inode = journal->j_inode;
	unsigned int nr = 0, room = 0;
	struct jbd2_log_extent *array = NULL, *grown;
	struct ext4_map_blocks map;
	u32 log = 0, len;
	int ret;

	while (log < journal->j_last) {
		len = journal->j_last - log;
		map.m_lblk = log;
		map.m_len = len;
		if (inode) {
			ret = ext4_map_blocks(NULL, inode, &map, 0);
			if (ret <= 0) {
				ret = ret ?: -EFSCORRUPTED;
				goto fail;
			}
		} else {
			/* A journal device: log blocks are its blocks. */
			map.m_pblk = log;
		}
		if (nr == room) {
			room = room ? room * 2 : 16;
			grown = kvrealloc(array, room * sizeof(*array),
					  GFP_KERNEL);
			if (!grown) {
				ret = -ENOMEM;
				goto fail;
			}
			array = grown;
		}
		array[nr].log = log;
		array[nr].len = map.m_len;
		array[nr].phys = map.m_pblk;
		nr++;
		log += map.m_len;
	}
	*extents = array;
	*nr_extents = nr;
	return 0;

fail:
	kvfree(array);
	return ret;
}

/**
 * ext4_lazy_start() - journal_lazy at mount
 * @sb: the file system; its journal is loaded, recovered and unused
 *
 * Return: 0, also without the option; -EINVAL, with a message, if the file
 * system or the options exclude it; -ENOMEM.
 */
int ext4_lazy_start(struct super_block *sb)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;
	struct jbd2_log_extent *extents;
	unsigned int nr_extents;
	const char *refusal;
	int err;

	if (!test_opt2(sb, JOURNAL_LAZY))
		return 0;
	if (!IS_ENABLED(CONFIG_JBD2_LAZY)) {
		ext4_msg(sb, KERN_ERR,
			 "can't mount with journal_lazy: not in this kernel");
		return -EINVAL;
	}
	if (!journal) {
		ext4_msg(sb, KERN_ERR,
			 "can't mount with journal_lazy, fs mounted w/o journal");
		return -EINVAL;
	}
	refusal = ext4_lazy_refusal(sb);
	if (!refusal && !jbd2_has_feature_csum3(journal))
		refusal = "a journal without v3 checksums (metadata_csum)";
	if (refusal) {
		ext4_msg(sb, KERN_ERR,
			 "can't mount with both journal_lazy and %s", refusal);
		return -EINVAL;
	}

	err = ext4_lazy_extents(journal, &extents, &nr_extents);
	if (err) {
		ext4_msg(sb, KERN_ERR,
			 "journal_lazy: cannot map the journal (%d)", err);
		return err;
	}
	err = jbd2_lazy_start(journal, extents, nr_extents);
	if (err) {
		ext4_msg(sb, KERN_ERR,
			 "journal_lazy: cannot start (%d)", err);
		kvfree(extents);
	}
	return err;
}

/**
 * ext4_lazy_check_remount() - whether new options fit the running journal
 * @sb: the file system, with its new options
 * @old_opt2: s_mount_opt2 before
 *
 * Return: 0, or -EINVAL with a message.
 */
int ext4_lazy_check_remount(struct super_block *sb, unsigned int old_opt2)
{
	const char *refusal;

	if ((old_opt2 ^ EXT4_SB(sb)->s_mount_opt2) &
	    EXT4_MOUNT2_JOURNAL_LAZY) {
		ext4_msg(sb, KERN_ERR,
			 "can't change journal_lazy during remount");
		return -EINVAL;
	}
	if (!test_opt2(sb, JOURNAL_LAZY))
		return 0;
	refusal = ext4_lazy_refusal(sb);
	if (refusal) {
		ext4_msg(sb, KERN_ERR,
			 "can't remount with both journal_lazy and %s",
			 refusal);
		return -EINVAL;
	}
	return 0;
}

#ifdef CONFIG_JBD2_LAZY
struct ext4_lazy_attr {
	struct kobj_attribute attr;
	size_t offset;		/* in struct jbd2_lazy_stats */
};

static ssize_t ext4_lazy_show(struct kobject *kobj, struct kobj_attribute *attr,
			      char *buf)
{
	struct ext4_lazy_attr *lazy_attr =
		container_of(attr, struct ext4_lazy_attr, attr);
	struct ext4_sb_info *sbi = container_of(kobj->parent,
						struct ext4_sb_info, s_kobj);
	struct jbd2_lazy_stats stats;

	if (!sbi->s_journal || !jbd2_lazy_stats(sbi->s_journal, &stats))
		return -ENODATA;
	return sysfs_emit(buf, "%llu\n",
			  *(u64 *)((char *)&stats + lazy_attr->offset));
}

#define EXT4_LAZY_ATTR(_name)						\
static struct ext4_lazy_attr ext4_lazy_attr_##_name = {			\
	.attr = __ATTR(_name, 0444, ext4_lazy_show, NULL),		\
	.offset = offsetof(struct jbd2_lazy_stats, _name),		\
}

EXT4_LAZY_ATTR(live_blocks);
EXT4_LAZY_ATTR(log_blocks);
EXT4_LAZY_ATTR(memory_bytes);
EXT4_LAZY_ATTR(inserted);
EXT4_LAZY_ATTR(superseded);
EXT4_LAZY_ATTR(dropped);
EXT4_LAZY_ATTR(demoted);
EXT4_LAZY_ATTR(emergency);
EXT4_LAZY_ATTR(log_reads);

#ifdef CONFIG_JBD2_LAZY_DEBUG
/* For tests: demote what is in the oldest so many blocks of the log. */
static ssize_t demote_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t len)
{
	struct ext4_sb_info *sbi = container_of(kobj->parent,
						struct ext4_sb_info, s_kobj);
	u32 span;
	int ret;

	ret = kstrtou32(buf, 0, &span);
	if (!ret)
		ret = jbd2_lazy_demote_now(sbi->s_journal, span);
	return ret < 0 ? ret : len;
}

static struct kobj_attribute ext4_lazy_attr_demote = __ATTR_WO(demote);
#endif

static const struct attribute *ext4_lazy_attrs[] = {
#ifdef CONFIG_JBD2_LAZY_DEBUG
	&ext4_lazy_attr_demote.attr,
#endif
	&ext4_lazy_attr_live_blocks.attr.attr,
	&ext4_lazy_attr_log_blocks.attr.attr,
	&ext4_lazy_attr_memory_bytes.attr.attr,
	&ext4_lazy_attr_inserted.attr.attr,
	&ext4_lazy_attr_superseded.attr.attr,
	&ext4_lazy_attr_dropped.attr.attr,
	&ext4_lazy_attr_demoted.attr.attr,
	&ext4_lazy_attr_emergency.attr.attr,
	&ext4_lazy_attr_log_reads.attr.attr,
	NULL,
};

/* Make /sys/fs/ext4/<device>/journal_lazy. A mount does without, if it must. */
void ext4_lazy_register_sysfs(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);

	if (!test_opt2(sb, JOURNAL_LAZY))
		return;
	sbi->s_lazy_kobj = kobject_create_and_add("journal_lazy",
						  &sbi->s_kobj);
	if (!sbi->s_lazy_kobj ||
	    sysfs_create_files(sbi->s_lazy_kobj, ext4_lazy_attrs))
		ext4_msg(sb, KERN_WARNING, "journal_lazy: no statistics");
}

/* Before the journal goes away. */
void ext4_lazy_unregister_sysfs(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);

	kobject_del(sbi->s_lazy_kobj);
	kobject_put(sbi->s_lazy_kobj);
	sbi->s_lazy_kobj = NULL;
}
#else
void ext4_lazy_register_sysfs(struct super_block *sb) {}
void ext4_lazy_unregister_sysfs(struct super_block *sb) {}
#endif
