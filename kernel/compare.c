// SPDX-License-Identifier: GPL-2.0-only
/*
 * Are two pages equal, is a page zero?
 *
 * Every merge compares 4096 bytes while a page-table lock is held. The kernel's
 * memcmp() takes one word a step, with a branch each, because it must say which
 * side is smaller. Here only equality matters. Pages that differ mostly do so
 * early: the first lines are combined into one word and one branch. The rest is
 * compared in vector registers, 16 bytes at a time, and ends with the first four
 * lines that differ.
 *
 * SSE2 is part of x86-64, so there is nothing to detect. kernel_fpu_begin() may be
 * called wherever a task runs, with spinlocks held, too. It disables preemption,
 * for at most 3840 bytes here. It saves the registers of the calling process once a
 * system call; they are loaded again on the way back. An interrupt that wants vector
 * registers meanwhile finds irq_fpu_usable() false. Nothing but the comparison lies
 * between begin and end: no lock is taken there, which on a real-time kernel might
 * sleep.
 */
#include "compare.h"
#include "uksm_ioctl.h"

#ifdef __KERNEL__
#include <asm/fpu/api.h>
#define CLOBBERED	"memory"
#else
#define kernel_fpu_begin()	do { } while (0)
#define kernel_fpu_end()	do { } while (0)
#define CLOBBERED	"memory", "xmm0", "xmm1"
#endif

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

static inline bool first_step_equal(const __u64 *x, const __u64 *y)
{
	return !(difference(x, y) |
		 difference(x + LINE_WORDS, y + LINE_WORDS) |
		 difference(x + 2 * LINE_WORDS, y + 2 * LINE_WORDS) |
		 difference(x + 3 * LINE_WORDS, y + 3 * LINE_WORDS));
}

/* xmm0 keeps the bytes that are equal in all vectors so far. */
#define AND_EQUAL(at)						\
	"movdqa " #at "(%[x]), %%xmm1\n\t"			\
	"pcmpeqb " #at "(%[y]), %%xmm1\n\t"			\
	"pand %%xmm1, %%xmm0\n\t"

/* The same for vectors; the caller has the registers. */
static inline bool step_equal(const __u64 *x, const __u64 *y)
{
	__u32 equal_bytes;

	asm volatile("movdqa (%[x]), %%xmm0\n\t"
		     "pcmpeqb (%[y]), %%xmm0\n\t"
		     AND_EQUAL(16) AND_EQUAL(32) AND_EQUAL(48)
		     AND_EQUAL(64) AND_EQUAL(80) AND_EQUAL(96)
		     AND_EQUAL(112) AND_EQUAL(128) AND_EQUAL(144)
		     AND_EQUAL(160) AND_EQUAL(176) AND_EQUAL(192)
		     AND_EQUAL(208) AND_EQUAL(224) AND_EQUAL(240)
		     "pmovmskb %%xmm0, %[equal_bytes]"
		     : [equal_bytes] "=r" (equal_bytes)
		     : [x] "r" (x), [y] "r" (y)
		     : CLOBBERED);
	return equal_bytes == 0xffff;
}

/**
 * uksm_pages_equal() - compare all bytes of two pages
 * @a: a page, 16-byte aligned
 * @b: another one
 *
 * Context: a task, not an interrupt.
 */
bool uksm_pages_equal(const void *a, const void *b)
{
	const __u64 *x = a, *y = b, *end = x + PAGE_WORDS;

	if (!first_step_equal(x, y))
		return false;
	kernel_fpu_begin();
	do {
		x += STEP_WORDS;
		y += STEP_WORDS;
	} while (x < end && step_equal(x, y));
	kernel_fpu_end();
	return x >= end;
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
