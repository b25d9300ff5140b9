/* SPDX-License-Identifier: GPL-2.0-only */
/* Do frames still hold what they were made with? See patrol.c. */
#ifndef UKSM_PATROL_H
#define UKSM_PATROL_H

#include <linux/types.h>

struct folio;
struct uksm_domain;

void uksm_note_contents(const struct uksm_domain *domain, struct folio *folio);
bool uksm_has_changed(const struct uksm_domain *domain,
		      const struct folio *folio);

#endif /* UKSM_PATROL_H */
