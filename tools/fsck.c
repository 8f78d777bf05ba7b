/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs fsck: verifies a remote and says what is damaged, or repairs it. */
#include "lib/admin/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/admin/repair.h"
#include "lib/meta/listing.h"
#include "lib/util/cleanup.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/mount_options.h"
#include "tools/progress.h"
#include "tools/target.h"
#include <stdbool.h>

struct fsck_view {
	struct progress bar;
	json_t *problems, *notes; /* NULL: printed as they come */
};

static void tell(struct fsck_view *view, json_t *list, const char *key, const char *where,
		 const char *what)
{
	if (list) {
		json_array_append_new(
			list, json_pack("{s:o, s:o, s:o}", "object", listing_string(key), "where",
					listing_string(where), "problem", listing_string(what)));
		return;
	}
	progress_end(&view->bar);
	cli_put(key);
	printf(": %s%s", what, *where ? ": " : "");
	cli_put(where);
	putchar('\n');
}

static void on_problem(void *arg, const char *key, const char *where, const char *what)
{
	struct fsck_view *view = arg;

	tell(view, view->problems, key, where, what);
}

static void on_note(void *arg, const char *key, const char *where, const char *what)
{
	struct fsck_view *view = arg;

	tell(view, view->notes, key, where, what);
}

static void on_progress(void *arg, const struct catalog_progress *p)
{
	struct fsck_view *view = arg;
	char detail[64];

	snprintf(detail, sizeof(detail), "%" PRIu64 " of %" PRIu64 " object%s", p->files,
		 p->files_total, plural(p->files_total));
	progress_update(&view->bar, p->bytes, p->bytes_total, detail);
}

static void print_totals(const struct catalog_fsck_totals *t, bool read_data)
{
	char stored[FORMAT_MAX];

	format_size(t->bytes_stored, stored);
	printf("%" PRIu64 " epoch%s, %" PRIu64 " file%s, %" PRIu64 " pack%s, %" PRIu64
	       " index object%s, %" PRIu64 " chunk%s, %s stored%s\n",
	       t->epochs, plural(t->epochs), t->files, plural(t->files), t->packs, plural(t->packs),
	       t->index_objects, plural(t->index_objects), t->chunks, plural(t->chunks), stored,
	       read_data ? ", all read" : "");
	if (t->orphans)
		printf("%" PRIu64 " object%s that no epoch needs\n", t->orphans,
		       plural(t->orphans));
	if (t->condemned)
		printf("%" PRIu64 " object%s that epochfs gc has condemned and will delete\n",
		       t->condemned, plural(t->condemned));
	if (t->foreign)
		printf("%" PRIu64 " object%s not epochfs's\n", t->foreign,
		       plural_of(t->foreign, " that is", "s that are"));
	if (t->problems)
		printf("%" PRIu64
		       " problem%s; epochfs fsck --repair restores what the remote or the cache still has\n",
		       t->problems, plural(t->problems));
	else if (t->unsure)
		puts("no certain damage; run epochfs fsck again when nobody writes");
	else if (t->notes)
		puts("no damage but to copies, or to what no epoch needs");
	else if (read_data)
		puts("no damage");
	else
		puts("no damage in what names the data; the data was not read: --read-data reads it");
}

static void print_json(const struct catalog_fsck_totals *t, const struct fsck_view *view)
{
	json_t *o = json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O, s:O}", "epochs",
		(json_int_t)t->epochs, "files", (json_int_t)t->files, "packs", (json_int_t)t->packs,
		"index_objects", (json_int_t)t->index_objects, "chunks", (json_int_t)t->chunks,
		"bytes_stored", (json_int_t)t->bytes_stored, "orphans", (json_int_t)t->orphans,
		"condemned", (json_int_t)t->condemned, "foreign", (json_int_t)t->foreign,
		"problems", view->problems, "notes", view->notes);

	cli_print_json(o, JSON_INDENT(2));
	json_decref(o);
}

static int check(const char *url, bool read_data, bool json)
{
	cleanup_free char *message = NULL;
	struct remote_limits limits;
	struct fsck_view view = {.bar = {.label = "checking"}};
	struct catalog_fsck how = {.limits = &limits,
				   .read_data = read_data,
				   .problem = on_problem,
				   .note = on_note,
				   .progress = on_progress,
				   .arg = &view};
	struct catalog_fsck_totals totals = {0};
	int error, code = mount_options_limits(url, &limits);

	if (code != EXIT_DONE)
		return code;
	view.problems = json ? json_array() : NULL;
	view.notes = json ? json_array() : NULL;
	error = catalog_fsck(url, &how, &totals, &message);
	progress_end(&view.bar);
	if (error)
		code = cli_error(exit_code_of(error), "%s", message ? message : strerror(-error));
	else
		code = totals.problems ? EXIT_DAMAGED : EXIT_DONE;
	if (!error && json)
		print_json(&totals, &view);
	else if (!error)
		print_totals(&totals, read_data);
	json_decref(view.problems);
	json_decref(view.notes);
	return code;
}

/* ---- fsck --repair: asks the mount, or does it without one, and prints what came of it ---- */

struct repair_words {
	const char *target; /* a remote or a mount point */
	bool dry_run, json;
	const char *cache_dir; /* where the caches of this machine lie; NULL: the default */
};

static void on_repair_progress(void *arg, const struct catalog_progress *p)
{
	char detail[64];

	snprintf(detail, sizeof(detail), "%" PRIu64 " of %" PRIu64 " object%s", p->files,
		 p->files_total, plural(p->files_total));
	progress_update(arg, p->bytes, p->bytes_total, detail);
}

