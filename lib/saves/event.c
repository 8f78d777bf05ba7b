/* SPDX-License-Identifier: Apache-2.0 */
/* Events as lines of text. */
#include "lib/saves/event.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NS_A_SECOND INT64_C(1000000000)

/* Fields, in the order of a line. */
enum {
	PROCESS = 1 << 0,
	HANDLE = 1 << 1,
	SIZE = 1 << 2,
	STATUS = 1 << 3,
	EPOCH = 1 << 4,
	RULE = 1 << 5,
	PATH = 1 << 6,
	TO = 1 << 7,
	PATH_IF_ANY = 1 << 8,
};

static const struct {
	const char *key; /* with what stands before the digits */
	unsigned field;
	size_t offset;
} numbers[] = {
	{"process=", PROCESS, offsetof(struct save_event, process)},
	{"handle=", HANDLE, offsetof(struct save_event, handle)},
	{"size=", SIZE, offsetof(struct save_event, size)},
	{"status=", STATUS, offsetof(struct save_event, status)},
	{"epoch=", EPOCH, offsetof(struct save_event, epoch)},
	{"rule=S", RULE, offsetof(struct save_event, rule)},
};
#define NUMBERS (sizeof(numbers) / sizeof(*numbers))

/* In the order of their bits. */
static const char *const words[] = {
	"new",	  "replace", "edit",	"shared", "same",      "grew",	  "had",
	"killed", "torn",    "refused", "over",	  "directory", "unknown", "whole",
};
#define WORDS (sizeof(words) / sizeof(*words))

/* Of each kind: its fields, words that it may have, and those of which it has exactly one. */
static const struct {
	const char *name;
	unsigned fields, may, one_of;
} kinds[SAVE_EVENT_COUNT] = {
	[SAVE_MADE] = {"made", PROCESS | PATH, 0, 0},
	[SAVE_OPENED] = {"opened", PROCESS | HANDLE | PATH, 0,
			 SAVE_IS_NEW | SAVE_IS_REPLACE | SAVE_IS_EDIT},
	[SAVE_REFUSED] = {"refused", HANDLE, 0, 0},
	[SAVE_CLOSED] = {"closed", HANDLE | SIZE | PATH_IF_ANY,
			 SAVE_IS_SHARED | SAVE_IS_SAME | SAVE_IS_GREW | SAVE_IS_HAD |
				 SAVE_IS_KILLED | SAVE_IS_TORN,
			 0},
	[SAVE_UNDONE] = {"undone", HANDLE | PATH_IF_ANY, 0,
			 SAVE_IS_KILLED | SAVE_IS_TORN | SAVE_IS_REFUSED},
	[SAVE_RENAMED] = {"renamed", PROCESS | SIZE | PATH | TO, SAVE_IS_OVER | SAVE_IS_DIRECTORY,
			  0},
	[SAVE_EXCHANGED] = {"exchanged", PROCESS | SIZE | PATH | TO, 0, 0},
	[SAVE_LINKED] = {"linked", PROCESS | SIZE | PATH, 0, 0},
	[SAVE_REMOVED] = {"removed", PATH, SAVE_IS_DIRECTORY, 0},
	[SAVE_ENDED] = {"ended", PROCESS | STATUS, SAVE_IS_UNKNOWN, 0},
	[SAVE_ASKED] = {"asked", 0, SAVE_IS_WHOLE, 0},
	[SAVE_SEALED] = {"sealed", EPOCH | RULE, SAVE_IS_WHOLE, 0},
	[SAVE_BACK] = {"back", EPOCH, 0, 0},
	[SAVE_LOST] = {"lost", 0, 0, 0},
	[SAVE_TIME] = {"time", 0, 0, 0},
};

static uint64_t number_of(const struct save_event *e, size_t i)
{
	return *(const uint64_t *)(const void *)((const char *)e + numbers[i].offset);
}

static bool is_single_bit(unsigned bits)
{
	return bits && !(bits & (bits - 1));
}

