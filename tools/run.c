/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs run: a training command, its mount before and after it, and the signals of a batch system. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/admin/control.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/mountinfo.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/job.h"
#include "tools/mountpoint.h"
#include "tools/progress.h"
#include "tools/table.h"
#include "tools/target.h"

#define CODE_INTERRUPTED 85 /* what HTCondor takes as "checkpointed, start me again" by default */
#define CODE_MAX	 255
/* What the command has left running may close its files in this time. */
#define IN_USE_NS      (5 * NS_PER_S)
#define POLL_US	       5000
#define CANNOT_EXECUTE 126 /* as shells have it */
#define NOT_FOUND_CODE 127

struct run {
	const char *remote;	    /* of --mount; NULL: the directory is mounted already */
	char remote_path[PATH_MAX]; /* where that is a path from here: the same from / */
	const char *directory;
	const char *options; /* -o */
	bool was_empty;	     /* the mount point, before (-o nonempty) */
	int64_t grace_ns;
	int checkpoint_code;
	bool resume;
	bool mounted_here;
	char *const *command;
	struct job child;
	/* In .epochs/torn, the ids that the first of this run's killed writers gets, and that the next one would get. */
	json_int_t torn, torn_next;
	char cache[PATH_MAX]; /* of what is mounted there */
	int hold_fd;	      /* -1: none */
};

/* ---- before ---- */

