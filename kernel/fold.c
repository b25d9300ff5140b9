// SPDX-License-Identifier: GPL-2.0-only
/*
 * FOLD: a call, its sets and its batches
 *
 * Most of the cost of a merge is in what surrounds it: locks, notifiers, TLB
 * flushes, allocation. So entries are cut into batches of neighbours in one page
 * table. exchange.c needs one of each for a batch. Everything that can sleep
 * happens here, before a batch: the allocation of the frames that it may need, and
 * the wait for the LRU batches of other CPUs.
 *
 * The module sets no priorities: it tries the entries in their order.
 *
 * A set has a frame as soon as its first page could be unmapped, or one of its
 * pages turned out to map a frame of this domain already.
 */
#include <linux/jiffies.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "verbs.h"
#include "batch.h"
#include "bounds.h"
#include "exchange.h"
#include "guard.h"
#include "request.h"
#include "space.h"
#include "symbols.h"
#include "witness.h"

/*
 * Most entries of a batch. A whole batch is merged under one page-table lock, so
 * UKSM_LOCK_BYTES bounds what is hashed and compared, too. Up to this many pages
 * the kernel flushes page by page, instead of the whole TLB of the target. Larger
 * batches were measured to gain nothing.
 */
#define BATCH	(UKSM_LOCK_BATCH / 2)

static unsigned int max_entries(const struct uksm_fold_call *call)
{
	/* Each page is hashed at most once, and compared or copied once. */
	unsigned int bytes = call->lines * UKSM_LINE_SIZE +
			     UKSM_COMPARE_BYTES;

	return min_t(unsigned int, BATCH, UKSM_LOCK_BYTES / bytes);
}

/*
 * How many entries from the first on make a batch: one space, one page table, no
 * page twice (the second check would find the page in the middle of its merge).
 */
static unsigned int batch_length(const struct uksm_fold_call *call,
				 const struct uksm_fold_entry *entries,
				 unsigned int count)
{
	DECLARE_BITMAP(seen, PTRS_PER_PTE) = {};
	unsigned int n;

	count = min(count, max_entries(call));
	for (n = 0; n < count; n++) {
		const struct uksm_fold_entry *entry = &entries[n];

		if (entry->space != entries->space ||
		    entry->address >> PMD_SHIFT !=
		    entries->address >> PMD_SHIFT ||
		    __test_and_set_bit(pte_index(entry->address), seen))
			break;
	}
	return n;
}

/*
 * May this entry need a new frame for its set? The first entry of a set does, and
 * the entry that finds the last frame full.
 */
static bool may_need_frame(struct uksm_fold_call *call,
			   const struct uksm_fold_entry *entry)
{
	struct uksm_set *set = &call->sets[entry->set];

	if (entry->kind != UKSM_KIND_SET || (!set->frame && set->pending < 2) ||
	    is_short(call, entry->set))
		return false;
	if (set->batches != call->batches) {
		set->batches = call->batches;
		set->room = set->frame ? uksm_frame_room(call->domain,
							 set->frame) : 0;
	}
	if (set->room) {
		set->room--;
		return false;
	}
	set->room = call->domain->sharer_limit - 1;
	return true;
}

/*
 * Preallocates as many frames as the pending entries of the batch may need; none if they
 * will be refused.
 */
static void fill_prealloc(struct uksm_fold_call *call)
{
	unsigned int needed = 0, i;

	if (!call->may_map_frames)
		return;
	call->batches++;
	for (i = 0; i < call->batch.count; i++)
		needed += is_pending(call, i) &&
			  may_need_frame(call, &call->batch.entries[i]);
	if (needed)
		uksm_prealloc_fill(call->domain, &call->prealloc, needed);
}

static bool needs_frames(const struct uksm_fold_entry *entries,
			 unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		if (entries[i].kind != UKSM_KIND_ZERO)
			return true;
	}
	return false;
}

/*
 * Whether the space is settled is tried once for each batch, without waiting: the target
 * decides how long its mmap lock is held, and all of the domain waits for frames_lock.
 *
 * Where nodes are kept, pages of a node for which no frame was preallocated wait for the
 * next turn, which has some there or finds that there is no memory. Only pages that are
 * moved between nodes all the time take more turns than there are entries.
 */
static void handle_batch(struct uksm_fold_call *call,
			 struct uksm_space_ref *ref,
			 struct uksm_fold_entry *entries, unsigned int count)
{
	unsigned int turns;
	bool through;

	call->batch.entries = entries;
	call->batch.count = count;
	/* The domain had all spaces; a DETACH may have come in between. */
	if (uksm_get_space(ref, entries->space) || !ref->mm) {
		uksm_set_remaining(call, UKSM_STATUS_GONE, UKSM_REASON_DEAD);
		return;
	}
	if (call->may_map_frames && needs_frames(entries, count) &&
	    !uksm_settle_space(ref)) {
		uksm_set_remaining(call, UKSM_STATUS_BUSY, UKSM_REASON_LOCK);
		return;
	}
	for (turns = 0; turns <= count; turns++) {
		fill_prealloc(call);
		if (!mmap_read_trylock(ref->mm)) {
			uksm_set_remaining(call, UKSM_STATUS_BUSY,
					   UKSM_REASON_LOCK);
			return;
		}
		through = uksm_merge_batch(call, ref->mm);
		mmap_read_unlock(ref->mm);
		if (through)
			return;
		call->prealloc.node = call->batch.node;
	}
	uksm_set_remaining(call, UKSM_STATUS_BUSY, UKSM_REASON_RACED);
}

