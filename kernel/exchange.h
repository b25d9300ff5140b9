/* SPDX-License-Identifier: GPL-2.0-only */
/* Merge a batch of pages of one page table. See exchange.c. */
#ifndef UKSM_EXCHANGE_H
#define UKSM_EXCHANGE_H

#include "batch.h"

void uksm_merge_batch(struct uksm_fold_call *call, struct mm_struct *mm,
		      struct uksm_fold_entry *entries, unsigned int count);

#endif /* UKSM_EXCHANGE_H */
