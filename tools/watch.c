/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs watch: each new checkpoint in an ordinary directory becomes an epoch, without a mount. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/import/import.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/end_signals.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"
#include "tools/cli.h"
#include "tools/mount_options.h"

#define FIRST_PAUSE_NS	 (1 * NS_PER_S)
#define LONGEST_PAUSE_NS (60 * NS_PER_S)
#define NEVER		 INT64_MAX
/* What changed before it was read is waited for so often; then the epoch says that it is not complete. */
#define DEFERRED_MAX 3

struct watching {
	const char *directory, *remote;
	bool json;
	int64_t grace_ns, poll_ns;
	struct mount_options options;
	struct import *imp;
	struct watch *watch;
	int signal_fd, done_fd;

	/* The import under way, in a thread of its own. */
	bool busy;
	pthread_t thread;
	struct import_how how;
	struct import_result result;
	char *message;
	int error;

	unsigned deferred;
	int64_t pause_ns, retry_ns; /* monotonic; 0: nothing has failed */
	struct end_request asked;
};

/* ---- saying ---- */

static void say(const struct watching *w, const char *what)
{
	cleanup_buf struct buf shown = {0};

	printable_put(&shown, what);
	fprintf(stderr, "epochfs watch: %s: %s\n", w->directory, buf_str(&shown));
}

/* Once for each outage. */
static void say_failed(struct watching *w)
{
	cleanup_free char *text = NULL;

	if (!w->pause_ns && text_print(&text, "%s; trying again for as long as it takes",
				       w->message ? w->message : strerror(-w->error)) >= 0)
		say(w, text);
}

static void back_off(struct watching *w)
{
	say_failed(w);
	w->pause_ns = clock_backoff(w->pause_ns, FIRST_PAUSE_NS, LONGEST_PAUSE_NS);
	w->retry_ns = clock_mono_ns() + w->pause_ns;
}

static void went_well(struct watching *w)
{
	if (w->pause_ns)
		say(w, "it has recovered");
	w->pause_ns = w->retry_ns = 0;
	w->deferred = 0;
}

/* ---- one import ---- */

static void *import_main(void *arg)
{
	struct watching *w = arg;
	const uint64_t one = 1;

	w->error = import_run(w->imp, &w->how, &w->result, &w->message);
	if (write(w->done_fd, &one, sizeof(one)) < 0)
		abort(); /* an eventfd takes what fits it */
	return NULL;
}

static int begin(struct watching *w, const struct watch_moment *m, enum record_trigger trigger)
{
	int error;

	w->how = (struct import_how){
		.directory = w->directory,
		.trigger = trigger,
		.as_of_ns = clock_wall_ns(),
		.opened_ns = m->opened_ns,
		.save_ns = m->save_ns,
		.allow_changing = w->deferred >= DEFERRED_MAX,
	};
	w->result = (struct import_result){0};
	watch_taken(w->watch);
	error = thread_start(&w->thread, NULL, import_main, w);
	if (error)
		return cli_error(EXIT_FAILED, "cannot start a thread: %s", strerror(-error));
	w->busy = true;
	return EXIT_DONE;
}

/* What cannot become better by itself: its exit code. EXIT_DONE: it goes on. */
static int judge(struct watching *w)
{
	switch (w->error) {
	case 0:
		went_well(w);
		if (!w->result.unchanged)
			importing_print(&w->result, w->directory, w->json, true);
		return EXIT_DONE;
	case -ESTALE:
	case -EEXIST:
		return cli_error(EXIT_CONFLICT, "%s",
				 w->message ? w->message : strerror(-w->error));
	case -ENOENT:
		return cli_error(EXIT_NOT_FOUND, "%s: it is gone", w->directory);
	case -EAGAIN:
		w->deferred++;
		watch_again(w->watch);
		return EXIT_DONE;
	default:
		watch_again(w->watch);
		if (w->error != -ECANCELED)
			back_off(w);
		return EXIT_DONE;
	}
}

