/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for the processes that serve a mount. */
#include "tools/ending.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "tools/cli.h"
#include "tools/client.h"

#define EXIT_LIMIT_NS (60 * NS_PER_S)

/* Also where nobody has asked for its exit code yet. */
static bool has_ended(pid_t pid)
{
	cleanup_buf struct buf text = {0};
	const char *state;
	char path[64];

	if (kill(pid, 0) < 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (io_read_file(AT_FDCWD, path, 4096, &text) != 0)
		return false;
	state = strrchr(buf_str(&text), ')'); /* the name before it may hold anything */
	return state && !strncmp(state, ") Z", 3);
}

/* The serving process, or 0: of a container, say, which counts its processes by itself, so that here the number
 * is that of another one. */
static pid_t server_of(const json_t *status, const char *which)
{
	json_int_t theirs = json_integer_value(json_object_get(status, "pid_namespace"));
	struct stat ours;

	if (stat("/proc/self/ns/pid", &ours) == 0 && theirs && (ino_t)theirs != ours.st_ino)
		return 0;
	return (pid_t)json_integer_value(json_object_get(status, which));
}

int ending_find(const char *mount, struct ending *ret_ending)
{
	json_t *status = NULL;
	int code = client_call(mount, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	ret_ending->server = server_of(status, "pid");
	ret_ending->supervisor = server_of(status, "supervisor");
	json_decref(status);
	return EXIT_DONE;
}

bool ending_is_over(const struct ending *e)
{
	return (!e->server || has_ended(e->server)) && (!e->supervisor || has_ended(e->supervisor));
}

int ending_wait(const struct ending *e)
{
	int64_t deadline = clock_mono_ns() + EXIT_LIMIT_NS;

	while (!ending_is_over(e)) {
		if (clock_mono_ns() > deadline)
			return cli_error(
				EXIT_FAILED,
				"unmounted, but process %d that served it has not ended yet",
				(int)e->server);
		usleep(5000);
	}
	return EXIT_DONE;
}
