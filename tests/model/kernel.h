/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel files under test want of the kernel, in user space and on
 * one thread. Every <linux/...> header that they name is this file.
 *
 * A lock only knows whether it is held, so that taking one twice is found.
 * Whatever would wait for ever, and every warning, fails the history.
 */
#ifndef MODEL_KERNEL_H
#define MODEL_KERNEL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8, __u8;
typedef uint16_t u16, __u16, __be16;
typedef uint32_t u32, __u32, __be32;
typedef unsigned long long u64, __u64, __be64;
typedef int32_t s32;
typedef long long s64;
typedef unsigned int tid_t, gfp_t, blk_opf_t;
typedef u64 sector_t;

#define CONFIG_JBD2_LAZY 1
#define IS_ENABLED(option) 1
#define EFSCORRUPTED EUCLEAN
#define HZ 250

void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void model_say(int level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define pr_err(...) model_say(3, __VA_ARGS__)
#define pr_warn(...) model_say(4, __VA_ARGS__)
#define pr_info(...) model_say(6, __VA_ARGS__)
#define WARN_ON_ONCE(condition) ({					\
	bool warned = !!(condition);					\
	if (warned)							\
		model_fail("%s:%d: WARN_ON(%s)", __FILE__, __LINE__,	\
			   #condition);					\
	warned; })
#define WARN_ON(condition) WARN_ON_ONCE(condition)
#define BUG_ON(condition) ((void)WARN_ON_ONCE(condition))
#define J_ASSERT(condition) ((void)WARN_ON_ONCE(!(condition)))
#define BUILD_BUG_ON(condition) _Static_assert(!(condition), #condition)
#define EXPORT_SYMBOL(name) _Static_assert(1, #name)

#define __init
#define likely(x) (x)
#define unlikely(x) (x)
#define fallthrough __attribute__((fallthrough))
#define READ_ONCE(x) (x)
#define WRITE_ONCE(x, value) ((void)((x) = (value)))
#define min(a, b) ({ typeof(a) _a = (a); typeof(b) _b = (b); _a < _b ? _a : _b; })
#define max(a, b) ({ typeof(a) _a = (a); typeof(b) _b = (b); _a > _b ? _a : _b; })
#define min_t(type, a, b) min((type)(a), (type)(b))
#define max_t(type, a, b) max((type)(a), (type)(b))
#define min3(a, b, c) min(min(a, b), c)
#define clamp(value, least, most) min(max(value, least), most)
#define clamp_t(type, value, least, most) \
	clamp((type)(value), (type)(least), (type)(most))
#define DIV_ROUND_UP(a, b) (((a) + (b) - 1) / (b))
#define ALIGN(a, b) (DIV_ROUND_UP(a, b) * (b))
#define BIT(n) (1UL << (n))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define U8_MAX UINT8_MAX
#define U16_MAX UINT16_MAX
#define U32_MAX UINT32_MAX
#define upper_32_bits(x) ((u32)((u64)(x) >> 32))
#define lower_32_bits(x) ((u32)(x))
#define container_of(pointer, type, member) \
	((type *)((char *)(pointer) - offsetof(type, member)))
#define abs_diff(a, b) ((a) > (b) ? (a) - (b) : (b) - (a))

#define cpu_to_be16(x) __builtin_bswap16((u16)(x))
#define cpu_to_be32(x) __builtin_bswap32((u32)(x))
#define cpu_to_be64(x) __builtin_bswap64((u64)(x))
#define be16_to_cpu(x) __builtin_bswap16(x)
#define be32_to_cpu(x) __builtin_bswap32(x)
#define be64_to_cpu(x) __builtin_bswap64(x)

static inline u32 be32_to_cpup(const __be32 *p)
{
	return be32_to_cpu(*p);
}

static inline u64 be64_to_cpup(const __be64 *p)
{
	return be64_to_cpu(*p);
}

static inline u64 get_unaligned_be64(const void *p)
{
	u64 value;

	memcpy(&value, p, sizeof(value));
	return be64_to_cpu(value);
}

