/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STUB_SCHED_SIGNAL_H
#define STUB_SCHED_SIGNAL_H

#include <linux/sched.h>

struct signal_struct {
	struct rw_semaphore exec_update_lock;
};

#endif
