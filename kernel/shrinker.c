// SPDX-License-Identifier: GPL-2.0-only
/*
 * Free frames without mappings when memory is short
 *
 * A frame that loses its last mapping stays until user space asks for it to be
 * freed, and user space may be stopped, slow, or waiting for memory itself. So
 * reclaim asks us, as it asks other caches. A shrinker scans as many frames as
 * reclaim says, and frees those that nobody maps, and the pages of the pool. Before
 * the machine kills a process, the OOM notifier does that for all frames.
 *
 * Reclaim can come from anywhere, from our own allocations too, so every lock is
 * only tried for. Whoever holds it allocates or uses frames, and goes on.
 */
#include <linux/mm.h>
#include <linux/oom.h>
#include <linux/shrinker.h>

#include "domain.h"
#include "frame.h"
#include "pool.h"
#include "shrinker.h"

/*
 * Only FOLD maps a frame that has no mappings (fork copies mappings that exist), and
 * it holds domain->frames_lock for reading. So a mapcount of 0 that is read with the
 * write side held stays 0.
 */
static long shrink_locked(struct uksm_domain *domain, long budget)
{
	long freed = uksm_pool_drain(&domain->pool);
	struct uksm_counters counters = {};
	struct folio *folio;

	for (; budget > 0; budget--) {
		folio = uksm_next_frame(&domain->frame_ids,
					&domain->shrink_cursor);
		if (!folio) {
			domain->shrink_cursor = 0;
			break;
		}
		if (!uksm_mapcount(folio)) {
			uksm_remove_frame(domain, folio, domain->shrink_cursor,
					  true);
			counters.frames_freed++;
		}
		domain->shrink_cursor++;
	}
	uksm_add_counters(domain, &counters);
	uksm_pool_drain(&domain->pool);
	return freed + counters.frames_freed;
}

/* Scans up to @budget frames. Returns how many pages were freed. */
static long shrink_domain(struct uksm_domain *domain, long budget)
{
	long freed;

	if (!down_write_trylock(&domain->frames_lock))
		return 0;
	freed = shrink_locked(domain, budget);
	up_write(&domain->frames_lock);
	return freed;
}

static long count_domain(struct uksm_domain *domain, long budget)
{
	return atomic_long_read(&domain->nr_frames) +
	       READ_ONCE(domain->pool.count);
}

static unsigned long count_frames(struct shrinker *shrinker,
				  struct shrink_control *control)
{
	return uksm_each_domain(count_domain, 0) ?: SHRINK_EMPTY;
}

static unsigned long scan_frames(struct shrinker *shrinker,
				 struct shrink_control *control)
{
	return uksm_each_domain(shrink_domain, control->nr_to_scan);
}

static int notify_oom(struct notifier_block *block, unsigned long unused,
		      void *freed)
{
	*(unsigned long *)freed += uksm_each_domain(shrink_domain, LONG_MAX);
	return NOTIFY_OK;
}

static struct notifier_block oom_block = { .notifier_call = notify_oom };

#ifdef UKSM_HAS_SHRINKER_ALLOC
static struct shrinker *shrinker;

static int add_shrinker(void)
{
	shrinker = shrinker_alloc(0, "uksm");
	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = count_frames;
	shrinker->scan_objects = scan_frames;
	shrinker_register(shrinker);
	return 0;
}

static void remove_shrinker(void)
{
	shrinker_free(shrinker);
}
#else
static struct shrinker shrinker = {
	.count_objects = count_frames,
	.scan_objects = scan_frames,
	.seeks = DEFAULT_SEEKS,
};

static int add_shrinker(void)
{
	return register_shrinker(&shrinker, "uksm");
}

static void remove_shrinker(void)
{
	unregister_shrinker(&shrinker);
}
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
