/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs rm: drops epochs, here and in the remote; on a mount or on a remote. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/admin/catalog.h"
#include "lib/util/array.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/freed.h"
#include "tools/progress.h"
#include "tools/target.h"

static void print_dropped(const uint64_t *numbers, size_t count, bool json)
{
	if (!json) {
		for (size_t i = 0; i < count; i++)
			printf("epoch %06" PRIu64 " is dropped\n", numbers[i]);
		return;
	}
	if (count == 1) {
		printf("{\n  \"epoch\": %" PRIu64 "\n}\n", numbers[0]);
		return;
	}
	fputs("{\n  \"epochs\": [", stdout);
	for (size_t i = 0; i < count; i++)
		printf("%s%" PRIu64, i ? ", " : "", numbers[i]);
	puts("]\n}");
}

/* Which epochs are meant. */
struct chosen {
	uint64_t *numbers;
	size_t count, cap;
};

/* What is named twice is one. */
static int choose(struct chosen *c, uint64_t number)
{
	for (size_t i = 0; i < c->count; i++)
		if (c->numbers[i] == number)
			return EXIT_DONE;
	if (array_reserve((void **)&c->numbers, &c->cap, c->count, sizeof(*c->numbers)))
		return cli_error(EXIT_FAILED, "out of memory");
	c->numbers[c->count++] = number;
	return EXIT_DONE;
}

/* "3-7": false where that is a tag, or no range. */
static bool is_range(const json_t *tags, const char *name, uint64_t *ret_from, uint64_t *ret_to)
{
	const char *dash = strchr(name, '-');
	cleanup_free char *from = dash ? strndup(name, (size_t)(dash - name)) : NULL;

	return from && !json_object_get(tags, name) && parse_u64(from, ret_from) == 0 &&
	       parse_u64(dash + 1, ret_to) == 0;
}

/* Those of a range that are there. */
static int choose_range(struct chosen *c, const struct target *t, const char *name, uint64_t from,
			uint64_t to)
{
	size_t before = c->count, i;
	json_t *epochs, *e;
	int code = target_epochs(t, &epochs);

	if (code != EXIT_DONE)
		return code;
	json_array_foreach(epochs, i, e)
	{
		uint64_t n = (uint64_t)json_integer_value(json_object_get(e, "epoch"));

		if (code == EXIT_DONE && n >= from && n <= to)
			code = choose(c, n);
	}
	json_decref(epochs);
	if (code == EXIT_DONE && c->count == before)
		return cli_error(EXIT_NOT_FOUND,
				 "%s: there is no epoch from %s; `epochfs log %s` lists them",
				 t->name, name, t->name);
	return code;
}

/* All names mean what they meant before the first is dropped. */
static int resolve_all(const struct target *t, const char *const *names, size_t count,
		       struct chosen *c)
{
	json_t *tags;
	int code = target_tags(t, &tags);

	if (code != EXIT_DONE)
		return code;
	for (size_t i = 0; i < count && code == EXIT_DONE; i++) {
		uint64_t from, to;

		if (is_range(tags, names[i], &from, &to)) {
			code = choose_range(c, t, names[i], from, to);
			continue;
		}
		code = target_resolve(t, names[i], &from);
		if (code == EXIT_DONE)
			code = choose(c, from);
	}
	json_decref(tags);
	return code;
}

/* As rm does: one that cannot go keeps none of the others. The first failure counts. */
static int drop_chosen(const struct target *t, struct chosen *c, bool json)
{
	int result = EXIT_DONE, code;
	struct freed before;
	size_t dropped = 0;

	freed_before(t, &before);
	for (size_t i = 0; i < c->count; i++) {
		code = drop_epoch_of(t, c->numbers[i], false);
		if (code == EXIT_DONE)
			c->numbers[dropped++] = c->numbers[i];
		else if (result == EXIT_DONE)
			result = code;
	}
	if (!dropped)
		return result;
	drop_end(t);
	print_dropped(c->numbers, dropped, json);
	if (!json)
		freed_print(t, &before);
	return result;
}

