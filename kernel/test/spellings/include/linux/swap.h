/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_SWAP_H
#define STUB_SWAP_H

#include <linux/types.h>

/* SPELLING UKSM_HAS_RECLAIMED_SLAB */
struct reclaim_state {
	unsigned long reclaimed_slab;
};
/* SPELLING UKSM_HAS_ACCOUNT_RECLAIMED */
static inline void mm_account_reclaimed_pages(unsigned long pages)
{
}
/* END */

bool folio_free_swap(struct folio *folio);
void lru_add_drain_all(void);

#endif
