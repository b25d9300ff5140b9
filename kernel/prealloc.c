// SPDX-License-Identifier: GPL-2.0-only
/*
 * Preallocated frames: all that new frames need, except contents
 *
 * A frame is made under a page-table lock, where nothing may sleep or fail, and only
 * there is it known whether an entry needs one. So each batch gets as many
 * preallocated frames as it can use at most. What it does not use serves the next
 * batch, and is freed at the end of the call.
 *
 * Frames can be neither moved nor swapped. So they never come from ZONE_MOVABLE or
 * CMA, their count is limited (frame_limit.c), and they are charged to the cgroup that
 * opened the domain, of whose memory they leave a margin (margin.c). Allocation never
 * calls the OOM killer, of the machine or of a cgroup: failure is an outcome. Pages that
 * were frames before come first (pool.c). Others are allocated GROUP at a time if nobody
 * has to search for them: one walk through the allocator and one charge instead of eight,
 * and pages that cannot be moved lie side by side.
 *
 * Nor does allocation reclaim memory of the machine, or touch its reserves: a frame can
 * come from another zone than the pages that it replaces, and that zone belongs to the
 * kernel. At its lowest mark the allocation fails and wakes kswapd. Only the cgroup that
 * pays reclaims its own memory, such as cache, when it is at its limit.
 *
 * A frame should lie on the node of the page that becomes it, which is known only under
 * the lock. So pages are allocated on the node of the page that last found none on its own
 * in this call, and lie elsewhere only in a batch in which the node changes. In a domain
 * that keeps nodes they never do: see handle_batch() of fold.c. The memory policy of the
 * caller does not count; its cpuset does.
 */
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/topology.h>

#include "bounds.h"
#include "compat.h"
#include "domain.h"
#include "faults.h"
#include "frame_limit.h"
#include "margin.h"
#include "pool.h"
#include "prealloc.h"

static gfp_t frame_gfp(const struct uksm_prealloc *prealloc)
{
	gfp_t gfp = UKSM_GFP | GFP_HIGHUSER | __GFP_ACCOUNT | __GFP_NOMEMALLOC;

	if (prealloc->keeps_nodes)
		gfp |= __GFP_THISNODE;
	if (uksm_fault(UKSM_FAULT_MOVABLE_FRAMES))
		gfp |= __GFP_MOVABLE;
	return gfp;
}

/* Small enough that the allocator has per-CPU lists of such blocks. */
#define GROUP_ORDER	3
#define GROUP		BIT(GROUP_ORDER)

static enum uksm_reason reserve(struct uksm_domain *domain,
				const struct uksm_prealloc *prealloc,
				unsigned int count)
{
	return uksm_reserve_frames(domain, count, prealloc->machine_limit);
}

/* Gets a slot for one more frame, from the chunk in use or another one. */
static int find_slot(struct uksm_domain *domain, struct uksm_prealloc *prealloc,
		     struct uksm_prealloc_frame *frame)
{
	struct uksm_chunk *chunk;
	int slot = -ENOSPC;

	chunk = list_first_entry_or_null(&prealloc->chunks, struct uksm_chunk,
					 link);
	if (chunk)
		slot = uksm_alloc_slot(chunk);
	while (slot < 0) {
		chunk = uksm_get_chunk(&domain->frame_ids);
		if (!chunk)
			return -ENOMEM;
		list_add(&chunk->link, &prealloc->chunks);
		slot = uksm_alloc_slot(chunk);
	}
	frame->chunk = chunk;
	frame->slot = slot;
	return 0;
}

static int prealloc_page(struct uksm_domain *domain,
			 struct uksm_prealloc *prealloc,
			 struct page *page)
{
	struct uksm_prealloc_frame *frame = &prealloc->frame[prealloc->count];
	struct folio *folio = page_folio(page);
	int error;

