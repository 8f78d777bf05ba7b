/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs show and diff: one epoch, and what two differ in. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/table.h"
#include "tools/target.h"

static uint64_t number(const json_t *e, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(e, key));

	return v > 0 ? (uint64_t)v : 0;
}

static const char *text(const json_t *e, const char *key)
{
	const char *s = json_string_value(json_object_get(e, key));

	return s ? s : "";
}

static void print_text(const char *key, const char *value)
{
	printf("%-13s ", key);
	cli_put(value);
	putchar('\n');
}

/* A list of texts, one a line under its name. */
static void print_list(const char *key, const json_t *list)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item) if (json_is_string(item))
		print_text(i ? "" : key, json_string_value(item));
}

/* Scalars and lists of texts of the record, one a line; sizes readable. */
static void print_record(json_t *epoch)
{
	json_t *doubts = doubts_texts(json_object_get(epoch, "doubts")), *value;
	const char *key;

	if (doubts)
		json_object_set_new(epoch, "doubts", doubts);
	/* For the next mount, not for people. */
	json_object_del(epoch, "saves");

	json_object_foreach(epoch, key, value)
	{
		char size[FORMAT_MAX];

		if (!strncmp(key, "bytes", 5) && json_is_integer(value)) {
			format_size(number(epoch, key), size);
			printf("%-13s %s\n", key, size);
		} else if (json_is_string(value)) {
			print_text(key, json_string_value(value));
		} else if (json_is_integer(value)) {
			printf("%-13s %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(value));
		} else if (json_is_boolean(value)) {
			printf("%-13s %s\n", key, json_is_true(value) ? "yes" : "no");
		} else if (json_is_array(value)) {
			print_list(key, value);
		}
	}
}

/* As ls -l begins a line. */
static char type_letter(const char *type)
{
	static const struct {
		const char *type;
		char letter;
	} letters[] = {
		{"file", '-'},	 {"directory", 'd'},	{"symlink", 'l'},	  {"fifo", 'p'},
		{"socket", 's'}, {"block device", 'b'}, {"character device", 'c'}};

	for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
		if (!strcmp(type, letters[i].type))
			return letters[i].letter;
	return '?';
}

static int print_files(const json_t *files)
{
	static const char *const headers[] = {"MODE", ">SIZE", "MODIFIED", "PATH"};
	struct table *t = table_new(headers, 4);
	int error = t ? 0 : -1;
	json_t *f;
	size_t i;

	json_array_foreach((json_t *)(uintptr_t)files, i, f)
	{
		char mode[16], size[FORMAT_MAX], when[FORMAT_MAX], path[8192];
		const char *target = text(f, "target");

		if (error)
			break;
		snprintf(mode, sizeof(mode), "%c%04o", type_letter(text(f, "type")),
			 (unsigned)number(f, "mode"));
		format_size(number(f, "size"), size);
		format_time(json_integer_value(json_object_get(f, "mtime_ns")), when);
		when[19] = 'Z';
		when[20] = '\0';
		snprintf(path, sizeof(path), "%s%s%s%s", text(f, "path"), *target ? " -> " : "",
			 target, json_is_true(json_object_get(f, "torn")) ? "  (torn)" : "");
		error = table_add(t, (const char *[]){mode, size, when, path});
	}
	if (!error)
		table_print(t);
	table_free(t);
	return error ? cli_error(EXIT_FAILED, "out of memory") : EXIT_DONE;
}

int command_show(int argc, char **argv)
{
	const char *operands[2] = {NULL};
	bool json = false;
	const struct cli_place places[] = {{"json", &json, NULL}, {0}};
	static const struct target_missing needs = {"a TARGET", 0, 2};
	struct target target;
	json_t *shown = NULL;
	uint64_t epoch;
	int code, count = cli_parse("show", argc, argv, places, operands, 2, &code);

	if (count < 0)
		return code;
	code = target_open_operands("show", &needs, operands, &count, &target);
	if (code != EXIT_DONE)
		return code;
	code = target_resolve(&target, count > 1 ? operands[1] : NULL, &epoch);
	if (code == EXIT_DONE)
		code = target_show(&target, epoch, &shown);
	target_close(&target);
	if (code == EXIT_DONE && json) {
		cli_print_json(shown, JSON_INDENT(2));
	} else if (code == EXIT_DONE) {
		print_record(json_object_get(shown, "epoch"));
		putchar('\n');
		code = print_files(json_object_get(shown, "files"));
	}
	json_decref(shown);
	return code;
}

static void print_changes(const json_t *list, char mark)
{
	json_t *c;
	size_t i;

	json_array_foreach((json_t *)(uintptr_t)list, i, c)
	{
		char size[FORMAT_MAX], old[FORMAT_MAX];

		format_size(number(c, "size"), size);
		format_size(number(c, "old_size"), old);
		printf("%c ", mark);
		cli_put(text(c, "path"));
		if (mark == '~' && json_is_true(json_object_get(c, "meta")))
			puts("  (attributes)");
		else if (mark == '~')
			printf("  %s -> %s\n", old, size);
		else if (!strcmp(text(c, "type"), "directory"))
			puts("/");
		else
			printf("  %s\n", size);
	}
}

static void print_diff(const json_t *diff)
{
	const json_t *added = json_object_get(diff, "added"),
		     *changed = json_object_get(diff, "changed"),
		     *removed = json_object_get(diff, "removed");
	char more[FORMAT_MAX], less[FORMAT_MAX];

	print_changes(removed, '-');
	print_changes(changed, '~');
	print_changes(added, '+');
	format_size(number(diff, "bytes_added"), more);
	format_size(number(diff, "bytes_removed"), less);
	printf("%zu added, %zu changed, %zu removed; %s more, %s less\n", json_array_size(added),
	       json_array_size(changed), json_array_size(removed), more, less);
}

int command_diff(int argc, char **argv)
{
	const char *operands[3];
	bool json = false;
	const struct cli_place places[] = {{"json", &json, NULL}, {0}};
	static const struct target_missing needs = {"a TARGET and an EPOCH", 1, 3};
	struct target target;
	uint64_t from = 0, to;
	json_t *diff = NULL;
	int code, count = cli_parse("diff", argc, argv, places, operands, 3, &code);

	if (count < 0)
		return code;
	code = target_open_operands("diff", &needs, operands, &count, &target);
	if (code != EXIT_DONE)
		return code;
	code = target_resolve(&target, operands[count - 1], &to);
	if (code == EXIT_DONE && count == 3)
		code = target_resolve(&target, operands[1], &from);
	if (code == EXIT_DONE)
		code = target_diff(&target, from, to, &diff);
	target_close(&target);
	if (code == EXIT_DONE && json)
		cli_print_json(diff, JSON_INDENT(2));
	else if (code == EXIT_DONE)
		print_diff(diff);
	json_decref(diff);
	return code;
}
