/* SPDX-License-Identifier: GPL-2.0-only */
/* What the module takes of the machine at most: spaces, memory, time under locks. */
#ifndef UKSM_BOUNDS_H
#define UKSM_BOUNDS_H

#include <linux/gfp.h>

#include "uksm_ioctl.h"

/* Most spaces of one domain; more than a host has processes by default. */
#define UKSM_MAX_SPACES		65536

/*
 * How the module asks for memory. Deduplication saves memory, so no process may be
 * killed for it. Such a request tries once to reclaim, and fails rather than call the
 * OOM killer. The outcome is ENOMEM, or "full".
 */
#define UKSM_GFP	(GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN)

/*
 * Most bytes hashed under one hold of a page-table lock. Natively it takes up to
 * 1.44 microseconds to hash a cold page, so this keeps the hold below 50. To compare
 * or copy a page takes half of that, and counts as half a page.
 */
#define UKSM_LOCK_BYTES		(34 * UKSM_PAGE_SIZE)
#define UKSM_COMPARE_BYTES	(UKSM_PAGE_SIZE / 2)

#endif /* UKSM_BOUNDS_H */
