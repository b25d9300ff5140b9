/* SPDX-License-Identifier: GPL-2.0-only */
/* Frames without mappings, when memory is short. See reap.c. */
#ifndef UKSM_REAP_H
#define UKSM_REAP_H

int uksm_reaper_begin(void);
void uksm_reaper_end(void);

#endif /* UKSM_REAP_H */
