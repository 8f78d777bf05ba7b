/* SPDX-License-Identifier: Apache-2.0 */
/* What `import` and `watch` share. */
#include "tools/importing.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/meta/listing.h"
#include "lib/util/cleanup.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/target.h"

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
