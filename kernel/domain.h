/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Domains, spaces and the module's verbs
 *
 * A domain is an open file of the device; a space is one address space in it;
 * a frame is a page that merged pages share. See the contract, uksm_ioctl.h.
 *
 * Locks, from the outside in. Nobody takes one to the left while holding one to
 * the right.
 *
 *   domain->lock		constants, seal, attaching and detaching
 *     spaces_lock (space.c)	which domain has an address space
 *   domains_mutex (main.c)	domains come and go; reclaim tries for it
 *   domain->frames_lock		read: frames found stay; write: some are removed;
 *				reclaim tries for it
 *     spaces_lock		when a call leaves a space that was detached
 *     mmap lock of a target	read side, by trylock or killable; its mappings
 *       page-table lock	its pages; at most UKSM_LOCK_BATCH at a time
 *     domain->frame_ids.lock	chunks of ids that no call has
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
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/rcupdate.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/xarray.h>

#include "frame_id.h"
#include "linehash.h"
#include "uksm_ioctl.h"

struct mem_cgroup;
struct mm_struct;

/* Most spaces of one domain; more than a host has processes by default. */
#define UKSM_MAX_SPACES		65536

/*
 * How the module asks for memory: deduplication saves memory, so it must never be
 * what a process is killed for. Such a request tries once to reclaim, and fails
 * rather than call the OOM killer. The outcome is ENOMEM, or "full".
 */
#define UKSM_GFP	(GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN)

/*
 * Most bytes hashed under one hold of a page-table lock. Natively it takes up to
 * 1.44 microseconds to hash a cold page, so this keeps the hold below 50. To compare
 * or copy a page takes half of that, and counts as half a page.
 */
#define UKSM_LOCK_BYTES		(34 * UKSM_PAGE_SIZE)
#define UKSM_COMPARE_BYTES	(UKSM_PAGE_SIZE / 2)

/* The counters of INFO; see there what they mean and how they add up. */
struct uksm_counters {
	u64 by_status[UKSM_STATUS_REFUSED + 1];	/* by enum uksm_status */
	u64 broken;
	u64 splits;
	u64 split_zeroed;
	u64 frames_made;
	u64 adopted;
	u64 frames_freed;
	u64 poisoned;
	u64 sampled;
};

/* Pages that were frames and will be again; see pool.c. */
struct uksm_pool {
	spinlock_t lock;		/* protects all of it */
	struct list_head pages;
	unsigned int count;
};

struct uksm_fold_call;

struct uksm_domain {
	struct mutex lock;		/* what stands up to "sealed" */
	struct xarray spaces;		/* id -> struct uksm_space */
	u32 next_space;
	u32 nr_spaces;
	bool attached;			/* ever */
	bool sealed;

	/* Constant from the first ATTACH on. */
	u64 hash_seed;
	u64 lineage;			/* marks what were its frames, see frame.c */
	u64 frame_limit;
	u32 sharer_limit;
	struct uksm_hash_key key;

	struct uksm_frame_ids frame_ids;	/* and the frames that have them */
	atomic_long_t nr_frames;	/* with those only prepared */
	struct rw_semaphore frames_lock;
	unsigned long shrink_cursor;	/* where reclaim goes on; frames_lock, write */
	struct uksm_pool pool;
	struct mem_cgroup *memcg;	/* pays for frames; fixed at open */

	struct uksm_fold_call *fold_call;	/* kept for the next FOLD; by xchg() */

	spinlock_t counters_lock;		/* protects counters */
	struct uksm_counters counters;

	struct list_head link;		/* in the list of domains; RCU, or mutex */
	struct rcu_head rcu;
};

/* One address space in a domain. */
struct uksm_space {
	struct mm_struct *mm;		/* by mmgrab(): the struct, not its users */
	struct uksm_domain *domain;
	u32 id;
	bool detached;			/* calls may still work on it; spaces_lock */
	refcount_t refs;		/* the domain's, and calls under way */
	struct hlist_node link;		/* in the table of all spaces */
	struct rcu_head rcu;
};

/* A space in use by a call; see space.c. */
struct uksm_space_ref {
	struct uksm_domain *domain;
	u32 id;			/* 0: none */
	struct uksm_space *space;
	struct mm_struct *mm;		/* NULL: the process is gone */
};

/* space.c */
long uksm_attach(struct uksm_domain *domain, struct uksm_attach *request);
long uksm_detach(struct uksm_domain *domain, const struct uksm_detach *request);
void uksm_detach_all(struct uksm_domain *domain);
bool uksm_has_space(struct uksm_domain *domain, u32 id);
int uksm_get_space(struct uksm_space_ref *ref, u32 id);
void uksm_put_space(struct uksm_space_ref *ref);

/* main.c */
void uksm_add_counters(struct uksm_domain *domain, const struct uksm_counters *counters);
long uksm_each_domain(long (*fn)(struct uksm_domain *domain, long budget),
		      long budget);

/* the verbs, one file each */
long uksm_sample(struct uksm_domain *domain, struct uksm_sample *request);
long uksm_fold(struct uksm_domain *domain, struct uksm_fold *request);
long uksm_break(struct uksm_domain *domain, struct uksm_break *request);
long uksm_count(struct uksm_domain *domain, struct uksm_count *request);
long uksm_frames(struct uksm_domain *domain, struct uksm_frames *request);

#endif /* UKSM_DOMAIN_H */
