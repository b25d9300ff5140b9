// SPDX-License-Identifier: GPL-2.0-only
/*
 * The life of a domain, and what all verbs share: counters and the list of domains
 *
 * A domain lives as long as an open file of the device. Its end needs nobody's
 * help: spaces are detached and frames become orphans, which need neither the
 * domain nor the module (see frame.c).
 *
 * The list of domains serves reclaim, which asks each domain for memory (shrinker.c).
 */
#include <linux/bits.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "bounds.h"
#include "domain.h"

/* All domains, protected by domains_mutex. */
static LIST_HEAD(domains);
static DEFINE_MUTEX(domains_mutex);

/**
 * uksm_set_seed() - set the hash seed of a domain, and what follows from it
 * @domain: a domain without spaces
 * @seed: the seed
 */
void uksm_set_seed(struct uksm_domain *domain, u64 seed)
{
	domain->hash_seed = seed;
	uksm_hash_key_init(&domain->key, seed);
	uksm_set_lineage(domain);
}

/**
 * uksm_set_lineage() - name who may adopt the orphans of a domain, and whose it may
 * @domain: a domain without spaces, which has its seed and its policy
 *
 * Under another policy other pages were merged, so their frames stay orphans. The
 * multiplier is odd: no two policies have one lineage, but by the bit that is set.
 */
void uksm_set_lineage(struct uksm_domain *domain)
{
	u64 policy = domain->policy | (domain->least_spaces - 1) << 8;

	domain->lineage = domain->hash_seed ^ policy * 0x9E3779B97F4A7C15ULL;
	/* Never the id of a frame, which is positive as an int. */
	domain->lineage |= BIT_ULL(63);
}

/**
 * uksm_create_domain() - make an empty domain and list it
 *
 * The cgroup of the caller pays for its frames.
 *
 * Return: the domain; NULL if there is no memory.
 */
struct uksm_domain *uksm_create_domain(void)
{
	struct uksm_domain *domain = kzalloc(sizeof(*domain), UKSM_GFP);

	if (!domain)
		return NULL;
	mutex_init(&domain->lock);
	xa_init_flags(&domain->spaces, XA_FLAGS_ALLOC1);
	uksm_frame_ids_init(&domain->frame_ids);
	init_rwsem(&domain->frames_lock);
	uksm_pool_init(&domain->pool);
	spin_lock_init(&domain->counters_lock);
	domain->frame_limit = INT_MAX;	/* the ids of frames */
	domain->sharer_limit = UKSM_MAX_SHARERS;
	domain->least_spaces = 1;
	domain->memcg = get_mem_cgroup_from_mm(current->mm);
	uksm_set_seed(domain, get_random_u64());

	mutex_lock(&domains_mutex);
	list_add(&domain->link, &domains);
	mutex_unlock(&domains_mutex);
	return domain;
}

/**
 * uksm_unlist_domain() - take a domain off the list of domains
 * @domain: a domain that no call uses any more
 *
 * From then on reclaim does not use it.
 */
void uksm_unlist_domain(struct uksm_domain *domain)
{
	mutex_lock(&domains_mutex);
	list_del(&domain->link);
	mutex_unlock(&domains_mutex);
}

/**
 * uksm_free_domain() - free a domain
 * @domain: a domain off the list, without spaces and frames
 */
void uksm_free_domain(struct uksm_domain *domain)
{
	kfree(domain->fold_call);
	mem_cgroup_put(domain->memcg);
	kfree(domain);
}

/**
 * uksm_add_counters() - add what a call counted to its domain's counters
 * @domain: the domain
 * @counters: the call's counts
 *
 * All counts at once, so that the equation of INFO always holds.
 */
void uksm_add_counters(struct uksm_domain *domain,
		       const struct uksm_counters *counters)
{
	struct uksm_counters *sum = &domain->counters;
	int i;

	spin_lock(&domain->counters_lock);
	for (i = 0; i < ARRAY_SIZE(sum->by_status); i++)
		sum->by_status[i] += counters->by_status[i];
	sum->broken += counters->broken;
	sum->given_back += counters->given_back;
	sum->splits += counters->splits;
	sum->split_zeroed += counters->split_zeroed;
	sum->frames_made += counters->frames_made;
	sum->adopted += counters->adopted;
	sum->frames_freed += counters->frames_freed;
	sum->poisoned += counters->poisoned;
	sum->changed += counters->changed;
	sum->sampled += counters->sampled;
	spin_unlock(&domain->counters_lock);
}

/**
 * uksm_each_domain() - call a function for all domains, when memory is short
 * @fn: called for each domain; the domain stays meanwhile
 * @argument: passed to @fn
 *
 * Each time another domain is the first one, lest a large one takes all of a bounded time.
 *
 * Return: the sum of the results; 0 if domains come or go just now.
 */
long uksm_each_domain(long (*fn)(struct uksm_domain *domain, long argument),
		      long argument)
{
	struct uksm_domain *domain;
	long sum = 0;

	if (!mutex_trylock(&domains_mutex))
		return 0;
	list_for_each_entry(domain, &domains, link)
		sum += fn(domain, argument);
	list_rotate_left(&domains);
	mutex_unlock(&domains_mutex);
	return sum;
}
