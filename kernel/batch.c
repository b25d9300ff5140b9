// SPDX-License-Identifier: GPL-2.0-only
/*
 * The outcome of each entry of a FOLD
 *
 * Each entry gets exactly one outcome, here, and each outcome is counted here. So
 * the equation of INFO holds. A set learns how many of its entries are pending.
 */
#include "batch.h"

/**
 * uksm_set_outcome() - give an entry its outcome
 * @call: the call
 * @entry: an entry without an outcome
 * @status: what became of it
 * @reason: why
 */
void uksm_set_outcome(struct uksm_fold_call *call,
		      struct uksm_fold_entry *entry,
		      enum uksm_status status, enum uksm_reason reason)
{
	entry->status = status;
	entry->reason = reason;
	if (status != UKSM_STATUS_MERGED && status != UKSM_STATUS_ALREADY)
		entry->frame = 0;
	if (entry->kind == UKSM_KIND_SET)
		call->sets[entry->set].pending--;
	call->counters.by_status[status]++;
}

/**
 * uksm_set_remaining() - give all entries of the batch without an outcome
 *			  the same one
 * @call: the call
 * @status: the outcome
 * @reason: why
 */
void uksm_set_remaining(struct uksm_fold_call *call, enum uksm_status status,
			enum uksm_reason reason)
{
	unsigned int i;

	for (i = 0; i < call->batch.count; i++) {
		if (is_pending(call, i))
			set_outcome(call, i, status, reason);
	}
}