static inline u32 get_unaligned_be32(const void *p)
{
	u32 value;

	memcpy(&value, p, sizeof(value));
	return be32_to_cpu(value);
}

static inline void put_unaligned_be64(u64 value, void *p)
{
	value = cpu_to_be64(value);
	memcpy(p, &value, sizeof(value));
}

static inline void put_unaligned_be32(u32 value, void *p)
{
	value = cpu_to_be32(value);
	memcpy(p, &value, sizeof(value));
}

static inline u64 div_u64(u64 a, u32 b)
{
	return a / b;
}

static inline unsigned int ilog2(u64 value)
{
	return 63 - __builtin_clzll(value);
}

#define GOLDEN_RATIO_64 0x61C8864680B583EBull

static inline u32 hash_64_generic(u64 value, unsigned int bits)
{
	return value * GOLDEN_RATIO_64 >> (64 - bits);
}

#define hash_64 hash_64_generic

#define MAX_ERRNO 4095
#define ERR_PTR(error) ((void *)(long)(error))
#define PTR_ERR(pointer) ((long)(pointer))
#define IS_ERR(pointer) ((unsigned long)(void *)(pointer) >= (unsigned long)-MAX_ERRNO)
#define IS_ERR_OR_NULL(pointer) (!(pointer) || IS_ERR(pointer))
#define PTR_ERR_OR_ZERO(pointer) (IS_ERR(pointer) ? (int)PTR_ERR(pointer) : 0)

/* ------------------------------------------------------------------------- */
/* Locks, atomics, waiting                                                    */

struct lock {
	int held;
};

typedef struct lock spinlock_t, rwlock_t;

static inline void lock_take(struct lock *lock, const char *name)
{
	if (lock->held++)
		model_fail("%s is taken while it is held", name);
}

static inline void lock_drop(struct lock *lock, const char *name)
{
	if (--lock->held)
		model_fail("%s is dropped and was not held", name);
}

#define spin_lock_init(lock) ((lock)->held = 0)
#define rwlock_init(lock) ((lock)->held = 0)
#define spin_lock(lock) lock_take(lock, #lock)
#define spin_unlock(lock) lock_drop(lock, #lock)
#define read_lock(lock) lock_take(lock, #lock)
#define read_unlock(lock) lock_drop(lock, #lock)
#define write_lock(lock) lock_take(lock, #lock)
#define write_unlock(lock) lock_drop(lock, #lock)

struct mutex {
	struct lock lock;
};

#define mutex_init(mutex) ((mutex)->lock.held = 0)
#define mutex_lock(mutex) lock_take(&(mutex)->lock, #mutex)
#define mutex_lock_io(mutex) mutex_lock(mutex)
#define mutex_unlock(mutex) lock_drop(&(mutex)->lock, #mutex)
#define mutex_is_locked(mutex) ((mutex)->lock.held)
#define mutex_trylock(mutex) \
	((mutex)->lock.held ? false : (mutex_lock(mutex), true))
#define lockdep_assert_held(lock) ((void)0)

typedef struct {
	int value;
} atomic_t, refcount_t;

typedef struct {
	s64 value;
} atomic64_t;

#define atomic_set(a, v) ((void)((a)->value = (v)))
#define atomic_read(a) ((a)->value)
#define atomic_inc(a) ((void)((a)->value++))
#define atomic_add(v, a) ((void)((a)->value += (v)))
#define atomic_sub(v, a) ((void)((a)->value -= (v)))
#define atomic_dec_and_test(a) (--(a)->value == 0)
#define atomic64_set atomic_set
#define atomic64_read atomic_read
#define atomic64_inc atomic_inc
#define atomic64_add atomic_add

struct completion {
	unsigned int done;
};

