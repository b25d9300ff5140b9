/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * tried_kernels.h - the kernels on which the module's tests passed, and the marks of vendors
 *
 * When uksm.ko is loaded, it compares the running kernel with this list. It refuses a
 * kernel that is not in the list, unless untested=1 is given. The daemon and
 * "uksm doctor" read the same rows as text, so that both sides have one list. Hence a
 * row is one line, and each argument is a string or the name of an option.
 *
 *   UKSM_TRIED_KERNEL(vendor, series, flavours)
 *	The tests passed on kernels of this vendor, series and flavour. The flavour of
 *	a kernel begins in its release behind the first '-' that is followed by a letter.
 *   UKSM_VENDOR_OPTION(vendor, option)
 *	A kernel that was built with this option is of this vendor.
 *   UKSM_VENDOR_RELEASE(vendor, mark)
 *	A kernel whose release ("uname -r") contains the mark is of this vendor.
 *   UKSM_VENDOR_VERSION(vendor, mark)
 *	A kernel whose version ("uname -v") contains the mark is of this vendor.
 *
 * Options decide first, then releases, then versions; among each, the first row that
 * fits. The vendor is compared because the number of a kernel is not enough: the 6.12.0
 * of RHEL 10 has the memory management of later kernels.
 *
 * Each inclusion of this file uses some of the rows: it defines their macros first, and
 * the others are empty. Hence there is no include guard.
 */
#ifndef UKSM_TRIED_KERNEL
#define UKSM_TRIED_KERNEL(...)
#endif
#ifndef UKSM_VENDOR_OPTION
#define UKSM_VENDOR_OPTION(...)
#endif
#ifndef UKSM_VENDOR_RELEASE
#define UKSM_VENDOR_RELEASE(...)
#endif
#ifndef UKSM_VENDOR_VERSION
#define UKSM_VENDOR_VERSION(...)
#endif

/*
 * Tests run on cloud-amd64 and rt-amd64. The flavour amd64 is built from the same source,
 * with more drivers.
 */
UKSM_TRIED_KERNEL("Debian", "6.1", "amd64, cloud-amd64, rt-amd64")
UKSM_TRIED_KERNEL("Debian", "6.12", "amd64, cloud-amd64, rt-amd64")
UKSM_TRIED_KERNEL("Debian", "7.2", "amd64, cloud-amd64")
UKSM_TRIED_KERNEL("Debian", "7.3", "amd64, cloud-amd64, rt-amd64")

UKSM_VENDOR_OPTION("SUSE", CONFIG_SUSE_KERNEL)
UKSM_VENDOR_OPTION("Android", CONFIG_ANDROID_VENDOR_HOOKS)

UKSM_VENDOR_RELEASE("Proxmox", "-pve")
UKSM_VENDOR_RELEASE("Oracle", "uek")
UKSM_VENDOR_RELEASE("ELRepo", ".elrepo")
UKSM_VENDOR_RELEASE("Red Hat", ".el")
UKSM_VENDOR_RELEASE("Fedora", ".fc")
UKSM_VENDOR_RELEASE("Amazon", ".amzn")
UKSM_VENDOR_RELEASE("Android", "-android")
UKSM_VENDOR_RELEASE("Arch Linux", "-arch")
UKSM_VENDOR_RELEASE("Manjaro", "-MANJARO")
UKSM_VENDOR_RELEASE("CachyOS", "-cachyos")
UKSM_VENDOR_RELEASE("Talos", "-talos")
UKSM_VENDOR_RELEASE("Flatcar", "-flatcar")

UKSM_VENDOR_VERSION("Ubuntu", "-Ubuntu ")
UKSM_VENDOR_VERSION("Proxmox", " PMX ")
UKSM_VENDOR_VERSION("Debian", " Debian ")

#undef UKSM_TRIED_KERNEL
#undef UKSM_VENDOR_OPTION
#undef UKSM_VENDOR_RELEASE
#undef UKSM_VENDOR_VERSION
