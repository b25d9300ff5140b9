/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * uksm_ioctl.h - the only contract between the kernel module and user space
 *
 * The module reads, compares and merges memory pages; it decides nothing. A
 * program opens /dev/uksm, which makes a *domain*; it attaches processes to
 * the domain, which makes *spaces*; it reads partial hashes of their pages
 * (SAMPLE), proposes pages to merge (FOLD), and looks after the *frames* that
 * come out of it (FRAMES, COUNT, BREAK).
 *
 * What user space says is a suggestion: the module compares all bytes with
 * the page unmapped and the TLB flushed before it merges anything, so a wrong
 * or hostile suggestion costs time and never data.
 *
 * Rules of every call
 *  - All fields have fixed width; pointers travel in __u64. The layout is the
 *    same for 32- and 64-bit callers.
 *  - Unknown flag bits and padding must be zero, or the call fails with
 *    EINVAL and does nothing.
 *  - Batches are bounded (INFO tells the bounds); a larger one is E2BIG.
 *  - A call that a signal interrupts has done what `done` says, and returns 0
 *    if that is more than nothing, else EINTR.
 *  - Ranges are half-open: [start, end), [from, to).
 *  - Addresses are byte addresses, multiples of UKSM_PAGE_SIZE, of the part of
 *    an address space that belongs to user space. Any other address is EINVAL.
 *  - The module never lets the machine or a cgroup run out of memory for its own
 *    work: it asks for memory in a way that fails instead. ENOMEM therefore means
 *    "try again later". The caller's own buffers are the caller's: an answer that
 *    is written to a page never touched before faults it in like any write.
 *
 * Errors of every call: ENOTTY unknown verb, EFAULT bad pointer, EINVAL bad
 * field, E2BIG batch over the bound, ENOMEM no memory just now, ENOENT a space of
 * the request is not of this domain.
 *
 * Trust
 *  A domain is one trust zone. Who holds its file learns states and partial hashes
 *  of all its spaces. The hash of one line whose contents have little entropy can
 *  be looked up in a table of guesses, since the seed is known to the holder: he
 *  can learn such lines. Merging within a domain can be noticed by its processes
 *  by the time that a write takes. No answer tells anything about another domain,
 *  but for states FOREIGN and BUSY of ATTACH. See docs/threat-model.md.
 */
#ifndef UKSM_IOCTL_H
#define UKSM_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Grows by one whenever a caller of the old header could misread the new. */
#define UKSM_API_VERSION	2

#define UKSM_PAGE_SIZE		4096
#define UKSM_LINE_SIZE		64	/* unit of hash strength, in bytes */
#define UKSM_PAGE_LINES		64	/* strongest hash: the whole page */

/* Bounds of one call. */
#define UKSM_MAX_RUNS		4096	/* runs in a SAMPLE */
#define UKSM_MAX_PAGES		16384	/* pages in a SAMPLE */
#define UKSM_MAX_FOLD		512	/* entries in a FOLD */
#define UKSM_MAX_FRAMES		4096	/* frames in a FRAMES */
/* Most pages handled under one hold of a page-table lock. */
#define UKSM_LOCK_BATCH		64
/*
 * Most mappings that FOLD gives one frame. A fork copies each of them, into as many
 * processes as the kernel can number (2^22), and the sum must stay below 2^31.
 */
#define UKSM_MAX_SHARERS	256

/*
 * INFO - what this module and this kernel can do, and what was counted
 *
 * The counters are the domain's, from its opening on. They satisfy
 *   tried == merged + already + zeroed + differed + busy + gone + full +
 *	      refused
 */
#define UKSM_FEATURE_SPLIT	(1u << 0)	/* huge pages can be split */
#define UKSM_FEATURE_CHARGE	(1u << 1)	/* frames are charged to the opener's cgroup, if it is not the root */
#define UKSM_FEATURE_FAULTS	(1u << 2)	/* test build: safety switches can be turned off */
#define UKSM_FEATURES_ALL	((1u << 3) - 1)

