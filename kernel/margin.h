/* SPDX-License-Identifier: GPL-2.0-only */
/* What frames leave of a cgroup's memory. See margin.c. */
#ifndef UKSM_MARGIN_H
#define UKSM_MARGIN_H

#include <linux/types.h>

struct uksm_domain;

bool uksm_leaves_margin(struct uksm_domain *domain, unsigned int frames);

#endif /* UKSM_MARGIN_H */
