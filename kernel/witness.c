// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which spaces hold the contents of a set?
 *
 * A domain can ask that only contents are merged that least_spaces of its spaces hold,
 * so that nobody can find out, by the time that a write takes, what one other space
 * alone holds. Who suggests the merges may have been taken over, so this is checked
 * here.
 *
 * FOLD merges page by page, and a frame that two pages map before the third proves to
 * be different would have told already. So the spaces are counted before the first
 * page of the call is touched: each entry is hashed in full, and those whose hash is
 * that of the first one of their set are its witnesses. No page is held meanwhile.
 * Pages can change afterwards, and some may turn out to be pinned or gone. That makes
 * the frame one that fewer pages map, and not one of other contents: the page that is
 * copied to a new frame is unmapped by then, and is hashed once more.
 *
 * A hash of 64 bits by a secret seed stands for the contents where spaces are counted,
 * and only there: what is merged is compared byte by byte as ever.
 *
 * A frame that exists was made of contents that enough spaces held, whoever maps it by
 * now. So its next sharers are not counted. Orphans of another policy are not adopted
 * (uksm_set_lineage()).
 */
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "bounds.h"
#include "candidate.h"
#include "page_state.h"
#include "space.h"
#include "walk.h"
#include "witness.h"

/*
 * The full hash of a page, if its first lines still have the hash that userspace saw.
 * Hashes are sums over lines.
 */
static bool hash_page(const struct uksm_fold_call *call,
		      const struct uksm_fold_entry *entry,
		      const struct page *page, u64 *hash)
{
	*hash = uksm_hash_page(call->domain, page, 0, call->lines);
	if (call->lines && *hash != entry->hash)
		return false;
	*hash += uksm_hash_page(call->domain, page, call->lines,
				UKSM_PAGE_LINES);
	return true;
}

/* The full hash of what the page table has for an entry. The table is locked. */
static bool hash_in_table(struct uksm_fold_call *call,
			  const struct uksm_fold_entry *entry,
			  struct vm_area_struct *vma,
			  const struct uksm_table *table, u64 *hash)
{
	struct uksm_page_state seen;

	if (table->kind == UKSM_TABLE_HUGE)
		uksm_classify_huge(vma, table->pmd, entry->address, &seen);
	else if (table->kind == UKSM_TABLE_PTES)
		uksm_classify_pte(call->domain,
				  ptep_get(uksm_pte(table, entry->address)),
				  &seen);
	else
		return false;
	switch (seen.state) {
	case UKSM_STATE_ANON:
	case UKSM_STATE_ORPHAN:
	case UKSM_STATE_FRAME:
		return seen.page && hash_page(call, entry, seen.page, hash);
	default:
		return false;
	}
}

/* The full hash of the page of an entry; false if it cannot be had just now. */
static bool hash_entry(struct uksm_fold_call *call, struct uksm_space_ref *ref,
		       const struct uksm_fold_entry *entry, u64 *hash)
{
	struct vm_area_struct *vma;
	struct uksm_table table;
	bool found = false;

	if (uksm_get_space(ref, entry->space) || !ref->mm ||
	    !mmap_read_trylock(ref->mm))
		return false;
	vma = uksm_find_mapping(ref->mm, NULL, entry->address);
	if (vma && uksm_eligible(vma) == UKSM_ELIGIBLE) {
		uksm_lock_table(ref->mm, entry->address, &table);
		found = hash_in_table(call, entry, vma, &table, hash);
		uksm_unlock_table(&table);
	}
	mmap_read_unlock(ref->mm);
	return found;
}

/* Is a page of the same space a witness of the same set already? */
static bool is_counted(const struct uksm_fold_call *call, unsigned int n)
{
	const struct uksm_fold_entry *entries = call->entries;
	unsigned int i;

	for_each_set_bit(i, call->witness, n) {
		if (entries[i].kind == UKSM_KIND_SET &&
		    entries[i].set == entries[n].set &&
		    entries[i].space == entries[n].space)
			return true;
	}
	return false;
}

/**
 * uksm_get_holdings() - get the memory to count spaces in, if the domain asks for it
 * @call: the call; put_call() of fold.c frees it
 *
 * Return: 0; -ENOMEM.
 */
long uksm_get_holdings(struct uksm_fold_call *call)
{
	if (call->domain->least_spaces < 2)
		return 0;
	call->holdings = kcalloc(UKSM_MAX_FOLD, sizeof(*call->holdings),
				 UKSM_GFP);
	return call->holdings ? 0 : -ENOMEM;
}

/**
 * uksm_find_witnesses() - count the spaces that hold the contents of each set
 * @call: the call, with holdings; none of its entries was tried
 *
 * If a signal comes, the rest is not counted: sets are short then, and merge_entries()
 * stops after its first batch.
 */
void uksm_find_witnesses(struct uksm_fold_call *call)
{
	struct uksm_space_ref ref = { .domain = call->domain };
	unsigned int n;
	u64 hash;

	for (n = 0; n < call->count && !signal_pending(current); n++) {
		const struct uksm_fold_entry *entry = &call->entries[n];
		struct uksm_holding *held = &call->holdings[entry->set];

		if (entry->kind != UKSM_KIND_SET ||
		    !hash_entry(call, &ref, entry, &hash))
			continue;
		if (!held->spaces)
			held->contents = hash;
		if (hash == held->contents) {
			held->spaces += !is_counted(call, n);
			__set_bit(n, call->witness);
		}
		cond_resched();
	}
	uksm_put_space(&ref);
}

/**
 * uksm_check_witness() - may the page of an entry become a frame, as far as spaces were
 *			  counted?
 * @call: the call
 * @i: a pending entry whose set has no frame that takes it; if the answer is no it gets
 *     its outcome
 */
bool uksm_check_witness(struct uksm_fold_call *call, unsigned int i)
{
	const struct uksm_fold_entry *entry = &call->batch.entries[i];

	if (!is_short(call, entry->set))
		return true;
	set_outcome(call, i, UKSM_STATUS_DIFFERED,
		    test_bit(entry - call->entries, call->witness) ?
		    UKSM_REASON_SPACES : UKSM_REASON_CONTENT);
	return false;
}

/**
 * uksm_may_found() - may a page become the frame of its set?
 * @call: the call
 * @i: an entry of kind SET
 * @page: its page, which nobody can change any more
 */
bool uksm_may_found(const struct uksm_fold_call *call, unsigned int i,
		    const struct page *page)
{
	unsigned int set = call->batch.entries[i].set;

	if (!call->holdings)
		return true;
	return !is_short(call, set) &&
	       uksm_hash_page(call->domain, page, 0, UKSM_PAGE_LINES) ==
	       call->holdings[set].contents;
}
