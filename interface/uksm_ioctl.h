/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * uksm_ioctl.h - the only contract between the kernel module and user space
 *
 * The module reads, compares and merges memory pages; it decides nothing. A
 * program opens /dev/uksm, which makes a *domain*. It attaches processes to the
 * domain (ATTACH); each address space becomes a *space*. It lists their mappings
 * (MAPPINGS), reads partial hashes of their pages (SAMPLE) and proposes pages to
 * merge (FOLD). Merged pages map *frames*, which the program lists (FRAMES), counts
 * (COUNT) and breaks (BREAK).
 *
 * What user space says is a suggestion. Before the module merges a page, it
 * unmaps the page, flushes the TLB and compares all bytes. A wrong or hostile
 * suggestion costs time and never data.
 *
 * Rules of every call
 *  - All fields have a fixed width, and pointers travel in __u64. The layout is
 *    the same for 32- and 64-bit callers.
 *  - Unknown flag bits and padding must be zero, or the call fails with
 *    EINVAL and does nothing.
 *  - Batches are bounded (INFO tells the bounds). A larger batch is E2BIG.
 *  - If a signal interrupts a call, `done` tells how much was done. The call
 *    returns 0 if that is more than nothing, else EINTR.
 *  - Ranges are half-open: [start, end), [from, to).
 *  - Addresses are byte addresses, multiples of UKSM_PAGE_SIZE, in the part of
 *    an address space that belongs to user space. Any other address is EINVAL.
 *  - The module never makes the machine or a cgroup run out of memory. It asks
 *    for memory in a way that fails instead, so ENOMEM means "try again later".
 *    Pages of the caller's own buffers are faulted in like by any write.
 *  - A call waits about 0.1 s at most for locks that a target can hold. Then it
 *    returns as after a signal: what it has done, and where to go on; or EAGAIN.
 *
 * Errors of every call: ENOTTY unknown verb, EFAULT bad pointer, EINVAL bad
 * field, E2BIG batch over the bound, ENOMEM no memory just now, ENOENT a space of
 * the request is not in this domain. Of ATTACH, BREAK, COUNT and MAPPINGS, and of no
 * other, EAGAIN: the target held its locks, and nothing was done. Try later.
 *
 * Trust
 *  A domain is one trust zone. A program that holds its file learns the mappings of
 *  all its spaces, and so where everything lies in them, and the states and partial
 *  hashes of their pages. The program also knows the hash seed: if the
 *  contents of a line have little entropy, the program can guess them from the
 *  line's hash. A process can notice that its pages were merged with those of
 *  another process of the domain, because a write then takes longer. No answer
 *  tells anything about another domain, except the state FOREIGN, EBUSY of ATTACH,
 *  and how many frames all domains have. See docs/threat-model.md.
 */
#ifndef UKSM_IOCTL_H
#define UKSM_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Grows by one whenever a caller of the old header could misread the new. */
#define UKSM_API_VERSION	9

#define UKSM_PAGE_SIZE		4096
#define UKSM_LINE_SIZE		64	/* unit of hash strength, in bytes */
#define UKSM_PAGE_LINES		64	/* strongest hash: the whole page */

/* Bounds of one call. */
#define UKSM_MAX_RUNS		4096	/* runs in a SAMPLE */
#define UKSM_MAX_PAGES		16384	/* pages in a SAMPLE */
#define UKSM_MAX_FOLD		512	/* entries in a FOLD */
#define UKSM_MAX_FRAMES		4096	/* frames in a FRAMES */
#define UKSM_MAX_SIZES		4096	/* spaces in a SIZES */
#define UKSM_MAX_MAPPINGS	4096	/* mappings in a MAPPINGS */
/* The module handles at most so many pages while it holds a page-table lock. */
#define UKSM_LOCK_BATCH		64
/*
 * Most mappings that FOLD gives one frame. A fork copies each of them, into at most
 * as many processes as there are process ids (2^22). Their sum must stay below 2^31.
 */
#define UKSM_MAX_SHARERS	256
/* Most spaces that a domain can ask for before it merges what they hold. */
#define UKSM_MAX_LEAST_SPACES	16
/*
 * Pages, or a quarter of its limit if that is less, that FOLD leaves of the memory of
 * the cgroup that pays for frames: who lives there must be able to go on.
 */
#define UKSM_FRAME_MARGIN	1024

