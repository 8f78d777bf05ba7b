/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs gc: removes from a remote what no epoch needs. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/admin/catalog.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/mount_options.h"
#include "tools/progress.h"
#include "tools/table.h"
#include "tools/target.h"

/* A time is told rounded up to so much, so that 24 h are not 23. */
#define MINUTE_NS (60 * NS_PER_S)

static void on_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	const char *unit = !strcmp(phase, "marking")	? "epochs and files"
			   : !strcmp(phase, "deleting") ? "packs"
							: NULL;
	struct progress *bar = arg;
	char detail[80];

	bar->label = phase;
	bar->counts = unit;
	snprintf(detail, sizeof(detail), "%" PRIu64 " of %" PRIu64 " %s", done, total,
		 unit ? unit : "");
	progress_update(bar, done, total, unit ? detail : NULL);
}

/* ---- what came of it ---- */

static int add_row(struct table *t, const char *what, const struct store_gc_count *c)
{
	char packs[FORMAT_MAX], indexes[FORMAT_MAX], bytes[FORMAT_MAX];
	const char *cells[] = {what, packs, indexes, bytes};

	snprintf(packs, sizeof(packs), "%" PRIu64, c->packs);
	snprintf(indexes, sizeof(indexes), "%" PRIu64, c->indexes);
	format_size(c->bytes, bytes);
	return table_add(t, cells);
}

static void print_table(const struct gc_totals *t, bool dry_run)
{
	static const char *const headers[] = {"", ">packs", ">index objects", ">bytes"};
	const struct store_gc_totals *s = &t->store;
	struct table *table = table_new(headers, 4);
	int error = table ? 0 : -ENOMEM;

	if (!error)
		error = add_row(table, "before", &s->before);
	if (!error)
		error = add_row(table, dry_run ? "would be condemned" : "condemned now",
				&s->condemned);
	if (!error && s->rewritten.packs)
		error = add_row(table, dry_run ? "  would be rewritten" : "  rewritten",
				&s->rewritten);
	if (!error)
		error = add_row(table, dry_run ? "would be deleted" : "deleted now", &s->deleted);
	if (!error)
		error = add_row(table, "waiting for the grace", &s->waiting);
	if (!error && s->unnamed.packs)
		error = add_row(table, "of uploads, not finished", &s->unnamed);
	if (!error)
		error = add_row(table, "after", &t->after);
	if (!error)
		table_print(table);
	table_free(table);
}

static void print_totals(const struct gc_totals *t, bool dry_run)
{
	char freed[FORMAT_MAX], more[FORMAT_MAX], when[FORMAT_MAX], live[FORMAT_MAX];
	int64_t left_ns = t->store.next_ns - clock_wall_ns();

	print_table(t, dry_run);
	format_size(t->store.deleted.bytes, freed);
	format_size(t->store.waiting.bytes, more);
	format_size(t->store.live_bytes, live);
	format_age(left_ns > 0 ? left_ns + MINUTE_NS : 0, when);
	printf("%" PRIu64 " epoch%s%s; %s%s%s", t->epochs,
	       plural_of(t->epochs, " needs ", "s need "), live,
	       t->keeps_versions ? dry_run ? "would mark as deleted " : "marked as deleted "
	       : dry_run	 ? "would free "
				 : "freed ",
	       freed, dry_run ? ", nothing was changed" : "");
	if (t->store.waiting.packs || t->store.waiting.indexes)
		printf("; %s more can go in %s", more, when);
	putchar('\n');
	if (t->keeps_versions)
		puts(REMOTE_VERSIONS_ADVICE);
}

static json_t *count_json(const struct store_gc_count *c)
{
	return json_pack("{s:I, s:I, s:I}", "packs", (json_int_t)c->packs, "index_objects",
			 (json_int_t)c->indexes, "bytes", (json_int_t)c->bytes);
}

static json_t *totals_json(const struct gc_totals *t, bool dry_run)
{
	const struct store_gc_totals *s = &t->store;

	return json_pack(
		"{s:b, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I}",
		"dry_run", (int)dry_run, "keeps_versions", (int)t->keeps_versions, "epochs",
		(json_int_t)t->epochs, "live_bytes", (json_int_t)s->live_bytes, "before",
		count_json(&s->before), "condemned", count_json(&s->condemned), "rewritten",
		count_json(&s->rewritten), "written", count_json(&s->written), "deleted",
		count_json(&s->deleted), "waiting", count_json(&s->waiting), "unnamed",
		count_json(&s->unnamed), "after", count_json(&t->after), "next_ns",
		(json_int_t)s->next_ns, "other_objects", (json_int_t)t->others, "generation",
		(json_int_t)t->generation);
}

/* ---- collecting ---- */

static int parse_terms(const struct collect *c, struct gc *how)
{
	uint64_t value;

	if (c->grace && (parse_duration(c->grace, &how->grace_ns) || how->grace_ns < 0))
		return cli_usage_error(c->command, "--grace %s: a time such as 24h is asked for",
				       c->grace);
	if (!c->rewrite_below)
		return EXIT_DONE;
	if (parse_u64(c->rewrite_below, &value) || value > 100)
		return cli_usage_error(c->command, "--rewrite-below %s: a percentage is asked for",
				       c->rewrite_below);
	how->keep_percent = (unsigned)value;
	return EXIT_DONE;
}

int collect_check(const struct collect *c)
{
	struct gc how = {0};

	return parse_terms(c, &how);
}

static int collect(const char *url, const struct gc *how, json_t **ret_json)
{
	cleanup_free char *message = NULL;
	struct gc_totals totals;
	int error = catalog_collect(url, how, &totals, &message);

	progress_end(how->arg);
	if (error)
		return cli_error(exit_code_of(error), "%s", message ? message : strerror(-error));
	if (ret_json)
		*ret_json = totals_json(&totals, how->dry_run);
	else
		print_totals(&totals, how->dry_run);
	return EXIT_DONE;
}

int collect_run(const struct collect *c, const char *target, json_t **ret_json)
{
	struct progress bar = {.label = "collecting"};
	struct gc how = {.grace_ns = GC_GRACE_NS,
			 .keep_percent = GC_KEEP_PERCENT,
			 .dry_run = c->dry_run,
			 .progress = on_progress,
			 .arg = &bar};
	cleanup_free char *other = NULL;
	struct remote_limits limits;
	const char *url;
	int code = parse_terms(c, &how);

	if (code == EXIT_DONE)
		code = target_find_remote(target, &other, &url);
	if (code == EXIT_DONE)
		code = mount_options_limits(url, &limits);
	if (code != EXIT_DONE)
		return code;
	how.limits = &limits;
	return collect(url, &how, ret_json);
}

/* ---- the command ---- */

int command_gc(int argc, char **argv)
{
	struct collect c = {.command = "gc"};
	bool json = false;
	const char *name;
	const struct cli_place places[] = {{"json", &json, NULL},
					   {"dry-run", &c.dry_run, NULL},
					   {"grace", NULL, &c.grace},
					   {"rewrite-below", NULL, &c.rewrite_below},
					   {0}};
	static const struct target_missing needs = {"a TARGET", 0, 1};
	cleanup_free char *mount = NULL;
	json_t *totals = NULL;
	int code, count = cli_parse("gc", argc, argv, places, &name, 1, &code);

	if (count < 0)
		return code;
	code = target_complete("gc", &needs, &name, &count, &mount);
	if (code != EXIT_DONE)
		return code;
	code = collect_run(&c, name, json ? &totals : NULL);
	if (totals)
		cli_print_json(totals, JSON_INDENT(2));
	json_decref(totals);
	return code;
}
