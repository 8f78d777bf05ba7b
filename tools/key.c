/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs key: the passphrases and key files that open an encrypted volume. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/admin/keys.h"
#include "lib/util/cleanup.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/mount_options.h"
#include "tools/table.h"
#include "tools/target.h"

struct request {
	const char *url;
	struct remote_limits limits;
	bool json;
};

static int failed(int error, const char *message)
{
	return cli_error(exit_code_of(error), "%s", message ? message : strerror(-error));
}

static int print_json(json_t *value)
{
	json_dumpf(value, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(value);
	return EXIT_DONE;
}

/* ---- list ---- */

static int append_key(void *arg, const struct key_info *k)
{
	json_t *o = json_pack("{s:s, s:s?, s:I}", "id", k->id, "kind", k->kind, "created_ns",
			      (json_int_t)k->created_ns);

	return json_array_append_new(arg, o) ? -ENOMEM : 0;
}

static int add_row(struct table *t, const json_t *key)
{
	const char *kind = json_string_value(json_object_get(key, "kind"));
	char created[FORMAT_MAX] = "";
	const char *cells[] = {json_string_value(json_object_get(key, "id")),
			       kind ? kind : "damaged", created};

	if (kind)
		format_time(json_integer_value(json_object_get(key, "created_ns")), created);
	return table_add(t, cells);
}

static int print_table(json_t *keys)
{
	static const char *const headers[] = {"KEY", "KIND", "CREATED"};
	struct table *t = table_new(headers, 3);
	int error = t ? 0 : -ENOMEM;
	json_t *key;
	size_t i;

	json_array_foreach(keys, i, key)
	{
		if (!error)
			error = add_row(t, key);
	}
	if (!error)
		table_print(t);
	table_free(t);
	json_decref(keys);
	return error ? failed(error, NULL) : EXIT_DONE;
}

static int list(const struct request *r)
{
	cleanup_free char *message = NULL;
	json_t *keys = json_array();
	int error = keys_each(r->url, &r->limits, append_key, keys, &message);

	if (error) {
		json_decref(keys);
		return failed(error, message);
	}
	return r->json ? print_json(keys) : print_table(keys);
}

/* ---- add and remove ---- */

static int add(const struct request *r, const char *passphrase_file, const char *key_file)
{
	const struct remote_limits added = {.passphrase_file = passphrase_file,
					    .key_file = key_file};
	cleanup_free char *message = NULL;
	char id[KEY_ID_MAX];
	int error = keys_add(r->url, &r->limits, &added, id, &message);

	if (error)
		return failed(error, message);
	if (r->json)
		return print_json(json_pack("{s:s}", "added", id));
	printf("added key %s\n", id);
	return EXIT_DONE;
}

static int remove_key(const struct request *r, const char *id)
{
	cleanup_free char *message = NULL;
	int error = keys_remove(r->url, &r->limits, id, &message);

	if (error)
		return failed(error, message);
	if (r->json)
		return print_json(json_pack("{s:s}", "removed", id));
	printf("removed key %s; whoever had it may have kept what it opened\n", id);
	return EXIT_DONE;
}

/* ---- the command ---- */

static int run(const char **words, int count, struct request *r, const char *passphrase_file,
	       const char *key_file)
{
	bool adds = !strcmp(words[0], "add"), removes = !strcmp(words[0], "remove");

	if (!adds && !removes && strcmp(words[0], "list") != 0)
		return cli_usage_error("key", "%s: add, remove or list is asked for", words[0]);
	if (count != (removes ? 3 : 2))
		return cli_usage_error("key", "%s needs a TARGET%s", words[0],
				       removes ? " and a KEY" : "");
	if (adds == (!passphrase_file == !key_file))
		return cli_usage_error(
			"key", adds ? "add needs one of --new-passphrase-file and --new-key-file"
				    : "--new-passphrase-file and --new-key-file are for add");
	if (adds)
		return add(r, passphrase_file, key_file);
	return removes ? remove_key(r, words[2]) : list(r);
}

int command_key(int argc, char **argv)
{
	const char *words[3], *passphrase_file = NULL, *key_file = NULL;
	struct request r = {0};
	const struct cli_place places[] = {
		{"json", &r.json, NULL},
		{"new-passphrase-file", NULL, &passphrase_file},
		{"new-key-file", NULL, &key_file},
		{0},
	};
	struct target_missing needs = {.what = "a TARGET"};
	cleanup_free char *other = NULL, *mount = NULL;
	int operands, code, count = cli_parse("key", argc, argv, places, words, 3, &code);

	if (count < 0)
		return code;
	if (!count)
		return cli_usage_error("key", "needs add, remove or list, and a TARGET");
	needs.others = !strcmp(words[0], "remove");
	needs.max = 1 + needs.others;
	if (needs.others)
		needs.what = "a TARGET and a KEY";
	operands = count - 1;
	code = target_complete("key", &needs, words + 1, &operands, &mount);
	if (code != EXIT_DONE)
		return code;
	count = operands + 1;
	code = target_find_remote(words[1], &other, &r.url);
	if (code == EXIT_DONE)
		code = mount_options_limits(r.url, &r.limits);
	return code == EXIT_DONE ? run(words, count, &r, passphrase_file, key_file) : code;
}