/* INFO - what this module and this kernel can do, and what was counted */
#define UKSM_FEATURE_SPLIT	(1u << 0)	/* huge pages can be split */
#define UKSM_FEATURE_CHARGE	(1u << 1)	/* frames are charged to the opener's cgroup, if it is not the root */
#define UKSM_FEATURE_FAULTS	(1u << 2)	/* test build: safety switches can be turned off */
#define UKSM_FEATURE_GUARD	(1u << 3)	/* frames are protected, so FOLD maps them; it can come and go */
#define UKSM_FEATURES_ALL	((1u << 4) - 1)

/*
 * The answer of INFO.
 *
 * The counters belong to the domain and start when it is opened. They satisfy
 *   tried == merged + already + zeroed + differed + busy + gone + full +
 *	      refused
 */
struct uksm_info {
	__u32 api_version;	/* UKSM_API_VERSION */
	__u32 features;		/* UKSM_FEATURE_* */
	__u32 max_runs;
	__u32 max_pages;
	__u32 max_fold;
	__u32 max_frames;
	__u32 max_sizes;
	__u32 max_mappings;
	__u32 lock_batch;
	__u32 spaces;		/* spaces attached to this domain */
	__u32 sharer_limit;	/* a frame with so many mappings gets no more */
	__u32 sealed;		/* 1: SEAL was called */
	__u32 policy;		/* UKSM_POLICY_*, see CONFIGURE */
	__u32 least_spaces;	/* see CONFIGURE; 1: contents of one space are merged, too */
	__u64 hash_seed;	/* see "The line hash" below */
	__u64 frame_limit;	/* most frames this domain may hold, beside the machine's limit */
	__u64 frames;		/* frames it holds */
	__u64 machine_frame_limit;	/* most frames all domains may hold; follows the memory there is */
	__u64 machine_frames;	/* frames they hold */
	__u64 tried;
	__u64 merged;		/* now maps a frame */
	__u64 already;		/* mapped a frame of this domain or the zero page before */
	__u64 zeroed;		/* now maps the zero page */
	__u64 differed;
	__u64 busy;
	__u64 gone;
	__u64 full;
	__u64 refused;
	__u64 broken;		/* BREAK gave these pages their own copy again */
	__u64 given_back;	/* broken of which nobody else mapped the frame (UKSM_BREAK_SINGLE) */
	__u64 splits;		/* huge pages that FOLD split */
	__u64 split_zeroed;	/* pages of zeros that the kernel itself freed at a split */
	__u64 frames_made;
	__u64 adopted;		/* frames_made that had been orphans */
	__u64 frames_freed;	/* by REAP, or by the module when memory was short */
	__u64 poisoned;		/* frames_freed that were given up because their memory failed */
	__u64 changed;		/* frames_freed that were given up because their contents had changed */
	__u64 sampled;		/* SAMPLE read the contents of these pages */
};
#define UKSM_IOC_INFO		_IOR(0xDE, 0, struct uksm_info)

/* CONFIGURE - set the domain's constants, before its first ATTACH */

/* FOLD merges with the zero page only. It refuses other kinds with EPERM. */
#define UKSM_POLICY_ZERO	(1u << 0)
/*
 * The caller lets no two pages of one space map one frame. The module, which keeps no
 * list of who maps a frame, only leaves to it the choice of each frame that a page
 * joins: it adopts no orphan, and an entry that maps a frame already does not make
 * that the frame of its set.
 */
#define UKSM_POLICY_BETWEEN	(1u << 1)
/* Pages are merged only with pages, and into frames, on their own node of memory. */
#define UKSM_POLICY_NODES	(1u << 2)
#define UKSM_POLICIES		((1u << 3) - 1)

/*
 * The request of CONFIGURE.
 *
 * A field that is 0 keeps its default: a random seed, no frame_limit but the
 * machine's, UKSM_MAX_SHARERS. A program that keeps the seed of a domain
 * can adopt the domain's frames when the domain is gone: see FOLD. What may be
 * merged can only be narrowed: policies add up, and the highest least_spaces stays.
 * EBUSY if the domain has had a space, or is sealed; EINVAL for a sharer_limit of 1,
 * or above UKSM_MAX_SHARERS, or a least_spaces above UKSM_MAX_LEAST_SPACES.
 *
 * With least_spaces above 1 FOLD makes a frame only of contents that so many spaces
 * among the entries of its set hold. They are counted by their full hash right before
 * the first entry of the call is tried. Of the others each has reason SPACES. Who
 * holds what a frame has may join it, however many map it by then.
 */
