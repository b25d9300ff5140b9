// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device, and the way from a call to its verb
 *
 * Daemons that do not trust each other, and that may be killed at any time, merge
 * pages on one machine. So what belongs together is a domain, which lives exactly
 * as long as an open file of /dev/uksm does (domain.c).
 *
 * A caller needs CAP_SYS_ADMIN to open the device. Each ATTACH checks again what may
 * be attached. A file can thus be sealed and handed to a program that could not
 * have opened it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/uaccess.h>

#include "compare.h"
#include "domain.h"
#include "frame.h"
#include "guard.h"
#include "request.h"
#include "running_kernel.h"
#include "shrinker.h"
#include "space.h"
#include "symbols.h"
#include "verbs.h"

/* A request and its answer: each verb has one struct for both. */
union request {
#define UKSM_VERB(NAME, type, ...) struct { type NAME; }
#define UKSM_PLAIN_VERB UKSM_VERB
#include "verb_list.h"
#undef UKSM_VERB
#undef UKSM_PLAIN_VERB
};

static bool is_known(unsigned int command)
{
	switch (command) {
#define UKSM_VERB(NAME, ...) case UKSM_IOC_##NAME: return true
#define UKSM_PLAIN_VERB UKSM_VERB
#include "verb_list.h"
#undef UKSM_VERB
#undef UKSM_PLAIN_VERB
	default:
		return false;
	}
}

static long dispatch(struct uksm_domain *domain, unsigned int command,
		     void *request)
{
	switch (command) {
#define UKSM_VERB(NAME, type, check, verb)				\
	case UKSM_IOC_##NAME:						\
		return check(request) ?: verb(domain, request)
#define UKSM_PLAIN_VERB(NAME, type, verb)				\
	case UKSM_IOC_##NAME:						\
		return verb(domain, request)
#include "verb_list.h"
#undef UKSM_VERB
#undef UKSM_PLAIN_VERB
	default:
		return -ENOTTY;
	}
}

/*
 * A command holds the size and direction of its struct, so what is known also fits.
 * An answer is copied out only by a call that succeeds.
 */
static long uksm_ioctl(struct file *file, unsigned int command,
		       unsigned long arg)
{
	void __user *user = (void __user *)arg;
	union request request = {};
	long result;

	if (!is_known(command))
		return -ENOTTY;
	if (_IOC_DIR(command) & _IOC_WRITE &&
	    copy_from_user(&request, user, _IOC_SIZE(command)))
		return -EFAULT;
	result = dispatch(file->private_data, command, &request);
	if (!result && _IOC_DIR(command) & _IOC_READ &&
	    copy_to_user(user, &request, _IOC_SIZE(command)))
		return -EFAULT;
	return result;
}

static int uksm_open(struct inode *inode, struct file *file)
{
	struct uksm_domain *domain;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	domain = uksm_create_domain();
	if (!domain)
		return -ENOMEM;
	file->private_data = domain;
	return nonseekable_open(inode, file);
}

/* The last copy of the file is gone, so no call is under way. */
static int uksm_release(struct inode *inode, struct file *file)
{
	struct uksm_domain *domain = file->private_data;

	uksm_detach_all(domain);
	/* Before frames go: reclaim must not remove frames at the same time. */
	uksm_unlist_domain(domain);
	uksm_release_frames(domain);
	uksm_free_domain(domain);
	return 0;
}

static const struct file_operations uksm_operations = {
	.owner = THIS_MODULE,
	.open = uksm_open,
	.release = uksm_release,
	.unlocked_ioctl = uksm_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "uksm",
	.fops = &uksm_operations,
	.mode = 0600,
};

#ifdef UKSM_TEST
static uint guard_interface = UKSM_GUARD_INTERFACE;
module_param(guard_interface, uint, 0);
MODULE_PARM_DESC(guard_interface, "what to ask of the guard (test builds only)");
#else
#define guard_interface	UKSM_GUARD_INTERFACE
#endif

/*
 * Asks the guard for the first time, with which it begins its work. It may be loaded since
 * before this module was updated. One that does not work now only forbids frames.
 */
static int start_guard(void)
{
	int error = uksm_guard_check(guard_interface);

	if (error == -EPROTO)
		pr_err("the uksm_guard that is loaded is older than this module and stays until the next boot: reboot to use this module\n");
	return error == -EPROTO || error == -ENODEV ? error : 0;
}

static int __init uksm_init(void)
{
	int error;

	error = uksm_check_kernel() ?: uksm_check_tried() ?:
		uksm_find_symbols() ?: start_guard();
	if (error)
		return error;
	uksm_choose_vectors(uksm_has_wide_vectors());
	error = uksm_shrinker_init();
	if (error)
		return error;
	error = misc_register(&device);
	if (error)
		uksm_shrinker_exit();
	return error;
}

/* Open files hold the module, so there is no domain, space or frame left. */
static void __exit uksm_exit(void)
{
	misc_deregister(&device);
	uksm_shrinker_exit();
}

module_init(uksm_init);
module_exit(uksm_exit);
MODULE_DESCRIPTION("Merges equal memory pages as a program in user space suggests");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
