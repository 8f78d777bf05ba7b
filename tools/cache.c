/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs cache: what a mount's cache holds, and fetching an epoch into it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/caches.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/progress.h"
#include "tools/target.h"

/* ---- fetching an epoch ---- */

struct warm_request {
	const char *mount;
	const char *epoch;	  /* NULL: the latest */
	const char *const *paths; /* files or directories in it; none: all of it */
	size_t path_count;
	bool json;
};

/* Of a file in one request; so many requests at once. */
#define PART_MAX ((uint64_t)32 << 20)
#define WORKERS	 8
#define SHOW_NS	 (100 * NS_PER_MS)

struct warm_file {
	const char *path; /* of the listing */
	uint64_t entry, size;
	uint64_t asked; /* bytes of parts that were begun */
	unsigned busy;	/* parts under way */
	int fd;		/* keeps what came of it from being forgotten between parts; -1: none */
	int error;
};

struct warming {
	const struct warm_request *how;
	uint64_t epoch;
	struct warm_file *files;
	size_t count;
	uint64_t total;

	/* Guards the rest, and the files. */
	struct mutex lock;
	pthread_cond_t changed;
	size_t next;	  /* the file of the next part */
	unsigned workers; /* that have not ended */
	uint64_t bytes, files_done;
	int error; /* ends all: no file's own */
	char message[512];
};

/* ---- which files ---- */

static bool is_under(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	while (len && folder[len - 1] == '/')
		len--;
	return !strncmp(path, folder, len) && (!len || path[len] == '\0' || path[len] == '/');
}

static bool is_wanted(const struct warm_request *how, const char *path)
{
	for (size_t i = 0; i < how->path_count; i++)
		if (is_under(path, how->paths[i]))
			return true;
	return !how->path_count;
}

static int check_paths(const struct warming *w, const json_t *listing)
{
	for (size_t i = 0; i < w->how->path_count; i++) {
		bool found = false;
		const json_t *file;
		size_t k;

		json_array_foreach(listing, k, file) found =
			found || is_under(json_string_value(json_object_get(file, "path")),
					  w->how->paths[i]);
		if (!found)
			return cli_error(EXIT_NOT_FOUND, "epoch %" PRIu64 " has no path '%s'",
					 w->epoch, w->how->paths[i]);
	}
	return EXIT_DONE;
}

static int choose_files(struct warming *w, const json_t *listing)
{
	const json_t *file;
	size_t i;

	w->files = calloc(json_array_size(listing) + 1, sizeof(*w->files));
	if (!w->files)
		return cli_error(EXIT_FAILED, "out of memory");
	json_array_foreach(listing, i, file)
	{
		const char *path = json_string_value(json_object_get(file, "path"));
		const char *type = json_string_value(json_object_get(file, "type"));
		uint64_t size = (uint64_t)json_integer_value(json_object_get(file, "size"));

		if (strcmp(type, "file") != 0 || !is_wanted(w->how, path))
			continue;
		w->files[w->count++] =
			(struct warm_file){.path = path, .entry = i + 1, .size = size, .fd = -1};
		w->total += size;
		w->files_done += !size;
	}
	return EXIT_DONE;
}

/* What the cache can hold: within cache-size, and on its disk with min-free kept. What is there and could go
 * counts as room; what is not durable cannot. */
