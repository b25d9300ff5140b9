/* SPDX-License-Identifier: GPL-2.0-only */
/* The vendor of a kernel, and the kernels that uksm was tried on. See kernel_vendor.c. */
#ifndef UKSM_KERNEL_VENDOR_H
#define UKSM_KERNEL_VENDOR_H

#include "portable.h"

/* "Debian 6.1 (amd64, rt-amd64), Debian 6.12 (amd64)", for messages. */
extern const char *const uksm_tried_kernels;

const char *uksm_kernel_vendor(const char *release, const char *version);
bool uksm_is_tried(const char *vendor, const char *release);

#endif /* UKSM_KERNEL_VENDOR_H */
