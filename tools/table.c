/* SPDX-License-Identifier: Apache-2.0 */
/* Tables on a terminal, and doubts as text. */
#include "tools/table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/meta/doubts.h"
#include "lib/meta/listing.h"
#include "lib/util/buf.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"

struct table {
	size_t columns, rows, room;
	bool right[TABLE_COLUMNS_MAX];
	size_t width[TABLE_COLUMNS_MAX];
	char **cells; /* rows * columns */
};

/* Columns that a UTF-8 string takes, near enough: its code points. */
static size_t display_width(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

struct table *table_new(const char *const *headers, size_t columns)
{
	struct table *t = calloc(1, sizeof(*t));
	const char *names[TABLE_COLUMNS_MAX];

	if (!t || columns > TABLE_COLUMNS_MAX) {
		free(t);
		return NULL;
	}
	t->columns = columns;
	for (size_t c = 0; c < columns; c++) {
		t->right[c] = headers[c][0] == '>';
		names[c] = headers[c] + t->right[c];
	}
	if (table_add(t, names) < 0) {
		table_free(t);
		return NULL;
	}
	return t;
}

void table_free(struct table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->rows * t->columns; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t);
}

int table_add(struct table *t, const char *const *cells)
{
	char **row;

	if (t->rows == t->room) {
		size_t room = t->room ? 2 * t->room : 16;
		char **grown = realloc(t->cells, room * t->columns * sizeof(char *));

		if (!grown)
			return -ENOMEM;
		t->cells = grown;
		t->room = room;
	}
	row = t->cells + t->rows * t->columns;
	for (size_t c = 0; c < t->columns; c++) {
		cleanup_buf struct buf shown = {0};

		printable_put(&shown, cells[c]);
		row[c] = buf_error(&shown) ? NULL : strdup(buf_str(&shown));
		if (!row[c]) {
			while (c--)
				free(row[c]);
			return -ENOMEM;
		}
		if (display_width(row[c]) > t->width[c])
			t->width[c] = display_width(row[c]);
	}
	t->rows++;
	return 0;
}

static void print_cell(const struct table *t, const char *text, size_t column, bool last)
{
	int pad = (int)(t->width[column] - display_width(text));

	if (t->right[column])
		printf("%*s%s", pad, "", text);
	else
		printf("%s%*s", text, last ? 0 : pad, "");
	fputs(last ? "\n" : "  ", stdout);
}

void table_print(const struct table *t)
{
	for (size_t r = 0; r < t->rows; r++) {
		char *const *row = t->cells + r * t->columns;
		size_t count = t->columns;

		/* No blanks before the end of a line. */
		while (count > 1 && !*row[count - 1])
			count--;
		for (size_t c = 0; c < count; c++)
			print_cell(t, row[c], c, c + 1 == count);
	}
}

/* ---- doubts of a record or a status ---- */

static const char *text_of(const json_t *object, const char *key, const char *fallback)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : fallback;
}

static void put_since(const json_t *doubt, struct buf *out)
{
	json_int_t since = json_integer_value(json_object_get(doubt, "since"));
	json_int_t part = json_integer_value(json_object_get(doubt, "since_part"));
	const char *at = json_string_value(json_object_get(doubt, "at"));
	char age[FORMAT_MAX];
	int64_t ns;

	if (since > 0)
		buf_printf(out, ", in doubt since epoch %" JSON_INTEGER_FORMAT, since);
	else if (part > 0)
		buf_printf(out, ", in doubt since part %" JSON_INTEGER_FORMAT, part);
	if (at && parse_time(at, &ns) == 0) {
		format_age(clock_wall_ns() - ns, age);
		buf_printf(out, " (%s ago)", age);
	}
}

static bool has_companions(const json_t *doubt)
{
	return json_array_size(json_object_get(doubt, "companions")) ||
	       json_array_size(json_object_get(doubt, "companions_bytes"));
}

/* So many of the files that were saved with it are named. */
#define COMPANIONS_NAMED 3