struct uksm_configure {
	__u64 hash_seed;
	__u64 frame_limit;
	__u32 sharer_limit;
	__u32 policy;		/* UKSM_POLICY_* */
	__u32 least_spaces;
	__u32 flags;		/* none defined */
};
#define UKSM_IOC_CONFIGURE	_IOW(0xDE, 1, struct uksm_configure)

/*
 * ATTACH - add the address space of a process to this domain
 *
 * The module takes a reference to the address space, not to its users: the
 * process can exit at any time, and its pid can be reused without confusion.
 * Threads and vfork children that share an address space share the space. If the
 * domain has the address space already, ATTACH returns the same space id and sets
 * existing. After an exec the old space is dead and the new one must be attached.
 *
 * EPERM if the caller may not ptrace the target (each ATTACH checks the rule of
 * process_vm_readv(2), security modules included, and CAP_SYS_PTRACE over the
 * target), or if the domain is sealed; EBADF if pidfd is not a pidfd; ESRCH if the
 * process has no address space (kernel thread, zombie, exiting); EBUSY if another
 * domain has it, or has detached it while one of its calls still works on it;
 * ENOSPC if the domain has too many spaces; EAGAIN if its exec does not end.
 */
struct uksm_attach {
	__s32 pidfd;
	__u32 flags;		/* none defined */
	__u32 space;		/* out: the space id, never 0 */
	__u32 existing;		/* out: 1 if this domain had it already */
};
#define UKSM_IOC_ATTACH		_IOWR(0xDE, 2, struct uksm_attach)

/*
 * DETACH - forget a space, or all
 *
 * Merged pages stay merged. Another domain can attach the space as soon as no call
 * of this domain works on it. Space 0, which no space has, is all of them: who takes a
 * domain over does not know what its predecessor had attached.
 */
struct uksm_detach {
	__u32 space;		/* 0: all */
	__u32 flags;		/* none defined */
};
#define UKSM_IOC_DETACH		_IOW(0xDE, 3, struct uksm_detach)

/* SEAL - refuse ATTACH and CONFIGURE from now on, through every copy of the file */
#define UKSM_IOC_SEAL		_IO(0xDE, 4)

/* SAMPLE - read state, flags and partial hash of pages, but no contents */
/* Pages of one space: count pages from start on, stride pages apart. */
struct uksm_run {
	__u64 start;
	__u32 space;
	__u32 count;		/* at least 1 */
	__u32 stride;		/* in pages, at least 1; 1 for a run of one */
	__u32 pad;
};

/* What SAMPLE and COUNT find at an address. */
enum uksm_state {
	UKSM_STATE_NONE = 0,	/* nothing is mapped here */
	UKSM_STATE_ANON = 1,	/* an ordinary private page: a candidate */
	UKSM_STATE_FRAME = 2,	/* a frame of this domain; uksm_page.frame is its id */
	UKSM_STATE_ZERO = 3,	/* the zero page */
	UKSM_STATE_ORPHAN = 4,	/* a frame of a domain that is gone: a candidate */
	UKSM_STATE_FOREIGN = 5,	/* a frame of another living domain (by fork) */
	UKSM_STATE_KSM = 6,	/* merged by in-kernel KSM */
	UKSM_STATE_SWAP = 7,	/* swapped out, or being migrated */
	UKSM_STATE_OTHER = 8,	/* file, device or special page */
	UKSM_STATE_REFUSED = 9,	/* the mapping is of a kind that is never merged */
	UKSM_STATE_UNMAPPED = 10,	/* outside every mapping */
	UKSM_STATE_DEAD = 11,	/* the space's process is gone */
	UKSM_STATE_RETRY = 12,	/* the address space was locked: ask again later */
	UKSM_STATE_POISONED = 13,	/* its memory has failed: it is never read */
};

#define UKSM_PAGE_YOUNG		(1u << 0)	/* accessed since the bit was last cleared */
#define UKSM_PAGE_DIRTY		(1u << 1)	/* written since the bit was last cleared */
#define UKSM_PAGE_WRITE		(1u << 2)	/* mapped writable */
#define UKSM_PAGE_HUGE		(1u << 3)	/* part of a huge page */
#define UKSM_PAGE_SHARED	(1u << 4)	/* mapped more than once; not told of FOREIGN */
#define UKSM_PAGE_PINNED	(1u << 5)	/* more references than mappings explain */
#define UKSM_PAGE_LOCKED	(1u << 6)	/* the mapping is mlocked */

