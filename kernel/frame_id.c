// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frame ids
 *
 * Problem: a frame is named by an id that is unique in its domain (and tells
 * nothing about others), and is found by it while a page table is locked. Getting
 * one id at a time from an IDA and storing one pointer at a time in an xarray
 * took a tenth of what a merge costs. Approach: ids come in *chunks* of
 * neighbours. While a call makes frames it has a chunk to itself, so its slots are
 * handed out and filled without a lock and without memory.
 *
 * Who may do what:
 *   get, alloc, insert, free, put	with domain->frames_lock held for
 *		reading: FOLD. Calls meet in the list of partial chunks, no further.
 *   erase	with it held for writing, or when nobody uses the domain: no call
 *		has a chunk then.
 *   lookup	anybody, even for another domain: chunks are freed by RCU. The
 *		answer is only good for a comparison, unless domain->frames_lock is
 *		held.
 *   next	with domain->frames_lock held.
 */
#include <linux/slab.h>

#include "bounds.h"
#include "frame_id.h"

/* No frame has the id 0, so no chunk has. */
#define MAX_CHUNKS	(INT_MAX >> UKSM_CHUNK_SHIFT)

/* A id is that of its chunk and the slot in it. */
static unsigned int slot_of(unsigned long id)
{
	return id & (BIT(UKSM_CHUNK_SHIFT) - 1);
}

static unsigned long chunk_of(unsigned long id)
{
	return id >> UKSM_CHUNK_SHIFT;
}

void uksm_frame_ids_init(struct uksm_frame_ids *ids)
{
	BUILD_BUG_ON(sizeof(struct uksm_chunk) != 1024);
	BUILD_BUG_ON(UKSM_CHUNK_SLOTS > 1 << UKSM_CHUNK_SHIFT);
	xa_init_flags(&ids->chunks, XA_FLAGS_ALLOC1);
	spin_lock_init(&ids->lock);
	INIT_LIST_HEAD(&ids->partial);
}

/* An empty chunk that no call has. */
static void free_chunk(struct uksm_frame_ids *ids, struct uksm_chunk *chunk)
{
	list_del(&chunk->link);
	xa_erase(&ids->chunks, chunk->index);
	kfree_rcu(chunk, rcu);
}

/* When the last frame of a domain that nobody uses is removed. */
void uksm_frame_ids_destroy(struct uksm_frame_ids *ids)
{
	struct uksm_chunk *chunk;
	unsigned long id;

	/* Those of which no slot was ever used. */
	xa_for_each(&ids->chunks, id, chunk)
		free_chunk(ids, chunk);
	xa_destroy(&ids->chunks);
}

/*
 * In a circle, so that the id of a frame that was freed behind the daemon's
 * back does not soon name another one.
 */
static struct uksm_chunk *alloc_chunk(struct uksm_frame_ids *ids)
{
	struct uksm_chunk *chunk = kzalloc(sizeof(*chunk), UKSM_GFP);

	if (!chunk)
		return NULL;
	if (xa_alloc_cyclic(&ids->chunks, &chunk->index, chunk,
			    XA_LIMIT(1, MAX_CHUNKS), &ids->next_chunk,
			    UKSM_GFP) < 0) {
		kfree(chunk);
		return NULL;
	}
	return chunk;
}

/**
 * uksm_get_chunk() - get a chunk for this call alone
 * @ids: the domain's
 *
 * Return: one that may have free slots, a new one if there is none such; NULL if
 * there is no memory.
 */
struct uksm_chunk *uksm_get_chunk(struct uksm_frame_ids *ids)
{
	struct uksm_chunk *chunk;

	spin_lock(&ids->lock);
	chunk = list_first_entry_or_null(&ids->partial, struct uksm_chunk,
					 link);
	if (chunk)
		list_del_init(&chunk->link);
	spin_unlock(&ids->lock);
	return chunk ?: alloc_chunk(ids);
}

/**
 * uksm_put_chunk() - others may have it now
 * @ids: the domain's
 * @chunk: what uksm_get_chunk() gave
 */
