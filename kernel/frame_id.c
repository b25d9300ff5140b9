// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frame ids
 *
 * A frame has an id that is unique in its domain (and tells nothing about other
 * domains). It is looked up by its id while a page table is locked. Getting one id
 * at a time from an IDA and storing one pointer at a time in an xarray took a tenth
 * of the cost of a merge. So ids come in *chunks* of neighbours. While a call makes
 * frames it has a chunk to itself, so it can hand out and fill the slots of the
 * chunk without a lock and without memory.
 *
 * What each function needs:
 *   get, alloc, insert, free, put	domain->frames_lock held for reading: FOLD.
 *		Calls meet in the list of partial chunks, nowhere else.
 *   erase	domain->frames_lock held for writing, or nobody uses the domain: no
 *		call has a chunk then.
 *   lookup	nothing: chunks are freed by RCU. The answer is only good for a
 *		comparison, unless domain->frames_lock is held.
 *   next	domain->frames_lock held.
 */
#include <linux/slab.h>

#include "bounds.h"
#include "frame_id.h"

/* No frame has the id 0, so no chunk has the index 0. */
#define MAX_CHUNKS	(INT_MAX >> UKSM_CHUNK_SHIFT)

/* An id is the index of its chunk and the slot in it. */
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

/* Frees an empty chunk that no call has. */
static void free_chunk(struct uksm_frame_ids *ids, struct uksm_chunk *chunk)
{
	list_del(&chunk->link);
	xa_erase(&ids->chunks, chunk->index);
	kfree_rcu(chunk, rcu);
}

/* Nobody uses the domain, and its last frame was removed. */
void uksm_frame_ids_destroy(struct uksm_frame_ids *ids)
{
	struct uksm_chunk *chunk;
	unsigned long id;

	/* Chunks of which no slot was ever used. */
	xa_for_each(&ids->chunks, id, chunk)
		free_chunk(ids, chunk);
	xa_destroy(&ids->chunks);
}

/*
 * Cyclic: the module also frees frames when the daemon does not ask for it, and their
 * ids must not soon name other frames.
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
 * Return: a chunk that may have free slots, a new one if there is no such; NULL if
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
 * uksm_put_chunk() - let other calls have a chunk
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
 * uksm_alloc_slot() - get a free slot of a chunk of this call
 * @chunk: the chunk
 *
 * Return: the slot, for uksm_insert_frame() or uksm_free_slot(); -ENOSPC if there is
 * none.
 */
int uksm_alloc_slot(struct uksm_chunk *chunk)
{
	while (chunk->first_free < UKSM_CHUNK_SLOTS &&
	       chunk->frames[chunk->first_free])
		chunk->first_free++;
	return chunk->first_free < UKSM_CHUNK_SLOTS ? chunk->first_free++ :
						      -ENOSPC;
}

/**
 * uksm_free_slot() - free a slot without a frame
 * @chunk: the chunk; the call still has it
 * @slot: the slot
 */
void uksm_free_slot(struct uksm_chunk *chunk, unsigned int slot)
{
	chunk->first_free = min_t(u16, chunk->first_free, slot);
}

/**
 * uksm_insert_frame() - make a frame known under its id
 * @chunk: the chunk; the call still has it
 * @slot: a slot of uksm_alloc_slot()
 * @folio: the frame; its id is in folio->private already
 *
 * From here on lookups find it. Neither sleeps nor fails.
 */
void uksm_insert_frame(struct uksm_chunk *chunk, unsigned int slot,
		       struct folio *folio)
{
	/* Pairs with uksm_lookup_frame(): it finds a complete frame. */
	smp_store_release(&chunk->frames[slot], folio);
	chunk->used++;
}

/**
 * uksm_erase_frame_id() - take an id from a frame
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
 * @id: where to begin; set to the id of the frame
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
			/* The caller looks at each; the next is a cache miss. */
			if (slot + 1 < UKSM_CHUNK_SLOTS)
				prefetch(chunk->frames[slot + 1]);
			if (folio) {
				*id = at << UKSM_CHUNK_SHIFT | slot;
				return folio;
			}
		}
	}
	return NULL;
}
