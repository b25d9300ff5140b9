/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most programs that can be told apart. */
#define MAX_PROGRAMS 8

/* A program's file. */
struct program {
	const char *path;
	const uint8_t *file;
	size_t size;
	/* Where the program is in the guest, minus where its file says. */
	uint64_t moved_by;
	bool placed;
};

/* Code of the guest that is being translated. */
struct code {
	uint64_t address;
	const uint8_t *bytes;
	size_t length;
};

/* Reads the file; NULL, or what is wrong with it. */
const char *program_open(struct program *program, const char *path);

/*
 * Whether this code is the program's. *address is then where it is in the
 * program's file, as symbols have it.
 */
bool program_has(struct program *program, const struct code *code,
		 uint64_t *address);

#endif
