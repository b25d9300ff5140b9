// SPDX-License-Identifier: GPL-2.0-only
/*
 * The partial hash of a page
 *
 * Pages must be told apart at the least cost. Reading memory costs more than
 * computing, and memory comes in cache lines. Hashes of different strength must be
 * convertible, so that a change of strength does not read everything again (UKSM,
 * section 6.2; where UKSM takes words we take lines).
 *
 * The hash of a set of lines is the sum of the hashes of its lines, so adding or
 * removing a line costs no more than hashing it. The hash of a line is keyed by its
 * position, so that exchanged lines differ, and all keys come from the domain's seed,
 * so that nobody outside can make collisions. The contract, uksm_ioctl.h, defines
 * the hash exactly.
 *
 * No branch and no address depends on the data. While somebody writes the page, the
 * result is some hash, never a fault.
 */
#include "linehash.h"

#define WORDS_PER_LINE	(UKSM_LINE_SIZE / 8)
#define LINE_FINISH	0x9FB21C651E98DF25ULL

static __u64 next_key(__u64 *state)
{
	__u64 z = *state += 0x9E3779B97F4A7C15ULL;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
	return z ^ z >> 31;
}

/* The exclusive or of the halves of the 128-bit product. */
static inline __u64 mix_product(__u64 a, __u64 b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (__u64)product ^ (__u64)(product >> 64);
}

/**
 * uksm_hash_key_init() - derive all keys and the order of lines from a seed
 * @key: what to fill
 * @seed: the domain's seed
 */
void uksm_hash_key_init(struct uksm_hash_key *key, __u64 seed)
{
	unsigned int i;

	for (i = 0; i < WORDS_PER_LINE; i++)
		key->word_key[i] = next_key(&seed);
	for (i = 0; i < UKSM_PAGE_LINES; i++)
		key->line_key[i] = next_key(&seed);
	for (i = 0; i < UKSM_PAGE_LINES; i++)
		key->order[i] = i;
	for (i = UKSM_PAGE_LINES - 1; i > 0; i--) {
		unsigned int j = (unsigned __int128)next_key(&seed) * (i + 1) >> 64;
		__u8 moved = key->order[i];

		key->order[i] = key->order[j];
		key->order[j] = moved;
	}
	key->node_key = next_key(&seed) | 1;
}

static inline __u64 hash_line(const struct uksm_hash_key *key, const __u64 *w,
			      unsigned int line)
{
	const __u64 *k = key->word_key;
	__u64 sum;

	sum = mix_product(w[0] ^ k[0], w[1] ^ k[1]);
	sum += mix_product(w[2] ^ k[2], w[3] ^ k[3]);
	sum += mix_product(w[4] ^ k[4], w[5] ^ k[5]);
	sum += mix_product(w[6] ^ k[6], w[7] ^ k[7]);
	return mix_product(key->line_key[line] ^ sum, LINE_FINISH);
}

/**
 * uksm_hash_lines() - the sum of the hashes of some lines of a page
 * @key: the domain's keys
 * @page: the page's contents, 8-byte aligned
 * @from: first line, in the order of the permutation
 * @to: one past the last line, at most UKSM_PAGE_LINES
 *
 * Return: the hash; 0 for an empty range.
 */
__u64 uksm_hash_lines(const struct uksm_hash_key *key, const void *page,
		      unsigned int from, unsigned int to)
{
	const __u64 *words = page;
	__u64 hash = 0;
	unsigned int i;

	for (i = from; i < to; i++) {
		unsigned int line = key->order[i];

		hash += hash_line(key, words + line * WORDS_PER_LINE, line);
	}
	return hash;
}

static inline bool is_zero_line(const __u64 *w)
{
	return !(w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7]);
}

/**
 * uksm_hash_node() - what the node of a page adds to the hash of some of its lines
 * @key: the domain's keys
 * @page: the page's contents, 8-byte aligned
 * @from: first line, in the order of the permutation
 * @to: one past the last line, at most UKSM_PAGE_LINES
 * @node: the node, below 2^32 / UKSM_PAGE_LINES
 *
 * A number for each line that holds something: so the sum can be converted from one
 * strength to another like the hash itself, and pages of zeros, which lie on no node when
 * they are merged, have one hash. The key is odd: contents other than zeros have different
 * sums on any two nodes.
 */
__u64 uksm_hash_node(const struct uksm_hash_key *key, const void *page,
		     unsigned int from, unsigned int to, unsigned int node)
{
	const __u64 *words = page;
	unsigned int lines = 0, i;

	for (i = from; i < to; i++)
		lines += !is_zero_line(words + key->order[i] * WORDS_PER_LINE);
	return (__u64)node * lines * key->node_key;
}
