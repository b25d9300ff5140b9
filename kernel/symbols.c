// SPDX-License-Identifier: GPL-2.0-only
/*
 * Find the functions of symbols.h when the module is loaded
 *
 * A kprobe is the only exported way to the address of a function by name. It is used
 * for kallsyms_lookup_name() alone, which knows all others. Under IBT the address
 * of a kprobe lies behind the ENDBR that an indirect call must hit; a static call is
 * direct, so it may go there.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/utsname.h>

#include <generated/utsrelease.h>
/* Not where a tree was only prepared for modules: such a kernel was built elsewhere. */
#if __has_include("generated/utsversion.h")
#include <generated/utsversion.h>
#endif

#include "symbols.h"

#define UKSM_SYMBOL(name) DEFINE_STATIC_CALL_NULL(uksm_##name, name)
#include "symbol_list.h"
#undef UKSM_SYMBOL
DEFINE_STATIC_CALL_NULL(uksm_kallsyms_lookup_name, kallsyms_lookup_name);

#ifdef UKSM_TEST
static char *require;
module_param(require, charp, 0);
MODULE_PARM_DESC(require, "one more kernel symbol to insist on (test builds only)");
static char *built_for = UTS_RELEASE;
module_param(built_for, charp, 0);
MODULE_PARM_DESC(built_for, "the kernel to pretend to be built for (test builds only)");
#else
static const char *const built_for = UTS_RELEASE;
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
	pr_err("built for kernel %s %s, this is %s %s: build uksm for this kernel\n",
	       built_for, built_version ?: "", running->release,
	       running->version);
	return -ENOEXEC;
}

static void *find_symbol(const char *name)
{
	void *found = (void *)uksm_call(kallsyms_lookup_name)(name);

	if (!found)
		pr_err("this kernel has no symbol %s, which uksm needs\n", name);
	return found;
}

/**
 * uksm_find_symbols() - resolve all functions of symbols.h
 *
 * Return: 0; -ENOENT if functions are missing, each named in the log; the error
 * of register_kprobe() if none can be looked for.
 */
int uksm_find_symbols(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	bool missing = false;
	void *found;
	int error;

	error = register_kprobe(&probe);
	if (error) {
		pr_err("cannot look up kernel symbols: no kprobe on %s (%d)\n",
		       probe.symbol_name, error);
		return error;
	}
	static_call_update(uksm_kallsyms_lookup_name, (void *)probe.addr);
	unregister_kprobe(&probe);

#define UKSM_SYMBOL(name)					\
	do {							\
		found = find_symbol(#name);			\
		if (found)					\
			static_call_update(uksm_##name, found);	\
		else						\
			missing = true;				\
	} while (0)
#include "symbol_list.h"
#undef UKSM_SYMBOL

#ifdef UKSM_TEST
	if (require && !find_symbol(require))
		missing = true;
#endif
	return missing ? -ENOENT : 0;
}
