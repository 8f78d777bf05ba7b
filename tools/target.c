/* SPDX-License-Identifier: Apache-2.0 */
/* Mount point or remote: the same questions, the same answers. */
#include "tools/target.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/meta/listing.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/mount_options.h"
#include "tools/progress.h"
#include "tools/waiting.h"

/* A path from here, which no remote's name is: gives it from /, where something is there. */
static int check_relative(const char *name, char ret_path[PATH_MAX])
{
	if (realpath(name, ret_path))
		return EXIT_DONE;
	return cli_error(EXIT_NOT_FOUND,
			 "%s: neither a mount point nor a directory that holds a volume: %s", name,
			 strerror(errno));
}

bool target_is_relative(const char *name)
{
	return *name && *name != '/' && !strchr(name, ':') && strcmp(name, "none") != 0 &&
	       strncmp(name, "fault+", 6) != 0;
}

int target_remote(const char *name, char ret_path[PATH_MAX], const char **ret_remote)
{
	*ret_remote = name;
	if (!target_is_relative(name))
		return EXIT_DONE;
	*ret_remote = ret_path;
	if (realpath(name, ret_path))
		return EXIT_DONE;
	return cli_error(
		EXIT_NOT_FOUND,
		"%s: neither a kind of remote nor a directory here (%s); one that is not there yet is named from /",
		name, strerror(errno));
}

int target_open(const char *name, struct target *ret_target)
{
	char path[PATH_MAX], *mount;
	cleanup_free char *message = NULL;
	struct waiting waiting = {.remote = name};
	struct remote_limits limits;
	struct catalog *catalog;
	int mounted = client_is_mount(name), error, code;

	if (mounted == -ENOTCONN)
		return target_dead_mount(name);
	if (mounted == 1) {
		*ret_target = (struct target){.name = name};
		return EXIT_DONE;
	}
	mount = target_mount_of_path(name);
	if (mount) {
		*ret_target = (struct target){.name = mount, .mount = mount};
		return EXIT_DONE;
	}
	code = target_is_relative(name) ? check_relative(name, path) : EXIT_DONE;
	if (code == EXIT_DONE)
		code = mount_options_limits(name, &limits);
	if (code != EXIT_DONE)
		return code;
	waiting_begin(&waiting);
	error = catalog_open(target_is_relative(name) ? path : name, &limits, &catalog, &message);
	waiting_end(&waiting);
	if (error) {
		cleanup_buf struct buf more = {0};

		if (error == -ENOENT)
			target_add_elsewhere(name, &more);
		return cli_error(exit_code_of(error), "%s%s", message ? message : strerror(-error),
				 buf_str(&more));
	}
	*ret_target = (struct target){.name = name, .catalog = catalog};
	return EXIT_DONE;
}

int target_open_operands(const char *command, const struct target_missing *m, const char **operands,
			 int *count, struct target *ret_target)
{
	char *mount;
	int code = target_complete(command, m, operands, count, &mount);

	if (code != EXIT_DONE || !mount)
		return code != EXIT_DONE ? code : target_open(operands[0], ret_target);
	*ret_target = (struct target){.name = mount, .mount = mount};
	return EXIT_DONE;
}

void target_close(struct target *t)
{
	if (t->catalog)
		catalog_close(t->catalog);
	t->catalog = NULL;
	free(t->mount);
	t->mount = NULL;
}

static int catalog_failed(const struct target *t, const char *what, int error)
{
	return cli_error(exit_code_of(error), "%s: %s: %s", t->name, what, cli_reason(error));
}

/* ---- epochs and tags ---- */

static int append_epoch(void *arg, const struct epoch_info *e)
{
	json_t *object = listing_epoch(e);

	json_object_set_new(object, "tags", json_array());
	return json_array_append_new(arg, object) ? -ENOMEM : 0;
}

static int note_tag(void *arg, const char *name, uint64_t number)
{
	return json_object_set_new(arg, name, json_integer((json_int_t)number)) ? -ENOMEM : 0;
}

