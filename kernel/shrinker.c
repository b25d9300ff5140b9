// SPDX-License-Identifier: GPL-2.0-only
/*
 * Free frames without mappings when memory is short
 *
 * A frame that loses its last mapping stays until user space asks for it to be
 * freed, and user space may be stopped, slow, or waiting for memory itself. So
 * reclaim asks us, as it asks other caches. A shrinker scans as many frames as
 * reclaim says, and frees those that nobody maps, and the pages of the pool. Before
 * the machine kills a process, the OOM notifier does that for more frames.
 *
 * Reclaim can come from anywhere, from our own allocations too, so every lock is
 * only tried for. Whoever holds it allocates or uses frames, and goes on.
 *
 * Both are bounded. Nearly all frames are mapped, and looking at one is a cache miss.
 * - Reclaim scans a half of what we call freeable, at any priority (seeks is 0: what is
 *   freed here is of no use to anybody). That is the pool, and of the frames the share that
 *   the last scans found without mappings, OFFER_FRAMES at most. Where they found none, it
 *   is once a second a part of all, so that the share falls within a minute or two of the
 *   end of a process. Freed pages are counted as reclaimed: a reclaim that seems to free
 *   nothing does not collect the pages that other CPUs keep (drain_all_pages()), and a
 *   process is killed while they are free.
 * - The OOM notifier runs while all who want memory wait for it, and the kernel kills a
 *   process if it frees nothing. So it looks at every frame until it has freed one, for a
 *   second at most; then it ends soon, and goes on from there the next time: the kernel
 *   tries again, and asks again before each process that it kills.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/oom.h>
#include <linux/sched.h>
#include <linux/shrinker.h>

#include "compat.h"
#include "domain.h"
#include "faults.h"
#include "frame.h"
#include "pool.h"
#include "shrinker.h"
#include "shrinker_registration.h"

/* How long the OOM notifier looks: once it has freed a page, and if it has not. */
#define OOM_JIFFIES	DIV_ROUND_UP(HZ, 50)
#define OOM_MAX_JIFFIES	HZ
/* Frames that it looks at in a hold of a domain's lock. */
#define HOLD_FRAMES	1024

/* The unit of shares, and the part of a rise that one scan is believed. */
#define ALL_MAPPED	1024
#define RISE_PARTS	4

/* Frames of a domain that reclaim is offered at a time. */
#define OFFER_FRAMES	16384

/* What it is offered where all seem mapped: of a half of fewer it would scan none. */
#define PROBE_PART	32
#define MIN_PROBE	256
#define PROBE_JIFFIES	HZ

/*
 * The share of mapped frames falls at once, when a process with many of them has ended,
 * and rises slowly, since the frames of a process lie together.
 */
static void note_mapped(struct uksm_domain *domain, long scanned, long freed)
{
	unsigned int seen, before = domain->shrink_mapped;

	if (!scanned)
		return;
	WRITE_ONCE(domain->shrink_time, jiffies);
	seen = (scanned - freed) * ALL_MAPPED / scanned;
	if (seen > before)
		seen = before + DIV_ROUND_UP(seen - before, RISE_PARTS);
	WRITE_ONCE(domain->shrink_mapped, seen);
}

/*
 * Only FOLD maps a frame that has no mappings (fork copies mappings that exist), and
 * it holds domain->frames_lock for reading. So a mapcount of 0 that is read with the
 * write side held stays 0.
 */
static long shrink_locked(struct uksm_domain *domain, long budget,
			  unsigned long end)
{
	long freed = uksm_pool_drain(&domain->pool), scanned = 0;
	struct uksm_counters counters = {};
	struct folio *folio;
	int i;

	while (scanned < budget && time_before(jiffies, end)) {
		folio = uksm_next_frame(&domain->frame_ids,
					&domain->shrink_cursor);
		if (!folio) {
			domain->shrink_cursor = 0;
			break;
		}
		for (i = 0; i < 16 && uksm_fault(UKSM_FAULT_SLOW_SCAN); i++)
			ndelay(19 * NSEC_PER_USEC);
		scanned++;
		if (!uksm_mapcount(folio)) {
			uksm_remove_frame(domain, folio, domain->shrink_cursor,
					  true);
			counters.frames_freed++;
		}
		domain->shrink_cursor++;
	}
	note_mapped(domain, scanned, counters.frames_freed);
	uksm_add_counters(domain, &counters);
	uksm_pool_drain(&domain->pool);
	return freed + counters.frames_freed;
}

/*
 * Scans up to @budget frames, until @end, and adds how many pages were freed. Returns
 * false if the domain is in use.
 */
