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
 * ext4_lazy_refusal() - why options exclude journal_lazy
 * @sb: the file system
 * @opt: s_mount_opt as it is or shall be
 * @opt2: s_mount_opt2 as it is or shall be
 *
 * Return: a name for the message, or NULL if they go together.
 */
static const char *ext4_lazy_refusal(struct super_block *sb, unsigned int opt,
				     unsigned int opt2)
{
	/* Data in the log is read by paths that know no map, and freed without
	 * a revoke.
	 */
	if ((opt & EXT4_MOUNT_DATA_FLAGS) == EXT4_MOUNT_JOURNAL_DATA)
		return "data=journal";
	/* Without delayed allocation single files may journal their data. */
	if (!(opt & EXT4_MOUNT_DELALLOC))
		return "nodelalloc";
	/* Its replay writes home below copies that stay in the log. */
	if ((opt2 & EXT4_MOUNT2_JOURNAL_FAST_COMMIT) ||
	    ext4_has_feature_fast_commit(sb))
		return "fast commit";
	/* The commit record may be durable before the copies are. */
	if (opt & EXT4_MOUNT_JOURNAL_ASYNC_COMMIT)
		return "journal_async_commit";
	if (!(opt & EXT4_MOUNT_BARRIER))
		return "barrier=0";
	/* It would change the log's format, in memory, while the log is kept. */
	if (ext4_has_metadata_csum(sb) && !(opt & EXT4_MOUNT_JOURNAL_CHECKSUM))
		return "nojournal_checksum";
	/* Quota files that are visible are read as files, past the map. */
	if ((opt & EXT4_MOUNT_QUOTA) && !ext4_has_feature_quota(sb))
		return "usrquota, grpquota, usrjquota= or grpjquota= (use the quota feature)";
	return NULL;
}

/* The same of the present options. */
static const char *ext4_lazy_refusal_now(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);

	return ext4_lazy_refusal(sb, sbi->s_mount_opt, sbi->s_mount_opt2);
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

/* Make the journal lazy, knowing where it lies. */
static int ext4_lazy_attach(struct super_block *sb, journal_t *journal)
{
	struct jbd2_log_extent *extents;
	unsigned int nr_extents;
	int err;

	err = ext4_lazy_extents(journal, &extents, &nr_extents);
	if (err) {
		ext4_msg(sb, KERN_ERR,
			 "journal_lazy: cannot map the journal (%d)", err);
		return err;
	}
	err = jbd2_lazy_start(journal, extents, nr_extents);
	if (!err)
		return 0;
	kvfree(extents);
	if (err == -ENOMEM) {
		/* A log that was kept is then replayed, like any other. */
		ext4_msg(sb, KERN_WARNING,
			 "journal_lazy: no memory for the map of the journal, mounting without");
		clear_opt2(sb, JOURNAL_LAZY);
		return 0;
	}
	ext4_msg(sb, KERN_ERR, "journal_lazy: cannot start (%d)", err);
	return err;
}

static int ext4_lazy_refuse(struct super_block *sb, const char *refusal)
{
	ext4_msg(sb, KERN_ERR, "can't mount with both journal_lazy and %s",
		 refusal);
	return -EINVAL;
}

/**
 * ext4_lazy_prepare() - journal_lazy before the journal is loaded
 * @sb: the file system
 * @journal: its journal
 *
 * If the log was kept by the last mount, the journal becomes lazy here, and
 * its load builds the map.  Otherwise it is for stock recovery, which empties
 * it, and ext4_lazy_start() does the rest.
 *
 * Return: 0, also without the option or without the memory for it; -EINVAL,
 * with a message, if the options exclude it; -EIO; -ENOMEM.
 */
int ext4_lazy_prepare(struct super_block *sb, journal_t *journal)
{
	const char *refusal;

	if (!test_opt2(sb, JOURNAL_LAZY) || !IS_ENABLED(CONFIG_JBD2_LAZY))
		return 0;
	/* Before a recovery that the refused mount would leave behind. */
	refusal = ext4_lazy_refusal_now(sb);
	if (refusal)
		return ext4_lazy_refuse(sb, refusal);
	/* Without the flag stock ext4 ignores the log; so do we. */
	if (!ext4_has_feature_journal_needs_recovery(sb) ||
	    !jbd2_lazy_log_kept(journal))
		return 0;
	return ext4_lazy_attach(sb, journal);
}

