/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_PGTABLE_UFFD_H
#define STUB_PGTABLE_UFFD_H

#include <linux/types.h>

#define __always_inline inline __attribute__((always_inline))

/* SPELLING UKSM_HAS_UFFD_WP_BIT */
static __always_inline int pte_uffd_wp(pte_t pte)
{
	return pte.pte & 1;
}
/* SPELLING UKSM_HAS_UFFD_BIT */
static __always_inline int pte_uffd(pte_t pte)
{
	return pte.pte & 1;
}
/* END */

#endif
