// SPDX-License-Identifier: GPL-2.0-only
/*
 * Numbers of frames
 *
 * Problem: a frame is named by a number that is unique in its domain (and tells
 * nothing about others), and is found by it while a page table is locked. Getting
 * one number at a time from an IDA and storing one pointer at a time in an xarray
 * took a tenth of what a merge costs. Approach: numbers come in *chunks* of
 * neighbours. While a call makes frames it has a chunk to itself, so its slots are
 * handed out and filled without a lock and without memory.
 *
 * Who may do what:
 *   take, reserve, enter, cancel, return	with domain->reaping held for
 *		reading: FOLD. Calls meet in the list of spare chunks, no further.
 *   remove	with it held for writing, or when nobody uses the domain: no call
 *		has a chunk then.
 *   find	anybody, even for another domain: chunks are freed by RCU. The
 *		answer is only good for a comparison, unless domain->reaping is
 *		held.
 *   next	with domain->reaping held.
 */
#include <linux/slab.h>

#include "domain.h"

/* No frame has the number 0, so no chunk has. */
#define MOST_CHUNKS	(INT_MAX >> UKSM_CHUNK_SHIFT)

/* A number is that of its chunk and the slot in it. */
static unsigned int slot_of(unsigned long number)
{
	return number & (BIT(UKSM_CHUNK_SHIFT) - 1);
}

static unsigned long chunk_of(unsigned long number)
{
	return number >> UKSM_CHUNK_SHIFT;
}

void uksm_numbers_init(struct uksm_numbers *numbers)
{
	BUILD_BUG_ON(sizeof(struct uksm_chunk) != 1024);
	BUILD_BUG_ON(UKSM_CHUNK_SLOTS > 1 << UKSM_CHUNK_SHIFT);
	xa_init_flags(&numbers->chunks, XA_FLAGS_ALLOC1);
	spin_lock_init(&numbers->lock);
	INIT_LIST_HEAD(&numbers->spare);
}

/* An empty chunk that no call has. */
static void drop_chunk(struct uksm_numbers *numbers, struct uksm_chunk *chunk)
{
	list_del(&chunk->link);
	xa_erase(&numbers->chunks, chunk->number);
	kfree_rcu(chunk, rcu);
}

/* When the last frame of a domain that nobody uses is removed. */
void uksm_numbers_destroy(struct uksm_numbers *numbers)
{
	struct uksm_chunk *chunk;
	unsigned long number;

	/* Those of which no slot was ever entered. */
	xa_for_each(&numbers->chunks, number, chunk)
		drop_chunk(numbers, chunk);
	xa_destroy(&numbers->chunks);
}

/*
 * In a circle, so that the number of a frame that was freed behind the daemon's
 * back does not soon name another one.
 */
static struct uksm_chunk *new_chunk(struct uksm_numbers *numbers)
{
	struct uksm_chunk *chunk = kzalloc(sizeof(*chunk), UKSM_GFP);

	if (!chunk)
		return NULL;
	if (xa_alloc_cyclic(&numbers->chunks, &chunk->number, chunk,
			    XA_LIMIT(1, MOST_CHUNKS), &numbers->next_chunk,
			    UKSM_GFP) < 0) {
		kfree(chunk);
		return NULL;
	}
	return chunk;
}

/**
 * uksm_take_chunk() - get a chunk for this call alone
 * @numbers: the domain's
 *
 * Return: one that may have free slots, a new one if there is none such; NULL if
 * there is no memory.
 */
struct uksm_chunk *uksm_take_chunk(struct uksm_numbers *numbers)
{
	struct uksm_chunk *chunk;

	spin_lock(&numbers->lock);
	chunk = list_first_entry_or_null(&numbers->spare, struct uksm_chunk,
					 link);
	if (chunk)
		list_del_init(&chunk->link);
	spin_unlock(&numbers->lock);
	return chunk ?: new_chunk(numbers);
}

/**
 * uksm_return_chunk() - others may have it now
 * @numbers: the domain's
 * @chunk: what uksm_take_chunk() gave
 */
