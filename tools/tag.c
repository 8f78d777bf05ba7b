/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs tag: names epochs, removes names, lists them; on a mount or on a remote. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli.h"
#include "tools/client.h"
#include "tools/target.h"

static int list_tags(const struct target *t, bool json)
{
	json_t *tags, *number;
	const char *name;
	int code = target_tags(t, &tags);

	if (code != EXIT_DONE)
		return code;
	if (json) {
		cli_print_json(tags, JSON_INDENT(2) | JSON_SORT_KEYS);
	} else {
		json_object_foreach(tags, name, number)
		{
			printf("%06" JSON_INTEGER_FORMAT "  ", json_integer_value(number));
			cli_put(name);
			putchar('\n');
		}
	}
	json_decref(tags);
	return EXIT_DONE;
}

static int call_and_forget(const char *mount, json_t *request)
{
	json_t *response = NULL;
	int code = client_call(mount, request, &response);

	json_decref(response);
	return code;
}

static int remote_result(const struct target *t, const char *name, int error)
{
	switch (error) {
	case 0:
		return EXIT_DONE;
	case -EEXIST:
		return cli_error(EXIT_CONFLICT, "%s: the tag '%s' is taken; -f moves it", t->name,
				 name);
	case -ENOENT:
		return cli_error(EXIT_NOT_FOUND, "%s: there is no tag '%s'", t->name, name);
	case -EINVAL:
		return cli_error(
			EXIT_USAGE,
			"'%s' cannot be a tag: no '/', no leading '.' or step=, not only digits, "
			"not latest, current or torn",
			name);
	default:
		return cli_error(exit_code_of(error), "%s: tag '%s': %s", t->name, name,
				 cli_reason(error));
	}
}

static int add_tag(const struct target *t, const char *epoch, const char *name, bool force)
{
	uint64_t number;
	int code = target_resolve(t, epoch, &number);

	if (code != EXIT_DONE)
		return code;
	if (t->catalog)
		return remote_result(t, name, catalog_tag(t->catalog, name, number, force));
	return call_and_forget(t->name,
			       json_pack("{s:s, s:I, s:s, s:b}", "op", "tag", "epoch",
					 (json_int_t)number, "name", name, "replace", (int)force));
}

static int remove_tag(const struct target *t, const char *name)
{
	if (t->catalog)
		return remote_result(t, name, catalog_untag(t->catalog, name));
	return call_and_forget(t->name, json_pack("{s:s, s:s}", "op", "untag", "name", name));
}

int command_tag(int argc, char **argv)
{
	bool json = false, force = false, remove = false;
	const struct cli_place places[] = {
		{"json", &json, NULL}, {"force", &force, NULL}, {"delete", &remove, NULL}, {0}};
	const char *operands[3] = {NULL};
	struct target_missing needs;
	struct target target;
	int code, count = cli_parse("tag", argc, argv, places, operands, 3, &code);

	if (count < 0)
		return code;
	needs = remove	    ? (struct target_missing){"-d, a TARGET and a NAME", 1, 2}
		: count > 1 ? (struct target_missing){"a TARGET, an EPOCH and a NAME", 2, 3}
			    : (struct target_missing){"a TARGET", 0, 1};
	if (count > needs.max)
		return cli_usage_error("tag", "too many arguments: %s", operands[needs.max]);
	code = target_open_operands("tag", &needs, operands, &count, &target);
	if (code != EXIT_DONE)
		return code;
	if (remove)
		code = remove_tag(&target, operands[1]);
	else if (count < 2)
		code = list_tags(&target, json);
	else
		code = add_tag(&target, operands[1], operands[2], force);
	target_close(&target);
	return code;
}
