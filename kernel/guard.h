/* SPDX-License-Identifier: GPL-2.0-only */
/* What uksm.ko asks of uksm_guard.ko. See guard_main.c. */
#ifndef UKSM_GUARD_H
#define UKSM_GUARD_H

/* Grows by one whenever uksm.ko needs something that an older guard lacks. */
#define UKSM_GUARD_INTERFACE	1

/*
 * The one symbol that uksm.ko imports. Its signature never changes, so that an older
 * guard, which cannot be unloaded, answers a newer uksm.ko in words.
 */
int uksm_guard_check(unsigned int interface);

#endif /* UKSM_GUARD_H */
