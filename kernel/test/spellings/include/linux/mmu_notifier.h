/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_MMU_NOTIFIER_H
#define STUB_MMU_NOTIFIER_H

#include <linux/types.h>

struct mmu_notifier_range {
	struct mm_struct *mm;
};

struct mmu_notifier_ops {
	void (*release)(struct mm_struct *mm);
/* SPELLING UKSM_HAS_SECONDARY_TLBS */
	void (*arch_invalidate_secondary_tlbs)(struct mm_struct *mm);
/* END */
};

int __mmu_notifier_invalidate_range_start(struct mmu_notifier_range *range);

/* SPELLING UKSM_HAS_INVALIDATE_RANGE */
extern void __mmu_notifier_invalidate_range(struct mm_struct *mm, unsigned long start,
					    unsigned long end);
/* SPELLING UKSM_HAS_ONLY_END */
extern void __mmu_notifier_invalidate_range_end(struct mmu_notifier_range *r,
						bool only_end);
/* SPELLING UKSM_HAS_PLAIN_END */
extern void __mmu_notifier_invalidate_range_end(struct mmu_notifier_range *r);
/* END */

#endif
