/* SPDX-License-Identifier: Apache-2.0 */
/* Dropping epochs of a mount or a remote. */
#include "tools/drop.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/util/cleanup.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/drain.h"

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
