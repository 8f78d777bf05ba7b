/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs cache: what a mount's cache holds, and fetching an epoch into it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/target.h"
#include "tools/warm.h"

#define PATHS_MAX 256

static int need_mount(const char *name)
{
	if (client_is_mount(name) == 0)
		return cli_error(
			EXIT_NOT_FOUND,
			"%s: no volume is mounted there, and the cache belongs to a mount: "
			"`epochfs mount REMOTE DIRECTORY` first; `epochfs export` restores "
			"without one",
			name);
	return target_need_mount(name, "cache");
}

static void print_size(const char *label, const json_t *cache, const char *key)
{
	const json_t *value = json_object_get(cache, key);
	char size[FORMAT_MAX];

	if (!value)
		return;
	format_size((uint64_t)json_integer_value(value), size);
	printf("%-12s %s\n", label, size);
}

static int show_status(const char *mount, bool json)
{
	json_t *status;
	const json_t *cache;
	int code = client_call(mount, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	cache = json_object_get(status, "cache");
	if (json) {
		cli_print_json(cache, JSON_INDENT(2));
	} else {
		print_size("local", cache, "bytes");
		print_size("not durable", cache, "dirty_bytes");
		print_size("limit", cache, "limit_bytes");
		print_size("disk free", cache, "free_bytes");
	}
	json_decref(status);
	return EXIT_DONE;
}

int command_cache(int argc, char **argv)
{
	const char *operands[PATHS_MAX + 3];
	bool json = false;
	const struct cli_place places[] = {{"json", &json, NULL}, {0}};
	int code, count = cli_parse("cache", argc, argv, places, operands, PATHS_MAX + 3, &code);

	if (count < 0)
		return code;
	if (count < 2 || (strcmp(operands[0], "warm") && strcmp(operands[0], "status")))
		return cli_usage_error("cache",
				       "needs `warm` or `status`, and the DIRECTORY of a mount");
	if (operands[0][0] == 's' && count > 2)
		return cli_usage_error("cache", "too many arguments: %s", operands[2]);
	code = need_mount(operands[1]);
	if (code != EXIT_DONE)
		return code;
	if (operands[0][0] == 's')
		return show_status(operands[1], json);
	return warm(&(struct warm_request){
		.mount = operands[1],
		.epoch = count > 2 ? operands[2] : NULL,
		.paths = operands + 3,
		.path_count = count > 3 ? (size_t)count - 3 : 0,
		.json = json,
	});
}