struct uksm_info {
	__u32 api_version;	/* UKSM_API_VERSION */
	__u32 features;		/* UKSM_FEATURE_* */
	__u32 max_runs;
	__u32 max_pages;
	__u32 max_fold;
	__u32 max_frames;
	__u32 lock_batch;
	__u32 spaces;		/* spaces attached to this domain */
	__u64 hash_seed;	/* see "The line hash" below */
	__u64 frame_limit;	/* most frames this domain may hold */
	__u64 frames;		/* frames it holds */
	__u32 sharer_limit;	/* a frame with so many mappings takes no more */
	__u32 sealed;		/* 1: SEAL was called */
	__u64 tried;
	__u64 merged;		/* now maps a frame */
	__u64 already;		/* mapped a frame of this domain, or the zero page, before */
	__u64 zeroed;		/* now maps the zero page */
	__u64 differed;
	__u64 busy;
	__u64 gone;
	__u64 full;
	__u64 refused;
	__u64 broken;		/* pages given their own copy again by BREAK */
	__u64 splits;		/* huge pages split for a FOLD */
	__u64 split_zeroed;	/* zero pages that the kernel itself freed at a split */
	__u64 frames_made;
	__u64 adopted;		/* those of them that had been orphans */
	__u64 frames_freed;	/* by REAP, or by the module when memory was short */
	__u64 poisoned;		/* those of them given up because their memory failed */
	__u64 sampled;		/* pages whose contents SAMPLE read */
};
#define UKSM_IOC_INFO		_IOR(0xDE, 0, struct uksm_info)

/*
 * CONFIGURE - set the domain's constants, before its first ATTACH
 *
 * A field that is 0 keeps its default: a random seed, a quarter of the
 * machine's pages, UKSM_MAX_SHARERS. Who keeps the seed of a domain that is gone
 * can adopt its frames by it: see FOLD. EBUSY once a space has been attached or the
 * domain is sealed; EINVAL for a sharer_limit of 1, or above UKSM_MAX_SHARERS.
 */
struct uksm_configure {
	__u64 hash_seed;
	__u64 frame_limit;
	__u32 sharer_limit;
	__u32 flags;		/* none defined */
};
#define UKSM_IOC_CONFIGURE	_IOW(0xDE, 1, struct uksm_configure)

/*
 * ATTACH - add the address space of a process to this domain
 *
 * Takes a reference to the address space, not to its users: a process exits
 * when it likes, and its id can be reused without confusion. Threads and vfork
 * children that share an address space share the space; attaching one that
 * this domain has returns the same id and sets existing. After an exec the
 * old space is dead and the new one must be attached.
 *
 * EPERM if the caller may not ptrace the target (checked at every call: the rule of
 * process_vm_readv(2), security modules included, and CAP_SYS_PTRACE over the
 * target), or in a sealed domain; EBADF not a pidfd; ESRCH no address space (kernel
 * thread, zombie, exiting); EBUSY in another domain, or a call of that domain still
 * works on it after DETACH; ENOSPC too many spaces.
 */
struct uksm_attach {
	__s32 pidfd;
	__u32 flags;		/* none defined */
	__u32 space;		/* out: never 0 */
	__u32 existing;		/* out: 1 if this domain had it already */
};
#define UKSM_IOC_ATTACH		_IOWR(0xDE, 2, struct uksm_attach)

/*
 * DETACH - forget a space. Merged pages stay merged. Another domain can attach it as
 * soon as no call of this one works on it any more.
 */
struct uksm_detach {
	__u32 space;
	__u32 flags;		/* none defined */
};
#define UKSM_IOC_DETACH		_IOW(0xDE, 3, struct uksm_detach)

/* SEAL - refuse ATTACH and CONFIGURE from now on, through any copy of the file. */
#define UKSM_IOC_SEAL		_IO(0xDE, 4)

/*
 * SAMPLE - state, flags and partial hash of pages, no contents
 *
 * Pages are named by runs: count pages from start on, stride pages apart. The
 * answer for page j of run i stands behind the answers of all runs before i.
 * Nothing is faulted in. Pages of a huge page are read in place. Runs should
 * be sorted by (space, start): neighbours share a page-table lock.
 *
 * hash is the sum of the line hashes of the lines [from, to) in the domain's
 * permutation, so a hash at strength a becomes one at strength b by adding the
 * sample of [a, b), or subtracting that of [b, a). It is valid for the states
 * ANON, KSM, ORPHAN and FRAME, else 0. from == to reads states only.
 */
