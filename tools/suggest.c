/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/suggest.h"

#include <stdio.h>
#include <string.h>

#include "tools/mount_options.h"

/* Names are shorter. */
#define WORD_MAX 32
/* Letters that may be wrong: one in three. */
#define LETTERS_A_FAULT 3

/* What other programs of this kind call it. */
static const struct other_name {
	const char *word, *command;
} other_names[] = {
	{"unmount", "umount"},	  {"restore", "export"},  {"ls", "log"},
	{"list", "log"},	  {"snapshots", "log"},	  {"snapshot", "commit"},
	{"save", "commit"},	  {"seal", "commit"},	  {"backup", "import"},
	{"checkout", "rollback"}, {"revert", "rollback"}, {"forget", "prune"},
	{"delete", "rm"},	  {"drop", "rm"},	  {"remove", "rm"},
	{"sync", "wait"},	  {"stat", "status"},	  {"info", "status"},
	{"options", "config"},	  {"diagnose", "doctor"}, {"report", "debug"},
};

/* How many letters have to be put in, left out or changed to make b of a, two in a row that changed places being one. */
static size_t distance(const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b), row[3][WORD_MAX + 1];

	for (size_t j = 0; j <= lb; j++)
		row[0][j] = j;
	for (size_t i = 1; i <= la; i++) {
		size_t *now = row[i % 3], *up = row[(i - 1) % 3], *two = row[(i + 1) % 3];

		now[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			size_t least = up[j - 1] + (a[i - 1] != b[j - 1]);

			least = up[j] + 1 < least ? up[j] + 1 : least;
			least = now[j - 1] + 1 < least ? now[j - 1] + 1 : least;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    two[j - 2] + 1 < least)
				least = two[j - 2] + 1;
			now[j] = least;
		}
	}
	return row[la % 3][lb];
}

/* The nearest so far. */
struct nearest {
	const char *word, *name;
	size_t distance;
};

static struct nearest nearest_to(const char *word)
{
	size_t len = strlen(word);

	/* Of a word that is too long nothing is near enough. */
	return (struct nearest){word, NULL, len > WORD_MAX ? 0 : len / LETTERS_A_FAULT + 1};
}

static void compare(struct nearest *n, const char *name)
{
	size_t d = n->distance && strlen(name) <= WORD_MAX ? distance(n->word, name) : n->distance;

	if (d >= n->distance)
		return;
	n->distance = d;
	n->name = name;
}

static const char *answer(const char *before, const char *name)
{
	static char text[2 * WORD_MAX + 32];

	if (!name)
		return "";
	snprintf(text, sizeof(text), " (did you mean `%s%s`?)", before, name);
	return text;
}

const char *suggest_command(const char *word)
{
	struct nearest n = nearest_to(word);

	for (size_t i = 0; i < sizeof(other_names) / sizeof(other_names[0]); i++)
		if (!strcmp(other_names[i].word, word))
			return answer("epochfs ", other_names[i].command);
	for (size_t i = 0; i < command_count; i++)
		compare(&n, command_table[i].name);
	return answer("epochfs ", n.name);
}

static void compare_options(struct nearest *n, const struct command_option *o)
{
	for (; o->name; o++)
		compare(n, o->name);
}

const char *suggest_option(const struct command *c, const char *arg)
{
	char word[WORD_MAX + 2] = "";
	struct nearest n;

	if (arg[1] == '-')
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(arg + 2, "="), arg + 2);
	n = nearest_to(word);
	compare_options(&n, c->options);
	compare_options(&n, common_command_options);
	for (const struct command_option *o = c->options; o->name; o++)
		for (size_t i = 0; i < mount_option_count && !strcmp(o->name, "options"); i++)
			compare(&n, mount_option_table[i].name);
	return answer("--", n.name);
}

const char *suggest_mount_option(const char *word)
{
	struct nearest n = nearest_to(word);

	for (size_t i = 0; i < mount_option_count; i++)
		compare(&n, mount_option_table[i].name);
	return answer("-o ", n.name);
}
