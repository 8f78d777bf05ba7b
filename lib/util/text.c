/* SPDX-License-Identifier: Apache-2.0 */
/* Text of any length, formatted, and text of strangers, made fit for a terminal. */
#include "lib/util/text.h"

#include <stdbool.h>
#include <stdio.h>

int text_vprint(char **ret_text, const char *fmt, va_list args)
{
	int len = vasprintf(ret_text, fmt, args);

	if (len < 0)
		*ret_text = NULL;
	return len;
}

int text_print(char **ret_text, const char *fmt, ...)
{
	va_list args;
	int len;

	va_start(args, fmt);
	len = text_vprint(ret_text, fmt, args);
	va_end(args);
	return len;
}

/* ---- text that a stranger wrote ---- */

size_t utf8_len(const uint8_t *p)
{
	size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

	if (p[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
		return 0;
	return len;
}

/* Of a character of three bytes, U+2000 to U+207F. */
static bool is_obeyed_punctuation(const uint8_t *p)
{
	return p[0] == 0xe2 && ((p[1] == 0x80 && p[2] >= 0xa8 && p[2] <= 0xae) ||
				(p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9));
}

/* What a terminal would obey; `len` as utf8_len gave it. */
static bool is_obeyed(const uint8_t *p, size_t len)
{
	switch (len) {
	case 0:
		return p[0] >= 0x80 && p[0] < 0xa0;
	case 1:
		return p[0] < ' ' || p[0] == 0x7f;
	case 2:
		return p[0] == 0xc2 && p[1] < 0xa0;
	case 3:
		return is_obeyed_punctuation(p);
	default:
		return false;
	}
}

void printable_put(struct buf *out, const char *text)
{
	for (const uint8_t *p = (const uint8_t *)text; *p;) {
		size_t len = utf8_len(p), step = len ? len : 1;

		if (is_obeyed(p, len))
			for (size_t i = 0; i < step; i++)
				buf_printf(out, "\\x%02x", p[i]);
		else
			buf_put(out, p, step);
		p += step;
	}
}

void printable_mask(char *text)
{
	for (uint8_t *p = (uint8_t *)text; *p;) {
		size_t len = utf8_len(p), step = len ? len : 1;

		if (is_obeyed(p, len))
			for (size_t i = 0; i < step; i++)
				p[i] = '?';
		p += step;
	}
}
