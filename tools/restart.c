/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs restart: another process, of the program as it is installed now, goes on with a supervised mount. */
#include <stdio.h>
#include <unistd.h>

#include "lib/util/clock.h"
#include "tools/cli.h"
#include "tools/client.h"

#define LIMIT_NS (120 * NS_PER_S)
#define POLL_US	 20000

static json_int_t pid_in(const json_t *response)
{
	return json_integer_value(json_object_get(response, "pid"));
}

/* A request that the old process had taken in may fail; the next one reaches the new process. */
static int wait_for_another(const char *path, json_int_t before)
{
	int64_t deadline = clock_mono_ns() + LIMIT_NS;

	while (clock_mono_ns() < deadline) {
		json_t *status = NULL;
		json_int_t now = 0;

		if (client_ask(path, json_pack("{s:s}", "op", "status"), &status) == 0)
			now = pid_in(status);
		json_decref(status);
		if (now && now != before)
			return EXIT_DONE;
		if (!now && client_is_mount(path) < 0)
			break;
		usleep(POLL_US);
	}
	return cli_error(EXIT_FAILED, "%s: no new process serves the mount: its log says why",
			 path);
}

int command_restart(int argc, char **argv)
{
	static const struct cli_place none[] = {{0}};
	json_t *response = NULL;
	json_int_t before;
	const char *path;
	int code, error;

	code = cli_parse("restart", argc, argv, none, &path, 1, &error);
	if (code < 0)
		return error;
	if (code != 1)
		return cli_usage_error("restart", "needs a DIRECTORY");
	code = client_call(path, json_pack("{s:s}", "op", "restart"), &response);
	if (code != EXIT_DONE)
		return code;
	before = pid_in(response);
	json_decref(response);
	return wait_for_another(path, before);
}
