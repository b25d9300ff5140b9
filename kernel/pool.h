/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages that were frames and will be frames again. See pool.c. */
#ifndef UKSM_POOL_H
#define UKSM_POOL_H

#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/spinlock.h>

/* The pages that a domain keeps. */
struct uksm_pool {
	spinlock_t lock;		/* protects all of it */
	struct list_head pages;
	unsigned int count;
};

void uksm_pool_init(struct uksm_pool *pool);
bool uksm_pool_put(struct uksm_pool *pool, struct folio *folio);
struct folio *uksm_pool_get(struct uksm_pool *pool, int node,
			    bool only_there);
long uksm_pool_drain(struct uksm_pool *pool);

#endif /* UKSM_POOL_H */