/* Returns how many entries were tried. */
static u32 merge_entries(struct uksm_fold_call *call)
{
	struct uksm_space_ref ref = { .domain = call->domain };
	u32 done = 0;

	uksm_prealloc_init(&call->prealloc, call->domain);
	if (call->holdings)
		uksm_find_witnesses(call);
	while (done < call->count) {
		struct uksm_fold_entry *entries = &call->entries[done];
		unsigned int n;

		n = batch_length(call, entries, call->count - done);
		handle_batch(call, &ref, entries, n);
		done += n;
		cond_resched();
		if (signal_pending(current))
			break;
	}
	uksm_put_space(&ref);
	uksm_prealloc_release(call->domain, &call->prealloc);
	return done;
}

/* May the domain do it, and has it all spaces? Counts the members of the sets. */
static long count_members(struct uksm_fold_call *call)
{
	const struct uksm_fold_entry *entries = call->entries;
	bool needs_frames = false;
	u32 i;

	for (i = 0; i < call->count; i++) {
		if ((!i || entries[i].space != entries[i - 1].space) &&
		    !uksm_has_space(call->domain, entries[i].space))
			return -ENOENT;
		if (call->domain->policy & UKSM_POLICY_ZERO &&
		    entries[i].kind != UKSM_KIND_ZERO)
			return -EPERM;
		if (entries[i].kind == UKSM_KIND_SET)
			call->sets[entries[i].set].pending++;
		needs_frames |= entries[i].kind != UKSM_KIND_ZERO;
	}
	call->may_map_frames = needs_frames &&
			       !uksm_guard_check(UKSM_GUARD_INTERFACE);
	return 0;
}

/*
 * The memory of a call. The domain keeps that of the last call for the next one. So
 * a call needs no memory when memory is short, which is when merging helps most.
 */
static struct uksm_fold_call *get_call(struct uksm_domain *domain)
{
	struct uksm_fold_call *call = xchg(&domain->fold_call, NULL);

	if (!call)
		call = kmalloc(sizeof(*call), UKSM_GFP);
	if (call)
		memset(call, 0, offsetof(struct uksm_fold_call, entries));
	return call;
}

static void put_call(struct uksm_domain *domain,
		     struct uksm_fold_call *call)
{
	kfree(call->holdings);
	call->holdings = NULL;
	kfree(xchg(&domain->fold_call, call));
}

/* Least time between two drains. */
#define DRAIN_INTERVAL	(HZ / 50)

/*
 * Empties the LRU batches of all CPUs. That makes every CPU of the machine work, so it
 * is done at most once in an interval, and one drain serves all callers who came before
 * it began. Nobody waits with the lock held, so many callers of one domain do not keep
 * those of another waiting.
 *
 * Return: 0; -EINTR.
 */
static long drain_lru(void)
{
	static unsigned long next = INITIAL_JIFFIES, begun, ended;
	static DEFINE_MUTEX(lock);
	unsigned long wanted;
	long wait;

	/* What the caller wants out of the batches is in them before this ... */
	smp_mb();
	wanted = READ_ONCE(begun) + 1;
	for (;;) {
		if (mutex_lock_interruptible(&lock))
			return -EINTR;
		if ((long)(ended - wanted) >= 0)
			goto unlock;
		wait = next - jiffies;
		if (wait <= 0 || wait > DRAIN_INTERVAL)
			break;
		mutex_unlock(&lock);
		if (schedule_timeout_interruptible(wait))
			return -EINTR;
	}
	WRITE_ONCE(begun, begun + 1);
	/* ... so a drain with the wanted number looks at the batches afterwards. */
	uksm_call(lru_add_drain_all)();
	ended = begun;
	next = jiffies + DRAIN_INTERVAL;
unlock:
	mutex_unlock(&lock);
	return 0;
}

/* The FOLD verb; see the contract. */
long uksm_fold(struct uksm_domain *domain, struct uksm_fold *request)
{
	struct uksm_fold_entry __user *user = u64_to_user_ptr(request->entries);
	struct uksm_fold_call *call;
	size_t size;
	long error;

	request->done = 0;
	size = request->count * sizeof(*user);
	call = get_call(domain);
	if (!call)
		return -ENOMEM;
	call->domain = domain;
	call->flags = request->flags;
	call->lines = request->lines;
	call->count = request->count;

	error = -EFAULT;
	if (copy_from_user(call->entries, user, size))
		goto free;
	error = uksm_check_entries(call->entries, call->count);
	if (!error)
		error = count_members(call);
	if (!error)
		error = uksm_get_holdings(call);
	if (error)
		goto free;

	if (request->flags & UKSM_FOLD_DRAIN) {
		error = drain_lru();
		if (error)
			goto free;
	}
	error = -EINTR;
	if (down_read_killable(&domain->frames_lock))
		goto free;
	request->done = merge_entries(call);
	/*
	 * Before anybody can free the new frames, or the count of frames in
	 * INFO would fall below 0.
	 */
	uksm_add_counters(domain, &call->counters);
	up_read(&domain->frames_lock);
	error = copy_to_user(user, call->entries,
			     request->done * sizeof(*user)) ? -EFAULT : 0;
free:
	put_call(domain, call);
	return error;
}
