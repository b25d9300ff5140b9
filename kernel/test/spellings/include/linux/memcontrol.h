/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_MEMCONTROL_H
#define STUB_MEMCONTROL_H

#include <linux/types.h>

bool mem_cgroup_disabled(void);
#ifdef CONFIG_MEMCG
int __mem_cgroup_charge(struct folio *folio, struct mm_struct *mm, gfp_t gfp);
#endif

/* SPELLING UKSM_HAS_KMEM_ONLINE */
static inline bool memcg_kmem_online(void)
{
	return true;
}
/* SPELLING UKSM_HAS_KMEM_ENABLED */
static inline bool memcg_kmem_enabled(void)
{
	return true;
}
/* END */

#endif
