/* SPDX-License-Identifier: GPL-2.0-only */
#define ENOMEM		12
#define EOPNOTSUPP	95
