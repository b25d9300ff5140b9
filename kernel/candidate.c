// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which pages of a batch can be merged?
 *
 * Most reasons not to merge a page can be seen before anything is done to it, and
 * each must become the outcome that the contract names. The mappings are checked
 * once for each batch. The pages are checked under the page-table lock, as often as
 * exchange.c asks. A check gives an entry its outcome, or asks for a huge page to
 * be split, or finds that the page can be merged. If the caller wants it, the
 * check then clears the entry of such a page in the page table, and leaves a
 * PROT_NONE entry of the page in its place.
 *
 * Cheap checks come first. If the contents of a page are no longer what userspace
 * saw, the page is left alone before its huge page is split, its swap slot freed
 * or its entry cleared.
 *
 * No check is final for a page whose entry was cleared: exchange.c repeats the
 * checks whose result can have changed.
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/swap.h>

#include "batch.h"
#include "candidate.h"
#include "faults.h"
#include "frame.h"
#include "page_state.h"
#include "symbols.h"
#include "walk.h"
#include "witness.h"

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

/* May this call merge pages of the mapping of entry @i? The mmap lock is held. */
static void check_mapping(struct uksm_fold_call *call, unsigned int i)
{
	struct vm_area_struct *vma = call->batch.vma[i];

	if (!vma) {
		set_outcome(call, i, UKSM_STATUS_GONE, UKSM_REASON_UNMAPPED);
		return;
	}
	switch (uksm_eligible(vma)) {
	case UKSM_ELIGIBLE:
		break;
	case UKSM_INELIGIBLE:
		set_outcome(call, i, UKSM_STATUS_REFUSED, UKSM_REASON_MAPPING);
		return;
	case UKSM_USERFAULT:
		set_outcome(call, i, UKSM_STATUS_REFUSED, UKSM_REASON_USERFAULT);
		return;
	}
	if (vma->vm_flags & VM_LOCKED && !(call->flags & UKSM_FOLD_LOCKED)) {
		set_outcome(call, i, UKSM_STATUS_REFUSED, UKSM_REASON_LOCKED);
	} else if (call->batch.entries[i].kind == UKSM_KIND_ZERO) {
		if (!may_map_zero(vma))
			set_outcome(call, i, UKSM_STATUS_REFUSED,
				    UKSM_REASON_ZERO);
	} else if (!call->may_map_frames) {
		/* The guard could not protect a frame; see guard_migration.c. */
		set_outcome(call, i, UKSM_STATUS_FULL, UKSM_REASON_GUARD);
	}
}

/* Looks up the frame of a kind FRAME entry. It stays: domain->frames_lock is held. */
static void find_frame(struct uksm_fold_call *call, unsigned int i)
{
	const struct uksm_fold_entry *entry = &call->batch.entries[i];

	if (entry->kind != UKSM_KIND_FRAME)
		return;
	call->batch.frame[i] = uksm_lookup_frame(&call->domain->frame_ids,
						 entry->frame);
	if (!call->batch.frame[i])
		set_outcome(call, i, UKSM_STATUS_GONE, UKSM_REASON_NO_FRAME);
}

/**
 * uksm_find_candidates() - find and check the mappings of a batch, and its frames
 * @call: the call; the mmap lock of the target is held
 */
void uksm_find_candidates(struct uksm_fold_call *call)
{
	struct uksm_batch *batch = &call->batch;
	struct vm_area_struct *vma = NULL;
	unsigned int i;

	for (i = 0; i < batch->count; i++) {
		vma = uksm_find_mapping(batch->mm, vma,
					batch->entries[i].address);
		batch->vma[i] = vma;
		batch->frame[i] = NULL;
		if (is_pending(call, i))
			check_mapping(call, i);
		if (is_pending(call, i))
			find_frame(call, i);
	}
}

/**
 * uksm_check_partner() - is there something to merge an entry with?
 * @call: the call
 * @i: a pending entry; if the answer is no it gets its outcome
 * @frame: what frame_for() returns for it now
 */
