// SPDX-License-Identifier: GPL-2.0-only
/*
 * Merge a batch of pages of one page table
 *
 * The pages under a running process are exchanged so that it can never see a byte
 * change and never lose a write, whatever userspace suggested. The steps come in
 * this order; each makes the next one sound:
 *
 *  1. The mmap lock (read side) keeps the mappings as they were checked: nobody
 *     can change or remove one, fork, or collapse pages into huge ones here. What
 *     munmap(), brk() and mremap() still do after they have dropped to the read
 *     side concerns ranges that no mapping covers, page tables included; so only
 *     the page table of an entry with a mapping is looked for. Pages can still
 *     come and go: by faults, MADV_DONTNEED, hole punches, reclaim.
 *  2. The MMU notifier's start tells KVM and other secondary users to forget the
 *     range and not to take it up again before the end. It may sleep, so it comes
 *     before the page-table lock. If an address space has such users, a first
 *     check drops the hopeless entries, so that a guest does not pay for them, and
 *     no entry is cleared outside the range that they were told of.
 *  3. While the page-table lock is held nobody changes these entries: faults, zap,
 *     swap-out, NUMA balancing, migration and ksmd take it first. They may have
 *     read the entries before, without the lock. Whoever has isolated a page holds
 *     a reference to it, and step 6 finds it; reclaim may have put the page into
 *     the swap cache, and step 6 finds that, too.
 *  4. Entries of pages that can be merged are cleared, by an atomic exchange. So no
 *     dirty or accessed bit is lost, and get_user_pages_fast() is ordered against
 *     step 6. A PROT_NONE entry of the page takes the place at once (clear_pte()):
 *     whoever looks without the lock finds a page that is there and may not be
 *     touched just now, takes the lock, and waits for step 8. For whoever looks
 *     under the lock it never exists.
 *  5. One flush: from here on no processor can write these pages through this
 *     address space. A write waits for the page-table lock.
 *  6. The references are checked again: a page to which somebody holds one (a
 *     pin, I/O under way, reclaim, migration, ksmd) is put back. So is a page that
 *     came into the swap cache, and one whose memory has failed meanwhile.
 *  7. All bytes are compared, or copied if the page becomes a new frame. Nobody
 *     can change them now: this address space cannot, other address spaces that
 *     share the page since a fork have it read-only, and there are no other
 *     references.
 *  8. The entry is set to the frame, or restored to the bit. Restoring is exact:
 *     nothing but the entry was touched, PageAnonExclusive least of all. No flush
 *     is needed: no processor keeps a PROT_NONE entry, which is not present to it.
 *  9. After the unlock comes the notifier's end. Then the old pages are released,
 *     since no TLB of any kind can hold them any more.
 *
 * The new entry keeps the accessed bit, so that the working set of the target
 * remains visible, and soft-dirty. It never has write permission or the dirty bit.
 * A PROT_NONE or NUMA-hint entry is replaced by what its mapping allows.
 *
 * The rmap of the old page is removed as munmap() does it: that undoes mlock, and an
 * exclusive page is on its way to be freed, where the flag is dropped. A page in
 * the swap cache has its slot freed first. A page in MADV_FREE keeps the contents
 * it has, as if it had been read in time.
 */
#include <linux/delay.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>

#include "batch.h"
#include "candidate.h"
#include "compare.h"
#include "exchange.h"
#include "faults.h"
#include "page_state.h"
#include "symbols.h"
#include "walk.h"
#include "witness.h"

/* Gives @pte the bits that it keeps of @old. */
static pte_t inherit_bits(pte_t pte, pte_t old)
{
	pte = pte_wrprotect(pte);
	if (!pte_young(old))
		pte = pte_mkold(pte);
	if (pte_soft_dirty(old))
		pte = pte_mksoft_dirty(pte);
	return pte;
}

static void replace_pte(struct uksm_batch *batch, unsigned int i, pte_t *ptep,
			pte_t pte)
{
	set_pte_at(batch->mm, batch->entries[i].address, ptep,
		   inherit_bits(pte, batch->pte[i]));
	uksm_remove_rmap(batch->cleared[i], batch->vma[i]);
	batch->old[batch->nr_old++] = batch->cleared[i];
}

static void map_frame(struct uksm_fold_call *call, unsigned int i, pte_t *ptep,
		      struct folio *frame)
{
	struct uksm_batch *batch = &call->batch;
	struct vm_area_struct *vma = batch->vma[i];

