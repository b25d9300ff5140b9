/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CACHES_H
#define CACHES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Memory is accessed by the kernel, or by code in user mode. */
void caches_accessed(uint64_t virtual_address, uint64_t physical_address,
		     bool is_kernel);

/* Another task has the processor: user addresses are its own. */
void caches_switched(uint64_t task);

/* Gives what was counted in this turn to an owner. */
void caches_give(unsigned int owner);

/* Forgets what was counted; the caches stay as they are. */
void caches_clear(void);

/*
 * Writes what owners have: "memory OWNER kernel|user ACCESSES L2 LLC STREAMED
 * NEAR MEMORY WALKS".
 */
void caches_write(FILE *file);

#endif
