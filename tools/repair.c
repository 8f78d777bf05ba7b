/* SPDX-License-Identifier: Apache-2.0 */
/* `epochfs fsck --repair`: asks the mount, or does it without one, and prints what came of it. */
#include "tools/repair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/admin/repair.h"
#include "lib/util/cleanup.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/mount_options.h"
#include "tools/progress.h"
#include "tools/target.h"

static void on_progress(void *arg, const struct catalog_progress *p)
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
		code = mount_options_environment(&options);
	if (code == EXIT_DONE) {
		if (w->cache_dir)
			options.volume.cache_dir = w->cache_dir;
		error = repair_remote_json(&options.volume, w->dry_run, on_progress, &bar,
					   ret_answer, &message);
		progress_end(&bar);
		if (error)
			code = cli_error(exit_code_of(error), "%s",
					 message ? message : strerror(-error));
	}
	mount_options_free(&options);
	return code;
}

int repair_run(const struct repair_words *words)
{
	json_t *answer = NULL;
	bool mounted = client_is_mount(words->target) == 1;
	int code;

	if (mounted && words->cache_dir)
		return cli_usage_error("fsck", "%s is a mount, which has its own cache",
				       words->target);
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
