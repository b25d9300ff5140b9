// SPDX-License-Identifier: GPL-2.0-only
/*
 * BREAK: give merged pages their own copy again
 *
 * The kernel's own page fault breaks a merged page by making a private copy. But
 * a fault that finds no memory calls the OOM killer, of the machine or of the
 * target's cgroup, for something the target never asked for. And if our fault takes
 * the last page, the target's own next fault is the one that finds none.
 *
 * So before each batch of faults as many pages are allocated as the faults need, and
 * UKSM_BREAK_MARGIN more. They are charged to the target's cgroup as the fault
 * charges them, and allocated under its memory policy, but in a way that fails
 * instead. Then they are freed, and the faults, on the same processor, find their
 * memory and leave the margin. If this trial fails, BREAK stops. Somebody else can
 * take the memory in between; the margin is for that, too.
 *
 * The fault is an "unshare": it acts on anonymous pages that are not exclusive and
 * leaves permissions alone. Only frames are given to it: of this domain and of none that
 * lives (orphans), or, if the caller asks for those, of others, which a fork has left in
 * the space. The copy is the space's own whoever has the frame. Each is checked again
 * immediately before its fault.
 *
 * Order: take the page-table lock, find merged pages, drop the lock; try whether
 * there is memory; then one fault for each page, under the read side of the mmap
 * lock, which is dropped between batches.
 */
#include <linux/gfp.h>
#include <linux/preempt.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "verbs.h"
#include "domain.h"
#include "page_state.h"
#include "space.h"
#include "symbols.h"
#include "walk.h"

/* Pages checked under one hold of the mmap lock. */
#define BATCH	UKSM_LOCK_BATCH
/* Steps over mappings and holes under one hold of the mmap lock. */
#define STEPS_PER_HOLD	128
/* A NUMA hint in the way takes one fault of its own. */
#define TRIES	3

struct breaking {
	struct uksm_domain *domain;
	struct mm_struct *mm;
	bool foreign;
	u64 broken;
	bool stopped;
};

static bool is_merged(struct breaking *b, pte_t pte)
{
	struct uksm_page_state seen;

	uksm_classify_pte(b->domain, pte, &seen);
	if (b->foreign)
		return seen.state == UKSM_STATE_FOREIGN;
	return seen.state == UKSM_STATE_FRAME ||
	       seen.state == UKSM_STATE_ORPHAN;
}

/* Which of [start, end), at most BATCH pages in one page table, are merged? */
static u64 find_merged(struct breaking *b, const struct uksm_table *table,
		       unsigned long start, unsigned long end)
{
	u64 found = 0;
	int i;

	for (i = 0; start < end; i++, start += PAGE_SIZE) {
		if (is_merged(b, ptep_get(uksm_pte(table, start))))
			found |= 1ULL << i;
	}
	return found;
}

static bool still_merged(struct breaking *b, unsigned long address)
{
	struct uksm_table table;
	bool found;

	uksm_lock_table(b->mm, address, &table);
	found = table.kind == UKSM_TABLE_PTES &&
		is_merged(b, ptep_get(uksm_pte(&table, address)));
	uksm_unlock_table(&table);
	return found;
}

/* As the fault asks for its page, but this fails where the fault would reclaim on. */
#define COPY_GFP	(GFP_HIGHUSER_MOVABLE | __GFP_NORETRY | __GFP_NOWARN)

/*
 * Is there memory for so many copies, on the machine and in the target's cgroup,
 * and is the margin left then? The memory is held for a moment only: if the target's
 * own fault comes just then, the kernel retries many times before it gives up.
 */
static bool enough_memory(struct breaking *b, struct vm_area_struct *vma,
			  unsigned long address, unsigned int copies)
{
	unsigned int needed = copies + UKSM_BREAK_MARGIN, n;
	struct folio *folio, *next;
	LIST_HEAD(trial);

	/* What the machine can give without reclaim's last resorts. */
	if (si_mem_available() < 2 * needed)
		return false;
	for (n = 0; n < needed; n++) {
		folio = uksm_alloc_for(vma, address, COPY_GFP);
		if (!folio)
			break;
		list_add(&folio->lru, &trial);
		if (!uksm_charge(folio, b->mm))
			break;
	}
	list_for_each_entry_safe(folio, next, &trial, lru) {
		list_del(&folio->lru);
		folio_put(folio);
	}
	return n == needed;
}