struct uksm_run {
	__u64 start;
	__u32 space;
	__u32 count;		/* at least 1 */
	__u32 stride;		/* in pages, at least 1; 1 for a run of one */
	__u32 pad;
};

enum uksm_state {
	UKSM_STATE_NONE = 0,	/* nothing mapped here */
	UKSM_STATE_ANON = 1,	/* an ordinary private page: a candidate */
	UKSM_STATE_FRAME = 2,	/* a frame of this domain; uksm_page.frame names it */
	UKSM_STATE_ZERO = 3,	/* the zero page */
	UKSM_STATE_ORPHAN = 4,	/* a frame of a domain that is gone: a candidate */
	UKSM_STATE_FOREIGN = 5,	/* a frame of another living domain (by fork) */
	UKSM_STATE_KSM = 6,	/* merged by in-kernel KSM */
	UKSM_STATE_SWAP = 7,	/* swapped out, or being migrated */
	UKSM_STATE_OTHER = 8,	/* file, device or special page */
	UKSM_STATE_REFUSED = 9,	/* the mapping is of a kind never merged */
	UKSM_STATE_UNMAPPED = 10,	/* outside every mapping */
	UKSM_STATE_DEAD = 11,	/* the space's process is gone */
	UKSM_STATE_RETRY = 12,	/* the address space was locked: ask again later */
	UKSM_STATE_POISONED = 13,	/* its memory has failed; it is never read */
};

#define UKSM_PAGE_YOUNG		(1u << 0)	/* accessed since last cleared */
#define UKSM_PAGE_DIRTY		(1u << 1)
#define UKSM_PAGE_WRITE		(1u << 2)	/* mapped writable */
#define UKSM_PAGE_HUGE		(1u << 3)	/* part of a huge page */
#define UKSM_PAGE_SHARED	(1u << 4)	/* mapped more than once */
#define UKSM_PAGE_PINNED	(1u << 5)	/* more references than mappings explain */
#define UKSM_PAGE_LOCKED	(1u << 6)	/* the mapping is mlocked */

struct uksm_page {
	__u64 hash;
	__u32 frame;		/* 0 unless FRAME */
	__u16 state;		/* enum uksm_state */
	__u16 flags;		/* UKSM_PAGE_* */
};

struct uksm_sample {
	__u64 runs;		/* struct uksm_run[nr_runs] */
	__u64 pages;		/* struct uksm_page[nr_pages], written */
	__u32 nr_runs;
	__u32 nr_pages;		/* the sum of the runs' counts, or EINVAL */
	__u16 from;		/* lines, 0..UKSM_PAGE_LINES, from <= to */
	__u16 to;
	__u32 flags;		/* none defined */
	__u32 done;		/* out: pages answered */
	__u32 pad;
};
#define UKSM_IOC_SAMPLE		_IOWR(0xDE, 5, struct uksm_sample)

/*
 * FOLD - merge pages
 *
 * Entries are tried in the order given. Neighbouring entries of one space and
 * one page table (2 MiB) are handled under one lock, one flush, one notifier
 * pair, at most UKSM_LOCK_BATCH at a time: send sorted runs.
 *
 *  kind FRAME  merge the page into frame `frame`
 *  kind SET    merge the page with the other entries of this call that carry
 *		the same `set`: the first that can be taken becomes a new frame,
 *		the others are compared with it. An entry that would be left
 *		alone makes no frame: put the page seen longest ago first.
 *		Once the frame has sharer_limit mappings, the next entry becomes
 *		another frame, so `frame` must be read from each entry. An orphan
 *		of a domain with the same hash_seed becomes a frame where it is,
 *		without a copy: a daemon that comes again carries on.
 *  kind ZERO   map the zero page if the page holds only zeros; only in anonymous
 *		mappings, because the kernel drops zero pages, and not anonymous
 *		ones, from a private file mapping whose file loses the page
 *
 * Memory registered with userfaultfd is merged if it is registered for missing
 * pages only. Entries that userfaultfd has write-protected are refused.
 *
 * With lines > 0 a page that is left alone because its hash over [0, lines) is
 * no longer `hash` is told apart (DIFFERED, STALE) from one that has this hash
 * and other contents. A page that would become a frame, or be split, is checked
 * first; one that is compared anyway, only if the comparison fails.
 */
