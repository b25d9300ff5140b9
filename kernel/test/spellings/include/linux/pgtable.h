/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_PGTABLE_H
#define STUB_PGTABLE_H

#include <asm-generic/pgtable_uffd.h>
#include <linux/types.h>

#ifdef CONFIG_ARCH_HAS_PTE_DEVMAP
int pte_devmap(pte_t pte);
int pmd_devmap(pmd_t pmd);
#endif

/* SPELLING UKSM_HAS_REAL_MAP_LOCK */
pte_t *pte_offset_map_lock(struct mm_struct *mm, pmd_t *pmd, unsigned long address,
			   spinlock_t **lock);
/* END */

#endif
