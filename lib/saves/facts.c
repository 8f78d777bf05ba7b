/* SPDX-License-Identifier: Apache-2.0 */
/* What names say about saves. */
#include "lib/saves/facts.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#include "lib/util/cleanup.h"
#include "lib/util/hash.h"

/* A file below this part of a save is a note. */
#define NOTE 256
/* In so many parts of a path a directory that is nothing but a number is a step. */
#define BARE_NUMBERS 2

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- temporary names ---- */

/* Beside those of rules.h: whoever adds one there that the engine is to know, too, takes it away here. */
static const char *const temporary_endings[] = {"-tmp", "_tmp", ".incomplete", ".partial", ".part"};
#define TEMPORARY_ENDINGS (sizeof(temporary_endings) / sizeof(*temporary_endings))

/* The length of the name without the ending, or 0. */
static size_t without_ending(const char *name, size_t len, const char *ending)
{
	size_t end = strlen(ending);

	return len > end && !memcmp(name + len - end, ending, end) ? len - end : 0;
}

static size_t without_temporary_ending(const char *name, size_t len)
{
	for (size_t i = 0; i < TEMPORARY_ENDINGS; i++) {
		size_t rest = without_ending(name, len, temporary_endings[i]);

		if (rest)
			return rest;
	}
	return 0;
}

bool facts_temporary(const struct rules *r, const char *path)
{
	const char *name = last_part(path);

	return without_temporary_ending(name, strlen(name)) || rules_temporary(r, name, path);
}

bool facts_in_temporary(const struct rules *r, const char *path)
{
	char part[NAME_MAX + 1];

	for (const char *at = path;;) {
		size_t len = strcspn(at, "/");

		if (!at[len])
			return facts_temporary(r, path);

		/* A part that no file system has. */
		if (len > NAME_MAX)
			return false;
		memcpy(part, at, len);
		part[len] = '\0';
		if (facts_temporary(r, part))
			return true;
		at += len + 1;
	}
}

/* The length of what stands before `mark`, which is not the beginning; 0 where there is none. */
static size_t length_before(const char *name, size_t len, const char *mark)
{
	const char *found = len > 1 ? memmem(name + 1, len - 1, mark, strlen(mark)) : NULL;

	return found ? (size_t)(found - name) : 0;
}

static void put_final_name(const char *name, size_t len, struct buf *out)
{
	size_t rest;

	if (len > 4 && !memcmp(name, "tmp-", 4)) {
		buf_put(out, name + 4, len - 4);
		return;
	}
	rest = length_before(name, len, ".tmp");
	if (rest > 1 && name[0] == '.') {
		buf_put(out, name + 1, rest - 1);
		return;
	}
	if (!rest)
		rest = without_ending(name, len, "_temp");
	if (!rest)
		rest = without_temporary_ending(name, len);
	if (!rest)
		rest = length_before(name, len, ".orbax-checkpoint-tmp");
	buf_put(out, name, rest ? rest : len);
}

void facts_stands_for(const char *path, struct buf *out)
{
	for (;;) {
		size_t len = strcspn(path, "/");

		put_final_name(path, len, out);
		if (!path[len])
			return;
		buf_put_u8(out, '/');
		path += len + 1;
	}
}

/* ---- logs, last files, notes ---- */

bool facts_log(const struct rules *r, const char *path)
{
	return rules_log(r, last_part(path), path);
}

bool facts_marker(const struct rules *r, const char *path)
{
	return rules_marker(r, last_part(path), path);
}

bool facts_last_file(const char *path)
{
	const char *name = last_part(path);

	switch (last_file_kind(name)) {
	case LAST_FILE_ANY:
	case LAST_FILE_DEEPSPEED:
	case LAST_FILE_STATE:
		return true;
	default:
		return strcmp(name, "commit_success.txt") == 0;
	}
}

bool facts_note(uint64_t size, uint64_t save_size)
{
	return save_size > 0 && size <= (save_size - 1) / NOTE;
}

/* ---- the step in a name ---- */

static bool is_digit(char c)
{
	return isdigit((unsigned char)c);
}

static bool is_letter(char c)
{
	return isalpha((unsigned char)c);
}

/* A name within a path. */
struct part {
	const char *text;
	size_t len;
	unsigned depth; /* parts above it */
};

struct digits {
	size_t from, to;
};

/* The first run of digits from `at` on; false where there is none. */
static bool find_digits(const struct part *p, size_t at, struct digits *ret_digits)
{
	while (at < p->len && !is_digit(p->text[at]))
		at++;
	ret_digits->from = at;
	while (at < p->len && is_digit(p->text[at]))
		at++;
	ret_digits->to = at;
	return ret_digits->from < ret_digits->to;
}

