/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_PAGE_FLAGS_H
#define STUB_PAGE_FLAGS_H

#include <linux/mm_types.h>

#ifdef STUB_PAGE_MAPPING_KSM
#define PAGE_MAPPING_ANON	1
#define PAGE_MAPPING_FLAGS	3
#define PAGE_MAPPING_KSM	3
#endif
#ifdef STUB_FOLIO_MAPPING_KSM
#define FOLIO_MAPPING_ANON	1
#define FOLIO_MAPPING_FLAGS	3
#define FOLIO_MAPPING_KSM	3
#endif

int PageHWPoison(struct page *page);

#endif
