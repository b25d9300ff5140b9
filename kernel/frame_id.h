/* SPDX-License-Identifier: GPL-2.0-only */
/* Numbers of frames. See frame_id.c. */
#ifndef UKSM_FRAME_ID_H
#define UKSM_FRAME_ID_H

#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/xarray.h>

/* A chunk takes 1 KiB; the numbers of the slots that do not fit are not used. */
#define UKSM_CHUNK_SHIFT	7
#define UKSM_CHUNK_SLOTS	125

/* Neighbouring numbers, handed out by one call at a time. */
struct uksm_chunk {
	union {
		struct list_head link;	/* of a call, or of domain's spare ones */
		struct rcu_head rcu;	/* when it is empty and gone */
	};
	u32 number;
	u16 entered;		/* slots with frames */
	u16 next;		/* no slot before this one is to be had */
	struct folio *frames[UKSM_CHUNK_SLOTS];
};

/* The numbers of a domain. */
struct uksm_numbers {
	struct xarray chunks;		/* number -> struct uksm_chunk */
	u32 next_chunk;			/* chunks are numbered in a circle */
	spinlock_t lock;		/* protects spare, and chunks in it */
	struct list_head spare;		/* may have free slots; no call's */
};

void uksm_numbers_init(struct uksm_numbers *numbers);
void uksm_numbers_destroy(struct uksm_numbers *numbers);
struct uksm_chunk *uksm_take_chunk(struct uksm_numbers *numbers);
void uksm_return_chunk(struct uksm_numbers *numbers, struct uksm_chunk *chunk);
int uksm_reserve_slot(struct uksm_chunk *chunk);
void uksm_cancel_slot(struct uksm_chunk *chunk, unsigned int slot);
void uksm_enter_frame(struct uksm_chunk *chunk, unsigned int slot,
		      struct folio *folio);
void uksm_remove_number(struct uksm_numbers *numbers, u32 number);
struct folio *uksm_find_frame(struct uksm_numbers *numbers, u32 number);
struct folio *uksm_next_frame(struct uksm_numbers *numbers,
			      unsigned long *number);

/* The number of the frame that will be, or is, in a slot. */
static inline u32 uksm_slot_number(const struct uksm_chunk *chunk,
				   unsigned int slot)
{
	return chunk->number << UKSM_CHUNK_SHIFT | slot;
}

#endif /* UKSM_FRAME_ID_H */
