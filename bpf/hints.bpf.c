// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * Reports memory of followed processes that reads filled or writes took their data from (XLH
 * section 4.1), and growth of such processes.
 *
 * Problem: a read can be requested by read, pread64, readv, preadv2, libaio or io_uring, by the
 * process itself or by a worker thread of the kernel. Watching system calls would need a program
 * for each of them, and while one is watched, every system call of every process is slower.
 *
 * Approach: all requests pass the functions in which the page cache copies to the caller,
 * filemap_read and generic_perform_write (iomap_file_buffered_write on xfs), and those in which a
 * direct request takes the caller's pages, bio_iov_iter_get_pages. A program at the end of each
 * reads the iterator as the function left it: the touched memory ends there, so the segments are
 * walked backwards. Kernel workers of io_uring run as the process, so the current process id is
 * right in all cases. A call of an unfollowed process costs one lookup.
 *
 * Not reported: requests with memory named by pages (splice, registered buffers of io_uring, whose
 * pages are pinned and cannot be merged), vhost and network; file systems with their own reads
 * (btrfs writes, fuse without page cache).
 *
 * A process with very much I/O must not fill the ring for all others. The waiting hints of each
 * process are limited to a part of the free space, as a switch divides its memory among queues
 * (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet switches, 1998).
 * The spaces that lost hints are reported.
 *
 * A direct request is reported before its data arrive, and without its file.
 *
 * Growth could be measured at each page fault, which would make faults of all processes slower by a
 * tenth. Instead it is measured when a fault allocates a page table: once in 2 MiB that were not
 * mapped before, also for huge pages, get_user_pages and the processor of a guest. The growth is
 * the number of anonymous pages beyond those of the last record. Memory that is filled again in
 * place needs no page table, and is not reported.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "hint_event.h"

char _license[] SEC("license") = "GPL";

/* Fewer bytes fill no page, and are not reported. */
#define MIN_BYTES 1024
/* Maximum number of segments of a request: UIO_MAXIOV of the kernel. */
#define MAX_SEGMENTS 1024
/* One run of TIMED is timed, chosen at random so that no pattern of calls is missed. */
#define TIMED 64
/* Bytes of the ring, and of a hint in it with the kernel's header. */
#define RING (1 << 20)
#define HINT_BYTES (sizeof(struct uksm_hint) + 8)
/* The waiting hints of a process take at most this multiple of the free space. */
#define PART_OF_FREE 2
/* Minimum growth that is reported, and minimum time in ns between two records of a process. */
#define GROWN_PAGES 256
#define GROWN_ONCE_IN 1000000000ULL
#define PAGE_BYTES 4096
/* MM_ANONPAGES of the kernel. */
#define ANON_PAGES 1
/* Bits of bi_opf with the operation; REQ_OP_READ is 0. */
#define OP_MASK 0xff

typedef __u64 address_t;

/* The fields in use of the kernel's structures; their offsets are resolved at load. */
struct iovec {
	void *iov_base;
	__u64 iov_len;
} __attribute__((preserve_access_index));

struct iov_iter {
	__u8 iter_type;
	__u64 iov_offset;
	void *ubuf;
	const struct iovec *__iov;
} __attribute__((preserve_access_index));

/* Before 6.4. */
struct iov_iter___before {
	const struct iovec *iov;
} __attribute__((preserve_access_index));

enum iter_type {
	ITER_UBUF = 100,
	ITER_IOVEC = 101,
};

struct inode {
	__s64 i_size;
} __attribute__((preserve_access_index));

struct address_space {
	struct inode *host;
} __attribute__((preserve_access_index));

struct file {
	struct address_space *f_mapping;
} __attribute__((preserve_access_index));

struct kiocb {
	struct file *ki_filp;
	__s64 ki_pos;
} __attribute__((preserve_access_index));

struct bvec_iter {
	__u32 bi_size;
} __attribute__((preserve_access_index));

struct bio {
	__u32 bi_opf;
	struct bvec_iter bi_iter;
} __attribute__((preserve_access_index));

struct percpu_counter {
	__s64 count;
} __attribute__((preserve_access_index));

struct mm_struct {
	struct percpu_counter rss_stat[ANON_PAGES + 1];
} __attribute__((preserve_access_index));

/* Before 6.2. */
typedef struct {
	__s64 counter;
} __attribute__((preserve_access_index)) atomic64_t;

struct mm_rss_stat {
	atomic64_t count[ANON_PAGES + 1];
} __attribute__((preserve_access_index));

struct mm_struct___before {
	struct mm_rss_stat rss_stat;
} __attribute__((preserve_access_index));

struct task_struct {
	struct mm_struct *mm;
} __attribute__((preserve_access_index));

