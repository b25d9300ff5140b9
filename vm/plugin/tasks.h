/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TASKS_H
#define TASKS_H

#include <stdint.h>
#include <stdio.h>

/* Another task has the processor. Its name is any number that no other has. */
void tasks_switched(uint64_t task);

/* The turn of the task that has the processor ends here, and another begins. */
void tasks_cut(void);

/* Forgets what is known of all tasks, except which has the processor. */
void tasks_forget(void);

/* Writes who the owners are: "owner OWNER PROGRAM|user|kernel". */
void tasks_write(FILE *file);

#endif
