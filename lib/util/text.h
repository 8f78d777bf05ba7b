/* SPDX-License-Identifier: Apache-2.0 */
/* Text of any length, formatted, and text of strangers, made fit for a terminal. */
#ifndef EPOCHFS_UTIL_TEXT_H
#define EPOCHFS_UTIL_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"

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

/* ---- text that a stranger wrote ---- */

/*
 * What a terminal would obey instead of showing it: the control characters of ASCII, line ends and
 * tabs among them, and DEL; those from U+0080 to U+009F, of which one begins the same sequences as ESC
 * does, also as single bytes that are no UTF-8; U+2028 and U+2029, which end lines; and those that turn
 * the direction of writing (U+202A to U+202E, U+2066 to U+2069), by which a name looks like another.
 */

/* Appends the text with each byte of these as `\xNN`. A failed allocation shows in the buffer. */
void printable_put(struct buf *out, const char *text);
/* Makes each byte of these a `?`, in place. */
void printable_mask(char *text);

/* The length of the character at `p` where it is well-formed UTF-8 (RFC 3629), else 0. Reads no
 * further than a NUL. */
size_t utf8_len(const uint8_t *p);

#endif
