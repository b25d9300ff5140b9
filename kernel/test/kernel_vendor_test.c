// SPDX-License-Identifier: GPL-2.0-only
/* Tests of kernel_vendor.c: each name of interface/kernel_names.h. */
#include <string.h>

#include "check.h"
#include "kernel_vendor.h"

struct name {
	const char *release;
	const char *version;
	const char *vendor;
	bool tried;
};

static const struct name names[] = {
#define UKSM_KERNEL_NAME(...) { __VA_ARGS__ },
#include "kernel_names.h"
};

static void each_name_is_judged_as_the_table_has_it(void)
{
	const struct name *name;
	const char *vendor;

	for (name = names; name < names + ARRAY_SIZE(names); name++) {
		vendor = uksm_kernel_vendor(name->release, name->version);
		if (strcmp(vendor ? vendor : "", name->vendor) ||
		    uksm_is_tried(vendor, name->release) != name->tried) {
			fprintf(stderr, "%s %s: %s\n", name->release,
				name->version, vendor);
			CHECK(!"as in kernel_names.h");
		}
	}
}

static void an_empty_or_short_release_is_of_no_tried_kernel(void)
{
	const char *releases[] = { "", "6", "6.1", "6.1-", "-", "-a", "6.12.1-rt" };
	size_t at;

	for (at = 0; at < ARRAY_SIZE(releases); at++)
		CHECK(!uksm_is_tried("Debian", releases[at]));
	CHECK(!uksm_is_tried(NULL, "6.1.0-57-amd64"));
	CHECK(!uksm_is_tried("debian", "6.1.0-57-amd64"));
	CHECK(uksm_is_tried("Debian", "6.1.0-57-amd64"));
}

static void messages_name_the_tried_kernels_and_none_that_tests_build(void)
{
	CHECK(!strncmp(uksm_tried_kernels, "Debian 6.1 (amd64, ", 19));
	CHECK(strstr(uksm_tried_kernels, "), Debian 6.12 ("));
	CHECK(!strstr(uksm_tried_kernels, "uksm"));
}

void test_kernel_vendor(void)
{
	each_name_is_judged_as_the_table_has_it();
	an_empty_or_short_release_is_of_no_tried_kernel();
	messages_name_the_tried_kernels_and_none_that_tests_build();
}
