// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device, its domains, and the way from a call to its verb
 *
 * Problem: daemons that do not trust each other, and that may be killed at any
 * time, merge pages on one machine. Approach: what belongs together is a
 * domain, which lives exactly as long as an open file of /dev/uksm does. Its
 * end needs no cooperation: spaces are forgotten and frames become orphans,
 * which need neither the domain nor the module (see frame.c).
 *
 * Who may open the device needs CAP_SYS_ADMIN; what may be attached is checked
 * again at each ATTACH. A file can thus be sealed and handed to somebody who
 * could not have opened it.
 */
#include <linux/bits.h>
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/memcontrol.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "domain.h"
#include "faults.h"
#include "frame.h"
#include "pool.h"
#include "request.h"
#include "shrinker.h"
#include "symbols.h"

#ifdef UKSM_TEST
unsigned int uksm_faults;
module_param_named(faults, uksm_faults, uint, 0600);
MODULE_PARM_DESC(faults, "what to do wrong (test builds only)");
#endif

/* All domains. Changed under domains_mutex; read under it, or under RCU. */
static LIST_HEAD(domains);
static DEFINE_MUTEX(domains_mutex);

/**
 * uksm_each_domain() - ask all domains for something, when memory is short
 * @fn: whom to ask; the domain stays meanwhile
 * @budget: handed on to each
 *
 * Return: the sum of the answers; 0 if domains come or go just now.
 */
long uksm_each_domain(long (*fn)(struct uksm_domain *domain, long budget),
		      long budget)
{
	struct uksm_domain *domain;
	long sum = 0;

	if (!mutex_trylock(&domains_mutex))
		return 0;
	list_for_each_entry(domain, &domains, link)
		sum += fn(domain, budget);
	mutex_unlock(&domains_mutex);
	return sum;
}

/**
 * uksm_other_domain_has() - is a frame with this id another domain's?
 * @domain: who asks; not searched
 * @folio: the page
 * @id: its id
 *
 * Rare: a process of one domain forked one that is in another.
 */
bool uksm_other_domain_has(struct uksm_domain *domain,
			   const struct folio *folio, u32 id)
{
	struct uksm_domain *other;
	bool found = false;

	rcu_read_lock();
	list_for_each_entry_rcu(other, &domains, link) {
		if (other != domain &&
		    uksm_lookup_frame(&other->frame_ids, id) == folio) {
			found = true;
			break;
		}
	}
	rcu_read_unlock();
	return found;
}

/**
 * uksm_add_counters() - add what a call counted to its domain's counters
 * @domain: the domain
 * @counters: the call's counts
 *
 * At once, so that the equation of INFO holds whenever somebody looks.
 */
void uksm_add_counters(struct uksm_domain *domain, const struct uksm_counters *counters)
{
	struct uksm_counters *sum = &domain->counters;
	int i;

	spin_lock(&domain->counters_lock);
	for (i = 0; i < ARRAY_SIZE(sum->by_status); i++)
		sum->by_status[i] += counters->by_status[i];
	sum->broken += counters->broken;
	sum->splits += counters->splits;
	sum->split_zeroed += counters->split_zeroed;
	sum->frames_made += counters->frames_made;
	sum->adopted += counters->adopted;
	sum->frames_freed += counters->frames_freed;
	sum->poisoned += counters->poisoned;
	sum->sampled += counters->sampled;
	spin_unlock(&domain->counters_lock);
}

static u32 features(void)
{
	u32 found = 0;

	if (IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE))
		found |= UKSM_FEATURE_SPLIT;
	if (uksm_memcg_charges_kernel())
		found |= UKSM_FEATURE_CHARGE;
#ifdef UKSM_TEST
	found |= UKSM_FEATURE_FAULTS;
#endif
	return found;
}

