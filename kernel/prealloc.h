/* SPDX-License-Identifier: GPL-2.0-only */
/* All that new frames need, except contents. See prealloc.c. */
#ifndef UKSM_PREALLOC_H
#define UKSM_PREALLOC_H

#include <linux/list.h>

#include "domain.h"

struct folio;

/* A frame that has memory and an id and is counted, but has no contents. */
struct uksm_prealloc_frame {
	struct folio *folio;
	struct uksm_chunk *chunk;
	unsigned int slot;
};

/* The preallocated frames of a call. */
struct uksm_prealloc {
	struct uksm_prealloc_frame frame[UKSM_LOCK_BATCH];
	unsigned int count;
	enum uksm_reason reason;	/* why there are no more */
	int node;			/* where new ones are allocated */
	bool keeps_nodes;		/* a frame lies on the node of its page, or is not made */
	unsigned long machine_limit;	/* of frames, when they were last filled */
	struct list_head chunks;	/* of this call; the first is in use */
};

void uksm_prealloc_init(struct uksm_prealloc *prealloc,
			const struct uksm_domain *domain);
void uksm_prealloc_fill(struct uksm_domain *domain,
			struct uksm_prealloc *prealloc,
			unsigned int needed);
struct uksm_prealloc_frame *
uksm_prealloc_choose(struct uksm_prealloc *prealloc, int node);
void uksm_prealloc_recycle(struct uksm_domain *domain, struct folio *folio);
void uksm_prealloc_release(struct uksm_domain *domain,
			   struct uksm_prealloc *prealloc);

#endif /* UKSM_PREALLOC_H */
