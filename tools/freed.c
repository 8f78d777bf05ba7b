/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/freed.h"

#include <stdio.h>
#include <time.h>

#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"

/* Of a mount; NULL: it does not tell, which is no reason to fail. */
static json_t *ask(const struct target *t, const char *op)
{
	json_t *answer = NULL;

	if (t->catalog || client_ask(t->name, json_pack("{s:s}", "op", op), &answer))
		return NULL;
	return answer;
}

void freed_before(const struct target *t, struct freed *ret_freed)
{
	json_t *usage = ask(t, "usage");
	const json_t *retained = json_object_get(usage, "retained");
	const json_t *stored = json_object_get(retained, "bytes_stored");

	ret_freed->counted = stored != NULL;
	ret_freed->stored = (uint64_t)json_integer_value(stored);
	ret_freed->epochs = (uint64_t)json_integer_value(json_object_get(retained, "epochs"));
	json_decref(usage);
}

/* A mount that needs long to count gives figures of before the drop for a while. */
static bool is_known(const struct freed *before, const struct freed *now)
{
	return before->counted && now->counted && now->epochs < before->epochs &&
	       now->stored <= before->stored;
}

/* When the mount's next collection has condemned it, and its grace is over. */
static void print_collected(const json_t *gc)
{
	int64_t at_ns = clock_wall_ns() + json_integer_value(json_object_get(gc, "next_in_ns")) +
			json_integer_value(json_object_get(gc, "grace_ns"));
	time_t at = (time_t)(at_ns / NS_PER_S);
	char text[32];
	struct tm tm;

	strftime(text, sizeof(text), "%Y-%m-%d %H:%M", localtime_r(&at, &tm));
	printf("by this mount's garbage collection, not before %s", text);
}

static void print_gc(const struct target *t)
{
	printf("24 h after the first `epochfs gc ");
	cli_put(t->name);
	putchar('`');
}

/* How much; false: none. */
static bool print_amount(const struct freed *before, const struct freed *now)
{
	char size[FORMAT_MAX];

	if (!is_known(before, now)) {
		printf("nothing is freed yet: what only they held goes ");
		return true;
	}
	if (now->stored == before->stored) {
		puts("nothing is freed: other epochs need all that they held");
		return false;
	}
	format_size(before->stored - now->stored, size);
	printf("nothing is freed yet: %s in the remote go ", size);
	return true;
}

void freed_print(const struct target *t, const struct freed *before)
{
	json_t *status = ask(t, "status");
	const json_t *gc = json_object_get(status, "gc");
	struct freed now;

	freed_before(t, &now);
	if (!json_is_true(json_object_get(status, "local_only")) && print_amount(before, &now)) {
		if (gc)
			print_collected(gc);
		else
			print_gc(t);
		puts("; until then `epochfs undrop` brings epochs back");
	}
	json_decref(status);
}
