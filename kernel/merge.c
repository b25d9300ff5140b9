// SPDX-License-Identifier: GPL-2.0-only
/*
 * Merge a batch of pages of one page table
 *
 * Problem: exchange pages under a running process, so that it can never see a
 * byte change and never lose a write, whatever userspace suggested.
 *
 * Approach, in this order; each step is what makes the next one sound:
 *
 *  1. The mmap lock (read side) keeps the mappings as they were judged: no
 *     munmap, mremap, mprotect, fork or khugepaged in this address space.
 *  2. The MMU notifier's start tells KVM and other secondary users to forget
 *     the range and not to take it up again before the end. It may sleep, so it
 *     comes before the page-table lock. For an address space that has such
 *     users a first look drops the hopeless entries, so that a guest does not
 *     pay for them.
 *  3. The page-table lock stops page faults, zap, swap-out, NUMA balancing,
 *     migration, ksmd and everybody else who changes these entries. Who has
 *     isolated a page already holds a reference to it, and is found in 6.
 *  4. Entries that can be merged are cleared: an atomic exchange, so no dirty or
 *     accessed bit is lost and get_user_pages_fast() is ordered against 6.
 *  5. One flush: from here on no processor can write these pages through this
 *     address space. What a write waits for is the page-table lock.
 *  6. The references are checked again: a page to which somebody holds one (a
 *     pin, I/O under way, reclaim, migration, ksmd) goes back.
 *  7. All bytes are compared, or copied if the page becomes a new frame. Nobody
 *     can change them now: this address space cannot, other ones that share the
 *     page since a fork have it read-only, and there are no other references.
 *  8. The entry is set to the frame, or restored to the bit. Restoring is exact:
 *     nothing but the entry was touched, PageAnonExclusive least of all.
 *  9. After the unlock, the notifier's end; then the old pages are released,
 *     since no TLB of any kind can hold them any more.
 *
 * What the new entry keeps: the accessed bit, so that the target's working set
 * is still seen; soft-dirty. What it never has: write permission, dirty. A
 * PROT_NONE or NUMA-hint entry is replaced by what its mapping allows.
 *
 * The old page's rmap is removed as munmap() does it: that undoes mlock, and an
 * exclusive page is on its way to be freed, where the flag is dropped. A page in
 * the swap cache has its slot freed first. A page in MADV_FREE keeps the
 * contents it has, as if it had been read in time.
 */
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/swap.h>

#include "compare.h"
#include "faults.h"
#include "fold.h"
#include "state.h"
#include "symbols.h"
#include "walk.h"

static bool undecided(const struct uksm_fold_entry *entry)
{
	return entry->status == UKSM_STATUS_UNTRIED;
}

static void settle(struct uksm_folding *folding, unsigned int i,
		   enum uksm_status status, enum uksm_reason reason)
{
	uksm_settle(folding, &folding->batch.entries[i], status, reason);
}

static void settle_rest(struct uksm_folding *folding, enum uksm_status status,
			enum uksm_reason reason)
{
	unsigned int i;

	for (i = 0; i < folding->batch.count; i++) {
		if (undecided(&folding->batch.entries[i]))
			settle(folding, i, status, reason);
	}
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
		 uksm_forbids_zero_page(vma->vm_mm))
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_MAPPING);
}

/* The frames of kind FRAME. They stay: domain->reaping is held. */
static void find_target(struct uksm_folding *folding, unsigned int i)
{
	const struct uksm_fold_entry *entry = &folding->batch.entries[i];

	if (entry->kind != UKSM_KIND_FRAME)
		return;
	folding->batch.target[i] = xa_load(&folding->domain->frames,
					   entry->frame);
	if (!folding->batch.target[i])
		settle(folding, i, UKSM_STATUS_GONE, UKSM_REASON_NO_FRAME);
}

/*
 * The frame that entry @i is to be merged with: NULL if its set has none yet,
 * or if it is to become the zero page.
 */
static struct folio *target_of(const struct uksm_folding *folding,
			       unsigned int i)
{
	const struct uksm_fold_entry *entry = &folding->batch.entries[i];

	if (entry->kind == UKSM_KIND_SET)
		return folding->sets[entry->set].frame;
	return folding->batch.target[i];
}

/* Is there something to merge entry @i with? If not, it has its outcome. */
static bool has_partner(struct uksm_folding *folding, unsigned int i)
{
	const struct uksm_fold_entry *entry = &folding->batch.entries[i];
	const struct folio *target = target_of(folding, i);

	if (target && uksm_frame_full(folding->domain, target)) {
		settle(folding, i, UKSM_STATUS_FULL, UKSM_REASON_SHARERS);
		return false;
	}
	/* Itself is untried, too. */
	if (!target && entry->kind == UKSM_KIND_SET &&
	    folding->sets[entry->set].untried < 2) {
		settle(folding, i, UKSM_STATUS_DIFFERED, UKSM_REASON_ALONE);
		return false;
	}
	return true;
}