bool uksm_check_partner(struct uksm_fold_call *call, unsigned int i,
			const struct folio *frame)
{
	const struct uksm_fold_entry *entry = &call->batch.entries[i];
	const struct uksm_set *set = &call->sets[entry->set];

	switch (entry->kind) {
	case UKSM_KIND_SET:
		/*
		 * The entry itself is pending, too. If too few spaces hold its
		 * contents, uksm_check_witness() tells, and not who was last.
		 */
		if (frame || set->pending >= 2 ||
		    (!set->frame && is_short(call, entry->set)))
			return true;
		if (set->frame)
			set_outcome(call, i, UKSM_STATUS_FULL,
				    UKSM_REASON_SHARERS);
		else
			set_outcome(call, i, UKSM_STATUS_DIFFERED,
				    UKSM_REASON_ALONE);
		return false;
	case UKSM_KIND_FRAME:
		if (uksm_frame_room(call->domain, frame))
			return true;
		if (uksm_poisoned(frame))
			set_outcome(call, i, UKSM_STATUS_GONE,
				    UKSM_REASON_POISONED);
		else
			set_outcome(call, i, UKSM_STATUS_FULL,
				    UKSM_REASON_SHARERS);
		return false;
	default:
		return true;
	}
}

/*
 * Entry @i maps a frame of this domain already: its set has a frame now. Not where
 * userspace chooses the frame of each page, because it knows who maps which.
 */
static void set_already_merged(struct uksm_fold_call *call, unsigned int i,
			       const struct uksm_page_state *seen)
{
	struct uksm_fold_entry *entry = &call->batch.entries[i];

	entry->frame = seen->frame;
	if (entry->kind == UKSM_KIND_SET && !frame_for(call, i) &&
	    !(call->domain->policy & UKSM_POLICY_BETWEEN))
		call->sets[entry->set].frame = page_folio(seen->page);
	set_outcome(call, i, UKSM_STATUS_ALREADY, UKSM_REASON_NONE);
}

/* Can a page of this state be merged? If not, the entry gets its outcome. */
static bool is_candidate(struct uksm_fold_call *call, unsigned int i,
			 const struct uksm_page_state *seen)
{
	switch (seen->state) {
	case UKSM_STATE_ANON:
	case UKSM_STATE_ORPHAN:
		return true;
	case UKSM_STATE_FRAME:
		set_already_merged(call, i, seen);
		return false;
	case UKSM_STATE_ZERO:
		call->batch.entries[i].frame = 0;
		set_outcome(call, i, UKSM_STATUS_ALREADY, UKSM_REASON_NONE);
		return false;
	case UKSM_STATE_NONE:
		set_outcome(call, i, UKSM_STATUS_GONE, UKSM_REASON_UNMAPPED);
		return false;
	case UKSM_STATE_SWAP:
		set_outcome(call, i, UKSM_STATUS_GONE, UKSM_REASON_SWAPPED);
		return false;
	case UKSM_STATE_KSM:
		set_outcome(call, i, UKSM_STATUS_REFUSED, UKSM_REASON_KSM);
		return false;
	case UKSM_STATE_FOREIGN:
		set_outcome(call, i, UKSM_STATUS_REFUSED, UKSM_REASON_FOREIGN);
		return false;
	case UKSM_STATE_POISONED:
		set_outcome(call, i, UKSM_STATUS_REFUSED, UKSM_REASON_POISONED);
		return false;
	default:
		set_outcome(call, i, UKSM_STATUS_REFUSED, UKSM_REASON_NOT_ANON);
		return false;
	}
}

/**
 * uksm_hash_matches() - does the page still have the hash that userspace saw?
 * @call: the call
 * @i: the entry
 * @page: its page
 */
bool uksm_hash_matches(const struct uksm_fold_call *call, unsigned int i,
		       const struct page *page)
{
	return !call->lines ||
	       uksm_hash_page(call->domain, page, 0, call->lines) ==
	       call->batch.entries[i].hash;
}

/* As uksm_hash_matches(); if the answer is no, the entry gets its outcome. */
static bool check_hash(struct uksm_fold_call *call, unsigned int i,
		       const struct page *page)
{
	if (uksm_hash_matches(call, i, page)) {
		__set_bit(i, call->batch.hash_checked);
		return true;
	}
	set_outcome(call, i, UKSM_STATUS_DIFFERED, UKSM_REASON_STALE);
	return false;
}

/*
 * Must the hash be checked before the entry is cleared? Only where work would be
 * wasted. A page that is compared with a frame or with zero shows at its first
 * bytes that it has changed; only then is it hashed, to find out since when.
 */
static bool hash_first(const struct uksm_fold_entry *entry,
		       const struct folio *frame, struct folio *folio)
{
	return folio_test_large(folio) ||
	       (entry->kind == UKSM_KIND_SET && !frame);
}