/* The answer of SAMPLE for one page. */
struct uksm_page {
	__u64 hash;		/* 0 unless ANON, KSM, ORPHAN or FRAME */
	__u32 frame;		/* frame id; 0 unless FRAME */
	__u16 state;		/* enum uksm_state */
	__u16 flags;		/* UKSM_PAGE_* */
};

/*
 * The request of SAMPLE.
 *
 * The answers stand in the order of the runs, and within a run in the order of its
 * pages. SAMPLE faults nothing in, and reads the pages of a huge page in place. Sort
 * the runs by (space, start): neighbours share a page-table lock.
 *
 * hash is the sum of the line hashes of the lines [from, to) in the domain's
 * permutation. To turn a hash at strength a into one at strength b, add the sample
 * of [a, b), or subtract that of [b, a). from == to reads states only.
 */
struct uksm_sample {
	__u64 runs;		/* struct uksm_run[nr_runs] */
	__u64 pages;		/* struct uksm_page[nr_pages], written */
	__u32 nr_runs;
	__u32 nr_pages;		/* the sum of the runs' counts, else EINVAL */
	__u16 from;		/* lines, 0..UKSM_PAGE_LINES, from <= to */
	__u16 to;
	__u32 flags;		/* none defined */
	__u32 done;		/* out: pages answered */
	__u32 pad;
};
#define UKSM_IOC_SAMPLE		_IOWR(0xDE, 5, struct uksm_sample)

/*
 * FOLD - merge a batch of pages: what each of its entries is merged with
 *
 * An orphan of a domain with the same hash_seed and policy becomes a frame where it
 * is, without a copy: a daemon that is started again keeps the frames of its past run.
 */
enum uksm_kind {
	/* merge the page into frame `frame` */
	UKSM_KIND_FRAME = 0,
	/*
	 * Merge the page with the other entries of this call that have the same
	 * `set`. The first that can be taken becomes a new frame, and the others are
	 * compared with it. An entry that no other entry joins makes no frame. Put
	 * the page first that was sampled longest ago. When the frame has
	 * sharer_limit mappings, the next entry becomes another frame, so read
	 * `frame` from each entry.
	 */
	UKSM_KIND_SET = 1,
	/*
	 * Map the zero page if the page holds only zeros; only in anonymous
	 * mappings. If the file of a private file mapping loses a page, the kernel
	 * drops a zero page from the mapping, but not an anonymous page.
	 */
	UKSM_KIND_ZERO = 2,
};

/* What became of an entry of FOLD. */
enum uksm_status {
	UKSM_STATUS_UNTRIED = 0,	/* not reached */
	UKSM_STATUS_MERGED = 1,	/* now maps a frame */
	UKSM_STATUS_ALREADY = 2,	/* mapped the frame or the zero page before */
	UKSM_STATUS_ZEROED = 3,	/* now maps the zero page */
	UKSM_STATUS_DIFFERED = 4,	/* its contents are not those of the others */
	UKSM_STATUS_BUSY = 5,	/* in use just now */
	UKSM_STATUS_GONE = 6,	/* page, process or frame is no longer there */
	UKSM_STATUS_FULL = 7,	/* a limit is reached, or the guard is not in force */
	UKSM_STATUS_REFUSED = 8,	/* pages of this kind are never merged */
};

