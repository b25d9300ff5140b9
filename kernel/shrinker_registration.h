/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a kernel learns of the shrinker, which kernels spell differently
 *
 * Only shrinker.c includes this file, and has the two functions that are declared first.
 * Apart from it, the branches compile against the few declarations of test/spellings.
 */
#ifndef UKSM_SHRINKER_REGISTRATION_H
#define UKSM_SHRINKER_REGISTRATION_H

#include <linux/errno.h>
#include <linux/shrinker.h>

static unsigned long count_frames(struct shrinker *shrinker,
				  struct shrink_control *control);
static unsigned long scan_frames(struct shrinker *shrinker,
				 struct shrink_control *control);

#ifdef UKSM_HAS_SHRINKER_ALLOC
static struct shrinker *shrinker;

static int add_shrinker(void)
{
	shrinker = shrinker_alloc(0, "uksm");
	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = count_frames;
	shrinker->scan_objects = scan_frames;
	shrinker->seeks = 0;
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
	.seeks = 0,
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

#endif /* UKSM_SHRINKER_REGISTRATION_H */
