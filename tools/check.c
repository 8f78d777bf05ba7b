/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs check: tries a remote and says what it can and what epochfs makes of it. */
#include "lib/admin/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/util/cleanup.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/attendant.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/mount_options.h"
#include "tools/target.h"

#define SIZE_MAX_MIB 512

/* On a terminal, one line that is written over. */
static void show_step(void *arg, const char *what)
{
	if (*(bool *)arg)
		fprintf(stderr, "\r\033[K%s...", what);
}

static void end_steps(bool terminal)
{
	if (terminal)
		fputs("\r\033[K", stderr);
}

static const char *text_of(const json_t *report, const char *key)
{
	const char *text = json_string_value(json_object_get(report, key));

	return text ? text : "";
}

static void print_operations(const json_t *report)
{
	json_t *operation;
	size_t i;

	json_array_foreach(json_object_get(report, "operations"), i, operation)
	{
		const char *detail = text_of(operation, "detail");

		printf("  %-24s %s%s", text_of(operation, "name"),
		       json_is_true(json_object_get(operation, "ok")) ? "yes" : "NO",
		       *detail ? ": " : "");
		cli_put(detail);
		putchar('\n');
	}
}

static void print_latency(const json_t *report)
{
	json_t *latency = json_object_get(report, "latency_ms"), *ms;
	const char *name, *before = "";

	if (!json_object_size(latency))
		return;
	printf("latency, median:");
	json_object_foreach(latency, name, ms)
	{
		printf("%s %s %.1f ms", before, name, json_real_value(ms));
		before = ",";
	}
	putchar('\n');
}

/* "upload: 120 MiB/s one at a time, 400 MiB/s 8 at once" */
static void print_rates(const json_t *throughput, const char *what)
{
	char name[32], rate[FORMAT_MAX];
	const json_t *one, *many;

	snprintf(name, sizeof(name), "%s_one", what);
	one = json_object_get(throughput, name);
	snprintf(name, sizeof(name), "%s_many", what);
	many = json_object_get(throughput, name);
	if (!one)
		return;
	format_size((uint64_t)json_integer_value(one), rate);
	printf("%s: %s/s one at a time", what, rate);
	if (many) {
		format_size((uint64_t)json_integer_value(many), rate);
		printf(", %s/s %lld at once", rate,
		       (long long)json_integer_value(json_object_get(throughput, "connections")));
	}
	putchar('\n');
}

static void print_report(const json_t *report)
{
	const json_t *throughput = json_object_get(report, "throughput");
	const char *guard = text_of(report, "upload_check");
	json_t *advice;
	size_t i;

	printf("%s\n", text_of(report, "remote"));
	print_operations(report);
	printf("damaged uploads: %s\n", *guard ? guard : "nobody here can tell what guards them");
	print_latency(report);
	print_rates(throughput, "upload");
	print_rates(throughput, "download");
	json_array_foreach(json_object_get(report, "advice"), i, advice)
	{
		fputs("- ", stdout);
		cli_put(json_string_value(advice));
		putchar('\n');
	}
}

/* Of an unusable remote: is it that it gives back other bytes? */
static int code_of(const json_t *report)
{
	json_t *operation;
	size_t i;

	if (json_is_true(json_object_get(report, "usable")))
		return EXIT_DONE;
	json_array_foreach(json_object_get(report, "operations"), i,
			   operation) if (!strcmp(text_of(operation, "detail"),
						  CHECK_OTHER_BYTES)) return EXIT_DAMAGED;
	return EXIT_FAILED;
}

static int take_size(const char *text, uint64_t *ret_size)
{
	if (text &&
	    (parse_size(text, ret_size) || !*ret_size || *ret_size > (uint64_t)SIZE_MAX_MIB << 20))
		return cli_usage_error("check", "--size %s: give a size up to %dM", text,
				       SIZE_MAX_MIB);
	return EXIT_DONE;
}

/* A directory is not made for a trial: it may be mistyped. */
static int check_place(const char *url)
{
	const char *path = !strncmp(url, "file://", 7) ? url + 7 : url;
	const char *name = strrchr(path, '/');
	cleanup_free char *above = NULL;

	if (*path != '/' || access(path, F_OK) == 0)
		return EXIT_DONE;
	if (text_print(&above, "%.*s/", (int)(name - path), path) < 0)
		return cli_error(EXIT_FAILED, "out of memory");
	/* Where that is missing, too, the remote says so. */
	if (access(above, F_OK) < 0)
		return EXIT_DONE;
	return cli_error(
		EXIT_NOT_FOUND,
		"%s: no such directory, and a check makes none: `mkdir` it where it is to be tried",
		path);
}

int command_check(int argc, char **argv)
{
	bool json = false, terminal;
	const char *url, *size = NULL;
	char path[PATH_MAX];
	const struct cli_place places[] = {{"json", &json, NULL}, {"size", NULL, &size}, {0}};
	struct attendant attendant = {0};
	struct check_options how = {.step = show_step,
				    .step_arg = &terminal,
				    .interrupted = attendant_interrupted,
				    .interrupted_arg = &attendant};
	cleanup_free char *message = NULL;
	json_t *report = NULL;
	int code, error, count = cli_parse("check", argc, argv, places, &url, 1, &code);

	if (count < 0)
		return code;
	if (count != 1)
		return cli_usage_error("check", "needs a REMOTE");
	if (client_is_mount(url) == 1)
		return cli_usage_error("check", "%s is a mount: name its remote", url);
	code = target_remote(url, path, &url);
	if (code == EXIT_DONE)
		code = take_size(size, &how.object_size);
	if (code == EXIT_DONE)
		code = check_place(url);
	if (code == EXIT_DONE)
		code = mount_options_limits(url, &how.limits);
	if (code != EXIT_DONE)
		return code;
	terminal = isatty(2) && !json;
	error = attendant_start(&attendant);
	if (error)
		return cli_error(EXIT_FAILED, "cannot start a thread: %s", strerror(-error));
	error = check_remote(url, &how, &report, &message);
	attendant_stop(&attendant);
	end_steps(terminal);
	if (error == -EINTR)
		return cli_error(EXIT_FAILED, "%s: interrupted; what was put there is deleted",
				 url);
	if (error)
		return cli_error(exit_code_of(error), "%s", message ? message : strerror(-error));
	if (json) {
		cli_print_json(report, JSON_INDENT(2));
	} else {
		print_report(report);
	}
	code = code_of(report);
	json_decref(report);
	return code;
}
