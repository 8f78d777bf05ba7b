/* SPDX-License-Identifier: Apache-2.0 */
/* Text of any length, formatted. */
#ifndef EPOCHFS_UTIL_TEXT_H
#define EPOCHFS_UTIL_TEXT_H

#include <stdarg.h>

/* As asprintf and vasprintf, which say nothing of *ret_text where memory ends: here it is NULL then. The length, or -1. */
int text_print(char **ret_text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int text_vprint(char **ret_text, const char *fmt, va_list args)
	__attribute__((format(printf, 2, 0)));

#endif
