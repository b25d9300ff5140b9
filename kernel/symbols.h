/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kernel functions that are not exported to modules
 *
 * Mapping another page under a process needs about ten functions that the kernel
 * keeps to itself. They are listed once, in symbol_list.h, and found when the module
 * is loaded (symbols.c). Each is called through static_call(), which is a direct
 * call patched into place: no indirect branch, so retpolines, kCFI and IBT do not matter.
 * A pointer would not do: IBT seals functions of which only kallsyms has the address.
 * Prototypes are taken from the kernel's headers by typeof, so a changed signature
 * fails the build at the call below, and a missing function fails the load.
 *
 * No other place makes these calls.
 */
#ifndef UKSM_SYMBOLS_H
#define UKSM_SYMBOLS_H

#include <linux/errno.h>
#include <linux/hugetlb.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/pid.h>
#include <linux/ptrace.h>
#include <linux/rmap.h>
#include <linux/static_call.h>
#include <linux/swap.h>

#ifndef CONFIG_HAVE_STATIC_CALL
#error "static_call() is an indirect call on this kernel, which IBT and kCFI may refuse"
#endif

/*
 * The kernel hides this prototype from modules. prototypes.c fails to build if
 * it is not the same as the kernel's.
 */
void flush_tlb_mm_range(struct mm_struct *mm, unsigned long start,
			unsigned long end, unsigned int stride_shift,
			bool freed_tables);

#define UKSM_SYMBOL(name) DECLARE_STATIC_CALL(uksm_##name, name)
#include "symbol_list.h"
#undef UKSM_SYMBOL

/* Calls a function of the list. */
#define uksm_call(name) static_call(uksm_##name)

int uksm_find_symbols(void);

/* Flushes [start, end) of @mm from all TLBs of the processors; waits for them. */
static inline void uksm_flush_tlb(struct mm_struct *mm, unsigned long start,
				  unsigned long end)
{
	uksm_call(flush_tlb_mm_range)(mm, start, end, PAGE_SHIFT, false);
}

/*
 * Flushes [start, end) from secondary TLBs that walk the CPU's tables (IOMMU SVA).
 * Later kernels do this inside flush_tlb_mm_range().
 */
static inline void uksm_flush_secondary(struct mm_struct *mm,
					unsigned long start, unsigned long end)
{
#ifdef UKSM_HAS_INVALIDATE_RANGE
	uksm_call(__mmu_notifier_invalidate_range)(mm, start, end);
#endif
}

static inline void uksm_notify_start(struct mmu_notifier_range *range)
{
	/* Cannot fail: only a range that may not block can be refused. */
	uksm_call(__mmu_notifier_invalidate_range_start)(range);
}

static inline void uksm_notify_end(struct mmu_notifier_range *range)
{
#ifdef UKSM_HAS_ONLY_END
	uksm_call(__mmu_notifier_invalidate_range_end)(range, false);
#else
	uksm_call(__mmu_notifier_invalidate_range_end)(range);
#endif
}

static inline void uksm_add_rmap(struct page *page, struct vm_area_struct *vma,
				 unsigned long address)
{
#ifdef UKSM_HAS_FOLIO_RMAP
	uksm_call(folio_add_anon_rmap_ptes)(page_folio(page), page, 1, vma,
					    address, RMAP_NONE);
#else
	uksm_call(page_add_anon_rmap)(page, vma, address, RMAP_NONE);
#endif
}

static inline void uksm_remove_rmap(struct page *page,
				    struct vm_area_struct *vma)
{
#ifdef UKSM_HAS_FOLIO_RMAP
	uksm_call(folio_remove_rmap_ptes)(page_folio(page), page, 1, vma);
#else
	uksm_call(page_remove_rmap)(page, vma, false);
#endif
}

/* Maps and locks the page table under @pmd. NULL if there is none any more. */
static inline pte_t *uksm_lock_ptes(struct mm_struct *mm, pmd_t *pmd,
				    unsigned long address, spinlock_t **lock)
{
#if defined(UKSM_HAS_OFFSET_MAP_LOCK)
	return uksm_call(__pte_offset_map_lock)(mm, pmd, address, lock);
#elif defined(UKSM_HAS_REAL_MAP_LOCK)
	return uksm_call(pte_offset_map_lock)(mm, pmd, address, lock);
#else
	/*
	 * These kernels free or replace a page table of an anonymous mapping
	 * only under the write side of the mmap lock, so what the caller read
	 * from the pmd still holds.
	 */
	return pte_offset_map_lock(mm, pmd, address, lock);
#endif
}

/*
 * Charges a new page to the cgroup of @mm, as a page fault does. Fails rather than
 * let the cgroup run out of memory. Freeing the page takes the charge back.
 */
static inline bool uksm_charge(struct folio *folio, struct mm_struct *mm)
{
#ifdef CONFIG_MEMCG
	if (mem_cgroup_disabled())
		return true;
	return !uksm_call(__mem_cgroup_charge)(folio, mm, GFP_KERNEL |
					       __GFP_NORETRY | __GFP_NOWARN);
#else
	return true;
#endif
}

/* Pages in pools of huge pages, used or not. */
static inline unsigned long uksm_hugetlb_pages(void)
{
#ifdef CONFIG_HUGETLB_PAGE
	return uksm_call(hugetlb_total_pages)();
#else
	return 0;
#endif
}

/* Splits a locked huge folio that the caller holds one reference to. */
static inline int uksm_split_folio(struct folio *folio)
{
#if !defined(CONFIG_TRANSPARENT_HUGEPAGE)
	return -EOPNOTSUPP;
#elif defined(UKSM_HAS_SPLIT_INNER)
	return uksm_call(__split_huge_page_to_list_to_order)(&folio->page,
							     NULL, 0);
#elif defined(UKSM_HAS_SPLIT_TO_ORDER)
	return uksm_call(split_huge_page_to_list_to_order)(&folio->page,
							   NULL, 0);
#else
	return uksm_call(split_huge_page_to_list)(&folio->page, NULL);
#endif
}

#endif /* UKSM_SYMBOLS_H */