	folio_get(frame);
	uksm_add_rmap(&frame->page, vma, batch->entries[i].address);
	replace_pte(batch, i, ptep, mk_pte(&frame->page, vma->vm_page_prot));
	batch->entries[i].frame = uksm_frame_id(frame);
	set_outcome(call, i, UKSM_STATUS_MERGED, UKSM_REASON_NONE);
}

/* Not dirty: by the dirty bit the kernel counts the zero pages that KSM mapped. */
static void map_zero_page(struct uksm_fold_call *call, unsigned int i,
			  pte_t *ptep)
{
	struct uksm_batch *batch = &call->batch;
	unsigned long pfn = page_to_pfn(ZERO_PAGE(batch->entries[i].address));

	replace_pte(batch, i, ptep,
		    pte_mkspecial(pfn_pte(pfn, batch->vma[i]->vm_page_prot)));
	batch->zeroed++;
	set_outcome(call, i, UKSM_STATUS_ZEROED, UKSM_REASON_NONE);
}

static void restore_pte(struct uksm_fold_call *call, unsigned int i,
			pte_t *ptep,
			enum uksm_status status, enum uksm_reason reason)
{
	struct uksm_batch *batch = &call->batch;

	set_pte_at(batch->mm, batch->entries[i].address, ptep, batch->pte[i]);
	if (is_pending(call, i))
		set_outcome(call, i, status, reason);
}

static bool is_equal(const struct page *page, const struct folio *frame)
{
	return uksm_fault(UKSM_FAULT_NO_COMPARE) ||
	       uksm_pages_equal(page_address(page), folio_address(frame));
}

static bool is_zero(const struct page *page)
{
	return uksm_fault(UKSM_FAULT_NO_COMPARE) ||
	       uksm_page_zero(page_address(page));
}

/*
 * The page differs from what it was to be merged with, by @reason. Did it change since
 * userspace saw it? If its hash was checked under this hold of the lock, it is not
 * hashed again.
 */
static void restore_different(struct uksm_fold_call *call, unsigned int i,
			      pte_t *ptep, enum uksm_reason reason)
{
	restore_pte(call, i, ptep, UKSM_STATUS_DIFFERED,
		    test_bit(i, call->batch.hash_checked) ||
		    uksm_hash_matches(call, i, call->batch.cleared[i]) ?
		    reason : UKSM_REASON_STALE);
}

/* May the page map the frame, as far as their nodes go? */
static bool is_node_right(const struct uksm_fold_call *call,
			  const struct page *page, const struct folio *frame)
{
	return !uksm_keeps_nodes(call->domain) ||
	       page_to_nid(page) == folio_nid(frame);
}

/*
 * The page stays as it is until frames on its node are preallocated, see fold.c: those that
 * are there were asked for on another node.
 */
static void wait_for_node(struct uksm_batch *batch, unsigned int i, pte_t *ptep,
			  int node)
{
	set_pte_at(batch->mm, batch->entries[i].address, ptep, batch->pte[i]);
	batch->node = node;
}

/* The first page of its set whose entry could be cleared becomes its frame. */
static void make_set_frame(struct uksm_fold_call *call, unsigned int i,
			   pte_t *ptep)
{
	unsigned int number = call->batch.entries[i].set;
	int node = page_to_nid(call->batch.cleared[i]);
	struct uksm_set *set = &call->sets[number];
	struct uksm_prealloc_frame *new;
	struct folio *frame;

	if (!uksm_may_found(call, i, call->batch.cleared[i])) {
		if (is_short(call, number))
			restore_pte(call, i, ptep, UKSM_STATUS_DIFFERED,
				    UKSM_REASON_SPACES);
		else
			restore_different(call, i, ptep,
					  UKSM_REASON_CONTENT);
		return;
	}
	new = uksm_prealloc_choose(&call->prealloc, node);
	if (!new) {
		if (node != call->prealloc.node) {
			wait_for_node(&call->batch, i, ptep, node);
			return;
		}
		restore_pte(call, i, ptep, UKSM_STATUS_FULL,
			    call->prealloc.reason);
		return;
	}
	frame = uksm_make_frame(&call->prealloc, new, call->batch.cleared[i]);
	if (!frame) {
		restore_pte(call, i, ptep, UKSM_STATUS_REFUSED,
			    UKSM_REASON_POISONED);
		return;
	}
	set->frame = frame;
	call->counters.frames_made++;
	map_frame(call, i, ptep, frame);
}

