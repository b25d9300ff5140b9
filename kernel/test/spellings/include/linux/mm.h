/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_MM_H
#define STUB_MM_H

#include <linux/gfp.h>
#include <linux/huge_mm.h>
#include <linux/mm_types.h>
#include <linux/pgtable.h>

#ifdef STUB_mm_forbids_zeropage
#define mm_forbids_zeropage(mm)	((void)(mm), 0)
#endif

#define VM_READ			0x1ul
#define VM_WRITE		0x2ul
#define VM_EXEC			0x4ul
#define VM_MAYREAD		0x8ul
#define VM_MAYWRITE		0x10ul
#define VM_MAYEXEC		0x20ul
#define VM_GROWSDOWN		0x40ul
#define VM_UFFD_MISSING		0x80ul
#define VM_LOCKED		0x100ul
#define VM_LOCKONFAULT		0x200ul
#define VM_SEQ_READ		0x400ul
#define VM_RAND_READ		0x800ul
#define VM_DONTCOPY		0x1000ul
#define VM_ACCOUNT		0x2000ul
#define VM_NORESERVE		0x4000ul
#define VM_WIPEONFORK		0x8000ul
#define VM_DONTDUMP		0x10000ul
#define VM_SOFTDIRTY		0x20000ul
#define VM_HUGEPAGE		0x40000ul
#define VM_NOHUGEPAGE		0x80000ul
#define VM_MERGEABLE		0x100000ul
#define VM_UFFD_WP		0x200000ul
#ifdef STUB_VM_SEALED
#define VM_SEALED		0x400000ul
#endif
#ifdef STUB_VM_MAYBE_GUARD
#define VM_MAYBE_GUARD		0x800000ul
#endif

struct folio *page_folio(struct page *page);

/* SPELLING UKSM_HAS_OFFSET_MAP_LOCK */
pte_t *__pte_offset_map_lock(struct mm_struct *mm, pmd_t *pmd, unsigned long address,
			     spinlock_t **lock);
/* SPELLING UKSM_HAS_REAL_MAP_LOCK */
pte_t *pte_offset_map_lock(struct mm_struct *mm, pmd_t *pmd, unsigned long address,
			   spinlock_t **lock);
/* SPELLING UKSM_HAS_MACRO_MAP_LOCK */
pte_t *stub_map_and_lock(struct mm_struct *mm, pmd_t *pmd, unsigned long address,
			 spinlock_t **lock);
#define pte_offset_map_lock(mm, pmd, address, lock) \
	stub_map_and_lock(mm, pmd, address, lock)
/* END */

#endif