/* ---- printing ---- */

static const char *text_of(const json_t *line, const char *key)
{
	const char *text = json_string_value(json_object_get(line, key));

	return text ? text : "";
}

static void print_lines(const json_t *answer, const char *list, const char *word)
{
	const json_t *lines = json_object_get(answer, list);
	json_t *line;
	size_t i;

	json_array_foreach((json_t *)(uintptr_t)lines, i, line)
	{
		const char *where = text_of(line, "where");

		printf("%s", word);
		cli_put(text_of(line, "object"));
		printf(": %s%s", text_of(line, "what"), *where ? ": " : "");
		cli_put(where);
		putchar('\n');
	}
}

static void print_gone_epochs(const json_t *answer, const char *target)
{
	const json_t *epochs = json_object_get(answer, "gone_epochs");
	json_t *number;
	size_t i;

	if (!json_array_size(epochs))
		return;
	printf("Reads of what is gone fail. To be rid of it, drop its epochs: epochfs rm ");
	cli_put(target);
	json_array_foreach((json_t *)(uintptr_t)epochs, i, number)
		printf(" %" JSON_INTEGER_FORMAT, json_integer_value(number));
	putchar('\n');
}

static void print_text(const json_t *answer, const char *target)
{
	bool dry_run = json_is_true(json_object_get(answer, "dry_run"));
	size_t restored = json_array_size(json_object_get(answer, "restored"));
	size_t gone = json_array_size(json_object_get(answer, "gone"));
	json_int_t condemned = json_integer_value(json_object_get(answer, "condemned"));
	json_int_t stored = json_integer_value(json_object_get(answer, "bytes_stored"));
	char size[FORMAT_MAX];

	print_lines(answer, "restored", "");
	print_lines(answer, "notes", "");
	print_lines(answer, "gone", "GONE: ");
	format_size((uint64_t)stored, size);
	if (dry_run)
		printf("%zu can be restored, %zu %s gone; nothing was written\n", restored, gone,
		       plural_of(gone, "is", "are"));
	else
		printf("%zu restored, %zu gone, %" JSON_INTEGER_FORMAT " condemned, %s stored\n",
		       restored, gone, condemned, size);
	print_gone_epochs(answer, target);
}

/* ---- doing it ---- */

static int ask_mount(const struct repair_words *w, json_t **ret_answer)
{
	return client_call(w->target,
			   json_pack("{s:s, s:b}", "op", "repair", "dry_run", w->dry_run),
			   ret_answer);
}

static int do_remote(const struct repair_words *w, json_t **ret_answer)
{
	struct progress bar = {.label = "repairing"};
	cleanup_free char *message = NULL;
	struct mount_options options;
	char path[PATH_MAX];
	int error, code;

	mount_options_init(&options);
	code = target_remote(w->target, path, &options.volume.remote);
	if (code == EXIT_DONE)
		code = mount_options_defaults(&options, options.volume.remote);
	if (code == EXIT_DONE) {
		if (w->cache_dir)
			options.volume.cache_dir = w->cache_dir;
		error = repair_remote_json(&options.volume, w->dry_run, on_repair_progress, &bar,
					   ret_answer, &message);
		progress_end(&bar);
		if (error)
			code = cli_error(exit_code_of(error), "%s",
					 message ? message : strerror(-error));
	}
	mount_options_free(&options);
	return code;
}

/* Repairs and prints: the exit code, EXIT_DAMAGED where something is gone. */
static int repair_run(const struct repair_words *words)
{
	json_t *answer = NULL;
	bool mounted = client_is_mount(words->target) == 1;
	int code;

	if (mounted && words->cache_dir)
		return cli_usage_error("fsck", "%s is a mount, which has its own cache",
				       words->target);
	if (words->cache_dir && access(words->cache_dir, F_OK) < 0)
		return cli_error(exit_code_of(-errno), "--cache-dir %s: %s", words->cache_dir,
				 strerror(errno));
	code = mounted ? ask_mount(words, &answer) : do_remote(words, &answer);
	if (code != EXIT_DONE)
		return code;
	if (words->json) {
		cli_print_json(answer, JSON_INDENT(2));
	} else {
		print_text(answer, words->target);
	}
	if (json_array_size(json_object_get(answer, "gone")))
		code = EXIT_DAMAGED;
	json_decref(answer);
	return code;
}

/* ---- the command ---- */

int command_fsck(int argc, char **argv)
{
	bool read_data = false, repair = false;
	struct repair_words words = {0};
	char path[PATH_MAX];
	const struct cli_place places[] = {{"json", &words.json, NULL},
					   {"read-data", &read_data, NULL},
					   {"repair", &repair, NULL},
					   {"dry-run", &words.dry_run, NULL},
					   {"cache-dir", NULL, &words.cache_dir},
					   {0}};
	static const struct target_missing needs = {"a TARGET", 0, 1};
	cleanup_free char *mount = NULL;
	int code, count = cli_parse("fsck", argc, argv, places, &words.target, 1, &code);

	if (count < 0)
		return code;
	code = target_complete("fsck", &needs, &words.target, &count, &mount);
	if (code != EXIT_DONE)
		return code;
	if (repair)
		return repair_run(&words);
	if (words.dry_run || words.cache_dir)
		return cli_usage_error("fsck", "--dry-run and --cache-dir go with --repair");
	if (client_is_mount(words.target) == 1)
		return cli_usage_error("fsck", "%s is a mount: name its remote", words.target);
	code = target_remote(words.target, path, &words.target);
	return code == EXIT_DONE ? check(words.target, read_data, words.json) : code;
}
