// SPDX-License-Identifier: GPL-2.0-only
/*
 * What passes the request checks can be relied on
 *
 * Two approaches. Each rule of the contract has a request that breaks it and
 * nothing else, starting from one that passes. And random requests, mostly near
 * the bounds: of what passes, everything that the verbs rely on is checked by a
 * second, simpler computation.
 */
#include <string.h>

#include "check.h"
#include "request.h"

/* Applies one change to a request that passes, and expects an error. */
#define REJECTS(check, good, change, error)				\
	do {								\
		int (*checked)(const __typeof__(good) *) = check;	\
		__typeof__(good) bad = good;				\
									\
		CHECK(checked(&bad) == 0);				\
		change;							\
		CHECK(checked(&bad) == (error));			\
	} while (0)

static void each_wrong_field_of_a_head_is_rejected(void)
{
	struct uksm_configure configure = { .hash_seed = 1 };
	struct uksm_attach attach = { .pidfd = 3 };
	struct uksm_detach detach = { .space = 1 };
	struct uksm_sample sample = { .to = UKSM_PAGE_LINES };
	struct uksm_fold fold = { .lines = UKSM_PAGE_LINES };
	struct uksm_break brk = { .end = 0x5000 };
	struct uksm_count count = { .end = 0x5000 };
	struct uksm_frames frames = { .to = 1, .flags = UKSM_FRAMES_REAP };
	struct uksm_sizes sizes = { .count = UKSM_MAX_SIZES };
	struct uksm_mappings mappings = {
		.count = UKSM_MAX_MAPPINGS, .start = UKSM_USER_END,
	};

	REJECTS(uksm_check_configure, configure, bad.flags = 1, -EINVAL);
	REJECTS(uksm_check_configure, configure, bad.sharer_limit = 1, -EINVAL);
	REJECTS(uksm_check_configure, configure,
		bad.sharer_limit = UKSM_MAX_SHARERS + 1, -EINVAL);
	REJECTS(uksm_check_attach, attach, bad.flags = 1u << 31, -EINVAL);
	REJECTS(uksm_check_detach, detach, bad.flags = 1, -EINVAL);
	REJECTS(uksm_check_sample, sample, bad.flags = 1, -EINVAL);
	REJECTS(uksm_check_sample, sample, bad.pad = 1, -EINVAL);
	REJECTS(uksm_check_sample, sample, bad.to = 65, -EINVAL);
	REJECTS(uksm_check_sample, sample, (bad.from = 2, bad.to = 1), -EINVAL);
	REJECTS(uksm_check_sample, sample, bad.nr_runs = UKSM_MAX_RUNS + 1, -E2BIG);
	REJECTS(uksm_check_sample, sample, bad.nr_pages = UKSM_MAX_PAGES + 1, -E2BIG);
	REJECTS(uksm_check_fold, fold, bad.flags = UKSM_FOLD_FLAGS + 1, -EINVAL);
	REJECTS(uksm_check_fold, fold, bad.pad = 1, -EINVAL);
	REJECTS(uksm_check_fold, fold, bad.lines = 65, -EINVAL);
	REJECTS(uksm_check_fold, fold, bad.count = UKSM_MAX_FOLD + 1, -E2BIG);
	REJECTS(uksm_check_break, brk, bad.flags = UKSM_BREAK_FLAGS + 1,
		-EINVAL);
	REJECTS(uksm_check_break, brk,
		bad.flags = UKSM_BREAK_FOREIGN | UKSM_BREAK_SINGLE, -EINVAL);
	REJECTS(uksm_check_break, brk, bad.pad = 1, -EINVAL);
	REJECTS(uksm_check_break, brk, bad.start = 1, -EINVAL);
	REJECTS(uksm_check_break, brk, bad.end = 0x4fff, -EINVAL);
	REJECTS(uksm_check_break, brk, bad.start = 0x6000, -EINVAL);
	REJECTS(uksm_check_break, brk, bad.end = UKSM_USER_END + 0x1000,
		-EINVAL);
	REJECTS(uksm_check_count, count, bad.flags = 1, -EINVAL);
	REJECTS(uksm_check_count, count, bad.start = 0x800, -EINVAL);
	REJECTS(uksm_check_count, count, bad.end = 0x4001, -EINVAL);
	REJECTS(uksm_check_count, count, bad.start = 0x6000, -EINVAL);
	REJECTS(uksm_check_count, count, bad.end = -0x1000ull, -EINVAL);
	REJECTS(uksm_check_frames, frames, bad.flags = UKSM_FRAMES_FLAGS + 1,
		-EINVAL);
	REJECTS(uksm_check_frames, frames, bad.to = 65, -EINVAL);
	REJECTS(uksm_check_frames, frames, bad.from = 2, -EINVAL);
	REJECTS(uksm_check_frames, frames, bad.count = UKSM_MAX_FRAMES + 1, -E2BIG);
	REJECTS(uksm_check_sizes, sizes, bad.flags = 1, -EINVAL);
	REJECTS(uksm_check_sizes, sizes, bad.pad = 1, -EINVAL);
	REJECTS(uksm_check_sizes, sizes, bad.count = UKSM_MAX_SIZES + 1, -E2BIG);
	REJECTS(uksm_check_mappings, mappings, bad.flags = 1, -EINVAL);
	REJECTS(uksm_check_mappings, mappings, bad.pad = 1, -EINVAL);
	REJECTS(uksm_check_mappings, mappings, bad.count = 0, -EINVAL);
	REJECTS(uksm_check_mappings, mappings, bad.count = UKSM_MAX_MAPPINGS + 1,
		-E2BIG);
	REJECTS(uksm_check_mappings, mappings, bad.start = 0x1800, -EINVAL);
	REJECTS(uksm_check_mappings, mappings,
		bad.start = UKSM_USER_END + 0x1000, -EINVAL);
	REJECTS(uksm_check_mappings, mappings, bad.start = -0x1000ull, -EINVAL);
}

