// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * Sees processes move between control groups.
 *
 * Problem: no event of the proc connector tells that a process is in another control group now, and to
 * look at each process takes the longer the more there are.
 *
 * Approach: the kernel's tracepoint cgroup_attach_task comes once for each process (or thread) that was moved, when
 * it is where it was moved to; a fork into a control group is told as a fork. The id of its process goes into a ring. A process
 * that waits there is not told again, so that one that is moved over and over takes one place; where there is no room, that
 * is counted, and whoever reads looks at all of them.
 *
 * Threads are told as their process: who reads knows that a process is where its first thread is. Moves in hierarchies of
 * version 1 are told, too, and change nothing.
 *
 * Source: include/trace/events/cgroup.h of the kernel, and cgroup_attach_task() in kernel/cgroup/cgroup.c.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "hint_event.h"

char _license[] SEC("license") = "GPL";

/* Bytes of the ring, and processes that wait in it: a place takes 16 bytes with the kernel's header. */
#define RING (1 << 17)
#define MAX_WAITING (RING / 16)

struct task_struct {
	__s32 tgid;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING);
} moved SEC(".maps");

/* Who waits in the ring. The daemon takes a process out before it looks at it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WAITING);
	__type(key, __u32);
	__type(value, __u8);
} waiting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UKSM_MOVE_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} move_counts SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *sum = bpf_map_lookup_elem(&move_counts, &which);

	if (sum)
		__sync_fetch_and_add(sum, 1);
}

/* Its arguments: the control group, its path, the task, whether all threads were moved. */
SEC("raw_tp/cgroup_attach_task")
int moves(struct bpf_raw_tracepoint_args *context)
{
	struct task_struct *task = (struct task_struct *)context->args[2];
	__u32 pid = BPF_CORE_READ(task, tgid);
	__u8 is_waiting = 1;
	__u32 *place;

	count(UKSM_MOVE_COUNT_MOVES);
	if (bpf_map_lookup_elem(&waiting, &pid))
		return 0;
	place = bpf_ringbuf_reserve(&moved, sizeof(*place), 0);
	if (!place) {
		count(UKSM_MOVE_COUNT_LOST);
		return 0;
	}
	*place = pid;
	/* If the table is full, it is told again. */
	bpf_map_update_elem(&waiting, &pid, &is_waiting, BPF_ANY);
	bpf_ringbuf_submit(place, 0);
	return 0;
}
