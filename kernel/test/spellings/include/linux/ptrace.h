/* SPDX-License-Identifier: GPL-2.0-only */
#include <linux/types.h>

bool ptrace_may_access(struct task_struct *task, unsigned int mode);
