// SPDX-License-Identifier: GPL-2.0-only
/*
 * Are two pages equal, is a page zero?
 *
 * Problem: every merge compares 4096 bytes while a page-table lock is held.
 * The kernel's memcmp() takes one word a step, with a branch each, because it
 * must say which side is smaller. Approach: only equality is asked for, so a
 * whole line is folded into one word and one branch. A difference ends the
 * comparison at its line.
 */
#include "compare.h"
#include "uksm_ioctl.h"

#define PAGE_WORDS	(UKSM_PAGE_SIZE / 8)
#define LINE_WORDS	(UKSM_LINE_SIZE / 8)

/**
 * uksm_pages_equal() - compare all bytes of two pages
 * @a: a page, 8-byte aligned
 * @b: another one
 */
bool uksm_pages_equal(const void *a, const void *b)
{
	const __u64 *x = a, *y = b, *end = x + PAGE_WORDS;

	for (; x < end; x += LINE_WORDS, y += LINE_WORDS) {
		__u64 low = (x[0] ^ y[0]) | (x[1] ^ y[1]) |
			    (x[2] ^ y[2]) | (x[3] ^ y[3]);
		__u64 high = (x[4] ^ y[4]) | (x[5] ^ y[5]) |
			     (x[6] ^ y[6]) | (x[7] ^ y[7]);

		if (low | high)
			return false;
	}
	return true;
}

/**
 * uksm_page_zero() - does a page hold only zeros?
 * @page: a page, 8-byte aligned
 */
bool uksm_page_zero(const void *page)
{
	const __u64 *x = page, *end = x + PAGE_WORDS;

	for (; x < end; x += LINE_WORDS) {
		if (x[0] | x[1] | x[2] | x[3] | x[4] | x[5] | x[6] | x[7])
			return false;
	}
	return true;
}