#define init_completion(c) ((void)((c)->done = 0))
#define reinit_completion(c) init_completion(c)
#define complete(c) ((void)((c)->done++))
#define complete_all(c) ((void)((c)->done = U32_MAX / 2))
#define wait_for_completion_io(c) ({					\
	if (!(c)->done)							\
		model_fail("%s:%d waits for ever", __FILE__, __LINE__);	\
	else								\
		(c)->done--; })
#define wait_for_completion(c) wait_for_completion_io(c)

typedef struct {
	int unused;
} wait_queue_head_t;

struct list_head {
	struct list_head *next, *prev;
};

struct hlist_node {
	struct hlist_node *next;
};

struct rcu_head {
	int unused;
};

struct bio_set {
	int unused;
};

#define smp_load_acquire(p) (*(p))
#define smp_store_release(p, value) ((void)(*(p) = (value)))
#define smp_mb() ((void)0)

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list;
	list->prev = list;
}

static inline void list_add_tail(struct list_head *new, struct list_head *head)
{
	new->prev = head->prev;
	new->next = head;
	head->prev->next = new;
	head->prev = new;
}

static inline void list_del(struct list_head *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
}

static inline bool list_empty(const struct list_head *head)
{
	return head->next == head;
}

#define list_for_each(pos, head) \
	for (pos = (head)->next; pos != (head); pos = pos->next)

#define cond_resched() ((void)0)
#define msleep(ms) ((void)(ms))
#define get_random_u32_below(n) ((u32)((n) - (n)))
#define ktime_get_real_seconds() ((u64)1)

struct task_struct;

/* ------------------------------------------------------------------------- */
/* Memory                                                                     */

#define PAGE_SIZE 4096UL
#define PAGE_ALIGN(x) ALIGN(x, PAGE_SIZE)
#define GFP_KERNEL 0U
#define GFP_NOFS 0U
#define GFP_NOIO 0U
#define __GFP_NOWARN 0U
#define __GFP_NOFAIL 0U

void *model_alloc(size_t bytes);

static inline void *kzalloc(size_t bytes, gfp_t gfp)
{
	void *memory = model_alloc(bytes);

	return memory ? memset(memory, 0, bytes) : NULL;
}

#define kmalloc(bytes, gfp) model_alloc(bytes)
#define kvmalloc(bytes, gfp) model_alloc(bytes)
#define kvzalloc(bytes, gfp) kzalloc(bytes, gfp)
#define kcalloc(n, size, gfp) kzalloc((size_t)(n) * (size), gfp)
#define kvcalloc(n, size, gfp) kzalloc((size_t)(n) * (size), gfp)
#define kmalloc_array(n, size, gfp) model_alloc((size_t)(n) * (size))
#define kvmalloc_array(n, size, gfp) model_alloc((size_t)(n) * (size))
#define kvrealloc(old, bytes, gfp) realloc(old, bytes)
#define kfree(memory) free((void *)(memory))
#define kvfree(memory) free((void *)(memory))
#define vmalloc(bytes) model_alloc(bytes)
#define vfree(memory) free(memory)
#define alloc_pages_exact(bytes, gfp) model_alloc(bytes)
#define free_pages_exact(memory, bytes) free(memory)
#define offset_in_page(p) ((unsigned long)(p) & (PAGE_SIZE - 1))

struct page;

#define virt_to_page(p) \
	((struct page *)((unsigned long)(p) & ~(PAGE_SIZE - 1)))
#define vmalloc_to_page(p) virt_to_page(p)
#define flush_kernel_vmap_range(p, n) do { } while (0)
#define invalidate_kernel_vmap_range(p, n) do { } while (0)

static inline unsigned int memalloc_nofs_save(void)
{
	return 0;
}

static inline void memalloc_nofs_restore(unsigned int flags)
{
}

/* ------------------------------------------------------------------------- */
/* Blocks: see disk.c                                                         */

#define SECTOR_SHIFT 9
#define REQ_OP_READ 0U
#define REQ_OP_WRITE 1U
#define REQ_META 0x100U
#define REQ_FUA 0x200U
#define REQ_PREFLUSH 0x400U
#define REQ_RAHEAD 0x800U
#define REQ_SYNC 0x1000U
#define JBD2_JOURNAL_REQ_FLAGS REQ_META

