/* SPDX-License-Identifier: Apache-2.0 */
/* What a program that is a remote writes, decoded. */
#include "lib/remote/exec_answer.h"

#include <errno.h>
#include <string.h>
#include "lib/util/parse.h"

#define LINE_MAX_BYTES (REMOTE_KEY_MAX + 32)

struct exec_abilities exec_abilities_parse(struct buf *text)
{
	struct exec_abilities can = {0};
	char *rest = NULL;

	buf_put_u8(text, '\0');
	if (buf_error(text))
		return can;
	for (char *w = strtok_r((char *)text->data, " \t\r\n", &rest); w;
	     w = strtok_r(NULL, " \t\r\n", &rest)) {
		can.range |= !strcmp(w, "range");
		can.size |= !strcmp(w, "size");
		can.put_if_absent |= !strcmp(w, "put-if-absent");
	}
	return can;
}

/* "SIZE KEY": true where it is an object below the prefix. The key lies in the line. */
static bool parse_line(char *line, const char *prefix, const char **ret_key, uint64_t *ret_size)
{
	char *blank = strchr(line, ' ');

	if (!blank)
		return false;
	*blank = '\0';
	if (parse_u64(line, ret_size) < 0 || !remote_key_valid(blank + 1) ||
	    strncmp(blank + 1, prefix, strlen(prefix)) != 0)
		return false;
	*ret_key = blank + 1;
	return true;
}

int exec_list_parse(struct buf *text, const char *prefix, remote_list_fn *fn, void *arg)
{
	char *line, *end;

	if (text->len && (memchr(text->data, '\0', text->len) || text->data[text->len - 1] != '\n'))
		return -EPROTO;
	buf_put_u8(text, '\0');
	if (buf_error(text))
		return -ENOMEM;
	for (line = (char *)text->data; *line; line = end + 1) {
		const char *key = NULL;
		uint64_t size = 0;
		int error;

		end = strchr(line, '\n');
		/* The program has ended well, so a line without an end is no part of one. */
		if (!end || end - line > LINE_MAX_BYTES)
			return -EPROTO;
		*end = '\0';
		error = parse_line(line, prefix, &key, &size) ? fn(arg, key, size) : 0;
		if (error)
			return error;
	}
	return 0;
}

int exec_size_parse(struct buf *text, uint64_t *ret_size)
{
	char *digits;

	buf_put_u8(text, '\0');
	if (buf_error(text))
		return -ENOMEM;
	digits = (char *)text->data;
	digits[strcspn(digits, "\r\n")] = '\0';
	return parse_u64(digits, ret_size) < 0 ? -EPROTO : 0;
}
