// SPDX-License-Identifier: GPL-2.0-only
/*
 * The page comparison sees every bit
 *
 * No memory lies around the pages: a read beyond them ends the test, also where it
 * is written in assembly, which no sanitizer sees.
 */
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "compare.h"
#include "uksm_ioctl.h"

static unsigned char *new_page(void)
{
	unsigned char *around = mmap(NULL, 3 * UKSM_PAGE_SIZE, PROT_NONE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *page = around + UKSM_PAGE_SIZE;

	CHECK(around != MAP_FAILED);
	CHECK(!mprotect(page, UKSM_PAGE_SIZE, PROT_READ | PROT_WRITE));
	return page;
}

static void free_page(unsigned char *page)
{
	CHECK(!munmap(page - UKSM_PAGE_SIZE, 3 * UKSM_PAGE_SIZE));
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
	free_page(a);
	free_page(b);
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
	free_page(a);
	free_page(b);
}

void test_compare(void)
{
	bool has_wide = uksm_has_wide_vectors();
	int wide;

	for (wide = 0; wide <= has_wide; wide++) {
		uksm_choose_vectors(wide);
		every_bit_of_a_page_counts();
		differences_do_not_cancel();
	}
	printf("compare: every bit of a page counts, %s\n", has_wide ?
	       "in vectors of 16 and of 32 bytes" :
	       "in vectors of 16 bytes (this processor has no AVX2)");
}
