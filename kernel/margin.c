// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cgroup that pays for frames keeps some memory
 *
 * Frames cannot be reclaimed. If they took all that a cgroup may have, the next page
 * that anybody there touches would call its OOM killer: the daemon that merges, or
 * whoever else lives there. So frames leave UKSM_FRAME_MARGIN pages, or a quarter of
 * the limit if that is less.
 *
 * What is charged can be cache, which reclaim gives back when the limit is met. So the
 * cgroup's own cache counts as free. That of others below an ancestor's limit does not:
 * near such a limit fewer frames are made than could be.
 *
 * Nothing is allocated to find that out. Whoever holds the margin for a trial, and is
 * just then not allowed to run (cpu.max), makes others meet the limit.
 *
 * All numbers are read without locks and may be out of date. The margin is for that,
 * too: each frame is charged in a way that fails at the limit.
 */
#include <linux/memcontrol.h>
#include <linux/minmax.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>

#include "compat.h"
#include "domain.h"
#include "margin.h"

#define PART	4

#ifdef CONFIG_MEMCG

/* Pages of files on the cgroup's own lists. */
static unsigned long cache_of(struct mem_cgroup *memcg)
{
	unsigned long pages = 0;
	int node, zone;

	for_each_online_node(node) {
		struct mem_cgroup_per_node *lists = memcg->nodeinfo[node];

		for (zone = 0; zone < MAX_NR_ZONES; zone++) {
			pages += READ_ONCE(lists->lru_zone_size[zone][LRU_INACTIVE_FILE]);
			pages += READ_ONCE(lists->lru_zone_size[zone][LRU_ACTIVE_FILE]);
		}
	}
	return pages;
}

/* Are so many pages left of all limits, if so many of those in use can be had? */
static bool has_room(struct mem_cgroup *memcg, unsigned long frames,
		     unsigned long cache)
{
	struct page_counter *counter;

	for (counter = &memcg->memory; counter; counter = counter->parent) {
		unsigned long max = READ_ONCE(counter->max);
		unsigned long margin = min(max / PART,
					   (unsigned long)UKSM_FRAME_MARGIN);

		if (page_counter_read(counter) + margin + frames > max + cache)
			return false;
	}
	return true;
}

/**
 * uksm_leaves_margin() - may the domain have more frames?
 * @domain: the domain
 * @frames: how many more
 */
bool uksm_leaves_margin(struct uksm_domain *domain, unsigned int frames)
{
	struct mem_cgroup *memcg = domain->memcg;

	/* Without accounting of kernel memory nobody is charged with frames. */
	return !memcg || !uksm_memcg_charges_kernel() ||
	       has_room(memcg, frames, 0) ||
	       has_room(memcg, frames, cache_of(memcg));
}

#else /* CONFIG_MEMCG */

/**
 * uksm_leaves_margin() - may the domain have more frames?
 * @domain: the domain
 * @frames: how many more
 *
 * Nobody pays.
 */
bool uksm_leaves_margin(struct uksm_domain *domain, unsigned int frames)
{
	return true;
}

#endif /* CONFIG_MEMCG */