static int finish(struct watching *w)
{
	uint64_t count;
	int code;

	if (read(w->done_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return cli_error(EXIT_FAILED, "eventfd: %s", strerror(errno));
	pthread_join(w->thread, NULL);
	w->busy = false;
	code = judge(w);
	record_free(&w->result.record);
	free(w->message);
	w->message = NULL;
	return code;
}

/* ---- waiting ---- */

static int milliseconds(int64_t until_ns)
{
	int64_t left = until_ns == NEVER ? -1 : until_ns - clock_mono_ns();

	if (until_ns == NEVER)
		return -1;
	if (left <= 0)
		return 0;
	return left / NS_PER_MS >= INT_MAX ? INT_MAX : (int)(left / NS_PER_MS) + 1;
}

/* Of the end; NEVER: nobody asked for it. */
static int64_t deadline(const struct watching *w)
{
	return end_request_deadline(&w->asked, w->grace_ns);
}

/* Until something happens, or until then. `changes_fd`: of what changes in the directory, for whoever reads it afterwards; -1. */
static void poll_for(struct watching *w, int changes_fd, int64_t until_ns)
{
	struct pollfd fds[] = {{.fd = w->signal_fd, .events = POLLIN},
			       {.fd = w->done_fd, .events = POLLIN},
			       {.fd = changes_fd, .events = POLLIN}};

	poll(fds, sizeof(fds) / sizeof(fds[0]), milliseconds(until_ns));
	end_signals_take(w->signal_fd, &w->asked);
}

static void wait_for(struct watching *w, int64_t until_ns)
{
	poll_for(w, w->watch ? watch_fd(w->watch) : -1, until_ns);
}

static bool is_done(const struct watching *w)
{
	struct pollfd fd = {.fd = w->done_fd, .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

/* ---- the course of it ---- */

static int turn(struct watching *w, struct watch_moment *ret_moment)
{
	int error = watch_turn(w->watch, ret_moment);

	if (error == -ENOENT)
		return cli_error(EXIT_NOT_FOUND, "%s: it is gone", w->directory);
	return error ? cli_error(EXIT_FAILED, "%s: %s", w->directory, strerror(-error)) : EXIT_DONE;
}

/* Until a signal comes, or something cannot go on. */
static int go_on(struct watching *w)
{
	int code = EXIT_DONE;

	while (code == EXIT_DONE && !w->asked.first) {
		struct watch_moment m;
		int64_t until_ns;

		if (w->busy && is_done(w)) {
			code = finish(w);
			continue;
		}
		code = turn(w, &m);
		if (code != EXIT_DONE)
			break;
		until_ns = m.ready ? w->retry_ns : m.until_ns;
		if (w->busy) {
			wait_for(w, NEVER);
		} else if (m.ready && clock_mono_ns() >= w->retry_ns) {
			code = begin(w, &m, m.trigger);
		} else {
			wait_for(w, until_ns);
		}
	}
	return code;
}

/* The import under way is given until the deadline. */
static int finish_in_time(struct watching *w)
{
	while (!is_done(w) && clock_mono_ns() < deadline(w))
		poll_for(w, -1, deadline(w));
	if (!is_done(w)) {
		import_cancel(w->imp);
		end_signals_let();
	}
	return finish(w);
}

static int not_in_time(const struct watching *w)
{
	return cli_error(
		EXIT_NOT_DURABLE,
		"%s: what changed last is not in %s in time; import it once more, or start "
		"the watch again",
		w->directory, import_remote_name(w->imp));
}

/* What is settled becomes the last epoch. */
static int end_in_order(struct watching *w)
{
	int code = w->busy ? finish_in_time(w) : EXIT_DONE;

	watch_list_now(w->watch);
	while (code == EXIT_DONE) {
		struct watch_moment m;

		code = turn(w, &m);
		if (code != EXIT_DONE || !watch_dirty(w->watch))
			return code;
		if (clock_mono_ns() >= deadline(w))
			return not_in_time(w);
		if (clock_mono_ns() < w->retry_ns) {
			wait_for(w, w->retry_ns < deadline(w) ? w->retry_ns : deadline(w));
			continue;
		}
		code = begin(w, &m, RECORD_TRIGGER_IMPORT);
		if (code == EXIT_DONE)
			code = finish_in_time(w);
		/* A log that grows on would have no end. */
		if (code == EXIT_DONE && !w->error)
			break;
	}
	return code;
}

/* ---- beginning ---- */

static bool asked_to_end(void *arg)
{
	struct watching *w = arg;

	end_signals_take(w->signal_fd, &w->asked);
	return w->asked.first;
}

/* A remote that is away is waited for here, too. */
static int open_import(struct watching *w)
{
	w->options.volume.remote = w->remote;
	w->options.volume.give_up = asked_to_end;
	w->options.volume.give_up_arg = w;
	while (!asked_to_end(w)) {
		cleanup_free char *message = NULL;
		int error = import_open(&w->options.volume, &w->imp, &message);

		if (!error) {
			went_well(w);
			return EXIT_DONE;
		}
		if (error != -EHOSTUNREACH)
			return cli_error(exit_code_of(error), "%s",
					 message ? message : strerror(-error));
		w->error = error;
		w->message = message;
		back_off(w);
		w->message = NULL;
		while (!asked_to_end(w) && clock_mono_ns() < w->retry_ns)
			wait_for(w, w->retry_ns);
	}
	return cli_error(EXIT_NOT_DURABLE, "%s: ended before the remote could be reached",
			 w->directory);
}

static int open_watch(struct watching *w)
{
	const struct watch_options options = {
		.directory = w->directory, .volume = &w->options.volume, .poll_ns = w->poll_ns};
	cleanup_free char *message = NULL;
	const char *why;
	int error = watch_open(&options, &w->watch, &message);

	if (error)
		return cli_error(error == -ENOENT ? EXIT_NOT_FOUND : EXIT_FAILED, "%s",
				 message ? message : strerror(-error));
	if (watch_polls(w->watch, &why) && *why) {
		fprintf(stderr,
			"epochfs watch: %s: %s: it is listed every second instead, and no rename "
			"seals at once\n",
			w->directory, why);
	}
	return EXIT_DONE;
}

static int open_signals(struct watching *w)
{
	w->signal_fd = end_signals_open();
	if (w->signal_fd < 0)
		return cli_error(EXIT_FAILED, "%s", strerror(-w->signal_fd));
	w->done_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (w->done_fd < 0)
		return cli_error(EXIT_FAILED, "%s", strerror(errno));
	return EXIT_DONE;
}

static int watch_directory(struct watching *w)
{
	int code = open_signals(w);

	memory_set_up();
	if (code == EXIT_DONE)
		code = open_import(w);
	if (code == EXIT_DONE)
		code = importing_check_cache("watch", w->directory, w->imp);
	if (code == EXIT_DONE)
		code = open_watch(w);
	if (code == EXIT_DONE)
		code = go_on(w);
	if (code == EXIT_DONE)
		code = end_in_order(w);
	else if (w->busy) {
		import_cancel(w->imp);
		pthread_join(w->thread, NULL);
		record_free(&w->result.record);
		free(w->message);
	}
	watch_close(w->watch);
	import_close(w->imp);
	return code;
}

/* The arguments come before the environment is read, into which cli_parse puts the key. */
static int parse_all(int argc, char **argv, struct watching *w)
{
	bool take_over = false;
	const char *operands[2], *grace = NULL, *poll_text = NULL, *list = NULL;
	const struct cli_place places[] = {
		{"json", &w->json, NULL},   {"grace", NULL, &grace},
		{"poll", NULL, &poll_text}, {"take-over", &take_over, NULL},
		{"options", NULL, &list},   {0}};
	int code, count = cli_parse("watch", argc, argv, places, operands, 2, &code);

	if (count < 0)
		return code == EXIT_DONE ? -1 : code;
	if (count != 2)
		return cli_usage_error("watch", "needs a DIRECTORY and a REMOTE");
	if (grace && parse_duration(grace, &w->grace_ns))
		return cli_usage_error("watch", "--grace %s: expected a time, such as 25s", grace);
	if (poll_text && (parse_duration(poll_text, &w->poll_ns) || w->poll_ns < NS_PER_MS))
		return cli_usage_error("watch", "--poll %s: expected a time, such as 5s",
				       poll_text);
	w->directory = operands[0];
	w->remote = operands[1];
	code = mount_options_defaults(&w->options, w->remote);
	if (code == EXIT_DONE && list)
		code = mount_options_parse(&w->options, list);
	w->options.volume.take_over |= take_over;
	return code;
}

int command_watch(int argc, char **argv)
{
	struct watching w = {.grace_ns = END_SIGNALS_GRACE_NS, .signal_fd = -1, .done_fd = -1};
	char path[PATH_MAX];
	int code;

	mount_options_init(&w.options);
	code = parse_all(argc, argv, &w);
	if (code == EXIT_DONE)
		code = importing_check("watch", w.directory, &w.remote, path);
	if (code == EXIT_DONE)
		code = importing_check_catalog("watch", w.directory, w.options.volume.catalog_db);
	if (code == EXIT_DONE)
		code = watch_directory(&w);
	mount_options_free(&w.options);
	return code < 0 ? EXIT_DONE : code;
}
