/* SPDX-License-Identifier: GPL-2.0-only */
/* Is a request well-formed? See request.c. */
#ifndef UKSM_REQUEST_H
#define UKSM_REQUEST_H

#include "portable.h"
#include "uksm_ioctl.h"
#include "verbs.h"

/* The arrays of SAMPLE and FOLD; the other checks are those of verb_list.h. */
int uksm_check_runs(const struct uksm_run *runs, __u32 nr_runs, __u64 *pages);
int uksm_check_entries(const struct uksm_fold_entry *entries, __u32 count);

#endif /* UKSM_REQUEST_H */
