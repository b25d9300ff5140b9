/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef COUNTS_H
#define COUNTS_H

#include <stdint.h>
#include <stdio.h>

#include "program.h"

/* Where code is: a number of a program, or one of these. */
enum { PLACE_USER = MAX_PROGRAMS, PLACE_KERNEL, PLACES };

/* Most owners; those that come later are one, the last. */
#define MAX_OWNERS 96

/* Code that is entered at one address and executed to its end. */
struct block {
	/* In a program's file, or in the guest's memory. */
	uint64_t address;
	/* Instructions. */
	uint32_t length;
	uint32_t place;
};

/* The number of a block. It is the same however often the block is translated. */
uint32_t counts_of(struct block block);

/* The block was entered: its instructions wait for their owner. */
void counts_entered(uint32_t number);

/* Instructions that have no owner yet, by place. */
void counts_waiting(uint64_t sums[PLACES]);

/* Gives them to an owner. */
void counts_give(unsigned int owner);

/* Forgets all instructions, with owner and without. */
void counts_clear(void);

/* Writes what owners have: "block OWNER PLACE ADDRESS LENGTH INSTRUCTIONS". */
void counts_write(FILE *file);

#endif