void uksm_put_chunk(struct uksm_frame_ids *ids, struct uksm_chunk *chunk)
{
	INIT_LIST_HEAD(&chunk->link);
	if (chunk->first_free == UKSM_CHUNK_SLOTS)
		return;
	spin_lock(&ids->lock);
	list_add(&chunk->link, &ids->partial);
	spin_unlock(&ids->lock);
}

/**
 * uksm_alloc_slot() - get a slot of a chunk that this call has taken
 * @chunk: the chunk
 *
 * Return: the slot, to be used or cancelled; -ENOSPC if there is none.
 */
int uksm_alloc_slot(struct uksm_chunk *chunk)
{
	while (chunk->first_free < UKSM_CHUNK_SLOTS && chunk->frames[chunk->first_free])
		chunk->first_free++;
	return chunk->first_free < UKSM_CHUNK_SLOTS ? chunk->first_free++ : -ENOSPC;
}

/**
 * uksm_free_slot() - a reserved slot is not needed
 * @chunk: the chunk, still taken
 * @slot: the slot
 */
void uksm_free_slot(struct uksm_chunk *chunk, unsigned int slot)
{
	chunk->first_free = min_t(u16, chunk->first_free, slot);
}

/**
 * uksm_insert_frame() - give a frame its id
 * @chunk: the chunk, still taken
 * @slot: a reserved slot
 * @folio: the frame; it knows its id already
 *
 * From here on others find it. Neither sleeps nor fails.
 */
void uksm_insert_frame(struct uksm_chunk *chunk, unsigned int slot,
		       struct folio *folio)
{
	/* Pairs with uksm_lookup_frame(): what is found is complete. */
	smp_store_release(&chunk->frames[slot], folio);
	chunk->used++;
}

/**
 * uksm_erase_frame_id() - an id names nothing any more
 * @ids: the domain's, of which no call has a chunk
 * @id: the id of a frame
 */
void uksm_erase_frame_id(struct uksm_frame_ids *ids, u32 id)
{
	unsigned int slot = slot_of(id);
	struct uksm_chunk *chunk;

	chunk = xa_load(&ids->chunks, chunk_of(id));
	WRITE_ONCE(chunk->frames[slot], NULL);
	chunk->first_free = min_t(u16, chunk->first_free, slot);
	if (--chunk->used) {
		if (list_empty(&chunk->link))
			list_add_tail(&chunk->link, &ids->partial);
		return;
	}
	free_chunk(ids, chunk);
}

/**
 * uksm_lookup_frame() - the frame of an id
 * @ids: a domain's
 * @id: the id
 *
 * Return: the frame; NULL if this domain has none of this id.
 */
struct folio *uksm_lookup_frame(struct uksm_frame_ids *ids, u32 id)
{
	unsigned int slot = slot_of(id);
	struct folio *folio = NULL;
	struct uksm_chunk *chunk;

	if (slot >= UKSM_CHUNK_SLOTS)
		return NULL;
	rcu_read_lock();
	chunk = xa_load(&ids->chunks, chunk_of(id));
	if (chunk)
		/* Pairs with uksm_insert_frame(). */
		folio = smp_load_acquire(&chunk->frames[slot]);
	rcu_read_unlock();
	return folio;
}

/**
 * uksm_next_frame() - the first frame from an id on
 * @ids: the domain's
 * @id: where to begin; set to the id of what was found
 *
 * Return: the frame; NULL if there is none.
 */
struct folio *uksm_next_frame(struct uksm_frame_ids *ids,
			      unsigned long *id)
{
	unsigned long at = chunk_of(*id);
	unsigned int slot = slot_of(*id);
	struct uksm_chunk *chunk;
	struct folio *folio;

	for (chunk = xa_find(&ids->chunks, &at, MAX_CHUNKS, XA_PRESENT);
	     chunk;
	     chunk = xa_find_after(&ids->chunks, &at, MAX_CHUNKS,
				   XA_PRESENT)) {
		if (at != chunk_of(*id))
			slot = 0;
		for (; slot < UKSM_CHUNK_SLOTS; slot++) {
			folio = READ_ONCE(chunk->frames[slot]);
			if (folio) {
				*id = at << UKSM_CHUNK_SHIFT | slot;
				return folio;
			}
		}
	}
	return NULL;
}
