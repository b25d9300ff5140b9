// SPDX-License-Identifier: GPL-2.0-only
/*
 * A model of a processor's caches: where accesses to data end, by owner.
 *
 * Problem: instructions say nothing about what a page costs that is not in a
 * cache, and an emulator has none.
 * Approach: three levels by physical line, each an LRU of sets, filled by every
 * access, read or write; a level for translations, by page. An access ends
 * where its line is first found. A line that the first level has not counts as
 * beside others if one of its page was missed there shortly before: where it is
 * does not depend on what that line holds, so a processor asks for both. From
 * memory it counts as streamed if it continues two others of its page, and as
 * near if not: a prefetcher has asked for what is streamed.
 * Sizes are those of one core of a server: 32 KiB of 8 ways, 1 MiB of 16,
 * 32 MiB of 16; 64 and 1,536 translations.
 * Limits: data only, no instructions; no tables of translations in the caches;
 * nobody else uses the last level; kernel addresses count as 2 MiB pages; what
 * bypasses caches fills them here.
 */
#include <string.h>

#include "caches.h"
#include "counts.h"

#define LINE_SHIFT 6
#define PAGE_SHIFT 12
#define HUGE_SHIFT 21
/* Pages of which the first level had no line last, and how many in turn tell more. */
#define RECENT 32
#define STREAM_LENGTH 2

enum {
	ACCESSES,
	L2,
	L2_BESIDE,
	LLC,
	LLC_BESIDE,
	STREAMED,
	NEAR,
	MEMORY,
	WALKS,
	COUNTS
};

/* What a line has to do with those before it. */
enum order { ALONE, BESIDE, NEXT };

/* An LRU of sets; entries are lines or pages plus one, the newest first. */
struct level {
	unsigned int sets;
	unsigned int ways;
	uint64_t *entries;
};

static uint64_t l1_entries[64 * 8], l2_entries[1024 * 16];
static uint64_t llc_entries[32768 * 16];
static uint64_t dtlb_entries[16 * 4], stlb_entries[128 * 12];

static struct level l1 = { 64, 8, l1_entries };
static struct level l2 = { 1024, 16, l2_entries };
static struct level llc = { 32768, 16, llc_entries };
static struct level dtlb = { 16, 4, dtlb_entries };
static struct level stlb = { 128, 12, stlb_entries };

static struct {
	uint64_t last;
	unsigned int length;
} recent[RECENT];
static unsigned int next_recent;

static uint64_t space;
static uint64_t waiting[2][COUNTS];
static uint64_t owned[MAX_OWNERS][2][COUNTS];

/* Whether it is in the level; it is the newest of its set from now on. */
static bool has(struct level *level, uint64_t what)
{
	uint64_t *set = level->entries + what % level->sets * level->ways;
	uint64_t entry = what + 1;
	unsigned int way;
	bool is_found;

	if (set[0] == entry)
		return true;
	for (way = 1; way < level->ways - 1 && set[way] != entry; way++)
		;
	is_found = set[way] == entry;
	memmove(set + 1, set, way * sizeof(*set));
	set[0] = entry;
	return is_found;
}

static enum order order_of(uint64_t line)
{
	uint64_t page = line >> (PAGE_SHIFT - LINE_SHIFT);
	unsigned int i;

	for (i = 0; i < RECENT; i++) {
		uint64_t last = recent[i].last;

		if (!recent[i].length ||
		    last >> (PAGE_SHIFT - LINE_SHIFT) != page)
			continue;
		if (last + 1 == line || last - 1 == line)
			recent[i].length++;
		else
			recent[i].length = 1;
		recent[i].last = line;
		return recent[i].length > STREAM_LENGTH ? NEXT : BESIDE;
	}
	recent[next_recent].last = line;
	recent[next_recent].length = 1;
	next_recent = (next_recent + 1) % RECENT;
	return ALONE;
}

/* As what a line counts that the first level does not have. */
static unsigned int far_away(uint64_t line)
{
	enum order order = order_of(line);

	if (has(&l2, line))
		return order == ALONE ? L2 : L2_BESIDE;
	if (has(&llc, line))
		return order == ALONE ? LLC : LLC_BESIDE;
	if (order == NEXT)
		return STREAMED;
	return order == BESIDE ? NEAR : MEMORY;
}

void caches_accessed(uint64_t virtual_address, uint64_t physical_address,
		     bool is_kernel)
{
	uint64_t line = physical_address >> LINE_SHIFT;
	uint64_t *counts = waiting[is_kernel];
	uint64_t page;

	if (virtual_address >> 63)
		page = virtual_address >> HUGE_SHIFT;
	else
		page = virtual_address >> PAGE_SHIFT ^ space << 36;
	counts[ACCESSES]++;
	if (!has(&dtlb, page) && !has(&stlb, page))
		counts[WALKS]++;
	if (!has(&l1, line))
		counts[far_away(line)]++;
}

void caches_switched(uint64_t task)
{
	/* Structures of tasks lie apart by more than this. */
	space = task >> 6;
}

void caches_give(unsigned int owner)
{
	unsigned int kernel, count;

	for (kernel = 0; kernel < 2; kernel++) {
		for (count = 0; count < COUNTS; count++)
			owned[owner][kernel][count] += waiting[kernel][count];
	}
	memset(waiting, 0, sizeof(waiting));
}

void caches_clear(void)
{
	memset(waiting, 0, sizeof(waiting));
	memset(owned, 0, sizeof(owned));
}

void caches_write(FILE *file)
{
	unsigned int owner, kernel, count;

	for (owner = 0; owner < MAX_OWNERS; owner++) {
		for (kernel = 0; kernel < 2; kernel++) {
			const uint64_t *counts = owned[owner][kernel];

			if (!counts[ACCESSES])
				continue;
			fprintf(file, "memory %u %s", owner,
				kernel ? "kernel" : "user");
			for (count = 0; count < COUNTS; count++)
				fprintf(file, " %llu",
					(unsigned long long)counts[count]);
			fputc('\n', file);
		}
	}
}
