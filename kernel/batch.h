/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A call of FOLD and the batch of entries that it works on. See batch.c.
 *
 * fold.c fills them, candidate.c checks the pages of a batch, exchange.c merges
 * them.
 */
#ifndef UKSM_BATCH_H
#define UKSM_BATCH_H

#include <linux/bitmap.h>
#include <linux/build_bug.h>
#include <linux/mm_types.h>
#include <linux/pgtable.h>

#include "domain.h"
#include "frame.h"
#include "prealloc.h"

/* A set of entries to be merged with each other. */
struct uksm_set {
	struct folio *frame;	/* the last one; NULL until one is known */
	u32 batches;		/* the last batch that preallocated for it */
	u16 pending;		/* entries without an outcome */
	u16 room;		/* mappings that its frames take in that batch */
};

/* What the pages of a set hold, where spaces are counted. See witness.c. */
struct uksm_holding {
	u64 contents;		/* full hash */
	u16 spaces;		/* that hold it */
};

/* The batch at hand. An entry is named by its place in it. */
struct uksm_batch {
	struct mm_struct *mm;
	struct uksm_fold_entry *entries;
	unsigned int count;

	struct vm_area_struct *vma[UKSM_LOCK_BATCH];
	struct folio *frame[UKSM_LOCK_BATCH];	/* of entries of kind FRAME */

	/* Pages whose entries were cleared, and these entries. */
	struct page *cleared[UKSM_LOCK_BATCH];
	pte_t pte[UKSM_LOCK_BATCH];
	unsigned long start, end;	/* spans the candidates, or the cleared */
	/* What may be cleared: all, or what secondary users were told of. */
	unsigned long notified_start, notified_end;
	DECLARE_BITMAP(hash_checked, UKSM_LOCK_BATCH);	/* and it matches */

	/* Replaced pages, to be released when all locks are dropped. */
	struct page *old[UKSM_LOCK_BATCH];
	unsigned int nr_old;
	long zeroed;
	int node;		/* where pages wait for frames; else NUMA_NO_NODE */

	/* A huge page to be split, with a reference, and the entry that needs it. */
	struct folio *to_split;
	unsigned int split_for;
	const struct folio *unsplittable;	/* compared, never used */
};

/* A call of FOLD. */
struct uksm_fold_call {
	struct uksm_domain *domain;
	u32 flags;		/* UKSM_FOLD_* */
	unsigned int lines;	/* of the hash to check, 0 for none */
	u32 count;
	bool may_map_frames;	/* an entry needs one, and the guard works */

	struct uksm_prealloc prealloc;	/* for the frames that a batch may make */
	u32 batches;		/* begun so far */

	struct uksm_counters counters;
	struct uksm_batch batch;
	struct uksm_set sets[UKSM_MAX_FOLD];
	struct uksm_holding *holdings;	/* of each set; NULL if none is counted */
	DECLARE_BITMAP(witness, UKSM_MAX_FOLD);	/* hold what their set does */
	/* From here on nothing is zeroed before a call. */
	struct uksm_fold_entry entries[UKSM_MAX_FOLD];
};

/* Eight pages: more would be hard to get when memory is short. */
static_assert(sizeof(struct uksm_fold_call) <= 8 * UKSM_PAGE_SIZE);

void uksm_set_outcome(struct uksm_fold_call *call,
		      struct uksm_fold_entry *entry,
		      enum uksm_status status, enum uksm_reason reason);
void uksm_set_remaining(struct uksm_fold_call *call, enum uksm_status status,
			enum uksm_reason reason);

/* Has entry @i of the batch no outcome yet? */
static inline bool is_pending(const struct uksm_fold_call *call,
			      unsigned int i)
{
	return call->batch.entries[i].status == UKSM_STATUS_UNTRIED;
}

/* Gives entry @i of the batch its outcome. */
static inline void set_outcome(struct uksm_fold_call *call, unsigned int i,
			       enum uksm_status status, enum uksm_reason reason)
{
	uksm_set_outcome(call, &call->batch.entries[i], status, reason);
}

/*
 * The frame to merge entry @i with. NULL if its set has no frame yet that takes
 * another mapping, or if the entry is to map the zero page.
 */
static inline struct folio *frame_for(const struct uksm_fold_call *call,
				      unsigned int i)
{
	const struct uksm_fold_entry *entry = &call->batch.entries[i];
	struct folio *frame;

	if (entry->kind != UKSM_KIND_SET)
		return call->batch.frame[i];
	frame = call->sets[entry->set].frame;
	if (!frame || !uksm_frame_room(call->domain, frame))
		return NULL;
	return frame;
}

#endif /* UKSM_BATCH_H */
