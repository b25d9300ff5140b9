// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is to become of each page of a batch?
 *
 * Problem: most reasons not to merge a page can be seen before anything is
 * done to it, and each must come out as the outcome that the contract names.
 * Approach: the mappings are judged once a batch, the page table is looked at
 * under its lock, as often as exchange.c needs. A look either gives an entry its
 * outcome, or asks for a huge page to be split, or finds the page ready; then,
 * if it may, it takes it out of the page table.
 *
 * Cheap questions come first. A page whose contents are no longer what userspace
 * saw is left alone before its huge page is split, its swap slot freed or its
 * entry cleared.
 *
 * Nothing here is final for a page that was taken: exchange.c asks again about
 * what can have changed.
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/swap.h>

#include "batch.h"
#include "faults.h"
#include "page_state.h"
#include "symbols.h"
#include "walk.h"

/**
 * uksm_settle_rest() - give all entries that have none yet the same outcome
 * @folding: the call
 * @status: the outcome
 * @reason: and why
 */
void uksm_settle_rest(struct uksm_folding *folding, enum uksm_status status,
		      enum uksm_reason reason)
{
	unsigned int i;

	for (i = 0; i < folding->batch.count; i++) {
		if (undecided(folding, i))
			settle(folding, i, status, reason);
	}
}

/*
 * A hole punched into a file, or a direct write to it, drops the file's pages from
 * private mappings and keeps what the process wrote. zap_pte_range() with
 * even_cows=0 tells one from the other by PageAnon; a zero page is not anonymous,
 * so the process would find the file where it had written zeros.
 */
static bool may_map_zero(struct vm_area_struct *vma)
{
	return vma_is_anonymous(vma) && !uksm_forbids_zero_page(vma->vm_mm);
}

/* May the mapping of entry @i be merged, in this call? Under the mmap lock. */
static void judge_mapping(struct uksm_folding *folding, unsigned int i)
{
	struct vm_area_struct *vma = folding->batch.vma[i];

	if (!vma) {
		settle(folding, i, UKSM_STATUS_GONE, UKSM_REASON_UNMAPPED);
		return;
	}
	switch (uksm_eligible(vma)) {
	case UKSM_ELIGIBLE:
		break;
	case UKSM_INELIGIBLE:
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_MAPPING);
		return;
	case UKSM_USERFAULT:
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_USERFAULT);
		return;
	}
	if (vma->vm_flags & VM_LOCKED && !(folding->flags & UKSM_FOLD_LOCKED))
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_LOCKED);
	else if (folding->batch.entries[i].kind == UKSM_KIND_ZERO &&
		 !may_map_zero(vma))
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_ZERO);
}

/* The frames of kind FRAME. They stay: domain->reaping is held. */
static void find_target(struct uksm_folding *folding, unsigned int i)
{
	const struct uksm_fold_entry *entry = &folding->batch.entries[i];

	if (entry->kind != UKSM_KIND_FRAME)
		return;
	folding->batch.target[i] = uksm_find_frame(&folding->domain->numbers,
						   entry->frame);
	if (!folding->batch.target[i])
		settle(folding, i, UKSM_STATUS_GONE, UKSM_REASON_NO_FRAME);
}

/**
 * uksm_judge() - find the mappings of a batch, and its frames
 * @folding: the call; the mmap lock of the target is held
 */
void uksm_judge(struct uksm_folding *folding)
{
	struct uksm_batch *batch = &folding->batch;
	struct vm_area_struct *vma = NULL;
	unsigned int i;

	for (i = 0; i < batch->count; i++) {
		vma = uksm_find_mapping(batch->mm, vma,
					batch->entries[i].address);
		batch->vma[i] = vma;
		batch->target[i] = NULL;
		judge_mapping(folding, i);
		if (undecided(folding, i))
			find_target(folding, i);
	}
}

