// SPDX-License-Identifier: GPL-2.0-only
/*
 * SAMPLE: state, flags and partial hash of pages
 *
 * The module does this most often: its cost is the cost of the search for
 * duplicates. Requests name pages by runs, and answers come in the same order. As
 * long as neighbours lie in one page table they are read under one hold of its
 * lock, up to UKSM_LOCK_BATCH of them, and fewer if much of each is hashed. Each hold
 * makes two passes: the first reads the page tables and page structs, the second the
 * contents. So the memory for the second pass is prefetched during the first.
 *
 * Requests and answers pass through a small buffer piece by piece, so a call needs
 * little memory. All runs are checked before the first is answered, and each run is
 * checked again when it is answered: the runs are read twice, and userspace may
 * have changed them.
 *
 * The mmap lock is only tried for: if an address space is being changed, the answer
 * is RETRY. One hold of it lasts for one buffer of answers at most.
 */
#include <linux/prefetch.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "verbs.h"
#include "bounds.h"
#include "domain.h"
#include "page_state.h"
#include "request.h"
#include "space.h"
#include "walk.h"

/* Answers between two copies to userspace; bounds the hold of an mmap lock. */
#define ANSWERS	256
/* Runs between two copies from userspace. */
#define RUNS	128

struct sampling {
	struct uksm_domain *domain;
	unsigned int from, to;		/* lines */
	unsigned int batch;		/* pages under one hold of a page-table lock */

	/* The next page to answer: page @page of run @run, at @address. */
	const struct uksm_run *run;
	const struct uksm_run *end;
	u32 page;
	unsigned long address;

	u32 done, room;			/* in @out */
	u64 sampled;			/* pages whose contents were read */

	struct uksm_run runs[RUNS];	/* a piece of the request */
	struct uksm_page out[ANSWERS];	/* a piece of the answer */
};

static bool more(const struct sampling *s)
{
	return s->done < s->room && s->run < s->end;
}

/* From one page of the present run to the next, in bytes. */
static unsigned long step_of(const struct sampling *s)
{
	return (unsigned long)s->run->stride << PAGE_SHIFT;
}

/* Goes on by so many pages of the request, all in the present run. */
static void advance(struct sampling *s, u32 pages)
{
	s->done += pages;
	s->page += pages;
	if (s->page < s->run->count) {
		s->address += pages * step_of(s);
		return;
	}
	s->page = 0;
	if (++s->run < s->end)
		s->address = s->run->start;
}

static void answer(struct sampling *s, enum uksm_state state)
{
	s->out[s->done] = (struct uksm_page) { .state = state };
	advance(s, 1);
}

/* Gives all next pages of this space the same answer. */
static void answer_space(struct sampling *s, u32 space, enum uksm_state state)
{
	while (more(s) && s->run->space == space)
		answer(s, state);
}

/* Is the next page in [start, end) of this space? */
static bool within(const struct sampling *s, u32 space, unsigned long start,
		   unsigned long end)
{
	return more(s) && s->run->space == space && s->address >= start &&
	       s->address < end;
}

static bool readable(u16 state)
{
	return state == UKSM_STATE_ANON || state == UKSM_STATE_KSM ||
	       state == UKSM_STATE_ORPHAN || state == UKSM_STATE_FRAME;
}

/*
 * How many of the next pages are in one run and below @end, at most @most. The next
 * page is there.
 */
static u32 pages_below(const struct sampling *s, unsigned long end, u32 most)
{
	u32 left = min(s->run->count - s->page, s->room - s->done);

	return min_t(unsigned long, min(left, most),
		     (end - s->address - 1) / step_of(s) + 1);
}

/* The state of the page at @address. */
static void classify(const struct sampling *s, struct vm_area_struct *vma,
		     const struct uksm_table *table, unsigned long address,
		     struct uksm_page_state *seen)
{
	if (table->kind == UKSM_TABLE_HUGE)
		uksm_classify_huge(vma, table->pmd, address, seen);
	else
		uksm_classify_pte(s->domain, ptep_get(uksm_pte(table, address)),
				  seen);
}

