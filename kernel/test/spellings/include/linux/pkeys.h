/* SPDX-License-Identifier: GPL-2.0-only */
#define ARCH_VM_PKEY_FLAGS	0x1000000ul
