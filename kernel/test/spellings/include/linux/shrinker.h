/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_SHRINKER_H
#define STUB_SHRINKER_H

#include <linux/types.h>

struct shrink_control;

struct shrinker {
	unsigned long (*count_objects)(struct shrinker *shrinker,
				       struct shrink_control *control);
	unsigned long (*scan_objects)(struct shrinker *shrinker,
				      struct shrink_control *control);
	int seeks;
};

/* SPELLING UKSM_HAS_SHRINKER_ALLOC */
struct shrinker *shrinker_alloc(unsigned int flags, const char *name, ...);
void shrinker_register(struct shrinker *shrinker);
void shrinker_free(struct shrinker *shrinker);
/* SPELLING UKSM_HAS_REGISTER_SHRINKER */
extern int __printf(2, 3) register_shrinker(struct shrinker *shrinker, const char *name, ...);
extern void unregister_shrinker(struct shrinker *shrinker);
/* END */

#endif
