/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs help: what the tables of commands and options say, for people and for scripts. */
#include <stdio.h>
#include <string.h>

#include "lib/util/buf.h"
#include "tools/cli.h"
#include "tools/mount_options.h"

#define COLUMNS 100
/* Where the text of an option begins, at least and at most. */
#define TEXT_AT	    20
#define TEXT_AT_MAX 30
#define TERM_MAX    64

const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < command_count; i++)
		if (!strcmp(command_table[i].name, name))
			return &command_table[i];
	return NULL;
}

/* ---- for people ---- */

/* Folded at blanks; the first line begins at `column`, the others at `indent`. */
static void print_folded(const char *text, size_t column, size_t indent)
{
	while (*text) {
		size_t len = strlen(text), room = COLUMNS - column;

		if (len > room) {
			for (len = room; len && text[len] != ' '; len--)
				;
			len = len ? len : strcspn(text, " ");
		}
		printf("%.*s\n", (int)len, text);
		text += len + strspn(text + len, " ");
		column = indent;
		if (*text)
			printf("%*s", (int)indent, "");
	}
}

/* "  -n, --dry-run"; its length. */
static size_t put_option(const struct command_option *o, char *out, size_t size)
{
	char letter[6] = "";

	if (o->letter)
		snprintf(letter, sizeof(letter), "-%c, ", o->letter);
	return (size_t)snprintf(out, size, "  %s--%s%s%s", letter, o->name, o->value ? " " : "",
				o->value ? o->value : "");
}

/* The column at which all texts begin, once a term of so many columns is among them. */
static size_t wider(size_t column, size_t term)
{
	return term + 2 > column && term + 2 <= TEXT_AT_MAX ? term + 2 : column;
}

void cli_print_row(const char *term, const char *text, size_t indent)
{
	size_t len = strlen(term), at = len + 2 > indent ? len + 2 : indent;

	printf("%-*s", (int)at, term);
	print_folded(text, at, indent);
}

static void print_options(const struct command_option *list)
{
	size_t indent = TEXT_AT;
	char term[TERM_MAX];

	for (const struct command_option *o = list; o->name; o++)
		indent = wider(indent, put_option(o, term, sizeof(term)));
	for (const struct command_option *o = list; o->name; o++) {
		put_option(o, term, sizeof(term));
		cli_print_row(term, o->help, indent);
	}
}

/* "  settle=TIME"; its length. */
static size_t put_mount_option(const struct option_row *row, char *out, size_t size)
{
	return (size_t)snprintf(out, size, "  %s%s%s", row->name, *row->value ? "=" : "",
				row->value);
}

/* The options that people use. */
static bool is_usual(const struct option_row *row)
{
	static const char *const usual[] = {
		"ro",		"cache-dir",	   "cache-size", "settle",	"patience",
		"resume",	"durability",	   "keep",	 "run-id",	"nodes",
		"upload-limit", "passphrase-file", "key-file",	 "allow_other", "supervise"};

	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		if (!strcmp(usual[i], row->name))
			return true;
	return false;
}

static bool is_shown(const struct option_row *row, bool all)
{
	return row->value && (all || is_usual(row));
}

static void print_mount_options(bool all)
{
	size_t indent = TEXT_AT;
	char term[TERM_MAX];

	for (size_t i = 0; i < mount_option_count; i++)
		if (is_shown(&mount_option_table[i], all))
			indent = wider(indent, put_mount_option(&mount_option_table[i], term,
								sizeof(term)));
	for (size_t i = 0; i < mount_option_count; i++) {
		const struct option_row *row = &mount_option_table[i];
		cleanup_buf struct buf text = {0};

		if (!is_shown(row, all))
			continue;
		buf_printf(&text, "%s", row->help);
		if (row->by_default)
			buf_printf(&text, " (default: %s)", row->by_default);
		put_mount_option(row, term, sizeof(term));
		cli_print_row(term, buf_str(&text), indent);
	}
}

/* Each form of its arguments in a line. */
static void print_usage(const struct command *c)
{
	const char *form = c->arguments, *before = "usage: ";

	do {
		size_t len = strcspn(form, "\n");

		printf("%sepochfs %s%s%.*s\n", before, c->name, len ? " " : "", (int)len, form);
		form += len + (form[len] == '\n');
		before = "       ";
	} while (*form);
}

