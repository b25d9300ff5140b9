/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_HUGETLB_H
#define STUB_HUGETLB_H

unsigned long hugetlb_total_pages(void);

#endif