/* What ext4 has read, holds, and will not ask about again. */
static int ext4_lazy_refresh(struct super_block *sb, journal_t *journal)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);
	/* Nobody resizes a file system that is being mounted. */
	struct buffer_head **group_desc =
		rcu_dereference_protected(sbi->s_group_desc, 1);

	return jbd2_lazy_refresh(journal, &sbi->s_sbh, 1) ?:
	       jbd2_lazy_refresh(journal, group_desc, sbi->s_gdb_count);
}

/*
 * The superblock and the group descriptors were read before the log was. What
 * was derived from them then must still hold; only a crash within a resize can
 * make a difference.
 */
static int ext4_lazy_check_refreshed(struct super_block *sb,
				     const struct ext4_super_block *before)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);
	struct ext4_super_block *es = sbi->s_es;
	ext4_group_t g;

	if (es->s_magic != before->s_magic ||
	    es->s_blocks_count_lo != before->s_blocks_count_lo ||
	    es->s_blocks_count_hi != before->s_blocks_count_hi ||
	    es->s_inodes_count != before->s_inodes_count ||
	    es->s_first_data_block != before->s_first_data_block ||
	    es->s_log_block_size != before->s_log_block_size ||
	    es->s_first_meta_bg != before->s_first_meta_bg ||
	    (es->s_feature_incompat ^ before->s_feature_incompat) &
	    cpu_to_le32(EXT4_FEATURE_INCOMPAT_META_BG |
			EXT4_FEATURE_INCOMPAT_64BIT |
			EXT4_FEATURE_INCOMPAT_FLEX_BG)) {
		ext4_msg(sb, KERN_ERR,
			 "journal_lazy: the log holds another superblock, run e2fsck first");
		return -EFSCORRUPTED;
	}
	for (g = 0; g < sbi->s_groups_count; g++) {
		struct ext4_group_desc *gdp = ext4_get_group_desc(sb, g, NULL);

		if (!gdp || !ext4_group_desc_csum_verify(sb, g, gdp)) {
			ext4_msg(sb, KERN_ERR,
				 "journal_lazy: wrong checksum of group descriptor %u in the log",
				 g);
			return -EFSBADCRC;
		}
	}
	return 0;
}

/**
 * ext4_lazy_load() - jbd2_journal_load(), of a kept log or another
 * @sb: the file system
 * @journal: its journal
 *
 * Return: as jbd2_journal_load(); -EFSCORRUPTED or -EFSBADCRC, with a message,
 * if the log holds a superblock or group descriptors that do not fit.
 */
int ext4_lazy_load(struct super_block *sb, journal_t *journal)
{
	struct ext4_super_block *before;
	int err;

	if (!jbd2_lazy(journal))
		return jbd2_journal_load(journal);

	before = kmemdup(EXT4_SB(sb)->s_es, sizeof(*before), GFP_KERNEL);
	if (!before)
		return -ENOMEM;
	err = jbd2_journal_load(journal);
	if (!err)
		err = ext4_lazy_refresh(sb, journal);
	if (!err)
		err = ext4_lazy_check_refreshed(sb, before);
	/*
	 * The copy in the log may lack the flag: while the file system is
	 * frozen, and the log drained, errors are logged without it.
	 */
	if (!err)
		ext4_set_feature_journal_needs_recovery(sb);
	/* The caller may write it, and the rest of the log is not at home. */
	if (err)
		memcpy(EXT4_SB(sb)->s_es, before, sizeof(*before));
	kfree(before);
	return err;
}

/**
 * ext4_lazy_start() - journal_lazy at mount
 * @sb: the file system; its journal is loaded and unused
 *
 * Return: 0, also without the option or without the memory for it, and then
 * stock checkpointing goes on; -EINVAL, with a message, if the file system or
 * the options exclude it; -ENOMEM.
 */
int ext4_lazy_start(struct super_block *sb)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;
	const char *refusal;

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
	/* The data mode may have been chosen since ext4_lazy_prepare(). */
	refusal = ext4_lazy_refusal_now(sb);
	if (!refusal && !jbd2_has_feature_csum3(journal))
		refusal = "a journal without v3 checksums (metadata_csum)";
	if (refusal)
		return ext4_lazy_refuse(sb, refusal);
	if (journal->j_lazy)
		return 0;
	return ext4_lazy_attach(sb, journal);
}

/* Copies of group descriptors that lie so near are one place. */
#define EXT4_LAZY_NEAR		64
/* The next mount visits no more places for them. */
#define EXT4_LAZY_PLACES	8
/* Credits of one handle. */
#define EXT4_LAZY_GATHER	64

