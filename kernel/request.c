// SPDX-License-Identifier: GPL-2.0-only
/*
 * Is a request well-formed?
 *
 * Whoever holds the device file may send anything. So before a verb does anything,
 * its request, copied from userspace once, passes one of these pure functions
 * (verb_list.h says which). They look at nothing but the request. The verb itself
 * checks what depends on the domain (does it have that space?).
 *
 * Each returns 0, -EINVAL for a field that is wrong, or -E2BIG for a batch over its
 * bound. The verbs may rely on: bounded batches, aligned addresses of user space,
 * ranges in order, sums and products that do not overflow, and zeros wherever the
 * contract demands zeros. Fields that only carry answers are not checked, except
 * in the entries of a FOLD, of which the contract says "0 in".
 *
 * Addresses are in bytes, strides in pages, hash ranges in lines.
 */
#include "request.h"

static bool aligned(__u64 address)
{
	return !(address & (UKSM_PAGE_SIZE - 1));
}

static bool lines_ordered(__u16 from, __u16 to)
{
	return from <= to && to <= UKSM_PAGE_LINES;
}

static bool range_ordered(__u64 start, __u64 end)
{
	return aligned(start) && aligned(end) && start <= end &&
	       end <= UKSM_USER_END;
}

int uksm_check_configure(const struct uksm_configure *request)
{
	if (request->flags || request->policy & ~UKSM_POLICIES ||
	    request->sharer_limit == 1 ||
	    request->sharer_limit > UKSM_MAX_SHARERS ||
	    request->least_spaces > UKSM_MAX_LEAST_SPACES)
		return -EINVAL;
	return 0;
}

int uksm_check_attach(const struct uksm_attach *request)
{
	return request->flags ? -EINVAL : 0;
}

int uksm_check_detach(const struct uksm_detach *request)
{
	return request->flags ? -EINVAL : 0;
}

int uksm_check_sample(const struct uksm_sample *request)
{
	if (request->flags || request->pad ||
	    !lines_ordered(request->from, request->to))
		return -EINVAL;
	if (request->nr_runs > UKSM_MAX_RUNS ||
	    request->nr_pages > UKSM_MAX_PAGES)
		return -E2BIG;
	return 0;
}

static int check_run(const struct uksm_run *run)
{
	__u64 length;

	if (!run->count || !run->stride || run->pad || !aligned(run->start))
		return -EINVAL;
	if (run->count == 1 && run->stride != 1)
		return -EINVAL;
	if (run->count > UKSM_MAX_PAGES)
		return -EINVAL;
	/* At most 2^14 * 2^32 * 2^12, to which an address can be added. */
	length = (__u64)(run->count - 1) * run->stride * UKSM_PAGE_SIZE;
	if (run->start >= UKSM_USER_END ||
	    run->start + length >= UKSM_USER_END)
		return -EINVAL;
	return 0;
}

/**
 * uksm_check_runs() - check the runs of a SAMPLE
 * @runs: the runs, or some of them
 * @nr_runs: how many, passed by uksm_check_sample()
 * @pages: their counts are added to it; the sum must be the request's nr_pages
 */
int uksm_check_runs(const struct uksm_run *runs, __u32 nr_runs, __u64 *pages)
{
	__u32 i;

	for (i = 0; i < nr_runs; i++) {
		int error = check_run(&runs[i]);

		if (error)
			return error;
		*pages += runs[i].count;
	}
	return 0;
}

int uksm_check_fold(const struct uksm_fold *request)
{
	if (request->flags & ~UKSM_FOLD_FLAGS || request->pad ||
	    request->lines > UKSM_PAGE_LINES)
		return -EINVAL;
	if (request->count > UKSM_MAX_FOLD)
		return -E2BIG;
	return 0;
}

static int check_entry(const struct uksm_fold_entry *entry)
{
	if (!aligned(entry->address) || entry->address >= UKSM_USER_END ||
	    entry->status || entry->reason ||
	    entry->pad[0] || entry->pad[1] || entry->pad[2])
		return -EINVAL;
	switch (entry->kind) {
	case UKSM_KIND_FRAME:
		return entry->frame && !entry->set ? 0 : -EINVAL;
	case UKSM_KIND_SET:
		return !entry->frame && entry->set < UKSM_MAX_FOLD ? 0 : -EINVAL;
	case UKSM_KIND_ZERO:
		return !entry->frame && !entry->set ? 0 : -EINVAL;
	default:
		return -EINVAL;
	}
}

/**
 * uksm_check_entries() - check the entries of a FOLD
 * @entries: the entries
 * @count: how many, passed by uksm_check_fold()
 */
int uksm_check_entries(const struct uksm_fold_entry *entries, __u32 count)
{
	__u32 i;

	for (i = 0; i < count; i++) {
		int error = check_entry(&entries[i]);

		if (error)
			return error;
	}
	return 0;
}

int uksm_check_break(const struct uksm_break *request)
{
	if (request->flags & ~UKSM_BREAK_FLAGS || request->pad ||
	    !range_ordered(request->start, request->end))
		return -EINVAL;
	/* How many others map another domain's frame is that domain's secret. */
	if (request->flags & UKSM_BREAK_FOREIGN &&
	    request->flags & UKSM_BREAK_SINGLE)
		return -EINVAL;
	return 0;
}

int uksm_check_count(const struct uksm_count *request)
{
	if (request->flags || !range_ordered(request->start, request->end))
		return -EINVAL;
	return 0;
}

int uksm_check_frames(const struct uksm_frames *request)
{
	if (request->flags & ~UKSM_FRAMES_FLAGS ||
	    !lines_ordered(request->from, request->to))
		return -EINVAL;
	return request->count > UKSM_MAX_FRAMES ? -E2BIG : 0;
}

int uksm_check_sizes(const struct uksm_sizes *request)
{
	if (request->flags || request->pad)
		return -EINVAL;
	return request->count > UKSM_MAX_SIZES ? -E2BIG : 0;
}

int uksm_check_mappings(const struct uksm_mappings *request)
{
	if (request->flags || request->pad || !request->count ||
	    !aligned(request->start) || request->start > UKSM_USER_END)
		return -EINVAL;
	return request->count > UKSM_MAX_MAPPINGS ? -E2BIG : 0;
}