/* As SAMPLE checks them. */
static int check_runs(const struct uksm_run *runs, __u32 nr_runs,
		      __u32 nr_pages)
{
	__u64 pages = 0;
	int error = uksm_check_runs(runs, nr_runs, &pages);

	return error ? error : pages == nr_pages ? 0 : -EINVAL;
}

static int check_one_run(const struct uksm_run *run)
{
	return check_runs(run, 1, run->count);
}

static int check_one_entry(const struct uksm_fold_entry *entry)
{
	return uksm_check_entries(entry, 1);
}

static void each_wrong_field_of_a_run_is_rejected(void)
{
	struct uksm_run run = { .start = 0x1000, .count = 2, .stride = 1 };
	struct uksm_run two[2] = { run, run };
	struct uksm_run last = {
		.start = UKSM_USER_END - 0x2000, .count = 2, .stride = 1,
	};

	REJECTS(check_one_run, run, bad.count = 0, -EINVAL);
	REJECTS(check_one_run, run, bad.stride = 0, -EINVAL);
	REJECTS(check_one_run, run, bad.pad = 1, -EINVAL);
	REJECTS(check_one_run, run, bad.start = 0x1800, -EINVAL);
	REJECTS(check_one_run, run, (bad.count = 1, bad.stride = 2), -EINVAL);
	REJECTS(check_one_run, last, bad.stride = 2, -EINVAL);
	REJECTS(check_one_run, last, bad.count = 3, -EINVAL);
	REJECTS(check_one_run, run, bad.start = UKSM_USER_END, -EINVAL);
	REJECTS(check_one_run, run, bad.start = -0x2000ull, -EINVAL);
	CHECK(check_runs(two, 2, 4) == 0);
	CHECK(check_runs(two, 2, 3) == -EINVAL);
	CHECK(check_runs(two, 2, 5) == -EINVAL);
	/* Counts that add up to the number of pages modulo 2^32. */
	two[0].count = 1u << 31;
	two[1].count = 1u << 31;
	CHECK(check_runs(two, 2, 0) == -EINVAL);
	CHECK(check_runs(NULL, 0, 0) == 0);
	CHECK(check_runs(NULL, 0, 1) == -EINVAL);
}

