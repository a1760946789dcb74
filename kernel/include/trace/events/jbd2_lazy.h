/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM jbd2_lazy

#if !defined(_TRACE_JBD2_LAZY_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_JBD2_LAZY_H

#include <linux/jbd2.h>
#include <linux/tracepoint.h>

DECLARE_EVENT_CLASS(jbd2_lazy_block,
	TP_PROTO(journal_t *journal, u64 home, unsigned long log_blk),
	TP_ARGS(journal, home, log_blk),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, home)
		__field(unsigned long, log_blk)
	),
	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->home = home;
		__entry->log_blk = log_blk;
	),
	TP_printk("dev %d,%d home %llu log %lu",
		  MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->home, __entry->log_blk)
);

/* The newest copy of a block is in the log. */
DEFINE_EVENT(jbd2_lazy_block, jbd2_lazy_insert,
	TP_PROTO(journal_t *journal, u64 home, unsigned long log_blk),
	TP_ARGS(journal, home, log_blk)
);

/* A revoke was committed: the block has no contents any more. */
DEFINE_EVENT(jbd2_lazy_block, jbd2_lazy_drop,
	TP_PROTO(journal_t *journal, u64 home, unsigned long log_blk),
	TP_ARGS(journal, home, log_blk)
);

/* The block is dirty on a checkpoint list and will be written home. */
DEFINE_EVENT(jbd2_lazy_block, jbd2_lazy_demote,
	TP_PROTO(journal_t *journal, u64 home, unsigned long log_blk),
	TP_ARGS(journal, home, log_blk)
);

/* The cleaner filed the block in the running transaction as it is. */
DEFINE_EVENT(jbd2_lazy_block, jbd2_lazy_relog,
	TP_PROTO(journal_t *journal, u64 home, unsigned long log_blk),
	TP_ARGS(journal, home, log_blk)
);

/* The map needs the log from here on. */
TRACE_EVENT(jbd2_lazy_tail,
	TP_PROTO(journal_t *journal, tid_t tid, unsigned long log_blk),
	TP_ARGS(journal, tid, log_blk),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(tid_t, tid)
		__field(unsigned long, log_blk)
	),
	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->tid = tid;
		__entry->log_blk = log_blk;
	),
	TP_printk("dev %d,%d tid %u log %lu",
		  MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->tid, __entry->log_blk)
);

#endif /* _TRACE_JBD2_LAZY_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
