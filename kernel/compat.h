/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What kernels name or lay out differently
 *
 * The internals that a merge touches change between kernels, and many of their
 * inline helpers call functions that modules may not call. This file gives them one
 * spelling for the rest of the module. It tests features, not versions: by the
 * preprocessor where the kernel defines a macro, else by Kbuild, which looks for the
 * declaration and sets UKSM_HAS_*. Functions that must be found at load are in
 * symbols.h.
 */
#ifndef UKSM_COMPAT_H
#define UKSM_COMPAT_H

#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_types.h>
#include <linux/page-flags.h>
#include <linux/pgtable.h>
#include <linux/swap.h>
#include <linux/userfaultfd_k.h>

#ifndef CONFIG_X86_64
#error "uksm is written for x86-64: its flushes and its direct map of memory"
#endif
#ifndef CONFIG_KSM
#error "uksm needs CONFIG_KSM: merged pages are pages of its kind"
#endif

#ifdef CONFIG_NO_PAGE_MAPCOUNT
#error "uksm needs the map counts of single pages (CONFIG_PAGE_MAPCOUNT)"
#endif

/*
 * A property that forbids a merge must not be missed because a kernel spells it in
 * another way. Where the headers mention such a property, it must be the macro that
 * is used here; a kernel whose headers do not mention it does not have it.
 */
#if defined(UKSM_KNOWS_DROPPABLE) && !defined(VM_DROPPABLE)
#error "this kernel hides how it marks droppable mappings: tell it here"
#endif
#if defined(UKSM_KNOWS_SHADOW_STACK) && !defined(VM_SHADOW_STACK)
#error "this kernel hides how it marks shadow stacks: tell it here"
#endif
#ifndef mm_forbids_zeropage
#error "this kernel hides who may not map the zero page: tell it here"
#endif
#if defined(CONFIG_USERFAULTFD) && !defined(__VM_UFFD_FLAGS)
#error "this kernel hides what userfaultfd watches: tell it here"
#endif

/*
 * Where leaving something out would compile as well, Kbuild looks for each spelling, and
 * one must be there: a declaration that it does not recognize any more is no property
 * that the kernel does not have.
 */
#if defined(UKSM_HAS_INVALIDATE_RANGE) == defined(UKSM_HAS_SECONDARY_TLBS)
#error "this kernel hides who flushes the TLBs of devices: tell it in Kbuild"
#endif
#if defined(UKSM_HAS_OFFSET_MAP_LOCK) + defined(UKSM_HAS_REAL_MAP_LOCK) + \
	defined(UKSM_HAS_MACRO_MAP_LOCK) != 1
#error "this kernel hides how a page table is locked: tell it in Kbuild"
#endif

/*
 * The mark of a frame: a KSM page whose stable node is NULL. The kernel's
 * reverse mapping knows that case and finds no mappings for such a page, so it
 * is never migrated or swapped, and nobody calls back into this module for it.
 */
#ifdef PAGE_MAPPING_KSM
#define UKSM_FRAME_MAPPING	((void *)PAGE_MAPPING_KSM)
#define UKSM_MAPPING_ANON	PAGE_MAPPING_ANON
#define UKSM_MAPPING_FLAGS	PAGE_MAPPING_FLAGS
#define UKSM_MAPPING_KSM	PAGE_MAPPING_KSM
#else
#define UKSM_FRAME_MAPPING	((void *)FOLIO_MAPPING_KSM)
#define UKSM_MAPPING_ANON	FOLIO_MAPPING_ANON
#define UKSM_MAPPING_FLAGS	FOLIO_MAPPING_FLAGS
#define UKSM_MAPPING_KSM	FOLIO_MAPPING_KSM
#endif

/* Mappings whose contents may vanish; they came with 6.11. */
#ifdef VM_DROPPABLE
#define UKSM_VM_DROPPABLE	VM_DROPPABLE
#else
#define UKSM_VM_DROPPABLE	0
#endif

#ifdef VM_SHADOW_STACK
#define UKSM_VM_SHADOW_STACK	VM_SHADOW_STACK
#else
#define UKSM_VM_SHADOW_STACK	0
#endif

/* All that userfaultfd can do with a mapping, but for missing pages. */
#ifdef CONFIG_USERFAULTFD
#define UKSM_VM_UFFD_OTHER	(__VM_UFFD_FLAGS & ~VM_UFFD_MISSING)
#else
#define UKSM_VM_UFFD_OTHER	0
#endif

/* Device memory that is mapped like memory; later kernels do not mark it. */
static inline bool uksm_pte_devmap(pte_t pte)
{
#ifdef CONFIG_ARCH_HAS_PTE_DEVMAP
	return pte_devmap(pte);
#else
	return false;
#endif
}

static inline bool uksm_pmd_devmap(pmd_t pmd)
{
#ifdef CONFIG_ARCH_HAS_PTE_DEVMAP
	return pmd_devmap(pmd);
#else
	return false;
#endif
}

/* Some virtual machines cannot use the zero page. */
static inline bool uksm_forbids_zero_page(struct mm_struct *mm)
{
	return mm_forbids_zeropage(mm);
}

/* Allocates a page as a fault at @address does, under the policy of the mapping. */
static inline struct folio *uksm_alloc_for(struct vm_area_struct *vma,
					   unsigned long address, gfp_t gfp)
{
#ifdef UKSM_HAS_ALLOC_HUGEPAGE
	return vma_alloc_folio(gfp, 0, vma, address, false);
#else
	return vma_alloc_folio(gfp, 0, vma, address);
#endif
}

/*
 * Does a cgroup pay for memory that the kernel allocates for its processes? Not with
 * cgroup.memory=nokmem, and not before there is a cgroup besides the root.
 */
static inline bool uksm_memcg_charges_kernel(void)
{
#ifdef UKSM_HAS_KMEM_ONLINE
	return memcg_kmem_online();
#else
	return memcg_kmem_enabled();
#endif
}

/*
 * The mappings of a small folio. folio_mapcount() is not callable everywhere;
 * the field is the same in all kernels.
 */
static inline int uksm_mapcount(const struct folio *folio)
{
	return atomic_read(&folio->_mapcount) + 1;
}

/*
 * Has the memory of a small folio failed? 6.1 wants a page that is not const,
 * although it does not change it.
 */
static inline bool uksm_poisoned(const struct folio *folio)
{
	return PageHWPoison((struct page *)&folio->page);
}

/*
 * add_mm_counter() calls a tracing function that modules may not call, so the
 * counter is changed in place.
 */
static inline void uksm_add_anon_pages(struct mm_struct *mm, long pages)
{
#ifdef UKSM_HAS_PERCPU_RSS
	percpu_counter_add(&mm->rss_stat[MM_ANONPAGES], pages);
#else
	atomic_long_add(pages, &mm->rss_stat.count[MM_ANONPAGES]);
#endif
}

#endif /* UKSM_COMPAT_H */
