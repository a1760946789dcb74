/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * In front of each kernel file: the constants that are variables here, and the
 * functions of other files that do nothing here.
 */
#ifndef MODEL_PART_H
#define MODEL_PART_H

#include <linux/jbd2.h>
#include "lazy.h"

extern u32 model_period_part, model_closing_blocks, model_reader_bytes;
extern u32 model_reader_first, model_advance, model_stretch, model_gap_bits;

/* There is no page cache. */
static inline void model_trust_nothing(struct jbd2_lazy *lazy)
{
}

static inline void model_clean_after_commit(struct jbd2_lazy *lazy, u32 blocks)
{
}

#define jbd2_lazy_trust_nothing model_trust_nothing
#define jbd2_lazy_clean_after_commit model_clean_after_commit

#endif /* MODEL_PART_H */
