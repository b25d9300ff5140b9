/* SPDX-License-Identifier: GPL-2.0-only */
/* Mappings and page tables of a target. See walk.c. */
#ifndef UKSM_WALK_H
#define UKSM_WALK_H

#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/spinlock.h>

/* May pages of this mapping be merged? */
enum uksm_eligibility {
	UKSM_ELIGIBLE,
	UKSM_INELIGIBLE,	/* of a kind never merged */
	UKSM_USERFAULT,		/* userfaultfd tracks writes, or shares pages */
};

enum uksm_eligibility uksm_eligible(struct vm_area_struct *vma);
bool uksm_has_page_tables(struct vm_area_struct *vma);
struct vm_area_struct *uksm_find_mapping(struct mm_struct *mm,
					 struct vm_area_struct *last,
					 unsigned long address);

/* What an entry at the level of 2 MiB, or above it, holds. */
enum uksm_table_kind {
	UKSM_TABLE_HOLE,	/* nothing up to @end */
	UKSM_TABLE_PTES,	/* a page table, locked */
	UKSM_TABLE_HUGE,	/* a huge page, locked */
	UKSM_TABLE_MOVING,	/* a huge page being migrated */
	UKSM_TABLE_OTHER,	/* an entry without ordinary pages */
	UKSM_TABLE_RACED,	/* the entry kept changing */
};

struct uksm_table {
	enum uksm_table_kind kind;
	unsigned long end;	/* where the next one begins */
	spinlock_t *lock;
	pte_t *ptes;		/* PTES: all of them */
	pmd_t pmd;		/* HUGE */
};

void uksm_lock_table(struct mm_struct *mm, unsigned long address,
		     struct uksm_table *table);
void uksm_unlock_table(struct uksm_table *table);

static inline pte_t *uksm_pte(const struct uksm_table *table,
			      unsigned long address)
{
	return table->ptes + pte_index(address);
}

#endif /* UKSM_WALK_H */
