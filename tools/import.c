/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs import: an ordinary directory becomes an epoch, or the newest one loses a path, without a mount. */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/meta/listing.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"
#include "tools/attendant.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/mount_options.h"
#include "tools/progress.h"
#include "tools/target.h"

/* What the attendant shows: an import, which gives its lease back at a signal. */
struct shown {
	struct attendant attendant;
	struct mutex lock;  /* guards imp */
	struct import *imp; /* NULL: not open yet, or closed */
	struct progress bar;
};

static void show(struct shown *s)
{
	struct import_progress p;
	char detail[64];

	import_get_progress(s->imp, &p);
	if (!p.files_total)
		return;
	snprintf(detail, sizeof(detail), "%" PRIu64 " of %" PRIu64 " file%s", p.files,
		 p.files_total, plural(p.files_total));
	progress_update(&s->bar, p.bytes, p.bytes_total, detail);
}

static void tick(void *arg)
{
	struct shown *s = arg;
	SCOPED_LOCK(&s->lock);

	if (s->imp && attendant_interrupted(&s->attendant))
		import_cancel(s->imp);
	else if (s->imp)
		show(s);
}

static int shown_start(struct shown *s)
{
	mutex_init(&s->lock, LOCK_TOOL_IMPORT);
	s->bar.label = "importing";
	s->attendant.tick = tick;
	s->attendant.arg = s;
	return attendant_start(&s->attendant);
}

static void shown_set(struct shown *s, struct import *imp)
{
	SCOPED_LOCK(&s->lock);
	s->imp = imp;
}

static void shown_stop(struct shown *s)
{
	attendant_stop(&s->attendant);
	mutex_destroy(&s->lock);
	progress_end(&s->bar);
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
	struct shown shown = {0};
	cleanup_free char *message = NULL;
	struct import_result result = {0};
	struct import *imp = NULL;
	int error = shown_start(&shown), code;

	if (error)
		return cli_error(EXIT_FAILED, "cannot start a thread: %s", strerror(-error));
	memory_set_up();
	options->volume.remote = a->remote;
	options->volume.give_up = attendant_interrupted;
	options->volume.give_up_arg = &shown.attendant;
	error = import_open(&options->volume, &imp, &message);
	if (error) {
		shown_stop(&shown);
		return cli_error(exit_code_of(error), "%s", message ? message : strerror(-error));
	}
	shown_set(&shown, imp);
	code = run(imp, a, &result);
	shown_set(&shown, NULL);
	import_close(imp); /* the remote may keep it waiting */
	shown_stop(&shown);
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
	code = mount_options_defaults(o, a->remote);
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
	if (code == EXIT_DONE && !a.how.remove)
		code = importing_check_catalog("import", a.directory, options.volume.catalog_db);
	if (code == EXIT_DONE)
		code = import_directory(&options, &a);
	mount_options_free(&options);
	return code < 0 ? EXIT_DONE : code;
}

/* ---- What `import` and `watch` share. ---- */

/* The path without symlinks, as far as it is there. NULL: no memory. */
static char *resolve(const char *path)
{
	char *copy = strdup(path), *slash, *found, *whole = NULL;

	for (size_t len = copy ? strlen(copy) : 0; copy; len = (size_t)(slash - copy)) {
		copy[len] = '\0';
		found = realpath(len ? copy : "/", NULL);
		slash = strrchr(copy, '/');
		if (found || !slash) {
			const char *rest = found ? path + len : path;

			text_print(&whole, "%s%s", found ? found : "", rest);
			free(found);
			break;
		}
	}
	free(copy);
	return whole;
}

static bool lies_in(const char *path, const char *directory)
{
	cleanup_free char *inner = resolve(path), *outer = resolve(directory);
	size_t len = outer ? strlen(outer) : 0;

	while (len > 1 && outer[len - 1] == '/')
		len--;
	return inner && len && !strncmp(inner, outer, len) &&
	       (len == 1 || !inner[len] || inner[len] == '/');
}

