/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs log: the epochs as a table, newest first. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/util/buf.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/graph.h"
#include "tools/table.h"
#include "tools/target.h"

#define COLUMNS 9

static uint64_t number(const json_t *e, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(e, key));

	return v > 0 ? (uint64_t)v : 0;
}

static void format_epoch_age(const json_t *e, char ret_text[FORMAT_MAX])
{
	const char *sealed = json_string_value(json_object_get(e, "sealed"));
	int64_t ns;

	if (sealed && parse_time(sealed, &ns) == 0)
		format_age(clock_wall_ns() - ns, ret_text);
	else
		snprintf(ret_text, FORMAT_MAX, "-");
}

/* Of what is pending (lib/saves/judge_rules.h). */
#define PENDING_RULE "J6"

/* Its save had more to come when it was sealed: what became of that a later epoch shows. */
static const char *incomplete_word(const json_t *e, bool newest)
{
	const char *rule = json_string_value(json_object_get(e, "rule"));

	if (!rule || strcmp(rule, PENDING_RULE) != 0)
		return "incomplete";
	return newest ? "pending" : "part";
}

/* "durable", "sealed, incomplete", "sealed, pending", "durable, part", "durable, continued". */
static void format_state(const json_t *e, bool newest, struct buf *out)
{
	const json_t *complete = json_object_get(e, "complete");
	const char *state = json_string_value(json_object_get(e, "state"));

	buf_printf(out, "%s", state ? state : "?");
	if (json_is_true(json_object_get(e, "continued")))
		buf_printf(out, ", continued");
	else if (json_is_false(complete))
		buf_printf(out, ", %s", incomplete_word(e, newest));
	else if (!json_is_true(complete))
		buf_printf(out, ", unknown");
}

/* Which nodes' parts never came, and that several wrote the same. */
static void format_nodes(const json_t *e, struct buf *out)
{
	const json_t *missing = json_object_get(e, "missing"), *node;
	size_t i;

	json_array_foreach(missing, i, node)
		buf_printf(out, "%s%s", i ? " " : ", missing ", json_string_value(node));
	if (json_array_size(json_object_get(e, "conflicts")))
		buf_printf(out, ", conflicts");
}

static void format_tags(const json_t *e, struct buf *out)
{
	const json_t *tags = json_object_get(e, "tags"), *tag;
	size_t i;

	json_array_foreach(tags, i, tag)
		buf_printf(out, "%s%s", i ? " " : "", json_string_value(tag));
}

/* The cells, behind those of the graph where that is shown. */
static int add_cells(struct table *t, const char *graph, const char *const *cells)
{
	const char *row[COLUMNS + 1] = {graph};

	memcpy(row + 1, cells, COLUMNS * sizeof(*cells));
	return table_add(t, graph ? row : cells);
}

static int add_row(struct table *t, const char *graph, const json_t *e, bool newest)
{
	char epoch[FORMAT_MAX], age[FORMAT_MAX], step[FORMAT_MAX], files[FORMAT_MAX],
		size[FORMAT_MAX], fresh[FORMAT_MAX], stored[FORMAT_MAX];
	cleanup_buf struct buf state = {0}, tags = {0};
	const json_t *step_value = json_object_get(e, "step");

	snprintf(epoch, sizeof(epoch), "%06" PRIu64, number(e, "epoch"));
	format_epoch_age(e, age);
	if (step_value)
		snprintf(step, sizeof(step), "%" PRIu64, number(e, "step"));
	else
		snprintf(step, sizeof(step), "-");
	snprintf(files, sizeof(files), "%" PRIu64, number(e, "files"));
	format_size(number(e, "bytes"), size);
	format_size(number(e, "bytes_new"), fresh);
	if (json_object_get(e, "durable"))
		format_size(number(e, "bytes_stored"), stored);
	else
		snprintf(stored, sizeof(stored), "-");
	format_state(e, newest, &state);
	format_nodes(e, &state);
	format_tags(e, &tags);
	return add_cells(t, graph,
			 (const char *[]){epoch, age, step, files, size, fresh, stored,
					  buf_str(&state), buf_str(&tags)});
}

/* "waiting for b c, 1 more". */
static void format_waiting(const json_t *w, struct buf *out)
{
	const json_t *missing = json_object_get(w, "missing"), *node;
	size_t i;

	buf_printf(out, "waiting for");
	json_array_foreach(missing, i, node) buf_printf(out, " %s", json_string_value(node));
	if (number(w, "never_came"))
		buf_printf(out, "%s%" PRIu64 " that never came", i ? ", " : " ",
			   number(w, "never_came"));
}

/* An epoch of several nodes that is none yet. */
static int add_waiting(struct table *t, const char *graph, const json_t *w)
{
	const json_t *step = json_object_get(w, "step");
	char age[FORMAT_MAX], step_text[FORMAT_MAX] = "-";
	cleanup_buf struct buf state = {0};

	format_age(clock_wall_ns() - (int64_t)number(w, "since_ns"), age);
	if (step)
		snprintf(step_text, sizeof(step_text), "%" PRIu64, number(w, "step"));
	format_waiting(w, &state);
	return add_cells(
		t, graph,
		(const char *[]){"-", age, step_text, "-", "-", "-", "-", buf_str(&state), ""});
}