/* Steps 6 to 8 for a page whose entry was cleared. */
static void compare_and_map(struct uksm_fold_call *call, unsigned int i,
			    pte_t *ptep)
{
	struct page *page = call->batch.cleared[i];
	struct folio *frame;

	/*
	 * Reclaim walks page tables without their lock until it finds an entry
	 * that is there. It may have isolated the page before the lock was taken,
	 * looked between the two stores of clear_pte(), found nothing, and left the
	 * page in the swap cache. Its references would then look explained.
	 */
	if (folio_test_swapcache(page_folio(page))) {
		restore_pte(call, i, ptep, UKSM_STATUS_BUSY,
			    UKSM_REASON_SWAPCACHE);
		return;
	}
	if (uksm_page_pinned(&call->batch, page)) {
		restore_pte(call, i, ptep, UKSM_STATUS_BUSY, UKSM_REASON_PINNED);
		return;
	}
	if (PageHWPoison(page)) {
		restore_pte(call, i, ptep, UKSM_STATUS_REFUSED,
			    UKSM_REASON_POISONED);
		return;
	}
	/*
	 * Meanwhile other entries of this batch may have filled its frame, or
	 * left it as the last one of its set.
	 */
	frame = frame_for(call, i);
	if (!has_partner(call, i, frame)) {
		restore_pte(call, i, ptep, UKSM_STATUS_DIFFERED,
			    UKSM_REASON_ALONE);
		return;
	}
	if (call->batch.entries[i].kind == UKSM_KIND_ZERO) {
		if (is_zero(page))
			map_zero_page(call, i, ptep);
		else
			restore_different(call, i, ptep, UKSM_REASON_CONTENT);
	} else if (!frame) {
		make_set_frame(call, i, ptep);
	} else if (!is_node_right(call, page, frame)) {
		restore_different(call, i, ptep, UKSM_REASON_NODE);
	} else if (is_equal(page, frame)) {
		map_frame(call, i, ptep, frame);
	} else {
		restore_different(call, i, ptep, UKSM_REASON_CONTENT);
	}
}

/* Steps 5 to 8 for all cleared entries, still under the lock of their table. */
static void exchange_pages(struct uksm_fold_call *call,
			   const struct uksm_table *table)
{
	struct uksm_batch *batch = &call->batch;
	unsigned int i;

	if (batch->start >= batch->end || table->kind != UKSM_TABLE_PTES)
		return;
	if (!uksm_fault(UKSM_FAULT_NO_FLUSH))
		uksm_flush_tlb(batch->mm, batch->start, batch->end);
	if (mm_has_notifiers(batch->mm) && !uksm_fault(UKSM_FAULT_NO_NOTIFIER))
		uksm_flush_secondary(batch->mm, batch->start, batch->end);
	if (uksm_fault(UKSM_FAULT_SLOW_EXCHANGE))
		mdelay(2);
	for (i = 0; i < batch->count; i++) {
		if (batch->cleared[i])
			compare_and_map(call, i,
					uksm_pte(table,
						 batch->entries[i].address));
	}
	/* A frame is anonymous memory of the target as before, zero is not. */
	if (batch->zeroed)
		uksm_add_anon_pages(batch->mm, -batch->zeroed);
	batch->zeroed = 0;
}

/* A first check that clears nothing. It leaves the span of the candidates. */
static bool any_candidate(struct uksm_fold_call *call,
			  unsigned long address)
{
	struct uksm_batch *batch = &call->batch;
	struct uksm_table table;

	uksm_lock_table(batch->mm, address, &table);
	uksm_check_pages(call, &table, false);
	uksm_unlock_table(&table);
	return batch->start < batch->end;
}

/*
 * A pending entry of the batch. It has a mapping, and only then may the page table
 * be looked up: munmap(), brk() and mremap() free page tables after they have
 * dropped to the read side of the mmap lock.
 */
static struct uksm_fold_entry *first_pending(struct uksm_fold_call *call)
{
	unsigned int i;

	for (i = 0; i < call->batch.count; i++) {
		if (is_pending(call, i))
			return &call->batch.entries[i];
	}
	return NULL;
}

/*
 * Steps 2 to 9, for the page table at @address, which a mapping covers. A huge page
 * that must be split first is left in batch->to_split.
 */
