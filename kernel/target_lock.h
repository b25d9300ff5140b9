/* SPDX-License-Identifier: GPL-2.0-only */
/* Locks that a target can hold for as long as it likes. See target_lock.c. */
#ifndef UKSM_TARGET_LOCK_H
#define UKSM_TARGET_LOCK_H

#include <linux/errno.h>
#include <linux/types.h>

struct mm_struct;
struct signal_struct;

/* What one call has tried; all zero at first. */
struct uksm_lock_tries {
	unsigned int failed;
};

int uksm_await_next_try(struct uksm_lock_tries *tries);
int uksm_lock_mappings(struct mm_struct *mm, struct uksm_lock_tries *tries);
int uksm_lock_exec(struct signal_struct *signal,
		   struct uksm_lock_tries *tries);

/*
 * The result of a call that goes on where the last one ended: a signal, or a lock that
 * was not to be had, is no error if the call has come further than where it began.
 */
static inline long uksm_in_part(long error, bool has_progressed)
{
	if (has_progressed && (error == -EINTR || error == -EAGAIN))
		return 0;
	return error;
}

#endif /* UKSM_TARGET_LOCK_H */
