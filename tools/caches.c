/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs cache list and drop: the caches of this machine, by the volumes that they belong to. */
#include "tools/caches.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/admin/caches.h"
#include "lib/cache/cache_dir.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/mount_options.h"
#include "tools/table.h"

static int find_root(const struct caches_words *w, struct buf *out)
{
	struct mount_options options;
	int code;

	mount_options_init(&options);
	code = mount_options_environment(&options);
	if (w->cache_dir)
		options.volume.cache_dir = w->cache_dir;
	if (code == EXIT_DONE && volume_cache_root(&options.volume, out))
		code = cli_error(
			EXIT_USAGE,
			"no place for caches: neither XDG_CACHE_HOME nor HOME is set; give --cache-dir DIR");
	mount_options_free(&options);
	return code;
}

/* A place that nobody named need not be there. */
static int not_listed(const struct caches_words *w, const char *root, int error)
{
	if (error == -ENOENT && !w->cache_dir)
		return EXIT_DONE;
	return cli_error(exit_code_of(error), "cache directory %s: %s", root, strerror(-error));
}

/* ---- list ---- */

static void format_state(const struct cache_found *c, struct buf *out)
{
	if (!c->in_use)
		buf_printf(out, "%s", c->only_here ? "not mounted, holds" : "not mounted");
	else if (*c->holder.path)
		buf_printf(out, "mounted at %s", c->holder.path);
	else
		buf_printf(out, "in use by process %ld", c->holder.pid);
	if (c->only_here)
		buf_printf(out, " %s", c->only_here);
}

static int add_row(void *arg, const struct cache_found *c)
{
	char bytes[FORMAT_MAX], age[FORMAT_MAX];
	cleanup_buf struct buf state = {0};

	format_size(c->bytes, bytes);
	format_age(clock_wall_ns() - c->used_ns, age);
	format_state(c, &state);
	return table_add(arg, (const char *[]){c->uuid, bytes, age, *c->remote ? c->remote : "-",
					       buf_str(&state)});
}

static int add_object(void *arg, const struct cache_found *c)
{
	json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:b}", "uuid", c->uuid, "remote", c->remote,
			      "bytes", (json_int_t)c->bytes, "used_ns", (json_int_t)c->used_ns,
			      "in_use", c->in_use);

	if (c->in_use && *c->holder.path)
		json_object_set_new(o, "mounted_at", json_string(c->holder.path));
	if (c->in_use && c->holder.pid)
		json_object_set_new(o, "pid", json_integer(c->holder.pid));
	if (c->only_here)
		json_object_set_new(o, "only_here", json_string(c->only_here));
	return json_array_append_new(arg, o) ? -ENOMEM : 0;
}

static int list_json(const struct caches_words *w, const char *root)
{
	json_t *list = json_array();
	int error = caches_each(root, add_object, list);
	int code = error ? not_listed(w, root, error) : EXIT_DONE;

	if (code == EXIT_DONE)
		cli_print_json(list, JSON_INDENT(2));
	json_decref(list);
	return code;
}

int caches_list(const struct caches_words *w)
{
	static const char *const headers[] = {"VOLUME", ">BYTES", ">USED", "REMOTE", "STATE"};
	cleanup_buf struct buf root = {0};
	int code = find_root(w, &root), error;
	struct table *t;

	if (code != EXIT_DONE || w->json)
		return code != EXIT_DONE ? code : list_json(w, buf_str(&root));
	t = table_new(headers, sizeof(headers) / sizeof(headers[0]));
	if (!t)
		return cli_error(EXIT_FAILED, "out of memory");
	error = caches_each(buf_str(&root), add_row, t);
	code = error ? not_listed(w, buf_str(&root), error) : EXIT_DONE;
	if (code == EXIT_DONE)
		table_print(t);
	table_free(t);
	return code;
}

/* ---- drop ---- */

struct wanted {
	const char *name;
	char uuid[40];
	uint64_t bytes;
	unsigned found;
};

static int note_wanted(void *arg, const struct cache_found *c)
{
	struct wanted *w = arg;

	if (strcmp(w->name, c->uuid) != 0 && strcmp(w->name, c->remote) != 0)
		return 0;
	snprintf(w->uuid, sizeof(w->uuid), "%s", c->uuid);
	w->bytes = c->bytes;
	w->found++;
	return 0;
}

static int not_dropped(const char *root, const struct wanted *w, int error, const char *why)
{
	if (error == -EBUSY)
		return cli_error(
			EXIT_CONFLICT,
			"cache %s/%s is in use: unmount it first (`epochfs cache list` says where)",
			root, w->uuid);
	if (error == -ENOTEMPTY)
		return cli_error(EXIT_CONFLICT,
				 "cache %s/%s is not dropped: it alone holds %s: mount it and "
				 "`epochfs wait`, or drop it with --force",
				 root, w->uuid, why);
	return cli_error(exit_code_of(error), "cache %s/%s is not dropped: %s", root, w->uuid,
			 strerror(-error));
}

static void print_dropped(const struct wanted *w, bool json)
{
	char size[FORMAT_MAX];

	format_size(w->bytes, size);
	if (json)
		printf("{\n  \"uuid\": \"%s\",\n  \"bytes\": %llu\n}\n", w->uuid,
		       (unsigned long long)w->bytes);
	else
		printf("the cache of %s is dropped: %s freed\n", w->uuid, size);
}

int caches_drop(const struct caches_words *w, const char *name)
{
	cleanup_buf struct buf root = {0}, why = {0};
	struct wanted wanted = {.name = name};
	int code = find_root(w, &root), error;

	if (code != EXIT_DONE)
		return code;
	error = caches_each(buf_str(&root), note_wanted, &wanted);
	if (error)
		return cli_error(exit_code_of(error), "cache directory %s: %s", buf_str(&root),
				 strerror(-error));
	if (!wanted.found)
		return cli_error(EXIT_NOT_FOUND,
				 "%s has no cache of %s: `epochfs cache list` says which it has",
				 buf_str(&root), name);
	if (wanted.found > 1)
		return cli_error(EXIT_USAGE,
				 "%s holds more than one cache of %s: name one by its UUID",
				 buf_str(&root), name);
	error = cache_remove(buf_str(&root), wanted.uuid, w->force, &why);
	if (error)
		return not_dropped(buf_str(&root), &wanted, error, buf_str(&why));
	print_dropped(&wanted, w->json);
	return EXIT_DONE;
}
