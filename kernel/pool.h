/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages that were frames and will be again. See pool.c. */
#ifndef UKSM_POOL_H
#define UKSM_POOL_H

#include <linux/mm_types.h>

#include "domain.h"

void uksm_store_init(struct uksm_store *store);
bool uksm_store_put(struct uksm_store *store, struct folio *folio);
struct folio *uksm_store_get(struct uksm_store *store);
long uksm_store_empty(struct uksm_store *store);

#endif /* UKSM_POOL_H */
