// SPDX-License-Identifier: GPL-2.0-only
/*
 * MAPPINGS: the private mappings of a space
 *
 * Who decides what to merge must know where there is memory. The kernel tells that as
 * text, which costs a microsecond a mapping to print and parse, and only those who may
 * open files of /proc. So one call copies what the text says, as numbers, to who holds
 * the domain's file. What the flags mean for merging is not decided here, but for one:
 * which mappings the module itself refuses.
 *
 * The read side of the target's mmap lock keeps the tree of its mappings, their ends
 * and flags as they are; the growth of a stack takes the write side, too. It is held for
 * PER_HOLD mappings, and a page of answers is copied after it and the reference to the
 * target were dropped: the caller may be its own target, and may never come back from a
 * fault of its own. Between two holds, the place to go on is an address and no pointer,
 * so it does not matter what has become of the mappings behind it.
 *
 * Heap and stack are known by single words of the mm_struct, which prctl(2) changes
 * without the write side. They are names: nothing depends on them but an estimate of
 * how long the memory lives.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "bounds.h"
#include "domain.h"
#include "space.h"
#include "target_lock.h"
#include "verbs.h"
#include "walk.h"

/* Mappings under one hold of the mmap lock: a page of answers. */
#define PER_HOLD	(PAGE_SIZE / sizeof(struct uksm_mapping))
/* Holds of one call: as many as it needs to fill the longest list. */
#define HOLDS		DIV_ROUND_UP(UKSM_MAX_MAPPINGS, PER_HOLD)

static u32 flags_of(struct vm_area_struct *vma)
{
	struct mm_struct *mm = vma->vm_mm;
	unsigned long stack = READ_ONCE(mm->start_stack);
	u32 flags = 0;

	if (vma->vm_flags & VM_READ)
		flags |= UKSM_MAPPING_READ;
	if (vma->vm_flags & VM_WRITE)
		flags |= UKSM_MAPPING_WRITE;
	if (vma->vm_flags & VM_EXEC)
		flags |= UKSM_MAPPING_EXEC;
	if (uksm_eligible(vma) == UKSM_INELIGIBLE)
		flags |= UKSM_MAPPING_REFUSED;
	if (vma->vm_flags & VM_MERGEABLE)
		flags |= UKSM_MAPPING_MERGEABLE;
	if (vma->vm_file)
		flags |= UKSM_MAPPING_FILE;
	else if (vma->vm_start < READ_ONCE(mm->brk) &&
		 vma->vm_end > READ_ONCE(mm->start_brk))
		flags |= UKSM_MAPPING_HEAP;
	else if (vma->vm_start <= stack && vma->vm_end >= stack)
		flags |= UKSM_MAPPING_STACK;
	return flags;
}

/*
 * Lists up to @room mappings from request->next on, under one hold of the mmap lock,
 * and moves request->next. Returns how many.
 */
static u32 list_some(struct uksm_mappings *request, struct mm_struct *mm,
		     struct uksm_mapping *answers, u32 room)
{
	unsigned long start = request->next;
	struct vm_area_struct *vma;
	u32 listed = 0, looked = 0;

	VMA_ITERATOR(vmi, mm, start);

	for_each_vma(vmi, vma) {
		if (listed == room || looked++ == PER_HOLD)
			return listed;
		request->next = vma->vm_end;
		if (vma->vm_flags & (VM_SHARED | VM_MAYSHARE))
			continue;
		answers[listed++] = (struct uksm_mapping) {
			.start = max(vma->vm_start, start),
			.end = vma->vm_end,
			.flags = flags_of(vma),
		};
	}
	request->next = 0;
	return listed;
}

/* The same with a reference to the target. Returns how many, or an error. */
static long list_target(struct uksm_domain *domain,
			struct uksm_mappings *request,
			struct uksm_lock_tries *tries,
			struct uksm_mapping *answers, u32 room)
{
	struct uksm_space_ref ref = { .domain = domain };
	long listed;

	listed = uksm_get_space(&ref, request->space);
	if (listed)
		return listed;
	if (!ref.mm) {
		request->gone = 1;
	} else {
		listed = uksm_lock_mappings(ref.mm, tries);
		if (!listed) {
			listed = list_some(request, ref.mm, answers, room);
			mmap_read_unlock(ref.mm);
		}
	}
	uksm_put_space(&ref);
	return listed;
}

static long list_all(struct uksm_domain *domain, struct uksm_mappings *request,
		     struct uksm_mapping *answers)
{
	struct uksm_mapping __user *user = u64_to_user_ptr(request->mappings);
	struct uksm_lock_tries tries = {};
	long listed;
	int holds;

	for (holds = 0; holds < HOLDS && request->done < request->count;
	     holds++) {
		u32 room = min_t(u32, request->count - request->done, PER_HOLD);

		listed = list_target(domain, request, &tries, answers, room);
		if (listed < 0)
			return listed;
		if (request->gone)
			break;
		if (copy_to_user(user + request->done, answers,
				 listed * sizeof(*answers)))
			return -EFAULT;
		request->done += listed;
		if (!request->next)
			break;
		cond_resched();
		if (signal_pending(current))
			break;
	}
	return 0;
}

/* The MAPPINGS verb; see the contract. */
long uksm_mappings(struct uksm_domain *domain, struct uksm_mappings *request)
{
	struct uksm_mapping *answers;
	long error;

	request->done = 0;
	request->gone = 0;
	request->next = request->start;
	answers = kmalloc(PAGE_SIZE, UKSM_GFP);
	if (!answers)
		return -ENOMEM;
	error = list_all(domain, request, answers);
	kfree(answers);
	if (request->gone) {
		request->done = 0;
		request->next = 0;
	}
	return uksm_in_part(error, request->next > request->start);
}
