// SPDX-License-Identifier: GPL-2.0-only
/*
 * May the module be loaded into the running kernel?
 *
 * Two checks, before anything is made or registered: the module was built for this very
 * kernel, and the module's tests passed on kernels like this (tried_kernels.h). Each
 * series changes the memory management, and vendors change it under an unchanged number.
 * The build finds changed declarations, and tests find changed behavior; without this
 * file, an operator's processes would be the first test. The parameter untested=1 turns
 * the second check into a warning; it stays readable in /sys/module/uksm/parameters.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/kconfig.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/string.h>
#include <linux/utsname.h>
#include <linux/version.h>

#include <generated/utsrelease.h>
/* Not where a tree was only prepared for modules: such a kernel was built elsewhere. */
#if __has_include("generated/utsversion.h")
#include <generated/utsversion.h>
#endif

#include "kernel_vendor.h"
#include "running_kernel.h"

static bool untested;
module_param(untested, bool, 0444);
MODULE_PARM_DESC(untested, "load into a kernel on which uksm was not tried, at your own risk");

#ifdef UKSM_TEST
static char *built_for = UTS_RELEASE;
module_param(built_for, charp, 0);
MODULE_PARM_DESC(built_for, "the kernel to pretend to be built for (test builds only)");
static char *running_release;
module_param(running_release, charp, 0);
MODULE_PARM_DESC(running_release, "the release of the kernel to judge (test builds only)");
static char *running_version;
module_param(running_version, charp, 0);
MODULE_PARM_DESC(running_version, "the version of the kernel to judge (test builds only)");
static bool kallsyms_all = IS_ENABLED(CONFIG_KALLSYMS_ALL);
module_param(kallsyms_all, bool, 0);
MODULE_PARM_DESC(kallsyms_all, "whether that kernel lists all symbols (test builds only)");
#else
static const char *const built_for = UTS_RELEASE;
static const char *const running_release;
static const char *const running_version;
#define kallsyms_all	IS_ENABLED(CONFIG_KALLSYMS_ALL)
#endif

/* What "uname -v" prints; NULL if the headers do not say. */
#if defined(UTS_VERSION) && defined(UKSM_TEST)
static char *built_version = UTS_VERSION;
module_param(built_version, charp, 0);
MODULE_PARM_DESC(built_version, "its build to pretend to be built for (test builds only)");
#elif defined(UTS_VERSION)
static const char *const built_version = UTS_VERSION;
#else
static const char *const built_version;
#endif

/* "uksm doctor" reads it in the file: two builds of a kernel can have one release. */
#ifdef UTS_VERSION
MODULE_INFO(built_for, UTS_VERSION);
#endif

/**
 * uksm_check_kernel() - is this the kernel that the module was built for?
 *
 * The kernel checks the versions of what a module imports, and then loads a module
 * that was built for another release. It does not know what symbols.h looks up by
 * name, nor the structures that the module reads: those have no versions. A
 * distribution also releases other builds under the same name, if what modules import
 * did not change; only the version tells these apart.
 *
 * Return: 0; -ENOEXEC with both kernels named in the log.
 */
int uksm_check_kernel(void)
{
	const struct new_utsname *running = init_utsname();

	if (!strcmp(running->release, built_for) &&
	    (!built_version || !strcmp(running->version, built_version)))
		return 0;
	pr_err("built for kernel %s %s, this is %s %s: build uksm again with the headers of this kernel (docs/install.md)\n",
	       built_for, built_version ?: "", running->release,
	       running->version);
	return -ENOEXEC;
}

struct option {
	const char *vendor;
	bool is_set;
};

static const struct option options[] = {
#define UKSM_VENDOR_OPTION(name, option)				\
	{ .vendor = name, .is_set = IS_BUILTIN(option) },
#include "tried_kernels.h"
};

/* The module was built for this kernel, so its headers describe it. */
static const char *vendor_by_option(void)
{
	size_t at;

	for (at = 0; at < ARRAY_SIZE(options); at++)
		if (options[at].is_set)
			return options[at].vendor;
	return NULL;
}

/* A kernel of Red Hat's source without a mark in its names. */
#ifdef RHEL_MAJOR	/* of linux/version.h */
#define VENDOR_OF_SOURCE	"Red Hat"
#else
#define VENDOR_OF_SOURCE	NULL
#endif

/**
 * uksm_check_tried() - did the tests pass on kernels like this, or is that no matter?
 *
 * A kernel without CONFIG_KALLSYMS_ALL counts as none that was tried, since all of those
 * have it.
 *
 * Return: 0; -EOPNOTSUPP with this kernel, the list and the way out in one line of the log.
 */
int uksm_check_tried(void)
{
	const char *release = running_release ?: init_utsname()->release;
	const char *version = running_version ?: init_utsname()->version;
	const char *vendor = vendor_by_option() ?:
			     uksm_kernel_vendor(release, version) ?:
			     VENDOR_OF_SOURCE;
	const char *trait = vendor ?: "unknown vendor";

	if (!kallsyms_all)
		trait = "built without CONFIG_KALLSYMS_ALL";
	else if (uksm_is_tried(vendor, release))
		return 0;
	if (untested) {
		pr_warn("not tried on this kernel, %s %s (%s): loaded at your own risk, since untested=1\n",
			release, version, trait);
		return 0;
	}
	pr_err("refused, since it was not tried on this kernel, %s %s (%s), but on: %s. To load it at your own risk: modprobe uksm untested=1 (docs/kernels.md)\n",
	       release, version, trait, uksm_tried_kernels);
	return -EOPNOTSUPP;
}
