// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mappings and page tables of a target
 *
 * All verbs look at the pages of another process's address space, which goes on
 * changing it. Two questions are answered here, under the read side of the
 * target's mmap lock. Which mapping is here, and may its pages be merged? Which
 * page table is here? The second answer comes locked.
 *
 * The mmap lock keeps the mappings, and the tables above the last level as long as a
 * mapping covers the address. Elsewhere these tables can go: munmap(), brk() and
 * mremap() free tables after they have dropped to the read side. The tables of
 * hugetlb mappings can go as well, since processes can share them, and huge entries of
 * device memory, which a driver zaps when it likes.
 * The mmap lock does not keep the last level. A fault may put a page table or a huge
 * page into an empty place, a huge page may be split, a page table emptied or
 * taken away, all without the lock's write side. Hence the lock of the last level
 * is taken, and the entry above it checked again under this lock.
 *
 * Nothing here faults a page in, allocates, or sleeps.
 */
#include <linux/fs.h>

#include "compat.h"
#include "symbols.h"
#include "walk.h"

/**
 * uksm_eligible() - may pages of this mapping be merged?
 * @vma: the mapping; its mmap lock is held
 *
 * Private file mappings may: only their anonymous pages are touched. Memory that is
 * registered with userfaultfd for missing pages may, too: a page that is there stays
 * there, and raises an event when it is gone, as without us. Where writes are
 * tracked, or pages are shared with the handler, nothing is merged: the tracking must
 * show what the program did, and nothing else. The same goes for modes that a later
 * kernel may add.
 */
enum uksm_eligibility uksm_eligible(struct vm_area_struct *vma)
{
	if (vma->vm_flags & ~(UKSM_VM_MERGED | UKSM_VM_UFFD_OTHER) ||
	    vma_is_dax(vma))
		return UKSM_INELIGIBLE;
	if (vma->vm_flags & UKSM_VM_UFFD_OTHER)
		return UKSM_USERFAULT;
	return UKSM_ELIGIBLE;
}

/**
 * uksm_find_mapping() - the mapping at an address
 * @mm: the address space; its mmap lock is held
 * @last: the result of the last call under the same hold of the lock, or NULL
 * @address: the address
 *
 * Return: the mapping, or NULL where there is none.
 */
struct vm_area_struct *uksm_find_mapping(struct mm_struct *mm,
					 struct vm_area_struct *last,
					 unsigned long address)
{
	struct vm_area_struct *vma;

	if (last && address >= last->vm_start && address < last->vm_end)
		return last;
	vma = find_vma(mm, address);
	return vma && address >= vma->vm_start ? vma : NULL;
}

/**
 * uksm_has_page_tables() - may the page tables of a mapping be walked?
 * @vma: the mapping; its mmap lock is held
 *
 * Not where entries name memory of a device: the driver puts in and takes away huge
 * entries at each level, without the mmap lock, and nothing there is a page of the
 * process. And not in hugetlb, see the head of this file.
 */
bool uksm_has_page_tables(struct vm_area_struct *vma)
{
	return !(vma->vm_flags & (VM_PFNMAP | VM_IO | VM_MIXEDMAP |
				  VM_HUGETLB)) && !vma_is_dax(vma);
}

/*
 * Goes down to the pmd. Returns NULL and the kind where a level above has none.
 * A huge or broken entry is "bad": nothing of it can be merged.
 *
 * Each entry is loaded once, and the way down starts from what was loaded. An entry that
 * names a table stays as long as a mapping covers the address; any other can change
 * between two loads, and the second would then be taken for a table.
 */
static pmd_t *find_pmd(struct mm_struct *mm, unsigned long address,
		       struct uksm_table *table)
{
	pgd_t *pgdp = pgd_offset(mm, address), pgd = READ_ONCE(*pgdp);
	p4d_t *p4dp, p4d;
	pud_t *pudp, pud;

	table->kind = UKSM_TABLE_HOLE;
	table->end = (address & PGDIR_MASK) + PGDIR_SIZE;
	if (pgd_none(pgd))
		return NULL;
	if (pgd_bad(pgd))
		goto other;
	p4dp = p4d_offset_lockless(pgdp, pgd, address);
	p4d = READ_ONCE(*p4dp);
	table->end = (address & P4D_MASK) + P4D_SIZE;
	if (p4d_none(p4d))
		return NULL;
	if (!p4d_present(p4d) || p4d_bad(p4d))
		goto other;
	pudp = pud_offset_lockless(p4dp, p4d, address);
	pud = READ_ONCE(*pudp);
	table->end = (address & PUD_MASK) + PUD_SIZE;
	if (pud_none(pud))
		return NULL;
	if (!pud_present(pud) || pud_bad(pud))
		goto other;
	table->end = (address & PMD_MASK) + PMD_SIZE;
	return pmd_offset_lockless(pudp, pud, address);
other:
	table->kind = UKSM_TABLE_OTHER;
	return NULL;
}

/* How often an entry may change before it is locked. */
#define TRIES	8

/**
 * uksm_lock_table() - find and lock the page table at an address
 * @mm: the address space; its mmap lock is held
 * @address: an address in a mapping of which uksm_has_page_tables() says yes
 * @table: the answer
 *
 * The caller must call uksm_unlock_table() afterwards, whatever was found.
 */
void uksm_lock_table(struct mm_struct *mm, unsigned long address,
		     struct uksm_table *table)
{
	pmd_t *pmd, seen;
	int i;

	table->lock = NULL;
	table->ptes = NULL;
	pmd = find_pmd(mm, address, table);
	if (!pmd)
		return;
	for (i = 0; i < TRIES; i++) {
		seen = READ_ONCE(*pmd);
		if (pmd_none(seen)) {
			table->kind = UKSM_TABLE_HOLE;
			return;
		}
		if (!pmd_present(seen)) {
			table->kind = UKSM_TABLE_MOVING;
			return;
		}
		if (pmd_trans_huge(seen)) {
			table->lock = pmd_lock(mm, pmd);
			table->pmd = *pmd;
			if (pmd_present(table->pmd) &&
			    pmd_trans_huge(table->pmd)) {
				table->kind = UKSM_TABLE_HUGE;
				return;
			}
			spin_unlock(table->lock);
			table->lock = NULL;
			continue;
		}
		if (uksm_pmd_devmap(seen) || pmd_bad(seen)) {
			table->kind = UKSM_TABLE_OTHER;
			return;
		}
		table->ptes = uksm_lock_ptes(mm, pmd, address & PMD_MASK,
					     &table->lock);
		if (table->ptes) {
			table->kind = UKSM_TABLE_PTES;
			return;
		}
	}
	table->lock = NULL;
	table->kind = UKSM_TABLE_RACED;
}

/**
 * uksm_unlock_table() - undo uksm_lock_table()
 * @table: the table
 */
void uksm_unlock_table(struct uksm_table *table)
{
	if (table->ptes)
		pte_unmap_unlock(table->ptes, table->lock);
	else if (table->lock)
		spin_unlock(table->lock);
	table->ptes = NULL;
	table->lock = NULL;
}
