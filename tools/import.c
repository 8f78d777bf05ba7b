/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs import: an ordinary directory becomes an epoch, or the newest one loses a path, without a mount. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/memory.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"
#include "tools/cli.h"
#include "tools/importing.h"
#include "tools/mount_options.h"
#include "tools/progress.h"
#include "tools/target.h"

#define TICK_NS (100 * NS_PER_MS)

/* Shows how it goes, and takes the signals that end it: an import gives its lease back. */
struct attendant {
	pthread_t thread;
	struct mutex lock;  /* guards imp */
	struct import *imp; /* NULL: not open yet, or closed */
	struct progress bar;
	atomic_bool interrupted, ends;
};

static void ending_signals(sigset_t *ret_set)
{
	sigemptyset(ret_set);
	sigaddset(ret_set, SIGINT);
	sigaddset(ret_set, SIGTERM);
	sigaddset(ret_set, SIGHUP);
}

static void show(struct attendant *a)
{
	struct import_progress p;
	char detail[64];

	import_get_progress(a->imp, &p);
	if (!p.files_total)
		return;
	snprintf(detail, sizeof(detail), "%" PRIu64 " of %" PRIu64 " file%s", p.files,
		 p.files_total, plural(p.files_total));
	progress_update(&a->bar, p.bytes, p.bytes_total, detail);
}

static void *attend(void *arg)
{
	struct attendant *a = arg;
	const struct timespec tick = clock_timespec(TICK_NS);
	sigset_t set;

	ending_signals(&set);
	while (!atomic_load(&a->ends)) {
		int number = sigtimedwait(&set, NULL, &tick);

		if (number > 0)
			atomic_store(&a->interrupted, true);
		SCOPED_LOCK(&a->lock);
		if (a->imp && atomic_load(&a->interrupted))
			import_cancel(a->imp);
		else if (a->imp)
			show(a);
	}
	return NULL;
}

static bool interrupted(void *arg)
{
	struct attendant *a = arg;

	return atomic_load(&a->interrupted);
}

static int attendant_start(struct attendant *a)
{
	sigset_t set;

	ending_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	mutex_init(&a->lock, LOCK_TOOL_IMPORT);
	a->bar.label = "importing";
	return thread_start(&a->thread, NULL, attend, a);
}

static void attendant_watch(struct attendant *a, struct import *imp)
{
	SCOPED_LOCK(&a->lock);
	a->imp = imp;
}

static void attendant_stop(struct attendant *a)
{
	atomic_store(&a->ends, true);
	pthread_join(a->thread, NULL);
	mutex_destroy(&a->lock);
	progress_end(&a->bar);
}

struct arguments {
	const char *directory, *remote;
	struct import_how how;
	bool json;
};

static int run(struct import *imp, const struct arguments *a, struct import_result *ret_result)
{
	cleanup_free char *message = NULL;
	int code = a->how.remove ? EXIT_DONE : importing_check_cache("import", a->directory, imp);
	int error;

	if (code != EXIT_DONE)
		return code;
	error = import_run(imp, &a->how, ret_result, &message);
	return error ? cli_error(exit_code_of(error), "%s", message ? message : strerror(-error))
		     : EXIT_DONE;
}

/* What it removes from must be there: a place without a volume does not become one. */
static int check_volume(const char **remote, char path[PATH_MAX])
{
	struct target target;
	int code = importing_check_remote("import", remote, path);

	if (code == EXIT_DONE)
		code = target_open(*remote, &target);
	if (code == EXIT_DONE)
		target_close(&target);
	return code;
}

static void print_result(const struct arguments *a, const struct import_result *r)
{
	char size[FORMAT_MAX];

	if (a->json || !a->how.remove) {
		importing_print(r, a->directory, a->json, false);
		return;
	}
	format_size(r->record.bytes, size);
	printf("epoch %06" PRIu64 " is epoch %06" PRIu64 " without ", r->record.number,
	       r->record.parent);
	cli_put(a->how.remove);
	printf(": %" PRIu64 " file%s, %s\n", r->record.files, plural(r->record.files), size);
}

static int import_directory(struct mount_options *options, const struct arguments *a)
{
	struct attendant attendant = {0};
	cleanup_free char *message = NULL;
	struct import_result result = {0};
	struct import *imp = NULL;
	int error = attendant_start(&attendant), code;

	if (error)
		return cli_error(EXIT_FAILED, "cannot start a thread: %s", strerror(-error));
	memory_set_up();
	options->volume.remote = a->remote;
	options->volume.give_up = interrupted;
	options->volume.give_up_arg = &attendant;
	error = import_open(&options->volume, &imp, &message);
	if (error) {
		attendant_stop(&attendant);
		return cli_error(exit_code_of(error), "%s", message ? message : strerror(-error));
	}
	attendant_watch(&attendant, imp);
	code = run(imp, a, &result);
	attendant_watch(&attendant, NULL);
	attendant_stop(&attendant);
	import_close(imp);
	if (code == EXIT_DONE)
		print_result(a, &result);
	record_free(&result.record);
	return code;
}

/* The arguments come before the environment is read, into which cli_parse puts the key. */
static int parse_all(int argc, char **argv, struct mount_options *o, struct arguments *a)
{
	bool take_over = false;
	const char *operands[2], *step = NULL, *list = NULL;
	const struct cli_place places[] = {{"step", NULL, &step},
					   {"tag", NULL, &a->how.tag},
					   {"message", NULL, &a->how.message},
					   {"remove", NULL, &a->how.remove},
					   {"json", &a->json, NULL},
					   {"allow-changing", &a->how.allow_changing, NULL},
					   {"read-all", &a->how.read_all, NULL},
					   {"take-over", &take_over, NULL},
					   {"options", NULL, &list},
					   {0}};
	int code, count = cli_parse("import", argc, argv, places, operands, 2, &code);

	if (count < 0)
		return code == EXIT_DONE ? -1 : code;
	if (count != (a->how.remove ? 1 : 2))
		return cli_usage_error("import",
				       "needs a DIRECTORY and a REMOTE, or --remove PATH REMOTE");
	a->how.has_step = step != NULL;
	if (step && parse_u64(step, &a->how.step))
		return cli_usage_error("import", "--step %s: expected a number", step);
	a->remote = operands[count - 1];
	a->how.directory = a->directory = a->how.remove ? a->remote : operands[0];
	code = mount_options_environment(o);
	if (code == EXIT_DONE && list)
		code = mount_options_parse(o, list);
	o->volume.take_over |= take_over;
	return code;
}

int command_import(int argc, char **argv)
{
	struct arguments a = {.how.trigger = RECORD_TRIGGER_IMPORT};
	struct mount_options options;
	char path[PATH_MAX];
	int code;

	mount_options_init(&options);
	code = parse_all(argc, argv, &options, &a);
	if (code == EXIT_DONE)
		code = a.how.remove ? check_volume(&a.remote, path)
				    : importing_check("import", a.directory, &a.remote, path);
	if (code == EXIT_DONE)
		code = import_directory(&options, &a);
	mount_options_free(&options);
	return code < 0 ? EXIT_DONE : code;
}
