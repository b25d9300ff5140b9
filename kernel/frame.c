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
 * folio->private has the frame's id, unique in its domain, and above it a sum of its
 * contents (patrol.c). An id alone does not prove that a frame is this domain's
 * (another domain has the same one, KSM marks a page the same way for a moment, and a
 * page in the swap cache keeps something else there). So the id is always looked up,
 * and what is found must be this page. An orphan has the lineage of its domain
 * there, whose bit 63 no frame has, or nothing. So a page off the LRU with an id that
 * is not this domain's is a frame of another one: all others need not be asked.
 * A domain with the same seed is the heir: it adopts orphans where they are
 * (uksm_adopt_frame()).
 *
 * Memory that fails: memory_failure() marks a frame, but finds no mappings of it and
 * unmaps nothing, so everybody who uses a frame checks the mark first. A marked
 * frame is neither read nor given another mapping; REAP gives it up.
 *
 * Sharers: FOLD maps a frame at most sharer_limit times, and then each fork copies
 * a process's mappings, taking references without looking for an overflow
 * (copy_present_pte()). No more than PID_MAX_LIMIT processes exist, so the counts
 * stay below UKSM_MAX_SHARERS * PID_MAX_LIMIT, which is 2^30. The cost: of equal
 * pages one in UKSM_MAX_SHARERS is kept.
 *
 * prealloc.c provides their memory, frame_id.c their ids. Frames that lose their
 * last mapping stay until FRAMES or reclaim (shrinker.c) removes them.
 *
 * Only a holder of domain->frames_lock for writing may remove a frame, and the
 * release of the domain, when no call is left. So a frame that is found with
 * domain->frames_lock held for reading stays.
 */
#include <linux/sched.h>
#include <linux/threads.h>
#include <linux/uaccess.h>

#include "faults.h"
#include "frame.h"
#include "frame_limit.h"
#include "pool.h"

static_assert((u64)UKSM_MAX_SHARERS * PID_MAX_LIMIT < INT_MAX);

/*
 * Copies a page; false if its memory has failed. On a processor without fast string
 * operations copy_mc_to_kernel() is memcpy(), which does not survive an error either,
 * and takes 1,040 instructions more than copy_page() (make bench EXPERIMENT=fold-cost
 * COUNT=instructions, pairs).
 */
static bool copy_safely(struct folio *folio, struct page *source)
{
	if (cpu_feature_enabled(X86_FEATURE_ERMS))
		return !copy_mc_to_kernel(folio_address(folio),
					  page_address(source), PAGE_SIZE);
	copy_page(folio_address(folio), page_address(source));
	return true;
}

/**
 * uksm_make_frame() - make a frame with the contents of a page
 * @prealloc: the call's preallocated frames
 * @new: the one that uksm_prealloc_choose() found; it is used up
 * @source: the page to copy
 *
 * Called under the page-table lock with @source unmapped and flushed: nobody
 * can write it, so the copy is what the page holds, and needs no comparison.
 *
 * Return: the frame, which no page table maps yet; NULL if the memory of @source has
 * failed, of which the kernel is told. Then none is used up.
 */
struct folio *uksm_make_frame(struct uksm_prealloc *prealloc,
			      const struct uksm_prealloc_frame *new,
			      struct page *source)
{
	struct folio *folio = new->folio;

	if (uksm_fault(UKSM_FAULT_FAIL_COPY) || !copy_safely(folio, source)) {
		memory_failure_queue(page_to_pfn(source), 0);
		return NULL;
	}
	prealloc->count--;
	/* Orders the copy before the page table entry that will show it. */
	__folio_mark_uptodate(folio);
	/*
	 * Before the page is mapped: whoever finds it in a page table must find
	 * its owner.
	 */
	uksm_insert_frame(new->chunk, new->slot, folio);
	return folio;
}

