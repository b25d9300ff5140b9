/* SPDX-License-Identifier: GPL-2.0-only */
/* Free frames without mappings when memory is short. See shrinker.c. */
#ifndef UKSM_SHRINKER_H
#define UKSM_SHRINKER_H

int uksm_shrinker_init(void);
void uksm_shrinker_exit(void);

#endif /* UKSM_SHRINKER_H */
