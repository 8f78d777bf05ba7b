/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs export: restores an epoch, or a path in it, without FUSE. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/progress.h"
#include "tools/target.h"

/* The parts of "TARGET@EPOCH:PATH". */
struct source {
	char *text;
	const char *target, *epoch, *path; /* epoch NULL: the latest */
};

/*
 * Where the '@' is that parts target and epoch; NULL: there is none. An epoch has no '/' and no ':', which tells it from an '@' in a
 * directory's name or in the path behind it. "user@host" of a URL is no epoch, and "TARGET@@2h" is one that itself begins with '@'.
 */
static char *find_epoch(char *text)
{
	char *from = strstr(text, "://");

	from = from ? from + 3 + strcspn(from + 3, "/") : text;
	for (char *at = strchr(from, '@'); at; at = strchr(at + 1, '@')) {
		size_t len = strcspn(at, "/:");
		char *next;

		if (at[len] == '/')
			continue;
		while ((next = memchr(at + 1, '@', len - 1)) && next > at + 1) {
			len -= (size_t)(next - at);
			at = next;
		}
		return at;
	}
	return NULL;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/*
 * "TARGET:PATH", without an epoch. A directory whose name has a ':' is a target as it stands; of a URL the first ':' behind the host counts. A program's
 * line, and what breaks a remote on purpose, may have any: they take "@latest:PATH".
 */
static void split_path(struct source *s)
{
	char *text = s->text, *url = strstr(text, "://"), *colon;

	if (!strncmp(text, "fault+", 6) ||
	    (!url && (is_directory(text) || !strncmp(text, "exec:", 5))))
		return;
	colon = strchr(url ? url + 3 + strcspn(url + 3, "/") : text, ':');
	if (!colon)
		return;
	*colon = '\0';
	/* Without a '/' or '.' before it, it may be a kind of remote, such as memory:NAME. */
	if (url || text[0] == '/' || text[0] == '.' || is_directory(text))
		s->path = colon + 1;
	else
		*colon = ':';
}

static int parse_source(const char *argument, struct source *ret_source)
{
	char *text = strdup(argument), *at, *colon;

	if (!text)
		return cli_error(EXIT_FAILED, "out of memory");
	*ret_source = (struct source){.text = text, .target = text, .path = ""};
	at = find_epoch(text);
	if (!at) {
		split_path(ret_source);
		return EXIT_DONE;
	}
	*at = '\0';
	ret_source->epoch = at + 1;
	colon = strchr(at + 1, ':');
	if (colon) {
		*colon = '\0';
		ret_source->path = colon + 1;
	}
	return EXIT_DONE;
}

/* How much of the path is there, up to a '/' or its end; 0: nothing. */
static size_t length_there(const char *path)
{
	char part[PATH_MAX];
	struct stat st;

	snprintf(part, sizeof(part), "%s", path);
	while (*part && lstat(part, &st) < 0) {
		char *slash = strrchr(part, '/');

		*(slash ? slash : part) = '\0';
	}
	return strlen(part);
}

/* Removes the directories behind `there` that are empty: nothing was restored. */
static void remove_made(const char *path, size_t there)
{
	char part[PATH_MAX];

	snprintf(part, sizeof(part), "%s", path);
	while (strlen(part) > there && rmdir(part) == 0) {
		char *slash = strrchr(part, '/');

		*(slash ? slash : part) = '\0';
	}
}

static int make_directory(const char *path, bool force, int *ret_fd)
{
	cleanup_closedir DIR *dir = NULL;
	const char *name;
	int got = io_mkdir_p(path), fd;

	if (got)
		return cli_error(EXIT_FAILED, "%s: cannot make the directory: %s", path,
				 strerror(-got));
	dir = opendir(path);
	got = dir ? io_readdir(dir, &name) : -errno;
	if (got < 0)
		return cli_error(EXIT_FAILED, "%s: %s", path, strerror(-got));
	if (got && !force)
		return cli_error(
			EXIT_CONFLICT,
			"%s: the directory is not empty; choose another, or --force to replace files "
			"in it (what is whole there, of an export that was killed, is kept)",
			path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return cli_error(EXIT_FAILED, "%s: %s", path, strerror(errno));
	*ret_fd = fd;
	return EXIT_DONE;
}

struct export_view {
	struct progress bar;
	struct catalog_progress last;
};

static void show_progress(void *arg, const struct catalog_progress *p)
{
	struct export_view *view = arg;
	char detail[64];

	view->last = *p;
	snprintf(detail, sizeof(detail), "%" PRIu64 " of %" PRIu64 " file%s", p->files,
		 p->files_total, plural(p->files_total));
	progress_update(&view->bar, p->bytes, p->bytes_total, detail);
}

static void tell_left_out(uint64_t count)
{
	if (count)
		fprintf(stderr,
			"epochfs export: %" PRIu64
			" %s came without what lends rights (setuid, setgid, device nodes, attributes "
			"but user.*); --privileged, as root, restores it\n",
			count, plural_of(count, "entry", "entries"));
}

static int report(const struct source *s, uint64_t number, const char *directory,
		  const struct catalog_progress *done, bool json)
{
	char size[FORMAT_MAX];

	if (json) {
		json_t *object =
			json_pack("{s:I, s:I, s:I}", "epoch", (json_int_t)number, "files",
				  (json_int_t)done->files, "bytes", (json_int_t)done->bytes);

		cli_print_json(object, JSON_INDENT(2));
		json_decref(object);
		return EXIT_DONE;
	}
	format_size(done->bytes, size);
	printf("epoch %06" PRIu64 "%s%s restored to %s: %" PRIu64 " file%s, %s\n", number,
	       *s->path ? ":" : "", s->path, directory, done->files, plural(done->files), size);
	return EXIT_DONE;
}

static int export_epoch(struct catalog *catalog, uint64_t number, const struct source *s,
			const char *directory, const struct catalog_export *wanted, bool json)
{
	struct export_view view = {.bar = {.label = "restoring"}};
	struct catalog_export how = *wanted;
	size_t there = length_there(directory);
	cleanup_close int fd = -1;
	uint64_t failed = 0, left_out = 0;
	int code = make_directory(directory, how.force, &fd), error;

	if (code != EXIT_DONE)
		return code;
	how.path = s->path;
	how.to_fd = fd;
	how.left_out = &left_out;
	how.progress = show_progress;
	how.arg = &view;
	error = catalog_export(catalog, number, &how, &failed);
	progress_end(&view.bar);
	tell_left_out(left_out);
	if (error)
		remove_made(directory, there);
	if (error == -ENOENT && !failed)
		return cli_error(EXIT_NOT_FOUND, "epoch %" PRIu64 " has no path '%s'", number,
				 s->path);
	if (error && !failed)
		return cli_error(exit_code_of(error), "%s: epoch %" PRIu64 ": %s", s->target,
				 number, cli_reason(error));
	if (error)
		return cli_error(exit_code_of(error),
				 "%" PRIu64 " file%s could not be restored: %s; the rest is in %s",
				 failed, plural(failed), cli_reason(error), directory);
	return report(s, number, directory, &view.last, json);
}

static int remote_of_mount(const struct source *s, uint64_t *ret_number, char **ret_remote)
{
	int code = target_remote_of_mount(s->target, s->epoch, ret_number, ret_remote);

	if (code != EXIT_DONE || *ret_remote)
		return code;
	return cli_error(
		EXIT_NOT_FOUND,
		"%s: this mount has no remote to export from; copy it: cp -a %s/.epochs/%06" PRIu64
		" DIRECTORY",
		s->target, s->target, *ret_number);
}

static int export_source(struct source *s, const char *directory,
			 const struct catalog_export *wanted, bool json)
{
	cleanup_free char *remote = NULL;
	struct target target;
	uint64_t number = 0;
	cleanup_free char *mount =
		client_is_mount(s->target) == 1 ? NULL : target_mount_of_path(s->target);
	int mounted, code;

	if (mount)
		s->target = mount;
	mounted = client_is_mount(s->target);
	code = mounted == 1 ? remote_of_mount(s, &number, &remote) : EXIT_DONE;

	if (code == EXIT_DONE)
		code = target_open(remote ? remote : s->target, &target);
	if (code != EXIT_DONE)
		return code;
	if (!number)
		code = target_resolve(&target, s->epoch, &number);
	if (code == EXIT_DONE)
		code = export_epoch(target.catalog, number, s, directory, wanted, json);
	target_close(&target);
	return code;
}

int command_export(int argc, char **argv)
{
	struct catalog_export wanted = {.path = ""};
	bool json = false;
	const char *threads_text = NULL, *operands[2];
	const struct cli_place places[] = {{"json", &json, NULL},
					   {"force", &wanted.force, NULL},
					   {"privileged", &wanted.privileged, NULL},
					   {"threads", NULL, &threads_text},
					   {0}};
	struct source source = {0};
	uint64_t threads = 0;
	int code, count = cli_parse("export", argc, argv, places, operands, 2, &code);

	if (count < 0)
		return code;
	if (count != 2)
		return cli_usage_error("export", "needs TARGET[@EPOCH][:PATH] and a DIRECTORY");
	if (threads_text && (parse_u64(threads_text, &threads) || threads > 256))
		return cli_usage_error("export", "--threads %s: expected a number up to 256",
				       threads_text);
	if (wanted.privileged && geteuid() != 0)
		return cli_error(EXIT_DENIED,
				 "--privileged: only root gives setuid, device nodes and the like");
	wanted.threads = (unsigned)threads;
	code = parse_source(operands[0], &source);
	if (code != EXIT_DONE)
		return code;
	code = export_source(&source, operands[1], &wanted, json);
	free(source.text);
	return code;
}
