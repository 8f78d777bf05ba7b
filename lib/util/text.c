/* SPDX-License-Identifier: Apache-2.0 */
/* Text of any length, formatted. */
#include "lib/util/text.h"

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
