// SPDX-License-Identifier: GPL-2.0-only
/*
 * COUNT: pages of a range by state
 *
 * Problem: what has been merged is known from page tables alone, and a range
 * may be an address space of many terabytes, tens of thousands of mappings, or
 * both. Approach: holes are stepped over at the level they begin at, and one
 * call does a bounded amount of work and says where to go on.
 */
#include <linux/hugetlb_inline.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "domain.h"
#include "page_state.h"
#include "request.h"
#include "walk.h"

/*
 * The work of one call, in steps: a mapping, a hole, or a batch of pages. A
 * full page table takes eight steps, so that a call looks at 512 of them, or a
 * gigabyte of small pages. The mmap lock is let go every LEASE steps.
 */
#define STEPS	4096
#define LEASE	128

static void count_batch(struct uksm_domain *domain, struct uksm_count *request,
			const struct uksm_table *table, bool eligible,
			unsigned long start, unsigned long end)
{
	struct uksm_sight sight;

	for (; start < end; start += PAGE_SIZE) {
		pte_t pte = ptep_get(uksm_pte(table, start));

		if (pte_none(pte))
			continue;
		if (!eligible) {
			request->pages[UKSM_STATE_REFUSED]++;
			continue;
		}
		uksm_see_pte(domain, pte, &sight);
		request->pages[sight.state]++;
		if (sight.state == UKSM_STATE_ANON &&
		    sight.flags & UKSM_PAGE_HUGE)
			request->huge++;
	}
}

/* A huge page is one thing; so are its pages. */
static void count_huge(struct uksm_count *request, struct vm_area_struct *vma,
		       const struct uksm_table *table, bool eligible,
		       unsigned long start, unsigned long end)
{
	u64 pages = (end - start) >> PAGE_SHIFT;
	struct uksm_sight sight;

	if (!eligible) {
		request->pages[UKSM_STATE_REFUSED] += pages;
		return;
	}
	uksm_see_huge(vma, table->pmd, start, &sight);
	request->pages[sight.state] += pages;
	if (sight.state == UKSM_STATE_ANON)
		request->huge += pages;
}

/* One step from @at, which lies in @vma. Returns where it ended. */
static unsigned long count_step(struct uksm_domain *domain,
				struct uksm_count *request,
				struct vm_area_struct *vma, unsigned long at)
{
	bool eligible = uksm_eligible(vma) == UKSM_ELIGIBLE;
	struct uksm_table table;
	unsigned long end;

	if (is_vm_hugetlb_page(vma))
		return min(vma->vm_end, (unsigned long)request->end);
	uksm_lock_table(vma->vm_mm, at, &table);
	end = min3(table.end, vma->vm_end, (unsigned long)request->end);
	switch (table.kind) {
	case UKSM_TABLE_PTES:
		end = min(end, at + UKSM_LOCK_BATCH * PAGE_SIZE);
		count_batch(domain, request, &table, eligible, at, end);
		break;
	case UKSM_TABLE_HUGE:
		count_huge(request, vma, &table, eligible, at, end);
		break;
	case UKSM_TABLE_MOVING:
		request->pages[eligible ? UKSM_STATE_SWAP :
			       UKSM_STATE_REFUSED] += (end - at) >> PAGE_SHIFT;
		break;
	case UKSM_TABLE_HOLE:
	case UKSM_TABLE_OTHER:
	case UKSM_TABLE_RACED:
		break;
	}
	uksm_unlock_table(&table);
	return end;
}

/* Up to LEASE steps under one hold of the mmap lock. */
static void count_stretch(struct uksm_domain *domain,
			  struct uksm_count *request, struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	unsigned long at = request->next;
	int steps;

	for (steps = 0; steps < LEASE && at < request->end; steps++) {
		vma = find_vma(mm, at);
		if (!vma || vma->vm_start >= request->end) {
			at = request->end;
			break;
		}
		at = max(at, vma->vm_start);
		at = count_step(domain, request, vma, at);
	}
	request->next = at;
}

/* The COUNT verb; see the contract. */
long uksm_count(struct uksm_domain *domain, struct uksm_count *request)
{
	struct uksm_visit visit = { .domain = domain };
	long error;
	int i;

	error = uksm_check_count(request);
	if (error)
		return error;
	error = uksm_visit(&visit, request->space);
	if (error)
		return error;
	memset(request->pages, 0, sizeof(request->pages));
	request->huge = 0;
	/* The pages of a process that is gone are gone. */
	request->next = visit.mm ? request->start : request->end;
	for (i = 0; i < STEPS / LEASE && request->next < request->end; i++) {
		if (mmap_read_lock_killable(visit.mm)) {
			error = -EINTR;
			break;
		}
		count_stretch(domain, request, visit.mm);
		mmap_read_unlock(visit.mm);
		cond_resched();
		if (signal_pending(current))
			break;
	}
	uksm_leave(&visit);
	return error == -EINTR && request->next > request->start ? 0 : error;
}
