/* SPDX-License-Identifier: GPL-2.0-only */
/* Frame ids. See frame_id.c. */
#ifndef UKSM_FRAME_ID_H
#define UKSM_FRAME_ID_H

#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/xarray.h>

/* A chunk takes 1 KiB; the ids of the slots that do not fit are not used. */
#define UKSM_CHUNK_SHIFT	7
#define UKSM_CHUNK_SLOTS	125

/* Neighbouring ids. One call at a time hands them out. */
struct uksm_chunk {
	union {
		struct list_head link;	/* in a call, or in the partial list */
		struct rcu_head rcu;	/* when it is empty and gone */
	};
	u32 index;
	u16 used;		/* slots with frames */
	u16 first_free;		/* no slot before this one is free */
	struct folio *frames[UKSM_CHUNK_SLOTS];
};

/* The ids of a domain. */
struct uksm_frame_ids {
	struct xarray chunks;		/* index -> struct uksm_chunk */
	u32 next_chunk;			/* where the cyclic allocation goes on */
	spinlock_t lock;		/* protects partial, and chunks in it */
	struct list_head partial;	/* may have free slots; in no call */
};

void uksm_frame_ids_init(struct uksm_frame_ids *ids);
void uksm_frame_ids_destroy(struct uksm_frame_ids *ids);
struct uksm_chunk *uksm_get_chunk(struct uksm_frame_ids *ids);
void uksm_put_chunk(struct uksm_frame_ids *ids, struct uksm_chunk *chunk);
int uksm_alloc_slot(struct uksm_chunk *chunk);
void uksm_free_slot(struct uksm_chunk *chunk, unsigned int slot);
void uksm_insert_frame(struct uksm_chunk *chunk, unsigned int slot,
		       struct folio *folio);
void uksm_erase_frame_id(struct uksm_frame_ids *ids, u32 id);
struct folio *uksm_lookup_frame(struct uksm_frame_ids *ids, u32 id);
struct folio *uksm_next_frame(struct uksm_frame_ids *ids,
			      unsigned long *id);

/* The id of the frame that will be, or is, in a slot. */
static inline u32 uksm_slot_frame_id(const struct uksm_chunk *chunk,
				     unsigned int slot)
{
	return chunk->index << UKSM_CHUNK_SHIFT | slot;
}

#endif /* UKSM_FRAME_ID_H */
