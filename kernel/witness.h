/* SPDX-License-Identifier: GPL-2.0-only */
/* How many spaces hold the contents of a set? See witness.c. */
#ifndef UKSM_WITNESS_H
#define UKSM_WITNESS_H

#include "batch.h"

long uksm_get_holdings(struct uksm_fold_call *call);
void uksm_find_witnesses(struct uksm_fold_call *call);
bool uksm_check_witness(struct uksm_fold_call *call, unsigned int i);
bool uksm_may_found(const struct uksm_fold_call *call, unsigned int i,
		    const struct page *page);

/* Do too few spaces hold the contents of a set for a new frame? */
static inline bool is_short(const struct uksm_fold_call *call,
			    unsigned int set)
{
	return call->holdings &&
	       call->holdings[set].spaces < call->domain->least_spaces;
}

#endif /* UKSM_WITNESS_H */
