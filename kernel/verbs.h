/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions behind the verbs of verb_list.h
 *
 * A check looks at nothing but the request (request.c). A verb gets a request that
 * has passed its check, and writes the answer into it.
 */
#ifndef UKSM_VERBS_H
#define UKSM_VERBS_H

#include "portable.h"
#include "uksm_ioctl.h"

struct uksm_domain;

/* The request of an ioctl without an argument. */
struct uksm_nothing {
};

/*
 * Does a command hold the size of this type? To clang the kernel's _IOWR() is only
 * constant where it stands behind such a question.
 */
#define uksm_carries(command, type)					\
	(__builtin_constant_p(true) ?					\
	 _IOC_SIZE(command) == sizeof(type) : false)

#define UKSM_VERB(NAME, type, check, verb)				\
	int check(const typeof(type) *request);				\
	long verb(struct uksm_domain *domain, typeof(type) *request);	\
	static_assert(uksm_carries(UKSM_IOC_##NAME, type))
#define UKSM_PLAIN_VERB(NAME, type, verb)				\
	long verb(struct uksm_domain *domain, typeof(type) *request);	\
	static_assert(uksm_carries(UKSM_IOC_##NAME, type))
#include "verb_list.h"
#undef UKSM_VERB
#undef UKSM_PLAIN_VERB

#endif /* UKSM_VERBS_H */
