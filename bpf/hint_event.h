/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The records and tables that the BPF programs and the daemon share. bindgen makes the Rust side
 * from this file.
 */
#ifndef UKSM_HINT_EVENT_H
#define UKSM_HINT_EVENT_H

#include <linux/types.h>

/* The operation that touched the memory. */
enum uksm_hint_source {
	UKSM_HINT_READ,	  /* a read filled it */
	UKSM_HINT_WRITE,  /* a write took its contents from it */
	UKSM_HINT_GROWTH, /* none: the process has this many bytes of new memory */
	UKSM_HINT_LOST,	  /* unknown: this number of hints was lost; written by a supervisor only */
};

/* Memory of a followed process that I/O has touched. */
struct uksm_hint {
	__u64 start;	 /* byte address; 0 for growth */
	__u64 length;	 /* bytes */
	__u64 file_size; /* size of the file in bytes; 0 if the file is unknown */
	__u64 offset;	 /* offset of the bytes in the file */
	__u32 space;	 /* the daemon's number of the process's space */
	__u32 source;	 /* enum uksm_hint_source */
};

/* A followed process. The programs change all fields except the space. */
struct uksm_follower {
	__u32 space; /* the daemon's number of its space */
	__u32 turn;  /* the daemon's turn of its last hint */
	__u32 sent;  /* hints since that turn began */
	__u32 lost;  /* whether hints were lost since then */
	__u64 grown_at; /* time of its last growth record, in ns of the monotonic clock */
	__s64 anon_pages; /* its anonymous pages at that time, or the minimum since */
};

/* Indices of the array of counts, which each processor has. */
enum uksm_hint_count {
	UKSM_HINT_COUNT_CALLS, /* calls of followed processes that touched memory */
	UKSM_HINT_COUNT_LOST,  /* hints beyond their process's part of the ring */
	UKSM_HINT_COUNT_OTHER, /* calls with memory named by pages: pinned, or the kernel's */
	UKSM_HINT_COUNT_NANOSECONDS, /* run time of the programs, estimated from a sample of runs */
	UKSM_HINT_COUNTS,
};

/* Indices of the counts of moves between control groups. */
enum uksm_move_count {
	UKSM_MOVE_COUNT_MOVES, /* processes and threads that were moved */
	UKSM_MOVE_COUNT_LOST, /* moves that found the ring full */
	UKSM_MOVE_COUNTS,
};

#endif
