// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which address spaces belong to which domain?
 *
 * A process id means different processes at different times, processes share
 * address spaces, and two domains must never work on the same one. So a space is a
 * counted reference to one mm_struct. ATTACH finds it through a pidfd; afterwards a
 * space id names it. The reference is to the struct, not to its users: it does not
 * delay the exit of a process or the freeing of its memory. Each use of a space
 * asks for a reference to the users and fails once they are gone, so a space can
 * never become another process.
 *
 * A table of all spaces makes sure that one mm is in one domain at most. Its key is
 * the address of the mm_struct, which is unique as long as the reference is held. A
 * space leaves the table with its last reference: as long as a call works on a
 * detached space, no other domain can have its mm.
 *
 * A caller may attach under the rule of process_vm_readv(2), which lets security
 * modules object, and needs CAP_SYS_PTRACE besides. Both are checked at every call.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/lockdep.h>
#include <linux/pid.h>
#include <linux/ptrace.h>
#include <linux/rwsem.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "verbs.h"
#include "bounds.h"
#include "compat.h"
#include "domain.h"
#include "space.h"
#include "symbols.h"
#include "target_lock.h"

/* One address space in a domain. */
struct uksm_space {
	struct mm_struct *mm;		/* by mmgrab(): the struct, not its users */
	struct uksm_domain *domain;
	u32 id;
	bool detached;			/* calls may still work on it; spaces_lock */
	bool settled;			/* once true, it stays: uksm_settle_space() */
	refcount_t refs;		/* the domain's, and calls under way */
	struct hlist_node link;		/* in the table of all spaces */
	struct rcu_head rcu;
};

static DEFINE_MUTEX(spaces_lock);	/* protects spaces */
static DEFINE_HASHTABLE(spaces, 10);

/*
 * The attached space of an mm, if there is one; else a detached one on which a
 * call still works. All of them are of one domain.
 */
static struct uksm_space *find_by_mm(struct mm_struct *mm)
{
	struct uksm_space *space, *found = NULL;

	hash_for_each_possible(spaces, space, link, (unsigned long)mm) {
		if (space->mm != mm)
			continue;
		found = space;
		if (!space->detached)
			break;
	}
	return found;
}

static void drop_space(struct uksm_space *space)
{
	if (!refcount_dec_and_mutex_lock(&space->refs, &spaces_lock))
		return;
	hash_del(&space->link);
	mutex_unlock(&spaces_lock);
	mmdrop(space->mm);
	kfree_rcu(space, rcu);
}

/* May the caller read @mm, the address space of @thread? */
static bool may_access(struct task_struct *thread, struct mm_struct *mm)
{
	struct user_namespace *user_ns = uksm_user_ns(thread, mm);

	if (!user_ns || !ns_capable(user_ns, CAP_SYS_PTRACE))
		return false;
	return mm == current->mm ||
	       uksm_call(ptrace_may_access)(thread,
					    PTRACE_MODE_ATTACH_REALCREDS);
}

/*
 * Gets the address space of a process, with its users held. The first thread of a
 * process may have ended while others live on, so any thread will do. As in
 * mm_access(), the lock keeps an exec from exchanging the address space for a more
 * privileged one between the check and the use. A process can hold that lock for as
 * long as it likes; here nothing else is held yet.
 */
static struct mm_struct *mm_of_process(struct task_struct *process)
{
	struct uksm_lock_tries tries = {};
	struct mm_struct *mm = NULL;
	struct task_struct *thread;
	bool allowed = false;
	int error;

	error = uksm_lock_exec(process->signal, &tries);
	if (error)
		return ERR_PTR(error);
	rcu_read_lock();
	for_each_thread(process, thread) {
		mm = get_task_mm(thread);	/* NULL for kernel threads */
		if (!mm)
			continue;
		allowed = may_access(thread, mm);
		break;
	}
	rcu_read_unlock();
	up_read(&process->signal->exec_update_lock);
	if (!mm)
		return ERR_PTR(-ESRCH);
	if (!allowed) {
		mmput_async(mm);
		return ERR_PTR(-EPERM);
	}
	return mm;
}