/* The followed processes, by process id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct uksm_follower);
} followed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING);
} hints SEC(".maps");

/* Number of the daemon's reads of hints. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} turn SEC(".maps");

/* Spaces that lost hints, until the daemon removes them. Further spaces are not reported. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, UKSM_HINT_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void add(__u32 which, __u64 number)
{
	__u64 *sum = bpf_map_lookup_elem(&counts, &which);

	if (sum)
		*sum += number;
}

static __always_inline void count(__u32 which)
{
	add(which, 1);
}

/* The start time of a timed run; 0 for a run that is not timed. */
static __always_inline __u64 begin(void)
{
	return bpf_get_prandom_u32() % TIMED ? 0 : bpf_ktime_get_ns();
}

/* The end of a run. A timed run also stands for those that are not timed. */
static __always_inline void end(__u64 begun)
{
	if (begun)
		add(UKSM_HINT_COUNT_NANOSECONDS, (bpf_ktime_get_ns() - begun) * TIMED);
}

/* Bytes of a file, by their end. A size of 0 means that there is no file. */
struct place {
	__u64 file_size;
	__u64 end;
};

/* Whether one more hint of this process leaves room for those of others. */
static __always_inline int has_room(struct uksm_follower *of)
{
	__u32 zero = 0;
	__u32 *now = bpf_map_lookup_elem(&turn, &zero);
	__u64 waiting = bpf_ringbuf_query(&hints, BPF_RB_AVAIL_DATA);

	/* Earlier hints have been read. Two threads may do this at once, and count one too few. */
	if (now && of->turn != *now) {
		of->turn = *now;
		of->sent = 0;
		of->lost = 0;
	}
	return waiting < RING && of->sent * HINT_BYTES < PART_OF_FREE * (RING - waiting);
}

static __always_inline void lose(struct uksm_follower *of)
{
	__u32 space = of->space;

	count(UKSM_HINT_COUNT_LOST);
	if (of->lost)
		return;
	of->lost = 1;
	bpf_map_update_elem(&lost, &space, &space, BPF_ANY);
}

static __always_inline void send(struct uksm_follower *of, __u32 source, address_t start,
				 __u64 length, struct place place)
{
	struct uksm_hint *hint;

	if (length < MIN_BYTES)
		return;
	hint = has_room(of) ? bpf_ringbuf_reserve(&hints, sizeof(*hint), 0) : NULL;
	if (!hint) {
		lose(of);
		return;
	}
	of->sent++;
	hint->start = start;
	hint->length = length;
	hint->file_size = place.file_size;
	hint->offset = place.end - length;
	hint->space = of->space;
	hint->source = source;
	bpf_ringbuf_submit(hint, 0);
}

/*
 * Zero, but unknown to the verifier. Before 6.7 the verifier simulates the function that bpf_loop()
 * calls only once, and removes the code that this one call does not reach. So a walk starts with
 * values unknown to the verifier.
 */
__u64 nothing;

/* A walk over the segments of a request, backwards from the position of its iterator. */
struct walk {
	const struct iovec *at; /* the last segment read, or the one behind all */
	__u64 offset;           /* touched bytes of it; 0: the previous one is touched as a whole */
	__u64 done;             /* touched bytes that remain */
	address_t start;        /* memory that is not reported yet, since more may join it */
	__u64 length;
	struct place place; /* the place in the file of the end of that memory */
	struct uksm_follower *of;
	__u32 source;
};

/* Handles one segment; 1 ends the walk. Guests' requests have a segment for each page. */
static long step(__u32 index __attribute__((unused)), void *context)
{
	struct walk *walk = context;
	struct iovec segment;
	address_t start;
	__u64 part;

	if (!walk->offset)
		walk->at--;
	if (bpf_probe_read_kernel(&segment, sizeof(segment), walk->at))
		return 1;
	if (!walk->offset)
		walk->offset = segment.iov_len;
	part = walk->offset < walk->done ? walk->offset : walk->done;
	start = (address_t)segment.iov_base + walk->offset - part;
	if (walk->length && start + part == walk->start) {
		walk->length += part;
	} else {
		send(walk->of, walk->source, walk->start, walk->length, walk->place);
		walk->place.end -= walk->length;
		walk->length = part;
	}
	walk->start = start;
	walk->done -= part;
	walk->offset = 0;
	return !walk->done;
}

/* Reports the segments, of which done bytes were touched. */
static __always_inline void send_segments(struct iov_iter *iter, struct uksm_follower *of,
					  __u32 source, __u64 done, struct place place)
{
	struct iov_iter___before *before = (void *)iter;
	struct walk walk = {
		.offset = BPF_CORE_READ(iter, iov_offset),
		.done = done,
		.start = nothing,
		.length = nothing,
		.place = place,
		.of = of,
		.source = source,
	};

	if (bpf_core_field_exists(before->iov))
		walk.at = BPF_CORE_READ(before, iov);
	else
		walk.at = BPF_CORE_READ(iter, __iov);
	bpf_loop(MAX_SEGMENTS, step, &walk, 0);
	send(of, source, walk.start, walk.length, walk.place);
}

