// SPDX-License-Identifier: GPL-2.0-only
/*
 * Locks that a target can hold for as long as it likes
 *
 * A process without any right decides how long two of its locks are held. One thread
 * reads /proc/self/mem where a file is mapped whose FUSE server never answers, and holds
 * the read side of the mmap lock; another calls mmap() and queues for the write side;
 * from then on every reader waits. And execve() holds exec_update_lock while it waits
 * for the asynchronous I/O of the old program, which may never end. A call that waited
 * for such a lock would take its caller along: a worker with all its other targets, or a
 * supervisor with all its groups.
 *
 * So a call only tries for these locks, MAX_TRIES times in all, and sleeps between two
 * tries, about a tenth of a second altogether. Then its answer is what it has done so
 * far, and where to go on; EAGAIN if that is nothing.
 *
 * The trylock fails as soon as a writer waits. So nobody queues behind this module, and a
 * target that maps without a pause can keep it out. That is an outcome, and no error.
 *
 * Who sleeps here holds no lock: neither domain->lock nor frames_lock, nor anything of
 * another target.
 */
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/mmap_lock.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "target_lock.h"

/* Tries of one call that may fail, whatever number of times it takes a lock. */
#define MAX_TRIES	8
/* Milliseconds between two tries: 1, 2, 4, ... and no more than this. */
#define MAX_SLEEP_MS	32

/**
 * uksm_await_next_try() - note that a try failed, and sleep before the next one
 * @tries: of this call; the caller holds no lock
 *
 * Return: 0 if there is another try; -EAGAIN if there is none; -EINTR if the caller is
 *	   being killed.
 */
int uksm_await_next_try(struct uksm_lock_tries *tries)
{
	unsigned int sleep_ms;

	if (tries->failed + 1 >= MAX_TRIES) {
		tries->failed = MAX_TRIES;
		return -EAGAIN;
	}
	sleep_ms = min(1U << tries->failed++, (unsigned int)MAX_SLEEP_MS);
	schedule_timeout_killable(msecs_to_jiffies(sleep_ms));
	return fatal_signal_pending(current) ? -EINTR : 0;
}

/**
 * uksm_lock_mappings() - take the read side of a target's mmap lock
 * @mm: its address space, with its users held
 * @tries: of this call
 *
 * Return: 0 with the lock, which mmap_read_unlock() drops; -EAGAIN if it was not to be
 *	   had; -EINTR if the caller is being killed.
 */
int uksm_lock_mappings(struct mm_struct *mm, struct uksm_lock_tries *tries)
{
	while (!mmap_read_trylock(mm)) {
		int error = uksm_await_next_try(tries);

		if (error)
			return error;
	}
	return 0;
}

/**
 * uksm_lock_exec() - keep a process from exchanging its address space by exec
 * @signal: the process's
 * @tries: of this call
 *
 * Return: 0 with the read side of exec_update_lock, which up_read() drops; -EAGAIN if it
 *	   was not to be had; -EINTR if the caller is being killed.
 */
int uksm_lock_exec(struct signal_struct *signal, struct uksm_lock_tries *tries)
{
	while (!down_read_trylock(&signal->exec_update_lock)) {
		int error = uksm_await_next_try(tries);

		if (error)
			return error;
	}
	return 0;
}
