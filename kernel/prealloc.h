/* SPDX-License-Identifier: GPL-2.0-only */
/* What frames are made of. See prealloc.c. */
#ifndef UKSM_PREALLOC_H
#define UKSM_PREALLOC_H

#include <linux/list.h>

#include "domain.h"

struct folio;

/* A frame that has memory, a number and a place in the cap, but no contents. */
struct uksm_blank {
	struct folio *folio;
	struct uksm_chunk *chunk;
	unsigned int slot;
};

/* The blanks of a call. */
struct uksm_blanks {
	struct uksm_blank blank[UKSM_LOCK_BATCH];
	unsigned int count;
	enum uksm_reason why_none;	/* there are no more */
	struct list_head chunks;	/* taken; the first is in use */
};

void uksm_blanks_begin(struct uksm_blanks *blanks);
void uksm_blanks_provide(struct uksm_domain *domain, struct uksm_blanks *blanks,
			 unsigned int needed);
void uksm_blank_unused(struct uksm_domain *domain, struct folio *folio);
void uksm_blanks_end(struct uksm_domain *domain, struct uksm_blanks *blanks);

#endif /* UKSM_PREALLOC_H */