static struct mm_struct *mm_of_pidfd(int pidfd)
{
	struct task_struct *process;
	struct mm_struct *mm;
	unsigned int flags;
	struct pid *pid;

	pid = uksm_call(pidfd_get_pid)(pidfd, &flags);
	if (IS_ERR(pid))
		return ERR_PTR(-EBADF);
	process = get_pid_task(pid, PIDTYPE_PID);
	put_pid(pid);
	if (!process)
		return ERR_PTR(-ESRCH);
	mm = mm_of_process(process);
	put_task_struct(process);
	return mm;
}

/* domain->lock and spaces_lock are held. */
static long add_space(struct uksm_domain *domain, struct mm_struct *mm,
		      u32 *id)
{
	struct uksm_space *space;
	int error;

	if (domain->nr_spaces >= UKSM_MAX_SPACES)
		return -ENOSPC;
	space = kzalloc(sizeof(*space), UKSM_GFP | __GFP_ACCOUNT);
	if (!space)
		return -ENOMEM;
	space->domain = domain;
	space->mm = mm;
	refcount_set(&space->refs, 1);
	/* Cyclic, so that an id is not used again soon. */
	error = xa_alloc_cyclic(&domain->spaces, &space->id, space,
				xa_limit_32b, &domain->next_space, UKSM_GFP);
	if (error < 0) {
		kfree(space);
		return error == -EBUSY ? -ENOSPC : error;
	}
	mmgrab(mm);
	hash_add(spaces, &space->link, (unsigned long)mm);
	domain->nr_spaces++;
	domain->attached = true;
	*id = space->id;
	return 0;
}

/* domain->lock is held. */
static long attach_mm(struct uksm_domain *domain, struct mm_struct *mm,
		      struct uksm_attach *request)
{
	struct uksm_space *space;
	long error = 0;

	mutex_lock(&spaces_lock);
	space = find_by_mm(mm);
	if (space && space->domain != domain) {
		error = -EBUSY;
	} else if (space && !space->detached) {
		request->space = space->id;
		request->existing = 1;
	} else {
		error = add_space(domain, mm, &request->space);
	}
	mutex_unlock(&spaces_lock);
	return error;
}

/* The ATTACH verb; see the contract. */
long uksm_attach(struct uksm_domain *domain, struct uksm_attach *request)
{
	struct mm_struct *mm;
	long error;

	request->space = 0;
	request->existing = 0;
	mm = mm_of_pidfd(request->pidfd);
	if (IS_ERR(mm))
		return PTR_ERR(mm);

	error = -EPERM;
	mutex_lock(&domain->lock);
	if (!domain->sealed)
		error = attach_mm(domain, mm, request);
	mutex_unlock(&domain->lock);
	mmput_async(mm);
	return error;
}

/* domain->lock is held, or nobody uses the domain any more. */
static void detach_space(struct uksm_domain *domain, struct uksm_space *space)
{
	xa_erase(&domain->spaces, space->id);
	domain->nr_spaces--;
	mutex_lock(&spaces_lock);
	space->detached = true;
	mutex_unlock(&spaces_lock);
	drop_space(space);
}

/* domain->lock is held, or nobody uses the domain any more. */
static void detach_spaces(struct uksm_domain *domain)
{
	struct uksm_space *space;
	unsigned long id;

	xa_for_each(&domain->spaces, id, space)
		detach_space(domain, space);
}

/* The DETACH verb; see the contract. */
long uksm_detach(struct uksm_domain *domain, struct uksm_detach *request)
{
	struct uksm_space *space;
	long error = 0;

	mutex_lock(&domain->lock);
	space = xa_load(&domain->spaces, request->space);
	if (space)
		detach_space(domain, space);
	else if (!request->space)
		detach_spaces(domain);
	else
		error = -ENOENT;
	mutex_unlock(&domain->lock);
	return error;
}

