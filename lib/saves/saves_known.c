/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the next mount is to know, as text: a line for each shape, of each kind the oldest first, and for each broken save.
 *
 *	shape /CHECKPOINT TIMES /NAME TIMES /NAME ...          the name that was saved first stands first, after it the others in their order
 *	broken /CHECKPOINT /PATH HOW [in-place] /BESIDE ...    HOW: killed, refused or torn; half: then PATH is empty
 *	torn /PATH                                             its content is cut off
 *	chosen                                                 somebody went back to what is not whole
 *	newest /CHECKPOINT
 *
 * In a word each byte that is not printable ASCII, and '%', stands as %XX.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/saves/saves_internal.h"
#include "lib/util/cleanup.h"
#include "lib/util/map.h"

/* ---- words ---- */

static void put_word(struct buf *out, const char *path)
{
	buf_printf(out, " /");
	for (; *path; path++) {
		unsigned char c = (unsigned char)*path;

		if (c <= ' ' || c >= 0x7f || c == '%')
			buf_printf(out, "%%%02X", c);
		else
			buf_put_u8(out, c);
	}
}

static int hex_digit(char c)
{
	const char *digits = "0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* In place. NULL where the next word is no path. */
static const char *take_path(char **rest)
{
	char *word = strtok_r(NULL, " ", rest), *out = word, *in = word;

	if (!word || *word != '/')
		return NULL;
	while (*++in) {
		int high = *in == '%' ? hex_digit(in[1]) : -1,
		    low = high < 0 ? -1 : hex_digit(in[2]);

		if (*in == '%' && (low < 0 || !(high << 4 | low)))
			return NULL;
		*out++ = *in == '%' ? (char)(high << 4 | low) : *in;
		in += *in == '%' ? 2 : 0;
	}
	*out = '\0';
	return word;
}

/* ---- shapes ---- */

static void put_name(struct buf *out, const struct shape_name *n)
{
	buf_printf(out, " %" PRIu64, n->times);
	put_word(out, n->text);
}

static bool is_first(const struct shape *s, const struct shape_name *n)
{
	return s->first == map_hash_text(0, n->text);
}

static void put_shape(struct buf *out, const char *kind, const struct shape *s)
{
	buf_printf(out, "shape");
	put_word(out, kind);
	for (size_t i = 0; i < s->count; i++)
		if (is_first(s, &s->name[i]))
			put_name(out, &s->name[i]);
	for (size_t i = 0; i < s->count; i++)
		if (!is_first(s, &s->name[i]))
			put_name(out, &s->name[i]);
	buf_put_u8(out, '\n');
}

static int take_names(char **rest, struct shape *s)
{
	char *times;

	while ((times = strtok_r(NULL, " ", rest))) {
		uint64_t count = strtoull(times, NULL, 10);
		const char *name = take_path(rest);

		if (!name || !count || count > UINT32_MAX)
			return -EINVAL;
		if (shape_add(s, name, count) != 0)
			return -ENOMEM;
	}
	return s->count ? 0 : -EINVAL;
}

static int take_shape(struct saves *s, char **rest)
{
	const char *kind = take_path(rest);
	struct shape shape = {0};
	int error = kind ? take_names(rest, &shape) : -EINVAL;

	if (!error)
		error = shapes_add(&s->shapes, kind, &shape);
	shape_free(&shape);
	return error;
}

/* ---- broken saves ---- */

static void put_broken(struct buf *out, const struct broken *b)
{
	buf_printf(out, "broken");
	put_word(out, b->checkpoint);
	put_word(out, b->path);
	buf_printf(out, " %s%s", b->half ? "half" : save_fact_name(b->how),
		   b->in_place ? " in-place" : "");
	for (const struct beside *f = b->beside; f; f = f->next)
		put_word(out, f->path);
	buf_put_u8(out, '\n');
}

static unsigned how_of(const char *word)
{
	static const unsigned hows[] = {SAVE_IS_KILLED, SAVE_IS_REFUSED, SAVE_IS_TORN};

	for (size_t i = 0; word && i < sizeof(hows) / sizeof(*hows); i++)
		if (!strcmp(word, save_fact_name(hows[i])))
			return hows[i];
	return 0;
}

static int take_beside(struct broken *b, const char *path)
{
	struct beside *f = malloc(sizeof(*f) + strlen(path) + 1), **at = &b->beside;

	if (!f)
		return -ENOMEM;
	strcpy(f->path, path);
	f->next = NULL;
	while (*at)
		at = &(*at)->next;
	*at = f;
	return 0;
}

static int fill_broken(struct broken *b, char **rest)
{
	const char *checkpoint = take_path(rest), *path = checkpoint ? take_path(rest) : NULL;
	const char *word;
	int error = 0;

	word = path ? strtok_r(NULL, " ", rest) : NULL;
	b->half = word && !strcmp(word, "half");
	b->how = b->half ? 0 : how_of(word);
	if (!b->how && !b->half)
		return -EINVAL;
	b->checkpoint = strdup(checkpoint);
	b->path = strdup(path);
	if (!b->checkpoint || !b->path)
		return -ENOMEM;
	b->in_place = !strncmp(*rest, "in-place", 8);
	if (b->in_place)
		strtok_r(NULL, " ", rest);
	while (!error && **rest) {
		word = take_path(rest);
		error = word ? take_beside(b, word) : -EINVAL;
	}
	return error;
}

/* Who wrote it is gone. */
static int take_broken(struct saves *s, char **rest)
{
	struct broken *b = calloc(1, sizeof(*b)), **at = &s->broken;
	int error = b ? fill_broken(b, rest) : -ENOMEM;

	if (error && b) {
		free_broken(s, b);
	} else if (b) {
		while (*at)
			at = &(*at)->next;
		*at = b;
	}
	return error;
}

/* ---- what is torn ---- */

static void put_torn(const struct saves *s, struct buf *out)
{
	for (struct map_link *l = s->torn_count ? map_next(&s->names, NULL) : NULL; l;
	     l = map_next(&s->names, l)) {
		const struct name *n = map_item(l, struct name, link);

		if (!n->torn)
			continue;
		buf_printf(out, "torn");
		put_word(out, n->path);
		buf_put_u8(out, '\n');
	}
}

static int take_torn(struct saves *s, char **rest)
{
	const char *path = take_path(rest);
	struct name *n = path && path[0] ? make_name(s, path) : NULL;

	if (!n)
		return path && path[0] ? -ENOMEM : -EINVAL;
	set_torn(s, n, true);
	n->left = facts_in_temporary(s->options.rules, path);
	n->process = NOBODY;
	return 0;
}

/* ---- all ---- */

static int take_newest(struct saves *s, char **rest)
{
	const char *checkpoint = take_path(rest);
	char *newest = checkpoint ? strdup(checkpoint) : NULL;

	if (!newest)
		return checkpoint ? -ENOMEM : -EINVAL;
	free(s->newest);
	s->newest = newest;
	return 0;
}

static int take_chosen(struct saves *s, char **rest)
{
	(void)rest;
	s->chosen = true;
	return 0;
}

static const struct {
	const char *word;
	bool is_broken;
	int (*take)(struct saves *s, char **rest);
} lines[] = {
	{"shape", false, take_shape}, {"newest", false, take_newest}, {"broken", true, take_broken},
	{"torn", true, take_torn},    {"chosen", true, take_chosen},
};

static int take_line(struct saves *s, char *line, bool broken)
{
	char *rest = NULL, *word = strtok_r(line, " ", &rest);

	for (size_t i = 0; word && i < sizeof(lines) / sizeof(*lines); i++)
		if (!strcmp(word, lines[i].word))
			return lines[i].is_broken == broken ? lines[i].take(s, &rest) : 0;
	return -EINVAL;
}

static int take_lines(struct saves *s, const char *text, bool broken)
{
	cleanup_free char *copy = strdup(text);
	int error = copy ? 0 : -ENOMEM;
	char *rest = NULL;

	for (char *line = copy ? strtok_r(copy, "\n", &rest) : NULL; line;
	     line = strtok_r(NULL, "\n", &rest)) {
		int r = take_line(s, line, broken);

		error = error ? error : r;
	}
	return error;
}

int saves_take_known(struct saves *s, const char *text)
{
	return take_lines(s, text, false);
}

int saves_take_broken(struct saves *s, const char *text)
{
	return take_lines(s, text, true);
}

bool saves_any_broken(const struct saves *s)
{
	return s->broken || s->torn_count || s->chosen;
}

/* All but the kinds that were saved longest ago. */
static void put_from(const struct saves *s, size_t kind, struct buf *out)
{
	const struct shapes *all = &s->shapes;

	for (; kind < all->count; kind++)
		for (size_t i = 0; i < all->kind[kind].count; i++)
			put_shape(out, all->kind[kind].kind, &all->kind[kind].shape[i]);
	for (const struct broken *b = s->broken; b; b = b->next)
		put_broken(out, b);
	put_torn(s, out);
	if (s->chosen)
		buf_printf(out, "chosen\n");
	if (*s->newest) {
		buf_printf(out, "newest");
		put_word(out, s->newest);
		buf_put_u8(out, '\n');
	}
}

void saves_put_known(const struct saves *s, struct buf *out)
{
	size_t begin = out->len;

	for (size_t kind = 0; kind <= s->shapes.count; kind++) {
		out->len = begin;
		put_from(s, kind, out);
		if (out->len - begin <= SAVES_KNOWN_MAX)
			return;
	}
	out->len = begin;
}
