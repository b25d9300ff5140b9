/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_RMAP_H
#define STUB_RMAP_H

#include <linux/types.h>

enum stub_rmap { RMAP_NONE };

/* SPELLING UKSM_HAS_FOLIO_RMAP */
void folio_add_anon_rmap_ptes(struct folio *folio, struct page *page, int pages,
			      struct vm_area_struct *vma, unsigned long address,
			      enum stub_rmap flags);
void folio_remove_rmap_ptes(struct folio *folio, struct page *page, int pages,
			    struct vm_area_struct *vma);
/* SPELLING UKSM_HAS_PAGE_RMAP */
void page_add_anon_rmap(struct page *page, struct vm_area_struct *vma,
			unsigned long address, enum stub_rmap flags);
void page_remove_rmap(struct page *page, struct vm_area_struct *vma, bool compound);
/* END */

#endif