static void merge_round(struct uksm_fold_call *call, unsigned long address)
{
	struct uksm_batch *batch = &call->batch;
	struct mmu_notifier_range range;
	struct uksm_table table;
	bool notify;

	batch->notified_start = 0;
	batch->notified_end = ULONG_MAX;
	/* Registering a notifier takes the write side of the mmap lock. */
	notify = mm_has_notifiers(batch->mm) &&
		 !uksm_fault(UKSM_FAULT_NO_NOTIFIER);
	if (notify) {
		if (!any_candidate(call, address))
			return;
		batch->notified_start = batch->start;
		batch->notified_end = batch->end;
		range = (struct mmu_notifier_range) {
			.mm = batch->mm,
			.start = batch->start,
			.end = batch->end,
			.event = MMU_NOTIFY_CLEAR,
			.flags = MMU_NOTIFIER_RANGE_BLOCKABLE,
		};
		uksm_notify_start(&range);
	}
	uksm_lock_table(batch->mm, address, &table);
	uksm_check_pages(call, &table, true);
	exchange_pages(call, &table);
	uksm_unlock_table(&table);
	if (notify)
		uksm_notify_end(&range);
	if (batch->nr_old)
		release_pages(batch->old, batch->nr_old);
	batch->nr_old = 0;
}

#define HPAGE_ENTRIES	((unsigned long)PTRS_PER_PTE)

/*
 * Counts the entries of the page table that map the zero page, in the mapping of
 * entry @i. Kernels since 6.12 map it for each page of zeros when they split a huge
 * page. What a split adds is the kernel's work, and is not counted as ours.
 */
static unsigned long count_zero_ptes(struct uksm_batch *batch, unsigned int i)
{
	unsigned long address = batch->entries[i].address, zeros = 0, at, end;
	struct vm_area_struct *vma = batch->vma[i];
	struct uksm_table table;

	uksm_lock_table(batch->mm, address, &table);
	if (table.kind == UKSM_TABLE_PTES) {
		end = min(table.end, vma->vm_end);
		at = max(address & PMD_MASK, vma->vm_start);
		for (; at < end; at += PAGE_SIZE) {
			pte_t pte = ptep_get(uksm_pte(&table, at));

			zeros += pte_present(pte) && is_zero_pfn(pte_pfn(pte));
		}
	}
	uksm_unlock_table(&table);
	return zeros;
}

/*
 * Splits the huge page, so that another round finds small ones. The folio lock is
 * only tried for: its holder may be waiting for I/O.
 */
static void split_huge(struct uksm_fold_call *call)
{
	struct uksm_batch *batch = &call->batch;
	struct folio *folio = batch->to_split;
	/* Its page may have gone between two checks. */
	bool split_for = is_pending(call, batch->split_for);
	unsigned long zeros;

	batch->to_split = NULL;
	if (!folio_trylock(folio)) {
		if (split_for)
			set_outcome(call, batch->split_for, UKSM_STATUS_BUSY,
				    UKSM_REASON_LOCK);
		goto put;
	}
	zeros = count_zero_ptes(batch, batch->split_for);
	if (!uksm_split_folio(folio)) {
		call->counters.splits++;
		zeros = count_zero_ptes(batch, batch->split_for) - zeros;
		call->counters.split_zeroed += min(zeros, HPAGE_ENTRIES);
	} else {
		batch->unsplittable = folio;
		if (split_for)
			set_outcome(call, batch->split_for, UKSM_STATUS_REFUSED,
				    UKSM_REASON_HUGE);
	}
	folio_unlock(folio);
put:
	folio_put(folio);
}

/**
 * uksm_merge_batch() - give each pending entry of the batch its outcome
 * @call: the call; has the preallocated frames and the batch, in one page table, no
 *	  address twice; gets the outcomes
 * @mm: the target, its mmap lock held for reading
 *
 * Return: true; false if entries are left that wait for frames on batch->node.
 */
bool uksm_merge_batch(struct uksm_fold_call *call, struct mm_struct *mm)
{
	struct uksm_batch *batch = &call->batch;
	unsigned int rounds;

	batch->mm = mm;
	batch->unsplittable = NULL;
	batch->node = NUMA_NO_NODE;
	uksm_find_candidates(call);
	/*
	 * Each round gives an outcome to all entries, except those of a huge page
	 * that it then splits, and those of one that was split meanwhile.
	 * Somebody may be making new huge pages just as fast.
	 */
	for (rounds = 0; rounds < 2 * batch->count; rounds++) {
		struct uksm_fold_entry *entry = first_pending(call);

		if (!entry)
			return true;
		merge_round(call, entry->address);
		if (batch->to_split)
			split_huge(call);
		if (batch->node != NUMA_NO_NODE)
			return false;
	}
	uksm_set_remaining(call, UKSM_STATUS_BUSY, UKSM_REASON_RACED);
	return true;
}
