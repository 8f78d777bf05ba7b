/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs explain: what happened in a mount, in its order; and the rules by which that became epochs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/saves/judge_rules.h"
#include "lib/saves/seal_rules.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/table.h"
#include "tools/target.h"

/* Of all facts those from `first` to before `end` are asked for. */
struct range {
	size_t first, end;
};

static uint64_t number(const json_t *fact, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(fact, key));
}

static const char *text(const json_t *fact, const char *key)
{
	return json_string_value(json_object_get(fact, key));
}

static bool is(const json_t *fact, const char *what)
{
	const char *kind = text(fact, "what");

	return kind && !strcmp(kind, what);
}

static bool has(const json_t *fact, const char *word)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(fact, "facts"), i,
			   one) if (!strcmp(json_string_value(one), word)) return true;
	return false;
}

/* ---- which of them ---- */

/* What came after the newest epoch. */
static struct range since_last(const json_t *facts)
{
	struct range r = {0, json_array_size(facts)};

	for (size_t i = r.end; i > 0 && !r.first; i--)
		if (is(json_array_get(facts, i - 1), "sealed"))
			r.first = i;
	return r;
}

/* What came after the epoch before that one, and its own seal; false: that is not among them. */
static bool of_epoch(const json_t *facts, uint64_t epoch, struct range *ret_range)
{
	const json_t *fact;
	size_t i;

	*ret_range = (struct range){0, 0};
	json_array_foreach(facts, i, fact)
	{
		if (!is(fact, "sealed"))
			continue;
		ret_range->end = i + 1;
		if (number(fact, "epoch") == epoch)
			return true;
		ret_range->first = i + 1;
	}
	return false;
}

/* ---- as people read them ---- */

/* Of what was opened before: by whom, and which file. */
static const json_t *opening(const json_t *facts, size_t at)
{
	const json_t *fact = json_array_get(facts, at);
	uint64_t handle = number(fact, "handle");

	for (size_t i = at + 1; handle && i > 0; i--) {
		const json_t *before = json_array_get(facts, i - 1);

		if (is(before, "opened") && number(before, "handle") == handle)
			return before;
	}
	return fact;
}

static void put_time(const json_t *fact, struct buf *out)
{
	int64_t at_ns = (int64_t)number(fact, "at_ns");
	time_t seconds = at_ns / NS_PER_S;
	struct tm tm;

	localtime_r(&seconds, &tm);
	buf_printf(out, "%02d:%02d:%02d.%03d", tm.tm_hour, tm.tm_min, tm.tm_sec,
		   (int)(at_ns % NS_PER_S / NS_PER_MS));
}

static void put_who(const json_t *by, struct buf *out)
{
	const char *command = text(by, "command");

	if (number(by, "process"))
		buf_printf(out, "%s (%" PRIu64 ")", command ? command : "?", number(by, "process"));
	else if (is(by, "opened") || is(by, "made") || is(by, "renamed") || is(by, "linked"))
		buf_printf(out, "not seen");
}

static void put_closed(const json_t *fact, struct buf *out)
{
	char size[FORMAT_MAX];

	format_size(number(fact, "size"), size);
	if (has(fact, "shared"))
		buf_printf(out, " (open still)");
	else if (has(fact, "same"))
		buf_printf(out, " (unchanged)");
	else
		buf_printf(out, ", %s%s", size, has(fact, "grew") ? ", grew" : "");
	if (has(fact, "killed"))
		buf_printf(out, ", by the death of its writer");
}

/* A status above this is that of a signal, as a shell has it. */
#define SIGNALS 128

static void put_ended(const json_t *fact, struct buf *out)
{
	uint64_t status = number(fact, "status");

	if (has(fact, "unknown"))
		buf_printf(out, "nobody knows how");
	else if (status > SIGNALS)
		buf_printf(out, "by signal %" PRIu64, status - SIGNALS);
	else
		buf_printf(out, "with status %" PRIu64, status);
}

static void put_more(const json_t *fact, struct buf *out)
{
	const char *to = text(fact, "to"), *trigger = text(fact, "trigger");
	const char *rule = text(fact, "rule"), *judged = text(fact, "judged");

	if (to)
		buf_printf(out, " %s %s%s", is(fact, "exchanged") ? "with" : "to", to,
			   has(fact, "over") ? ", which was there" : "");
	if (is(fact, "opened"))
		buf_printf(out, "%s",
			   has(fact, "new")	  ? " (new)"
			   : has(fact, "replace") ? " (to replace it)"
						  : " (in place)");
	if (is(fact, "closed"))
		put_closed(fact, out);
	if (is(fact, "undone"))
		buf_printf(out, ": %s",
			   has(fact, "refused") ? "a write to it was refused"
						: "its writer was killed");
	if (is(fact, "refused"))
		buf_printf(out, ": a write");
	if (is(fact, "sealed"))
		buf_printf(out, " as epoch %06" PRIu64 ": %s", number(fact, "epoch"),
			   trigger ? trigger : "?");
	if (rule && judged)
		buf_printf(out, " (%s, %s)", rule, judged);
	if (is(fact, "ended"))
		put_ended(fact, out);
}

