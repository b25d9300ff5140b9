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
 * charges them, and allocated where the fault will, but in a way that fails
 * instead. Then they are freed, and the faults, on the same processor, find their
 * memory and leave the margin. If this trial fails, BREAK stops. Somebody else can
 * take the memory in between; the margin is for that, too. The trial may reclaim, which
 * takes long, so none of the target's locks is held meanwhile.
 *
 * The fault is an "unshare": it acts on anonymous pages that are not exclusive and
 * leaves permissions alone. Only frames are given to it: of this domain and of none that
 * lives (orphans), or, if the caller asks for those, of others, which a fork has left in
 * the space. The copy is the space's own whoever has the frame. Each is checked again
 * immediately before its fault.
 *
 * A frame that only one entry maps saves nothing (UKSM_BREAK_SINGLE). That it is so holds
 * as long as that entry's lock is held: while another entry is being made or cleared, the
 * count is too high, never too low. Once the lock is dropped, a fork or a FOLD may add
 * one. Then a page is broken that has just got a sharer: that costs a page, no contents.
 *
 * The fault runs in the caller, so that without a policy of the mapping it would place the
 * copy by the caller's processor and policy. It is shown one that prefers the node of the
 * frame, where the page lay before it was merged, or an equal one did. That policy lives
 * on the stack: nobody takes a reference to one that is not shared (mpol_cond_put()).
 *
 * The target can take a page away between that check and the fault, which then is one of
 * a missing page. It must not come to a file: who mapped that one may also be its FUSE
 * server, and never answer. See unshare().
 *
 * Order, for each batch: take the mmap lock to read and the page-table lock, find merged
 * pages, drop both; try whether there is memory; take the locks and find again; then one
 * fault for each page, under the mmap lock.
 */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/mempolicy.h>
#include <linux/preempt.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/swap.h>

#include "verbs.h"
#include "domain.h"
#include "faults.h"
#include "page_state.h"
#include "space.h"
#include "symbols.h"
#include "target_lock.h"
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
	bool single;
	u64 broken;
	bool stopped;
	struct uksm_lock_tries tries;
	/* The trial of memory: for how many copies, where; for how many it was there. */
	unsigned int wanted;
	unsigned long wanted_at;
	int node;
	gfp_t gfp;
	unsigned int proven;
	int frame_node;			/* of the merged page that was found last */
};

static bool is_chosen(const struct breaking *b,
		      const struct uksm_page_state *seen)
{
	if (b->foreign)
		return seen->state == UKSM_STATE_FOREIGN;
	if (b->single && seen->flags & UKSM_PAGE_SHARED)
		return false;
	return seen->state == UKSM_STATE_FRAME ||
	       seen->state == UKSM_STATE_ORPHAN;
}

