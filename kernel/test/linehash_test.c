// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module's line hash is the contract's
 *
 * interface/hash_vectors.txt is shared with the tests of the policy. A line is
 * "seed content_seed from to hash", "#" begins a comment; content 0 is the zero
 * page, another one the words that splitmix64 gives from that state on.
 */
#include <string.h>

#include "check.h"
#include "linehash.h"

#define PAGE_WORDS	(UKSM_PAGE_SIZE / 8)

static void fill(__u64 *page, __u64 content)
{
	int i;

	memset(page, 0, UKSM_PAGE_SIZE);
	if (!content)
		return;
	for (i = 0; i < PAGE_WORDS; i++)
		page[i] = splitmix64(&content);
}

static __u64 hash_of(__u64 key_seed, __u64 content, unsigned int from,
		     unsigned int to)
{
	__u64 *page = aligned_alloc(8, UKSM_PAGE_SIZE);
	struct uksm_hash_key key;
	__u64 hash;

	CHECK(page);
	fill(page, content);
	uksm_hash_key_init(&key, key_seed);
	hash = uksm_hash_lines(&key, page, from, to);
	free(page);
	return hash;
}

static unsigned int vectors_hold(const char *path)
{
	unsigned int number = 0, vectors = 0;
	FILE *file = fopen(path, "r");
	char line[256];

	if (!file) {
		fprintf(stderr, "%s: cannot be read; the hash stays unproven\n",
			path);
		exit(1);
	}
	while (fgets(line, sizeof(line), file)) {
		unsigned long long field[5];
		char *at = line, *end;
		int i;

		number++;
		if (line[0] == '#' || line[0] == '\n')
			continue;
		for (i = 0; i < 5; i++, at = end) {
			field[i] = strtoull(at, &end, 0);
			if (at == end)
				break;
		}
		if (i < 5 || field[2] > field[3] || field[3] > UKSM_PAGE_LINES) {
			fprintf(stderr, "%s:%u: not five numbers\n", path, number);
			exit(1);
		}
		if (hash_of(field[0], field[1], field[2], field[3]) != field[4]) {
			fprintf(stderr, "%s:%u: the module's hash is %#llx\n",
				path, number, (unsigned long long)
				hash_of(field[0], field[1], field[2], field[3]));
			exit(1);
		}
		vectors++;
	}
	fclose(file);
	CHECK(vectors > 0);
	return vectors;
}

static void order_is_a_permutation(void)
{
	__u64 state = seed;
	int i, j;

	for (i = 0; i < 1000; i++) {
		struct uksm_hash_key key;
		__u64 seen = 0;

		uksm_hash_key_init(&key, splitmix64(&state));
		for (j = 0; j < UKSM_PAGE_LINES; j++)
			seen |= 1ull << key.order[j];
		CHECK(seen == ~0ull);
	}
}

/* The hash at one strength becomes that at another by what lies between. */
static void ranges_add_up(void)
{
	__u64 key_seed = seed + 1, content = seed + 2;
	int a, b;

	for (a = 0; a <= UKSM_PAGE_LINES; a++) {
		for (b = a; b <= UKSM_PAGE_LINES; b += 7)
			CHECK(hash_of(key_seed, content, 0, a) +
			      hash_of(key_seed, content, a, b) ==
			      hash_of(key_seed, content, 0, b));
		CHECK(hash_of(key_seed, content, a, a) == 0);
	}
}

/* Changing a line changes the hash of exactly the ranges that hold it. */
static void each_bit_counts_where_it_is(void)
{
	__u64 page[PAGE_WORDS];
	struct uksm_hash_key key;
	int bit, i;

	uksm_hash_key_init(&key, seed);
	fill(page, seed + 3);
	for (bit = 0; bit < UKSM_PAGE_SIZE * 8; bit += 61) {
		__u64 before[UKSM_PAGE_LINES];
		int line = bit / 8 / UKSM_LINE_SIZE;

		for (i = 0; i < UKSM_PAGE_LINES; i++)
			before[i] = uksm_hash_lines(&key, page, i, i + 1);
		page[bit / 64] ^= 1ull << bit % 64;
		for (i = 0; i < UKSM_PAGE_LINES; i++)
			CHECK((uksm_hash_lines(&key, page, i, i + 1) != before[i]) ==
			      (key.order[i] == line));
	}
}

/* What a node adds tells nodes apart, adds up over ranges, and is nothing for zeros. */
static void nodes_tell_all_contents_but_zeros_apart(void)
{
	__u64 page[PAGE_WORDS], zero[PAGE_WORDS] = {};
	struct uksm_hash_key key;
	unsigned int node, to;

	uksm_hash_key_init(&key, seed);
	fill(page, seed + 4);
	/* One line of zeros among others. */
	memset((char *)page + key.order[7] * UKSM_LINE_SIZE, 0, UKSM_LINE_SIZE);
	CHECK(uksm_hash_node(&key, page, 7, 8, 5) == 0);
	for (to = 1; to <= UKSM_PAGE_LINES; to++) {
		__u64 one = uksm_hash_node(&key, page, 0, to, 1);

		CHECK(uksm_hash_node(&key, page, 0, to, 0) == 0);
		for (node = 2; node < 1024; node++)
			CHECK(uksm_hash_node(&key, page, 0, to, node) != one);
		CHECK(one && one == uksm_hash_node(&key, page, 0, to / 2, 1) +
				   uksm_hash_node(&key, page, to / 2, to, 1));
		CHECK(uksm_hash_node(&key, zero, 0, to, 9) == 0);
	}
}

void test_linehash(const char *vectors)
{
	unsigned int n = vectors_hold(vectors);

	order_is_a_permutation();
	ranges_add_up();
	each_bit_counts_where_it_is();
	nodes_tell_all_contents_but_zeros_apart();
	printf("linehash: %u vectors hold\n", n);
}