static int find_room(const char *mount, uint64_t *ret_room)
{
	json_t *status;
	const json_t *cache, *limit;
	struct statvfs fs;
	uint64_t dirty;
	int code = client_call(mount, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	*ret_room = UINT64_MAX;
	if (statvfs(mount, &fs) == 0)
		*ret_room = (uint64_t)fs.f_bavail * fs.f_frsize;
	cache = json_object_get(status, "cache");
	limit = json_object_get(cache, "limit_bytes");
	dirty = (uint64_t)json_integer_value(json_object_get(cache, "dirty_bytes"));
	if (limit) {
		uint64_t bytes = (uint64_t)json_integer_value(limit);

		bytes -= dirty < bytes ? dirty : bytes;
		*ret_room = bytes < *ret_room ? bytes : *ret_room;
	}
	json_decref(status);
	return EXIT_DONE;
}

static int check_room(const struct warming *w)
{
	char wanted[FORMAT_MAX], there[FORMAT_MAX];
	uint64_t room;
	int code = find_room(w->how->mount, &room);

	if (code != EXIT_DONE || w->total <= room)
		return code;
	format_size(w->total, wanted);
	format_size(room, there);
	return cli_error(
		EXIT_FAILED,
		"%s: %s of epoch %" PRIu64 " do not fit into the cache, which has room for %s: "
		"name PATHs of it, or mount with another cache-size, min-free or cache-dir",
		w->how->mount, wanted, w->epoch, there);
}

/* ---- fetching ---- */

static void open_file(const struct warming *w, struct warm_file *f)
{
	cleanup_free char *path = NULL;

	if (text_print(&path, "%s/.epochs/%06" PRIu64 "/%s", w->how->mount, w->epoch, f->path) >= 0)
		f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

/* The next part, and its file opened: false where there is none. */
static bool take_part_locked(struct warming *w, struct warm_file **ret_file, uint64_t *ret_offset,
			     uint64_t *ret_len)
{
	struct warm_file *f;

	while (w->next < w->count &&
	       (w->files[w->next].asked >= w->files[w->next].size || w->files[w->next].error))
		w->next++;
	if (w->error || w->next == w->count)
		return false;
	f = &w->files[w->next];
	if (!f->asked)
		open_file(w, f);
	*ret_offset = f->asked;
	/* One that cannot be held open (a name that JSON cannot tell) comes as a whole. */
	*ret_len = f->fd < 0 || f->size - f->asked < PART_MAX ? f->size - f->asked : PART_MAX;
	f->asked += *ret_len;
	f->busy++;
	*ret_file = f;
	return true;
}

static int fetch_part(const struct warming *w, const struct warm_file *f, uint64_t offset,
		      uint64_t len, char *message, size_t size)
{
	json_t *response;
	const char *text;
	int error = client_ask(w->how->mount,
			       json_pack("{s:s, s:I, s:I, s:I, s:I}", "op", "fetch", "epoch",
					 (json_int_t)w->epoch, "entry", (json_int_t)f->entry,
					 "offset", (json_int_t)offset, "length", (json_int_t)len),
			       &response);

	if (error) {
		snprintf(message, size, "the mount does not answer: %s", strerror(-error));
		return error == -EIO ? -ENOTCONN : error;
	}
	text = json_string_value(json_object_get(response, "error"));
	if (text) {
		error = -(int)json_integer_value(json_object_get(response, "errno"));
		snprintf(message, size, "%s", text);
	}
	json_decref(response);
	return error;
}

static void end_part_locked(struct warming *w, struct warm_file *f, uint64_t len, int error,
			    const char *message)
{
	f->busy--;
	if (!error)
		w->bytes += len;
	else if (error == -EIO)
		f->error = error;
	else if (!w->error) {
		w->error = error;
		snprintf(w->message, sizeof(w->message), "%s: %s", f->path, message);
	}
	if (f->busy || (f->asked < f->size && !f->error))
		return;
	w->files_done += !f->error && !w->error;
	cleanup_close_fn(&f->fd);
	f->fd = -1;
}

static void *work(void *arg)
{
	struct warming *w = arg;
	struct warm_file *f;
	uint64_t offset, len;

	mutex_lock(&w->lock);
	while (take_part_locked(w, &f, &offset, &len)) {
		char message[256];
		int error;

		mutex_unlock(&w->lock);
		error = fetch_part(w, f, offset, len, message, sizeof(message));
		mutex_lock(&w->lock);
		end_part_locked(w, f, len, error, message);
	}
	w->workers--;
	pthread_cond_signal(&w->changed);
	mutex_unlock(&w->lock);
	return NULL;
}

static void show_until_done(struct warming *w)
{
	struct progress bar = {.label = "fetching"};
	SCOPED_LOCK(&w->lock);

	while (w->workers) {
		char detail[64];

		snprintf(detail, sizeof(detail), "%" PRIu64 " of %zu file%s", w->files_done,
			 w->count, plural(w->count));
		progress_update(&bar, w->bytes, w->total, detail);
		cond_wait_until(&w->changed, &w->lock, clock_mono_ns() + SHOW_NS);
	}
	progress_end(&bar);
}

static int fetch(struct warming *w)
{
	pthread_t threads[WORKERS];
	unsigned started = 0;

	if (cond_init_mono(&w->changed))
		return cli_error(EXIT_FAILED, "out of memory");
	mutex_init(&w->lock, LOCK_TOOL_WARM);
	mutex_lock(&w->lock);
	while (started < WORKERS && !pthread_create(&threads[started], NULL, work, w))
		started++;
	w->workers = started;
	mutex_unlock(&w->lock);
	show_until_done(w);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&w->changed);
	mutex_destroy(&w->lock);
	return started ? EXIT_DONE : cli_error(EXIT_FAILED, "no thread can be started");
}

/* ---- what came of it ---- */

static int report_damage(const struct warming *w, json_t *damaged)
{
	size_t count = 0;

	for (size_t i = 0; i < w->count; i++) {
		if (!w->files[i].error)
			continue;
		count++;
		json_array_append_new(damaged, json_string(w->files[i].path));
		cli_error(EXIT_DAMAGED, "epoch %" PRIu64 ": %s is damaged or missing in the remote",
			  w->epoch, w->files[i].path);
	}
	return count ? EXIT_DAMAGED : EXIT_DONE;
}

static int report(const struct warming *w)
{
	json_t *damaged = json_array();
	char size[FORMAT_MAX];
	int code = report_damage(w, damaged);

	if (w->error)
		code = cli_error(exit_code_of(w->error), "%s: %s", w->how->mount, w->message);
	format_size(w->bytes, size);
	if (w->how->json) {
		json_t *o = json_pack("{s:I, s:I, s:I, s:O}", "epoch", (json_int_t)w->epoch,
				      "files", (json_int_t)w->files_done, "bytes",
				      (json_int_t)w->bytes, "damaged", damaged);

		cli_print_json(o, JSON_INDENT(2));
		json_decref(o);
	} else if (code == EXIT_DONE) {
		printf("epoch %06" PRIu64 ": %" PRIu64 " file%s, %s, local\n", w->epoch,
		       w->files_done, plural(w->files_done), size);
	}
	json_decref(damaged);
	return code;
}

/*
 * Fetches, several parts of files at once, with a progress bar, and prints what came. EXIT_DONE;
 * EXIT_DAMAGED after a line for each file that is; EXIT_FAILED where it does not fit into the cache;
 * EXIT_NOT_FOUND for a path that is not there; else what the mount says.
 */
static int warm(const struct warm_request *request)
{
	struct target target = {.name = request->mount};
	struct warming w = {.how = request};
	json_t *shown;
	const json_t *listing;
	int code = target_resolve(&target, request->epoch, &w.epoch);

	if (code == EXIT_DONE)
		code = target_show(&target, w.epoch, &shown);
	if (code != EXIT_DONE)
		return code;
	listing = json_object_get(shown, "files");
	code = check_paths(&w, listing);
	if (code == EXIT_DONE)
		code = choose_files(&w, listing);
	if (code == EXIT_DONE)
		code = check_room(&w);
	if (code == EXIT_DONE)
		code = fetch(&w);
	if (code == EXIT_DONE)
		code = report(&w);
	free(w.files);
	json_decref(shown);
	return code;
}

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

/* Of a mount: warm and status. */
static int of_mount(const char **operands, int count, bool json)
{
	const struct target_missing needs = {"the DIRECTORY of a mount", 0,
					     operands[0][0] == 's' ? 1 : PATHS_MAX + 2};
	cleanup_free char *mount = NULL;
	int others = count - 1, code;

	if (others > needs.max)
		return cli_usage_error("cache", "too many arguments: %s", operands[needs.max + 1]);
	code = target_complete("cache", &needs, operands + 1, &others, &mount);
	if (code != EXIT_DONE)
		return code;
	count = others + 1;
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

int command_cache(int argc, char **argv)
{
	const char *operands[PATHS_MAX + 3];
	struct caches_words words = {0};
	const struct cli_place places[] = {{"json", &words.json, NULL},
					   {"force", &words.force, NULL},
					   {"cache-dir", NULL, &words.cache_dir},
					   {0}};
	int code, count = cli_parse("cache", argc, argv, places, operands, PATHS_MAX + 3, &code);
	bool lists = count > 0 && !strcmp(operands[0], "list");
	bool drops = count > 0 && !strcmp(operands[0], "drop");

	if (count < 0)
		return code;
	if (!count || (!lists && !drops && strcmp(operands[0], "warm") != 0 &&
		       strcmp(operands[0], "status") != 0))
		return cli_usage_error("cache", "needs `list`, `drop`, `warm` or `status`");
	if ((words.cache_dir && !lists && !drops) || (words.force && !drops))
		return cli_usage_error("cache", "--force is of drop, --cache-dir of list and drop");
	if (lists && count > 1)
		return cli_usage_error("cache", "too many arguments: %s", operands[1]);
	if (drops && count != 2)
		return cli_usage_error("cache", "drop needs one VOLUME: its UUID, or its remote");
	if (lists)
		return caches_list(&words);
	return drops ? caches_drop(&words, operands[1]) : of_mount(operands, count, words.json);
}
