/* SPDX-License-Identifier: Apache-2.0 */
/* Text of any length, formatted. */
#ifndef EPOCHFS_UTIL_TEXT_H
#define EPOCHFS_UTIL_TEXT_H

#include <stdarg.h>
#include <stdint.h>

/* As asprintf and vasprintf, which say nothing of *ret_text on allocation failure: here it is NULL then. The length, or -1. */
int text_print(char **ret_text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int text_vprint(char **ret_text, const char *fmt, va_list args)
	__attribute__((format(printf, 2, 0)));

/* The words behind a number: "%zu file%s", n, plural(n). */
static inline const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}
/* For all that takes no "s": plural_of(n, "is", "are"). */
static inline const char *plural_of(uint64_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}

#endif