/* Puts each tag's name into its epoch. */
static void spread_tags(json_t *epochs, json_t *tags)
{
	const char *name;
	json_t *number, *epoch;
	size_t i;

	json_object_foreach(tags, name, number) json_array_foreach(
		epochs, i, epoch) if (json_equal(json_object_get(epoch, "epoch"), number))
		json_array_append_new(json_object_get(epoch, "tags"), json_string(name));
}

int target_tags(const struct target *t, json_t **ret_tags)
{
	json_t *response, *tags;
	int code;

	if (t->catalog) {
		int error;

		tags = json_object();
		error = catalog_tag_each(t->catalog, note_tag, tags);
		if (error) {
			json_decref(tags);
			return catalog_failed(t, "cannot read the tags", error);
		}
		*ret_tags = tags;
		return EXIT_DONE;
	}
	code = client_call(t->name, json_pack("{s:s}", "op", "tags"), &response);
	if (code != EXIT_DONE)
		return code;
	*ret_tags = json_incref(json_object_get(response, "tags"));
	json_decref(response);
	return EXIT_DONE;
}

int target_lease(const struct target *t, json_t **ret_lease)
{
	int error = catalog_lease(t->catalog, ret_lease);

	return error ? catalog_failed(t, "cannot read the lease", error) : EXIT_DONE;
}

static void show_usage_progress(void *arg, const struct catalog_progress *p)
{
	char detail[64];

	snprintf(detail, sizeof(detail), "%" PRIu64 " of %" PRIu64 " epoch%s", p->files,
		 p->files_total, plural(p->files_total));
	progress_update(arg, p->files, p->files_total, detail);
}

int target_usage(const struct target *t, bool read, json_t **ret_usage)
{
	struct progress progress = {.label = "counting", .counts = true};
	int error;

	if (!t->catalog)
		return client_call(t->name, json_pack("{s:s, s:b}", "op", "usage", "read", read),
				   ret_usage);
	error = catalog_usage(t->catalog, read, show_usage_progress, &progress, ret_usage);
	progress_end(&progress);
	return error ? catalog_failed(t, "cannot count what the epochs take", error) : EXIT_DONE;
}

int target_waiting(const struct target *t, json_t **ret_waiting)
{
	json_t *status;
	int error, code;

	if (t->catalog) {
		error = catalog_waiting(t->catalog, ret_waiting);
		return error ? catalog_failed(t, "cannot read the parts", error) : EXIT_DONE;
	}
	code = client_call(t->name, json_pack("{s:s}", "op", "status"), &status);
	if (code != EXIT_DONE)
		return code;
	*ret_waiting =
		json_incref(json_object_get(json_object_get(status, "nodes"), "waiting_for"));
	json_decref(status);
	if (!*ret_waiting)
		*ret_waiting = json_array();
	return EXIT_DONE;
}

int target_epochs(const struct target *t, json_t **ret_epochs)
{
	json_t *response, *epochs, *tags;
	int code, error;

	if (!t->catalog) {
		code = client_call(t->name, json_pack("{s:s}", "op", "log"), &response);
		if (code != EXIT_DONE)
			return code;
		*ret_epochs = json_incref(json_object_get(response, "epochs"));
		json_decref(response);
		return EXIT_DONE;
	}
	epochs = json_array();
	error = catalog_each(t->catalog, append_epoch, epochs);
	code = error ? catalog_failed(t, "cannot read the epochs", error) : target_tags(t, &tags);
	if (code != EXIT_DONE) {
		json_decref(epochs);
		return code;
	}
	spread_tags(epochs, tags);
	json_decref(tags);
	*ret_epochs = epochs;
	return EXIT_DONE;
}

static int count_epoch(void *arg, const struct epoch_info *e)
{
	uint64_t *count = arg;

	(void)e;
	(*count)++;
	return 0;
}