/* What entry @i maps is a frame of this domain: its set has a frame now. */
static void settle_already(struct uksm_folding *folding, unsigned int i,
			   const struct uksm_sight *sight)
{
	struct uksm_fold_entry *entry = &folding->batch.entries[i];
	struct uksm_set *set = &folding->sets[entry->set];

	entry->frame = sight->frame;
	if (entry->kind == UKSM_KIND_SET && !set->frame)
		set->frame = page_folio(sight->page);
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
	default:
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_NOT_ANON);
		return false;
	}
}

/* Does the page still have the hash that userspace saw? */
static bool is_fresh(struct uksm_folding *folding, unsigned int i,
		     const struct page *page)
{
	if (!folding->lines ||
	    uksm_hash_lines(&folding->domain->key, page_address(page), 0,
			    folding->lines) == folding->batch.entries[i].hash)
		return true;
	settle(folding, i, UKSM_STATUS_DIFFERED, UKSM_REASON_STALE);
	return false;
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

static bool pinned(const struct uksm_batch *batch, struct page *page)
{
	const struct folio *folio = page_folio(page);
	int known;

	if (uksm_fault(UKSM_FAULT_NO_REFERENCES) ||
	    uksm_references_explained(folio, 0))
		return false;
	known = unreleased(batch, page);
	return !known || !uksm_references_explained(folio, known);
}

/* Looks at entry @i, whose page table is locked. Is it ready to be taken? */
static bool ready(struct uksm_folding *folding, unsigned int i, pte_t pte,
		  struct page **page)
{
	struct uksm_sight sight;
	struct folio *folio;

	uksm_see_pte(folding->domain, pte, &sight);
	if (!is_candidate(folding, i, &sight) || !has_partner(folding, i))
		return false;
	if (pte_uffd_wp(pte)) {
		settle(folding, i, UKSM_STATUS_REFUSED, UKSM_REASON_USERFAULT);
		return false;
	}
	*page = sight.page;
	if (!is_fresh(folding, i, *page))
		return false;
	folio = page_folio(*page);
	if (folio_test_large(folio)) {
		ask_for_split(folding, i, folio);
		return false;
	}
	if (!out_of_swap_cache(folio)) {
		settle(folding, i, UKSM_STATUS_BUSY, UKSM_REASON_SWAPCACHE);
		return false;
	}
	if (pinned(&folding->batch, *page)) {
		settle(folding, i, UKSM_STATUS_BUSY, UKSM_REASON_PINNED);
		return false;
	}
	return true;
}

static void extend_span(struct uksm_batch *batch, unsigned long address)
{
	batch->start = min(batch->start, address);
	batch->end = max(batch->end, address + PAGE_SIZE);
}

/*
 * Gives hopeless entries their outcome; the span of the others is where the
 * notifier must know. With @take those are cleared.
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

		if (!undecided(&batch->entries[i]) ||
		    !ready(folding, i, ptep_get(ptep), &page))
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
		if (!undecided(&batch->entries[i]))
			continue;
		uksm_see_huge(batch->vma[i], table->pmd,
			      batch->entries[i].address, &sight);
		if (is_candidate(folding, i, &sight) &&
		    has_partner(folding, i) &&
		    is_fresh(folding, i, sight.page))
			ask_for_split(folding, i, page_folio(sight.page));
	}
}

static void look(struct uksm_folding *folding, const struct uksm_table *table,
		 bool take)
{
	struct uksm_batch *batch = &folding->batch;

	batch->start = ULONG_MAX;
	batch->end = 0;
	memset(batch->taken, 0, batch->count * sizeof(*batch->taken));
	switch (table->kind) {
	case UKSM_TABLE_PTES:
		look_at_ptes(folding, table, take);
		break;
	case UKSM_TABLE_HUGE:
		look_at_huge(folding, table);
		break;
	case UKSM_TABLE_HOLE:
		settle_rest(folding, UKSM_STATUS_GONE, UKSM_REASON_UNMAPPED);
		break;
	case UKSM_TABLE_MOVING:
		settle_rest(folding, UKSM_STATUS_GONE, UKSM_REASON_SWAPPED);
		break;
	case UKSM_TABLE_OTHER:
		settle_rest(folding, UKSM_STATUS_REFUSED,
			    UKSM_REASON_NOT_ANON);
		break;
	case UKSM_TABLE_RACED:
		settle_rest(folding, UKSM_STATUS_BUSY, UKSM_REASON_RACED);
		break;
	}
}

/* What the entry that replaces @old has of it. */
static pte_t keep_bits(pte_t pte, pte_t old)
{
	pte = pte_wrprotect(pte);
	if (!pte_young(old))
		pte = pte_mkold(pte);
	if (pte_soft_dirty(old))
		pte = pte_mksoft_dirty(pte);
	return pte;
}

static void replace(struct uksm_batch *batch, unsigned int i, pte_t *ptep,
		    pte_t pte)
{
	set_pte_at(batch->mm, batch->entries[i].address, ptep,
		   keep_bits(pte, batch->pte[i]));
	uksm_remove_rmap(batch->taken[i], batch->vma[i]);
	batch->old[batch->nr_old++] = batch->taken[i];
}

static void map_frame(struct uksm_folding *folding, unsigned int i, pte_t *ptep,
		      struct folio *frame)
{
	struct uksm_batch *batch = &folding->batch;
	struct vm_area_struct *vma = batch->vma[i];

	folio_get(frame);
	uksm_add_rmap(&frame->page, vma, batch->entries[i].address);
	replace(batch, i, ptep, mk_pte(&frame->page, vma->vm_page_prot));
	batch->entries[i].frame = uksm_frame_number(frame);
	settle(folding, i, UKSM_STATUS_MERGED, UKSM_REASON_NONE);
}

/* Clean, unlike what KSM maps; that is how the kernel counts KSM's. */
static void map_zero_page(struct uksm_folding *folding, unsigned int i,
			  pte_t *ptep)
{
	struct uksm_batch *batch = &folding->batch;
	unsigned long pfn = my_zero_pfn(batch->entries[i].address);

	replace(batch, i, ptep,
		pte_mkspecial(pfn_pte(pfn, batch->vma[i]->vm_page_prot)));
	batch->zeroed++;
	settle(folding, i, UKSM_STATUS_ZEROED, UKSM_REASON_NONE);
}

static void restore(struct uksm_folding *folding, unsigned int i, pte_t *ptep,
		    enum uksm_status status, enum uksm_reason reason)
{
	struct uksm_batch *batch = &folding->batch;

	set_pte_at(batch->mm, batch->entries[i].address, ptep, batch->pte[i]);
	if (undecided(&batch->entries[i]))
		settle(folding, i, status, reason);
}

static bool equal(const struct page *page, const struct folio *frame)
{
	return uksm_fault(UKSM_FAULT_NO_COMPARE) ||
	       uksm_pages_equal(page_address(page), folio_address(frame));
}

static bool zero(const struct page *page)
{
	return uksm_fault(UKSM_FAULT_NO_COMPARE) ||
	       uksm_page_zero(page_address(page));
}

/* The first page of its set that could be taken becomes its frame. */
static void found_set(struct uksm_folding *folding, unsigned int i, pte_t *ptep)
{
	struct uksm_set *set = &folding->sets[folding->batch.entries[i].set];

	if (!folding->nr_blanks) {
		restore(folding, i, ptep, UKSM_STATUS_FULL, folding->no_blank);
		return;
	}
	set->frame = uksm_make_frame(folding->domain,
				     &folding->blanks[--folding->nr_blanks],
				     folding->batch.taken[i]);
	folding->tally.frames_made++;
	map_frame(folding, i, ptep, set->frame);
}

/* Steps 6 to 8 for a page that was taken. */
static void weigh(struct uksm_folding *folding, unsigned int i, pte_t *ptep)
{
	struct page *page = folding->batch.taken[i];
	struct folio *target;

	if (pinned(&folding->batch, page)) {
		restore(folding, i, ptep, UKSM_STATUS_BUSY, UKSM_REASON_PINNED);
		return;
	}
	/* Others of this batch may have filled its frame, or left it alone. */
	if (!has_partner(folding, i)) {
		restore(folding, i, ptep, UKSM_STATUS_DIFFERED,
			UKSM_REASON_ALONE);
		return;
	}
	target = target_of(folding, i);
	if (folding->batch.entries[i].kind == UKSM_KIND_ZERO) {
		if (zero(page))
			map_zero_page(folding, i, ptep);
		else
			restore(folding, i, ptep, UKSM_STATUS_DIFFERED,
				UKSM_REASON_CONTENT);
	} else if (!target) {
		found_set(folding, i, ptep);
	} else if (equal(page, target)) {
		map_frame(folding, i, ptep, target);
	} else {
		restore(folding, i, ptep, UKSM_STATUS_DIFFERED,
			UKSM_REASON_CONTENT);
	}
}

/* Steps 5 to 8 for all pages that were taken, still under the table's lock. */
static void exchange(struct uksm_folding *folding,
		     const struct uksm_table *table)
{
	struct uksm_batch *batch = &folding->batch;
	unsigned int i;

	if (batch->start >= batch->end || table->kind != UKSM_TABLE_PTES)
		return;
	if (!uksm_fault(UKSM_FAULT_NO_FLUSH))
		uksm_flush_tlb(batch->mm, batch->start, batch->end);
	if (mm_has_notifiers(batch->mm) && !uksm_fault(UKSM_FAULT_NO_NOTIFIER))
		uksm_flush_secondary(batch->mm, batch->start, batch->end);
	for (i = 0; i < batch->count; i++) {
		if (batch->taken[i])
			weigh(folding, i,
			      uksm_pte(table, batch->entries[i].address));
	}
	/* A frame is anonymous memory of the target as before, zero is not. */
	if (batch->zeroed)
		uksm_add_anon_pages(batch->mm, -batch->zeroed);
	batch->zeroed = 0;
}

/* A first look that takes nothing; leaves the span of what can be taken. */
static bool worth_notifying(struct uksm_folding *folding)
{
	struct uksm_batch *batch = &folding->batch;
	struct uksm_table table;

	uksm_lock_table(batch->mm, batch->entries->address, &table);
	look(folding, &table, false);
	uksm_unlock_table(&table);
	return batch->start < batch->end;
}

/* Steps 2 to 9. A huge page in the way is left in batch->in_the_way. */
static void merge_once(struct uksm_folding *folding)
{
	struct uksm_batch *batch = &folding->batch;
	struct mmu_notifier_range range;
	struct uksm_table table;
	bool notify;

	/* Registering a notifier takes the write side of the mmap lock. */
	notify = mm_has_notifiers(batch->mm) &&
		 !uksm_fault(UKSM_FAULT_NO_NOTIFIER);
	if (notify) {
		if (!worth_notifying(folding))
			return;
		range = (struct mmu_notifier_range) {
			.mm = batch->mm,
			.start = batch->start,
			.end = batch->end,
			.event = MMU_NOTIFY_CLEAR,
			.flags = MMU_NOTIFIER_RANGE_BLOCKABLE,
		};
		uksm_notify_start(&range);
	}
	uksm_lock_table(batch->mm, batch->entries->address, &table);
	look(folding, &table, true);
	exchange(folding, &table);
	uksm_unlock_table(&table);
	if (notify)
		uksm_notify_end(&range);
	if (batch->nr_old)
		release_pages(batch->old, batch->nr_old);
	batch->nr_old = 0;
}

/*
 * Splits the huge page in the way, so that another round finds small ones. The
 * lock is tried for: its holder may be waiting for I/O.
 */
static void split(struct uksm_folding *folding)
{
	struct uksm_batch *batch = &folding->batch;
	struct folio *folio = batch->in_the_way;
	/* Its page may have gone between two looks. */
	bool asking = undecided(&batch->entries[batch->asking]);

	batch->in_the_way = NULL;
	if (!folio_trylock(folio)) {
		if (asking)
			settle(folding, batch->asking, UKSM_STATUS_BUSY,
			       UKSM_REASON_LOCK);
		goto put;
	}
	if (!uksm_split_folio(folio)) {
		folding->tally.splits++;
	} else {
		batch->unsplittable = folio;
		if (asking)
			settle(folding, batch->asking, UKSM_STATUS_REFUSED,
			       UKSM_REASON_HUGE);
	}
	folio_unlock(folio);
put:
	folio_put(folio);
}

/**
 * uksm_merge() - give each entry of a batch its outcome
 * @folding: the call; provides blanks, takes outcomes
 * @mm: the target, its mmap lock held for reading
 * @entries: entries in one page table, no address twice
 * @count: how many, at most UKSM_LOCK_BATCH
 */
void uksm_merge(struct uksm_folding *folding, struct mm_struct *mm,
		struct uksm_fold_entry *entries, unsigned int count)
{
	struct uksm_batch *batch = &folding->batch;
	struct vm_area_struct *vma = NULL;
	unsigned int i, rounds;

	batch->mm = mm;
	batch->entries = entries;
	batch->count = count;
	batch->unsplittable = NULL;
	for (i = 0; i < count; i++) {
		vma = uksm_find_mapping(mm, vma, entries[i].address);
		batch->vma[i] = vma;
		batch->target[i] = NULL;
		judge_mapping(folding, i);
		if (undecided(&entries[i]))
			find_target(folding, i);
	}
	/*
	 * Each round but the last splits a huge page or settles the entry that
	 * asked for it. Somebody may be making new ones just as fast.
	 */
	for (rounds = 0; rounds < 2 * count; rounds++) {
		merge_once(folding);
		if (!batch->in_the_way)
			break;
		split(folding);
	}
	settle_rest(folding, UKSM_STATUS_BUSY, UKSM_REASON_RACED);
}
