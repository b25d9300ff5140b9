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
 * Their memory is blank.c's concern, their numbers are number.c's. Frames that
 * lose their last mapping stay until FRAMES reaps them.
 *
 * Who may remove a frame: REAP, with domain->reaping held for writing, and the
 * release of the domain, when no call is left. So a frame that is found with
 * domain->reaping held for reading stays.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "frame.h"
#include "request.h"

static atomic_long_t module_frames = ATOMIC_LONG_INIT(0);

long uksm_module_frames(void)
{
	return atomic_long_read(&module_frames);
}

/**
 * uksm_make_frame() - turn a blank into a frame with the contents of a page
 * @blanks: the call's blanks, not none; one is used up
 * @source: the page to copy
 *
 * Called under the page-table lock with @source unmapped and flushed: nobody
 * can write it, so the copy is what the page holds, and needs no comparison.
 *
 * Return: the frame, which no page table maps yet.
 */
struct folio *uksm_make_frame(struct uksm_blanks *blanks, struct page *source)
{
	struct uksm_blank *blank = &blanks->blank[--blanks->count];
	struct folio *folio = blank->folio;
	unsigned long number;

	copy_page(folio_address(folio), page_address(source));
	/* Orders the copy before the page table entry that will show it. */
	__folio_mark_uptodate(folio);
	/*
	 * Known before it is mapped: whoever finds the page in a page table
	 * must find its owner.
	 */
	number = uksm_enter_frame(blank->chunk, blank->slot, folio);
	WRITE_ONCE(folio->private, (void *)number);
	atomic_long_inc(&module_frames);
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
	if (uksm_find_frame(&domain->numbers, number) == folio)
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
	uksm_remove_number(&domain->numbers, number);
	WRITE_ONCE(folio->private, NULL);
	folio_put(folio);
	atomic_long_dec(&domain->nr_frames);
	atomic_long_dec(&module_frames);
}

/**
 * uksm_release_frames() - make all frames of a domain orphans
 * @domain: a domain that nobody uses any more
 */
void uksm_release_frames(struct uksm_domain *domain)
{
	unsigned long number = 0;
	struct folio *folio;

	while ((folio = uksm_next_frame(&domain->numbers, &number))) {
		remove_frame(domain, folio, number++);
		cond_resched();
	}
	uksm_numbers_destroy(&domain->numbers);
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

	while ((folio = uksm_next_frame(&domain->numbers, &number)) && n < room) {
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
		number++;
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
