/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files that also build in userspace need
 *
 * Request checks, the line hash, the page comparison and the list of tried kernels
 * decide about hostile input, data and refusal. So they are tested under sanitizers,
 * outside a kernel. They use only fixed-width types, bool, strings and error numbers,
 * which this file takes from either side.
 */
#ifndef UKSM_PORTABLE_H
#define UKSM_PORTABLE_H

#include <linux/types.h>

#ifdef __KERNEL__
#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/sched.h>
#include <linux/string.h>
#define UKSM_USER_END	((__u64)TASK_SIZE_MAX)
#else
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))
/* Where user space ends on a processor with four levels of page tables. */
#define UKSM_USER_END	((1ULL << 47) - 4096)
#endif

#endif /* UKSM_PORTABLE_H */