	error = find_slot(domain, prealloc, frame);
	if (error)
		return error;
	__folio_set_swapbacked(folio);
	folio->mapping = UKSM_FRAME_MAPPING;
	folio->private = (void *)(unsigned long)
		uksm_slot_frame_id(frame->chunk, frame->slot);
	frame->folio = folio;
	prealloc->count++;
	return 0;
}

/* Adds 2^@order frames, which are counted in the limit already. */
static int prealloc_pages(struct uksm_domain *domain,
			  struct uksm_prealloc *prealloc,
			  gfp_t gfp, unsigned int order)
{
	unsigned int count = BIT(order), i;
	struct page *page;

	page = alloc_pages_node(prealloc->node, gfp, order);
	if (!page)
		goto unreserve;
	if (order)
		split_page(page, order);
	for (i = 0; i < count; i++) {
		if (prealloc_page(domain, prealloc, page + i))
			break;
	}
	count -= i;
	if (!count)
		return 0;
	for (; i < BIT(order); i++)
		__free_page(page + i);
unreserve:
	uksm_unreserve_frames(domain, count);
	return -ENOMEM;
}

/* Adds a page that was a frame before, if there is one. */
static bool prealloc_pooled(struct uksm_domain *domain,
			    struct uksm_prealloc *prealloc)
{
	struct folio *folio;

	if (reserve(domain, prealloc, 1))
		return false;
	folio = uksm_pool_get(&domain->pool, prealloc->node,
			      prealloc->keeps_nodes);
	if (folio && !prealloc_page(domain, prealloc, &folio->page))
		return true;
	if (folio)
		folio_put(folio);
	uksm_unreserve_frames(domain, 1);
	return false;
}

/* Adds a group if one is free: neither reclaims nor compacts. */
static bool prealloc_group(struct uksm_domain *domain,
			   struct uksm_prealloc *prealloc)
{
	return !reserve(domain, prealloc, GROUP) &&
	       !prealloc_pages(domain, prealloc,
			       frame_gfp(prealloc) & ~__GFP_RECLAIM,
			       GROUP_ORDER);
}

/* Is the machine without memory for one frame, or only the cgroup that pays? */
static bool machine_is_full(const struct uksm_prealloc *prealloc)
{
	gfp_t gfp = frame_gfp(prealloc) & ~(__GFP_DIRECT_RECLAIM | __GFP_ACCOUNT);
	struct page *page = alloc_pages_node(prealloc->node, gfp, 0);

	if (page)
		__free_page(page);
	return !page;
}

static enum uksm_reason prealloc_one(struct uksm_domain *domain,
				     struct uksm_prealloc *prealloc, gfp_t gfp)
{
	enum uksm_reason reason = reserve(domain, prealloc, 1);

	if (reason == UKSM_REASON_NONE &&
	    prealloc_pages(domain, prealloc, gfp, 0))
		reason = UKSM_REASON_MEMORY;
	return reason;
}

/* Adds one page; the cgroup that pays reclaims at most once. */
static enum uksm_reason prealloc_single(struct uksm_domain *domain,
					struct uksm_prealloc *prealloc)
{
	gfp_t gfp = frame_gfp(prealloc);
	enum uksm_reason reason;

	reason = prealloc_one(domain, prealloc, gfp & ~__GFP_DIRECT_RECLAIM);
	if (reason == UKSM_REASON_MEMORY && !machine_is_full(prealloc))
		reason = prealloc_one(domain, prealloc, gfp);
	return reason;
}

/* How many can a page on prealloc->node become? */
static unsigned int usable(const struct uksm_prealloc *prealloc)
{
	unsigned int n = 0, i;

	if (!prealloc->keeps_nodes)
		return prealloc->count;
	for (i = 0; i < prealloc->count; i++)
		n += folio_nid(prealloc->frame[i].folio) == prealloc->node;
	return n;
}

static void release_frames(struct uksm_domain *domain,
			   struct uksm_prealloc *prealloc)
{
	struct uksm_prealloc_frame *frame;

