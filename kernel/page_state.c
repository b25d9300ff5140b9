// SPDX-License-Identifier: GPL-2.0-only
/*
 * What kind of page does a page-table entry map?
 *
 * Sampling, merging, counting and breaking must agree on the state of a page. So one
 * function turns a page-table entry into a state of the contract.
 *
 * It is called under the page-table lock, in mappings that uksm_eligible() admits.
 * The lock keeps a mapped page from being freed, and an entry that is present and
 * not special belongs, in such a mapping, to a page with a struct page.
 */

#include "frame.h"
#include "page_state.h"

/**
 * uksm_no_extra_refs() - do only mappings hold references to a small page?
 * @folio: an anonymous page that cannot be freed meanwhile
 * @known: references that the caller knows of
 *
 * More references mean that somebody reads or writes the page without a page
 * table: direct I/O, a pin, vmsplice, reclaim, migration, a per-CPU LRU batch.
 * The swap cache holds one that is known.
 *
 * With the page-table entry cleared: get_user_pages_fast() takes its reference
 * first and then looks whether the entry is still the same, dropping it if not.
 * Clearing is an atomic exchange and thus a full barrier. So either that
 * reference is counted here, or it is dropped.
 *
 * A page that only this process maps has a mapcount of 1 that cannot change
 * under the page-table lock, and the answer is exact. Where others map it too
 * (after a fork), they map and unmap it meanwhile: mapping takes the reference
 * before the mapcount, unmapping drops it after. Reading the mapcount on both
 * sides of the reference count shows any single change between. Such a page
 * cannot be pinned (FOLL_PIN wants an exclusive page, and fork copies a pinned
 * one); what could slip through several changes at once is a plain reference,
 * to which the kernel promises no coherence after fork anyway.
 */
bool uksm_no_extra_refs(const struct folio *folio, int known)
{
	int before, count, after;

	if (folio_test_swapcache((struct folio *)folio))
		known++;
	before = uksm_mapcount(folio);
	smp_rmb();	/* the mapcount first ... */
	count = folio_ref_count(folio);
	smp_rmb();	/* ... and last, see above */
	after = uksm_mapcount(folio);
	return before == after && count == after + known;
}

/* Not only a frame is marked like one; see frame.c. */
static u16 marked_state(struct uksm_domain *domain, struct folio *folio,
			u32 *frame)
{
	switch (uksm_frame_owner(domain, folio)) {
	case UKSM_OWNER_DOMAIN:
		*frame = uksm_frame_id(folio);
		return UKSM_STATE_FRAME;
	case UKSM_OWNER_OTHER:
		return UKSM_STATE_FOREIGN;
	case UKSM_OWNER_NONE:
		break;
	}
	/*
	 * For a moment ksmd marks a page of the LRU in the same way. It holds a
	 * reference then, so even if the page is off the LRU just now, and is
	 * taken for an orphan, nobody merges it.
	 */
	return folio_test_lru(folio) ? UKSM_STATE_KSM : UKSM_STATE_ORPHAN;
}

/* A page that is marked as merged, by KSM or by a domain. */
static void classify_marked(struct uksm_domain *domain, struct folio *folio,
			    unsigned long mapping, struct uksm_page_state *seen)
{
	seen->state = UKSM_STATE_KSM;
	if (mapping == (unsigned long)UKSM_FRAME_MAPPING)
		seen->state = marked_state(domain, folio, &seen->frame);
	/* A domain must not learn the contents of another domain's frames. */
	if (seen->state == UKSM_STATE_FOREIGN)
		seen->page = NULL;
}

/* A page of a large folio is mapped by itself or with the whole. */
static u16 large_folio_flags(struct page *page, struct folio *folio)
{
	int whole = folio_entire_mapcount(folio);
	int part = atomic_read(&page->_mapcount) + 1;
	u16 flags = UKSM_PAGE_HUGE;

	if (whole + max(part, 0) > 1)
		flags |= UKSM_PAGE_SHARED;
	/* Exact if one process maps the folio as a whole, the usual case. */
	if (whole && !part &&
	    folio_ref_count(folio) > whole + (folio_test_swapcache(folio) ?
					      folio_nr_pages(folio) : 0))
		flags |= UKSM_PAGE_PINNED;
	return flags;
}

