// SPDX-License-Identifier: GPL-2.0-only
/*
 * Migration to device memory leaves pages of the machine where they are
 *
 * A driver that moves a range to its device calls migrate_vma_setup().
 * migrate_vma_collect_pmd() there puts a migration entry in place of each page that it
 * can lock, and drops the mapping. Then migrate_device_unmap() fails to isolate a frame,
 * which is not on the LRU, and has remove_migration_ptes() put the page back into all its
 * mappings. That finds none of a frame. The entry stays for ever: the next
 * access, and the exit of the process, is a BUG (6.1, 6.12), or the access never ends
 * (7.x).
 *
 * The collector skips all pages of the machine where the caller does not select them
 * (MIGRATE_VMA_SELECT_SYSTEM). So a kprobe clears that flag in the caller's
 * arguments. Holes still get device memory, and device memory still comes back. The
 * driver finds that nothing was collected, as it does where pages are pinned.
 *
 * The price: from the first load of uksm.ko on, no memory that a processor has touched
 * moves to a device, of any process. With gpu_migration=1 migration is left alone, and
 * uksm.ko maps no frame.
 *
 * Root can switch kprobes off (kernel.ftrace_enabled, kprobes/enabled of debugfs). So the
 * guard tries itself when uksm.ko is loaded, and before each FOLD that maps frames. Frames
 * that are mapped already are not protected as long as kprobes are off.
 *
 * A migration that began before the guard did its work is the business of
 * uksm_settle_space().
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/kprobes.h>
#include <linux/migrate.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/ptrace.h>

#include "guard_parts.h"

#ifdef CONFIG_DEVICE_MIGRATION
static bool gpu_migration;
module_param(gpu_migration, bool, UKSM_GUARD_MODE);
MODULE_PARM_DESC(gpu_migration, "leave migration to devices alone: then uksm maps no frames");

static int clear_select_system(struct kprobe *probe, struct pt_regs *regs)
{
	struct migrate_vma *args = (void *)regs_get_kernel_argument(regs, 0);

	if (!READ_ONCE(gpu_migration))
		args->flags &= ~MIGRATE_VMA_SELECT_SYSTEM;
	return 0;	/* the function itself follows */
}

NOKPROBE_SYMBOL(clear_select_system);

static struct kprobe probe = {
	.symbol_name = "migrate_vma_setup",
	.pre_handler = clear_select_system,
};

/* Without a mapping the function changes nothing and fails, but the probe runs. */
static bool probe_works(void)
{
	struct migrate_vma args = { .flags = MIGRATE_VMA_SELECT_SYSTEM };

	return migrate_vma_setup(&args) == -EINVAL &&
	       !(args.flags & MIGRATE_VMA_SELECT_SYSTEM);
}

int uksm_guard_migration_check(void)
{
	if (READ_ONCE(gpu_migration))
		return -EPERM;
	return probe_works() ? 0 : -ENXIO;
}

int uksm_guard_migration_init(void)
{
	int error;

	if (gpu_migration) {
		pr_notice("gpu_migration=1: memory may move to devices, and uksm merges zeros only\n");
		return 0;
	}
	/* An earlier try left these behind; with them register_kprobe() refuses. */
	probe.addr = NULL;
	probe.flags = 0;
	error = register_kprobe(&probe);
	if (error) {
		pr_err("no kprobe on %s (%d): merged pages could not be protected\n",
		       probe.symbol_name, error);
		return error;
	}
	if (probe_works())
		return 0;
	unregister_kprobe(&probe);
	pr_err("the kprobe on %s does not run: are kprobes or ftrace switched off?\n",
	       probe.symbol_name);
	return -ENXIO;
}

void uksm_guard_migration_undo(void)
{
	if (!gpu_migration)
		unregister_kprobe(&probe);
}
#else /* There is no such function in this kernel. */
int uksm_guard_migration_check(void)
{
	return 0;
}

int uksm_guard_migration_init(void)
{
	return 0;
}

void uksm_guard_migration_undo(void)
{
}
#endif