static bool is_merged(struct breaking *b, pte_t pte)
{
	struct uksm_page_state seen;

	uksm_classify_pte(b->domain, pte, &seen);
	if (!is_chosen(b, &seen))
		return false;
	b->frame_node = page_to_nid(pte_page(pte));
	return true;
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

enum found {
	FOUND_NOTHING,	/* no page table, or an empty entry */
	FOUND_MERGED,
	FOUND_OTHER,	/* a copy, if it was merged before */
};

static enum found find_page(struct breaking *b, unsigned long address)
{
	enum found found = FOUND_NOTHING;
	struct uksm_table table;

	uksm_lock_table(b->mm, address, &table);
	if (table.kind == UKSM_TABLE_PTES) {
		pte_t pte = ptep_get(uksm_pte(&table, address));

		if (is_merged(b, pte))
			found = FOUND_MERGED;
		else if (!pte_none(pte))
			found = FOUND_OTHER;
	}
	uksm_unlock_table(&table);
	return found;
}

/* As the fault asks for its page, but this fails where the fault would reclaim on. */
#define COPY_GFP	(GFP_HIGHUSER_MOVABLE | __GFP_NORETRY | __GFP_NOWARN)

#ifdef CONFIG_NUMA
static bool has_policy(const struct vm_area_struct *vma)
{
	return vma->vm_policy || (vma->vm_ops && vma->vm_ops->get_policy);
}

/* Copies may be on some nodes only. Of a policy that is not the mapping's own, we assume it. */
static bool is_bound(const struct vm_area_struct *vma)
{
	return !vma->vm_policy || vma->vm_policy->mode == MPOL_BIND;
}
#else
static bool has_policy(const struct vm_area_struct *vma)
{
	return false;
}

static bool is_bound(const struct vm_area_struct *vma)
{
	return false;
}
#endif

/*
 * Notes for how many copies memory is to be tried, and where: preferably on the node of a
 * frame. A mapping with a policy is asked for the node by taking one page without reclaim.
 * Returns false if that fails.
 */
static bool want_copies(struct breaking *b, struct vm_area_struct *vma,
			unsigned long address, unsigned int copies)
{
	struct folio *folio;

	b->wanted = copies;
	b->wanted_at = address;
	b->node = b->frame_node;
	b->gfp = COPY_GFP;
	if (!has_policy(vma))
		return true;
	folio = uksm_alloc_for(vma, address, COPY_GFP & ~__GFP_DIRECT_RECLAIM);
	if (!folio)
		return false;
	b->node = folio_nid(folio);
	if (is_bound(vma))
		b->gfp |= __GFP_THISNODE;
	folio_put(folio);
	return true;
}

/*
 * Is there memory for the copies that are wanted, on the machine and in the target's
 * cgroup, and is the margin left then? The memory is held for a moment only: if the
 * target's own fault comes just then, the kernel retries many times before it gives up.
 */
static bool enough_memory(const struct breaking *b)
{
	unsigned int needed = b->wanted + UKSM_BREAK_MARGIN, n;
	long available = si_mem_available();
	struct folio *folio, *next;
	LIST_HEAD(trial);

	/* A page that is given back frees a frame, and is no harder to swap than others. */
	if (b->single)
		available += get_nr_swap_pages();
	/* What the machine can give without reclaim's last resorts. */
	if (available < 2 * needed)
		return false;
	for (n = 0; n < needed; n++) {
		folio = __folio_alloc_node(b->gfp, 0, b->node);
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

/*
 * Has the kernel copy a page that is mapped read-only, and wait for nothing that the
 * target decides.
 *
 * Where the page is missing by now, a mapping of a file would read the file. So such a
 * mapping is shown to the fault without its operations: do_fault() answers SIGBUS to us
 * and leaves the entry as it is. Nothing else that an unshare does asks them, but for
 * the memory policy, which is ours if the mapping has none. The copy of the mapping is
 * good while the mmap lock is held, and the fault writes nothing to it that must last.
 *
 * With RETRY_NOWAIT a page that is locked, or that userfaultfd would hand in, ends the
 * fault, with the mmap lock still held. Without USER no OOM is left pending for this
 * task.
 */
static vm_fault_t unshare(const struct breaking *b, struct vm_area_struct *vma,
			  unsigned long address)
{
	const unsigned int flags = FAULT_FLAG_UNSHARE | FAULT_FLAG_REMOTE |
				   FAULT_FLAG_ALLOW_RETRY |
				   FAULT_FLAG_RETRY_NOWAIT;
	const struct vm_operations_struct without_file = {
#ifdef CONFIG_NUMA
		.get_policy = vma->vm_ops ? vma->vm_ops->get_policy : NULL,
#endif
	};
	struct vm_area_struct mapping = *vma;
#ifdef CONFIG_NUMA
	struct mempolicy near_frame = {
		.refcnt = ATOMIC_INIT(1),
		.mode = MPOL_PREFERRED,
		.nodes = nodemask_of_node(b->frame_node),
	};

	if (!has_policy(vma))
		mapping.vm_policy = &near_frame;
#endif
	if (uksm_fault(UKSM_FAULT_BREAK_READS))
		return handle_mm_fault(vma, address, flags, NULL);
	if (vma->vm_ops)
		mapping.vm_ops = &without_file;
	return handle_mm_fault(&mapping, address, flags, NULL);
}

/* Returns false if there is no memory to go on. */
static bool break_page(struct breaking *b, struct vm_area_struct *vma,
		       unsigned long address)
{
	int i;

	for (i = 0; i <= TRIES; i++) {
		enum found found = find_page(b, address);

		/* The target may have taken the page away, before its fault or after it. */
		if (found != FOUND_MERGED) {
			b->broken += i && found == FOUND_OTHER;
			break;
		}
		if (i == TRIES)
			break;
		if (uksm_fault(UKSM_FAULT_SLOW_BREAK))
			msleep(100);
		if (unshare(b, vma, address) & VM_FAULT_OOM)
			return false;
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

/* Frames are nowhere else, and a copy could not be made there either. */
static bool is_breakable(struct vm_area_struct *vma)
{
	return uksm_has_page_tables(vma) && !(vma->vm_flags & VM_SHARED) &&
	       vma->anon_vma;
}

/*
 * One step in @vma from *@at, which it moves on. Returns true if the mmap lock should be
 * dropped: pages were broken, or memory for them is to be tried.
 */
static bool break_step(struct breaking *b, struct vm_area_struct *vma,
		       unsigned long *at, unsigned long end)
{
	unsigned long start = *at;
	struct uksm_table table;
	u64 found = 0;

	end = min(end, vma->vm_end);
	if (!is_breakable(vma)) {
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
	if (!found) {
		*at = end;
		return false;
	}
	/* Another mapping may be here by now, whose copies have to be on another node. */
	if (!b->proven || start != b->wanted_at) {
		if (!want_copies(b, vma, start, hweight64(found)))
			b->stopped = true;
		return true;
	}
	/* What was merged since then waits for a trial of its own. */
	while (hweight64(found) > b->proven) {
		int last = fls64(found) - 1;

		found &= ~BIT_ULL(last);
		end = start + last * PAGE_SIZE;
	}
	*at = end;
	b->proven = 0;
	if (!break_found(b, vma, start, found, at))
		b->stopped = true;
	return true;
}

/* Goes on from request->next with the mmap lock held, which it drops. */
static void break_some(struct breaking *b, struct uksm_break *request)
{
	unsigned long at = request->next, end = request->end;
	int steps;

	for (steps = 0; steps < STEPS_PER_HOLD && at < end; steps++) {
		struct vm_area_struct *vma = find_vma(b->mm, at);

		if (!vma || vma->vm_start >= end) {
			at = end;
			break;
		}
		at = max(at, vma->vm_start);
		if (break_step(b, vma, &at, end))
			break;
	}
	request->next = at;
	mmap_read_unlock(b->mm);
}

/*
 * The same for pages that were found, if there is memory for their copies. What the trial
 * frees goes to this processor's own list of free pages, which the others do not see: the
 * faults look for it on the same one. They come at once or not at all: where the mmap lock
 * is not to be had, the pages are found anew, and there is another trial.
 */
static long break_wanted(struct breaking *b, struct uksm_break *request)
{
	unsigned long begun = request->next;
	bool locked = false;

	migrate_disable();
	if (!enough_memory(b)) {
		b->stopped = true;
	} else if (mmap_read_trylock(b->mm)) {
		locked = true;
		b->proven = b->wanted;
		b->wanted = 0;
		break_some(b, request);
	}
	migrate_enable();
	b->proven = 0;
	b->wanted = 0;
	/*
	 * Where a batch begins follows the mappings. If the target has moved it, this trial was
	 * in vain, as if the lock had not been had.
	 */
	if ((locked && request->next > begun) || b->stopped)
		return 0;
	return uksm_await_next_try(&b->tries);
}

static long break_range(struct breaking *b, struct uksm_break *request)
{
	while (request->next < request->end && !b->stopped) {
		long error = uksm_lock_mappings(b->mm, &b->tries);

		if (error)
			return error;
		break_some(b, request);
		if (b->wanted && !b->stopped)
			error = break_wanted(b, request);
		if (error)
			return error;
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
		.single = request->flags & UKSM_BREAK_SINGLE,
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
	if (b.single)
		counters.given_back = b.broken;
	uksm_add_counters(domain, &counters);
	return uksm_in_part(error, request->next > request->start);
}