static bool part_valid(const char *part, size_t len)
{
	return len > 0 && !(len == 1 && part[0] == '.') && !(len == 2 && !memcmp(part, "..", 2));
}

bool save_path_valid(const char *path)
{
	for (;; path++) {
		size_t len = strcspn(path, "/");

		if (!part_valid(path, len))
			return false;
		path += len;
		if (!*path)
			return true;
	}
}

static bool path_fits(const char *path, bool wanted, bool allowed)
{
	return path ? (wanted || allowed) && save_path_valid(path) : !wanted;
}

bool save_event_valid(const struct save_event *e)
{
	unsigned fields;

	if ((unsigned)e->kind >= SAVE_EVENT_COUNT || e->at_ns < 0 || e->at_ns > SAVE_TIME_MAX)
		return false;
	fields = kinds[e->kind].fields;
	for (size_t i = 0; i < NUMBERS; i++)
		if (!(fields & numbers[i].field) && number_of(e, i))
			return false;
	if (e->facts & ~(kinds[e->kind].may | kinds[e->kind].one_of))
		return false;
	if (kinds[e->kind].one_of && !is_single_bit(e->facts & kinds[e->kind].one_of))
		return false;
	if (e->path && e->to && !strcmp(e->path, e->to))
		return false;
	return path_fits(e->path, fields & PATH, fields & PATH_IF_ANY) &&
	       path_fits(e->to, fields & TO, false);
}

/* ---- printing ---- */

static void print_time(struct buf *out, int64_t ns)
{
	char fraction[16];
	size_t len;

	buf_printf(out, "%lld", (long long)(ns / NS_A_SECOND));
	if (ns % NS_A_SECOND == 0)
		return;
	len = (size_t)snprintf(fraction, sizeof(fraction), "%09lld", (long long)(ns % NS_A_SECOND));
	while (fraction[len - 1] == '0')
		len--;
	buf_printf(out, ".%.*s", (int)len, fraction);
}

static bool is_escaped(unsigned char c)
{
	return c <= ' ' || c == 0x7f || c == '%';
}

static void print_path(struct buf *out, const char *key, const char *path)
{
	if (!path)
		return;
	buf_printf(out, " %s/", key);
	for (; *path; path++) {
		unsigned char c = (unsigned char)*path;

		if (is_escaped(c))
			buf_printf(out, "%%%02X", c);
		else
			buf_put_u8(out, c);
	}
}

void save_event_print(struct buf *out, const struct save_event *e)
{
	char before = '=';

	print_time(out, e->at_ns);
	buf_printf(out, " %s", kinds[e->kind].name);
	for (size_t i = 0; i < NUMBERS; i++)
		if (kinds[e->kind].fields & numbers[i].field)
			buf_printf(out, " %s%llu", numbers[i].key,
				   (unsigned long long)number_of(e, i));
	if (e->facts)
		buf_printf(out, " is");
	for (size_t i = 0; i < WORDS; i++) {
		if (!(e->facts & 1u << i))
			continue;
		buf_printf(out, "%c%s", before, words[i]);
		before = ',';
	}
	print_path(out, "path=", e->path);
	print_path(out, "to=", e->to);
}

/* ---- reading ---- */

