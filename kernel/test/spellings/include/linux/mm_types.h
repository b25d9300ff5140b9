/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_MM_TYPES_H
#define STUB_MM_TYPES_H

#include <linux/types.h>

struct address_space;

struct page {
	unsigned long flags;
};

struct folio {
	struct page page;
	void *private;
	struct address_space *mapping;
	atomic_t _mapcount;
};

enum { MM_ANONPAGES, NR_MM_COUNTERS };

struct mm_rss_stat {
	atomic_long_t count[NR_MM_COUNTERS];
};

struct mm_struct {
	unsigned long flags;
/* SPELLING UKSM_HAS_MM_USER_NS */
	struct user_namespace *user_ns;
/* SPELLING UKSM_HAS_PERCPU_RSS */
	struct percpu_counter rss_stat[NR_MM_COUNTERS];
/* SPELLING UKSM_HAS_SIMPLE_RSS */
	struct mm_rss_stat rss_stat;
/* END */
};

#endif
