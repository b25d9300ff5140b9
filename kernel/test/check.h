/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A test in userspace of a part of the module
 *
 * A test is a function that checks facts; the first that does not hold ends the
 * run with its place and the seed. Random numbers come from the seed alone.
 */
#ifndef UKSM_TEST_CHECK_H
#define UKSM_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include <linux/types.h>

extern __u64 seed;

#define CHECK(fact)							\
	do {								\
		if (!(fact)) {						\
			fprintf(stderr, "%s:%d: %s does not hold (seed %llu)\n", \
				__FILE__, __LINE__, #fact,		\
				(unsigned long long)seed);		\
			exit(1);					\
		}							\
	} while (0)

/* The next output of splitmix64. */
static inline __u64 splitmix64(__u64 *state)
{
	__u64 z = *state += 0x9E3779B97F4A7C15u;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

void test_requests(unsigned long fuzz_calls);
void test_linehash(const char *vectors);
void test_compare(void);
void test_kernel_vendor(void);

#endif /* UKSM_TEST_CHECK_H */