/* Does it count batches? ep0-ba40 */
static bool counts_batches(const struct part *p, size_t from)
{
	size_t begin, len;

	if (from > 0 && strchr("=_-.", p->text[from - 1]))
		from--;
	for (begin = from; begin > 0 && is_letter(p->text[begin - 1]);)
		begin--;
	len = from - begin;
	return (len == 2 && !strncasecmp(p->text + begin, "ba", 2)) ||
	       (len == 5 && !strncasecmp(p->text + begin, "batch", 5));
}

/* At the end of the name, or before an ending: model-12, model_12.zarr; but not what counts something else. */
static bool is_tail(const struct part *p, struct digits d)
{
	if (d.from == 0 || !strchr("-_.", p->text[d.from - 1]) ||
	    rules_number_of_part(p->text, d.from) || rules_number_of_layer(p->text, d.from))
		return false;
	return d.to == p->len ||
	       (p->text[d.to] == '.' && d.to + 1 < p->len && is_letter(p->text[d.to + 1]));
}

/* Nothing but a number, or several: 12, 0.005. */
static bool is_bare_number(const struct part *p)
{
	size_t at = 0;

	while (at < p->len && (is_digit(p->text[at]) || p->text[at] == '.'))
		at++;
	return at == p->len && is_digit(p->text[0]);
}

/* The last number of the best kind. */
static bool find_step(const struct part *p, struct digits *ret_step)
{
	bool of_word = false, found = false;
	struct digits d = {0, 0};

	if (is_bare_number(p)) {
		*ret_step = (struct digits){0, p->len};
		return p->depth < BARE_NUMBERS;
	}
	while (find_digits(p, d.to, &d)) {
		enum step_kind kind = rules_number_kind(p->text, p->len, d.from, d.to, true);
		bool word = kind == STEP_KIND_STEP || kind == STEP_KIND_CHECKPOINT ||
			    kind == STEP_KIND_EPOCH || counts_batches(p, d.from);

		if (!word && (of_word || !is_tail(p, d)))
			continue;
		*ret_step = d;
		of_word = word;
		found = true;
	}
	return found;
}

/* By the option: the last match in the names of directories counts. */
static struct checkpoint_place given_checkpoint(const struct rules *r, const char *path,
						bool directory)
{
	const char *slash = strrchr(path, '/');
	size_t len = directory ? strlen(path) : slash ? (size_t)(slash - path) : 0;
	cleanup_free char *directories = len ? strndup(path, len) : NULL;
	struct step_place place;

	if (!directories || !rules_step(r, directories, &place))
		return (struct checkpoint_place){path, 0};
	return (struct checkpoint_place){path, place.end};
}

struct checkpoint_place facts_checkpoint(const struct rules *r, const char *path, bool directory)
{
	struct part p = {path, 0, 0};

	if (rules_step_is_given(r))
		return given_checkpoint(r, path, directory);
	for (;; p.text += p.len + 1, p.depth++) {
		struct digits step;

		p.len = strcspn(p.text, "/");
		if ((p.text[p.len] || directory) && find_step(&p, &step))
			return (struct checkpoint_place){path, (size_t)(p.text - path) + p.len};
		if (!p.text[p.len])
			return (struct checkpoint_place){path, 0};
	}
}

/* ---- checkpoints as text ---- */

void checkpoint_put(const struct checkpoint_place *c, struct buf *out)
{
	buf_put(out, c->path, c->len);
}

bool checkpoint_is(const struct checkpoint_place *c, const char *text)
{
	return strlen(text) == c->len && !memcmp(text, c->path, c->len);
}

uint64_t checkpoint_hash(const struct checkpoint_place *c)
{
	uint64_t h = FNV1A_BEGIN;

	for (size_t i = 0; i < c->len; i++)
		h = fnv1a(h, (uint8_t)c->path[i]);
	return h ^ h >> 32;
}

/* ---- numbers aside ---- */

static const char *behind_digits(const char *text)
{
	while (is_digit(*text))
		text++;
	return text;
}

bool facts_same_kind(const char *one, const char *other)
{
	for (;;) {
		if (is_digit(*one) && is_digit(*other)) {
			one = behind_digits(one);
			other = behind_digits(other);
			continue;
		}
		if (*one != *other)
			return false;
		if (!*one)
			return true;
		one++;
		other++;
	}
}

bool facts_belongs_to(const char *path, const char *to)
{
	while (*to) {
		if (is_digit(*path) && is_digit(*to)) {
			path = behind_digits(path);
			to = behind_digits(to);
		} else if (*path++ != *to++) {
			return false;
		}
	}
	return !*path || strchr("-._~", *path);
}

void facts_numberless(const char *text, struct buf *out)
{
	while (*text) {
		if (is_digit(*text)) {
			buf_put_u8(out, '#');
			text = behind_digits(text);
		} else {
			buf_put_u8(out, (uint8_t)*text++);
		}
	}
}

void facts_shape_name(const char *path, const char *checkpoint, struct buf *out)
{
	size_t len = strlen(checkpoint);

	if (len && !strncmp(path, checkpoint, len) && path[len] == '/')
		path += len + 1;
	facts_numberless(path, out);
}
