/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs rm: drops epochs, here and in the remote; on a mount or on a remote. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/admin/catalog.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
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

/* All names mean what they meant before the first is dropped; what is named twice is one. */
static int resolve_all(const struct target *t, const char *const *names, size_t *count,
		       uint64_t *numbers)
{
	size_t distinct = 0;

	for (size_t i = 0; i < *count; i++) {
		int code = target_resolve(t, names[i], &numbers[distinct]);
		size_t k = 0;

		if (code != EXIT_DONE)
			return code;
		while (k < distinct && numbers[k] != numbers[distinct])
			k++;
		distinct += k == distinct;
	}
	*count = distinct;
	return EXIT_DONE;
}

/* As rm does: one that cannot go keeps none of the others. The first failure counts. */
static int drop_all(const struct target *t, const char *const *names, size_t count, bool json)
{
	cleanup_free uint64_t *numbers = calloc(count, sizeof(*numbers));
	size_t dropped = 0;
	int result, code;

	if (!numbers)
		return cli_error(EXIT_FAILED, "out of memory");
	result = drop_begin(t);
	if (result == EXIT_DONE)
		result = resolve_all(t, names, &count, numbers);
	if (result != EXIT_DONE)
		return result;
	for (size_t i = 0; i < count; i++) {
		code = drop_epoch_of(t, numbers[i], false);
		if (code == EXIT_DONE)
			numbers[dropped++] = numbers[i];
		else if (result == EXIT_DONE)
			result = code;
	}
	if (dropped)
		drop_end(t);
	if (dropped)
		print_dropped(numbers, dropped, json);
	return result;
}

int command_rm(int argc, char **argv)
{
	cleanup_free const char **operands = calloc((size_t)argc + 1, sizeof(*operands));
	bool json = false;
	const struct cli_place places[] = {{"json", &json, NULL}, {0}};
	struct target target;
	int code, count;

	if (!operands)
		return cli_error(EXIT_FAILED, "out of memory");
	count = cli_parse("rm", argc, argv, places, operands, argc, &code);
	if (count < 0)
		return code;
	if (count < 2)
		return cli_usage_error("rm", "needs a TARGET and an EPOCH");
	code = target_open(operands[0], &target);
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

static int of_remote(const struct target *t, uint64_t number, const char *tag, bool *ret_was_there)
{
	struct epoch_info info;
	int code = drop_begin(t), error;

	if (code != EXIT_DONE)
		return code;
	/* Under the lease, by the list that is read for what follows; that also tells errors. */
	*ret_was_there = catalog_get(t->catalog, number, &info) == 0;
	if (*ret_was_there)
		epoch_info_free(&info);
	error = catalog_undrop(t->catalog, number, tag);
	return error ? failed(t, number, tag, error) : EXIT_DONE;
}

/* EXIT_DONE, or the exit code after the line. */
static int is_there(const struct target *t, uint64_t number, bool *ret_there)
{
	json_t *epochs;
	int code = target_epochs(t, &epochs);

	*ret_there = false;
	if (code != EXIT_DONE)
		return code;
	for (size_t i = 0; i < json_array_size(epochs) && !*ret_there; i++) {
		const json_t *n = json_object_get(json_array_get(epochs, i), "epoch");

		*ret_there = (uint64_t)json_integer_value(n) == number;
	}
	json_decref(epochs);
	return EXIT_DONE;
}

static int of_mount(const struct target *t, uint64_t number, const char *tag, bool *ret_was_there)
{
	json_t *response = NULL;
	int code = is_there(t, number, ret_was_there);

	if (code != EXIT_DONE)
		return code;
	code = client_call(t->name,
			   json_pack("{s:s, s:I, s:s}", "op", "undrop", "epoch", (json_int_t)number,
				     "tag", tag),
			   &response);
	json_decref(response);
	if (code == EXIT_DONE)
		drain_changes(t->name);
	return code;
}

static void print_back(uint64_t number, const char *tag, bool was_there, bool json)
{
	json_t *o;

	if (!json) {
		printf("epoch %06" PRIu64 " %s; the tag ", number,
		       was_there ? "is there, it is not dropped" : "is back");
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
	bool json = false, was_there = false;
	const char *operands[2], *tag = NULL;
	const struct cli_place places[] = {{"json", &json, NULL}, {"tag", NULL, &tag}, {0}};
	struct target target;
	uint64_t number;
	int code, count = cli_parse("undrop", argc, argv, places, operands, 2, &code);

	if (count < 0)
		return code;
	if (count != 2)
		return cli_usage_error("undrop", "needs a TARGET and the number of an EPOCH");
	if (parse_u64(operands[1], &number))
		return cli_usage_error("undrop", "%s: what is dropped is known by its number alone",
				       operands[1]);
	undrop_tag(number, own_tag);
	if (!tag)
		tag = own_tag;
	code = target_open(operands[0], &target);
	if (code != EXIT_DONE)
		return code;
	code = target.catalog ? of_remote(&target, number, tag, &was_there)
			      : of_mount(&target, number, tag, &was_there);
	target_close(&target);
	if (code == EXIT_DONE)
		print_back(number, tag, was_there, json);
	return code;
}