/* The epoch with its part of the graph, and what joins below it. */
static int add_graph_row(struct table *t, struct graph *g, const json_t *e, bool newest)
{
	static const char *const none[COLUMNS] = {"", "", "", "", "", "", "", "", ""};
	char text[GRAPH_TEXT_MAX], below[GRAPH_TEXT_MAX];
	int error;

	graph_next(g, e, text, below);
	error = add_row(t, text, e, newest);
	return error || !*below ? error : add_cells(t, below, none);
}

static int print_table(const json_t *epochs, const json_t *waiting, size_t count, bool graph)
{
	static const char *const headers[] = {"GRAPH", ">EPOCH", ">AGE",    ">STEP", ">FILES",
					      ">SIZE", ">NEW",	 ">STORED", "STATE", "TAGS"};
	struct table *t = table_new(headers + !graph, COLUMNS + graph);
	struct graph g = {.epochs = epochs};
	size_t all = json_array_size(epochs);
	int error = t ? 0 : -1;

	for (size_t i = json_array_size(waiting); !error && i > 0; i--)
		error = add_waiting(t, graph ? "" : NULL, json_array_get(waiting, i - 1));
	for (size_t i = all; !error && i > 0 && all - i < count; i--)
		error = graph ? add_graph_row(t, &g, json_array_get(epochs, i - 1), i == all)
			      : add_row(t, NULL, json_array_get(epochs, i - 1), i == all);
	if (!error)
		table_print(t);
	table_free(t);
	return error ? cli_error(EXIT_FAILED, "out of memory") : EXIT_DONE;
}

/* "3 MiB", "3 MiB (1 MiB stored)". */
static void format_bytes(const json_t *usage, const char *key, struct buf *out)
{
	const json_t *part = json_object_get(usage, key);
	char text[FORMAT_MAX];

	format_size(number(part, "bytes"), text);
	buf_printf(out, "%s", text);
	if (!json_object_get(part, "bytes_stored"))
		return;
	format_size(number(part, "bytes_stored"), text);
	buf_printf(out, " (%s stored)", text);
}

/* What the newest takes, against all. */
static void print_usage(const json_t *usage)
{
	uint64_t epochs = number(json_object_get(usage, "retained"), "epochs");
	cleanup_buf struct buf live = {0}, retained = {0};

	if (!epochs)
		return;
	format_bytes(usage, "live", &live);
	format_bytes(usage, "retained", &retained);
	printf("live: %s; retained: %" PRIu64 " epoch%s, %s\n", buf_str(&live), epochs,
	       plural(epochs), buf_str(&retained));
}

/* What is in doubt in the newest one shown. */
static void print_doubts(const json_t *epochs)
{
	size_t all = json_array_size(epochs), i;
	json_t *doubts, *text;

	doubts = all ? doubts_texts(json_object_get(json_array_get(epochs, all - 1), "doubts"))
		     : NULL;
	json_array_foreach(doubts, i, text)
	{
		printf("%s", i ? "          " : "in doubt: ");
		cli_put(json_string_value(text));
		putchar('\n');
	}
	json_decref(doubts);
}

static void print_json(const json_t *epochs, size_t count)
{
	json_t *shown = json_array();
	size_t all = json_array_size(epochs);

	for (size_t i = all; i > 0 && all - i < count; i--)
		json_array_append(shown, json_array_get(epochs, i - 1));
	cli_print_json(shown, JSON_INDENT(2));
	json_decref(shown);
}

int command_log(int argc, char **argv)
{
	const char *count_text = NULL, *name = NULL;
	bool json = false, graph = false;
	const struct cli_place places[] = {
		{"json", &json, NULL}, {"count", NULL, &count_text}, {"graph", &graph, NULL}, {0}};
	static const struct target_missing needs = {"a TARGET", 0, 1};
	struct target target;
	uint64_t count = UINT64_MAX;
	json_t *epochs, *waiting = NULL, *usage = NULL;
	int code, operands = cli_parse("log", argc, argv, places, &name, 1, &code);

	if (operands < 0)
		return code;
	if (count_text && parse_u64(count_text, &count))
		return cli_usage_error("log", "-n %s: expected a number", count_text);
	if (json && graph)
		return cli_usage_error("log", "--graph is text: --json has parent and restores");
	code = target_open_operands("log", &needs, &name, &operands, &target);
	if (code != EXIT_DONE)
		return code;
	code = target_epochs(&target, &epochs);
	if (code == EXIT_DONE && !json)
		code = target_waiting(&target, &waiting);
	/* Where it fails, its line is said, and the table shown. */
	if (code == EXIT_DONE && !json)
		target_usage(&target, false, &usage);
	if (code != EXIT_DONE) {
		target_close(&target);
		return code;
	}
	if (json)
		print_json(epochs, count);
	else if (!json_array_size(epochs) && !json_array_size(waiting))
		fprintf(stderr, "%s: no epochs yet\n", target.name);
	else
		code = print_table(epochs, waiting, count, graph);
	if (!json)
		print_doubts(epochs);
	print_usage(usage);
	json_decref(usage);
	json_decref(epochs);
	json_decref(waiting);
	target_close(&target);
	return code;
}
