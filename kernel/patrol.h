/* SPDX-License-Identifier: GPL-2.0-only */
/* Do frames still hold what they held? See patrol.c. */
#ifndef UKSM_PATROL_H
#define UKSM_PATROL_H

#include <linux/types.h>

struct folio;
struct uksm_domain;

bool uksm_has_changed(const struct uksm_domain *domain, struct folio *folio);

#endif /* UKSM_PATROL_H */