/* In how many places of the log the group descriptors are. */
static unsigned int ext4_lazy_places(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);
	unsigned long i, at, last = 0;
	unsigned int places = 0;

	for (i = 0; i < sbi->s_gdb_count; i++) {
		struct buffer_head *bh = sbi_array_rcu_deref(sbi, s_group_desc,
							     i);

		at = jbd2_lazy_log_block(sbi->s_journal, bh->b_blocknr);
		if (!at)
			continue;
		places += !last || abs_diff(last, at) > EXT4_LAZY_NEAR;
		last = at;
	}
	return places;
}

/*
 * A mount reads every group descriptor that is in the log, and they were logged
 * at different times.  If the places are many, log them together.
 */
static void ext4_lazy_gather(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);
	unsigned long i, left = 0;
	handle_t *handle = NULL;
	int err = 0;

	if (ext4_lazy_places(sb) <= EXT4_LAZY_PLACES)
		return;
	for (i = 0; !err && i < sbi->s_gdb_count; i++) {
		struct buffer_head *bh = sbi_array_rcu_deref(sbi, s_group_desc,
							     i);

		if (!jbd2_lazy_log_block(sbi->s_journal, bh->b_blocknr))
			continue;
		if (!left) {
			if (handle)
				ext4_journal_stop(handle);
			handle = ext4_journal_start_sb(sb, EXT4_HT_MISC,
						       EXT4_LAZY_GATHER);
			/* The next mount takes longer, that is all. */
			if (IS_ERR(handle))
				return;
			left = EXT4_LAZY_GATHER;
		}
		err = ext4_journal_get_write_access(handle, sb, bh,
						    EXT4_JTR_NONE);
		if (!err)
			err = ext4_handle_dirty_metadata(handle, NULL, bh);
		left--;
	}
	if (handle)
		ext4_journal_stop(handle);
}

/**
 * ext4_lazy_log_super() - put the present superblock into the log
 * @sb: the file system, still writable
 *
 * The superblock is also written directly, past the log (mount, unmount).
 * Whoever replays the log brings back the copy in it, so before the log is
 * left to others it gets one that is up to date.  With journal_lazy_drain none
 * is left.
 */
void ext4_lazy_log_super(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);

	if (!test_opt2(sb, JOURNAL_LAZY) || !jbd2_lazy(sbi->s_journal) ||
	    test_opt2(sb, JOURNAL_LAZY_DRAIN) || sb_rdonly(sb) ||
	    is_journal_aborted(sbi->s_journal))
		return;
	ext4_lazy_gather(sb);
	jbd2_lazy_closing(sbi->s_journal);
	schedule_work(&sbi->s_sb_upd_work);
	flush_work(&sbi->s_sb_upd_work);
}

/**
 * ext4_lazy_log_orphan_file() - let a replay keep the flag of the orphan file
 * @sb: the file system, about to be writable
 *
 * ext4_setup_super() sets the flag at home only.  A replay brings back the copy
 * in the log, which an unmount has left without it, and e2fsck then leaves out
 * the orphan file: a truncation that a power cut has interrupted is undone.
 */
void ext4_lazy_log_orphan_file(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);
	handle_t *handle;

	if (!ext4_has_feature_orphan_file(sb) || !test_opt2(sb, JOURNAL_LAZY) ||
	    !jbd2_lazy(sbi->s_journal))
		return;
	/* An error aborts the journal.  For ext4 it may be read-only yet. */
	handle = jbd2_journal_start(sbi->s_journal, 1);
	if (IS_ERR(handle))
		return;
	if (!ext4_journal_get_write_access(handle, sb, sbi->s_sbh,
					   EXT4_JTR_NONE))
		ext4_handle_dirty_metadata(handle, NULL, sbi->s_sbh);
	jbd2_journal_stop(handle);
}

/*
 * Make the superblock what ext4_put_super() will write.  The cleaner may have
 * just logged it again, and a commit may be writing its buffer: the checksum in
 * the log is made before the write.  Write access waits for that, or gives the
 * commit a copy.  The buffer's lock keeps out ext4_commit_super(), which takes
 * no write access.
 */
static void ext4_lazy_close_super(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);
	struct buffer_head *sbh = sbi->s_sbh;
	handle_t *handle;

	/* An error aborts the journal, and then the log is others' anyway. */
	handle = ext4_journal_start_sb(sb, EXT4_HT_MISC, 1);
	if (IS_ERR(handle))
		return;
	if (!ext4_journal_get_write_access(handle, sb, sbh, EXT4_JTR_NONE)) {
		lock_buffer(sbh);
		ext4_clear_feature_orphan_present(sb);
		sbi->s_es->s_state = cpu_to_le16(sbi->s_mount_state);
		ext4_superblock_csum_set(sb);
		unlock_buffer(sbh);
		ext4_handle_dirty_metadata(handle, NULL, sbh);
	}
	ext4_journal_stop(handle);
}

