/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, sizes, durations and times of day: from what people type, and back to what they like to
 * read. */
#ifndef EPOCHFS_UTIL_PARSE_H
#define EPOCHFS_UTIL_PARSE_H

#include <stddef.h>
#include <stdint.h>

/* Whole strings only; -EINVAL for anything else, -ERANGE where it does not fit. */
int parse_u64(const char *text, uint64_t *ret_value);
/* "512", "10K", "1.5G": bytes; K M G T (or k m g t) are powers of 1024; a trailing "B", "i" or
 * "iB" is allowed. -EINVAL, or -ERANGE from 8 EiB on. */
int parse_size(const char *text, uint64_t *ret_bytes);
/* "5", "5s", "1.5h", "200ms", "7d", "2m": nanoseconds; a bare number is seconds. */
int parse_duration(const char *text, int64_t *ret_ns);

#define FORMAT_MAX 32
/* "0 B", "812 B", "1.5 KiB", "12 GiB": at most three digits. */
void format_size(uint64_t bytes, char ret_text[FORMAT_MAX]);
/* "12 s", "4 min", "3 h", "5 d": how long ago. */
void format_age(int64_t ns, char ret_text[FORMAT_MAX]);
/* "2026-11-21T09:30:00.123456789Z" (RFC 3339, UTC). */
void format_time(int64_t wall_ns, char ret_text[FORMAT_MAX]);
/* Reads what format_time wrote (0 to 9 fraction digits): 0 or -EINVAL. */
int parse_time(const char *text, int64_t *ret_wall_ns);

#endif
