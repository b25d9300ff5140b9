/* SPDX-License-Identifier: GPL-2.0-only */
/* The pages that merged pages share. See frame.c. */
#ifndef UKSM_FRAME_H
#define UKSM_FRAME_H

#include <linux/mm_types.h>

#include "compat.h"
#include "domain.h"
#include "prealloc.h"

struct folio *uksm_make_frame(struct uksm_prealloc *prealloc,
			      const struct uksm_prealloc_frame *new,
			      struct page *source);
bool uksm_adopt_frame(struct uksm_domain *domain,
		      struct uksm_prealloc *prealloc,
		      struct folio *folio);
void uksm_remove_frame(struct uksm_domain *domain, struct folio *folio,
		       u32 id, bool sound);
void uksm_release_frames(struct uksm_domain *domain);

/* Which domain has a page that is marked as a frame? */
enum uksm_owner {
	UKSM_OWNER_NONE,	/* an orphan */
	UKSM_OWNER_DOMAIN,	/* this domain */
	UKSM_OWNER_OTHER,	/* another living domain */
};

enum uksm_owner uksm_frame_owner(struct uksm_domain *domain,
				 const struct folio *folio);

/* The id of a page of which uksm_frame_owner() says that a domain has it. */
static inline u32 uksm_frame_id(const struct folio *folio)
{
	return (u32)(unsigned long)READ_ONCE(folio->private);
}

/* How many mappings a frame of @domain still takes; none if its memory failed. */
static inline u32 uksm_frame_room(const struct uksm_domain *domain,
				  const struct folio *folio)
{
	u32 sharers = uksm_mapcount(folio);

	if (uksm_poisoned(folio) || sharers >= domain->sharer_limit)
		return 0;
	return domain->sharer_limit - sharers;
}

#endif /* UKSM_FRAME_H */