/* Before the journal is destroyed: leave a log that others can replay. */
void ext4_lazy_unmount(struct super_block *sb)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;

	if (!test_opt2(sb, JOURNAL_LAZY) || sb_rdonly(sb) ||
	    is_journal_aborted(journal))
		return;
	if (test_opt2(sb, JOURNAL_LAZY_DRAIN)) {
		jbd2_journal_lock_updates(journal);
		/* An error aborts the journal, which others notice. */
		jbd2_journal_flush(journal, 0);
		jbd2_journal_unlock_updates(journal);
		return;
	}
	if (jbd2_lazy(journal))
		jbd2_lazy_pass_damage(journal);
	ext4_lazy_close_super(sb);
	ext4_lazy_log_super(sb);
}

/*
 * Before a resize.  What another one has logged, that a crash cut off, would
 * overwrite what this one puts in its place.
 *
 * Return: 0, or an error, and then the journal is aborted.
 */
int ext4_lazy_resize_begin(struct super_block *sb)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;
	int err;

	if (!journal || !jbd2_lazy(journal) || sb_rdonly(sb))
		return 0;
	jbd2_journal_lock_updates(journal);
	err = jbd2_journal_flush(journal, 0);
	jbd2_journal_unlock_updates(journal);
	return err;
}

/* For jbd2_journal_flush(): whether a freeze or a remount leaves the log. */
unsigned int ext4_lazy_flush_flags(struct super_block *sb)
{
	/* Without the flag nobody would look into a log that is kept. */
	if (!ext4_has_feature_journal_needs_recovery(sb))
		return 0;
	/* A mount, which comes here, too, has only just taken it over. */
	return test_opt2(sb, JOURNAL_LAZY_DRAIN) && sb->s_flags & SB_ACTIVE ?
		0 : JBD2_JOURNAL_FLUSH_KEEP;
}

/**
 * ext4_lazy_check_remount() - whether new options fit the running journal
 * @sb: the file system, with its old options
 * @opt: s_mount_opt as it shall be
 * @opt2: s_mount_opt2 as it shall be
 *
 * Called before they are applied: a file that is written meanwhile must not
 * find one of those that are refused.
 *
 * Return: 0, or -EINVAL with a message.
 */
int ext4_lazy_check_remount(struct super_block *sb, unsigned int opt,
			    unsigned int opt2)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;
	const char *refusal;

	if ((opt2 ^ EXT4_SB(sb)->s_mount_opt2) & EXT4_MOUNT2_JOURNAL_LAZY) {
		ext4_msg(sb, KERN_ERR,
			 "can't change journal_lazy during remount");
		return -EINVAL;
	}
	if (!test_opt2(sb, JOURNAL_LAZY))
		return 0;
	if (sb_rdonly(sb) && jbd2_lazy(journal) &&
	    jbd2_lazy_log_gone(journal)) {
		ext4_msg(sb, KERN_ERR,
			 "can't remount: the log was emptied while the file system was read-only; unmount it and mount it again");
		return -EINVAL;
	}
	refusal = ext4_lazy_refusal(sb, opt, opt2);
	if (refusal) {
		ext4_msg(sb, KERN_ERR,
			 "can't remount with both journal_lazy and %s",
			 refusal);
		return -EINVAL;
	}
	return 0;
}

#ifdef CONFIG_JBD2_LAZY
static struct ext4_sb_info *ext4_lazy_sbi(struct kobject *kobj)
{
	return container_of(kobj->parent, struct ext4_sb_info, s_kobj);
}

struct ext4_lazy_attr {
	struct kobj_attribute attr;
	size_t offset;		/* in struct jbd2_lazy_stats */
};

