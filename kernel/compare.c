// SPDX-License-Identifier: GPL-2.0-only
/*
 * Are two pages equal, is a page zero?
 *
 * Every merge compares 4096 bytes while a page-table lock is held. The kernel's
 * memcmp() takes one word a step, with a branch each, because it must say which
 * side is smaller. Here only equality matters, so several lines are combined into
 * one word and one branch. The comparison ends with the first lines that differ.
 */
#include "compare.h"
#include "uksm_ioctl.h"

#define PAGE_WORDS	(UKSM_PAGE_SIZE / 8)
#define LINE_WORDS	(UKSM_LINE_SIZE / 8)
/* Words a step. More gain little, and read more where pages differ early. */
#define STEP_WORDS	(4 * LINE_WORDS)

/* Not 0 if two lines differ. */
static inline __u64 difference(const __u64 *x, const __u64 *y)
{
	return (x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) |
	       (x[4] ^ y[4]) | (x[5] ^ y[5]) | (x[6] ^ y[6]) | (x[7] ^ y[7]);
}

/**
 * uksm_pages_equal() - compare all bytes of two pages
 * @a: a page, 8-byte aligned
 * @b: another one
 */
bool uksm_pages_equal(const void *a, const void *b)
{
	const __u64 *x = a, *y = b, *end = x + PAGE_WORDS;

	for (; x < end; x += STEP_WORDS, y += STEP_WORDS) {
		if (difference(x, y) |
		    difference(x + LINE_WORDS, y + LINE_WORDS) |
		    difference(x + 2 * LINE_WORDS, y + 2 * LINE_WORDS) |
		    difference(x + 3 * LINE_WORDS, y + 3 * LINE_WORDS))
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
