/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel functions that symbols.h declares and symbols.c finds
 *
 * UKSM_SYMBOL(name) says what is done with each of them. This file is included once
 * for each such use; hence it has no include guard.
 */
UKSM_SYMBOL(flush_tlb_mm_range);
UKSM_SYMBOL(__mmu_notifier_invalidate_range_start);
UKSM_SYMBOL(__mmu_notifier_invalidate_range_end);
#ifdef UKSM_HAS_INVALIDATE_RANGE
UKSM_SYMBOL(__mmu_notifier_invalidate_range);
#endif

#ifdef UKSM_HAS_FOLIO_RMAP
UKSM_SYMBOL(folio_add_anon_rmap_ptes);
UKSM_SYMBOL(folio_remove_rmap_ptes);
#else
UKSM_SYMBOL(page_add_anon_rmap);
UKSM_SYMBOL(page_remove_rmap);
#endif

/* Elsewhere it is an inline function of what is exported. */
#if defined(UKSM_HAS_OFFSET_MAP_LOCK)
UKSM_SYMBOL(__pte_offset_map_lock);
#elif defined(UKSM_HAS_REAL_MAP_LOCK)
UKSM_SYMBOL(pte_offset_map_lock);
#endif

#if !defined(CONFIG_TRANSPARENT_HUGEPAGE)
/* There is nothing to split. */
#elif defined(UKSM_HAS_SPLIT_INNER)
UKSM_SYMBOL(__split_huge_page_to_list_to_order);
#elif defined(UKSM_HAS_SPLIT_TO_ORDER)
UKSM_SYMBOL(split_huge_page_to_list_to_order);
#elif defined(UKSM_HAS_SPLIT_TO_LIST)
UKSM_SYMBOL(split_huge_page_to_list);
#else
#error "this kernel splits huge pages in a way that uksm does not know"
#endif

#ifdef CONFIG_MEMCG
UKSM_SYMBOL(__mem_cgroup_charge);
#endif

#ifdef CONFIG_HUGETLB_PAGE
UKSM_SYMBOL(hugetlb_total_pages);
#endif

UKSM_SYMBOL(folio_free_swap);
UKSM_SYMBOL(lru_add_drain_all);
UKSM_SYMBOL(pidfd_get_pid);
UKSM_SYMBOL(ptrace_may_access);