/* Answers all next pages in [start, end), up to a batch; the table is locked. */
static void sample_table(struct sampling *s, struct vm_area_struct *vma,
			 const struct uksm_table *table, u32 space,
			 unsigned long start, unsigned long end)
{
	struct uksm_page *out = &s->out[s->done];
	const struct page *read[UKSM_LOCK_BATCH];
	u16 flags = vma->vm_flags & VM_LOCKED ? UKSM_PAGE_LOCKED : 0;
	unsigned int first = s->domain->key.order[s->from % UKSM_PAGE_LINES];
	bool reads = s->from < s->to;
	u32 n = 0, i;

	while (n < s->batch && within(s, space, start, end)) {
		unsigned long step = step_of(s);
		unsigned long address = s->address;
		u32 pages = pages_below(s, end, s->batch - n);

		for (i = 0; i < pages; i++, n++, address += step) {
			struct uksm_page_state seen;

			classify(s, vma, table, address, &seen);
			read[n] = NULL;
			if (seen.page && reads && readable(seen.state)) {
				read[n] = seen.page;
				prefetch(page_address(seen.page) +
					 first * UKSM_LINE_SIZE);
			}
			out[n] = (struct uksm_page) {
				.frame = seen.frame,
				.state = seen.state,
				.flags = seen.flags | flags,
			};
		}
		advance(s, pages);
	}
	for (i = 0; i < n; i++) {
		if (!read[i])
			continue;
		out[i].hash = uksm_hash_page(s->domain, read[i], s->from,
					     s->to);
		s->sampled++;
	}
}

/* The mapping is eligible. Answers at least one page. */
static void sample_mapping(struct sampling *s, struct mm_struct *mm,
			   struct vm_area_struct *vma, u32 space)
{
	unsigned long start = s->address, end;
	struct uksm_table table;

	uksm_lock_table(mm, s->address, &table);
	/* Sorted runs go upwards. A page below @start needs another lookup. */
	end = min(vma->vm_end, table.end);
	switch (table.kind) {
	case UKSM_TABLE_PTES:
	case UKSM_TABLE_HUGE:
		sample_table(s, vma, &table, space, start, end);
		break;
	case UKSM_TABLE_HOLE:
		while (within(s, space, start, end))
			answer(s, UKSM_STATE_NONE);
		break;
	case UKSM_TABLE_MOVING:
		answer(s, UKSM_STATE_SWAP);
		break;
	case UKSM_TABLE_OTHER:
		answer(s, UKSM_STATE_OTHER);
		break;
	case UKSM_TABLE_RACED:
		answer(s, UKSM_STATE_RETRY);
		break;
	}
	uksm_unlock_table(&table);
}

/* Answers all next pages of this space, whose mmap lock is held. */
static void sample_space(struct sampling *s, struct mm_struct *mm, u32 space)
{
	struct vm_area_struct *vma = NULL;
	bool eligible = false;

	while (more(s) && s->run->space == space) {
		struct vm_area_struct *here;

		here = uksm_find_mapping(mm, vma, s->address);
		if (!here) {
			answer(s, UKSM_STATE_UNMAPPED);
			continue;
		}
		if (here != vma)
			eligible = uksm_eligible(here) == UKSM_ELIGIBLE;
		vma = here;
		if (eligible)
			sample_mapping(s, mm, vma, space);
		else
			answer(s, UKSM_STATE_REFUSED);
	}
}

/* Fills the buffer of answers. */
static void fill_answers(struct sampling *s, struct uksm_space_ref *ref)
{
	while (more(s)) {
		u32 space = s->run->space;

		/* The domain had it; a DETACH may have come in between. */
		if (uksm_get_space(ref, space) || !ref->mm) {
			answer_space(s, space, UKSM_STATE_DEAD);
		} else if (!mmap_read_trylock(ref->mm)) {
			answer_space(s, space, UKSM_STATE_RETRY);
		} else {
			sample_space(s, ref->mm, space);
			mmap_read_unlock(ref->mm);
		}
	}
}

