/* SPDX-License-Identifier: GPL-2.0-only */
/* Is a request well-formed? See request.c. */
#ifndef UKSM_REQUEST_H
#define UKSM_REQUEST_H

#include "portable.h"
#include "uksm_ioctl.h"

int uksm_check_configure(const struct uksm_configure *request);
int uksm_check_attach(const struct uksm_attach *request);
int uksm_check_detach(const struct uksm_detach *request);
int uksm_check_sample(const struct uksm_sample *request);
int uksm_check_runs(const struct uksm_run *runs, __u32 nr_runs, __u64 *pages);
int uksm_check_fold(const struct uksm_fold *request);
int uksm_check_entries(const struct uksm_fold_entry *entries, __u32 count);
int uksm_check_break(const struct uksm_break *request);
int uksm_check_count(const struct uksm_count *request);
int uksm_check_frames(const struct uksm_frames *request);

#endif /* UKSM_REQUEST_H */
