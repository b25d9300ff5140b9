// SPDX-License-Identifier: GPL-2.0-only
/* The module parameter "faults"; see faults.h. */
#include <linux/moduleparam.h>

#include "faults.h"

#ifdef UKSM_TEST
unsigned int uksm_faults;
module_param_named(faults, uksm_faults, uint, 0600);
MODULE_PARM_DESC(faults, "what to do wrong (test builds only)");
#endif
