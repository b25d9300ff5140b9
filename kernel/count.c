// SPDX-License-Identifier: GPL-2.0-only
/*
 * COUNT: pages of a range by state
 *
 * Only page tables show what has been merged. A range may be an address space of
 * many terabytes, or tens of thousands of mappings, or both. So holes are skipped
 * at the level where they begin, and one call does a bounded amount of work and
 * says where to go on.
 */
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "verbs.h"
#include "domain.h"
#include "page_state.h"
#include "space.h"
#include "target_lock.h"
#include "walk.h"

/*
 * The work of one call, in steps: a mapping, a hole, or a batch of pages. A
 * full page table takes eight steps, so a call counts 512 of them, or a gigabyte of
 * small pages. The mmap lock is dropped every STEPS_PER_HOLD steps.
 */
#define STEPS	4096
#define STEPS_PER_HOLD	128

static void count_batch(struct uksm_domain *domain, struct uksm_count *request,
			const struct uksm_table *table, bool eligible,
			unsigned long start, unsigned long end)
{
	struct uksm_page_state seen;

	for (; start < end; start += PAGE_SIZE) {
		pte_t pte = ptep_get(uksm_pte(table, start));

		if (pte_none(pte))
			continue;
		if (!eligible) {
			request->pages[UKSM_STATE_REFUSED]++;
			continue;
		}
		uksm_classify_pte(domain, pte, &seen);
		request->pages[seen.state]++;
		if (seen.state == UKSM_STATE_ANON &&
		    seen.flags & UKSM_PAGE_HUGE)
			request->huge++;
	}
}

/* All pages of a huge page have the same state. */
static void count_huge(struct uksm_count *request, struct vm_area_struct *vma,
		       const struct uksm_table *table, bool eligible,
		       unsigned long start, unsigned long end)
{
	u64 pages = (end - start) >> PAGE_SHIFT;
	struct uksm_page_state seen;

	if (!eligible) {
		request->pages[UKSM_STATE_REFUSED] += pages;
		return;
	}
	uksm_classify_huge(vma, table->pmd, start, &seen);
	request->pages[seen.state] += pages;
	if (seen.state == UKSM_STATE_ANON)
		request->huge += pages;
}

/* One step from @at, which lies in @vma. Returns where the step ended. */
static unsigned long count_step(struct uksm_domain *domain,
				struct uksm_count *request,
				struct vm_area_struct *vma, unsigned long at)
{
	bool eligible = uksm_eligible(vma) == UKSM_ELIGIBLE;
	struct uksm_table table;
	unsigned long end;

	if (!uksm_has_page_tables(vma))
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

/* Up to STEPS_PER_HOLD steps under one hold of the mmap lock. */
static void count_some(struct uksm_domain *domain,
		       struct uksm_count *request, struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	unsigned long at = request->next;
	int steps;

	for (steps = 0; steps < STEPS_PER_HOLD && at < request->end; steps++) {
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
	struct uksm_space_ref ref = { .domain = domain };
	struct uksm_lock_tries tries = {};
	long error;
	int i;

	error = uksm_get_space(&ref, request->space);
	if (error)
		return error;
	memset(request->pages, 0, sizeof(request->pages));
	request->huge = 0;
	/* The pages of a process that has ended are gone. */
	request->next = ref.mm ? request->start : request->end;
	for (i = 0; i < STEPS / STEPS_PER_HOLD; i++) {
		if (request->next >= request->end)
			break;
		error = uksm_lock_mappings(ref.mm, &tries);
		if (error)
			break;
		count_some(domain, request, ref.mm);
		mmap_read_unlock(ref.mm);
		cond_resched();
		if (signal_pending(current))
			break;
	}
	uksm_put_space(&ref);
	return uksm_in_part(error, request->next > request->start);
}
