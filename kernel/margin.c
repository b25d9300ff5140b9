// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cgroup that pays for frames keeps some memory
 *
 * Frames cannot be reclaimed. If they took all that a cgroup may have, the next page
 * that anybody there touches would call its OOM killer: the daemon that merges, or
 * whoever else lives there. So frames leave UKSM_FRAME_MARGIN pages, or a quarter of
 * the limit if that is less.
 *
 * What is charged can be cache, which reclaim would give back. So where the counter is
 * near the limit, as many pages as the margin and the frames need are allocated and
 * charged, in a way that reclaims once and then fails, and freed at once. That takes
 * half a millisecond or more; so a success is good for half a margin of frames, and
 * after a failure nobody tries again for a tenth of a second.
 *
 * Two calls of one domain may both use what is left of a success. The margin is for
 * that, too.
 */
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/memcontrol.h>
#include <linux/minmax.h>
#include <linux/mm.h>

#include "domain.h"
#include "margin.h"

#define PART	4
#define PAUSE	(HZ / 10)

#ifdef CONFIG_MEMCG

/*
 * The margin of the cgroup, if fewer pages than that and @frames more are left of its
 * limit or an ancestor's; 0 if there are more.
 */
static unsigned long missing_margin(struct mem_cgroup *memcg,
				    unsigned long frames)
{
	unsigned long margin = UKSM_FRAME_MARGIN;
	struct page_counter *counter;
	bool near = false;

	for (counter = &memcg->memory; counter; counter = counter->parent)
		margin = min(margin, READ_ONCE(counter->max) / PART);
	for (counter = &memcg->memory; counter; counter = counter->parent) {
		if (page_counter_read(counter) + margin + frames >
		    READ_ONCE(counter->max))
			near = true;
	}
	return near ? margin : 0;
}

/* Can so many pages be had and charged? Frees them. */
static bool can_have(unsigned long pages, gfp_t gfp)
{
	struct page *page, *next;
	LIST_HEAD(trial);
	unsigned long n;

	for (n = 0; n < pages; n++) {
		page = alloc_page(gfp);
		if (!page)
			break;
		list_add(&page->lru, &trial);
	}
	list_for_each_entry_safe(page, next, &trial, lru) {
		list_del(&page->lru);
		__free_page(page);
	}
	return n == pages;
}

/**
 * uksm_leaves_margin() - may the domain have more frames?
 * @domain: the domain, whose cgroup is the active one
 * @frames: how many more
 * @gfp: how frames are allocated
 *
 * The caller holds no lock except domain->frames_lock. May sleep, and reclaim.
 */
bool uksm_leaves_margin(struct uksm_domain *domain, unsigned int frames,
			gfp_t gfp)
{
	unsigned long margin, granted, failed = READ_ONCE(domain->margin_failed);

	if (!domain->memcg)
		return true;
	margin = missing_margin(domain->memcg, frames);
	if (!margin)
		return true;
	granted = READ_ONCE(domain->margin_granted);
	if (granted >= frames) {
		WRITE_ONCE(domain->margin_granted, granted - frames);
		return true;
	}
	if (failed && time_before(jiffies, failed + PAUSE))
		return false;
	granted = max(margin / 2, (unsigned long)frames);
	if (!can_have(margin + granted, gfp)) {
		/* 0 stands for no failure. */
		WRITE_ONCE(domain->margin_failed, jiffies ?: 1);
		return false;
	}
	WRITE_ONCE(domain->margin_failed, 0);
	WRITE_ONCE(domain->margin_granted, granted - frames);
	return true;
}

#else /* CONFIG_MEMCG */

/**
 * uksm_leaves_margin() - may the domain have more frames?
 * @domain: the domain
 * @frames: how many more
 * @gfp: how frames are allocated
 *
 * Nobody pays.
 */
bool uksm_leaves_margin(struct uksm_domain *domain, unsigned int frames,
			gfp_t gfp)
{
	return true;
}

#endif /* CONFIG_MEMCG */