/* A page of a large folio: the folio is split later, or HUGE is the outcome. */
static void request_split(struct uksm_fold_call *call, unsigned int i,
			  struct folio *folio)
{
	struct uksm_batch *batch = &call->batch;

	if (!(call->flags & UKSM_FOLD_SPLIT) ||
	    folio == batch->unsplittable) {
		set_outcome(call, i, UKSM_STATUS_REFUSED, UKSM_REASON_HUGE);
	} else if (!batch->to_split) {
		folio_get(folio);
		batch->to_split = folio;
		batch->split_for = i;
	}
}

/*
 * Frees the swap slot of a page that is clean in swap. do_wp_page() does it the same
 * way: under the page-table lock with the folio locked. Nothing here waits.
 */
static bool free_swap(struct folio *folio)
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
 * Counts the references to a page that this batch holds itself: it has replaced the
 * page in other entries and not released it yet. Neighbours often map one orphan.
 */
static int unreleased_refs(const struct uksm_batch *batch,
			   const struct page *page)
{
	unsigned int i;
	int n = 0;

	for (i = 0; i < batch->nr_old; i++)
		n += batch->old[i] == page;
	return n;
}

/**
 * uksm_page_pinned() - does somebody hold a reference besides the mappings?
 * @batch: the batch
 * @page: a small page that is mapped, or whose entry was cleared
 */
bool uksm_page_pinned(const struct uksm_batch *batch, struct page *page)
{
	const struct folio *folio = page_folio(page);
	int known;

	if (uksm_fault(UKSM_FAULT_NO_REFERENCES) ||
	    uksm_no_extra_refs(folio, 0))
		return false;
	known = unreleased_refs(batch, page);
	return !known || !uksm_no_extra_refs(folio, known);
}

/*
 * Makes an orphan of this domain's lineage the frame of its set, where it is.
 * Nobody holds a reference to it, so ksmd is not about to make it something else.
 * Returns false if the page cannot be adopted.
 */
static bool adopt(struct uksm_fold_call *call, unsigned int i,
		  struct folio *folio)
{
	struct uksm_fold_entry *entry = &call->batch.entries[i];

	if (entry->kind != UKSM_KIND_SET || frame_for(call, i) ||
	    call->domain->policy & UKSM_POLICY_BETWEEN ||
	    !call->prealloc.count ||
	    !uksm_may_found(call, i, &folio->page) ||
	    !uksm_adopt_frame(call->domain, &call->prealloc, folio))
		return false;
	call->sets[entry->set].frame = folio;
	entry->frame = uksm_frame_id(folio);
	call->counters.frames_made++;
	call->counters.adopted++;
	set_outcome(call, i, UKSM_STATUS_MERGED, UKSM_REASON_NONE);
	return true;
}

/* Can the page of entry @i be merged? Its page table is locked. */
static bool check_page(struct uksm_fold_call *call, unsigned int i, pte_t pte,
		       struct page **page)
{
	struct folio *folio, *frame;
	struct uksm_page_state seen;

	uksm_classify_pte(call->domain, pte, &seen);
	if (!is_candidate(call, i, &seen))
		return false;
	frame = frame_for(call, i);
	if (!has_partner(call, i, frame))
		return false;
	if (uksm_pte_uffd(pte)) {
		set_outcome(call, i, UKSM_STATUS_REFUSED, UKSM_REASON_USERFAULT);
		return false;
	}
	*page = seen.page;
	folio = page_folio(*page);
	if (hash_first(&call->batch.entries[i], frame, folio) &&
	    !check_hash(call, i, *page))
		return false;
	if (call->batch.entries[i].kind == UKSM_KIND_SET && !frame &&
	    !uksm_check_witness(call, i))
		return false;
	if (folio_test_large(folio)) {
		request_split(call, i, folio);
		return false;
	}
	if (!free_swap(folio)) {
		set_outcome(call, i, UKSM_STATUS_BUSY, UKSM_REASON_SWAPCACHE);
		return false;
	}
	if (seen.flags & UKSM_PAGE_PINNED &&
	    uksm_page_pinned(&call->batch, *page)) {
		set_outcome(call, i, UKSM_STATUS_BUSY, UKSM_REASON_PINNED);
		return false;
	}
	return seen.state != UKSM_STATE_ORPHAN || !adopt(call, i, folio);
}

static void extend_span(struct uksm_batch *batch, unsigned long address)
{
	batch->start = min(batch->start, address);
	batch->end = max(batch->end, address + PAGE_SIZE);
}