/**
 * uksm_detach_all() - detach all spaces of a domain
 * @domain: a domain that nobody uses any more
 */
void uksm_detach_all(struct uksm_domain *domain)
{
	detach_spaces(domain);
	xa_destroy(&domain->spaces);
}

/**
 * uksm_has_space() - does the domain have a space of this id?
 * @domain: the domain
 * @id: the id
 */
bool uksm_has_space(struct uksm_domain *domain, u32 id)
{
	return xa_load(&domain->spaces, id);
}

/**
 * uksm_peek_space() - the address space of a space, without a reference
 * @domain: the domain; domain->lock is held
 * @id: the space
 *
 * The lock keeps the space attached, and the space keeps the mm_struct, though not its
 * users: the process may be gone, or exit meanwhile.
 *
 * Return: the mm_struct, valid as long as the lock is held; NULL if the domain has
 *	   no such space.
 */
struct mm_struct *uksm_peek_space(struct uksm_domain *domain, u32 id)
{
	struct uksm_space *space;

	lockdep_assert_held(&domain->lock);
	space = xa_load(&domain->spaces, id);
	return space ? space->mm : NULL;
}

static struct uksm_space *lookup_space(struct uksm_domain *domain, u32 id)
{
	struct uksm_space *space;

	rcu_read_lock();
	space = xa_load(&domain->spaces, id);
	if (space && !refcount_inc_not_zero(&space->refs))
		space = NULL;
	rcu_read_unlock();
	return space;
}

/**
 * uksm_get_space() - begin to use a space, or go on using it
 * @ref: at first all zero but for the domain; afterwards ref->mm is the
 *	   address space with its users held, or NULL if its process is gone
 * @id: the space
 *
 * A call uses one space at a time, and keeps it until it asks for another one, since
 * requests are sorted by space. uksm_put_space() ends the use.
 *
 * Return: 0; -ENOENT if the domain has no such space.
 */
int uksm_get_space(struct uksm_space_ref *ref, u32 id)
{
	if (ref->space && ref->id == id)
		return 0;
	uksm_put_space(ref);
	ref->space = lookup_space(ref->domain, id);
	if (!ref->space)
		return -ENOENT;
	ref->id = id;
	if (mmget_not_zero(ref->space->mm))
		ref->mm = ref->space->mm;
	return 0;
}

/**
 * uksm_settle_space() - may frames be mapped into this space?
 * @ref: the space, whose process is not gone
 *
 * A migration to device memory that began before uksm_guard.ko was loaded takes what
 * it finds, frames too (guard_migration.c). Its caller holds the mmap lock for reading
 * from before it began until after its end. So once this call has had the write side, no
 * such migration is under way in this space, nor in one that is forked from it. (One that
 * began while root had switched the guard's kprobe off is as one before: it takes frames
 * that are mapped then, which nothing protects, and those that are mapped before it ends.)
 *
 * Return: false if the lock could not be had.
 */
bool uksm_settle_space(const struct uksm_space_ref *ref)
{
	if (READ_ONCE(ref->space->settled))
		return true;
	/* Not mmap_write_unlock(): this changes no mapping, and has locked none. */
	if (!down_write_trylock(&ref->mm->mmap_lock))
		return false;
	up_write(&ref->mm->mmap_lock);
	WRITE_ONCE(ref->space->settled, true);
	return true;
}

/**
 * uksm_put_space() - end the use of a space
 * @ref: the reference
 *
 * The call may be the last user of the address space. Freeing it can take long and
 * is not the caller's work, so a kernel worker does it.
 */
void uksm_put_space(struct uksm_space_ref *ref)
{
	if (ref->mm)
		mmput_async(ref->mm);
	if (ref->space)
		drop_space(ref->space);
	ref->mm = NULL;
	ref->space = NULL;
	ref->id = 0;
}
