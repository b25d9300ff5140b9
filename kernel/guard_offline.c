// SPDX-License-Identifier: GPL-2.0-only
/*
 * A memory block stays online as long as a failed frame in it is in use
 *
 * Offlining gives up at a page that it cannot move, which a frame is. But it passes over
 * pages whose memory has failed (PageHWPoison): memory_failure() has unmapped them. Of a
 * frame it finds no mappings and unmaps nothing. So a block whose last page in use is a
 * failed frame would go offline, and perhaps be taken out, with page tables that name
 * it, or with a domain that looks at it when it next frees frames or makes some: a
 * domain holds a frame until it has seen that nothing maps it, and then perhaps in its
 * pool, as a page with the same mapping.
 *
 * The kernel asks the notifiers after it has isolated the block, so that nothing is
 * allocated there any more, and before it empties it.
 *
 * Not covered: a frame that fails after that question.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/notifier.h>
#include <linux/page-flags.h>
#include <linux/printk.h>
#include <linux/sched.h>

#include "compat.h"
#include "guard_parts.h"

#ifdef CONFIG_MEMORY_HOTPLUG
#ifdef UKSM_TEST
static bool veto = true;
module_param(veto, bool, UKSM_GUARD_MODE);
MODULE_PARM_DESC(veto, "keep memory online that failed frames are in use in (test builds only)");
#else
#define veto	true
#endif

static bool is_failed_frame(struct page *page)
{
	const struct folio *folio;

	if (!page || !PageHWPoison(page))
		return false;
	folio = page_folio(page);
	/* One that was freed keeps this mapping, since nobody gets a failed page any more. */
	return READ_ONCE(folio->mapping) == UKSM_FRAME_MAPPING &&
	       folio_ref_count(folio) > 0;
}

static int on_memory_change(struct notifier_block *block, unsigned long action,
			    void *data)
{
	const struct memory_notify *range = data;
	unsigned long pfn;

	if (action != MEM_GOING_OFFLINE || !veto)
		return NOTIFY_DONE;
	for (pfn = range->start_pfn;
	     pfn < range->start_pfn + range->nr_pages; pfn++) {
		if (is_failed_frame(pfn_to_online_page(pfn))) {
			pr_warn("page %#lx has failed and is in use, by processes or by a domain: its memory stays online\n",
				pfn);
			return notifier_from_errno(-EBUSY);
		}
		if (!(pfn % PTRS_PER_PTE))
			cond_resched();
	}
	return NOTIFY_OK;
}

static struct notifier_block notifier = { .notifier_call = on_memory_change };

int uksm_guard_offline_init(void)
{
	return register_memory_notifier(&notifier);
}

void uksm_guard_offline_undo(void)
{
	unregister_memory_notifier(&notifier);
}
#else
int uksm_guard_offline_init(void)
{
	return 0;
}

void uksm_guard_offline_undo(void)
{
}
#endif
