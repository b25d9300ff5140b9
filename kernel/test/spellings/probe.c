// SPDX-License-Identifier: GPL-2.0-only
/*
 * Uses each name that compat.h, symbols.h and shrinker_registration.h spell for the module
 *
 * Their inline functions are compiled because they are included; macros only where they
 * are used, which is here.
 */
#include "compat.h"
#include "symbols.h"
#include "shrinker_registration.h"

extern const unsigned long flags_of_mappings[];
const unsigned long flags_of_mappings[] = {
	UKSM_VM_MERGED, UKSM_VM_UFFD_OTHER,
};

extern const unsigned long flags_of_pages[];
const unsigned long flags_of_pages[] = {
	UKSM_MAPPING_ANON, UKSM_MAPPING_FLAGS, UKSM_MAPPING_KSM,
};

extern const void *const mark_of_a_frame;
const void *const mark_of_a_frame = UKSM_FRAME_MAPPING;

static unsigned long count_frames(struct shrinker *shrinker,
				  struct shrink_control *control)
{
	return 0;
}

static unsigned long scan_frames(struct shrinker *shrinker,
				 struct shrink_control *control)
{
	return 0;
}

int use_shrinker(void);
int use_shrinker(void)
{
	int error = add_shrinker();

	remove_shrinker();
	return error;
}
