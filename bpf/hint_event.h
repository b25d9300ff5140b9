/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What the hint programs and the daemon agree on. Rust's side is made from this file.
 */
#ifndef UKSM_HINT_EVENT_H
#define UKSM_HINT_EVENT_H

#include <linux/types.h>

/* What touched the memory. */
enum uksm_hint_source {
	UKSM_HINT_READ,	  /* it was read into */
	UKSM_HINT_WRITE,  /* it was written from */
	UKSM_HINT_GROWTH, /* nothing: so many bytes have appeared somewhere in the process */
};

/* Memory of a followed process that I/O has touched. */
struct uksm_hint {
	__u64 start;	 /* byte address; 0 of growth */
	__u64 length;	 /* bytes */
	__u64 file_size; /* of the file, in bytes; 0 where the file is not known */
	__u64 offset;	 /* where in the file the bytes begin */
	__u32 space;	 /* what the daemon said of the process */
	__u32 source;	 /* enum uksm_hint_source */
};

/* A followed process. The programs change all of it but the space. */
struct uksm_follower {
	__u32 space; /* the daemon's number of it */
	__u32 turn;  /* the daemon's turn in which it was told of last */
	__u32 told;  /* hints since that turn began */
	__u32 lost;  /* whether some were lost since then */
	__u64 grown_at; /* when it was told last that it grew, in ns of the monotonic clock */
	__s64 anon_pages; /* anonymous pages that it had then, or the fewest since */
};

/* Places of the array of counts, one for each processor. */
enum uksm_hint_count {
	UKSM_HINT_COUNT_CALLS, /* calls of followed processes that touched memory */
	UKSM_HINT_COUNT_LOST,  /* hints for which the ring had no room left for their process */
	UKSM_HINT_COUNT_OTHER, /* calls whose memory is given by pages: pinned, or the kernel's */
	UKSM_HINT_COUNT_NANOSECONDS, /* taken by the programs, told from one run of some */
	UKSM_HINT_COUNTS,
};

/* Places of the counts of moves between control groups. */
enum uksm_move_count {
	UKSM_MOVE_COUNT_MOVES, /* processes and threads that were moved */
	UKSM_MOVE_COUNT_LOST, /* moves for which the ring had no room left */
	UKSM_MOVE_COUNTS,
};

#endif
