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
 * allocated: about a dozen loads for each node. Where it falls below what there is, no
 * frame is lost, and none is added.
 *
 * The part is 40 %. On a machine that may hibernate it is 25 %: the image must fit into
 * a half of memory, and what cannot be swapped is in it. A kernel with hibernation that
 * has ever seen swap is taken for such a machine. Who knows better sets frame_percent.
 *
 * Pools of small huge pages can lie in ZONE_MOVABLE. They are subtracted as well: the
 * limit is too low then, never too high.
 */
#include <linux/atomic.h>
#include <linux/minmax.h>
#include <linux/mmzone.h>
#include <linux/moduleparam.h>
#include <linux/nodemask.h>
#include <linux/swap.h>
#include <linux/vmstat.h>

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
	return READ_ONCE(frame_percent) ?:
	       may_hibernate() ? HIBERNATING_PERCENT : PERCENT;
}

/* Frames come from these zones of each node. */
#define for_each_frame_zone(zone, node)					\
	for_each_online_node(node)					\
		for (zone = NODE_DATA(node)->node_zones;		\
		     zone <= &NODE_DATA(node)->node_zones[ZONE_NORMAL];	\
		     zone++)

/**
 * uksm_machine_frames() - how many frames have all domains?
 *
 * Return: frames, with those that calls under way have preallocated.
 */
unsigned long uksm_machine_frames(void)
{
	return atomic_long_read(&machine_frames);
}

/**
 * uksm_machine_frame_limit() - how many may they have?
 *
 * Return: frames; changes with the memory that there is.
 */
unsigned long uksm_machine_frame_limit(void)
{
	/* What the zones manage, without their high watermarks. */
	long pages = nr_free_buffer_pages() - uksm_hugetlb_pages();
	struct zone *zone;
	int node;

	for_each_frame_zone(zone, node)
		pages -= zone_cma_pages(zone);
	return mult_frac(max(pages, 0L), percent(), 100);
}

/**
 * uksm_leaves_watermarks() - can so many frames be had without the kernel's reserves?
 * @frames: how many
 *
 * What the kernel takes for itself comes from the same zones. Below the low watermark it
 * must reclaim for that, so frames stop there, and wait for reclaim as everybody does. A
 * half of the page cache in these zones counts as free.
 */
bool uksm_leaves_watermarks(unsigned int frames)
{
	long left = -(long)frames;
	struct zone *zone;
	int node;

	for_each_frame_zone(zone, node) {
		left += zone_page_state(zone, NR_FREE_PAGES);
		left += zone_page_state(zone, NR_ZONE_INACTIVE_FILE) / 2;
		left += zone_page_state(zone, NR_ZONE_ACTIVE_FILE) / 2;
		left -= low_wmark_pages(zone);
	}
	return left >= 0;
}

/**
 * uksm_reserve_frames() - count frames that a domain is about to have
 * @domain: the domain
 * @count: how many
 * @machine_limit: uksm_machine_frame_limit(), of which the caller keeps a copy
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
