/* SPDX-License-Identifier: GPL-2.0-only */
#include <linux/types.h>

struct pid *pidfd_get_pid(unsigned int fd, unsigned int *flags);
