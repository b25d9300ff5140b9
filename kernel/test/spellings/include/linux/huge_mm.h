/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_HUGE_MM_H
#define STUB_HUGE_MM_H

#include <linux/types.h>

struct list_head;

/* SPELLING UKSM_HAS_SPLIT_TO_LIST */
int split_huge_page_to_list(struct page *page, struct list_head *list);
/* SPELLING UKSM_HAS_SPLIT_TO_ORDER */
int split_huge_page_to_list_to_order(struct page *page, struct list_head *list,
				     unsigned int order);
/* SPELLING UKSM_HAS_SPLIT_INNER */
int __split_huge_page_to_list_to_order(struct page *page, struct list_head *list,
				       unsigned int order);
/* END */

#endif
