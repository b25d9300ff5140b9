/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The partial hash of a page. See linehash.c.
 *
 * Ranges [from, to) are half-open. They count lines of 64 bytes in the order of the
 * key's permutation.
 */
#ifndef UKSM_LINEHASH_H
#define UKSM_LINEHASH_H

#include "portable.h"
#include "uksm_ioctl.h"

/* Everything that a domain's seed determines; about 640 bytes. */
struct uksm_hash_key {
	__u64 word_key[UKSM_LINE_SIZE / 8];
	__u64 line_key[UKSM_PAGE_LINES];
	__u8 order[UKSM_PAGE_LINES];
	__u64 node_key;		/* odd */
};

void uksm_hash_key_init(struct uksm_hash_key *key, __u64 seed);
__u64 uksm_hash_lines(const struct uksm_hash_key *key, const void *page,
		      unsigned int from, unsigned int to);
__u64 uksm_hash_node(const struct uksm_hash_key *key, const void *page,
		     unsigned int from, unsigned int to, unsigned int node);

#endif /* UKSM_LINEHASH_H */