/* What is mounted there is what was asked for? */
static int check_mounted(const struct run *r)
{
	json_t *status = NULL;
	const char *url;
	int code = client_call(r->directory, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	url = json_string_value(json_object_get(status, "remote_url"));
	if (r->remote && (!url || strcmp(url, r->remote) != 0))
		code = cli_error(EXIT_CONFLICT,
				 "%s: another volume is mounted there: unmount it first",
				 r->directory);
	json_decref(status);
	return code;
}

static int mount_it(struct run *r)
{
	const char *options = r->options ? r->options : "";
	char *words[] = {(char *)"mount",
			 (char *)"-o",
			 (char *)options,
			 (char *)"-o",
			 (char *)(r->resume ? "resume" : ""),
			 (char *)r->remote,
			 (char *)r->directory,
			 NULL};
	int code;

	if (mkdir(r->directory, 0777) < 0 && errno != EEXIST && errno != ENOTCONN)
		return cli_error(EXIT_FAILED, "%s: cannot make the mount point: %s", r->directory,
				 strerror(errno));
	r->was_empty = mountpoint_is_empty(r->directory);
	code = command_mount(sizeof(words) / sizeof(words[0]) - 1, words);
	r->mounted_here = code == EXIT_DONE;
	return code;
}

/* After a killed or torn save the live tree goes back to the newest whole epoch, also where the mount is without -o resume. */
static int resume(const struct run *r)
{
	json_t *response = NULL;
	json_int_t left, to, epoch;
	int code = client_call(r->directory, json_pack("{s:s}", "op", "resume"), &response);

	if (code != EXIT_DONE)
		return code;
	left = json_integer_value(json_object_get(response, "left"));
	to = json_integer_value(json_object_get(response, "to"));
	epoch = json_integer_value(json_object_get(response, "epoch"));
	json_decref(response);
	if (epoch)
		fprintf(stderr,
			"epochfs run: %s: the last save was killed or is torn; resuming from epoch %06lld "
			"(to undo that: epochfs rollback %s %lld)\n",
			r->directory, (long long)to, r->directory, (long long)left);
	else if (left)
		fprintf(stderr,
			"epochfs run: %s: no whole epoch to resume from; starting with what is there\n",
			r->directory);
	return EXIT_DONE;
}

/* From here on a signal to all processes of a job does not take the mount away from the command. */
static int hold(struct run *r)
{
	int error = client_hold(r->directory, r->mounted_here, &r->hold_fd);

	if (!error || error == -EOPNOTSUPP) /* of an older epochfs */
		return EXIT_DONE;
	return cli_error(exit_code_of(error), "%s: the mount does not answer: %s", r->directory,
			 strerror(-error));
}

/* What the mount says of .epochs/torn: EXIT_DONE and the caller's reference, or the exit code after a line. */
static int ask_torn(struct run *r, json_t **ret_torn)
{
	json_t *status;
	const char *cache;
	int code = client_call(r->directory, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	*ret_torn = json_incref(json_object_get(status, "torn"));
	r->torn_next = json_integer_value(json_object_get(*ret_torn, "next"));
	cache = json_string_value(json_object_get(json_object_get(status, "cache"), "directory"));
	snprintf(r->cache, sizeof(r->cache), "%s", cache ? cache : "");
	json_decref(status);
	return EXIT_DONE;
}

static int note_torn(struct run *r)
{
	json_t *torn = NULL;
	int code = ask_torn(r, &torn);

	json_decref(torn);
	return code;
}

static int prepare(struct run *r)
{
	int mounted = client_is_mount(r->directory), code;

	if (mounted == 1)
		code = check_mounted(r);
	else if (r->remote)
		code = mount_it(r);
	else
		code = target_need_mount(r->directory, "run");
	if (code == EXIT_DONE)
		code = hold(r);
	if (code != EXIT_DONE)
		return code;
	if (r->resume) {
		job_let_interrupt(true);
		code = resume(r);
		job_let_interrupt(false);
	}
	if (code == EXIT_DONE)
		code = note_torn(r);
	r->torn = r->torn_next;
	return code;
}

/* ---- meanwhile ---- */

/* The end is near: from now on, and for as long as the grace, each close waits until the remote has it. */
static void write_through(void *arg)
{
	const struct run *r = arg;
	json_t *response = NULL;

	if (client_call(r->directory,
			json_pack("{s:s, s:s, s:I}", "op", "durability", "value", "remote",
				  "for_ms", (json_int_t)(r->grace_ns / NS_PER_MS)),
			&response) == EXIT_DONE)
		json_decref(response);
}

/* ---- after ---- */

/* What the remote itself says: the epoch's record and tree are there and whole. */
static int check_remote(const char *url, uint64_t number)
{
	struct target remote;
	json_t *shown = NULL;
	int code = target_open(url, &remote);

	if (code != EXIT_DONE)
		return code;
	code = target_show(&remote, number, &shown);
	json_decref(shown);
	target_close(&remote);
	return code;
}

/* Time that is left to make it durable; < 0: no limit. The first signal counts, be it before or after the end of the command. */
static int64_t time_left(void *arg)
{
	struct run *r = arg;
	int64_t deadline = end_request_deadline(job_asked(&r->child), r->grace_ns);
	int64_t left = deadline - clock_mono_ns();

	return deadline == INT64_MAX ? -1 : left > 0 ? left : 0;
}

/* Seals, drains within the grace, and checks: EXIT_DONE when all is durable. */
static int make_durable(struct run *r)
{
	json_t *response = NULL, *status = NULL;
	uint64_t number;
	int code = client_call(r->directory, json_pack("{s:s}", "op", "seal"), &response);

	if (code != EXIT_DONE)
		return code;
	number = (uint64_t)json_integer_value(json_object_get(response, "epoch"));
	json_decref(response);
	code = drain_within(r->directory, time_left, r);
	if (code == EXIT_DONE)
		code = client_call(r->directory, json_pack("{s:s}", "op", "status"), &status);
	if (code != EXIT_DONE)
		return code;
	if (number && !json_is_true(json_object_get(status, "local_only")))
		code = check_remote(json_string_value(json_object_get(status, "remote_url")),
				    number);
	json_decref(status);
	return code;
}

/* Until the mount that we let go of is gone: its process unmounts it as soon as nobody uses it. */
static int wait_for_unmount(const struct run *r, const struct ending *serving)
{
	int64_t deadline = clock_mono_ns() + IN_USE_NS;
	char who[MOUNT_USERS_TEXT];

	while (!ending_is_over(serving) && client_is_mount(r->directory) == 1) {
		if (clock_mono_ns() > deadline) {
			mountpoint_users(r->directory, who);
			return cli_error(
				EXIT_CONFLICT,
				"%s: in use after the command has ended%s%s; it is unmounted once that is over",
				r->directory, *who ? ": by " : "", who);
		}
		usleep(POLL_US);
	}
	return ending_wait(serving);
}

/* What we mounted is unmounted; what is not durable yet goes on at the next mount. */
static int take_down(struct run *r)
{
	char *words[] = {(char *)"umount", (char *)"--no-drain", (char *)r->directory, NULL};
	struct ending serving;
	int code = EXIT_DONE, fd = r->hold_fd;

	r->hold_fd = -1;
	if (fd >= 0 && r->mounted_here)
		code = ending_find(r->directory, &serving);
	if (fd >= 0 && client_release(fd, r->mounted_here) < 0)
		code = EXIT_FAILED;
	if (!r->mounted_here)
		return EXIT_DONE;
	if (fd >= 0 && code == EXIT_DONE)
		code = wait_for_unmount(r, &serving);
	else
		code = command_umount(3, words);
	return code == EXIT_DONE && r->was_empty ? mountpoint_tell_below(r->directory) : code;
}

/* What was undone meanwhile, also as the mount ended, is in no epoch, though all epochs are durable. Whether anything was. */
static bool tell_torn(struct run *r)
{
	cleanup_buf struct buf text = {0};
	json_int_t next = r->torn_next;
	json_t *torn = NULL;
	bool came;

	if (client_is_mount(r->directory) == 1)
		(void)ask_torn(r, &torn);
	else
		torn = control_torn_left(r->cache);
	if (!torn)
		torn = json_object();
	/* Its cache does not tell what was undone and not kept. */
	if (next > json_integer_value(json_object_get(torn, "next")))
		json_object_set_new(torn, "next", json_integer(next));
	came = torn_text(torn, r->torn, &text);
	json_decref(torn);
	if (came)
		fprintf(stderr, "epochfs run: %s: %s; no epoch has that\n", r->directory,
			buf_str(&text));
	return came;
}

static int run_command(struct run *r)
{
	int error, durable, unmounted, code;
	bool undone;

	r->child.on_interrupt = write_through;
	r->child.arg = r;
	error = job_run(&r->child, r->command);
	durable = error ? EXIT_DONE : make_durable(r);
	if (!error)
		(void)note_torn(r);
	unmounted = take_down(r);
	if (error)
		return cli_error(error == -ENOENT ? NOT_FOUND_CODE : CANNOT_EXECUTE, "%s: %s",
				 r->command[0], strerror(-error));
	code = job_exit_code(&r->child);
	undone = tell_torn(r);
	if (durable != EXIT_DONE)
		return durable;
	if (undone && (r->child.interrupted || !code))
		return EXIT_DAMAGED;
	if (r->child.interrupted)
		code = unmounted ? 0 : r->checkpoint_code;
	return code ? code : unmounted;
}

/* ---- arguments ---- */

/* REMOTE:DIR is split at the last colon: directories have none. */
static int split_mount(struct run *r, const char *text, char **ret_copy)
{
	char *colon;

	*ret_copy = strdup(text);
	colon = *ret_copy ? strrchr(*ret_copy, ':') : NULL;
	if (!colon) {
		r->directory = *ret_copy;
		return *ret_copy ? EXIT_DONE : cli_error(EXIT_FAILED, "%s", strerror(ENOMEM));
	}
	if (colon == *ret_copy || !colon[1])
		return cli_usage_error("run", "--mount %s: expected REMOTE:DIR", text);
	*colon = '\0';
	r->directory = colon + 1;
	return target_remote(*ret_copy, r->remote_path, &r->remote);
}

static int parse_values(struct run *r, const char *code, const char *grace)
{
	uint64_t number;

	if (code && (parse_u64(code, &number) || number > CODE_MAX))
		return cli_usage_error("run", "--checkpoint-exit-code %s: expected 0 to 255", code);
	r->checkpoint_code = code ? (int)number : CODE_INTERRUPTED;
	r->grace_ns = END_SIGNALS_GRACE_NS;
	if (grace && parse_duration(grace, &r->grace_ns))
		return cli_usage_error("run", "--grace %s: expected a time, such as 25s", grace);
	return EXIT_DONE;
}

/* Without --mount: a directory that is a mount, or the mount that the working directory lies in; the caller's. */
static int find_mount(struct run *r, const char *given, char **ret_copy)
{
	int code;

	if (!given) {
		code = target_here("run", "--mount REMOTE:DIR, or the DIR of a mount", ret_copy);
	} else {
		*ret_copy = strdup(given);
		code = *ret_copy ? EXIT_DONE : cli_error(EXIT_FAILED, "%s", strerror(ENOMEM));
	}
	r->directory = *ret_copy;
	return code;
}

/* Where the command begins: after "--". */
static int find_command(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--"))
			return i;
	return argc;
}

int command_run(int argc, char **argv)
{
	const char *mount = NULL, *code_text = NULL, *grace = NULL, *directory = NULL;
	cleanup_free char *copy = NULL;
	struct run r = {.hold_fd = -1};
	const struct cli_place places[] = {
		{"mount", NULL, &mount},     {"options", NULL, &r.options},
		{"resume", &r.resume, NULL}, {"checkpoint-exit-code", NULL, &code_text},
		{"grace", NULL, &grace},     {0}};
	int end = find_command(argc, argv), code;
	int count = cli_parse("run", end, argv, places, &directory, 1, &code);

	if (count < 0)
		return code;
	if (end + 1 >= argc)
		return cli_usage_error("run", "needs -- and a COMMAND");
	if (mount && count)
		return cli_usage_error("run", "--mount and a DIR are two directories: give one");
	r.command = argv + end + 1;
	code = mount ? split_mount(&r, mount, &copy) : find_mount(&r, directory, &copy);
	if (code == EXIT_DONE)
		code = parse_values(&r, code_text, grace);
	if (code != EXIT_DONE)
		return code;
	job_block_signals();
	code = prepare(&r);
	if (code == EXIT_DONE && !job_interrupted())
		return run_command(&r);
	take_down(&r);
	if (!job_interrupted())
		return code;
	fprintf(stderr, "epochfs run: interrupted before the command was started\n");
	return r.checkpoint_code;
}
