/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs latest: the newest epoch, for scripts that resume. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/target.h"

struct wanted {
	bool complete;
	bool has_step;
	uint64_t step;
};

static bool fits(const json_t *epoch, const struct wanted *w)
{
	const json_t *step = json_object_get(epoch, "step");

	/* Whether a writer was killed cannot be told everywhere: "unknown" is not complete. */
	if (w->complete && (!json_is_true(json_object_get(epoch, "complete")) ||
			    json_is_true(json_object_get(epoch, "continued"))))
		return false;
	return !w->has_step || (step && (uint64_t)json_integer_value(step) == w->step);
}

static int print_epoch(const struct target *t, const json_t *epoch, bool path, bool json)
{
	uint64_t number = (uint64_t)json_integer_value(json_object_get(epoch, "epoch"));

	if (json)
		cli_print_json(epoch, JSON_INDENT(2));
	else if (path && t->catalog)
		printf("%s@%" PRIu64 "\n", t->name, number);
	else if (path)
		printf("%s/.epochs/%06" PRIu64 "\n", t->name, number);
	else
		printf("%" PRIu64 "\n", number);
	return EXIT_DONE;
}

static int none_found(const struct target *t, const struct wanted *w, bool any)
{
	char step[32] = "";

	if (!any)
		return cli_error(EXIT_NOT_FOUND, "%s: there is no epoch yet", t->name);
	if (w->has_step)
		snprintf(step, sizeof(step), " of step %" PRIu64, w->step);
	return cli_error(EXIT_NOT_FOUND, "%s: no%s epoch%s; `epochfs log %s` says which there are",
			 t->name, w->complete ? " complete" : "", step, t->name);
}

static int find_and_print(const struct target *t, const struct wanted *w, bool path, bool json)
{
	json_t *epochs = NULL, *epoch, *found = NULL;
	size_t i;
	int code = target_epochs(t, &epochs);

	if (code != EXIT_DONE)
		return code;
	json_array_foreach(epochs, i, epoch) if (fits(epoch, w)) found = epoch;
	code = found ? print_epoch(t, found, path, json)
		     : none_found(t, w, json_array_size(epochs) > 0);
	json_decref(epochs);
	return code;
}

int command_latest(int argc, char **argv)
{
	struct wanted wanted = {0};
	bool path = false, json = false;
	const char *step = NULL, *name = NULL;
	const struct cli_place places[] = {{"complete", &wanted.complete, NULL},
					   {"step", NULL, &step},
					   {"path", &path, NULL},
					   {"json", &json, NULL},
					   {0}};
	static const struct target_missing needs = {"a TARGET", 0, 1};
	struct target target;
	int code, count = cli_parse("latest", argc, argv, places, &name, 1, &code);

	if (count < 0)
		return code;
	wanted.has_step = step != NULL;
	if (step && parse_u64(step, &wanted.step))
		return cli_usage_error("latest", "--step %s: expected a number", step);
	code = target_open_operands("latest", &needs, &name, &count, &target);
	if (code != EXIT_DONE)
		return code;
	code = find_and_print(&target, &wanted, path, json);
	target_close(&target);
	return code;
}