	while (prealloc->count) {
		frame = &prealloc->frame[--prealloc->count];
		uksm_free_slot(frame->chunk, frame->slot);
		folio_put(frame->folio);
		uksm_unreserve_frames(domain, 1);
	}
}

/**
 * uksm_prealloc_init() - begin a call that may make frames
 * @prealloc: its preallocated frames
 * @domain: the domain
 */
void uksm_prealloc_init(struct uksm_prealloc *prealloc,
			const struct uksm_domain *domain)
{
	prealloc->keeps_nodes = uksm_keeps_nodes(domain);
	prealloc->count = 0;
	prealloc->reason = UKSM_REASON_SHARERS;
	prealloc->node = numa_mem_id();
	INIT_LIST_HEAD(&prealloc->chunks);
}

/**
 * uksm_prealloc_fill() - have so many frames, if memory and limit allow
 * @domain: the domain
 * @prealloc: the call's preallocated frames
 * @needed: how many, at most UKSM_LOCK_BATCH; where nodes are kept, of prealloc->node
 *
 * The caller holds no lock except domain->frames_lock. May sleep.
 */
void uksm_prealloc_fill(struct uksm_domain *domain,
			struct uksm_prealloc *prealloc,
			unsigned int needed)
{
	unsigned int ready = usable(prealloc);
	enum uksm_reason reason;
	struct mem_cgroup *old;

	if (ready >= needed)
		return;
	needed += prealloc->count - ready;
	if (needed > UKSM_LOCK_BATCH) {
		needed -= prealloc->count - ready;
		release_frames(domain, prealloc);
	}
	old = set_active_memcg(domain->memcg);
	prealloc->machine_limit = uksm_machine_frame_limit();
	while (prealloc->count < needed && prealloc_pooled(domain, prealloc))
		;
	if (prealloc->count < needed &&
	    (!uksm_leaves_margin(domain, needed - prealloc->count) ||
	     !uksm_kernel_has_room(needed - prealloc->count))) {
		prealloc->reason = UKSM_REASON_MEMORY;
		goto out;
	}
	while (prealloc->count + GROUP <= needed &&
	       prealloc_group(domain, prealloc))
		;
	while (prealloc->count < needed) {
		reason = prealloc_single(domain, prealloc);
		if (reason) {
			prealloc->reason = reason;
			break;
		}
	}
out:
	set_active_memcg(old);
}

/**
 * uksm_prealloc_choose() - find the frame for a page
 * @prealloc: the call's preallocated frames
 * @node: the node of the page
 *
 * Return: the last one, which is now one on that node if there is any; NULL if there is
 * none that may be used.
 */
struct uksm_prealloc_frame *
uksm_prealloc_choose(struct uksm_prealloc *prealloc, int node)
{
	struct uksm_prealloc_frame *frames = prealloc->frame;
	unsigned int last = prealloc->count - 1, i;

	for (i = prealloc->count; i-- > 0;) {
		if (folio_nid(frames[i].folio) == node) {
			swap(frames[i], frames[last]);
			return &frames[last];
		}
	}
	if (prealloc->keeps_nodes)
		return NULL;
	prealloc->node = node;
	return prealloc->count ? &frames[last] : NULL;
}

/**
 * uksm_prealloc_recycle() - free a page whose preallocated id another page got
 * @domain: the domain
 * @folio: the page
 *
 * Called under a page-table lock.
 */
void uksm_prealloc_recycle(struct uksm_domain *domain, struct folio *folio)
{
	if (!uksm_pool_put(&domain->pool, folio))
		folio_put(folio);
}

/**
 * uksm_prealloc_release() - free what the call did not use
 * @domain: the domain
 * @prealloc: the call's preallocated frames
 */
void uksm_prealloc_release(struct uksm_domain *domain,
			   struct uksm_prealloc *prealloc)
{
	struct uksm_chunk *chunk, *next;

	release_frames(domain, prealloc);
	list_for_each_entry_safe(chunk, next, &prealloc->chunks, link)
		uksm_put_chunk(&domain->frame_ids, chunk);
}
