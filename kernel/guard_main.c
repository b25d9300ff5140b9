// SPDX-License-Identifier: GPL-2.0-only
/*
 * uksm_guard.ko - keeps the kernel from two steps that damage frames
 *
 * Reverse mapping finds no mappings of a frame (compat.h). Where the kernel moves
 * memory or takes it away, it isolates a page first, or looks for its mappings, and so
 * leaves a frame alone; in all places but two:
 *
 *  - Migration to the memory of a device takes the page out of the page table before
 *    it isolates the page (guard_migration.c).
 *  - Offlining of a memory block passes over pages whose memory has failed
 *    (guard_offline.c).
 *
 * Orphans stay mapped after uksm.ko was unloaded, as long as their processes live. So the
 * guard is a module of its own. It has no exit function, so it stays until the
 * next boot. uksm.ko imports uksm_guard_check(), so it cannot be loaded without
 * the guard, and asks it before it maps a frame.
 *
 * The guard does not check the running kernel (running_kernel.c). modprobe loads it
 * before uksm.ko, and gives it no parameters of uksm.ko. It registers nothing until
 * uksm.ko, which passed its own checks, asks for the first time. So a guard whose uksm.ko
 * was refused does nothing: no memory is kept from a GPU for a module that is not there.
 */
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/string.h>

#include "guard.h"
#include "guard_parts.h"

static DEFINE_MUTEX(lock);	/* changes of active */
static bool active;	/* stays true, but for test builds */

static int activate(void)
{
	int error = 0;

	mutex_lock(&lock);
	if (active)
		goto unlock;
	error = uksm_guard_migration_init();
	if (error)
		goto unlock;
	error = uksm_guard_offline_init();
	if (error)
		uksm_guard_migration_undo();
	else	/* after all that was registered: pairs with uksm_guard_check() */
		smp_store_release(&active, true);
unlock:
	mutex_unlock(&lock);
	return error;
}

#ifdef UKSM_TEST
/* Writing 0 makes the guard as it was before the first question. */
static int set_active(const char *value, const struct kernel_param *param)
{
	if (!sysfs_streq(value, "0"))
		return -EINVAL;
	mutex_lock(&lock);
	if (active) {
		uksm_guard_offline_undo();
		uksm_guard_migration_undo();
		active = false;
	}
	mutex_unlock(&lock);
	return 0;
}

static const struct kernel_param_ops active_ops = {
	.set = set_active,
	.get = param_get_bool,
};
module_param_cb(active, &active_ops, &active, 0600);
MODULE_PARM_DESC(active, "whether it protects frames (test builds only)");
#endif

/**
 * uksm_guard_check() - may frames be mapped?
 * @interface: UKSM_GUARD_INTERFACE of the caller
 *
 * The first question makes the guard begin its work, and may sleep.
 *
 * Return: 0; -EPROTO if the caller is newer than this guard, and needs something that it
 * lacks; -ENODEV if it cannot begin its work, with the reason in the log; -EPERM if
 * gpu_migration=1; -ENXIO if the kernel no longer calls the probe.
 */
int uksm_guard_check(unsigned int interface)
{
	if (interface > UKSM_GUARD_INTERFACE)
		return -EPROTO;
	/* pairs with activate() */
	if (!smp_load_acquire(&active) && activate())
		return -ENODEV;
	return uksm_guard_migration_check();
}
EXPORT_SYMBOL_GPL(uksm_guard_check);

/* Without an init function a module without an exit function could be unloaded. */
static int __init uksm_guard_init(void)
{
	return 0;
}

module_init(uksm_guard_init);
MODULE_DESCRIPTION("Keeps merged pages from GPU migration and memory offlining");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
