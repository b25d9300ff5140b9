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
#include <linux/mmu_notifier.h>
#include <linux/page-flags.h>
#include <linux/pgtable.h>
#include <linux/pkeys.h>
#include <linux/sched/signal.h>
#ifdef UKSM_HAS_EXEC_STATE
#include <linux/sched/exec_state.h>
#endif
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

#ifndef mm_forbids_zeropage
#error "uksm: mm_forbids_zeropage() is no macro of this kernel: see compat.h"
#endif
#if defined(CONFIG_USERFAULTFD) && !defined(__VM_UFFD_FLAGS)
#error "uksm: __VM_UFFD_FLAGS, all modes of userfaultfd, is no macro of this kernel: see compat.h"
#endif

/*
 * Kbuild looks for every spelling of a declaration, and exactly one must be there. A
 * declaration that it does not recognize any more is no property that the kernel does
 * not have: left out, the flush of device TLBs would compile as well. All spellings of
 * a group are in test/spellings, where each branch is compiled.
 */
#if defined(UKSM_HAS_INVALIDATE_RANGE) == defined(UKSM_HAS_SECONDARY_TLBS)
#error "uksm: unknown or ambiguous: flush of device TLBs in mmu_notifier.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_ONLY_END) == defined(UKSM_HAS_PLAIN_END)
#error "uksm: unknown or ambiguous: end of a notice in mmu_notifier.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_FOLIO_RMAP) == defined(UKSM_HAS_PAGE_RMAP)
#error "uksm: unknown or ambiguous: count of mappings of a page in rmap.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_OFFSET_MAP_LOCK) + defined(UKSM_HAS_REAL_MAP_LOCK) + \
	defined(UKSM_HAS_MACRO_MAP_LOCK) != 1
#error "uksm: unknown or ambiguous: lock of a page table in mm.h and pgtable.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_SPLIT_TO_LIST) + defined(UKSM_HAS_SPLIT_TO_ORDER) + \
	defined(UKSM_HAS_SPLIT_INNER) != 1
#error "uksm: unknown or ambiguous: split of a huge page in huge_mm.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_UFFD_WP_BIT) == defined(UKSM_HAS_UFFD_BIT)
#error "uksm: unknown or ambiguous: userfaultfd's bit of an entry in pgtable_uffd.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_MM_USER_NS) == defined(UKSM_HAS_EXEC_STATE)
#error "uksm: unknown or ambiguous: user namespace in mm_types.h and sched.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_KMEM_ONLINE) == defined(UKSM_HAS_KMEM_ENABLED)
#error "uksm: unknown or ambiguous: charge of kernel memory in memcontrol.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_ALLOC_HUGEPAGE) == defined(UKSM_HAS_ALLOC_PLAIN)
#error "uksm: unknown or ambiguous: allocation of a page for a mapping in gfp.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_SHRINKER_ALLOC) == defined(UKSM_HAS_REGISTER_SHRINKER)
#error "uksm: unknown or ambiguous: registration of a shrinker in shrinker.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_ACCOUNT_RECLAIMED) == defined(UKSM_HAS_RECLAIMED_SLAB)
#error "uksm: unknown or ambiguous: count of reclaimed pages in swap.h (see Kbuild)"
#endif
#if defined(UKSM_HAS_PERCPU_RSS) == defined(UKSM_HAS_SIMPLE_RSS)
#error "uksm: unknown or ambiguous: count of pages of a process in mm_types.h (see Kbuild)"
#endif

/* Fields that no accessor hides: what they hold must be what the module takes it for. */
static_assert(__same_type(((struct folio *)0)->private, void *));
static_assert(__same_type(((struct folio *)0)->mapping, struct address_space *));
static_assert(__same_type(((struct folio *)0)->_mapcount, atomic_t));
static_assert(__same_type(((struct signal_struct *)0)->exec_update_lock, struct rw_semaphore));

