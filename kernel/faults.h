/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fault injection, for tests
 *
 * A test of safety that cannot fail proves nothing, and a module of another version
 * is not at hand. So in a build with UKSM_TEST=1, and in no other, the module
 * parameter "faults" turns single steps of a merge off, and the tests must then
 * fail; or it makes a merge slow, so that a test meets it, or INFO report another
 * version. In a product build uksm_fault() is a constant false and nothing of this
 * remains.
 */
#ifndef UKSM_FAULTS_H
#define UKSM_FAULTS_H

#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/types.h>

enum uksm_fault {
	UKSM_FAULT_NO_FLUSH = BIT(0),	/* TLBs keep writable entries */
	UKSM_FAULT_NO_REFERENCES = BIT(1),	/* pinned pages are merged */
	UKSM_FAULT_NO_NOTIFIER = BIT(2),	/* KVM is not told */
	UKSM_FAULT_NO_COMPARE = BIT(3),	/* different pages are merged */
	UKSM_FAULT_OTHER_VERSION = BIT(4),	/* INFO reports the next version */
	UKSM_FAULT_FLIP_BIT = BIT(5),	/* frames change before they are checked */
	UKSM_FAULT_SLOW_SCAN = BIT(6),	/* each frame takes 300 us when memory is short */
	UKSM_FAULT_FAIL_COPY = BIT(7),	/* pages that become frames have failed */
	UKSM_FAULT_EMPTY_ENTRY = BIT(8),	/* no PROT_NONE entry meanwhile */
	UKSM_FAULT_SLOW_EXCHANGE = BIT(9),	/* pages are held for 2 ms */
	UKSM_FAULT_SLOW_BREAK = BIT(10),	/* BREAK takes 100 ms from check to fault */
	UKSM_FAULT_BREAK_READS = BIT(11),	/* its faults can read files */
	UKSM_FAULT_MOVABLE_FRAMES = BIT(14),	/* frames come from ZONE_MOVABLE */
};

#ifdef UKSM_TEST
extern unsigned int uksm_faults;

static inline bool uksm_fault(enum uksm_fault fault)
{
	return READ_ONCE(uksm_faults) & fault;
}
#else
static inline bool uksm_fault(enum uksm_fault fault)
{
	return false;
}
#endif

#endif /* UKSM_FAULTS_H */
