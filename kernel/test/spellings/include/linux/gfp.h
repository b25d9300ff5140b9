/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_GFP_H
#define STUB_GFP_H

#include <linux/types.h>

/* SPELLING UKSM_HAS_ALLOC_HUGEPAGE */
struct folio *vma_alloc_folio(gfp_t gfp, int order, struct vm_area_struct *vma,
			      unsigned long addr, bool hugepage);
/* SPELLING UKSM_HAS_ALLOC_PLAIN */
struct folio *vma_alloc_folio(gfp_t gfp, int order, struct vm_area_struct *vma,
			      unsigned long addr);
/* END */

#endif
