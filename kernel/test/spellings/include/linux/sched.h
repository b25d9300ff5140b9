/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_SCHED_H
#define STUB_SCHED_H

#include <linux/types.h>

struct task_struct {
	int pid;
	struct reclaim_state *reclaim_state;
/* SPELLING UKSM_HAS_EXEC_STATE */
	struct task_exec_state __rcu *exec_state;
/* END */
};

extern struct task_struct *current;

#endif
