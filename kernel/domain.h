/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A domain, its counters, and the order of all locks. See domain.c.
 *
 * A domain is an open file of the device; a space is one address space in it;
 * a frame is a page that merged pages map. See the contract, uksm_ioctl.h.
 *
 * Locks, the outermost first. Nobody who holds a lock takes one that stands further
 * to the left.
 *
 *   domain->lock		constants, seal, attaching and detaching
 *     spaces_lock (space.c)	which domain has an address space
 *   domains_mutex (domain.c)	domains come and go; reclaim tries for it
 *   domain->frames_lock	read: found frames stay; write: some are removed;
 *				reclaim tries for it
 *     spaces_lock		when a call leaves a space that was detached
 *     mmap lock of a target	read side, by trylock; its mappings.
 *				Write side, by trylock: uksm_settle_space()
 *       page-table lock	its pages; at most UKSM_LOCK_BATCH at a time
 *     domain->frame_ids.lock	chunks of frame ids that no call has
 *     domain->counters_lock	counters
 *     domain->pool.lock	pages kept for frames
 *
 * Nothing is copied from or to userspace below domain->frames_lock: the caller may
 * be its own target. Memory may be allocated below it, since reclaim, which
 * removes frames too, only tries for it.
 */
#ifndef UKSM_DOMAIN_H
#define UKSM_DOMAIN_H

#include <linux/atomic.h>
#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/xarray.h>

#include "frame_id.h"
#include "linehash.h"
#include "pool.h"
#include "uksm_ioctl.h"

struct mem_cgroup;
struct mm_struct;

/* The counters of INFO; see there what they mean and how they add up. */
struct uksm_counters {
	u64 by_status[UKSM_STATUS_REFUSED + 1];	/* by enum uksm_status */
	u64 broken;
	u64 given_back;
	u64 splits;
	u64 split_zeroed;
	u64 frames_made;
	u64 adopted;
	u64 frames_freed;
	u64 poisoned;
	u64 changed;
	u64 sampled;
};

struct uksm_fold_call;

struct uksm_domain {
	struct mutex lock;		/* protects all up to "sealed" */
	struct xarray spaces;		/* id -> struct uksm_space */
	u32 next_space;
	u32 nr_spaces;
	bool attached;			/* ever */
	bool sealed;

	/* Constant from the first ATTACH on. */
	u64 hash_seed;
	u64 lineage;			/* marks its orphans, see frame.c */
	u64 frame_limit;
	u32 sharer_limit;
	u32 policy;			/* UKSM_POLICY_* */
	u32 least_spaces;		/* that hold what a new frame has; 1: any */
	struct uksm_hash_key key;

	struct uksm_frame_ids frame_ids;	/* id -> frame */
	atomic_long_t nr_frames;	/* with preallocated ones */
	struct rw_semaphore frames_lock;
	unsigned long shrink_cursor;	/* of reclaim; frames_lock, write */
	unsigned int shrink_mapped;	/* share of frames that it cannot free */
	unsigned long shrink_time;	/* of its last scan, in jiffies */
	struct uksm_pool pool;
	struct mem_cgroup *memcg;	/* pays for frames; fixed at open */

	struct uksm_fold_call *fold_call;	/* for the next FOLD; by xchg() */

	spinlock_t counters_lock;	/* protects counters */
	struct uksm_counters counters;

	struct list_head link;		/* in the list of domains; domains_mutex */
};

struct uksm_domain *uksm_create_domain(void);
void uksm_unlist_domain(struct uksm_domain *domain);
void uksm_free_domain(struct uksm_domain *domain);
void uksm_set_seed(struct uksm_domain *domain, u64 seed);
void uksm_set_lineage(struct uksm_domain *domain);
void uksm_add_counters(struct uksm_domain *domain,
		       const struct uksm_counters *counters);
long uksm_each_domain(long (*fn)(struct uksm_domain *domain, long argument),
		      long argument);

/* Do pages of this domain share only frames of their own node? */
static inline bool uksm_keeps_nodes(const struct uksm_domain *domain)
{
	return domain->policy & UKSM_POLICY_NODES;
}

/*
 * The hash of the lines [from, to) of a page, as userspace sees it. Where nodes are kept, the
 * page's node is part of it: userspace never finds pages of two nodes equal.
 */
static inline u64 uksm_hash_page(const struct uksm_domain *domain,
				 const struct page *page,
				 unsigned int from, unsigned int to)
{
	const void *contents = page_address(page);
	u64 hash = uksm_hash_lines(&domain->key, contents, from, to);

	if (uksm_keeps_nodes(domain))
		hash += uksm_hash_node(&domain->key, contents, from, to,
				       page_to_nid(page));
	return hash;
}

#endif /* UKSM_DOMAIN_H */
