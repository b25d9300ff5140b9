// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * Reports moves of processes between control groups.
 *
 * Problem: no event of the proc connector reports a move, and checking every process takes time in
 * proportion to their number.
 *
 * Approach: the kernel's tracepoint cgroup_attach_task runs once for each moved process or thread,
 * after the move; a fork into a control group is reported as a fork only. The process id is written
 * into a ring. A process that waits in the ring is not written again, so that a process
 * that is moved repeatedly takes one entry. Moves that find the ring full are counted, and the
 * reader then checks all processes.
 *
 * A thread is reported by its process's id: the reader takes the first thread's control group for
 * the process's. Moves in version 1 hierarchies are reported as well, and change nothing.
 *
 * Source: include/trace/events/cgroup.h of the kernel, and cgroup_attach_task() in
 * kernel/cgroup/cgroup.c.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "hint_event.h"

char _license[] SEC("license") = "GPL";

/* Bytes of the ring, and its maximum of processes: 16 bytes each, with the kernel's header. */
#define RING (1 << 17)
#define MAX_WAITING (RING / 16)

struct task_struct {
	__s32 tgid;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING);
} moved SEC(".maps");

/* Processes that wait in the ring. The daemon removes a process before it checks it. */
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

/* Arguments: the control group, its path, the task, whether all threads were moved. */
SEC("raw_tp/cgroup_attach_task")
int moves(struct bpf_raw_tracepoint_args *context)
{
	struct task_struct *task = (struct task_struct *)context->args[2];
	__u32 pid = BPF_CORE_READ(task, tgid);
	__u8 is_waiting = 1;
	__u32 *record;

	count(UKSM_MOVE_COUNT_MOVES);
	if (bpf_map_lookup_elem(&waiting, &pid))
		return 0;
	record = bpf_ringbuf_reserve(&moved, sizeof(*record), 0);
	if (!record) {
		count(UKSM_MOVE_COUNT_LOST);
		return 0;
	}
	*record = pid;
	/* If the table is full, further moves of the process are reported again. */
	bpf_map_update_elem(&waiting, &pid, &is_waiting, BPF_ANY);
	bpf_ringbuf_submit(record, 0);
	return 0;
}
