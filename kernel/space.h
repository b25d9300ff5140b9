/* SPDX-License-Identifier: GPL-2.0-only */
/* Which address spaces belong to which domain? See space.c. */
#ifndef UKSM_SPACE_H
#define UKSM_SPACE_H

#include <linux/types.h>

struct mm_struct;
struct uksm_domain;
struct uksm_space;

/* A space that a call uses. */
struct uksm_space_ref {
	struct uksm_domain *domain;
	u32 id;			/* 0: none */
	struct uksm_space *space;
	struct mm_struct *mm;		/* NULL: the process is gone */
};

void uksm_detach_all(struct uksm_domain *domain);
bool uksm_has_space(struct uksm_domain *domain, u32 id);
struct mm_struct *uksm_peek_space(struct uksm_domain *domain, u32 id);
int uksm_get_space(struct uksm_space_ref *ref, u32 id);
bool uksm_settle_space(const struct uksm_space_ref *ref);
void uksm_put_space(struct uksm_space_ref *ref);

#endif /* UKSM_SPACE_H */
