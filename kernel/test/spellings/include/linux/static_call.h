/* SPDX-License-Identifier: GPL-2.0-only */
#define CONFIG_HAVE_STATIC_CALL			1
#define DECLARE_STATIC_CALL(name, function)	extern typeof(function) name##_stub
#define static_call(name)			(name##_stub)
