/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_SWAP_H
#define STUB_SWAP_H

#include <linux/types.h>

bool folio_free_swap(struct folio *folio);
void lru_add_drain_all(void);

#endif
