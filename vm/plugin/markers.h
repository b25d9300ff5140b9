/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a program in the guest tells the plugin where a window begins and ends.
 *
 * Approach: it executes an instruction that does nothing, in the eight-byte
 * form with a displacement ("nop dword ptr [rax + rax + MARK]"), which no
 * compiler writes with these displacements. The plugin knows it by its bytes.
 * The program that executes it has the same numbers.
 */
#ifndef MARKERS_H
#define MARKERS_H

/* The bytes before the displacement, and the length of it all. */
#define MARK_OPCODE { 0x0f, 0x1f, 0x84, 0x00 }
#define MARK_LENGTH 8

#define MARK_BEGIN 0x6b735501u
#define MARK_END 0x6b735502u

#endif