/**
 * uksm_find_partner() - is there something to merge an entry with?
 * @folding: the call
 * @i: an entry without an outcome; if the answer is no it has one
 * @target: what target_of() says of it now
 */
bool uksm_find_partner(struct uksm_folding *folding, unsigned int i,
		       const struct folio *target)
{
	const struct uksm_fold_entry *entry = &folding->batch.entries[i];
	const struct uksm_set *set = &folding->sets[entry->set];

	switch (entry->kind) {
	case UKSM_KIND_SET:
		/* Itself is untried, too. */
		if (target || set->untried >= 2)
			return true;
		if (set->frame)
			settle(folding, i, UKSM_STATUS_FULL,
			       UKSM_REASON_SHARERS);
		else
			settle(folding, i, UKSM_STATUS_DIFFERED,
			       UKSM_REASON_ALONE);
		return false;
	case UKSM_KIND_FRAME:
		if (uksm_frame_room(folding->domain, target))
			return true;
		if (uksm_poisoned(target))
			settle(folding, i, UKSM_STATUS_GONE,
			       UKSM_REASON_POISONED);
		else
			settle(folding, i, UKSM_STATUS_FULL,
			       UKSM_REASON_SHARERS);
		return false;
	default:
		return true;
	}
}

/* What entry @i maps is a frame of this domain: its set has a frame now. */
static void settle_already(struct uksm_folding *folding, unsigned int i,
			   const struct uksm_sight *sight)
{
	struct uksm_fold_entry *entry = &folding->batch.entries[i];

	entry->frame = sight->frame;
	if (entry->kind == UKSM_KIND_SET && !target_of(folding, i))
		folding->sets[entry->set].frame = page_folio(sight->page);
	settle(folding, i, UKSM_STATUS_ALREADY, UKSM_REASON_NONE);
}

/* Is what is seen here a page that can be merged? If not: the outcome. */
static bool is_candidate(struct uksm_folding *folding, unsigned int i,
			 const struct uksm_sight *sight)
{
	switch (sight->state) {
	case UKSM_STATE_ANON:
	case UKSM_STATE_ORPHAN:
		return true;
	case UKSM_STATE_FRAME:
		settle_already(folding, i, sight);
		return false;
	case UKSM_STATE_ZERO:
		folding->batch.entries[i].frame = 0;
		settle(folding, i, UKSM_STATUS_ALREADY, UKSM_REASON_NONE);
		return false;
	case UKSM_STATE_NONE:
		settle(folding, i, UKSM_STATUS_GONE, UKSM_REASON_UNMAPPED);
		return false;
	case UKSM_STATE_SWAP:
		settle(folding, i, UKSM_STATUS_GONE, UKSM_REASON_SWAPPED);
		return false;
	case UKSM_STATE_KSM:
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_KSM);
		return false;
	case UKSM_STATE_FOREIGN:
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_FOREIGN);
		return false;
	case UKSM_STATE_POISONED:
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_POISONED);
		return false;
	default:
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_NOT_ANON);
		return false;
	}
}

/**
 * uksm_fresh() - does the page still have the hash that userspace saw?
 * @folding: the call
 * @i: the entry
 * @page: its page
 */
bool uksm_fresh(const struct uksm_folding *folding, unsigned int i,
		const struct page *page)
{
	return !folding->lines ||
	       uksm_hash_lines(&folding->domain->key, page_address(page), 0,
			       folding->lines) ==
	       folding->batch.entries[i].hash;
}

/* As uksm_fresh(); if the answer is no, the entry has its outcome. */
static bool still_hashes(struct uksm_folding *folding, unsigned int i,
			 const struct page *page)
{
	if (uksm_fresh(folding, i, page)) {
		__set_bit(i, folding->batch.hashed);
		return true;
	}
	settle(folding, i, UKSM_STATUS_DIFFERED, UKSM_REASON_STALE);
	return false;
}

/*
 * Must the hash be checked before the page is taken? Only where work would be
 * wasted: a page that is compared with a frame or with zero shows at its first
 * bytes that it has changed, and is asked why then.
 */
