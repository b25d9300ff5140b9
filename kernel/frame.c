// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pages that merged pages share
 *
 * A frame is an order-0 page off the LRU, up to date and swap-backed, marked as
 * a KSM page without a stable node (compat.h says why), mapped read-only as an
 * anonymous page. The domain holds one reference; each mapping holds another.
 * Once the domain has dropped its own, the page is an *orphan*: everything that
 * maps it goes on as before, and the last to unmap it frees it. No code of this
 * module is needed for that.
 *
 * folio->private is the frame's number, unique in the module, so that a number
 * of one domain means nothing to another; 0 for an orphan. A number alone proves
 * nothing (KSM marks a page the same way for a moment, and a page in the swap
 * cache keeps something else there), so it is always looked up.
 *
 * Memory: frames can be neither moved nor swapped. So they never come from
 * ZONE_MOVABLE or CMA, their count is capped, and they are charged to the
 * cgroup that opened the domain. Allocation never calls the OOM killer:
 * failure is an outcome. Frames that lose their last mapping stay until FRAMES
 * reaps them.
 *
 * Who may remove a frame: REAP, with domain->reaping held for writing, and the
 * release of the domain, when no call is left. So a frame that is found with
 * domain->reaping held for reading stays.
 */
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "frame.h"
#include "request.h"

/* Numbers of all frames of all domains; 1 .. INT_MAX. */
static DEFINE_IDA(numbers);
static atomic_long_t module_frames = ATOMIC_LONG_INIT(0);

long uksm_module_frames(void)
{
	return atomic_long_read(&module_frames);
}

/* For module exit, when the last domain is gone. */
void uksm_frames_exit(void)
{
	ida_destroy(&numbers);
}

/*
 * Kernel memory, not movable, charged; gives up rather than call the OOM
 * killer, be it the machine's or a cgroup's.
 */
#define FRAME_GFP	(GFP_HIGHUSER | __GFP_ACCOUNT | __GFP_NORETRY | \
			 __GFP_NOWARN)

static struct page *alloc_charged(struct uksm_domain *domain)
{
	struct mem_cgroup *old = set_active_memcg(domain->memcg);
	struct page *page = alloc_page(FRAME_GFP);

	set_active_memcg(old);
	return page;
}

/**
 * uksm_prepare_frame() - get all that a new frame needs, but its contents
 * @domain: the domain
 * @blank: where to put it
 *
 * Called without locks; it may sleep and reclaim.
 *
 * Return: 0; -ENOSPC if the domain has its limit; -ENOMEM.
 */
int uksm_prepare_frame(struct uksm_domain *domain, struct uksm_blank *blank)
{
	struct folio *folio;
	struct page *page;
	int number;

	if (atomic_long_inc_return(&domain->nr_frames) > domain->frame_limit) {
		atomic_long_dec(&domain->nr_frames);
		return -ENOSPC;
	}
	page = alloc_charged(domain);
	if (!page)
		goto no_page;
	number = ida_alloc_min(&numbers, 1, GFP_KERNEL | __GFP_NOWARN);
	if (number < 0)
		goto no_number;
	/* So that making the frame, under a page-table lock, cannot fail. */
	if (xa_reserve(&domain->frames, number, GFP_KERNEL | __GFP_NOWARN))
		goto no_place;

	folio = page_folio(page);
	__folio_set_swapbacked(folio);
	folio->mapping = UKSM_FRAME_MAPPING;
	folio->private = NULL;
	blank->folio = folio;
	blank->number = number;
	return 0;

no_place:
	ida_free(&numbers, number);
no_number:
	__free_page(page);
no_page:
	atomic_long_dec(&domain->nr_frames);
	return -ENOMEM;
}

/**
 * uksm_discard_blank() - give back what uksm_prepare_frame() got
 * @domain: the domain
 * @blank: the unused blank
 */
void uksm_discard_blank(struct uksm_domain *domain, struct uksm_blank *blank)
{
	xa_release(&domain->frames, blank->number);
	ida_free(&numbers, blank->number);
	folio_put(blank->folio);
	atomic_long_dec(&domain->nr_frames);
}

/**
 * uksm_make_frame() - turn a blank into a frame with the contents of a page
 * @domain: the domain
 * @blank: a blank; used up
 * @source: the page to copy
 *
 * Called under the page-table lock with @source unmapped and flushed: nobody
 * can write it, so the copy is what the page holds, and needs no comparison.
 *
 * Return: the frame, which no page table maps yet.
 */
struct folio *uksm_make_frame(struct uksm_domain *domain,
			      struct uksm_blank *blank, struct page *source)
{
	struct folio *folio = blank->folio;

	copy_page(folio_address(folio), page_address(source));
	/* Orders the copy before the page table entry that will show it. */
	__folio_mark_uptodate(folio);
	/*
	 * Known before it is mapped: whoever finds the page in a page table
	 * must find its owner. The place is reserved, so nothing is allocated.
	 */
	WRITE_ONCE(folio->private, (void *)(unsigned long)blank->number);
	xa_store(&domain->frames, blank->number, folio, GFP_NOWAIT);
	atomic_long_inc(&module_frames);
	blank->folio = NULL;
	return folio;
}