enum uksm_kind {
	UKSM_KIND_FRAME = 0,
	UKSM_KIND_SET = 1,
	UKSM_KIND_ZERO = 2,
};

enum uksm_status {
	UKSM_STATUS_UNTRIED = 0,
	UKSM_STATUS_MERGED = 1,
	UKSM_STATUS_ALREADY = 2,
	UKSM_STATUS_ZEROED = 3,
	UKSM_STATUS_DIFFERED = 4,
	UKSM_STATUS_BUSY = 5,
	UKSM_STATUS_GONE = 6,
	UKSM_STATUS_FULL = 7,
	UKSM_STATUS_REFUSED = 8,
};

enum uksm_reason {
	UKSM_REASON_NONE = 0,
	/* DIFFERED */
	UKSM_REASON_CONTENT = 1,	/* all bytes were compared and some differ */
	UKSM_REASON_STALE = 2,		/* the hash is no longer the one given */
	UKSM_REASON_ALONE = 3,		/* no other entry of its set was left */
	/* BUSY */
	UKSM_REASON_PINNED = 4,		/* somebody holds a reference */
	UKSM_REASON_SWAPCACHE = 5,
	UKSM_REASON_LOCK = 6,		/* a lock was taken: try later */
	UKSM_REASON_RACED = 7,		/* the page tables changed meanwhile */
	/* GONE */
	UKSM_REASON_UNMAPPED = 8,
	UKSM_REASON_SWAPPED = 9,
	UKSM_REASON_DEAD = 10,		/* the space's process is gone */
	UKSM_REASON_NO_FRAME = 11,	/* no such frame in this domain */
	/* FULL */
	UKSM_REASON_SHARERS = 12,	/* the frame has sharer_limit mappings */
	UKSM_REASON_FRAMES = 13,	/* the domain has frame_limit frames */
	UKSM_REASON_MEMORY = 14,	/* no memory for a frame, or its cgroup is full */
	/* REFUSED */
	UKSM_REASON_MAPPING = 15,	/* shared, device, hugetlb, droppable, ... mapping */
	UKSM_REASON_USERFAULT = 16,	/* userfaultfd tracks writes to it, or shares it */
	UKSM_REASON_LOCKED = 17,	/* mlocked, and UKSM_FOLD_LOCKED not given */
	UKSM_REASON_HUGE = 18,		/* huge, and UKSM_FOLD_SPLIT not given or in vain */
	UKSM_REASON_NOT_ANON = 19,	/* a file page, a special page */
	UKSM_REASON_KSM = 20,		/* merged by in-kernel KSM */
	UKSM_REASON_FOREIGN = 21,	/* a frame of another domain */
	UKSM_REASON_ZERO = 22,		/* the zero page may not be mapped here */
	/* GONE (the frame's memory has failed) or REFUSED (the page's) */
	UKSM_REASON_POISONED = 23,
};

struct uksm_fold_entry {
	__u64 address;
	__u64 hash;		/* expected, if lines > 0 */
	__u32 space;
	__u32 frame;		/* in: kind FRAME; out: the frame now mapped, or 0 */
	__u16 set;		/* kind SET: below UKSM_MAX_FOLD; else 0 */
	__u8 kind;		/* enum uksm_kind */
	__u8 status;		/* out: enum uksm_status; 0 in */
	__u8 reason;		/* out: enum uksm_reason; 0 in */
	__u8 pad[3];
};