static void print_help(const struct command *c, bool all)
{
	print_usage(c);
	printf("%s.\n", c->summary);
	if (c->options->name || c->help)
		putchar('\n');
	print_options(c->options);
	if (c->help)
		fputs(c->help, stdout);
	if (c->run == command_mount) {
		puts(all ? "\nWhat -o takes, each also as --NAME; epochfs(1) says more:"
			 : "\nWhat -o takes, each also as --NAME; --help-all shows the rest:");
		print_mount_options(all);
	}
}

void command_help(const struct command *c)
{
	print_help(c, false);
}

void mount_help_all(void)
{
	print_help(command_find("mount"), true);
}

void program_help(FILE *out)
{
	fputs("epochfs makes a training run's checkpoint directory safe: what is closed is committed,\n"
	      "whole checkpoints become epochs that can be browsed, rolled back to and restored.\n\n"
	      "usage: epochfs COMMAND [ARGUMENTS]\n\n",
	      out);
	for (size_t i = 0; i < command_count; i++)
		fprintf(out, "  %-9s %s\n", command_table[i].name, command_table[i].summary);
	fputs("\n`epochfs COMMAND --help` tells more. A TARGET is a mount point, a path in a mount, or a remote; where it may\n"
	      "be left out, it is the mount that you are in. Every command takes --passphrase-file FILE or --key-file FILE\n"
	      "for a volume that is encrypted.\n"
	      "Exit codes: 0 done, 1 failed, 2 usage, 3 remote not reached, 4 not allowed by the remote,\n"
	      "5 not found, 6 damaged data, 7 not durable in time, 8 in use or in conflict.\n",
	      out);
}

/* ---- for scripts ---- */

/* A list that lacks an entry says NULL. */
static bool append(json_t *array, json_t *entry)
{
	return entry && !json_array_append_new(array, entry);
}

static json_t *options_json(const struct command_option *o)
{
	json_t *array = json_array();

	for (; array && o->name; o++) {
		char letter[2] = {o->letter, '\0'};

		if (append(array, json_pack("{s:s, s:s*, s:s*, s:s}", "name", o->name, "letter",
					    o->letter ? letter : NULL, "value", o->value, "help",
					    o->help)))
			continue;
		json_decref(array);
		return NULL;
	}
	return array;
}

static json_t *commands_json(void)
{
	json_t *array = json_array();

	for (size_t i = 0; array && i < command_count; i++) {
		const struct command *c = &command_table[i];

		if (append(array, json_pack("{s:s, s:s, s:s, s:o, s:s*}", "name", c->name,
					    "arguments", c->arguments, "summary", c->summary,
					    "options", options_json(c->options), "help", c->help)))
			continue;
		json_decref(array);
		return NULL;
	}
	return array;
}

static json_t *mount_options_json(void)
{
	json_t *array = json_array();

	for (size_t i = 0; array && i < mount_option_count; i++) {
		const struct option_row *row = &mount_option_table[i];

		if (append(array, json_pack("{s:s, s:s*, s:s*, s:s*, s:b}", "name", row->name,
					    "value", row->value, "help", row->help, "default",
					    row->by_default, "environment", (int)row->environment)))
			continue;
		json_decref(array);
		return NULL;
	}
	return array;
}

static int print_json(void)
{
	json_t *all =
		json_pack("{s:s, s:o, s:o, s:o}", "version", EPOCHFS_VERSION, "commands",
			  commands_json(), "common_options", options_json(common_command_options),
			  "mount_options", mount_options_json());

	if (!all)
		return cli_error(EXIT_FAILED, "out of memory");
	cli_print_json(all, JSON_INDENT(2));
	json_decref(all);
	return EXIT_DONE;
}

int command_help_of(int argc, char **argv)
{
	bool json = false;
	const char *operands[1] = {NULL};
	const struct cli_place places[] = {{"json", &json, NULL}, {0}};
	const struct command *c;
	int code, count = cli_parse("help", argc, argv, places, operands, 1, &code);

	if (count < 0)
		return code;
	if (json)
		return print_json();
	if (!count) {
		program_help(stdout);
		return EXIT_DONE;
	}
	c = command_find(operands[0]);
	if (!c)
		return cli_usage_error("help", "there is no command %s", operands[0]);
	command_help(c);
	return EXIT_DONE;
}

int command_version(int argc, char **argv)
{
	static const struct cli_place none[] = {{0}};
	int code;

	if (cli_parse("version", argc, argv, none, NULL, 0, &code) < 0)
		return code;
	puts("epochfs " EPOCHFS_VERSION);
	return EXIT_DONE;
}
