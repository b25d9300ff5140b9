// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blanks: all that new frames need, but their contents
 *
 * Problem: a frame is made under a page-table lock, where nothing may sleep or
 * fail, and whether an entry will need one is known only there. Approach: each
 * batch gets as many blanks as it can use at most; what it leaves over serves
 * the next, and is given back at the end of the call.
 *
 * Memory: frames can be neither moved nor swapped. So they never come from
 * ZONE_MOVABLE or CMA, their count is capped, and they are charged to the
 * cgroup that opened the domain. Allocation never calls the OOM killer, be it
 * the machine's or a cgroup's: failure is an outcome. Pages that were frames
 * before come first (pool.c). Others are taken GROUP at a time where that costs
 * nobody a search: one walk through the allocator and one charge instead of eight,
 * and pages that cannot be moved lie side by side.
 */
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>

#include "compat.h"
#include "pool.h"
#include "prealloc.h"

#define FRAME_GFP	(UKSM_GFP | GFP_HIGHUSER | __GFP_ACCOUNT)

/* Small enough that the allocator has lists for each processor of them. */
#define GROUP_ORDER	3
#define GROUP		BIT(GROUP_ORDER)

/* Raises the count of frames by @count, or says that the cap is reached. */
static bool reserve_frames(struct uksm_domain *domain, unsigned int count)
{
	if (atomic_long_add_return(count, &domain->nr_frames) <=
	    domain->frame_limit)
		return true;
	atomic_long_sub(count, &domain->nr_frames);
	return false;
}

/* A slot for one more blank, from the chunk in use or another one. */
static int find_slot(struct uksm_domain *domain, struct uksm_blanks *blanks,
		     struct uksm_blank *blank)
{
	struct uksm_chunk *chunk;
	int slot = -ENOSPC;

	chunk = list_first_entry_or_null(&blanks->chunks, struct uksm_chunk,
					 link);
	if (chunk)
		slot = uksm_reserve_slot(chunk);
	while (slot < 0) {
		chunk = uksm_take_chunk(&domain->numbers);
		if (!chunk)
			return -ENOMEM;
		list_add(&chunk->link, &blanks->chunks);
		slot = uksm_reserve_slot(chunk);
	}
	blank->chunk = chunk;
	blank->slot = slot;
	return 0;
}

static int add_blank(struct uksm_domain *domain, struct uksm_blanks *blanks,
		     struct page *page)
{
	struct uksm_blank *blank = &blanks->blank[blanks->count];
	struct folio *folio = page_folio(page);
	int error;

	error = find_slot(domain, blanks, blank);
	if (error)
		return error;
	__folio_set_swapbacked(folio);
	folio->mapping = UKSM_FRAME_MAPPING;
	folio->private = (void *)(unsigned long)
		uksm_slot_number(blank->chunk, blank->slot);
	blank->folio = folio;
	blanks->count++;
	return 0;
}

/* Adds 2^@order blanks whose place in the cap is reserved. */
static int add_blanks(struct uksm_domain *domain, struct uksm_blanks *blanks,
		      gfp_t gfp, unsigned int order)
{
	unsigned int count = BIT(order), i;
	struct page *page;

	page = alloc_pages(gfp, order);
	if (!page)
		goto unreserve;
	if (order)
		split_page(page, order);
	for (i = 0; i < count; i++) {
		if (add_blank(domain, blanks, page + i))
			break;
	}
	count -= i;
	if (!count)
		return 0;
	for (; i < BIT(order); i++)
		__free_page(page + i);
unreserve:
	atomic_long_sub(count, &domain->nr_frames);
	return -ENOMEM;
}

/* Adds a page that was a frame before, if there is one. */
static bool add_stored(struct uksm_domain *domain, struct uksm_blanks *blanks)
{
	struct folio *folio;

	if (!reserve_frames(domain, 1))
		return false;
	folio = uksm_store_get(&domain->store);
	if (folio && !add_blank(domain, blanks, &folio->page))
		return true;
	if (folio)
		folio_put(folio);
	atomic_long_dec(&domain->nr_frames);
	return false;
}

/* Takes what is at hand: it neither reclaims nor compacts. */
static bool add_group(struct uksm_domain *domain, struct uksm_blanks *blanks)
{
	return reserve_frames(domain, GROUP) &&
	       !add_blanks(domain, blanks, FRAME_GFP & ~__GFP_RECLAIM,
			   GROUP_ORDER);
}

/**
 * uksm_blanks_begin() - a call begins that may make frames
 * @blanks: its blanks
 */
void uksm_blanks_begin(struct uksm_blanks *blanks)
{
	blanks->count = 0;
	blanks->why_none = UKSM_REASON_SHARERS;
	INIT_LIST_HEAD(&blanks->chunks);
}

/**
 * uksm_blanks_provide() - have so many blanks, as far as memory and cap allow
 * @domain: the domain
 * @blanks: the call's blanks
 * @needed: how many, at most UKSM_LOCK_BATCH
 *
 * Called without locks but domain->reaping; it may sleep, and reclaims once at
 * most for each.
 */
void uksm_blanks_provide(struct uksm_domain *domain, struct uksm_blanks *blanks,
			 unsigned int needed)
{
	struct mem_cgroup *old = set_active_memcg(domain->memcg);

	while (blanks->count < needed && add_stored(domain, blanks))
		;
	while (blanks->count + GROUP <= needed && add_group(domain, blanks))
		;
	while (blanks->count < needed) {
		if (!reserve_frames(domain, 1)) {
			blanks->why_none = UKSM_REASON_FRAMES;
			break;
		}
		if (add_blanks(domain, blanks, FRAME_GFP, 0)) {
			blanks->why_none = UKSM_REASON_MEMORY;
			break;
		}
	}
	set_active_memcg(old);
}

/**
 * uksm_blank_unused() - the page of a blank whose number another page got
 * @domain: the domain
 * @folio: the page
 *
 * Called under a page-table lock.
 */
void uksm_blank_unused(struct uksm_domain *domain, struct folio *folio)
{
	if (!uksm_store_put(&domain->store, folio))
		folio_put(folio);
}

/**
 * uksm_blanks_end() - give back what the call did not use
 * @domain: the domain
 * @blanks: the call's blanks
 */
void uksm_blanks_end(struct uksm_domain *domain, struct uksm_blanks *blanks)
{
	struct uksm_chunk *chunk, *next;
	struct uksm_blank *blank;

	while (blanks->count) {
		blank = &blanks->blank[--blanks->count];
		uksm_cancel_slot(blank->chunk, blank->slot);
		folio_put(blank->folio);
		atomic_long_dec(&domain->nr_frames);
	}
	list_for_each_entry_safe(chunk, next, &blanks->chunks, link)
		uksm_return_chunk(&domain->numbers, chunk);
}