/*
 * The end of a request in its file, if it has one. Functions that read leave the position
 * behind the data. So do functions that write, from 6.5 on and in Debian's 6.1. On other
 * kernels the places of writes are too low by their length, for all processes alike.
 */
static __always_inline struct place place_of(struct kiocb *iocb)
{
	struct place place = {};

	if (!iocb)
		return place;
	place.file_size = BPF_CORE_READ(iocb, ki_filp, f_mapping, host, i_size);
	place.end = BPF_CORE_READ(iocb, ki_pos);
	return place;
}

static __always_inline void touched(struct kiocb *iocb, struct iov_iter *iter, __u32 source,
				    __s64 done)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct uksm_follower *of = bpf_map_lookup_elem(&followed, &pid);
	struct place place;
	__u8 type;

	if (!of || done <= 0)
		return;
	count(UKSM_HINT_COUNT_CALLS);
	place = place_of(iocb);
	type = BPF_CORE_READ(iter, iter_type);
	if (type == bpf_core_enum_value(enum iter_type, ITER_UBUF)) {
		address_t end = (address_t)BPF_CORE_READ(iter, ubuf) +
				BPF_CORE_READ(iter, iov_offset);

		send(of, source, end - done, done, place);
	} else if (type == bpf_core_enum_value(enum iter_type, ITER_IOVEC)) {
		send_segments(iter, of, source, done, place);
	} else {
		count(UKSM_HINT_COUNT_OTHER);
	}
}

/* A function of (iocb, iter, ...) has returned. Its number of arguments depends on the kernel. */
static __always_inline void returned(__u64 *arguments, __u32 source)
{
	__u64 begun = begin();
	__u64 done;

	if (!bpf_get_func_ret(arguments, &done))
		touched((struct kiocb *)arguments[0], (struct iov_iter *)arguments[1], source, done);
	end(begun);
}

/* Anonymous pages, without those that processors have not added up yet. */
static __always_inline __s64 anon_pages(struct mm_struct *mm)
{
	struct mm_struct___before *before = (void *)mm;
	__s64 pages = 0;

	if (bpf_core_type_exists(struct mm_rss_stat))
		bpf_core_read(&pages, sizeof(pages), &before->rss_stat.count[ANON_PAGES].counter);
	else
		bpf_core_read(&pages, sizeof(pages), &mm->rss_stat[ANON_PAGES].count);
	return pages;
}

/* A followed process gets a page table: reports growth. Two threads may both report it. */
static __always_inline void grows(struct uksm_follower *of, struct mm_struct *mm)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct place nowhere = {};
	__s64 pages;
	__u64 now;

	/* The memory of its child, or of a process that it reads or writes. */
	if (BPF_CORE_READ(task, mm) != mm)
		return;
	pages = anon_pages(mm);
	if (pages < of->anon_pages)
		of->anon_pages = pages;
	if (pages - of->anon_pages < GROWN_PAGES)
		return;
	now = bpf_ktime_get_ns();
	if (now - of->grown_at < GROWN_ONCE_IN)
		return;
	send(of, UKSM_HINT_GROWTH, 0, (pages - of->anon_pages) * PAGE_BYTES, nowhere);
	of->grown_at = now;
	of->anon_pages = pages;
}

SEC("fentry/pte_alloc_one")
int page_table(__u64 *arguments)
{
	__u64 begun = begin();
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct uksm_follower *of = bpf_map_lookup_elem(&followed, &pid);

	if (of)
		grows(of, (struct mm_struct *)arguments[0]);
	end(begun);
	return 0;
}

SEC("fexit/filemap_read")
int filemap_read(__u64 *arguments)
{
	returned(arguments, UKSM_HINT_READ);
	return 0;
}

SEC("fexit/shmem_file_read_iter")
int shmem_read(__u64 *arguments)
{
	returned(arguments, UKSM_HINT_READ);
	return 0;
}

SEC("fexit/generic_perform_write")
int perform_write(__u64 *arguments)
{
	returned(arguments, UKSM_HINT_WRITE);
	return 0;
}

SEC("fexit/iomap_file_buffered_write")
int iomap_write(__u64 *arguments)
{
	returned(arguments, UKSM_HINT_WRITE);
	return 0;
}

SEC("fexit/bio_iov_iter_get_pages")
int direct(__u64 *arguments)
{
	struct bio *bio = (struct bio *)arguments[0];
	__u64 begun = begin();
	__u32 size = BPF_CORE_READ(bio, bi_iter.bi_size);
	__u32 operation = BPF_CORE_READ(bio, bi_opf) & OP_MASK;

	touched(NULL, (struct iov_iter *)arguments[1],
		operation ? UKSM_HINT_WRITE : UKSM_HINT_READ, size);
	end(begun);
	return 0;
}
