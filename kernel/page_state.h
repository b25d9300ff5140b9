/* SPDX-License-Identifier: GPL-2.0-only */
/* What kind of page does a page table show? See page_state.c. */
#ifndef UKSM_PAGE_STATE_H
#define UKSM_PAGE_STATE_H

#include "compat.h"
#include "domain.h"

/* What is seen of one page; worth as much as the table's lock is held. */
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