static int no_such_epoch(const struct target *t, const char *name)
{
	uint64_t count = 0;
	int error = strcmp(name, "latest") ? 0 : catalog_each(t->catalog, count_epoch, &count);

	if (error)
		return catalog_failed(t, "cannot read the epochs", error);
	if (count)
		return cli_error(
			EXIT_NOT_FOUND,
			"%s: no epoch is complete: name one by its number (`epochfs log %s` says which there are, and why)",
			t->name, t->name);
	if (!strcmp(name, "latest"))
		return cli_error(EXIT_NOT_FOUND, "%s: there is no epoch yet", t->name);
	return cli_error(EXIT_NOT_FOUND, "%s: there is no epoch '%s'; `epochfs log %s` lists them",
			 t->name, name, t->name);
}

int target_resolve(const struct target *t, const char *epoch, uint64_t *ret_number)
{
	const char *name = epoch ? epoch : "latest";
	json_t *response;
	int code, error;

	if (t->catalog) {
		error = catalog_resolve(t->catalog, name, ret_number);
		if (error == -ENOENT)
			return no_such_epoch(t, name);
		if (error == -EINVAL)
			return cli_error(
				EXIT_USAGE,
				"'%s' names no epoch: use 42, step=500, latest, current, a tag, or @2h",
				name);
		return error ? catalog_failed(t, "cannot read the epochs", error) : EXIT_DONE;
	}
	code = client_call(t->name, json_pack("{s:s, s:s}", "op", "resolve", "epoch", name),
			   &response);
	if (code != EXIT_DONE)
		return code;
	*ret_number = (uint64_t)json_integer_value(json_object_get(response, "epoch"));
	json_decref(response);
	return EXIT_DONE;
}

/* What opens the mount's remote opens it for this command, too, where nothing else is given. */
static void take_key(const json_t *status)
{
	const char *key = json_string_value(json_object_get(status, "key_file"));
	const char *passphrase = json_string_value(json_object_get(status, "passphrase_file"));

	if (getenv("EPOCHFS_KEY_FILE") || getenv("EPOCHFS_PASSPHRASE_FILE"))
		return;
	if (key)
		setenv("EPOCHFS_KEY_FILE", key, 1);
	else if (passphrase)
		setenv("EPOCHFS_PASSPHRASE_FILE", passphrase, 1);
}

