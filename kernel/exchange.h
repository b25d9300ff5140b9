/* SPDX-License-Identifier: GPL-2.0-only */
/* Merge a batch of pages of one page table. See exchange.c. */
#ifndef UKSM_EXCHANGE_H
#define UKSM_EXCHANGE_H

#include "batch.h"

bool uksm_merge_batch(struct uksm_fold_call *call, struct mm_struct *mm);

#endif /* UKSM_EXCHANGE_H */
