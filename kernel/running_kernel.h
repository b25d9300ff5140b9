/* SPDX-License-Identifier: GPL-2.0-only */
/* May the module be loaded into the running kernel? See running_kernel.c. */
#ifndef UKSM_RUNNING_KERNEL_H
#define UKSM_RUNNING_KERNEL_H

int uksm_check_kernel(void);
int uksm_check_tried(void);

#endif /* UKSM_RUNNING_KERNEL_H */