/* NULL: it has none. */
int target_mount_remote(const char *mount, char **ret_remote)
{
	json_t *status = NULL;
	const char *url;
	int code = client_call(mount, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	url = json_string_value(json_object_get(status, "remote_url"));
	*ret_remote = NULL;
	if (url && !json_is_true(json_object_get(status, "local_only"))) {
		*ret_remote = strdup(url);
		code = *ret_remote ? EXIT_DONE : cli_error(EXIT_FAILED, "out of memory");
		take_key(status);
	}
	json_decref(status);
	return code;
}

int target_find_remote(const char *name, char **ret_other, const char **ret_url)
{
	char path[PATH_MAX];
	int code, mounted = client_is_mount(name);

	*ret_url = name;
	if (mounted == -ENOTCONN)
		return cli_error(EXIT_FAILED,
				 "%s: the process that served this mount is gone: name the remote",
				 name);
	if (mounted == 1) {
		code = target_mount_remote(name, ret_other);
		if (code == EXIT_DONE && !*ret_other)
			code = cli_error(EXIT_NOT_FOUND, "%s: this mount has no remote", name);
		*ret_url = *ret_other;
		return code;
	}
	code = target_remote(name, path, ret_url);
	if (code != EXIT_DONE || *ret_url == name)
		return code;
	*ret_url = *ret_other = strdup(path);
	return *ret_url ? EXIT_DONE : cli_error(EXIT_FAILED, "out of memory");
}

int target_remote_of_mount(const char *mount, const char *epoch, uint64_t *ret_number,
			   char **ret_remote)
{
	const struct target target = {.name = mount};
	cleanup_free char *remote = NULL;
	json_t *response = NULL;
	uint64_t number;
	int code = target_resolve(&target, epoch, &number);

	if (code == EXIT_DONE)
		code = target_mount_remote(mount, &remote);
	if (code == EXIT_DONE && remote)
		code = client_call(
			mount, json_pack("{s:s, s:I}", "op", "wait", "epoch", (json_int_t)number),
			&response);
	json_decref(response);
	if (code != EXIT_DONE)
		return code;
	*ret_number = number;
	*ret_remote = steal_ptr(remote);
	return EXIT_DONE;
}

/* ---- trees ---- */

static int catalog_show(const struct target *t, uint64_t number, json_t **ret_shown)
{
	cleanup_tree struct tree *tree = NULL;
	struct epoch_info info;
	json_t *epochs, *tags, *epoch;
	char what[64];
	int error = catalog_get(t->catalog, number, &info), code;

	if (error)
		return catalog_failed(t, "cannot read the epoch", error);
	epochs = json_array();
	error = append_epoch(epochs, &info);
	epoch_info_free(&info);
	if (!error)
		error = catalog_tree(t->catalog, number, &tree);
	snprintf(what, sizeof(what), "cannot read the tree of epoch %" PRIu64, number);
	code = error ? catalog_failed(t, what, error) : target_tags(t, &tags);
	if (code != EXIT_DONE) {
		json_decref(epochs);
		return code;
	}
	spread_tags(epochs, tags);
	json_decref(tags);
	epoch = json_incref(json_array_get(epochs, 0));
	json_decref(epochs);
	*ret_shown = json_pack("{s:o, s:o}", "epoch", epoch, "files", listing_files(tree));
	return *ret_shown ? EXIT_DONE : cli_error(EXIT_FAILED, "out of memory");
}

int target_show(const struct target *t, uint64_t number, json_t **ret_shown)
{
	if (t->catalog)
		return catalog_show(t, number, ret_shown);
	return client_call(t->name,
			   json_pack("{s:s, s:I}", "op", "show", "epoch", (json_int_t)number),
			   ret_shown);
}

/* The greatest number up to pair[0] that there is. */
static int note_up_to(void *arg, const struct epoch_info *e)
{
	uint64_t *pair = arg;

	if (e->number <= pair[0])
		pair[1] = e->number;
	return 0;
}

/* The epoch before this one that is still there: of its record, else by number; 0: none. */
static int epoch_before(const struct target *t, uint64_t number, uint64_t *ret_before)
{
	struct epoch_info info;
	uint64_t pair[2] = {0, 0};
	int error = catalog_get(t->catalog, number, &info);

	if (error)
		return error;
	pair[0] = info.record.parent;
	epoch_info_free(&info);
	error = catalog_each(t->catalog, note_up_to, pair);
	*ret_before = pair[1];
	return error;
}

static int catalog_diff(const struct target *t, uint64_t from, uint64_t to, json_t **ret_diff)
{
	cleanup_tree struct tree *a = NULL, *b = NULL;
	int error = 0;

	if (!from)
		error = epoch_before(t, to, &from);
	if (!error && from)
		error = catalog_tree(t->catalog, from, &a);
	if (!error)
		error = catalog_tree(t->catalog, to, &b);
	if (!error)
		error = listing_diff(a, b, ret_diff);
	return error ? catalog_failed(t, "cannot compare the epochs", error) : EXIT_DONE;
}

int target_diff(const struct target *t, uint64_t from, uint64_t to, json_t **ret_diff)
{
	json_t *request;

	if (t->catalog)
		return catalog_diff(t, from, to, ret_diff);
	request = json_pack("{s:s, s:I}", "op", "diff", "to", (json_int_t)to);
	if (from)
		json_object_set_new(request, "from", json_integer((json_int_t)from));
	return client_call(t->name, request, ret_diff);
}