/*
 * Clears an entry and returns it. A PROT_NONE entry of the same page stands in its
 * place until the page is mapped or put back, because many readers look at an entry
 * before they take the lock. An empty entry says that the page is missing: a fault
 * would read a file, allocate or charge first, and look under the lock last; reclaim
 * and migration would pass the page by. At a PROT_NONE entry all of them take the
 * lock, as for a page that NUMA balancing looks at. See exchange.c.
 *
 * Between the two stores the entry is empty. The page-table lock keeps this task
 * running meanwhile, except on real-time kernels, where it is a sleeping lock.
 */
static pte_t clear_pte(struct mm_struct *mm, unsigned long address, pte_t *ptep,
		       struct page *page)
{
	pte_t pte;

	preempt_disable_nested();
	pte = ptep_get_and_clear(mm, address, ptep);
	if (!uksm_fault(UKSM_FAULT_EMPTY_ENTRY))
		set_pte_at(mm, address, ptep,
			   pfn_pte(page_to_pfn(page), PAGE_NONE));
	preempt_enable_nested();
	return pte;
}

/*
 * Gives hopeless entries their outcome. The notifier must be told of the span of
 * the others. With @clear, those are cleared that it was told of. Another entry may
 * have become a candidate since the check before, because a large folio was split:
 * it waits for the next round.
 */
static void check_ptes(struct uksm_fold_call *call,
		       const struct uksm_table *table, bool clear)
{
	struct uksm_batch *batch = &call->batch;
	unsigned int i;

	for (i = 0; i < batch->count; i++) {
		unsigned long address = batch->entries[i].address;
		pte_t *ptep = uksm_pte(table, address);
		struct page *page;

		if (!is_pending(call, i) ||
		    !check_page(call, i, ptep_get(ptep), &page))
			continue;
		if (clear && (address < batch->notified_start ||
			      address >= batch->notified_end))
			continue;
		if (clear) {
			batch->pte[i] = clear_pte(batch->mm, address, ptep,
						  page);
			batch->cleared[i] = page;
		}
		extend_span(batch, address);
	}
}

/* The same for entries of a huge page, which is split at best. */
static void check_huge(struct uksm_fold_call *call,
		       const struct uksm_table *table)
{
	struct uksm_batch *batch = &call->batch;
	struct uksm_page_state seen;
	unsigned int i;

	for (i = 0; i < batch->count; i++) {
		struct folio *frame;

		if (!is_pending(call, i))
			continue;
		uksm_classify_huge(batch->vma[i], table->pmd,
				   batch->entries[i].address, &seen);
		if (!is_candidate(call, i, &seen))
			continue;
		frame = frame_for(call, i);
		if (has_partner(call, i, frame) &&
		    check_hash(call, i, seen.page) &&
		    (batch->entries[i].kind != UKSM_KIND_SET || frame ||
		     uksm_check_witness(call, i)))
			request_split(call, i, page_folio(seen.page));
	}
}

/**
 * uksm_check_pages() - check the pages of all pending entries
 * @call: the call
 * @table: their page table, locked
 * @clear: clear the entries of the pages that can be merged
 *
 * Leaves in the batch: the span of the pages that can be merged, or were cleared, and
 * perhaps a huge page that must be split first.
 */
void uksm_check_pages(struct uksm_fold_call *call,
		      const struct uksm_table *table,
		      bool clear)
{
	struct uksm_batch *batch = &call->batch;

	batch->start = ULONG_MAX;
	batch->end = 0;
	memset(batch->cleared, 0, batch->count * sizeof(*batch->cleared));
	bitmap_zero(batch->hash_checked, UKSM_LOCK_BATCH);
	switch (table->kind) {
	case UKSM_TABLE_PTES:
		check_ptes(call, table, clear);
		break;
	case UKSM_TABLE_HUGE:
		check_huge(call, table);
		break;
	case UKSM_TABLE_HOLE:
		uksm_set_remaining(call, UKSM_STATUS_GONE, UKSM_REASON_UNMAPPED);
		break;
	case UKSM_TABLE_MOVING:
		uksm_set_remaining(call, UKSM_STATUS_GONE, UKSM_REASON_SWAPPED);
		break;
	case UKSM_TABLE_OTHER:
		uksm_set_remaining(call, UKSM_STATUS_REFUSED,
				   UKSM_REASON_NOT_ANON);
		break;
	case UKSM_TABLE_RACED:
		uksm_set_remaining(call, UKSM_STATUS_BUSY, UKSM_REASON_RACED);
		break;
	}
}
