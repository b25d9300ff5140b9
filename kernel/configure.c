// SPDX-License-Identifier: GPL-2.0-only
/*
 * CONFIGURE and SEAL: the constants of a domain
 *
 * The constants are fixed by the first ATTACH, or by SEAL. SEAL also ends
 * attaching, so that a sealed file can be handed to a less trusted program. What may
 * be merged is one of the constants, and is never widened.
 */
#include <linux/minmax.h>

#include "domain.h"
#include "verbs.h"

/* The CONFIGURE verb; see the contract. */
long uksm_configure(struct uksm_domain *domain, struct uksm_configure *request)
{
	long error = 0;

	mutex_lock(&domain->lock);
	if (domain->attached || domain->sealed) {
		error = -EBUSY;
		goto unlock;
	}
	if (request->hash_seed)
		uksm_set_seed(domain, request->hash_seed);
	if (request->frame_limit)
		domain->frame_limit = min_t(u64, request->frame_limit, INT_MAX);
	if (request->sharer_limit)
		domain->sharer_limit = request->sharer_limit;
	domain->policy |= request->policy;
	domain->least_spaces = max(domain->least_spaces,
				   request->least_spaces);
	uksm_set_lineage(domain);
unlock:
	mutex_unlock(&domain->lock);
	return error;
}

/* The SEAL verb; see the contract. */
long uksm_seal(struct uksm_domain *domain, struct uksm_nothing *request)
{
	mutex_lock(&domain->lock);
	domain->sealed = true;
	mutex_unlock(&domain->lock);
	return 0;
}
