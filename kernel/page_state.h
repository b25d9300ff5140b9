/* SPDX-License-Identifier: GPL-2.0-only */
/* What kind of page does a page-table entry map? See page_state.c. */
#ifndef UKSM_PAGE_STATE_H
#define UKSM_PAGE_STATE_H

#include "compat.h"
#include "domain.h"

/* The state of one page. It is valid as long as the lock of its table is held. */
struct uksm_page_state {
	struct page *page;	/* NULL, or a page whose contents may be read */
	u32 frame;		/* its id, if the state is FRAME */
	u16 state;		/* enum uksm_state */
	u16 flags;		/* UKSM_PAGE_* */
};

void uksm_classify_pte(struct uksm_domain *domain, pte_t pte,
		       struct uksm_page_state *seen);
void uksm_classify_huge(struct vm_area_struct *vma, pmd_t pmd,
			unsigned long address, struct uksm_page_state *seen);
bool uksm_no_extra_refs(const struct folio *folio, int known);

#endif /* UKSM_PAGE_STATE_H */
