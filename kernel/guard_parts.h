/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of uksm_guard.ko. See guard_main.c. */
#ifndef UKSM_GUARD_PARTS_H
#define UKSM_GUARD_PARTS_H

/* Test builds can change parameters at any time. */
#ifdef UKSM_TEST
#define UKSM_GUARD_MODE	0600
#else
#define UKSM_GUARD_MODE	0444
#endif

int uksm_guard_migration_init(void);
void uksm_guard_migration_undo(void);
int uksm_guard_migration_check(void);
int uksm_guard_offline_init(void);
void uksm_guard_offline_undo(void);

#endif /* UKSM_GUARD_PARTS_H */