/**
 * uksm_adopt_frame() - make an orphan a frame of this domain where it is
 * @domain: the domain
 * @prealloc: the call's preallocated frames, at least one; one is used up if the
 *	      answer is yes
 * @folio: an orphan that the caller found mapped under a page-table lock, with no
 *	   references but those of its mappings
 *
 * Its contents do not change, and its mappings stay. Only a domain that proves by
 * its seed that it is the heir may: for another one, the processes that map the
 * page could be those of a stranger, who would then share what this domain merges
 * next.
 *
 * Two calls may try at once, through page tables of two processes; one succeeds.
 */
bool uksm_adopt_frame(struct uksm_domain *domain,
		      struct uksm_prealloc *prealloc,
		      struct folio *folio)
{
	struct uksm_prealloc_frame *new = &prealloc->frame[prealloc->count - 1];
	unsigned long id = uksm_slot_frame_id(new->chunk, new->slot);

	if (cmpxchg((unsigned long *)&folio->private, domain->lineage,
		    id) != domain->lineage)
		return false;
	folio_get(folio);	/* the domain's own */
	uksm_insert_frame(new->chunk, new->slot, folio);
	prealloc->count--;
	uksm_prealloc_recycle(domain, new->folio);
	return true;
}

/**
 * uksm_frame_owner() - whose is a page that is marked as a frame?
 * @domain: the domain that asks
 * @folio: a page with UKSM_FRAME_MAPPING that is mapped and cannot go away
 *
 * A page that another call of the domain adopts just now looks foreign for a moment. One
 * that uksm_remove_frame() takes from a domain just now is an orphan: its mark was changed
 * before its id went, so whoever no longer finds the id finds the new mark.
 */
enum uksm_owner uksm_frame_owner(struct uksm_domain *domain,
				 const struct folio *folio)
{
	unsigned long word = (unsigned long)READ_ONCE(folio->private);
	u32 id = word;

	if (!id || word & BIT_ULL(63))
		return UKSM_OWNER_NONE;
	if (uksm_lookup_frame(&domain->frame_ids, id) == folio)
		return UKSM_OWNER_DOMAIN;
	smp_rmb();	/* pairs with that of uksm_remove_frame() */
	/* Its own domain may have added its sum meanwhile. */
	word = (unsigned long)READ_ONCE(folio->private);
	if (!word || word & BIT_ULL(63))
		return UKSM_OWNER_NONE;
	/* No frame is on the LRU; a page that ksmd marks just now may be. */
	return folio_test_lru((struct folio *)folio) ? UKSM_OWNER_NONE :
						       UKSM_OWNER_OTHER;
}

/**
 * uksm_remove_frame() - take a frame from a domain
 * @domain: the domain; domain->frames_lock is held for writing, or nobody uses it
 * @folio: the frame
 * @id: its id
 * @sound: whether its contents are what they were
 *
 * A mapped frame goes on as an orphan, which nobody adopts if it is not sound. An
 * unmapped one is kept for the next frame if it is, or freed; whoever still holds a
 * reference (a pipe that holds the page) keeps it.
 *
 * The mark comes first and the id goes last: in between, a page table of the frame
 * shows an orphan, and never a frame of a domain that nobody has.
 */
void uksm_remove_frame(struct uksm_domain *domain, struct folio *folio,
		       u32 id, bool sound)
{
	bool kept = false;

	if (!sound || uksm_poisoned(folio))
		WRITE_ONCE(folio->private, NULL);
	else if (uksm_mapcount(folio))
		WRITE_ONCE(folio->private, (void *)domain->lineage);
	else
		kept = uksm_pool_put(&domain->pool, folio);
	smp_wmb();	/* pairs with that of uksm_frame_owner() */
	uksm_erase_frame_id(&domain->frame_ids, id);
	uksm_unreserve_frames(domain, 1);
	if (!kept)
		folio_put(folio);
}

/**
 * uksm_release_frames() - make all frames of a domain orphans
 * @domain: a domain that nobody uses any more
 */
void uksm_release_frames(struct uksm_domain *domain)
{
	unsigned long id = 0;
	struct folio *folio;

	while ((folio = uksm_next_frame(&domain->frame_ids, &id))) {
		uksm_remove_frame(domain, folio, id++, true);
		cond_resched();
	}
	uksm_pool_drain(&domain->pool);
	uksm_frame_ids_destroy(&domain->frame_ids);
}