/* Returns false if there is no memory to go on. */
static bool break_page(struct breaking *b, struct vm_area_struct *vma,
		       unsigned long address)
{
	int i;

	for (i = 0; i < TRIES; i++) {
		if (!still_merged(b, address))
			break;
		/*
		 * Without ALLOW_RETRY the fault never drops the mmap lock, and
		 * without USER it leaves no OOM pending for this task.
		 */
		if (handle_mm_fault(vma, address, FAULT_FLAG_UNSHARE |
				    FAULT_FLAG_REMOTE, NULL) & VM_FAULT_OOM)
			return false;
		if (!still_merged(b, address)) {
			b->broken++;
			break;
		}
	}
	return true;
}

static bool break_found(struct breaking *b, struct vm_area_struct *vma,
			unsigned long start, u64 found, unsigned long *at)
{
	for (; found; found &= found - 1) {
		unsigned long address = start + __ffs64(found) * PAGE_SIZE;

		if (!break_page(b, vma, address)) {
			*at = address;
			return false;
		}
	}
	return true;
}

/* Frames are never where these are; a copy could not be made there either. */
#define NOT_BREAKABLE	(VM_SHARED | VM_PFNMAP | VM_IO | VM_MIXEDMAP | \
			 VM_HUGETLB)

/*
 * One step in @vma from *@at, which it moves on. Returns true if pages were broken,
 * so that the mmap lock should be dropped.
 */
static bool break_step(struct breaking *b, struct vm_area_struct *vma,
		       unsigned long *at, unsigned long end)
{
	unsigned long start = *at;
	struct uksm_table table;
	u64 found = 0;

	end = min(end, vma->vm_end);
	if (vma->vm_flags & NOT_BREAKABLE || !vma->anon_vma) {
		*at = end;
		return false;
	}
	uksm_lock_table(b->mm, start, &table);
	end = min(end, table.end);
	if (table.kind == UKSM_TABLE_PTES) {
		end = min(end, start + BATCH * PAGE_SIZE);
		found = find_merged(b, &table, start, end);
	}
	uksm_unlock_table(&table);
	*at = end;
	if (!found)
		return false;
	/*
	 * What the trial frees goes to this processor's own list of free pages, which
	 * the others do not see: the faults look for it on the same one.
	 */
	migrate_disable();
	if (!enough_memory(b, vma, start, hweight64(found))) {
		*at = start;
		b->stopped = true;
	} else if (!break_found(b, vma, start, found, at)) {
		b->stopped = true;
	}
	migrate_enable();
	return true;
}

static unsigned long break_some(struct breaking *b, unsigned long at,
				unsigned long end)
{
	int steps;

	for (steps = 0; steps < STEPS_PER_HOLD && at < end; steps++) {
		struct vm_area_struct *vma = find_vma(b->mm, at);

		if (!vma || vma->vm_start >= end)
			return end;
		at = max(at, vma->vm_start);
		if (break_step(b, vma, &at, end))
			break;
	}
	return at;
}

static long break_range(struct breaking *b, struct uksm_break *request)
{
	while (request->next < request->end && !b->stopped) {
		if (mmap_read_lock_killable(b->mm))
			return -EINTR;
		request->next = break_some(b, request->next, request->end);
		mmap_read_unlock(b->mm);
		cond_resched();
		if (signal_pending(current))
			return -EINTR;
	}
	return 0;
}

/* The BREAK verb; see the contract. */
long uksm_break(struct uksm_domain *domain, struct uksm_break *request)
{
	struct uksm_space_ref ref = { .domain = domain };
	struct breaking b = {
		.domain = domain,
		.foreign = request->flags & UKSM_BREAK_FOREIGN,
	};
	struct uksm_counters counters = {};
	long error;

	error = uksm_get_space(&ref, request->space);
	if (error)
		return error;
	/* The pages of a process that has ended are gone. */
	request->next = request->end;
	if (ref.mm) {
		request->next = request->start;
		b.mm = ref.mm;
		error = break_range(&b, request);
	}
	uksm_put_space(&ref);
	request->broken = b.broken;
	request->stopped = b.stopped;
	counters.broken = b.broken;
	uksm_add_counters(domain, &counters);
	return error == -EINTR && request->next > request->start ? 0 : error;
}
