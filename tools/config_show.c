/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs config: which options hold, and where each comes from. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/format/wire.h"
#include "lib/util/cleanup.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/config.h"
#include "tools/mount_options.h"
#include "tools/table.h"
#include "tools/target.h"

#define OF_DEFAULT "default"

/* All that have a value: {NAME: {"value": V, "from": F}}, in the order of the table. */
static json_t *with_defaults(const json_t *given)
{
	json_t *all = json_object();

	for (size_t i = 0; i < mount_option_count; i++) {
		const struct option_row *row = &mount_option_table[i];
		json_t *entry = json_object_get(given, row->name);

		if (entry)
			json_object_set(all, row->name, entry);
		else if (row->by_default)
			json_object_set_new(all, row->name,
					    json_pack("{s:s, s:s}", "value", row->by_default,
						      "from", OF_DEFAULT));
	}
	return all;
}

/* Those of a mount, as it was told them. */
static int of_mount(const char *mount, json_t **ret_given)
{
	json_t *answer;
	int code = client_call(mount, json_pack("{s:s}", "op", "options"), &answer);

	if (code != EXIT_DONE)
		return code;
	*ret_given = json_incref(json_object_get(answer, "options"));
	json_decref(answer);
	return EXIT_DONE;
}

/* Those that a mount of it would have; NULL: of a remote that no section is for. */
static int of_remote(const char *remote, json_t **ret_given)
{
	struct mount_options o;
	int code;

	mount_options_init(&o);
	code = mount_options_defaults(&o, remote);
	*ret_given = json_incref(o.given);
	mount_options_free(&o);
	return code;
}

static int look_up(const char *name, bool *ret_mounted, json_t **ret_given)
{
	cleanup_free char *mount = NULL;
	char path[PATH_MAX];
	int code;

	*ret_mounted = name && client_is_mount(name) != 0;
	if (*ret_mounted)
		return of_mount(name, ret_given);
	mount = name ? target_mount_of_path(name) : NULL;
	*ret_mounted = mount != NULL;
	if (mount)
		return of_mount(mount, ret_given);
	code = name ? target_remote(name, path, &name) : EXIT_DONE;
	return code == EXIT_DONE ? of_remote(name, ret_given) : code;
}

static json_t *files_json(void)
{
	json_t *files = json_array();
	char path[PATH_MAX];

	for (size_t i = 0; i < CONFIG_FILES; i++) {
		config_path(i, path);
		if (*path)
			json_array_append_new(files, json_pack("{s:s, s:b}", "path", path, "there",
							       access(path, F_OK) == 0));
	}
	return files;
}

static int print_table(json_t *all)
{
	static const char *const headers[] = {"OPTION", "VALUE", "FROM"};
	struct table *t = table_new(headers, 3);
	int error = t ? 0 : -1;
	const char *name;
	json_t *entry;

	json_object_foreach(all, name, entry)
	{
		const char *value = json_string_value(json_object_get(entry, "value"));
		const char *from = json_string_value(json_object_get(entry, "from"));

		if (!error)
			error = table_add(t, (const char *[]){name, value && *value ? value : "on",
							      from ? from : "?"});
	}
	if (!error)
		table_print(t);
	table_free(t);
	return error ? cli_error(EXIT_FAILED, "out of memory") : EXIT_DONE;
}

static int print_files(const json_t *files)
{
	const json_t *file;
	size_t i;

	json_array_foreach(files, i, file)
		printf("%s: %s\n", json_string_value(json_object_get(file, "path")),
		       json_is_true(json_object_get(file, "there")) ? "read" : "not there");
	return EXIT_DONE;
}

int command_config(int argc, char **argv)
{
	bool json = false, mounted = false;
	const struct cli_place places[] = {{"json", &json, NULL}, {0}};
	cleanup_json json_t *given = NULL, *all = NULL, *files = NULL;
	const char *name = NULL;
	int code, count = cli_parse("config", argc, argv, places, &name, 1, &code);

	if (count < 0)
		return code;
	code = look_up(name, &mounted, &given);
	if (code != EXIT_DONE)
		return code;
	all = with_defaults(given);
	files = mounted ? NULL : files_json();
	if (json) {
		cleanup_json json_t *shown =
			json_pack("{s:O, s:O?}", "options", all, "files", files);

		cli_print_json(shown, JSON_INDENT(2));
		return EXIT_DONE;
	}
	code = print_table(all);
	return code == EXIT_DONE && !mounted ? print_files(files) : code;
}