static bool shrink_domain(struct uksm_domain *domain, long budget,
			  unsigned long end, long *freed)
{
	if (!down_write_trylock(&domain->frames_lock))
		return false;
	*freed += shrink_locked(domain, budget, end);
	up_write(&domain->frames_lock);
	return true;
}

static long count_domain(struct uksm_domain *domain, long unused)
{
	long frames = atomic_long_read(&domain->nr_frames);
	unsigned int mapped = READ_ONCE(domain->shrink_mapped);
	long expected = frames * (ALL_MAPPED - mapped) / ALL_MAPPED;

	if (!expected && frames &&
	    time_after(jiffies, READ_ONCE(domain->shrink_time) + PROBE_JIFFIES))
		expected = max_t(long, frames / PROBE_PART, MIN_PROBE);
	return min_t(long, expected, OFFER_FRAMES) +
	       READ_ONCE(domain->pool.count);
}

static unsigned long count_frames(struct shrinker *shrinker,
				  struct shrink_control *control)
{
	return uksm_each_domain(count_domain, 0) ?: SHRINK_EMPTY;
}

static long scan_domain(struct uksm_domain *domain, long budget)
{
	long freed = 0;

	shrink_domain(domain, budget, jiffies + MAX_JIFFY_OFFSET, &freed);
	uksm_account_reclaimed(freed);
	return freed;
}

static long count_one(struct uksm_domain *domain, long unused)
{
	return 1;
}

static unsigned long scan_frames(struct shrinker *shrinker,
				 struct shrink_control *control)
{
	long domains = uksm_each_domain(count_one, 0);

	/* All domains together look at what the kernel books. */
	if (!domains)
		return 0;
	return uksm_each_domain(scan_domain,
				DIV_ROUND_UP((long)control->nr_to_scan,
					     domains));
}

/* One run of the OOM notifier: all domains in turn, a piece of each at a time. */
struct rescue {
	unsigned long begun;
	long looked;		/* frames of each domain, in the pieces before this one */
	long freed;
	bool goes_on;		/* some domain has more */
	bool is_in_use;		/* some domain is: perhaps it gets free */
};

static bool is_over(const struct rescue *rescue)
{
	unsigned long time = rescue->freed ? OOM_JIFFIES : OOM_MAX_JIFFIES;

	return time_after_eq(jiffies, rescue->begun + time);
}

static long rescue_domain(struct uksm_domain *domain, long argument)
{
	struct rescue *rescue = (struct rescue *)argument;
	unsigned long end = rescue->begun + OOM_MAX_JIFFIES;

	/* The last piece before the first frame may be a short one. */
	if (rescue->looked >= atomic_long_read(&domain->nr_frames) + HOLD_FRAMES)
		return 0;
	if (is_over(rescue))
		return 0;
	rescue->goes_on = true;
	if (!shrink_domain(domain, HOLD_FRAMES, end, &rescue->freed))
		rescue->is_in_use = true;
	/* The chain is one that may sleep. */
	cond_resched();
	return 0;
}

static int notify_oom(struct notifier_block *block, unsigned long unused,
		      void *freed)
{
	struct rescue rescue = { .begun = jiffies };

	do {
		rescue.goes_on = false;
		rescue.is_in_use = false;
		uksm_each_domain(rescue_domain, (long)&rescue);
		/* What could not be looked at is still to be looked at. */
		if (rescue.is_in_use)
			schedule_timeout_killable(1);
		else
			rescue.looked += HOLD_FRAMES;
	} while (rescue.goes_on && !is_over(&rescue));
	*(unsigned long *)freed += rescue.freed;
	return NOTIFY_OK;
}

static struct notifier_block oom_block = { .notifier_call = notify_oom };

#ifdef UKSM_TEST
static int set_oom(const char *value, const struct kernel_param *parameter)
{
	unsigned long freed = 0;

	notify_oom(&oom_block, 0, &freed);
	return 0;
}

static const struct kernel_param_ops oom_ops = { .set = set_oom };
module_param_cb(oom, &oom_ops, NULL, 0200);
MODULE_PARM_DESC(oom, "do what is done before a process is killed (test builds only)");
#endif

/**
 * uksm_shrinker_init() - let reclaim free unmapped frames
 *
 * Return: 0; -ENOMEM.
 */
int uksm_shrinker_init(void)
{
	int error = add_shrinker();

	if (error)
		return error;
	error = register_oom_notifier(&oom_block);
	if (error)
		remove_shrinker();
	return error;
}

/** uksm_shrinker_exit() - undo uksm_shrinker_init() */
void uksm_shrinker_exit(void)
{
	unregister_oom_notifier(&oom_block);
	remove_shrinker();
}