static void put_companions(const json_t *doubt, struct buf *out)
{
	const json_t *list = json_object_get(doubt, "companions");
	size_t count = json_array_size(list), i;

	/* That of a torn file is the part of it that lies beside it. */
	if (doubt_kind_parse(text_of(doubt, "kind", "")) != DOUBT_UNDONE)
		return;
	if (count)
		buf_printf(out, "; saved with it:");
	for (i = 0; i < count && i < COMPANIONS_NAMED; i++)
		buf_printf(out, "%s %s", i ? "," : "", json_string_value(json_array_get(list, i)));
	if (count > i)
		buf_printf(out, " and %zu more", count - i);
}

static bool counts(const json_t *doubt)
{
	return json_is_true(json_object_get(doubt, "counts"));
}

/* What a killed writer has left is torn, too: that is one matter. */
static bool is_told_already(const json_t *doubts, const json_t *doubt)
{
	json_t *other;
	size_t i;

	if (counts(doubt) || doubt_kind_parse(text_of(doubt, "kind", "")) != DOUBT_TORN)
		return false;
	json_array_foreach((json_t *)(uintptr_t)doubts, i, other)
	{
		const char *kind = text_of(other, "kind", "");

		if ((counts(other) || doubt_kind_parse(kind) != DOUBT_TORN) &&
		    !strcmp(text_of(other, "path", ""), text_of(doubt, "path", "?")))
			return true;
	}
	return false;
}

void doubt_text(const json_t *doubt, struct buf *out)
{
	enum doubt_kind kind = doubt_kind_parse(text_of(doubt, "kind", ""));

	buf_printf(out, "%s: %s", text_of(doubt, "path", "?"), text_of(doubt, "why", "?"));
	put_since(doubt, out);
	buf_printf(out, "; settled by %s%s",
		   doubt_settled_by(kind, has_companions(doubt),
				    json_is_true(json_object_get(doubt, "alone"))),
		   counts(doubt) ? ""
				 : " (of an older unit, or under a temporary name: no epoch is "
				   "incomplete for it)");
	put_companions(doubt, out);
}

json_t *doubts_texts(const json_t *doubts)
{
	json_t *list, *doubt;
	size_t i;

	if (!json_array_size(doubts))
		return NULL;
	list = json_array();
	json_array_foreach((json_t *)(uintptr_t)doubts, i, doubt)
	{
		cleanup_buf struct buf text = {0};

		if (is_told_already(doubts, doubt))
			continue;
		doubt_text(doubt, &text);
		json_array_append_new(list, listing_string(buf_str(&text)));
	}
	return list;
}

/* ---- what killed writers left ---- */

static void put_kept(unsigned count, uint64_t bytes, const char *newest, struct buf *out)
{
	char size[FORMAT_MAX];

	format_size(bytes, size);
	buf_printf(out, "%u file%s of killed writers, %s, %s in .epochs/torn (the newest: %s)",
		   count, plural(count), size, plural_of(count, "is", "are"), newest);
}

/* The newest are kept, and for want of space, or of a link, not even those. */
static void put_gone(json_int_t gone, bool others, struct buf *out)
{
	const char *verb = plural_of((uint64_t)gone, "was", "were");

	if (others)
		buf_printf(out, ", %" JSON_INTEGER_FORMAT " more %s not kept", gone, verb);
	else
		buf_printf(out,
			   "%" JSON_INTEGER_FORMAT
			   " file%s of killed writers %s undone and not kept",
			   gone, plural((uint64_t)gone), verb);
}

bool torn_text(const json_t *torn, json_int_t since, struct buf *out)
{
	json_int_t mounted = json_integer_value(json_object_get(torn, "mounted"));
	json_int_t from = mounted > since ? mounted : since;
	json_int_t gone = json_integer_value(json_object_get(torn, "next")) - from;
	const json_t *files = json_object_get(torn, "files"), *file;
	const char *newest = NULL;
	uint64_t bytes = 0;
	unsigned count = 0;
	size_t i;

	json_array_foreach((json_t *)(uintptr_t)files, i, file)
	{
		if (json_integer_value(json_object_get(file, "id")) < since)
			continue;
		count++;
		bytes += (uint64_t)json_integer_value(json_object_get(file, "bytes"));
		newest = text_of(file, "name", "");
		gone -= json_integer_value(json_object_get(file, "id")) >= from;
	}
	if (count)
		put_kept(count, bytes, newest, out);
	if (gone > 0)
		put_gone(gone, count, out);
	return count || gone > 0;
}