static void each_wrong_field_of_an_entry_is_rejected(void)
{
	struct uksm_fold_entry frame = {
		.address = 0x1000, .kind = UKSM_KIND_FRAME, .frame = 7,
	};
	struct uksm_fold_entry set = {
		.address = 0x1000, .kind = UKSM_KIND_SET,
		.set = UKSM_MAX_FOLD - 1,
	};
	struct uksm_fold_entry zero = {
		.address = 0x1000, .kind = UKSM_KIND_ZERO,
	};

	REJECTS(check_one_entry, frame, bad.frame = 0, -EINVAL);
	REJECTS(check_one_entry, frame, bad.set = 1, -EINVAL);
	REJECTS(check_one_entry, frame, bad.kind = 3, -EINVAL);
	REJECTS(check_one_entry, frame, bad.status = 1, -EINVAL);
	REJECTS(check_one_entry, frame, bad.reason = 1, -EINVAL);
	REJECTS(check_one_entry, frame, bad.address = 0x1008, -EINVAL);
	REJECTS(check_one_entry, frame, bad.address = UKSM_USER_END, -EINVAL);
	REJECTS(check_one_entry, frame, bad.address = -0x1000ull, -EINVAL);
	REJECTS(check_one_entry, frame, bad.pad[0] = 1, -EINVAL);
	REJECTS(check_one_entry, frame, bad.pad[1] = 1, -EINVAL);
	REJECTS(check_one_entry, frame, bad.pad[2] = 1, -EINVAL);
	REJECTS(check_one_entry, set, bad.set = UKSM_MAX_FOLD, -EINVAL);
	REJECTS(check_one_entry, set, bad.frame = 1, -EINVAL);
	REJECTS(check_one_entry, zero, bad.set = 1, -EINVAL);
	REJECTS(check_one_entry, zero, bad.frame = 1, -EINVAL);
}

static __u64 state;

/* A number near one of the places where something changes. */
static __u64 near_bounds(void)
{
	static const __u64 places[] = {
		0, 1, 2, 64, 512, 4096, 16384, 1ull << 31, 1ull << 32,
		1ull << 47, 1ull << 63, -4096ull, -1ull,
	};
	__u64 choice = splitmix64(&state);
	__u64 place = places[choice % (sizeof(places) / sizeof(*places))];

	switch (choice >> 32 & 7) {
	case 0:
		return splitmix64(&state);
	case 1:
		return place + 1;
	case 2:
		return place - 1;
	case 3:
		return place * UKSM_PAGE_SIZE;
	default:
		return place;
	}
}

static void fill_near_bounds(void *request, size_t size)
{
	unsigned char *to = request;
	size_t i;

	for (i = 0; i < size; i += 4) {
		__u32 word = near_bounds();

		/* Most requests have mostly zeros, or none would pass. */
		if (splitmix64(&state) % 4)
			word = 0;
		memcpy(to + i, &word, 4);
	}
}

static unsigned long fuzz_runs(void)
{
	struct uksm_run runs[4];
	__uint128_t sum = 0;
	__u32 n = splitmix64(&state) % 5, pages, i;

	fill_near_bounds(runs, sizeof(runs));
	for (i = 0; i < n; i++) {
		runs[i].start = near_bounds() & -(__u64)UKSM_PAGE_SIZE;
		runs[i].count = near_bounds() % (2 * UKSM_MAX_PAGES);
		runs[i].stride = runs[i].count == 1 ? 1 : near_bounds();
		sum += runs[i].count;
	}
	pages = splitmix64(&state) % 8 ? (__u32)sum : near_bounds();
	if (check_runs(runs, n, pages))
		return 0;
	CHECK(sum == pages);
	for (i = 0; i < n; i++) {
		__uint128_t last = runs[i].start + (__uint128_t)
			(runs[i].count - 1) * runs[i].stride * UKSM_PAGE_SIZE;

		CHECK(last < UKSM_USER_END);
		CHECK(runs[i].count && runs[i].stride && !runs[i].pad);
		CHECK(runs[i].start % UKSM_PAGE_SIZE == 0);
	}
	return 1;
}