static void classify_page(struct uksm_domain *domain, struct page *page,
			  struct uksm_page_state *seen)
{
	struct folio *folio = page_folio(page);
	unsigned long mapping = (unsigned long)READ_ONCE(folio->mapping);

	/* A device can map its own memory as anonymous pages. */
	if (!(mapping & UKSM_MAPPING_ANON) || folio_is_zone_device(folio)) {
		seen->state = UKSM_STATE_OTHER;
		return;
	}
	if (PageHWPoison(page)) {
		seen->state = UKSM_STATE_POISONED;
		return;
	}
	seen->page = page;
	seen->state = UKSM_STATE_ANON;
	if ((mapping & UKSM_MAPPING_FLAGS) == UKSM_MAPPING_KSM)
		classify_marked(domain, folio, mapping, seen);
	if (unlikely(folio_test_large(folio))) {
		seen->flags |= large_folio_flags(page, folio);
		return;
	}
	/* Who else maps another domain's frame is that domain's secret. */
	if (seen->state == UKSM_STATE_FOREIGN)
		return;
	if (uksm_mapcount(folio) > 1)
		seen->flags |= UKSM_PAGE_SHARED;
	/* The domain's own reference to a frame is known. */
	if (seen->state != UKSM_STATE_FRAME && !uksm_no_extra_refs(folio, 0))
		seen->flags |= UKSM_PAGE_PINNED;
}

/**
 * uksm_classify_pte() - what does an entry of a page table map?
 * @domain: the domain that asks
 * @pte: the entry
 * @seen: the answer
 */
void uksm_classify_pte(struct uksm_domain *domain, pte_t pte,
		       struct uksm_page_state *seen)
{
	*seen = (struct uksm_page_state) { .state = UKSM_STATE_NONE };
	if (pte_none(pte))
		return;
	if (!pte_present(pte)) {
		seen->state = UKSM_STATE_SWAP;
		return;
	}
	seen->flags = (pte_young(pte) ? UKSM_PAGE_YOUNG : 0) |
		       (pte_dirty(pte) ? UKSM_PAGE_DIRTY : 0) |
		       (pte_write(pte) ? UKSM_PAGE_WRITE : 0);
	if (is_zero_pfn(pte_pfn(pte)))
		seen->state = UKSM_STATE_ZERO;
	else if (pte_special(pte) || uksm_pte_devmap(pte))
		seen->state = UKSM_STATE_OTHER;
	else
		classify_page(domain, pfn_to_page(pte_pfn(pte)), seen);
}

/**
 * uksm_classify_huge() - what is a small page that a huge entry maps?
 * @vma: the mapping
 * @pmd: the entry that maps the huge page
 * @address: the address of the small page
 * @seen: the answer
 */
void uksm_classify_huge(struct vm_area_struct *vma, pmd_t pmd,
			unsigned long address, struct uksm_page_state *seen)
{
	struct page *page = pmd_page(pmd) + pte_index(address);
	struct folio *folio = page_folio(page);

	*seen = (struct uksm_page_state) {
		.flags = (pmd_young(pmd) ? UKSM_PAGE_YOUNG : 0) |
			 (pmd_dirty(pmd) ? UKSM_PAGE_DIRTY : 0) |
			 (pmd_write(pmd) ? UKSM_PAGE_WRITE : 0),
	};
	if (folio_is_zone_device(folio)) {
		seen->state = UKSM_STATE_OTHER;
		seen->flags |= UKSM_PAGE_HUGE;
	} else if (folio_test_anon(folio) && PageHWPoison(page)) {
		seen->state = UKSM_STATE_POISONED;
		seen->flags |= UKSM_PAGE_HUGE;
	} else if (folio_test_anon(folio)) {
		seen->page = page;
		seen->state = UKSM_STATE_ANON;
		seen->flags |= large_folio_flags(page, folio);
	} else {
		/* Without files, what is huge and not anonymous is zero. */
		seen->state = vma_is_anonymous(vma) ?
			UKSM_STATE_ZERO : UKSM_STATE_OTHER;
		seen->flags |= UKSM_PAGE_HUGE;
	}
}
