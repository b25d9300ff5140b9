/* SPDX-License-Identifier: GPL-2.0-only */
#include <linux/sched.h>

struct task_exec_state {
	struct user_namespace *user_ns;
};
