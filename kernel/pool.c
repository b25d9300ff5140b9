// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that were frames and will be again
 *
 * Problem: where memory changes, frames lose their last mapping as others are made,
 * and each costs a walk through the allocator and a charge. Approach: a few of the
 * pages that are freed are kept, with their charge, and serve as the next frames.
 * Their number is small, so that an idle domain holds next to nothing, and they
 * are given back when the machine is short of memory.
 *
 * A page in the store has one reference, the store's, and nobody maps it. It bears
 * no mark of a frame. Its contents are of the past and are overwritten before
 * anybody can map it again (frame.c).
 */
#include <linux/list.h>
#include <linux/mm.h>

#include "compat.h"
#include "pool.h"

/* Most pages kept: a quarter of a MiB. */
#define MOST	64

void uksm_store_init(struct uksm_store *store)
{
	spin_lock_init(&store->lock);
	INIT_LIST_HEAD(&store->pages);
}

/**
 * uksm_store_put() - keep a page for the next frame
 * @store: the domain's
 * @folio: off the LRU, mapped by nobody; the caller's reference is given away
 *
 * A page to which somebody else refers is not kept: he may read it later. Once
 * nobody maps a page, nobody can begin to refer to it by an address, so what is
 * seen here stays. Neither sleeps nor fails otherwise.
 *
 * Return: false if it is not kept; the reference is still the caller's.
 */
bool uksm_store_put(struct uksm_store *store, struct folio *folio)
{
	bool kept;

	if (folio_ref_count(folio) != 1 || uksm_poisoned(folio))
		return false;
	spin_lock(&store->lock);
	kept = store->count < MOST;
	if (kept) {
		folio->mapping = NULL;
		folio->private = NULL;
		list_add(&folio->lru, &store->pages);
		store->count++;
	}
	spin_unlock(&store->lock);
	return kept;
}

/**
 * uksm_store_get() - take a page out of the store
 * @store: the domain's
 *
 * Return: a page with a reference for the caller; NULL if there is none.
 */
struct folio *uksm_store_get(struct uksm_store *store)
{
	struct folio *folio;

	for (;;) {
		spin_lock(&store->lock);
		folio = list_first_entry_or_null(&store->pages, struct folio,
						 lru);
		if (folio) {
			list_del_init(&folio->lru);
			store->count--;
		}
		spin_unlock(&store->lock);
		if (!folio || !uksm_poisoned(folio))
			return folio;
		/* Its memory failed meanwhile; the kernel keeps it away. */
		folio_put(folio);
	}
}

/**
 * uksm_store_empty() - give all pages back to the machine
 * @store: the domain's
 *
 * Return: how many there were.
 */
long uksm_store_empty(struct uksm_store *store)
{
	struct folio *folio;
	long freed = 0;

	while ((folio = uksm_store_get(store))) {
		folio_put(folio);
		freed++;
	}
	return freed;
}