static long check_spaces(struct uksm_domain *domain,
			 const struct uksm_run *runs, u32 nr_runs)
{
	u32 i;

	for (i = 0; i < nr_runs; i++) {
		if (i && runs[i].space == runs[i - 1].space)
			continue;
		if (!uksm_has_space(domain, runs[i].space))
			return -ENOENT;
	}
	return 0;
}

/* Reads runs [@first, ...) of the request, as many as fit, and counts them. */
static long get_runs(struct sampling *s, const struct uksm_sample *request,
		     u32 first, u32 *nr_runs)
{
	struct uksm_run __user *from = u64_to_user_ptr(request->runs);

	*nr_runs = min_t(u32, request->nr_runs - first, RUNS);
	return copy_from_user(s->runs, from + first,
			      *nr_runs * sizeof(*from)) ? -EFAULT : 0;
}

/* Leaves the last runs in @s->runs: all of them, if they fit there. */
static long check_request(struct sampling *s, const struct uksm_sample *request)
{
	u64 pages = 0;
	u32 first, n;
	long error;

	for (first = 0; first < request->nr_runs; first += n) {
		error = get_runs(s, request, first, &n);
		if (!error)
			error = uksm_check_runs(s->runs, n, &pages);
		if (!error)
			error = check_spaces(s->domain, s->runs, n);
		if (error)
			return error;
	}
	return pages == request->nr_pages ? 0 : -EINVAL;
}

/* Answers the runs at hand. Returns 0, and whether to go on. */
static long answer_runs(struct sampling *s, struct uksm_sample *request,
			struct uksm_space_ref *ref, bool *go_on)
{
	struct uksm_page __user *to = u64_to_user_ptr(request->pages);

	while (s->run < s->end && *go_on) {
		s->done = 0;
		s->room = ANSWERS;
		fill_answers(s, ref);
		if (copy_to_user(to + request->done, s->out,
				 s->done * sizeof(*s->out)))
			return -EFAULT;
		request->done += s->done;
		cond_resched();
		*go_on = !signal_pending(current);
	}
	return 0;
}

static long sample_all(struct sampling *s, struct uksm_sample *request)
{
	struct uksm_space_ref ref = { .domain = s->domain };
	u32 first, n = request->nr_runs;
	bool go_on = true;
	long error = 0;

	for (first = 0; first < request->nr_runs && go_on; first += n) {
		u64 pages = 0;

		if (request->nr_runs > RUNS) {
			error = get_runs(s, request, first, &n);
			if (!error)
				error = uksm_check_runs(s->runs, n, &pages);
			if (!error && pages > request->nr_pages - request->done)
				error = -EINVAL;
			if (error)
				break;
		}
		s->run = s->runs;
		s->end = s->runs + n;
		s->page = 0;
		s->address = s->runs->start;
		error = answer_runs(s, request, &ref, &go_on);
		if (error)
			break;
	}
	uksm_put_space(&ref);
	return error;
}

/* As many pages as may be hashed while a page-table lock is held. */
static unsigned int batch_of(const struct uksm_sample *request)
{
	unsigned int bytes = (request->to - request->from) * UKSM_LINE_SIZE;

	return bytes ? min_t(unsigned int, UKSM_LOCK_BATCH,
			     UKSM_LOCK_BYTES / bytes) : UKSM_LOCK_BATCH;
}

/* The SAMPLE verb; see the contract. */
long uksm_sample(struct uksm_domain *domain, struct uksm_sample *request)
{
	struct uksm_counters counters = {};
	struct sampling *s;
	long error;

	request->done = 0;
	s = kmalloc(sizeof(*s), UKSM_GFP);
	if (!s)
		return -ENOMEM;
	s->domain = domain;
	s->from = request->from;
	s->to = request->to;
	s->batch = batch_of(request);
	s->sampled = 0;
	error = check_request(s, request);
	if (!error)
		error = sample_all(s, request);
	counters.sampled = s->sampled;
	uksm_add_counters(domain, &counters);
	kfree(s);
	return error;
}