static int drop_all(const struct target *t, const char *const *names, size_t count, bool json)
{
	struct chosen chosen = {0};
	int code = drop_begin(t);

	if (code == EXIT_DONE)
		code = resolve_all(t, names, count, &chosen);
	if (code == EXIT_DONE)
		code = drop_chosen(t, &chosen, json);
	free(chosen.numbers);
	return code;
}

int command_rm(int argc, char **argv)
{
	cleanup_free const char **operands = calloc((size_t)argc + 1, sizeof(*operands));
	bool json = false;
	const struct cli_place places[] = {{"json", &json, NULL}, {0}};
	const struct target_missing needs = {"a TARGET and an EPOCH", 1, argc + 1};
	struct target target;
	int code, count;

	if (!operands)
		return cli_error(EXIT_FAILED, "out of memory");
	count = cli_parse("rm", argc, argv, places, operands, argc, &code);
	if (count < 0)
		return code;
	code = target_open_operands("rm", &needs, operands, &count, &target);
	if (code != EXIT_DONE)
		return code;
	code = drop_all(&target, operands + 1, (size_t)count - 1, json);
	target_close(&target);
	return code;
}

/* ---- Dropping epochs of a mount or a remote. ---- */

static void tell_waiting(void *arg, const char *text)
{
	(void)arg;
	fprintf(stderr, "%s\n", text);
}

int drop_begin(const struct target *t)
{
	cleanup_free char *message = NULL;
	int error;

	if (!t->catalog)
		return EXIT_DONE;
	error = catalog_hold(t->catalog, tell_waiting, NULL, &message);
	return error ? cli_error(exit_code_of(error), "%s", message ? message : strerror(-error))
		     : EXIT_DONE;
}

/* Why the remote keeps it. */
static int refused(const struct target *t, uint64_t number)
{
	json_t *tags, *tagged;
	const char *name;
	int code = target_tags(t, &tags);

	if (code != EXIT_DONE)
		return code;
	code = EXIT_CONFLICT;
	json_object_foreach(tags, name, tagged) if ((uint64_t)json_integer_value(tagged) == number)
	{
		cli_error(code,
			  "%s: epoch %" PRIu64
			  " is tagged '%s': remove that first (`epochfs tag -d %s %s`)",
			  t->name, number, name, t->name, name);
		json_decref(tags);
		return code;
	}
	json_decref(tags);
	return cli_error(code,
			 "%s: epoch %" PRIu64
			 " is the newest, or the newest complete one: it stays until there is "
			 "another",
			 t->name, number);
}

int drop_epoch_of(const struct target *t, uint64_t number, bool may_be_gone)
{
	json_t *response = NULL;
	int error, code;

	if (!t->catalog) {
		code = client_call_unless(
			t->name, json_pack("{s:s, s:I}", "op", "rm", "epoch", (json_int_t)number),
			may_be_gone ? ENOENT : 0, &response);
		json_decref(response);
		return code;
	}
	error = catalog_drop(t->catalog, number);
	if (may_be_gone && error == -ENOENT)
		return EXIT_DONE;
	switch (error) {
	case 0:
		return EXIT_DONE;
	case -EBUSY:
		return refused(t, number);
	case -ESTALE:
		return cli_error(EXIT_CONFLICT,
				 "%s: another has taken the volume over; nothing more is dropped",
				 t->name);
	default:
		return cli_error(exit_code_of(error), "%s: epoch %" PRIu64 " is not dropped: %s",
				 t->name, number, cli_reason(error));
	}
}

void drop_end(const struct target *t)
{
	if (!t->catalog)
		drain_changes(t->name);
}

/* ---- epochfs undrop ---- */

static int failed(const struct target *t, uint64_t number, const char *tag, int error)
{
	cleanup_buf struct buf why = {0};

	switch (error) {
	case -ENOENT:
		return cli_error(EXIT_NOT_FOUND, "%s: there never was an epoch %" PRIu64, t->name,
				 number);
	case -ENODATA:
		undrop_refusal(number, &why);
		return cli_error(EXIT_NOT_FOUND, "%s: %s", t->name, buf_str(&why));
	case -EEXIST:
		return cli_error(EXIT_CONFLICT,
				 "%s: the tag '%s' is another epoch's: choose one with --tag",
				 t->name, tag);
	case -EINVAL:
		return cli_error(EXIT_USAGE, "'%s' cannot be a tag", tag);
	case -ESTALE:
		return cli_error(EXIT_CONFLICT,
				 "%s: another has taken the volume over; epoch %" PRIu64
				 " is not brought back",
				 t->name, number);
	default:
		return cli_error(exit_code_of(error),
				 "%s: epoch %" PRIu64 " is not brought back: %s", t->name, number,
				 cli_reason(error));
	}
}

