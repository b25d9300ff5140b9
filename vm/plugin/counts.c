// SPDX-License-Identifier: GPL-2.0-only
/*
 * Instructions by block and owner.
 *
 * Problem: millions of blocks are entered a second, and whose they are is known
 * only when the task has had its turn.
 * Approach: entering a block adds to a number. When a task's turn ends, all
 * numbers that are not zero go to the owner.
 * Units: instructions of the guest. A block that is left early, by a fault,
 * counts whole.
 */
#include <stdlib.h>
#include <string.h>

#include "counts.h"

#define CHUNK 4096u
#define MAX_CHUNKS 1024u

/* Numbers that do not move, and what they are of. */
struct chunk {
	uint64_t waiting[CHUNK];
	struct block blocks[CHUNK];
};

static struct chunk *chunks[MAX_CHUNKS];
static uint32_t used;

/* Blocks by what they are: a hash table of their numbers plus one. */
static uint32_t *table;
static uint32_t table_size;

/* What an owner has of each block, as far as there is memory for it. */
static uint64_t *owned[MAX_OWNERS];
static uint32_t owned_size[MAX_OWNERS];

/* Blocks that were entered in this turn. */
static uint32_t *entered;
static uint32_t entered_count;

static void *need(void *memory)
{
	if (!memory) {
		fputs("uksm profile: no memory\n", stderr);
		exit(1);
	}
	return memory;
}

static struct block *block(uint32_t number)
{
	return &chunks[number / CHUNK]->blocks[number % CHUNK];
}

static uint64_t *waiting(uint32_t number)
{
	return &chunks[number / CHUNK]->waiting[number % CHUNK];
}

/* The place of a block in the table: its own, or the empty one that it takes. */
static uint32_t *slot(const struct block *wanted)
{
	uint64_t hash = (wanted->address ^ ((uint64_t)wanted->length << 52) ^
			 ((uint64_t)wanted->place << 58)) *
			0x9e3779b97f4a7c15ull;
	uint32_t at = (uint32_t)(hash >> 32) & (table_size - 1);

	for (;; at = (at + 1) & (table_size - 1)) {
		const struct block *found;

		if (!table[at])
			return &table[at];
		found = block(table[at] - 1);
		if (found->address == wanted->address &&
		    found->length == wanted->length &&
		    found->place == wanted->place)
			return &table[at];
	}
}

static void grow(void)
{
	uint32_t number;

	table_size = table_size ? table_size * 2 : 1u << 16;
	free(table);
	table = need(calloc(table_size, sizeof(*table)));
	for (number = 0; number < used; number++)
		*slot(block(number)) = number + 1;
}

uint32_t counts_of(struct block wanted)
{
	uint32_t *at;

	if (used * 2 >= table_size)
		grow();
	at = slot(&wanted);
	if (*at)
		return *at - 1;
	if (used % CHUNK == 0) {
		if (used / CHUNK == MAX_CHUNKS) {
			fputs("uksm profile: too much code\n", stderr);
			exit(1);
		}
		chunks[used / CHUNK] = need(calloc(1, sizeof(struct chunk)));
		entered = need(realloc(entered,
				       (used + CHUNK) * sizeof(*entered)));
	}
	*block(used) = wanted;
	*at = ++used;
	return used - 1;
}

void counts_entered(uint32_t number)
{
	*waiting(number) += block(number)->length;
}

void counts_waiting(uint64_t sums[PLACES])
{
	uint32_t number;

	memset(sums, 0, PLACES * sizeof(*sums));
	entered_count = 0;
	for (number = 0; number < used; number++) {
		if (*waiting(number)) {
			sums[block(number)->place] += *waiting(number);
			entered[entered_count++] = number;
		}
	}
}

void counts_give(unsigned int owner)
{
	if (owned_size[owner] < used) {
		uint32_t size = (used / CHUNK + 1) * CHUNK;
		uint64_t *bigger = need(realloc(owned[owner],
						size * sizeof(*bigger)));

		memset(bigger + owned_size[owner], 0,
		       (size - owned_size[owner]) * sizeof(*bigger));
		owned[owner] = bigger;
		owned_size[owner] = size;
	}
	while (entered_count) {
		uint32_t number = entered[--entered_count];

		owned[owner][number] += *waiting(number);
		*waiting(number) = 0;
	}
}

void counts_clear(void)
{
	unsigned int owner;
	uint32_t number;

	for (number = 0; number < used; number++)
		*waiting(number) = 0;
	entered_count = 0;
	for (owner = 0; owner < MAX_OWNERS; owner++) {
		free(owned[owner]);
		owned[owner] = NULL;
		owned_size[owner] = 0;
	}
}

void counts_write(FILE *file)
{
	unsigned int owner;
	uint32_t number;

	for (owner = 0; owner < MAX_OWNERS; owner++) {
		for (number = 0; number < owned_size[owner]; number++) {
			uint64_t sum = owned[owner][number];
			const struct block *of;

			if (!sum)
				continue;
			of = block(number);
			fprintf(file, "block %u ", owner);
			if (of->place == PLACE_KERNEL)
				fputs("kernel", file);
			else if (of->place == PLACE_USER)
				fputs("user", file);
			else
				fprintf(file, "%u", of->place);
			fprintf(file, " %llx %u %llu\n",
				(unsigned long long)of->address, of->length,
				(unsigned long long)sum);
		}
	}
}
