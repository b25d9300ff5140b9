/* SPDX-License-Identifier: GPL-2.0-only */
/* Are two pages equal, is a page zero? See compare.c. */
#ifndef UKSM_COMPARE_H
#define UKSM_COMPARE_H

#include "portable.h"

bool uksm_has_wide_vectors(void);
void uksm_choose_vectors(bool wide);
bool uksm_pages_equal(const void *a, const void *b);
bool uksm_page_zero(const void *page);

#endif /* UKSM_COMPARE_H */