/* Of a list of names. */
static bool has_tag(const json_t *tags, const char *tag)
{
	for (size_t i = 0; i < json_array_size(tags); i++)
		if (!strcmp(json_string_value(json_array_get(tags, i)), tag))
			return true;
	return false;
}

/* One that is there is refused, unless an undrop before this one has brought it back. EXIT_DONE, or the exit code after the line. */
static int look(const struct target *t, uint64_t number, const char *tag, bool *ret_back)
{
	json_t *epochs, *e;
	size_t i;
	int code = target_epochs(t, &epochs);

	*ret_back = false;
	if (code != EXIT_DONE)
		return code;
	json_array_foreach(epochs, i, e)
	{
		if ((uint64_t)json_integer_value(json_object_get(e, "epoch")) != number)
			continue;
		*ret_back = has_tag(json_object_get(e, "tags"), tag);
		if (!*ret_back)
			code = cli_error(EXIT_CONFLICT,
					 "%s: epoch %" PRIu64
					 " is there, it is not dropped; `epochfs tag %s %" PRIu64
					 " NAME` keeps it from being dropped",
					 t->name, number, t->name, number);
	}
	json_decref(epochs);
	return code;
}

static int bring_back(const struct target *t, uint64_t number, const char *tag)
{
	json_t *response = NULL;
	int code, error;

	if (t->catalog) {
		error = catalog_undrop(t->catalog, number, tag);
		return error ? failed(t, number, tag, error) : EXIT_DONE;
	}
	code = client_call(t->name,
			   json_pack("{s:s, s:I, s:s}", "op", "undrop", "epoch", (json_int_t)number,
				     "tag", tag),
			   &response);
	json_decref(response);
	if (code == EXIT_DONE)
		drain_changes(t->name);
	return code;
}

static void print_back(uint64_t number, const char *tag, bool before, bool json)
{
	json_t *o;

	if (!json) {
		printf("epoch %06" PRIu64 " is back%s; the tag ", number, before ? " already" : "");
		cli_put(tag);
		printf(" keeps it\n");
		return;
	}
	o = json_pack("{s:I, s:s}", "epoch", (json_int_t)number, "tag", tag);
	cli_print_json(o, JSON_INDENT(2));
	json_decref(o);
}

int command_undrop(int argc, char **argv)
{
	char own_tag[UNDROP_TAG_MAX];
	bool json = false, before = false;
	const char *operands[2], *tag = NULL;
	const struct cli_place places[] = {{"json", &json, NULL}, {"tag", NULL, &tag}, {0}};
	struct target target;
	cleanup_free char *mount = NULL;
	static const struct target_missing needs = {"a TARGET and the number of an EPOCH", 1, 2};
	uint64_t number;
	int code, count = cli_parse("undrop", argc, argv, places, operands, 2, &code);

	if (count < 0)
		return code;
	code = target_complete("undrop", &needs, operands, &count, &mount);
	if (code == EXIT_DONE && parse_u64(operands[1], &number))
		code = cli_usage_error("undrop", "%s: what is dropped is known by its number alone",
				       operands[1]);
	if (code == EXIT_DONE)
		code = target_open(operands[0], &target);
	if (code != EXIT_DONE)
		return code;
	undrop_tag(number, own_tag);
	if (!tag)
		tag = own_tag;
	/* Of a remote under the lease, by the list that is read for what follows. */
	code = drop_begin(&target);
	if (code == EXIT_DONE)
		code = look(&target, number, tag, &before);
	if (code == EXIT_DONE && !before)
		code = bring_back(&target, number, tag);
	target_close(&target);
	if (code == EXIT_DONE)
		print_back(number, tag, before, json);
	return code;
}
