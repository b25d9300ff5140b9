/* SPDX-License-Identifier: GPL-2.0-only */
/* How many frames there may be. See frame_limit.c. */
#ifndef UKSM_FRAME_LIMIT_H
#define UKSM_FRAME_LIMIT_H

#include "domain.h"
#include "uksm_ioctl.h"

unsigned long uksm_machine_frames(void);
unsigned long uksm_machine_frame_limit(void);
bool uksm_kernel_has_room(unsigned int frames);
enum uksm_reason uksm_reserve_frames(struct uksm_domain *domain,
				     unsigned int count,
				     unsigned long machine_limit);
void uksm_unreserve_frames(struct uksm_domain *domain, unsigned int count);

#endif /* UKSM_FRAME_LIMIT_H */
