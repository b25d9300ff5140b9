/* SPDX-License-Identifier: GPL-2.0-only */
/* Which pages of a batch can be merged? See candidate.c. */
#ifndef UKSM_CANDIDATE_H
#define UKSM_CANDIDATE_H

#include "batch.h"
#include "walk.h"

void uksm_find_candidates(struct uksm_fold_call *call);
void uksm_check_pages(struct uksm_fold_call *call,
		      const struct uksm_table *table, bool clear);
bool uksm_check_partner(struct uksm_fold_call *call, unsigned int i,
			const struct folio *frame);
bool uksm_hash_matches(const struct uksm_fold_call *call, unsigned int i,
		       const struct page *page);
bool uksm_page_pinned(const struct uksm_batch *batch, struct page *page);

/* Is there something to merge entry @i with? See uksm_check_partner(). */
static inline bool has_partner(struct uksm_fold_call *call, unsigned int i,
			       const struct folio *frame)
{
	return (frame && call->batch.entries[i].kind == UKSM_KIND_SET) ||
	       uksm_check_partner(call, i, frame);
}

#endif /* UKSM_CANDIDATE_H */