static long info(struct uksm_domain *domain, struct uksm_info *answer)
{
	struct uksm_counters counters;
	int i;

	spin_lock(&domain->counters_lock);
	counters = domain->counters;
	spin_unlock(&domain->counters_lock);

	*answer = (struct uksm_info) {
		.api_version = UKSM_API_VERSION +
			       uksm_fault(UKSM_FAULT_OTHER_VERSION),
		.features = features(),
		.max_runs = UKSM_MAX_RUNS,
		.max_pages = UKSM_MAX_PAGES,
		.max_fold = UKSM_MAX_FOLD,
		.max_frames = UKSM_MAX_FRAMES,
		.lock_batch = UKSM_LOCK_BATCH,
		.frames = counters.frames_made - counters.frames_freed,
		.merged = counters.by_status[UKSM_STATUS_MERGED],
		.already = counters.by_status[UKSM_STATUS_ALREADY],
		.zeroed = counters.by_status[UKSM_STATUS_ZEROED],
		.differed = counters.by_status[UKSM_STATUS_DIFFERED],
		.busy = counters.by_status[UKSM_STATUS_BUSY],
		.gone = counters.by_status[UKSM_STATUS_GONE],
		.full = counters.by_status[UKSM_STATUS_FULL],
		.refused = counters.by_status[UKSM_STATUS_REFUSED],
		.broken = counters.broken,
		.splits = counters.splits,
		.split_zeroed = counters.split_zeroed,
		.frames_made = counters.frames_made,
		.adopted = counters.adopted,
		.frames_freed = counters.frames_freed,
		.poisoned = counters.poisoned,
		.sampled = counters.sampled,
	};
	for (i = UKSM_STATUS_MERGED; i <= UKSM_STATUS_REFUSED; i++)
		answer->tried += counters.by_status[i];

	mutex_lock(&domain->lock);
	answer->spaces = domain->nr_spaces;
	answer->hash_seed = domain->hash_seed;
	answer->frame_limit = domain->frame_limit;
	answer->sharer_limit = domain->sharer_limit;
	answer->sealed = domain->sealed;
	mutex_unlock(&domain->lock);
	return 0;
}

static void set_seed(struct uksm_domain *domain, u64 seed)
{
	domain->hash_seed = seed;
	/* Never the id of a frame, which is positive as an int. */
	domain->lineage = seed | BIT_ULL(63);
	uksm_hash_key_init(&domain->key, seed);
}

static long configure(struct uksm_domain *domain,
		      const struct uksm_configure *request)
{
	long error = uksm_check_configure(request);

	if (error)
		return error;
	mutex_lock(&domain->lock);
	if (domain->attached || domain->sealed) {
		error = -EBUSY;
		goto unlock;
	}
	if (request->hash_seed)
		set_seed(domain, request->hash_seed);
	if (request->frame_limit)
		domain->frame_limit = min_t(u64, request->frame_limit, INT_MAX);
	if (request->sharer_limit)
		domain->sharer_limit = request->sharer_limit;
unlock:
	mutex_unlock(&domain->lock);
	return error;
}

static long seal(struct uksm_domain *domain)
{
	mutex_lock(&domain->lock);
	domain->sealed = true;
	mutex_unlock(&domain->lock);
	return 0;
}

/* A request and its answer: every verb has one struct for both. */
union request {
	struct uksm_info info;
	struct uksm_configure configure;
	struct uksm_attach attach;
	struct uksm_detach detach;
	struct uksm_sample sample;
	struct uksm_fold fold;
	struct uksm_break broken;
	struct uksm_count count;
	struct uksm_frames frames;
};

/* Every verb, at the place of its number. */
static const unsigned int verbs[] = {
	UKSM_IOC_INFO,
	UKSM_IOC_CONFIGURE,
	UKSM_IOC_ATTACH,
	UKSM_IOC_DETACH,
	UKSM_IOC_SEAL,
	UKSM_IOC_SAMPLE,
	UKSM_IOC_FOLD,
	UKSM_IOC_BREAK,
	UKSM_IOC_COUNT,
	UKSM_IOC_FRAMES,
};

static bool known(unsigned int verb)
{
	return _IOC_NR(verb) < ARRAY_SIZE(verbs) &&
	       verbs[_IOC_NR(verb)] == verb;
}

