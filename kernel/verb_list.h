/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The verbs of the device: one row for each ioctl of the contract
 *
 *   UKSM_VERB(NAME, type, check, verb)
 *	UKSM_IOC_<NAME> carries a struct of this type, the request and its
 *	answer. check() looks at the request alone, verb() does the work.
 *   UKSM_PLAIN_VERB(NAME, type, verb)
 *	The caller tells nothing, so there is nothing to check.
 *
 * From these rows come the prototypes (verbs.h) and the dispatch (main.c). Hence
 * this file has no include guard.
 */
UKSM_PLAIN_VERB(INFO, struct uksm_info, uksm_info);
UKSM_VERB(CONFIGURE, struct uksm_configure, uksm_check_configure, uksm_configure);
UKSM_VERB(ATTACH, struct uksm_attach, uksm_check_attach, uksm_attach);
UKSM_VERB(DETACH, struct uksm_detach, uksm_check_detach, uksm_detach);
UKSM_PLAIN_VERB(SEAL, struct uksm_nothing, uksm_seal);
UKSM_VERB(SAMPLE, struct uksm_sample, uksm_check_sample, uksm_sample);
UKSM_VERB(FOLD, struct uksm_fold, uksm_check_fold, uksm_fold);
UKSM_VERB(BREAK, struct uksm_break, uksm_check_break, uksm_break);
UKSM_VERB(COUNT, struct uksm_count, uksm_check_count, uksm_count);
UKSM_VERB(FRAMES, struct uksm_frames, uksm_check_frames, uksm_frames);
UKSM_VERB(SIZES, struct uksm_sizes, uksm_check_sizes, uksm_sizes);
UKSM_VERB(MAPPINGS, struct uksm_mappings, uksm_check_mappings, uksm_mappings);
