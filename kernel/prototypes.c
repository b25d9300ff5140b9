// SPDX-License-Identifier: GPL-2.0-only
/*
 * Are the prototypes that the kernel hides from modules right?
 *
 * asm/tlbflush.h declares flush_tlb_mm_range() only for the kernel itself, so
 * symbols.h has to repeat the prototype, and a changed prototype would not be
 * noticed. Here the header is read as the kernel reads it, and then ours. If they
 * disagree the compiler refuses. This file contains no code.
 */
#undef MODULE
#include <asm/tlbflush.h>

#include "symbols.h"