static ssize_t ext4_lazy_show(struct kobject *kobj, struct kobj_attribute *attr,
			      char *buf)
{
	struct ext4_lazy_attr *lazy_attr =
		container_of(attr, struct ext4_lazy_attr, attr);
	struct jbd2_lazy_stats stats;

	jbd2_lazy_stats(ext4_lazy_sbi(kobj)->s_journal, &stats);
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
EXT4_LAZY_ATTR(log_used);
EXT4_LAZY_ATTR(memory_bytes);
EXT4_LAZY_ATTR(relogged);
EXT4_LAZY_ATTR(swept);
EXT4_LAZY_ATTR(emergency);
EXT4_LAZY_ATTR(damaged_blocks);

/* Whatever is written: all of the log is read and checked before it returns. */
static ssize_t scrub_store(struct kobject *kobj, struct kobj_attribute *attr,
			   const char *buf, size_t len)
{
	return jbd2_lazy_scrub(ext4_lazy_sbi(kobj)->s_journal) ?: len;
}

static struct kobj_attribute ext4_lazy_attr_scrub = __ATTR_WO(scrub);

#ifdef CONFIG_JBD2_LAZY_DEBUG
EXT4_LAZY_ATTR(inserted);
EXT4_LAZY_ATTR(dropped);
EXT4_LAZY_ATTR(demoted);
EXT4_LAZY_ATTR(log_reads);
EXT4_LAZY_ATTR(rebuilt);
EXT4_LAZY_ATTR(logged_blocks);
EXT4_LAZY_ATTR(snapshot_blocks);
EXT4_LAZY_ATTR(snapshots);
EXT4_LAZY_ATTR(mount_blocks);
EXT4_LAZY_ATTR(mount_snapshots);
EXT4_LAZY_ATTR(scrubbed_blocks);
EXT4_LAZY_ATTR(damage_left);

/* How the cleaner works: "watermarks", "fixed" or "off". */
static ssize_t policy_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%s\n",
			  jbd2_lazy_policy(ext4_lazy_sbi(kobj)->s_journal));
}

static ssize_t policy_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t len)
{
	return jbd2_lazy_set_policy(ext4_lazy_sbi(kobj)->s_journal, buf) ?: len;
}

static struct kobj_attribute ext4_lazy_attr_policy = __ATTR_RW(policy);

/* For tests: equal for equal maps of the same log. */
static ssize_t map_digest_show(struct kobject *kobj,
			       struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n",
			  jbd2_lazy_digest(ext4_lazy_sbi(kobj)->s_journal));
}

static struct kobj_attribute ext4_lazy_attr_map_digest =
	__ATTR_RO(map_digest);

/* For tests: demote, or re-log, what is in the oldest so many log blocks. */
static ssize_t ext4_lazy_move(struct kobject *kobj, const char *buf, size_t len,
			      int (*move)(journal_t *journal, u32 span))
{
	u32 span;
	int ret;

	ret = kstrtou32(buf, 0, &span);
	if (!ret)
		ret = move(ext4_lazy_sbi(kobj)->s_journal, span);
	return ret < 0 ? ret : len;
}

static ssize_t demote_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t len)
{
	return ext4_lazy_move(kobj, buf, len, jbd2_lazy_demote_now);
}

static struct kobj_attribute ext4_lazy_attr_demote = __ATTR_WO(demote);

static ssize_t relog_store(struct kobject *kobj, struct kobj_attribute *attr,
			   const char *buf, size_t len)
{
	return ext4_lazy_move(kobj, buf, len, jbd2_lazy_relog_now);
}

static struct kobj_attribute ext4_lazy_attr_relog = __ATTR_WO(relog);
#endif

static const struct attribute *ext4_lazy_attrs[] = {
	&ext4_lazy_attr_live_blocks.attr.attr,
	&ext4_lazy_attr_log_blocks.attr.attr,
	&ext4_lazy_attr_log_used.attr.attr,
	&ext4_lazy_attr_memory_bytes.attr.attr,
	&ext4_lazy_attr_relogged.attr.attr,
	&ext4_lazy_attr_swept.attr.attr,
	&ext4_lazy_attr_emergency.attr.attr,
	&ext4_lazy_attr_damaged_blocks.attr.attr,
	&ext4_lazy_attr_scrub.attr,
#ifdef CONFIG_JBD2_LAZY_DEBUG
	&ext4_lazy_attr_inserted.attr.attr,
	&ext4_lazy_attr_dropped.attr.attr,
	&ext4_lazy_attr_demoted.attr.attr,
	&ext4_lazy_attr_log_reads.attr.attr,
	&ext4_lazy_attr_rebuilt.attr.attr,
	&ext4_lazy_attr_logged_blocks.attr.attr,
	&ext4_lazy_attr_snapshot_blocks.attr.attr,
	&ext4_lazy_attr_snapshots.attr.attr,
	&ext4_lazy_attr_mount_blocks.attr.attr,
	&ext4_lazy_attr_mount_snapshots.attr.attr,
	&ext4_lazy_attr_scrubbed_blocks.attr.attr,
	&ext4_lazy_attr_damage_left.attr.attr,
	&ext4_lazy_attr_policy.attr,
	&ext4_lazy_attr_map_digest.attr,
	&ext4_lazy_attr_demote.attr,
	&ext4_lazy_attr_relog.attr,
#endif
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