static bool checked_first(const struct uksm_fold_entry *entry,
			  const struct folio *target, struct folio *folio)
{
	return folio_test_large(folio) ||
	       (entry->kind == UKSM_KIND_SET && !target);
}

/* A page of a large folio: it is split later, or this is the outcome. */
static void ask_for_split(struct uksm_folding *folding, unsigned int i,
			  struct folio *folio)
{
	struct uksm_batch *batch = &folding->batch;

	if (!(folding->flags & UKSM_FOLD_SPLIT) ||
	    folio == batch->unsplittable) {
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_HUGE);
	} else if (!batch->in_the_way) {
		folio_get(folio);
		batch->in_the_way = folio;
		batch->asking = i;
	}
}

/*
 * Frees the swap slot of a page that is clean in swap. As do_wp_page() does it,
 * under the page-table lock with the folio locked; nothing here waits.
 */
static bool out_of_swap_cache(struct folio *folio)
{
	if (!folio_test_swapcache(folio))
		return true;
	if (folio_trylock(folio)) {
		uksm_call(folio_free_swap)(folio);
		folio_unlock(folio);
	}
	return !folio_test_swapcache(folio);
}

/*
 * References to a page that this batch has taken out of other entries and not
 * released yet: orphans are often mapped by neighbours.
 */
static int unreleased(const struct uksm_batch *batch, const struct page *page)
{
	unsigned int i;
	int n = 0;

	for (i = 0; i < batch->nr_old; i++)
		n += batch->old[i] == page;
	return n;
}

/**
 * uksm_pinned() - does somebody hold a reference that is no mapping's?
 * @batch: the batch
 * @page: a small page that is mapped, or was taken out of the page table
 */
bool uksm_pinned(const struct uksm_batch *batch, struct page *page)
{
	const struct folio *folio = page_folio(page);
	int known;

	if (uksm_fault(UKSM_FAULT_NO_REFERENCES) ||
	    uksm_references_explained(folio, 0))
		return false;
	known = unreleased(batch, page);
	return !known || !uksm_references_explained(folio, known);
}

/*
 * Has the page become the frame of its set where it is? It is an orphan of this
 * domain's lineage, then; nobody holds a reference to it, so ksmd is not about to
 * make it something else.
 */
static bool adopted(struct uksm_folding *folding, unsigned int i,
		    struct folio *folio)
{
	struct uksm_fold_entry *entry = &folding->batch.entries[i];

	if (entry->kind != UKSM_KIND_SET || target_of(folding, i) ||
	    !folding->blanks.count ||
	    !uksm_adopt_frame(folding->domain, &folding->blanks, folio))
		return false;
	folding->sets[entry->set].frame = folio;
	entry->frame = uksm_frame_number(folio);
	folding->tally.frames_made++;
	folding->tally.adopted++;
	settle(folding, i, UKSM_STATUS_MERGED, UKSM_REASON_NONE);
	return true;
}

/* Looks at entry @i, whose page table is locked. Is it ready to be taken? */
static bool ready(struct uksm_folding *folding, unsigned int i, pte_t pte,
		  struct page **page)
{
	struct folio *folio, *target;
	struct uksm_sight sight;

	uksm_see_pte(folding->domain, pte, &sight);
	if (!is_candidate(folding, i, &sight))
		return false;
	target = target_of(folding, i);
	if (!has_partner(folding, i, target))
		return false;
	if (pte_uffd_wp(pte)) {
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_USERFAULT);
		return false;
	}
	*page = sight.page;
	folio = page_folio(*page);
	if (checked_first(&folding->batch.entries[i], target, folio) &&
	    !still_hashes(folding, i, *page))
		return false;
	if (folio_test_large(folio)) {
		ask_for_split(folding, i, folio);
		return false;
	}
	if (!out_of_swap_cache(folio)) {
		settle(folding, i, UKSM_STATUS_BUSY, UKSM_REASON_SWAPCACHE);
		return false;
	}
	if (sight.flags & UKSM_PAGE_PINNED &&
	    uksm_pinned(&folding->batch, *page)) {
		settle(folding, i, UKSM_STATUS_BUSY, UKSM_REASON_PINNED);
		return false;
	}
	return sight.state != UKSM_STATE_ORPHAN || !adopted(folding, i, folio);
}

