// SPDX-License-Identifier: GPL-2.0-only
/* Runs the tests: tests VECTORS SEED FUZZ_CALLS */
#include "check.h"

__u64 seed;

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: %s VECTORS SEED FUZZ_CALLS\n", argv[0]);
		return 2;
	}
	seed = strtoull(argv[2], NULL, 0);
	test_compare();
	test_kernel_vendor();
	test_linehash(argv[1]);
	test_requests(strtoul(argv[3], NULL, 0));
	return 0;
}