static int add_row(struct table *t, const json_t *facts, size_t at)
{
	cleanup_buf struct buf when = {0}, who = {0}, what = {0};
	const json_t *fact = json_array_get(facts, at), *by = opening(facts, at);
	const char *kind = text(fact, "what"), *path = text(fact, "path");

	path = path ? path : text(by, "path");
	put_time(fact, &when);
	put_who(by, &who);
	if (path)
		buf_printf(&what, "%s%s", path, has(fact, "directory") ? "/" : "");
	put_more(fact, &what);
	if (buf_error(&when) || buf_error(&who) || buf_error(&what))
		return -1;
	return table_add(
		t, (const char *[]){buf_str(&when), buf_str(&who), kind ? kind : "?",
				    buf_str(&what) + (path ? 0 : strspn(buf_str(&what), " "))});
}

static int print_table(const json_t *facts, const struct range *r)
{
	static const char *const headers[] = {"TIME", "PROCESS", "WHAT", ""};
	struct table *t = table_new(headers, 4);
	int error = t ? 0 : -1;

	for (size_t i = r->first; !error && i < r->end; i++)
		error = add_row(t, facts, i);
	if (!error)
		table_print(t);
	table_free(t);
	return error ? cli_error(EXIT_FAILED, "out of memory") : EXIT_DONE;
}

static void print_json(const json_t *facts, const struct range *r)
{
	json_t *shown = json_array();

	for (size_t i = r->first; i < r->end; i++)
		json_array_append(shown, json_array_get(facts, i));
	cli_print_json(shown, JSON_INDENT(2));
	json_decref(shown);
}

static int print(const char *mount, const json_t *facts, const struct range *r, bool json)
{
	if (json)
		print_json(facts, r);
	else if (r->first == r->end)
		fprintf(stderr, "%s: nothing has happened since the last epoch\n", mount);
	else
		return print_table(facts, r);
	return EXIT_DONE;
}

static int explain(const char *mount, const char *epoch, bool json)
{
	const struct target target = {.name = mount};
	json_t *response = NULL;
	const json_t *facts;
	struct range range;
	uint64_t wanted = 0;
	int code = epoch ? target_resolve(&target, epoch, &wanted) : EXIT_DONE;

	if (code == EXIT_DONE)
		code = client_call(mount, json_pack("{s:s}", "op", "explain"), &response);
	if (code != EXIT_DONE)
		return code;
	facts = json_object_get(response, "facts");
	range = since_last(facts);
	if (wanted && !of_epoch(facts, wanted, &range))
		code = cli_error(
			EXIT_NOT_FOUND,
			"%s: what led to epoch %" PRIu64
			" is not known: a mount keeps what happened last, since it was mounted",
			mount, wanted);
	else
		code = print(mount, facts, &range, json);
	json_decref(response);
	return code;
}

/* ---- the rules ---- */

/* Where the text of a rule begins. */
#define RULE_TEXT_AT 28
#define RULE_MAX     64

static void print_rules(void)
{
	char term[RULE_MAX];

	puts("When an epoch is sealed: the first that holds.");
	for (const struct seal_rule *r = seal_rules; r < seal_rules + SEAL_RULES; r++) {
		snprintf(term, sizeof(term), "  %-4s%s", r->id, r->name);
		cli_print_row(term, r->text, RULE_TEXT_AT);
	}
	puts("\nWhat an epoch is: the first that holds of the root or the newest checkpoint.");
	for (const struct judge_rule *r = judge_rules; r < judge_rules + JUDGE_RULES; r++) {
		snprintf(term, sizeof(term), "  %-4s%-9s%s", r->id, r->name,
			 verdict_name(r->verdict));
		cli_print_row(term, r->text, RULE_TEXT_AT);
	}
	puts("\nepochfs-saves(7) says what the words mean.");
}

static json_t *seal_rules_json(void)
{
	json_t *list = json_array();

	for (const struct seal_rule *r = seal_rules; r < seal_rules + SEAL_RULES; r++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "rule", r->id, "name",
						      r->name, "text", r->text));
	return list;
}

static json_t *judge_rules_json(void)
{
	json_t *list = json_array();

	for (const struct judge_rule *r = judge_rules; r < judge_rules + JUDGE_RULES; r++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "rule", r->id, "name",
						      r->name, "verdict", verdict_name(r->verdict),
						      "text", r->text));
	return list;
}

static void print_rules_json(void)
{
	json_t *rules =
		json_pack("{s:o, s:o}", "seal", seal_rules_json(), "judge", judge_rules_json());

	cli_print_json(rules, JSON_INDENT(2));
	json_decref(rules);
}

static int explain_rules(int operands, bool json)
{
	if (operands)
		return cli_usage_error("explain", "--rules takes no operand");
	if (json)
		print_rules_json();
	else
		print_rules();
	return EXIT_DONE;
}

int command_explain(int argc, char **argv)
{
	const char *operands[2] = {NULL};
	bool json = false, rules = false;
	const struct cli_place places[] = {{"json", &json, NULL}, {"rules", &rules, NULL}, {0}};
	static const struct target_missing needs = {"a TARGET", 0, 2};
	struct target target;
	int code, count = cli_parse("explain", argc, argv, places, operands, 2, &code);

	if (count < 0)
		return code;
	if (rules)
		return explain_rules(count, json);
	code = target_open_operands("explain", &needs, operands, &count, &target);
	if (code != EXIT_DONE)
		return code;
	if (target.catalog)
		code = target_need_mount(target.name, "explain");
	else
		code = explain(target.name, operands[1], json);
	target_close(&target);
	return code;
}