/* No code uses this spelling, so that a line of a comment could be taken for it. */
#ifdef UKSM_HAS_SECONDARY_TLBS
static_assert(sizeof(((struct mmu_notifier_ops *)0)->arch_invalidate_secondary_tlbs));
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

/*
 * The flags of mappings that may be merged. What a later kernel marks by another flag is
 * not merged until somebody has read what it means. Not here, hence never merged: shared
 * memory is not private; PFNMAP, IO, MIXEDMAP and ALLOW_ANY_UNCACHED have no ordinary
 * pages; hugetlb pages cannot be split; DONTEXPAND marks drivers' mappings and SYNC those
 * of DAX; droppable pages may vanish at any time; a shadow stack gives the combination
 * "read-only and dirty" a meaning. On x86, ARCH_1 marks mappings of PFNs.
 */
#define UKSM_VM_MERGED							\
	(VM_READ | VM_WRITE | VM_EXEC | VM_MAYREAD | VM_MAYWRITE |	\
	 VM_MAYEXEC | VM_GROWSDOWN | VM_UFFD_MISSING | VM_LOCKED |	\
	 VM_LOCKONFAULT | VM_SEQ_READ | VM_RAND_READ | VM_DONTCOPY |	\
	 VM_ACCOUNT | VM_NORESERVE | VM_WIPEONFORK | VM_DONTDUMP |	\
	 VM_SOFTDIRTY | VM_HUGEPAGE | VM_NOHUGEPAGE | VM_MERGEABLE |	\
	 ARCH_VM_PKEY_FLAGS | UKSM_VM_SEALED | UKSM_VM_MAYBE_GUARD)

/* No change of the mapping by its owner, mseal(); that does not concern its pages. */
#ifdef VM_SEALED
#define UKSM_VM_SEALED		VM_SEALED
#else
#define UKSM_VM_SEALED		0
#endif

/* There may be guards, MADV_GUARD_INSTALL: entries without a page. */
#ifdef VM_MAYBE_GUARD
#define UKSM_VM_MAYBE_GUARD	VM_MAYBE_GUARD
#else
#define UKSM_VM_MAYBE_GUARD	0
#endif

/* All that userfaultfd can do with a mapping, but for missing pages. */
#ifdef CONFIG_USERFAULTFD
#define UKSM_VM_UFFD_OTHER	(__VM_UFFD_FLAGS & ~VM_UFFD_MISSING)
#else
#define UKSM_VM_UFFD_OTHER	0
#endif

/* Does userfaultfd watch this entry: its writes, or in later kernels each access? */
static inline bool uksm_pte_uffd(pte_t pte)
{
#ifdef UKSM_HAS_UFFD_WP_BIT
	return pte_uffd_wp(pte);
#else
	return pte_uffd(pte);
#endif
}

/*
 * The user namespace that the program of a thread runs in, whose address space is @mm;
 * NULL if there is none any more. The caller has RCU's read side, and exec_update_lock,
 * under which an exec exchanges both.
 */
static inline struct user_namespace *uksm_user_ns(struct task_struct *thread,
						  struct mm_struct *mm)
{
#ifdef UKSM_HAS_MM_USER_NS
	return mm->user_ns;
#else
	struct task_exec_state *state = rcu_dereference(thread->exec_state);

	return state ? state->user_ns : NULL;
#endif
}

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

/*
 * Counts pages that a shrinker has freed as progress of the reclaim that this thread is in,
 * if it is in one. Reclaim does not count what a shrinker returns: to it, that are objects.
 */
static inline void uksm_account_reclaimed(unsigned long pages)
{
#ifdef UKSM_HAS_ACCOUNT_RECLAIMED
	mm_account_reclaimed_pages(pages);
#else
	if (current->reclaim_state)
		current->reclaim_state->reclaimed_slab += pages;
#endif
}

#endif /* UKSM_COMPAT_H */