/* Takes the number that begins at *at, as it is printed, and moves on behind it. */
static bool take_number(const char **at, uint64_t *ret_value)
{
	const char *p = *at;
	uint64_t value = 0;

	if (!isdigit((unsigned char)*p) || (*p == '0' && isdigit((unsigned char)p[1])))
		return false;
	for (; isdigit((unsigned char)*p); p++) {
		unsigned digit = (unsigned)(*p - '0');

		if (value > (UINT64_MAX - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*at = p;
	*ret_value = value;
	return true;
}

static bool take_time(const char *word, int64_t *ret_ns)
{
	int64_t unit = NS_A_SECOND / 10, ns;
	uint64_t seconds;

	if (!take_number(&word, &seconds) || seconds > (uint64_t)(SAVE_TIME_MAX / NS_A_SECOND))
		return false;
	ns = (int64_t)seconds * NS_A_SECOND;
	if (*word == '.') {
		for (word++; isdigit((unsigned char)*word) && unit; word++, unit /= 10)
			ns += unit * (*word - '0');
		/* At least one digit, and no 0 at the end. */
		if (word[-1] == '.' || word[-1] == '0')
			return false;
	}
	*ret_ns = ns;
	return !*word;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Puts the path in the place of its escapes. */
static bool take_path(char *word, const char **ret_path)
{
	char *in = word + 1, *out = word;

	if (*word != '/')
		return false;
	for (; *in; in++) {
		unsigned char c = (unsigned char)*in;

		if (c == '%') {
			int high = hex_value(in[1]), low = high < 0 ? -1 : hex_value(in[2]);

			if (low < 0)
				return false;
			c = (unsigned char)(high << 4 | low);
			if (!c || !is_escaped(c))
				return false;
			in += 2;
		} else if (is_escaped(c)) {
			return false;
		}
		*out++ = (char)c;
	}
	*out = '\0';
	*ret_path = word;
	return true;
}

/* The words in the order of their bits. */
static bool take_facts(const char *list, unsigned *ret_facts)
{
	size_t i = 0;

	for (;; list++) {
		size_t len = strcspn(list, ",");

		while (i < WORDS && !(strlen(words[i]) == len && !memcmp(words[i], list, len)))
			i++;
		if (i == WORDS)
			return false;
		*ret_facts |= 1u << i++;
		list += len;
		if (!*list)
			return true;
	}
}

/* The next word of a line, which ends there; NULL after the last. Words stand one space apart. */
static char *next_word(char **rest)
{
	char *word = *rest, *space;

	if (!word)
		return NULL;
	space = strchr(word, ' ');
	if (space)
		*space = '\0';
	*rest = space ? space + 1 : NULL;
	return word;
}

/* What stands behind the key, where the word begins with it. */
static char *value_of(char *word, const char *key)
{
	size_t len = strlen(key);

	return word && strncmp(word, key, len) == 0 ? word + len : NULL;
}

/* The fields behind time and kind. What a kind needs is for save_event_valid to say. */
static bool take_fields(char *rest, struct save_event *e)
{
	char *word = next_word(&rest), *value;

	for (size_t i = 0; i < NUMBERS; i++) {
		const char *digits;

		if (!(kinds[e->kind].fields & numbers[i].field))
			continue;
		digits = value_of(word, numbers[i].key);
		if (!digits ||
		    !take_number(&digits, (uint64_t *)(void *)((char *)e + numbers[i].offset)) ||
		    *digits)
			return false;
		word = next_word(&rest);
	}
	if ((value = value_of(word, "is="))) {
		if (!take_facts(value, &e->facts))
			return false;
		word = next_word(&rest);
	}
	if ((value = value_of(word, "path="))) {
		if (!take_path(value, &e->path))
			return false;
		word = next_word(&rest);
	}
	if ((value = value_of(word, "to="))) {
		if (!take_path(value, &e->to))
			return false;
		word = next_word(&rest);
	}
	return !word;
}

int save_event_parse(char *line, struct save_event *ret_event)
{
	struct save_event e = {.kind = SAVE_MADE};
	char *rest = line, *time = next_word(&rest), *name = next_word(&rest);

	if (!name || !take_time(time, &e.at_ns))
		return -EINVAL;
	while (e.kind < SAVE_EVENT_COUNT && strcmp(kinds[e.kind].name, name) != 0)
		e.kind++;
	if (e.kind == SAVE_EVENT_COUNT || !take_fields(rest, &e) || !save_event_valid(&e))
		return -EINVAL;
	*ret_event = e;
	return 0;
}

const char *save_event_name(enum save_event_kind kind)
{
	return kinds[kind].name;
}

const char *save_fact_name(unsigned fact)
{
	size_t i = 0;

	while (i < WORDS - 1 && fact >> i != 1)
		i++;
	return words[i];
}
