// SPDX-License-Identifier: GPL-2.0-only
/*
 * migration_collector.ko - migrates memory to a device that does not exist
 *
 * Drivers of GPUs call migrate_vma_setup() for ranges of processes. No machine of the
 * tests has such a device. This module makes the same calls, in the same order and with
 * the same locks, as a driver that can get no memory of its device: each page must stay
 * where it is. For tests only: it checks nothing that root writes.
 *
 * Parameters, all written by root:
 *   collect	"PID START END HOLD": addresses in hexadecimal, in one mapping, at most
 *		MAX_PAGES; takes the mmap lock HOLD milliseconds before it begins.
 *		Then it reads: how many pages and holes were collected.
 *   lock	"PFN": takes a reference to a page, and its lock
 *   unlock	anything: gives back all of these
 *
 * Where a page that is mapped was taken out of its page table and cannot be put back, the
 * kernel finds an entry of a page that is not locked, which is a BUG. As long as the page
 * is locked, it can unmap the entry: so a test can show the damage and clean up.
 */
#include <linux/delay.h>
#include <linux/memory_hotplug.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#define MAX_PAGES	512
#define MAX_LOCKED	64

static DEFINE_MUTEX(locks_lock);	/* protects locked and nr_locked */
static struct page *locked[MAX_LOCKED];
static unsigned int nr_locked;
static unsigned long collected;

#ifdef CONFIG_DEVICE_MIGRATION
static int migrate_range(struct mm_struct *mm, unsigned long start,
			 unsigned long end, unsigned int hold)
{
	unsigned long *pfns;
	struct migrate_vma args = {
		.start = start,
		.end = end,
		.pgmap_owner = THIS_MODULE,
		.flags = MIGRATE_VMA_SELECT_SYSTEM,
	};
	int error;

	pfns = kcalloc(2 * MAX_PAGES, sizeof(*pfns), GFP_KERNEL);
	if (!pfns)
		return -ENOMEM;
	args.src = pfns;
	args.dst = pfns + MAX_PAGES;
	mmap_read_lock(mm);
	msleep(hold);
	args.vma = find_vma(mm, start);
	error = migrate_vma_setup(&args);
	if (!error) {
		collected = args.cpages;
		/* A driver would put its pages into args.dst; this one has none. */
		migrate_vma_pages(&args);
		migrate_vma_finalize(&args);
	}
	mmap_read_unlock(mm);
	kfree(pfns);
	return error;
}
#else
static int migrate_range(struct mm_struct *mm, unsigned long start,
			 unsigned long end, unsigned int hold)
{
	return -EOPNOTSUPP;
}
#endif

static int set_collect(const char *text, const struct kernel_param *parameter)
{
	struct task_struct *task;
	unsigned long start, end;
	struct mm_struct *mm;
	unsigned int hold;
	struct pid *pid;
	int error, id;

	if (sscanf(text, "%d %lx %lx %u", &id, &start, &end, &hold) != 4 ||
	    start >= end || (end - start) >> PAGE_SHIFT > MAX_PAGES)
		return -EINVAL;
	pid = find_get_pid(id);
	task = get_pid_task(pid, PIDTYPE_PID);
	put_pid(pid);
	if (!task)
		return -ESRCH;
	mm = get_task_mm(task);
	put_task_struct(task);
	if (!mm)
		return -ESRCH;
	error = migrate_range(mm, start, end, hold);
	mmput(mm);
	return error;
}

static int get_collect(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%lu\n", collected);
}

static const struct kernel_param_ops collect_ops = {
	.set = set_collect,
	.get = get_collect,
};

module_param_cb(collect, &collect_ops, NULL, 0600);

static int set_lock(const char *text, const struct kernel_param *parameter)
{
	unsigned long pfn;
	struct page *page;
	int error = 0;

	if (kstrtoul(text, 0, &pfn))
		return -EINVAL;
	mutex_lock(&locks_lock);
	page = nr_locked < MAX_LOCKED ? pfn_to_online_page(pfn) : NULL;
	if (!page || !get_page_unless_zero(page)) {
		error = -ENOENT;
	} else if (!trylock_page(page)) {
		put_page(page);
		error = -EBUSY;
	} else {
		locked[nr_locked++] = page;
	}
	mutex_unlock(&locks_lock);
	return error;
}

static int set_unlock(const char *text, const struct kernel_param *parameter)
{
	mutex_lock(&locks_lock);
	while (nr_locked) {
		struct page *page = locked[--nr_locked];

		unlock_page(page);
		put_page(page);
	}
	mutex_unlock(&locks_lock);
	return 0;
}

static const struct kernel_param_ops lock_ops = { .set = set_lock };
static const struct kernel_param_ops unlock_ops = { .set = set_unlock };

module_param_cb(lock, &lock_ops, NULL, 0200);
module_param_cb(unlock, &unlock_ops, NULL, 0200);

static int __init collector_init(void)
{
	return 0;
}

static void __exit collector_exit(void)
{
	set_unlock(NULL, NULL);
}

module_init(collector_init);
module_exit(collector_exit);
MODULE_DESCRIPTION("Migrates memory to a device that does not exist (tests only)");
MODULE_LICENSE("GPL");