struct address_space;

struct block_device {
	u64 bytes;
};

#define bdev_nr_bytes(bdev) ((bdev)->bytes)
#define bdev_read_only(bdev) false

struct bio {
	struct {
		sector_t bi_sector;
	} bi_iter;
	void *bi_private;
	void (*bi_end_io)(struct bio *bio);
	int bi_status;
	blk_opf_t opf;
	unsigned int nr, room;
	struct {
		void *data;
		u32 len;
	} vec[];
};

struct bio *bio_alloc(struct block_device *bdev, unsigned int vecs,
		      blk_opf_t opf, gfp_t gfp);
void __bio_add_page(struct bio *bio, struct page *page, unsigned int len,
		    unsigned int offset);
void submit_bio(struct bio *bio);
int submit_bio_wait(struct bio *bio);

static inline void bio_put(struct bio *bio)
{
	free(bio);
}

struct buffer_head {
	void *b_data;
	u64 b_blocknr;
	u32 b_size;
	int b_count;
	bool uptodate, locked;
	void (*b_end_io)(struct buffer_head *bh, int uptodate);
};

struct buffer_head *__getblk(struct block_device *bdev, u64 block, u32 size);
void brelse(struct buffer_head *bh);
void submit_bh(blk_opf_t opf, struct buffer_head *bh);
void end_buffer_write_sync(struct buffer_head *bh, int uptodate);
int blkdev_issue_flush(struct block_device *bdev);

#define lock_buffer(bh) ((bh)->locked = true)
#define wait_on_buffer(bh) ((void)(bh))
#define clear_buffer_dirty(bh) ((void)(bh))
#define set_buffer_uptodate(bh) ((bh)->uptodate = true)
#define buffer_uptodate(bh) ((bh)->uptodate)
#define buffer_newest(bh) ((bh)->uptodate)
#define get_bh(bh) ((void)((bh)->b_count++))

u32 model_crc32c(u32 crc, const void *data, size_t len);
u32 __crc32c_le_shift(u32 crc, size_t len);

/* ------------------------------------------------------------------------- */
/* jbd2: the format and the fields as in <linux/jbd2.h>                       */

#define JBD2_MAGIC_NUMBER 0xc03b3998U
#define JBD2_DESCRIPTOR_BLOCK 1
#define JBD2_COMMIT_BLOCK 2
#define JBD2_REVOKE_BLOCK 5
#define JBD2_CRC32C_CHKSUM 4
#define JBD2_CHECKSUM_BYTES (32 / sizeof(u32))
#define JBD2_FLAG_ESCAPE 1
#define JBD2_FLAG_SAME_UUID 2
#define JBD2_FLAG_LAST_TAG 8

typedef struct journal_header_s {
	__be32 h_magic;
	__be32 h_blocktype;
	__be32 h_sequence;
} journal_header_t;

struct commit_header {
	__be32 h_magic;
	__be32 h_blocktype;
	__be32 h_sequence;
	unsigned char h_chksum_type;
	unsigned char h_chksum_size;
	unsigned char h_padding[2];
	__be32 h_chksum[JBD2_CHECKSUM_BYTES];
	__be64 h_commit_sec;
	__be32 h_commit_nsec;
};

typedef struct journal_block_tag3_s {
	__be32 t_blocknr;
	__be32 t_flags;
	__be32 t_blocknr_high;
	__be32 t_checksum;
} journal_block_tag3_t;

typedef struct journal_block_tag_s {
	__be32 t_blocknr;
	__be16 t_checksum;
	__be16 t_flags;
	__be32 t_blocknr_high;
} journal_block_tag_t;

struct jbd2_journal_block_tail {
	__be32 t_checksum;
};

typedef struct jbd2_journal_revoke_header_s {
	journal_header_t r_header;
	__be32 r_count;
} jbd2_journal_revoke_header_t;

