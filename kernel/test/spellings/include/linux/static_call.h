/* SPDX-License-Identifier: GPL-2.0-only */
#define DECLARE_STATIC_CALL(name, function)	extern typeof(function) name##_stub
#define static_call(name)			(name##_stub)
