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

#include "symbols.h"

#define UKSM_SYMBOL(name) DEFINE_STATIC_CALL_NULL(uksm_##name, name)
#include "symbol_list.h"
#undef UKSM_SYMBOL
DEFINE_STATIC_CALL_NULL(uksm_kallsyms_lookup_name, kallsyms_lookup_name);

#ifdef UKSM_TEST
static char *require;
module_param(require, charp, 0);
MODULE_PARM_DESC(require, "one more kernel symbol to insist on (test builds only)");
#endif

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