static unsigned long fuzz_entry(void)
{
	struct uksm_fold_entry entry;

	fill_near_bounds(&entry, sizeof(entry));
	entry.address &= -(__u64)UKSM_PAGE_SIZE;
	if (uksm_check_entries(&entry, 1))
		return 0;
	CHECK(entry.kind <= UKSM_KIND_ZERO && entry.set < UKSM_MAX_FOLD);
	CHECK(entry.address < UKSM_USER_END);
	CHECK(entry.kind == UKSM_KIND_SET || !entry.set);
	CHECK((entry.kind == UKSM_KIND_FRAME) == !!entry.frame);
	CHECK(!entry.status && !entry.reason);
	return 1;
}

static unsigned long fuzz_heads(void)
{
	union {
		struct uksm_configure configure;
		struct uksm_attach attach;
		struct uksm_detach detach;
		struct uksm_sample sample;
		struct uksm_fold fold;
		struct uksm_break brk;
		struct uksm_count count;
		struct uksm_frames frames;
		struct uksm_sizes sizes;
		struct uksm_mappings mappings;
	} r;
	unsigned long passed = 0;

	fill_near_bounds(&r, sizeof(r));
	if (!uksm_check_sample(&r.sample)) {
		CHECK(r.sample.nr_runs <= UKSM_MAX_RUNS);
		CHECK(r.sample.nr_pages <= UKSM_MAX_PAGES);
		CHECK(r.sample.from <= r.sample.to && r.sample.to <= 64);
		passed++;
	}
	if (!uksm_check_fold(&r.fold)) {
		CHECK(r.fold.count <= UKSM_MAX_FOLD && r.fold.lines <= 64);
		CHECK(!(r.fold.flags & ~UKSM_FOLD_FLAGS));
		passed++;
	}
	if (!uksm_check_break(&r.brk)) {
		CHECK(r.brk.start <= r.brk.end &&
		      !(r.brk.flags & ~UKSM_BREAK_FLAGS));
		CHECK(r.brk.end <= UKSM_USER_END);
		CHECK((r.brk.start | r.brk.end) % UKSM_PAGE_SIZE == 0);
		passed++;
	}
	if (!uksm_check_count(&r.count)) {
		CHECK(r.count.start <= r.count.end && !r.count.flags);
		CHECK(r.count.end <= UKSM_USER_END);
		CHECK((r.count.start | r.count.end) % UKSM_PAGE_SIZE == 0);
		passed++;
	}
	if (!uksm_check_frames(&r.frames)) {
		CHECK(r.frames.count <= UKSM_MAX_FRAMES);
		CHECK(r.frames.from <= r.frames.to && r.frames.to <= 64);
		passed++;
	}
	if (!uksm_check_sizes(&r.sizes)) {
		CHECK(r.sizes.count <= UKSM_MAX_SIZES);
		CHECK(!r.sizes.flags && !r.sizes.pad);
		passed++;
	}
	if (!uksm_check_mappings(&r.mappings)) {
		CHECK(r.mappings.count - 1 < UKSM_MAX_MAPPINGS);
		CHECK(!r.mappings.flags && !r.mappings.pad);
		CHECK(r.mappings.start <= UKSM_USER_END);
		CHECK(r.mappings.start % UKSM_PAGE_SIZE == 0);
		passed++;
	}
	passed += !uksm_check_configure(&r.configure);
	passed += !uksm_check_attach(&r.attach);
	passed += !uksm_check_detach(&r.detach);
	return passed;
}

static void what_passes_can_be_relied_on(unsigned long calls)
{
	unsigned long heads = 0, runs = 0, entries = 0, i;

	state = seed;
	for (i = 0; i < calls; i++) {
		heads += fuzz_heads();
		runs += fuzz_runs();
		entries += fuzz_entry();
	}
	printf("requests: of %lu rounds (seed %llu) passed: %lu heads, %lu runs, %lu entries\n",
	       calls, (unsigned long long)seed, heads, runs, entries);
	/* A fuzzer whose requests never pass has checked nothing. */
	CHECK(heads > calls / 10 && runs > calls / 100 && entries > calls / 100);
}

void test_requests(unsigned long fuzz_calls)
{
	each_wrong_field_of_a_head_is_rejected();
	each_wrong_field_of_a_run_is_rejected();
	each_wrong_field_of_an_entry_is_rejected();
	what_passes_can_be_relied_on(fuzz_calls);
}
