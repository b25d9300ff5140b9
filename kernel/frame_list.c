// SPDX-License-Identifier: GPL-2.0-only
/*
 * FRAMES: list the frames of a domain, check them, and free those that nobody maps
 *
 * The list passes through a small buffer piece by piece. No lock is held between two
 * pieces, so frames come and go meanwhile. The cursor is a frame id.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "bounds.h"
#include "frame.h"
#include "patrol.h"
#include "verbs.h"

/* Frames listed between two copies to userspace. */
#define BUFFER_FRAMES	256

/* Lists up to @room frames from the cursor on; sets it to 0 after the last one. */
static u32 fill_buffer(struct uksm_domain *domain, struct uksm_frames *request,
		       struct uksm_counters *counters, struct uksm_frame *out,
		       u32 room)
{
	unsigned long id = request->cursor;
	bool reap = request->flags & UKSM_FRAMES_REAP;
	bool check = request->flags & UKSM_FRAMES_CHECK;
	struct folio *folio;
	u32 n = 0;

	while ((folio = uksm_next_frame(&domain->frame_ids, &id)) && n < room) {
		struct uksm_frame *frame = &out[n++];
		bool poisoned = uksm_poisoned(folio);
		bool changed = check && !poisoned &&
			       uksm_has_changed(domain, folio);

		*frame = (struct uksm_frame) {
			.frame = id,
			.sharers = uksm_mapcount(folio),
			.node = folio_nid(folio),
			.flags = (poisoned ? UKSM_FRAME_POISONED : 0) |
				 (changed ? UKSM_FRAME_CHANGED : 0),
		};
		if (!poisoned)
			frame->hash = uksm_hash_page(domain, &folio->page,
						     request->from,
						     request->to);
		if (changed)
			pr_warn_ratelimited("the frame in page %#lx has changed\n",
					    folio_pfn(folio));
		if (reap && (!frame->sharers || poisoned || changed)) {
			uksm_remove_frame(domain, folio, id, !changed);
			request->freed++;
			counters->poisoned += poisoned;
			counters->changed += changed;
		}
		id++;
	}
	request->cursor = folio ? id : 0;
	return n;
}

/*
 * Only FOLD maps a frame that has no mappings (fork copies mappings that exist), and
 * it holds domain->frames_lock for reading. So a mapcount of 0 that is read with the
 * write side held stays 0.
 */
static int lock_frames(struct uksm_domain *domain, u32 flags)
{
	if (flags & UKSM_FRAMES_REAP)
		return down_write_killable(&domain->frames_lock);
	return down_read_killable(&domain->frames_lock);
}

static void unlock_frames(struct uksm_domain *domain, u32 flags)
{
	if (flags & UKSM_FRAMES_REAP)
		up_write(&domain->frames_lock);
	else
		up_read(&domain->frames_lock);
}

/* The FRAMES verb; see the contract. */
long uksm_frames(struct uksm_domain *domain, struct uksm_frames *request)
{
	struct uksm_frame __user *to = u64_to_user_ptr(request->frames);
	struct uksm_counters counters = {};
	struct uksm_frame *buffer;
	long error = 0;

	request->done = 0;
	request->freed = 0;
	if (!request->count)
		return 0;
	buffer = kmalloc_array(min_t(u32, request->count, BUFFER_FRAMES),
			       sizeof(*buffer), UKSM_GFP);
	if (!buffer)
		return -ENOMEM;
	do {
		u32 room = min_t(u32, request->count - request->done,
				 BUFFER_FRAMES);
		u32 n;

		if (lock_frames(domain, request->flags)) {
			error = -EINTR;
			break;
		}
		n = fill_buffer(domain, request, &counters, buffer, room);
		unlock_frames(domain, request->flags);
		if (copy_to_user(to + request->done, buffer,
				 n * sizeof(*buffer))) {
			error = -EFAULT;
			break;
		}
		request->done += n;
		cond_resched();
	} while (request->cursor && request->done < request->count &&
		 !signal_pending(current));
	kfree(buffer);
	counters.frames_freed = request->freed;
	uksm_add_counters(domain, &counters);
	return error == -EINTR && request->done ? 0 : error;
}
