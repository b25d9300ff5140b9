// SPDX-License-Identifier: GPL-2.0-only
/*
 * Do frames still hold what they held?
 *
 * Nobody writes a frame. If its contents change, memory has failed without saying so,
 * or a device or the kernel has written where it must not; and everybody who maps the
 * frame has the wrong data, not one process as otherwise. So the contents are summed
 * up when userspace first asks (FRAMES with UKSM_FRAMES_CHECK), and each time after
 * that, and compared.
 *
 * Not when the frame is made: that would cost half as much as merging two pages, and
 * most frames of memory that changes are gone before anybody asks.
 *
 * The sum takes no memory: folio->private holds the id in its low half, and the sum
 * above it. Bit 63 stays 0, by which a frame is told from an orphan (frame.c). The
 * sum has 31 bits, of all lines and by the domain's secret seed. A page that differs
 * in one line always has another full hash, and goes unseen once in 2^31 times. While
 * there is no sum it is 0.
 *
 * Adding the sum does not race with anything: domain->frames_lock is held, so that
 * nobody removes the frame; nobody else writes folio->private of a frame; and two
 * calls that ask at once note the same. Whoever reads it takes the id alone, which
 * stays.
 */
#include "faults.h"
#include "frame.h"
#include "patrol.h"

#define SUM_SHIFT	32

/* The sum of what a frame holds now; never 0. */
static unsigned long sum_up(const struct uksm_domain *domain,
			    const struct folio *folio)
{
	u64 hash = uksm_hash_lines(&domain->key, folio_address(folio), 0,
				   UKSM_PAGE_LINES);

	return ((hash ^ hash >> 32) & INT_MAX) ?: 1;
}

/**
 * uksm_has_changed() - does a frame hold something else than when this was first asked?
 * @domain: the domain; domain->frames_lock is held
 * @folio: a frame of it whose memory has not failed
 *
 * Return: false the first time.
 */
bool uksm_has_changed(const struct uksm_domain *domain, struct folio *folio)
{
	unsigned long word = (unsigned long)READ_ONCE(folio->private);
	unsigned long sum = sum_up(domain, folio);

	if (!(word >> SUM_SHIFT)) {
		WRITE_ONCE(folio->private, (void *)(word | sum << SUM_SHIFT));
		return false;
	}
	if (uksm_fault(UKSM_FAULT_FLIP_BIT) && word >> SUM_SHIFT == sum) {
		*(u8 *)folio_address(folio) ^= 1;
		sum = sum_up(domain, folio);
	}
	return word >> SUM_SHIFT != sum;
}