static void extend_span(struct uksm_batch *batch, unsigned long address)
{
	batch->start = min(batch->start, address);
	batch->end = max(batch->end, address + PAGE_SIZE);
}

/*
 * Gives hopeless entries their outcome; the span of the others is where the
 * notifier must know. With @take those are cleared that it knows of. Another one
 * may have become ready since the look before, because a large folio was split: it
 * waits for the next round.
 */
static void look_at_ptes(struct uksm_folding *folding,
			 const struct uksm_table *table, bool take)
{
	struct uksm_batch *batch = &folding->batch;
	unsigned int i;

	for (i = 0; i < batch->count; i++) {
		unsigned long address = batch->entries[i].address;
		pte_t *ptep = uksm_pte(table, address);
		struct page *page;

		if (!undecided(folding, i) ||
		    !ready(folding, i, ptep_get(ptep), &page))
			continue;
		if (take && (address < batch->notified_start ||
			     address >= batch->notified_end))
			continue;
		if (take) {
			batch->pte[i] = ptep_get_and_clear(batch->mm, address,
							   ptep);
			batch->taken[i] = page;
		}
		extend_span(batch, address);
	}
}

/* The same for entries of a huge page: at best it is to be split. */
static void look_at_huge(struct uksm_folding *folding,
			 const struct uksm_table *table)
{
	struct uksm_batch *batch = &folding->batch;
	struct uksm_sight sight;
	unsigned int i;

	for (i = 0; i < batch->count; i++) {
		if (!undecided(folding, i))
			continue;
		uksm_see_huge(batch->vma[i], table->pmd,
			      batch->entries[i].address, &sight);
		if (is_candidate(folding, i, &sight) &&
		    has_partner(folding, i, target_of(folding, i)) &&
		    still_hashes(folding, i, sight.page))
			ask_for_split(folding, i, page_folio(sight.page));
	}
}

/**
 * uksm_look() - look at all entries that have no outcome yet
 * @folding: the call
 * @table: their page table, locked
 * @take: take those that are ready out of it
 *
 * Leaves the span of the pages that are ready, or taken, in the batch, and
 * perhaps a huge page that is in the way.
 */
void uksm_look(struct uksm_folding *folding, const struct uksm_table *table,
	       bool take)
{
	struct uksm_batch *batch = &folding->batch;

	batch->start = ULONG_MAX;
	batch->end = 0;
	memset(batch->taken, 0, batch->count * sizeof(*batch->taken));
	bitmap_zero(batch->hashed, UKSM_LOCK_BATCH);
	switch (table->kind) {
	case UKSM_TABLE_PTES:
		look_at_ptes(folding, table, take);
		break;
	case UKSM_TABLE_HUGE:
		look_at_huge(folding, table);
		break;
	case UKSM_TABLE_HOLE:
		uksm_settle_rest(folding, UKSM_STATUS_GONE, UKSM_REASON_UNMAPPED);
		break;
	case UKSM_TABLE_MOVING:
		uksm_settle_rest(folding, UKSM_STATUS_GONE, UKSM_REASON_SWAPPED);
		break;
	case UKSM_TABLE_OTHER:
		uksm_settle_rest(folding, UKSM_STATUS_REFUSED,
				 UKSM_REASON_NOT_ANON);
		break;
	case UKSM_TABLE_RACED:
		uksm_settle_rest(folding, UKSM_STATUS_BUSY, UKSM_REASON_RACED);
		break;
	}
}
