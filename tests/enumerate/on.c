/* SPDX-License-Identifier: Apache-2.0 */
/* What all places have in common: letters and bytes. */
#include "tests/enumerate/on.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void give_up(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	fflush(NULL);
	/* A volume's threads are at work still: what exit(3) takes down they may be using. */
	_exit(2);
}

static char letter_of(const char *data, size_t len, unsigned unit)
{
	char letter = data[0] ? data[0] : '.';

	for (size_t i = 1; i < len; i++)
		if (data[i] != data[0])
			return '~';
	return len == unit ? letter : '~';
}

void seen_letters(struct seen *seen, const char *data, size_t len, unsigned unit)
{
	seen->size = len;
	seen->content.len = 0;
	for (size_t at = 0; at < len && seen->content.len < LETTERS_MAX; at += unit) {
		size_t n = len - at < unit ? len - at : unit;

		seen->content.letter[seen->content.len++] = letter_of(data + at, n, unit);
	}
}

const char *letter_bytes(char letter, unsigned letters, unsigned unit)
{
	/* Aligned, as O_DIRECT wants it. */
	static char bytes[BASE_LETTERS * UNIT_MAX] __attribute__((aligned(UNIT_MAX)));

	memset(bytes, letter, (size_t)letters * unit);
	return bytes;
}