void uksm_return_chunk(struct uksm_numbers *numbers, struct uksm_chunk *chunk)
{
	INIT_LIST_HEAD(&chunk->link);
	if (chunk->next == UKSM_CHUNK_SLOTS)
		return;
	spin_lock(&numbers->lock);
	list_add(&chunk->link, &numbers->spare);
	spin_unlock(&numbers->lock);
}

/**
 * uksm_reserve_slot() - get a slot of a chunk that this call has taken
 * @chunk: the chunk
 *
 * Return: the slot, to be entered or cancelled; -ENOSPC if there is none.
 */
int uksm_reserve_slot(struct uksm_chunk *chunk)
{
	while (chunk->next < UKSM_CHUNK_SLOTS && chunk->frames[chunk->next])
		chunk->next++;
	return chunk->next < UKSM_CHUNK_SLOTS ? chunk->next++ : -ENOSPC;
}

/**
 * uksm_cancel_slot() - a reserved slot is not needed
 * @chunk: the chunk, still taken
 * @slot: the slot
 */
void uksm_cancel_slot(struct uksm_chunk *chunk, unsigned int slot)
{
	chunk->next = min_t(u16, chunk->next, slot);
}

/**
 * uksm_enter_frame() - give a frame its number
 * @chunk: the chunk, still taken
 * @slot: a reserved slot
 * @folio: the frame; it knows its number already
 *
 * From here on others find it. Neither sleeps nor fails.
 */
void uksm_enter_frame(struct uksm_chunk *chunk, unsigned int slot,
		      struct folio *folio)
{
	/* Pairs with uksm_find_frame(): what is found is complete. */
	smp_store_release(&chunk->frames[slot], folio);
	chunk->entered++;
}

/**
 * uksm_remove_number() - a number names nothing any more
 * @numbers: the domain's, of which no call has a chunk
 * @number: the number of a frame
 */
void uksm_remove_number(struct uksm_numbers *numbers, u32 number)
{
	unsigned int slot = slot_of(number);
	struct uksm_chunk *chunk;

	chunk = xa_load(&numbers->chunks, chunk_of(number));
	WRITE_ONCE(chunk->frames[slot], NULL);
	chunk->next = min_t(u16, chunk->next, slot);
	if (--chunk->entered) {
		if (list_empty(&chunk->link))
			list_add_tail(&chunk->link, &numbers->spare);
		return;
	}
	drop_chunk(numbers, chunk);
}

/**
 * uksm_find_frame() - the frame of a number
 * @numbers: a domain's
 * @number: the number
 *
 * Return: the frame; NULL if this domain has none of this number.
 */
struct folio *uksm_find_frame(struct uksm_numbers *numbers, u32 number)
{
	unsigned int slot = slot_of(number);
	struct folio *folio = NULL;
	struct uksm_chunk *chunk;

	if (slot >= UKSM_CHUNK_SLOTS)
		return NULL;
	rcu_read_lock();
	chunk = xa_load(&numbers->chunks, chunk_of(number));
	if (chunk)
		/* Pairs with uksm_enter_frame(). */
		folio = smp_load_acquire(&chunk->frames[slot]);
	rcu_read_unlock();
	return folio;
}

/**
 * uksm_next_frame() - the first frame from a number on
 * @numbers: the domain's
 * @number: where to begin; set to the number of what was found
 *
 * Return: the frame; NULL if there is none.
 */
struct folio *uksm_next_frame(struct uksm_numbers *numbers,
			      unsigned long *number)
{
	unsigned long at = chunk_of(*number);
	unsigned int slot = slot_of(*number);
	struct uksm_chunk *chunk;
	struct folio *folio;

	for (chunk = xa_find(&numbers->chunks, &at, MOST_CHUNKS, XA_PRESENT);
	     chunk;
	     chunk = xa_find_after(&numbers->chunks, &at, MOST_CHUNKS,
				   XA_PRESENT)) {
		if (at != chunk_of(*number))
			slot = 0;
		for (; slot < UKSM_CHUNK_SLOTS; slot++) {
			folio = READ_ONCE(chunk->frames[slot]);
			if (folio) {
				*number = at << UKSM_CHUNK_SHIFT | slot;
				return folio;
			}
		}
	}
	return NULL;
}
