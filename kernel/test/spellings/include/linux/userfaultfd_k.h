/* SPDX-License-Identifier: GPL-2.0-only */
#ifdef STUB___VM_UFFD_FLAGS
#define __VM_UFFD_FLAGS		(VM_UFFD_MISSING | VM_UFFD_WP)
#endif