#define UKSM_FOLD_SPLIT		(1u << 0)	/* split huge pages in the way */
#define UKSM_FOLD_LOCKED	(1u << 1)	/* merge in mlocked mappings, too */
/*
 * First empty the per-CPU LRU batches, on all CPUs. Needed once a round. The module
 * does this at most every 20 ms: calls that ask for it more often wait.
 */
#define UKSM_FOLD_DRAIN		(1u << 2)
#define UKSM_FOLD_FLAGS		((1u << 3) - 1)

struct uksm_fold {
	__u64 entries;		/* struct uksm_fold_entry[count], updated */
	__u32 count;
	__u32 flags;		/* UKSM_FOLD_* */
	__u16 lines;		/* 0..UKSM_PAGE_LINES */
	__u16 pad;
	__u32 done;		/* out: entries tried */
};
#define UKSM_IOC_FOLD		_IOWR(0xDE, 6, struct uksm_fold)

/*
 * BREAK - give merged pages of a range their own copy again
 *
 * Breaks frames of this domain and orphans, nothing else. Stops (stopped = 1) where
 * the machine, or the target's cgroup, would have less than UKSM_BREAK_MARGIN pages
 * left afterwards: the target must be able to go on. next is where to go on; end
 * when through.
 */
#define UKSM_BREAK_MARGIN	64

struct uksm_break {
	__u32 space;
	__u32 flags;		/* none defined */
	__u64 start;
	__u64 end;
	__u64 next;		/* out */
	__u64 broken;		/* out: pages */
	__u32 stopped;		/* out */
	__u32 pad;
};
#define UKSM_IOC_BREAK		_IOWR(0xDE, 7, struct uksm_break)

/*
 * COUNT - pages of a range by state
 *
 * Holes cost nothing, and hugetlb mappings are left out. One call looks at a bounded
 * number of page tables; next is where to go on; end when through.
 */
struct uksm_count {
	__u32 space;
	__u32 flags;		/* none defined */
	__u64 start;
	__u64 end;
	__u64 next;		/* out */
	__u64 pages[16];	/* out: by enum uksm_state; NONE and UNMAPPED stay 0 */
	__u64 huge;		/* out: those of ANON that are part of a huge page */
};
#define UKSM_IOC_COUNT		_IOWR(0xDE, 8, struct uksm_count)

/*
 * FRAMES - list the domain's frames, by ascending id, from cursor on
 *
 * sharers is the number of mappings. hash is the sum over the lines [from, to)
 * as in SAMPLE (a frame's contents never change, so its hash follows a change
 * of strength exactly). With REAP a frame without mappings is freed and listed
 * with sharers 0, and a poisoned one is given up: its mappings stay as they are,
 * nothing is merged into it any more. cursor is where to go on, 0 when through.
 *
 * The module frees frames without mappings by itself when the machine is short of
 * memory. Their ids can then name other frames.
 */
#define UKSM_FRAMES_REAP	(1u << 0)

#define UKSM_FRAME_POISONED	(1u << 0)	/* its memory has failed; hash is 0 */

struct uksm_frame {
	__u64 hash;
	__u32 frame;
	__u32 sharers;
	__u32 flags;		/* UKSM_FRAME_* */
	__u32 pad;
};

struct uksm_frames {
	__u64 frames;		/* struct uksm_frame[count], written */
	__u32 count;
	__u32 cursor;		/* in, out */
	__u16 from;
	__u16 to;
	__u32 flags;		/* UKSM_FRAMES_* */
	__u32 done;		/* out: frames listed */
	__u32 freed;		/* out: frames freed */
};
#define UKSM_IOC_FRAMES		_IOWR(0xDE, 9, struct uksm_frames)

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
 * fold(a, b) is the exclusive or of the halves of the 128-bit product a * b.
 *
 *   line(l) = fold(line_key[l] ^ sum over i in 0, 2, 4, 6 of
 *		    fold(w[i] ^ word_key[i], w[i + 1] ^ word_key[i + 1]),
 *		    0x9FB21C651E98DF25)
 *   hash of [from, to) = sum over i of line(order[i]), modulo 2^64
 *
 * hash_vectors.txt holds values that both sides are tested against.
 */

#endif /* UKSM_IOCTL_H */
