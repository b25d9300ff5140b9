// SPDX-License-Identifier: GPL-2.0-only
/*
 * The page comparison sees every bit
 *
 * Pages end where their allocation ends, so that the address sanitizer sees a
 * read beyond them.
 */
#include <string.h>

#include "check.h"
#include "compare.h"
#include "uksm_ioctl.h"

static unsigned char *new_page(void)
{
	unsigned char *page = aligned_alloc(8, UKSM_PAGE_SIZE);

	CHECK(page);
	memset(page, 0, UKSM_PAGE_SIZE);
	return page;
}

static void every_bit_of_a_page_counts(void)
{
	unsigned char *a = new_page(), *b = new_page();
	__u64 state = seed;
	int i, bit;

	CHECK(uksm_page_zero(a));
	for (i = 0; i < UKSM_PAGE_SIZE; i++) {
		for (bit = 0; bit < 8; bit++) {
			a[i] = 1 << bit;
			CHECK(!uksm_page_zero(a));
			CHECK(!uksm_pages_equal(a, b));
			CHECK(!uksm_pages_equal(b, a));
			a[i] = 0;
		}
	}
	CHECK(uksm_page_zero(a));
	for (i = 0; i < UKSM_PAGE_SIZE; i++)
		a[i] = splitmix64(&state);
	memcpy(b, a, UKSM_PAGE_SIZE);
	CHECK(uksm_pages_equal(a, b));
	CHECK(uksm_pages_equal(a, a));
	for (i = 0; i < UKSM_PAGE_SIZE; i++) {
		b[i] ^= 0x80;
		CHECK(!uksm_pages_equal(a, b));
		b[i] ^= 0x80;
	}
	free(a);
	free(b);
}

/* Differences that a sum or a difference of words would miss. */
static void differences_do_not_cancel(void)
{
	unsigned char *a = new_page(), *b = new_page();
	int i;

	for (i = 0; i + 8 < UKSM_PAGE_SIZE; i += 8) {
		a[i] = 1;
		b[i + 8] = 1;
		CHECK(!uksm_pages_equal(a, b));
		a[i + 8] = 0xff;
		b[i] = 0xff;
		CHECK(!uksm_pages_equal(a, b));
		memset(a, 0, UKSM_PAGE_SIZE);
		memset(b, 0, UKSM_PAGE_SIZE);
	}
	free(a);
	free(b);
}

void test_compare(void)
{
	every_bit_of_a_page_counts();
	differences_do_not_cancel();
	printf("compare: every bit of a page counts\n");
}
