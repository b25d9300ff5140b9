// SPDX-License-Identifier: GPL-2.0-only
/* INFO: what the module and the kernel can do, and the counters of the domain */
#include <linux/memcontrol.h>

#include "compat.h"
#include "domain.h"
#include "faults.h"
#include "frame_limit.h"
#include "guard.h"
#include "verbs.h"

static u32 features(void)
{
	u32 found = 0;

	if (IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE))
		found |= UKSM_FEATURE_SPLIT;
	if (uksm_memcg_charges_kernel())
		found |= UKSM_FEATURE_CHARGE;
	if (!uksm_guard_check(UKSM_GUARD_INTERFACE))
		found |= UKSM_FEATURE_GUARD;
#ifdef UKSM_TEST
	found |= UKSM_FEATURE_FAULTS;
#endif
	return found;
}

/* The INFO verb; see the contract. */
long uksm_info(struct uksm_domain *domain, struct uksm_info *answer)
{
	struct uksm_counters counters;
	int i;

	spin_lock(&domain->counters_lock);
	counters = domain->counters;
	spin_unlock(&domain->counters_lock);

	*answer = (struct uksm_info) {
		.api_version = UKSM_API_VERSION +
			       uksm_fault(UKSM_FAULT_OTHER_VERSION),
		.features = features(),
		.max_runs = UKSM_MAX_RUNS,
		.max_pages = UKSM_MAX_PAGES,
		.max_fold = UKSM_MAX_FOLD,
		.max_frames = UKSM_MAX_FRAMES,
		.max_sizes = UKSM_MAX_SIZES,
		.max_mappings = UKSM_MAX_MAPPINGS,
		.lock_batch = UKSM_LOCK_BATCH,
		.frames = counters.frames_made - counters.frames_freed,
		.machine_frame_limit = uksm_machine_frame_limit(),
		.machine_frames = uksm_machine_frames(),
		.merged = counters.by_status[UKSM_STATUS_MERGED],
		.already = counters.by_status[UKSM_STATUS_ALREADY],
		.zeroed = counters.by_status[UKSM_STATUS_ZEROED],
		.differed = counters.by_status[UKSM_STATUS_DIFFERED],
		.busy = counters.by_status[UKSM_STATUS_BUSY],
		.gone = counters.by_status[UKSM_STATUS_GONE],
		.full = counters.by_status[UKSM_STATUS_FULL],
		.refused = counters.by_status[UKSM_STATUS_REFUSED],
		.broken = counters.broken,
		.given_back = counters.given_back,
		.splits = counters.splits,
		.split_zeroed = counters.split_zeroed,
		.frames_made = counters.frames_made,
		.adopted = counters.adopted,
		.frames_freed = counters.frames_freed,
		.poisoned = counters.poisoned,
		.changed = counters.changed,
		.sampled = counters.sampled,
	};
	for (i = UKSM_STATUS_MERGED; i <= UKSM_STATUS_REFUSED; i++)
		answer->tried += counters.by_status[i];

	mutex_lock(&domain->lock);
	answer->spaces = domain->nr_spaces;
	answer->hash_seed = domain->hash_seed;
	answer->frame_limit = domain->frame_limit;
	answer->sharer_limit = domain->sharer_limit;
	answer->sealed = domain->sealed;
	answer->policy = domain->policy;
	answer->least_spaces = domain->least_spaces;
	mutex_unlock(&domain->lock);
	return 0;
}
