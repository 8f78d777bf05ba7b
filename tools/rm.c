/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs rm: drops epochs, here and in the remote; on a mount or on a remote. */
#include "tools/rm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/cleanup.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/progress.h"

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
