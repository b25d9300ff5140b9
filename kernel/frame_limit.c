// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many frames there may be, of a domain and of the machine
 *
 * Frames can be neither moved nor swapped, so somebody must be able to say how many there
 * are at most. Each domain has a limit of its own, which CONFIGURE sets. All of them
 * together have the machine's: a part of the memory that frames can come from. That is
 * not all memory: ZONE_MOVABLE and CMA are for what can be moved, and pages of hugetlb
 * pools are taken, though the kernel counts them as managed.
 *
 * Memory and pools come and go, so the limit is computed each time that frames are
 * allocated: about a dozen loads for each node. If it falls below the number of frames,
 * they stay, and no new one is made.
 *
 * The part is 40 %. On a machine that may hibernate it is 25 %: the image must fit into
 * a half of memory, and what cannot be swapped is in it. That is a kernel with
 * hibernation on which this module has seen free swap. Who knows better, as with zram
 * alone, sets frame_percent.
 *
 * Where there is ZONE_MOVABLE or CMA, pools of huge pages can lie in it. They are
 * subtracted all the same, but at most three quarters of what is left then: the limit can
 * be too low, but not 0.
 *
 * There, too, merging can free memory that only what can be moved may take, and take
 * frames from zones that are short, which then are without memory for the kernel itself.
 * So frames leave UKSM_FRAME_MARGIN pages of these zones above the marks at which reclaim
 * ends. Cache counts as free; what a zone keeps from allocations that could lie in a
 * higher one does not. Elsewhere frames take no more than merging frees.
 */
#include <linux/atomic.h>
#include <linux/minmax.h>
#include <linux/mmzone.h>
#include <linux/moduleparam.h>
#include <linux/nodemask.h>
#include <linux/swap.h>

#include "frame_limit.h"
#include "symbols.h"

#define PERCENT			40
#define HIBERNATING_PERCENT	25
#define MAX_PERCENT		90

static atomic_long_t machine_frames = ATOMIC_LONG_INIT(0);

/* 0: decided here */
static unsigned int frame_percent;

static int set_percent(const char *value, const struct kernel_param *parameter)
{
	return param_set_uint_minmax(value, parameter, 0, MAX_PERCENT);
}

static const struct kernel_param_ops percent_ops = {
	.set = set_percent,
	.get = param_get_uint,
};
module_param_cb(frame_percent, &percent_ops, &frame_percent, 0644);
MODULE_PARM_DESC(frame_percent, "most frames of all domains, in percent of the memory they can come from, up to 90; 0: 40, or 25 where the machine may hibernate");

static bool may_hibernate(void)
{
	static bool had_swap;

	if (!IS_ENABLED(CONFIG_HIBERNATION))
		return false;
	if (get_nr_swap_pages() > 0)
		WRITE_ONCE(had_swap, true);
	return READ_ONCE(had_swap);
}

static unsigned int percent(void)
{
	/* Looks for swap in any case, lest it has gone when the parameter is 0 again. */
	unsigned int usual = may_hibernate() ? HIBERNATING_PERCENT : PERCENT;

	return READ_ONCE(frame_percent) ?: usual;
}

/* Sums up pages of the zones from which frames come. */
static long sum_of_zones(long (*pages_of)(struct zone *zone))
{
	struct zone *zones;
	long sum = 0;
	int node, i;

	for_each_online_node(node) {
		zones = NODE_DATA(node)->node_zones;
		for (i = 0; i <= ZONE_NORMAL; i++)
			sum += pages_of(&zones[i]);
	}
	return sum;
}

static long cma_of(struct zone *zone)
{
	return zone_cma_pages(zone);
}

/* Pages for frames that a zone has, or can soon have, above its high mark. */
static long room_of(struct zone *zone)
{
	long room = zone_page_state(zone, NR_FREE_PAGES);

	room -= zone_page_state(zone, NR_FREE_CMA_PAGES);
	room += zone_page_state(zone, NR_ZONE_INACTIVE_FILE);
	room += zone_page_state(zone, NR_ZONE_ACTIVE_FILE);
	room -= high_wmark_pages(zone) + zone->lowmem_reserve[ZONE_NORMAL];
	return max(room, 0L);
}

/**
 * uksm_machine_frames() - how many frames have all domains?
 *
 * Return: frames, with those that calls under way have preallocated.
 */
unsigned long uksm_machine_frames(void)
{
	return atomic_long_read(&machine_frames);
}

/* Is there memory that frames cannot come from, but the pages that they replace can? */
static bool has_movable_memory(void)
{
	int node;

	for_each_online_node(node) {
		if (managed_zone(&NODE_DATA(node)->node_zones[ZONE_MOVABLE]))
			return true;
	}
	return sum_of_zones(cma_of) > 0;
}

/**
 * uksm_machine_frame_limit() - how many may they have?
 *
 * Return: frames; changes with the memory that there is.
 */
unsigned long uksm_machine_frame_limit(void)
{
	/* What the zones manage, without their high watermarks. */
	long pages = nr_free_buffer_pages(), taken = uksm_hugetlb_pages();

	pages = max(pages - sum_of_zones(cma_of), 0L);
	pages -= min(taken, has_movable_memory() ? pages - pages / 4 : pages);
	return mult_frac(pages, percent(), 100);
}

/**
 * uksm_kernel_has_room() - do frames leave the kernel enough of its own memory?
 * @frames: how many more
 */
bool uksm_kernel_has_room(unsigned int frames)
{
	return !has_movable_memory() ||
	       sum_of_zones(room_of) >= (long)frames + UKSM_FRAME_MARGIN;
}

/**
 * uksm_reserve_frames() - count frames that a domain is about to have
 * @domain: the domain
 * @count: how many
 * @machine_limit: uksm_machine_frame_limit(), computed once for many calls
 *
 * Return: UKSM_REASON_NONE, or the limit that forbids it; then nothing is counted.
 */
enum uksm_reason uksm_reserve_frames(struct uksm_domain *domain,
				     unsigned int count,
				     unsigned long machine_limit)
{
	enum uksm_reason reason = UKSM_REASON_NONE;

	if (atomic_long_add_return(count, &domain->nr_frames) >
	    domain->frame_limit)
		reason = UKSM_REASON_FRAMES;
	if (atomic_long_add_return(count, &machine_frames) > machine_limit &&
	    reason == UKSM_REASON_NONE)
		reason = UKSM_REASON_MACHINE;
	if (reason != UKSM_REASON_NONE)
		uksm_unreserve_frames(domain, count);
	return reason;
}

/**
 * uksm_unreserve_frames() - frames are gone, or were not made
 * @domain: the domain that had them
 * @count: how many
 */
void uksm_unreserve_frames(struct uksm_domain *domain, unsigned int count)
{
	atomic_long_sub(count, &domain->nr_frames);
	atomic_long_sub(count, &machine_frames);
}
