// SPDX-License-Identifier: GPL-2.0-only
/*
 * Do frames still hold what they were made with?
 *
 * Nobody writes a frame. If its contents change, memory has failed without saying so,
 * or a device or the kernel has written where it must not; and everybody who maps the
 * frame has the wrong data, not one process as otherwise. So the contents are summed
 * up when a frame is made, and summed up again when userspace asks (FRAMES with
 * UKSM_FRAMES_CHECK).
 *
 * The sum takes no memory: folio->private holds the id in its low half, and the sum
 * above it. Bit 63 stays 0, by which a frame is told from an orphan (frame.c). The
 * sum has 31 bits, of all lines and by the domain's secret seed. A page that differs
 * in one line always has another full hash, and goes unseen once in 2^31 times.
 *
 * It is noted as soon as the page-table lock is dropped, some microseconds after the
 * copy: hashing below it would make faults of the target wait. Until then it is 0,
 * and nothing is said of the frame. An orphan that is adopted is summed up as it is
 * found.
 *
 * Adding the sum does not race with anything: FOLD holds domain->frames_lock for
 * reading, so that nobody removes the frame, and nobody else writes folio->private of
 * a frame. Whoever reads it takes the id alone, which stays.
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
 * uksm_note_contents() - remember what a frame holds
 * @domain: the domain; domain->frames_lock is held for reading
 * @folio: a frame of it that this call made or adopted
 */
void uksm_note_contents(const struct uksm_domain *domain, struct folio *folio)
{
	unsigned long word = uksm_frame_id(folio);

	if (uksm_poisoned(folio))
		return;
	word |= sum_up(domain, folio) << SUM_SHIFT;
	WRITE_ONCE(folio->private, (void *)word);
}

/**
 * uksm_has_changed() - does a frame hold something else than it was made with?
 * @domain: the domain; domain->frames_lock is held
 * @folio: a frame of it whose memory has not failed
 */
bool uksm_has_changed(const struct uksm_domain *domain,
		      const struct folio *folio)
{
	unsigned long noted = (unsigned long)READ_ONCE(folio->private) >>
			      SUM_SHIFT;

	if (uksm_fault(UKSM_FAULT_FLIP_BIT) && noted == sum_up(domain, folio))
		*(u8 *)folio_address(folio) ^= 1;
	return noted && noted != sum_up(domain, folio);
}