/* Why an entry of FOLD has its status. */
enum uksm_reason {
	UKSM_REASON_NONE = 0,		/* of status UNTRIED, MERGED, ALREADY, ZEROED */
	/* of status DIFFERED */
	UKSM_REASON_CONTENT = 1,	/* all bytes were compared and some differ */
	UKSM_REASON_STALE = 2,		/* the hash is no longer the one given */
	UKSM_REASON_ALONE = 3,		/* no other entry of its set was left */
	/* of status BUSY */
	UKSM_REASON_PINNED = 4,		/* something holds a reference to the page */
	UKSM_REASON_SWAPCACHE = 5,	/* the page is in the swap cache */
	UKSM_REASON_LOCK = 6,		/* a lock was taken: try later */
	UKSM_REASON_RACED = 7,		/* the page tables changed meanwhile */
	/* of status GONE */
	UKSM_REASON_UNMAPPED = 8,	/* nothing is mapped at the address */
	UKSM_REASON_SWAPPED = 9,	/* swapped out, or being migrated */
	UKSM_REASON_DEAD = 10,		/* the space's process is gone */
	UKSM_REASON_NO_FRAME = 11,	/* no such frame in this domain */
	/* of status FULL */
	UKSM_REASON_SHARERS = 12,	/* the frame has sharer_limit mappings */
	UKSM_REASON_FRAMES = 13,	/* the domain has frame_limit frames */
	UKSM_REASON_MEMORY = 14,	/* no memory for a frame, or its cgroup would be full */
	/* of status REFUSED */
	UKSM_REASON_MAPPING = 15,	/* shared, device, hugetlb, droppable, ... mapping */
	UKSM_REASON_USERFAULT = 16,	/* userfaultfd tracks writes to it, or shares it */
	UKSM_REASON_LOCKED = 17,	/* mlocked, and UKSM_FOLD_LOCKED not given */
	UKSM_REASON_HUGE = 18,		/* huge: UKSM_FOLD_SPLIT not given, or the split failed */
	UKSM_REASON_NOT_ANON = 19,	/* a file page, a special page */
	UKSM_REASON_KSM = 20,		/* merged by in-kernel KSM */
	UKSM_REASON_FOREIGN = 21,	/* a frame of another domain */
	UKSM_REASON_ZERO = 22,		/* the zero page may not be mapped here */
	/* of status GONE if the frame's memory has failed, REFUSED if the page's has */
	UKSM_REASON_POISONED = 23,	/* memory has failed */
	UKSM_REASON_SPACES = 24,	/* of status DIFFERED: fewer than least_spaces hold its contents */
	UKSM_REASON_GUARD = 25,	/* of status FULL: uksm_guard.ko does not protect frames */
	UKSM_REASON_MACHINE = 26,	/* of status FULL: machine_frame_limit is reached */
	UKSM_REASON_NODE = 27,		/* of status DIFFERED: the frame is on another node */
};

/* One page to merge, and what became of it. */
struct uksm_fold_entry {
	__u64 address;
	__u64 hash;		/* expected, if lines > 0 */
	__u32 space;
	__u32 frame;		/* in: kind FRAME; out: id of the frame now mapped, or 0 */
	__u16 set;		/* kind SET: below UKSM_MAX_FOLD; else 0 */
	__u8 kind;		/* enum uksm_kind */
	__u8 status;		/* out: enum uksm_status; 0 in */
	__u8 reason;		/* out: enum uksm_reason; 0 in */
	__u8 pad[3];
};

#define UKSM_FOLD_SPLIT		(1u << 0)	/* split huge pages in the way */
#define UKSM_FOLD_LOCKED	(1u << 1)	/* merge in mlocked mappings, too */
/* First empty the per-CPU LRU batches of all CPUs: at most every 20 ms, once for all callers. */
#define UKSM_FOLD_DRAIN		(1u << 2)
#define UKSM_FOLD_FLAGS		((1u << 3) - 1)

/*
 * The request of FOLD.
 *
 * Entries are tried in the order given. Neighbouring entries of one space and one
 * page table (2 MiB) share one lock, one flush and one notifier pair: send sorted runs.
 *
 * Memory registered with userfaultfd is merged if it is registered for missing pages
 * only. Page-table entries that userfaultfd has write-protected are refused.
 *
 * If lines > 0, the module hashes the lines [0, lines) of a page. If the hash is no
 * longer `hash`, the page is left alone with reason STALE; a page that has this hash
 * and other contents gets reason CONTENT. The module hashes a page before it becomes
 * a frame or is split, and a page that is compared only if the comparison fails.
 */
struct uksm_fold {
	__u64 entries;		/* struct uksm_fold_entry[count], updated */
	__u32 count;
	__u32 flags;		/* UKSM_FOLD_* */
	__u16 lines;		/* 0..UKSM_PAGE_LINES */
	__u16 pad;
	__u32 done;		/* out: entries tried */
};
#define UKSM_IOC_FOLD		_IOWR(0xDE, 6, struct uksm_fold)

/* BREAK - give merged pages of a range their own copy again */

#define UKSM_BREAK_MARGIN	64	/* pages that BREAK leaves free */

