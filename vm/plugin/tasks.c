// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose the instructions of a turn are.
 *
 * Problem: the kernel works for whoever has the processor, and its code does not
 * tell for whom.
 * Approach: each task has turns; a turn's instructions belong to one owner. It is
 * the program of whose code most was executed in this turn; or, in a turn without
 * any, of the task's last turn that had some. A task that has only been in the
 * kernel so far, such as a kernel thread, is an owner itself.
 * Limits: the turn in which a task starts another program goes to one of the two.
 * What a task did before its first turn in a program stays with the task. An
 * interrupt belongs to whom it interrupts.
 */
#include <string.h>

#include "caches.h"
#include "counts.h"
#include "tasks.h"

/* Tasks that are known one by one; all others are one. A power of two. */
#define TASKS (1u << 14)

/* Owners: programs, code of no known program, and tasks of the kernel. */
enum { OWNER_USER = PLACE_USER, OWNER_TASK };

#define NOBODY MAX_OWNERS

struct task {
	uint64_t name;
	unsigned int owner;
	bool known;
};

static struct task tasks[TASKS];
static struct task others = { .owner = NOBODY };
static struct task *current = &others;
static unsigned int known;
static unsigned int owners = OWNER_TASK;

static struct task *find(uint64_t name)
{
	uint32_t at = (uint32_t)((name * 0x9e3779b97f4a7c15ull) >> 50);

	for (;; at = (at + 1) % TASKS) {
		struct task *task = &tasks[at];

		if (task->known && task->name == name)
			return task;
		if (task->known)
			continue;
		if (known == TASKS / 4 * 3)
			return &others;
		known++;
		*task = (struct task){ name, NOBODY, true };
		return task;
	}
}

void tasks_cut(void)
{
	uint64_t sums[PLACES];
	unsigned int place, most = 0;

	counts_waiting(sums);
	for (place = 1; place <= PLACE_USER; place++) {
		if (sums[place] > sums[most])
			most = place;
	}
	if (sums[most])
		current->owner = most;
	else if (current->owner == NOBODY)
		current->owner = owners < MAX_OWNERS ? owners++ :
						       MAX_OWNERS - 1;
	counts_give(current->owner);
	caches_give(current->owner);
}

void tasks_switched(uint64_t task)
{
	tasks_cut();
	caches_switched(task);
	current = find(task);
}

void tasks_forget(void)
{
	uint64_t name = current->name;
	bool is_one = current != &others;

	memset(tasks, 0, sizeof(tasks));
	known = 0;
	others.owner = NOBODY;
	owners = OWNER_TASK;
	current = is_one ? find(name) : &others;
}

void tasks_write(FILE *file)
{
	unsigned int owner;

	for (owner = 0; owner < owners; owner++) {
		if (owner < OWNER_USER)
			fprintf(file, "owner %u %u\n", owner, owner);
		else
			fprintf(file, "owner %u %s\n", owner,
				owner == OWNER_USER ? "user" : "kernel");
	}
}
