// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that were frames and will be frames again
 *
 * Where memory changes, frames lose their last mapping while others are made, and
 * each costs a walk through the allocator and a charge. So a few of the freed pages
 * are kept, with their charge, and serve as the next frames. They are few, so that
 * an idle domain holds next to nothing. When the machine is short of memory they
 * are freed.
 *
 * A page in the pool has one reference, the pool's, and nobody maps it. It has the
 * mapping of a frame, by which guard_offline.c knows it, and no id. Its contents are
 * out of date and are overwritten before anybody can map it again (frame.c).
 */
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/numa.h>

#include "compat.h"
#include "pool.h"

/* Most pages in a pool: a quarter of a MiB. */
#define POOL_MAX	64
/* Of so many pages one on the wanted node is looked for. */
#define LOOKED_AT	4

void uksm_pool_init(struct uksm_pool *pool)
{
	spin_lock_init(&pool->lock);
	INIT_LIST_HEAD(&pool->pages);
}

/**
 * uksm_pool_put() - keep a page for the next frame
 * @pool: the domain's
 * @folio: off the LRU, mapped by nobody; the pool gets the caller's reference
 *
 * A page to which somebody else holds a reference is not kept: it may be read
 * later. Once nobody maps a page, nobody can get a reference by an address, so the
 * count that is read here stays. Neither sleeps nor fails otherwise.
 *
 * Return: false if it is not kept; the reference is still the caller's.
 */
bool uksm_pool_put(struct uksm_pool *pool, struct folio *folio)
{
	bool kept;

	if (folio_ref_count(folio) != 1 || uksm_poisoned(folio))
		return false;
	spin_lock(&pool->lock);
	kept = pool->count < POOL_MAX;
	if (kept) {
		folio->private = NULL;
		list_add(&folio->lru, &pool->pages);
		pool->count++;
	}
	spin_unlock(&pool->lock);
	return kept;
}

/*
 * The first page, or one of the next few that is on the node. With @only_there no other
 * than that, and next time the search begins at another page.
 */
static struct folio *choose(struct uksm_pool *pool, int node, bool only_there)
{
	struct folio *folio;
	int looked_at = 0;

	list_for_each_entry(folio, &pool->pages, lru) {
		if (folio_nid(folio) == node)
			return folio;
		if (++looked_at == LOOKED_AT)
			break;
	}
	if (only_there) {
		list_rotate_left(&pool->pages);
		return NULL;
	}
	return list_first_entry_or_null(&pool->pages, struct folio, lru);
}

/**
 * uksm_pool_get() - take a page out of the pool
 * @pool: the domain's
 * @node: where it should be
 * @only_there: it must be there
 *
 * Return: a page with a reference for the caller; NULL if there is none.
 */
struct folio *uksm_pool_get(struct uksm_pool *pool, int node, bool only_there)
{
	struct folio *folio;

	for (;;) {
		spin_lock(&pool->lock);
		folio = choose(pool, node, only_there);
		if (folio) {
			list_del_init(&folio->lru);
			pool->count--;
		}
		spin_unlock(&pool->lock);
		if (!folio || !uksm_poisoned(folio))
			return folio;
		/* Its memory has failed; the kernel does not allocate it again. */
		folio_put(folio);
	}
}

/**
 * uksm_pool_drain() - free all pages of the pool
 * @pool: the domain's
 *
 * Return: how many pages were freed.
 */
long uksm_pool_drain(struct uksm_pool *pool)
{
	struct folio *folio;
	long freed = 0;

	while ((folio = uksm_pool_get(pool, NUMA_NO_NODE, false))) {
		folio_put(folio);
		freed++;
	}
	return freed;
}
