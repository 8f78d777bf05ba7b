/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs verify: reads an epoch whole and says which files are damaged. */
#include "lib/admin/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/meta/listing.h"
#include "lib/util/cleanup.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/progress.h"
#include "tools/target.h"

struct asked {
	bool json, deep;
};

struct verify_view {
	struct progress bar;
	json_t *problems; /* NULL: printed as they come */
	json_t *older;	  /* paths of files in doubt that cost nothing, as keys */
	bool complete;	  /* says the epoch's record */
};

/* The seal has looked at each tail, too: what is torn in a complete epoch and no doubt of it, somebody has called whole. */
static enum verify_torn on_torn(void *arg, const char *path)
{
	const struct verify_view *view = arg;

	if (json_object_get(view->older, path))
		return VERIFY_OLDER;
	return view->complete ? VERIFY_SETTLED : VERIFY_DAMAGED;
}

/* Paths need not be UTF-8. */
static void add_older(struct verify_view *view, const struct epoch_record *r)
{
	view->complete = r->complete == RECORD_COMPLETE;
	for (size_t i = 0; i < r->doubt_count; i++)
		if (!r->doubts[i].counts)
			json_object_set_new_nocheck(view->older, r->doubts[i].path, json_true());
}

static void add_older_of_mount(struct verify_view *view, const struct target *t, uint64_t number)
{
	json_t *epochs, *e, *d;
	size_t i, k;

	if (target_epochs(t, &epochs) != EXIT_DONE)
		return;
	json_array_foreach(epochs, i, e)
	{
		if ((uint64_t)json_integer_value(json_object_get(e, "epoch")) != number)
			continue;
		view->complete = json_is_true(json_object_get(e, "complete"));
		json_array_foreach(json_object_get(e, "doubts"), k, d)
		{
			if (!json_is_true(json_object_get(d, "counts")))
				json_object_set_new_nocheck(
					view->older, json_string_value(json_object_get(d, "path")),
					json_true());
		}
	}
	json_decref(epochs);
}

/* What the epoch's record says of files that are torn. Where it cannot be had, all of them count. */
static void read_record(struct verify_view *view, const struct target *t, uint64_t number)
{
	struct epoch_info info;

	if (!t->catalog) {
		add_older_of_mount(view, t, number);
	} else if (catalog_get(t->catalog, number, &info) == 0) {
		add_older(view, &info.record);
		epoch_info_free(&info);
	}
}

static void on_problem(void *arg, const char *path, const char *what)
{
	struct verify_view *view = arg;

	if (view->problems) {
		json_array_append_new(view->problems,
				      json_pack("{s:o, s:o}", "path", listing_string(path),
						"problem", listing_string(what)));
		return;
	}
	progress_end(&view->bar);
	cli_put(path);
	printf(": %s\n", what);
}

static void on_progress(void *arg, const struct catalog_progress *p)
{
	struct verify_view *view = arg;
	char detail[64];

	snprintf(detail, sizeof(detail), "%" PRIu64 " of %" PRIu64 " file%s", p->files,
		 p->files_total, plural(p->files_total));
	progress_update(&view->bar, p->bytes, p->bytes_total, detail);
}

static void print_totals(uint64_t number, const struct verify_totals *t)
{
	char size[FORMAT_MAX];

	format_size(t->bytes, size);
	printf("epoch %06" PRIu64 ": %" PRIu64 " file%s, %s, all read: ", number, t->files,
	       plural(t->files), size);
	if (t->damaged)
		printf("%" PRIu64 " damaged", t->damaged);
	else
		printf("no damage");
	if (t->older)
		printf(", %" PRIu64 " of older checkpoints torn", t->older);
	if (t->settled)
		printf(", %" PRIu64 " torn, and called whole by commit --whole", t->settled);
	if (t->databases)
		printf(", %" PRIu64 " file%s of a database %s not whole (--deep: damage)",
		       t->databases, plural(t->databases), t->databases == 1 ? "is" : "are");
	putchar('\n');
}

static void print_json(uint64_t number, const struct verify_totals *t, json_t *problems)
{
	json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:O}", "epoch", (json_int_t)number, "files",
			      (json_int_t)t->files, "bytes", (json_int_t)t->bytes, "damaged",
			      (json_int_t)t->damaged, "problems", problems);

	if (t->older)
		json_object_set_new(o, "older", json_integer((json_int_t)t->older));
	if (t->settled)
		json_object_set_new(o, "settled", json_integer((json_int_t)t->settled));
	if (t->databases)
		json_object_set_new(o, "databases", json_integer((json_int_t)t->databases));
	cli_print_json(o, JSON_INDENT(2));
	json_decref(o);
}

/* In the remote, or, where there is no `catalog`, below a mount. */
static int verify_one(const struct target *target, const char *name, uint64_t number,
		      const struct asked *asked)
{
	struct catalog *catalog = target->catalog;
	struct verify_view view = {.bar = {.label = "verifying"},
				   .problems = asked->json ? json_array() : NULL,
				   .older = json_object()};
	const struct verify how = {.deep = asked->deep,
				   .problem = on_problem,
				   .torn = on_torn,
				   .progress = on_progress,
				   .arg = &view};
	cleanup_free char *path = NULL;
	struct verify_totals totals;
	int error, code;

	read_record(&view, target, number);
	if (catalog)
		error = catalog_verify(catalog, number, &how, &totals);
	else if (text_print(&path, "%s/.epochs/%06" PRIu64, name, number) < 0)
		error = -ENOMEM;
	else
		error = verify_directory(path, &how, &totals);
	progress_end(&view.bar);
	if (error)
		code = cli_error(exit_code_of(error), "%s: epoch %" PRIu64 ": %s", name, number,
				 cli_reason(error));
	else
		code = totals.damaged ? EXIT_DAMAGED : EXIT_DONE;
	if (!error && asked->json)
		print_json(number, &totals, view.problems);
	else if (!error)
		print_totals(number, &totals);
	json_decref(view.problems);
	json_decref(view.older);
	return code;
}

static int verify_mount(const char *mount, const char *epoch, const struct asked *asked)
{
	cleanup_free char *remote = NULL;
	struct target target = {.name = mount};
	uint64_t number;
	int code = target_remote_of_mount(mount, epoch, &number, &remote);

	if (code == EXIT_DONE && remote)
		code = target_open(remote, &target);
	if (code == EXIT_DONE)
		code = verify_one(&target, mount, number, asked);
	target_close(&target);
	return code;
}

static int verify_remote(const char *name, const char *epoch, const struct asked *asked)
{
	struct target target;
	uint64_t number;
	int code = target_open(name, &target);

	if (code != EXIT_DONE)
		return code;
	code = target_resolve(&target, epoch, &number);
	if (code == EXIT_DONE)
		code = verify_one(&target, name, number, asked);
	target_close(&target);
	return code;
}

int command_verify(int argc, char **argv)
{
	struct asked asked = {0};
	const struct cli_place places[] = {
		{"json", &asked.json, NULL}, {"deep", &asked.deep, NULL}, {0}};
	static const struct target_missing needs = {"a TARGET", 0, 2};
	cleanup_free char *mount = NULL;
	const char *operands[2];
	const char *epoch;
	int code, count = cli_parse("verify", argc, argv, places, operands, 2, &code);

	if (count < 0)
		return code;
	code = target_complete("verify", &needs, operands, &count, &mount);
	if (code != EXIT_DONE)
		return code;
	epoch = count > 1 ? operands[1] : NULL;
	return client_is_mount(operands[0]) == 1 ? verify_mount(operands[0], epoch, &asked)
						 : verify_remote(operands[0], epoch, &asked);
}