#define UKSM_BREAK_FOREIGN	(1u << 0)	/* frames of other domains instead */
#define UKSM_BREAK_SINGLE	(1u << 1)	/* only pages whose frame nothing else maps; without FOREIGN */
#define UKSM_BREAK_FLAGS	((1u << 2) - 1)

/*
 * The request of BREAK.
 *
 * BREAK breaks frames of this domain and orphans, or, with UKSM_BREAK_FOREIGN, those
 * of other domains, which the space can have by fork. It stops (stopped = 1) where the
 * machine, or the target's cgroup, would have less than UKSM_BREAK_MARGIN pages left.
 * Pages that it changes meanwhile may stay. REAP frees the frames without mappings.
 */
struct uksm_break {
	__u32 space;
	__u32 flags;		/* UKSM_BREAK_* */
	__u64 start;
	__u64 end;
	__u64 next;		/* out: where to go on; end when through */
	__u64 broken;		/* out: pages */
	__u32 stopped;		/* out: 1 if memory was short */
	__u32 pad;
};
#define UKSM_IOC_BREAK		_IOWR(0xDE, 7, struct uksm_break)

/*
 * COUNT - pages of a range by state
 *
 * Holes cost nothing; hugetlb mappings and memory of devices are left out. One call looks
 * at a bounded number of page tables.
 */
struct uksm_count {
	__u32 space;
	__u32 flags;		/* none defined */
	__u64 start;
	__u64 end;
	__u64 next;		/* out: where to go on; end when through */
	__u64 pages[16];	/* out: by enum uksm_state; NONE and UNMAPPED stay 0 */
	__u64 huge;		/* out: pages of state ANON that are part of a huge page */
};
#define UKSM_IOC_COUNT		_IOWR(0xDE, 8, struct uksm_count)

/* FRAMES - list the domain's frames */

#define UKSM_FRAMES_REAP	(1u << 0)	/* free frames without mappings */
#define UKSM_FRAMES_CHECK	(1u << 1)	/* see whether contents have changed */
#define UKSM_FRAMES_FLAGS	((1u << 2) - 1)

#define UKSM_FRAME_POISONED	(1u << 0)	/* its memory has failed; hash is 0 */
#define UKSM_FRAME_CHANGED	(1u << 1)	/* it no longer holds what it held when it was first checked */

/* The answer of FRAMES for one frame. */
struct uksm_frame {
	__u64 hash;		/* over the lines [from, to), as in SAMPLE */
	__u32 frame;		/* its id */
	__u32 sharers;		/* its mappings; 0 if this call freed it */
	__u32 flags;		/* UKSM_FRAME_* */
	__u32 node;		/* the node of memory that it lies on */
};

/*
 * The request of FRAMES.
 *
 * The frames stand in ascending order of their ids. A frame's contents never change,
 * so its hash follows a change of strength exactly. With UKSM_FRAMES_REAP the module
 * frees each frame without mappings and lists it with sharers 0. It also gives up
 * each poisoned frame: the mappings of the frame stay as they are, and nothing more
 * is merged into it.
 *
 * With UKSM_FRAMES_CHECK the module hashes each frame in full. The first time it notes
 * 31 bits of that, and later it compares. If they differ, memory has failed, or
 * something wrote where nobody may: the frame is listed with UKSM_FRAME_CHANGED, and
 * the kernel's log has the number of its page. With UKSM_FRAMES_REAP, too, it is given
 * up as a poisoned one is.
 *
 * Where memory is short the module itself frees frames without mappings. Their ids
 * can then name other frames.
 */
struct uksm_frames {
	__u64 frames;		/* struct uksm_frame[count], written */
	__u32 count;
	__u32 cursor;		/* in: where to start; out: where to go on, 0 when through */
	__u16 from;
	__u16 to;
	__u32 flags;		/* UKSM_FRAMES_* */
	__u32 done;		/* out: frames listed */
	__u32 freed;		/* out: frames freed */
};
#define UKSM_IOC_FRAMES		_IOWR(0xDE, 9, struct uksm_frames)

/* SIZES - tell how large many spaces are, so that the caller sees which of them changed */
#define UKSM_SIZE_GONE		(1u << 0)	/* the space's process is gone */
#define UKSM_SIZE_UNKNOWN	(1u << 1)	/* this domain has no such space */

/* One space, and its size; all zeros if a flag is set. */
struct uksm_size {
	__u32 space;		/* in: the space id */
	__u32 flags;		/* out: UKSM_SIZE_* */
	__u64 mappings;		/* out: mappings of any kind */
	__u64 pages;		/* out: pages in these mappings, present or not */
	__u64 anon_pages;	/* out: anonymous pages present, huge and merged ones too */
};