typedef struct journal_superblock_s {
	journal_header_t s_header;
	__be32 s_blocksize;
	__be32 s_maxlen;
	__be32 s_first;
	__be32 s_sequence;
	__be32 s_start;
	__be32 s_errno;
	__be32 s_feature_compat;
	__be32 s_feature_incompat;
	__be32 s_feature_ro_compat;
	__u8 s_uuid[16];
	__be32 s_nr_users;
	__be32 s_dynsuper;
	__be32 s_max_transaction;
	__be32 s_max_trans_data;
	__u8 s_checksum_type;
	__u8 s_padding2[3];
	__be32 s_num_fc_blks;
	__be32 s_head;
	__u32 s_padding[40];
	__be32 s_checksum;
	__u8 s_users[16 * 48];
} journal_superblock_t;

#define JBD2_UNMOUNT 0x001
#define JBD2_ABORT 0x002
#define JBD2_FLUSHED 0x008
#define JBD2_LOADED 0x010
#define JBD2_BARRIER 0x020

typedef struct journal_s journal_t;
typedef struct transaction_s transaction_t;
typedef struct handle_s handle_t;
struct journal_head;
struct jbd2_lazy;

struct transaction_s {
	journal_t *t_journal;
	tid_t t_tid;
	unsigned long t_log_start;
	atomic_t t_outstanding_credits;
	atomic_t t_outstanding_revokes;
};

struct journal_s {
	unsigned long j_flags;
	int j_errno;
	journal_superblock_t *j_superblock;
	rwlock_t j_state_lock;
	spinlock_t j_list_lock;
	struct mutex j_checkpoint_mutex;
	transaction_t *j_running_transaction;
	transaction_t *j_committing_transaction;
	transaction_t *j_checkpoint_transactions;
	unsigned long j_head, j_tail, j_free, j_first, j_last;
	struct block_device *j_dev, *j_fs_dev;
	int j_blocksize;
	char j_devname[16];
	unsigned int j_total_len;
	tid_t j_tail_sequence, j_transaction_sequence;
	tid_t j_commit_sequence, j_commit_request;
	int j_max_transaction_buffers;
	int j_revoke_records_per_block;
	int j_transaction_overhead_buffers;
	u32 j_csum_seed;
	bool has_64bit;
	struct jbd2_lazy *j_lazy;
};

#define tid_gt(x, y) ((int)((tid_t)(x) - (tid_t)(y)) > 0)
#define tid_geq(x, y) ((int)((tid_t)(x) - (tid_t)(y)) >= 0)
#define is_journal_aborted(journal) (!!((journal)->j_flags & JBD2_ABORT))
#define jbd2_has_feature_64bit(journal) ((journal)->has_64bit)
#define jbd2_chksum(journal, seed, data, len) model_crc32c(seed, data, len)

int jbd2_journal_next_log_block(journal_t *journal, unsigned long long *block);
void jbd2_journal_abort(journal_t *journal, int error);
int jbd2_journal_update_sb_log_tail(journal_t *journal, tid_t tid,
				    unsigned long block, blk_opf_t flags);
int jbd2_journal_get_log_tail(journal_t *journal, tid_t *tid,
			      unsigned long *block);
int __jbd2_update_log_tail(journal_t *journal, tid_t tid, unsigned long block);
int jbd2_log_do_checkpoint(journal_t *journal);
bool jbd2_journal_find_revoke(journal_t *journal, unsigned long long home);
bool jbd2_journal_pop_revoke(struct list_head *list, unsigned long long *home);
unsigned long long jbd2_journal_revoked(struct list_head *record);

/* Which guard is gone: tests/mutants/README.md. */
bool jbd2_lazy_mutant(const char *name);

#define trace_jbd2_lazy_insert(...) ((void)0)
#define trace_jbd2_lazy_drop(...) ((void)0)
#define trace_jbd2_lazy_tail(...) ((void)0)
#define trace_jbd2_lazy_demote(...) ((void)0)

#endif /* MODEL_KERNEL_H */
