/* SPDX-License-Identifier: GPL-2.0-only */
/* Frames without mappings, when memory is short. See shrinker.c. */
#ifndef UKSM_SHRINKER_H
#define UKSM_SHRINKER_H

int uksm_reaper_begin(void);
void uksm_reaper_end(void);

#endif /* UKSM_SHRINKER_H */