/**
 * uksm_frame_owner() - whose is a page that is marked as a frame?
 * @domain: who asks
 * @folio: a page with UKSM_FRAME_MAPPING that is mapped and cannot go away
 */
enum uksm_owner uksm_frame_owner(struct uksm_domain *domain,
				 const struct folio *folio)
{
	unsigned long number = (unsigned long)READ_ONCE(folio->private);

	if (!number || number > INT_MAX)
		return UKSM_OWNER_NONE;
	if (xa_load(&domain->frames, number) == folio)
		return UKSM_OWNER_DOMAIN;
	return uksm_other_domain_has(domain, folio, number) ?
		UKSM_OWNER_OTHER : UKSM_OWNER_NONE;
}

/*
 * Drops a frame's reference. What still refers to it keeps it; if nothing maps
 * it that is at most a short-lived reference, or a pipe that holds the page.
 */
static void remove_frame(struct uksm_domain *domain, struct folio *folio,
			 u32 number)
{
	xa_erase(&domain->frames, number);
	WRITE_ONCE(folio->private, NULL);
	folio_put(folio);
	ida_free(&numbers, number);
	atomic_long_dec(&domain->nr_frames);
	atomic_long_dec(&module_frames);
}

/**
 * uksm_release_frames() - make all frames of a domain orphans
 * @domain: a domain that nobody uses any more
 */
void uksm_release_frames(struct uksm_domain *domain)
{
	unsigned long number;
	struct folio *folio;

	xa_for_each(&domain->frames, number, folio) {
		remove_frame(domain, folio, number);
		cond_resched();
	}
	xa_destroy(&domain->frames);
}

/* Frames listed between two copies to userspace. */
#define CHUNK	256

/* Lists up to @room frames from *@cursor on; sets *@cursor to 0 when through. */
static u32 list_chunk(struct uksm_domain *domain, struct uksm_frames *request,
		      struct uksm_frame *out, u32 room)
{
	unsigned long number = request->cursor;
	bool reap = request->flags & UKSM_FRAMES_REAP;
	struct folio *folio;
	u32 n = 0;

	for (folio = xa_find(&domain->frames, &number, INT_MAX, XA_PRESENT);
	     folio && n < room;
	     folio = xa_find_after(&domain->frames, &number, INT_MAX,
				   XA_PRESENT)) {
		struct uksm_frame *frame = &out[n++];

		frame->frame = number;
		frame->sharers = uksm_mapcount(folio);
		frame->hash = uksm_hash_lines(&domain->key,
					      folio_address(folio),
					      request->from, request->to);
		if (!frame->sharers && reap) {
			remove_frame(domain, folio, number);
			request->freed++;
		}
	}
	request->cursor = folio ? number : 0;
	return n;
}

/*
 * Only FOLD gives a frame without mappings its next one (fork copies mappings
 * that exist), and it holds domain->reaping for reading. So a mapcount of 0
 * that is seen with the write side held stays 0.
 */
static int lock_frames(struct uksm_domain *domain, u32 flags)
{
	if (flags & UKSM_FRAMES_REAP)
		return down_write_killable(&domain->reaping);
	return down_read_killable(&domain->reaping);
}

static void unlock_frames(struct uksm_domain *domain, u32 flags)
{
	if (flags & UKSM_FRAMES_REAP)
		up_write(&domain->reaping);
	else
		up_read(&domain->reaping);
}

/* The FRAMES verb; see the contract. */
long uksm_frames(struct uksm_domain *domain, struct uksm_frames *request)
{
	struct uksm_frame __user *to = u64_to_user_ptr(request->frames);
	struct uksm_tally tally = {};
	struct uksm_frame *chunk;
	long error;

	error = uksm_check_frames(request);
	if (error)
		return error;
	request->done = 0;
	request->freed = 0;
	if (!request->count)
		return 0;
	chunk = kmalloc_array(min_t(u32, request->count, CHUNK),
			      sizeof(*chunk), GFP_KERNEL);
	if (!chunk)
		return -ENOMEM;
	do {
		u32 room = min_t(u32, request->count - request->done, CHUNK);
		u32 n;

		if (lock_frames(domain, request->flags)) {
			error = -EINTR;
			break;
		}
		n = list_chunk(domain, request, chunk, room);
		unlock_frames(domain, request->flags);
		if (copy_to_user(to + request->done, chunk, n * sizeof(*chunk))) {
			error = -EFAULT;
			break;
		}
		request->done += n;
		cond_resched();
	} while (request->cursor && request->done < request->count &&
		 !signal_pending(current));
	kfree(chunk);
	tally.frames_freed = request->freed;
	uksm_add_tally(domain, &tally);
	return error == -EINTR && request->done ? 0 : error;
}
