// SPDX-License-Identifier: GPL-2.0-only
/*
 * SIZES: how large many spaces are
 *
 * A host has thousands of processes, and most of them change nothing. To list their
 * mappings again and again costs more than to merge. So one call tells three numbers
 * of each space, and the caller lists what has changed.
 *
 * The mmap lock is not taken: a target that holds it for long must not hold up the
 * caller, and the caller must not hold up a target. What is read without it:
 *  - map_count and total_vm are single words, written under the mmap lock. A load of
 *    one is never torn, but the two may be of different times, as before and after an
 *    mmap() that is under way. The next call then differs from this one.
 *  - The count of anonymous pages is split (by thread on 6.1, by CPU later). The part
 *    that is read lags behind by what the threads or CPUs have not added yet. A process
 *    that grows by more than this shows it.
 *  - mm_users may fall to 0 right after the test, and the numbers are those of a
 *    process that has just ended. The next call says that it is gone. The fields stay
 *    readable meanwhile: the space holds the mm_struct.
 * Nothing is done with the numbers here, so a number that is old or inexact costs the
 * caller a list too many or a list too late, and nothing else.
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "bounds.h"
#include "domain.h"
#include "space.h"
#include "verbs.h"

/* Spaces between two copies to userspace: a page of them. */
#define BUFFER_SIZES	(PAGE_SIZE / sizeof(struct uksm_size))

static void measure(struct uksm_domain *domain, struct uksm_size *size)
{
	struct mm_struct *mm = uksm_peek_space(domain, size->space);

	*size = (struct uksm_size) { .space = size->space };
	if (!mm) {
		size->flags = UKSM_SIZE_UNKNOWN;
	} else if (!atomic_read(&mm->mm_users)) {
		size->flags = UKSM_SIZE_GONE;
	} else {
		size->mappings = READ_ONCE(mm->map_count);
		size->pages = READ_ONCE(mm->total_vm);
		size->anon_pages = get_mm_counter(mm, MM_ANONPAGES);
	}
}

/* Answers @n spaces. Their domain's lock is held for some microseconds. */
static long measure_some(struct uksm_domain *domain, struct uksm_size *sizes,
			 u32 n)
{
	u32 i;

	if (mutex_lock_killable(&domain->lock))
		return -EINTR;
	for (i = 0; i < n; i++)
		measure(domain, &sizes[i]);
	mutex_unlock(&domain->lock);
	return 0;
}

/* The SIZES verb; see the contract. */
long uksm_sizes(struct uksm_domain *domain, struct uksm_sizes *request)
{
	struct uksm_size __user *user = u64_to_user_ptr(request->sizes);
	struct uksm_size *buffer;
	long error = 0;

	request->done = 0;
	if (!request->count)
		return 0;
	buffer = kmalloc_array(min_t(u32, request->count, BUFFER_SIZES),
			       sizeof(*buffer), UKSM_GFP);
	if (!buffer)
		return -ENOMEM;
	do {
		u32 n = min_t(u32, request->count - request->done,
			      BUFFER_SIZES);

		error = -EFAULT;
		if (copy_from_user(buffer, user + request->done,
				   n * sizeof(*buffer)))
			break;
		error = measure_some(domain, buffer, n);
		if (error)
			break;
		if (copy_to_user(user + request->done, buffer,
				 n * sizeof(*buffer))) {
			error = -EFAULT;
			break;
		}
		request->done += n;
		cond_resched();
	} while (request->done < request->count && !signal_pending(current));
	kfree(buffer);
	return error == -EINTR && request->done ? 0 : error;
}