static long dispatch(struct uksm_domain *domain, unsigned int verb,
		     union request *request)
{
	switch (verb) {
	case UKSM_IOC_INFO:
		return info(domain, &request->info);
	case UKSM_IOC_CONFIGURE:
		return configure(domain, &request->configure);
	case UKSM_IOC_ATTACH:
		return uksm_attach(domain, &request->attach);
	case UKSM_IOC_DETACH:
		return uksm_detach(domain, &request->detach);
	case UKSM_IOC_SEAL:
		return seal(domain);
	case UKSM_IOC_SAMPLE:
		return uksm_sample(domain, &request->sample);
	case UKSM_IOC_FOLD:
		return uksm_fold(domain, &request->fold);
	case UKSM_IOC_BREAK:
		return uksm_break(domain, &request->broken);
	case UKSM_IOC_COUNT:
		return uksm_count(domain, &request->count);
	case UKSM_IOC_FRAMES:
		return uksm_frames(domain, &request->frames);
	default:
		return -ENOTTY;
	}
}

/*
 * A verb holds the size and direction of its struct, so what is known also fits.
 * An answer is copied out only by a call that succeeds.
 */
static long uksm_ioctl(struct file *file, unsigned int verb, unsigned long arg)
{
	void __user *user = (void __user *)arg;
	union request request = {};
	long result;

	if (!known(verb))
		return -ENOTTY;
	if (_IOC_DIR(verb) & _IOC_WRITE &&
	    copy_from_user(&request, user, _IOC_SIZE(verb)))
		return -EFAULT;
	result = dispatch(file->private_data, verb, &request);
	if (!result && _IOC_DIR(verb) & _IOC_READ &&
	    copy_to_user(user, &request, _IOC_SIZE(verb)))
		return -EFAULT;
	return result;
}

static int uksm_open(struct inode *inode, struct file *file)
{
	struct uksm_domain *domain;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	domain = kzalloc(sizeof(*domain), UKSM_GFP);
	if (!domain)
		return -ENOMEM;
	mutex_init(&domain->lock);
	xa_init_flags(&domain->spaces, XA_FLAGS_ALLOC1);
	uksm_frame_ids_init(&domain->frame_ids);
	init_rwsem(&domain->frames_lock);
	uksm_pool_init(&domain->pool);
	spin_lock_init(&domain->counters_lock);
	domain->frame_limit = totalram_pages() / 4;
	domain->sharer_limit = UKSM_MAX_SHARERS;
	domain->memcg = get_mem_cgroup_from_mm(current->mm);
	set_seed(domain, get_random_u64());

	mutex_lock(&domains_mutex);
	list_add_rcu(&domain->link, &domains);
	mutex_unlock(&domains_mutex);
	file->private_data = domain;
	return nonseekable_open(inode, file);
}

/* The last copy of the file is gone, so no call is under way. */
static int uksm_release(struct inode *inode, struct file *file)
{
	struct uksm_domain *domain = file->private_data;

	uksm_detach_all(domain);
	kfree(domain->fold_call);
	/* Afterwards reclaim looks at it no longer. */
	mutex_lock(&domains_mutex);
	list_del_rcu(&domain->link);
	mutex_unlock(&domains_mutex);
	uksm_release_frames(domain);
	mem_cgroup_put(domain->memcg);
	/* uksm_other_domain_has() may be looking at it. */
	kfree_rcu(domain, rcu);
	return 0;
}

static const struct file_operations uksm_operations = {
	.owner = THIS_MODULE,
	.open = uksm_open,
	.release = uksm_release,
	.unlocked_ioctl = uksm_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "uksm",
	.fops = &uksm_operations,
	.mode = 0600,
};

static int __init uksm_init(void)
{
	int error;

	error = uksm_check_kernel() ?: uksm_find_symbols();
	if (error)
		return error;
	error = uksm_shrinker_init();
	if (error)
		return error;
	error = misc_register(&device);
	if (error)
		uksm_shrinker_exit();
	return error;
}

/* Open files hold the module, so there is no domain, space or frame left. */
static void __exit uksm_exit(void)
{
	misc_deregister(&device);
	uksm_shrinker_exit();
}

module_init(uksm_init);
module_exit(uksm_exit);
MODULE_DESCRIPTION("Merges equal memory pages as a program in user space suggests");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