/*
 * The request of SIZES. Nothing is remembered, and no lock of a target is taken: the
 * numbers may be of slightly different times, and what one misses a later call shows.
 */
struct uksm_sizes {
	__u64 sizes;		/* struct uksm_size[count], updated */
	__u32 count;
	__u32 flags;		/* none defined */
	__u32 done;		/* out: spaces answered */
	__u32 pad;
};
#define UKSM_IOC_SIZES		_IOWR(0xDE, 10, struct uksm_sizes)

/* MAPPINGS - list the private mappings of a space */
#define UKSM_MAPPING_READ	(1u << 0)	/* the process may read here */
#define UKSM_MAPPING_WRITE	(1u << 1)	/* it may write */
#define UKSM_MAPPING_EXEC	(1u << 2)	/* it may execute */
#define UKSM_MAPPING_FILE	(1u << 3)	/* of a file; else HEAP, STACK or neither */
#define UKSM_MAPPING_HEAP	(1u << 4)	/* the heap of brk(2) lies here */
#define UKSM_MAPPING_STACK	(1u << 5)	/* the first thread's stack lies here */
#define UKSM_MAPPING_REFUSED	(1u << 6)	/* of a kind that is never merged */
#define UKSM_MAPPING_MERGEABLE	(1u << 7)	/* offered to in-kernel KSM: ksmd merges here, if it runs */

/* The answer of MAPPINGS for one mapping. */
struct uksm_mapping {
	__u64 start;
	__u64 end;
	__u32 flags;		/* UKSM_MAPPING_* */
	__u32 pad;
};

/*
 * The request of MAPPINGS.
 *
 * Mappings stand as the kernel has them, ascending and disjoint, from `start` on. One
 * that begins before `start` is listed from `start` on. Shared mappings are left out,
 * because nothing in them is ever merged or broken. REFUSED is what SAMPLE answers for
 * every page of such a mapping: hugetlb, device memory, the vdso and the like.
 *
 * One call looks at a bounded number of mappings, those left out counted, and takes the
 * mmap lock of the target for a part of them at a time. So `done` can be less than
 * `count` though there is more, and the list need not be that of one moment: the process
 * may have changed mappings meanwhile. If the space's process is gone, `gone` is 1, and
 * `done` and `next` are 0.
 */
struct uksm_mappings {
	__u64 mappings;		/* struct uksm_mapping[count], written */
	__u64 start;
	__u64 next;		/* out: where to go on; 0 when through */
	__u32 space;
	__u32 count;		/* at least 1 */
	__u32 flags;		/* none defined */
	__u32 done;		/* out: mappings listed */
	__u32 gone;		/* out: 1 if the space's process is gone */
	__u32 pad;
};
#define UKSM_IOC_MAPPINGS	_IOWR(0xDE, 11, struct uksm_mappings)

/*
 * The line hash
 *
 * A page is 64 lines of 8 little-endian 64-bit words. All constants come from
 * the domain's 64-bit hash_seed by splitmix64:
 *
 *   next(s):  s += 0x9E3779B97F4A7C15; z = s;
 *	       z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
 *	       z = (z ^ z >> 27) * 0x94D049BB133111EB;  return z ^ z >> 31
 *   in this order:
 *   word_key[0..8)	8 values
 *   line_key[0..64)	64 values, by position of the line in the page
 *   order[0..64)	Fisher-Yates over the identity: for i = 63 down to 1,
 *			j = high 64 bits of next * (i + 1); swap order[i], order[j]
 *
 * product(a, b) is the exclusive or of the halves of the 128-bit product a * b.
 *
 *   line(l) = product(line_key[l] ^ sum over i in 0, 2, 4, 6 of
 *		       product(w[i] ^ word_key[i], w[i + 1] ^ word_key[i + 1]),
 *		       0x9FB21C651E98DF25)
 *   hash of [from, to) = sum over i of line(order[i]), modulo 2^64
 *
 * With UKSM_POLICY_NODES the module adds a number of its own for each line that is not all
 * zeros, by the page's node, so that what lies on two nodes has two hashes.
 *
 * The tests of both sides check the values in hash_vectors.txt.
 */

#endif /* UKSM_IOCTL_H */