/* The directory that a remote is, or NULL; the caller's. */
static char *directory_of(const char *remote)
{
	char *path;

	if (!strncmp(remote, "fault+", 6))
		remote += 6;
	if (!strncmp(remote, "file://", 7))
		remote += 7;
	if (remote[0] != '/')
		return NULL;
	path = strdup(remote);
	if (path)
		path[strcspn(path, "?")] = '\0';
	return path;
}

static int refuse_mount(const char *command, const char *remote)
{
	return cli_usage_error(
		command,
		"%s is a mount: name a remote. Into a mount, copy: cp -a DIRECTORY/. %s/ && epochfs "
		"commit %s",
		remote, remote, remote);
}

int importing_check_remote(const char *command, const char **remote, char path[PATH_MAX])
{
	int mounted = client_is_mount(*remote);

	if (mounted == 1 || mounted == -ENOTCONN)
		return refuse_mount(command, *remote);
	return target_remote(*remote, path, remote);
}

int importing_check(const char *command, const char *directory, const char **remote,
		    char path[PATH_MAX])
{
	cleanup_free char *store = NULL;
	int code = importing_check_remote(command, remote, path);
	struct stat st;

	if (code != EXIT_DONE)
		return code;
	store = directory_of(*remote);
	if (stat(directory, &st) < 0)
		return cli_error(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_FAILED, "%s: %s",
				 directory, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return cli_usage_error(command, "%s is no directory", directory);
	if (store && lies_in(store, directory))
		return cli_usage_error(command, "the remote %s lies in %s: it would hold itself",
				       *remote, directory);
	return EXIT_DONE;
}

int importing_check_cache(const char *command, const char *directory, const struct import *imp)
{
	const char *cache = import_cache_path(imp);

	if (!lies_in(cache, directory))
		return EXIT_DONE;
	return cli_usage_error(command,
			       "the cache %s lies in %s: give another with -o cache-dir=DIR", cache,
			       directory);
}

int importing_check_catalog(const char *command, const char *directory, const char *catalog)
{
	if (!catalog || !lies_in(catalog, directory))
		return EXIT_DONE;
	return cli_usage_error(
		command,
		"the catalog %s lies in %s, and each epoch would change it: choose another place",
		catalog, directory);
}

static void print_json(const struct import_result *r, const char *directory, bool compact)
{
	struct epoch_info info = {
		.number = r->record.number,
		.state = EPOCH_DURABLE,
		.record = r->record,
		.complete = r->record.complete == RECORD_COMPLETE,
	};
	json_t *object = listing_epoch(&info);

	if (!object)
		return;
	json_object_set_new(object, "directory", listing_string(directory));
	json_object_set_new(object, "unchanged", json_boolean(r->unchanged));
	json_object_set_new(object, "files_read", json_integer((json_int_t)r->files_read));
	json_object_set_new(object, "bytes_read", json_integer((json_int_t)r->bytes_read));
	cli_print_json(object, compact ? JSON_COMPACT : JSON_INDENT(2));
	json_decref(object);
}

static void print_line(const struct import_result *r, const char *directory)
{
	const struct epoch_record *e = &r->record;
	char bytes[FORMAT_MAX], fresh[FORMAT_MAX], step[32] = "";

	if (r->unchanged) {
		printf("%s: nothing changed since epoch %06" PRIu64 "\n", directory, e->number);
		return;
	}
	format_size(e->bytes, bytes);
	format_size(e->bytes_new, fresh);
	if (e->has_step)
		snprintf(step, sizeof(step), ", step %" PRIu64, e->step);
	printf("epoch %06" PRIu64 " imported from %s: %" PRIu64 " file%s, %s, %s new%s%s%s\n",
	       e->number, directory, e->files, plural(e->files), bytes, fresh, step,
	       e->reason ? "; not complete: " : "", e->reason ? e->reason : "");
}

void importing_print(const struct import_result *r, const char *directory, bool json, bool compact)
{
	if (json)
		print_json(r, directory, compact);
	else
		print_line(r, directory);
	fflush(stdout);
}
