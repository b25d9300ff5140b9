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
 */
#include <linux/errno.h>
#include <linux/module.h>

#include "guard.h"
#include "guard_parts.h"

/**
 * uksm_guard_check() - may frames be mapped?
 * @interface: UKSM_GUARD_INTERFACE of the caller
 *
 * Return: 0; -EPROTO if the caller is newer than this guard, and needs something that it
 * lacks; -EPERM if gpu_migration=1; -ENXIO if the kernel no longer calls the probe.
 */
int uksm_guard_check(unsigned int interface)
{
	if (interface > UKSM_GUARD_INTERFACE)
		return -EPROTO;
	return uksm_guard_migration_check();
}
EXPORT_SYMBOL_GPL(uksm_guard_check);

static int __init uksm_guard_init(void)
{
	int error;

	error = uksm_guard_migration_init();
	if (error)
		return error;
	error = uksm_guard_offline_init();
	if (error)
		uksm_guard_migration_undo();
	return error;
}

module_init(uksm_guard_init);
MODULE_DESCRIPTION("Keeps merged pages from GPU migration and memory offlining");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
