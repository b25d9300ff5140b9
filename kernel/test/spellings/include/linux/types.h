/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The types that compat.h, symbols.h and shrinker_registration.h handle
 *
 * The headers of this folder hold no text of a kernel beyond the lines that Kbuild looks
 * for. A block from a line "SPELLING name" to the next such line, or to "END", is left out
 * of the headers of a kernel that has another spelling, since Kbuild reads text, not code
 * (xtask/tests/spellings.rs). Macros STUB_... stand for macros that a kernel has.
 */
#ifndef STUB_TYPES_H
#define STUB_TYPES_H

#define NULL			((void *)0)
#define __rcu
#define __printf(text, first)	__attribute__((format(printf, text, first)))
#define __same_type(a, b)	__builtin_types_compatible_p(typeof(a), typeof(b))
#define static_assert(fact)	_Static_assert(fact, #fact)
#define rcu_dereference(p)	(p)
#define PAGE_SHIFT		12

typedef _Bool bool;
enum { false, true };

typedef unsigned int gfp_t;
#define GFP_KERNEL		1u
#define __GFP_NORETRY		2u
#define __GFP_NOWARN		4u

typedef struct { int counter; } atomic_t;
typedef struct { long counter; } atomic_long_t;
typedef struct { int locked; } spinlock_t;
struct rw_semaphore { int holders; };
struct percpu_counter { long count; };

int atomic_read(const atomic_t *value);
void atomic_long_add(long more, atomic_long_t *value);
void percpu_counter_add(struct percpu_counter *counter, long more);

typedef struct { unsigned long pte; } pte_t;
typedef struct { unsigned long pmd; } pmd_t;

struct folio;
struct mm_struct;
struct page;
struct pid;
struct task_struct;
struct user_namespace;
struct vm_area_struct;

#endif
