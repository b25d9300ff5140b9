// SPDX-License-Identifier: GPL-2.0-only
/*
 * Are two pages equal, is a page zero?
 *
 * Every merge compares 4096 bytes while a page-table lock is held. The kernel's
 * memcmp() takes one word a step, with a branch each, because it must say which
 * side is smaller. Here only equality matters. Pages that differ mostly do so
 * early: the first lines are combined into one word and one branch. The rest is
 * compared in vector registers, 32 bytes at a time where processor and kernel have
 * AVX2, else 16, and ends with the first four lines that differ.
 *
 * SSE2 is part of x86-64. AVX2 is looked for once, and whether the kernel saves its
 * registers. What is done with them here neither multiplies nor is floating point,
 * for which alone processors lower their clock at this width. Their upper halves are
 * cleared after use, as code for SSE expects.
 *
 * kernel_fpu_begin() may be called wherever a task runs, with spinlocks held, too. It
 * disables preemption, for at most 3840 bytes here. It saves the registers of the
 * calling process once a system call; they are loaded again on the way back. An
 * interrupt that wants vector registers meanwhile finds irq_fpu_usable() false.
 * Nothing but the comparison lies between begin and end: no lock is taken there,
 * which on a real-time kernel might sleep.
 */
#include "compare.h"
#include "uksm_ioctl.h"

#ifdef __KERNEL__
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>
#include <linux/cache.h>
#define CLOBBERED	"memory"
#else
#define __ro_after_init
#define kernel_fpu_begin()	do { } while (0)
#define kernel_fpu_end()	do { } while (0)
#define CLOBBERED	"memory", "xmm0", "xmm1"
#endif

#define PAGE_WORDS	(UKSM_PAGE_SIZE / 8)
#define LINE_WORDS	(UKSM_LINE_SIZE / 8)
/* Words a step. More gain little, and read more where pages differ early. */
#define STEP_WORDS	(4 * LINE_WORDS)

static bool is_wide __ro_after_init;

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

/* ymm0 has the bits that differ in any of the vectors so far. */
#define OR_DIFFERENT(at)					\
	"vmovdqa " #at "(%[x]), %%ymm1\n\t"			\
	"vpxor " #at "(%[y]), %%ymm1, %%ymm1\n\t"		\
	"vpor %%ymm1, %%ymm0, %%ymm0\n\t"

static inline bool wide_step_equal(const __u64 *x, const __u64 *y)
{
	bool equal;

	asm volatile("vmovdqa (%[x]), %%ymm0\n\t"
		     "vpxor (%[y]), %%ymm0, %%ymm0\n\t"
		     OR_DIFFERENT(32) OR_DIFFERENT(64) OR_DIFFERENT(96)
		     OR_DIFFERENT(128) OR_DIFFERENT(160) OR_DIFFERENT(192)
		     OR_DIFFERENT(224)
		     "vptest %%ymm0, %%ymm0"
		     : "=@ccz" (equal)
		     : [x] "r" (x), [y] "r" (y)
		     : CLOBBERED);
	return equal;
}

/* What is behind the first step; each width has a loop of its own. */
static __always_inline bool rest_equal(const __u64 *x, const __u64 *y,
				       const __u64 *end, bool wide)
{
	do {
		x += STEP_WORDS;
		y += STEP_WORDS;
	} while (x < end && (wide ? wide_step_equal(x, y) : step_equal(x, y)));
	if (wide)
		asm volatile("vzeroupper" ::: CLOBBERED);
	return x >= end;
}

/**
 * uksm_has_wide_vectors() - can vectors of 32 bytes be compared here?
 */
bool uksm_has_wide_vectors(void)
{
#ifdef __KERNEL__
	return boot_cpu_has(X86_FEATURE_AVX2) &&
	       cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, NULL);
#else
	return __builtin_cpu_supports("avx2");
#endif
}

/**
 * uksm_choose_vectors() - how are pages compared from now on?
 * @wide: by vectors of 32 bytes, which there must be
 *
 * Context: before the first comparison.
 */
void uksm_choose_vectors(bool wide)
{
	is_wide = wide;
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
	bool equal;

	if (!first_step_equal(x, y))
		return false;
	kernel_fpu_begin();
	equal = is_wide ? rest_equal(x, y, end, true) :
			  rest_equal(x, y, end, false);
	kernel_fpu_end();
	return equal;
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
