// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * Sees data of files and block devices arrive in memory of followed processes, or leave from it
 * (XLH section 4.1), and such processes grow.
 *
 * Problem: a read can be asked for by read, pread64, readv, preadv2, libaio or io_uring, by the
 * process itself or by a worker thread of the kernel's. System calls would have to be watched one by
 * one, and while one is, every system call of every process takes a slower way.
 *
 * Approach: all of them meet where the page cache copies to the caller, in filemap_read and
 * generic_perform_write (iomap_file_buffered_write on xfs), and where a direct request takes the
 * caller's pages, in bio_iov_iter_get_pages. A program at the end of each sees the iterator as it was
 * left: what was touched ends there, so it is walked backwards. Kernel workers of io_uring run as
 * the process, so that its id is that of the process in all cases. A call of another process costs
 * one lookup.
 *
 * What is not seen: requests whose memory is given by pages (splice, registered buffers of io_uring,
 * whose pages are pinned and cannot be merged), vhost and network; file systems that read by
 * themselves (btrfs writes, fuse without page cache).
 *
 * A process that does very much I/O must not fill the ring for all others: each may have as many hints
 * waiting as bounds it to a part of what is still free, as a switch divides its memory among queues
 * (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet switches, 1998).
 * Of which processes hints were lost is told.
 *
 * A direct request has not arrived yet when it is told, and does not say of which file it is.
 *
 * That a process grows could be seen at each page fault, which would make faults dearer for all processes
 * by a tenth. It is looked at where a fault takes a page table, once in 2 MiB that were not mapped
 * before, for huge pages, get_user_pages and the processor of a guest, too: by how many
 * anonymous pages the process has more than when it was told last. What is filled again in
 * place takes no table, and is not seen.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "hint_event.h"

char _license[] SEC("license") = "GPL";

/* Fewer bytes fill no page. */
#define MIN_BYTES 1024
/* UIO_MAXIOV of the kernel: a request has no more segments. */
#define MAX_SEGMENTS 1024
/* One run of so many is timed, drawn at random so that no pattern of calls escapes. */
#define TIMED 64
/* Bytes of the ring, and what a hint takes of it, with the kernel's header. */
#define RING (1 << 20)
#define HINT_BYTES (sizeof(struct uksm_hint) + 8)
/* A process may have hints waiting that take so many times what is free. */
#define PART_OF_FREE 2
/* A process has grown if it has so many anonymous pages more. It is told once in so long. */
#define GROWN_PAGES 256
#define GROWN_ONCE_IN 1000000000ULL
#define PAGE_BYTES 4096
/* MM_ANONPAGES of the kernel. */
#define ANON_PAGES 1
/* REQ_OP_READ of the kernel, and the bits that tell. */
#define OP_MASK 0xff

typedef __u64 address_t;

/* Of the kernel's structures the fields that are used; where they are is resolved at load. */
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

/* Which processes are followed, by process id. */
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

/* How often the daemon has taken hints in numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} turn SEC(".maps");

/* Spaces of which hints were lost, until the daemon takes them out. If it is full, that is not told. */
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

/* When a run begins that is timed; 0 if it is not. */
static __always_inline __u64 begin(void)
{
	return bpf_get_prandom_u32() % TIMED ? 0 : bpf_ktime_get_ns();
}

/* A run that began then ends. It stands for those that are not timed. */
static __always_inline void end(__u64 begun)
{
	if (begun)
		add(UKSM_HINT_COUNT_NANOSECONDS, (bpf_ktime_get_ns() - begun) * TIMED);
}

/* Bytes of a file, from where they end backwards. A size of 0 is that of no file. */
struct place {
	__u64 file_size;
	__u64 end;
};

/* Whether one more hint of it leaves room for those of others. */
static __always_inline int has_room(struct uksm_follower *of)
{
	__u32 zero = 0;
	__u32 *now = bpf_map_lookup_elem(&turn, &zero);
	__u64 waiting = bpf_ringbuf_query(&hints, BPF_RB_AVAIL_DATA);

	/* What was told before has been taken. Two threads may do this at once, and count one too few. */
	if (now && of->turn != *now) {
		of->turn = *now;
		of->told = 0;
		of->lost = 0;
	}
	return waiting < RING && of->told * HINT_BYTES < PART_OF_FREE * (RING - waiting);
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

static __always_inline void tell(struct uksm_follower *of, __u32 source, address_t start,
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
	of->told++;
	hint->start = start;
	hint->length = length;
	hint->file_size = place.file_size;
	hint->offset = place.end - length;
	hint->space = of->space;
	hint->source = source;
	bpf_ringbuf_submit(hint, 0);
}

/*
 * Zero, which the verifier must not know: before 6.7 it tries the function that bpf_loop() calls once,
 * and leaves out what that one time does not reach. So a walk begins with nothing that it knows.
 */
__u64 nothing;

/* A walk over the segments of a request, from where its iterator stands backwards. */
struct walk {
	const struct iovec *at; /* the segment that was looked at last, or the one behind the last */
	__u64 offset;           /* bytes of it that were touched; 0: it begins behind what was */
	__u64 done;             /* bytes that are still to be looked at */
	address_t start;        /* memory that is not told yet, since more may join it */
	__u64 length;
	struct place place; /* where the memory that is not told yet ends */
	struct uksm_follower *of;
	__u32 source;
};

/* Looks at one segment; 1 ends the walk. Guests' requests have a segment a page. */
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
		tell(walk->of, walk->source, walk->start, walk->length, walk->place);
		walk->place.end -= walk->length;
		walk->length = part;
	}
	walk->start = start;
	walk->done -= part;
	walk->offset = 0;
	return !walk->done;
}

/* The segments of which done bytes were touched. */
static __always_inline void tell_segments(struct iov_iter *iter, struct uksm_follower *of,
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
	tell(of, source, walk.start, walk.length, walk.place);
}

/*
 * The place in its file at which a request ended, if it is one of a file. The functions that write leave the
 * position behind what was written, as those that read do, from 6.5 on and in the 6.1 of Debian. Where
 * one does not, its places are too low by what it wrote, for all processes alike.
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

		tell(of, source, end - done, done, place);
	} else if (type == bpf_core_enum_value(enum iter_type, ITER_IOVEC)) {
		tell_segments(iter, of, source, done, place);
	} else {
		count(UKSM_HINT_COUNT_OTHER);
	}
}

/* What a function of (iocb, iter, ...) returned: the number of its arguments differs by kernel. */
static __always_inline void returned(__u64 *arguments, __u32 source)
{
	__u64 begun = begin();
	__u64 done;

	if (!bpf_get_func_ret(arguments, &done))
		touched((struct kiocb *)arguments[0], (struct iov_iter *)arguments[1], source, done);
	end(begun);
}

/* Anonymous pages, without what processors have not added up yet. */
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

/* A followed process takes a page table: tells if it has grown. Two threads may both tell it. */
static __always_inline void grows(struct uksm_follower *of, struct mm_struct *mm)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct place nowhere = {};
	__s64 pages;
	__u64 now;

	/* That of its child, or one that it reads or writes. */
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
	tell(of, UKSM_HINT_GROWTH, 0, (pages - of->anon_pages) * PAGE_BYTES, nowhere);
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
