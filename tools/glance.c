/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/glance.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/util/buf.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/doctor.h"

static uint64_t number(const json_t *o, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(o, key));

	return value > 0 ? (uint64_t)value : 0;
}

static void put_line(const char *indent, struct buf *line)
{
	fputs(indent, stdout);
	cli_put(buf_str(line));
	putchar('\n');
}

/* ---- what latest is ---- */

static void add_where(const json_t *status, const json_t *latest, struct buf *line)
{
	const char *durable = json_string_value(json_object_get(latest, "durable"));
	char age[FORMAT_MAX];
	int64_t ns;

	if (json_is_true(json_object_get(status, "local_only")))
		buf_printf(line, "on this machine alone");
	else if (!durable || parse_time(durable, &ns))
		buf_printf(line, "not in the remote yet");
	else {
		format_age(clock_wall_ns() - ns, age);
		buf_printf(line, "in the remote since %s", age);
	}
}

static void print_latest(const json_t *status, const char *indent)
{
	const json_t *latest = json_object_get(status, "latest");
	const json_t *epochs = json_object_get(status, "epochs");
	uint64_t current = number(epochs, "current");
	cleanup_buf struct buf line = {0};

	if (!number(latest, "epoch")) {
		buf_printf(&line, "there is no latest: %s",
			   number(epochs, "count") ? "no epoch is whole"
						   : "no epoch was sealed yet");
		put_line(indent, &line);
		return;
	}
	buf_printf(&line, "latest is epoch %" PRIu64, number(latest, "epoch"));
	if (json_object_get(latest, "step"))
		buf_printf(&line, " (step %" PRIu64 ")", number(latest, "step"));
	buf_printf(&line, ", whole, ");
	add_where(status, latest, &line);
	if (current > number(latest, "epoch"))
		buf_printf(&line, "; the live tree stands on epoch %" PRIu64 ", which is %s",
			   current,
			   number(json_object_get(json_object_get(status, "pending"), "epoch"),
				  "number") == current
				   ? "pending"
				   : "not whole");
	put_line(indent, &line);
}

/* ---- what is wrong ---- */

static void print_wrong(const json_t *status, const char *indent)
{
	struct doctor d = {.findings = json_array()};
	const json_t *finding;
	bool any = false;
	size_t i;

	doctor_status(&d, status);
	json_array_foreach(d.findings, i, finding)
	{
		cleanup_buf struct buf line = {0};

		if (json_is_true(json_object_get(finding, "ok")))
			continue;
		any = true;
		buf_printf(&line, "wrong: %s; %s",
			   json_string_value(json_object_get(finding, "what")),
			   json_string_value(json_object_get(finding, "do")));
		put_line(indent, &line);
	}
	if (!any)
		printf("%snothing is wrong\n", indent);
	json_decref(d.findings);
}

/* ---- what is pending ---- */

static void add_changes(const json_t *status, struct buf *line)
{
	const json_t *pending = json_object_get(status, "pending");
	const json_t *epoch = json_object_get(pending, "epoch");
	const char *changes = json_string_value(json_object_get(pending, "changes"));
	const char *held_up =
		json_string_value(json_object_get(json_object_get(pending, "held_up"), "by"));
	char age[FORMAT_MAX];

	if (number(epoch, "number"))
		buf_printf(line, "epoch %" PRIu64 " (%s)", number(epoch, "number"),
			   json_string_value(json_object_get(epoch, "why")));
	if (!changes || !strcmp(changes, "none"))
		return;
	if (line->len)
		buf_printf(line, "; ");
	if (!number(pending, "since_ns")) {
		buf_printf(line, "changes that go into the next epoch");
		return;
	}
	format_age(clock_wall_ns() - (int64_t)number(pending, "since_ns"), age);
	buf_printf(line, "changes since %s, in no epoch yet", age);
	if (held_up)
		buf_printf(line, " (%s)", held_up);
}

static void add_uploads(const json_t *status, struct buf *line)
{
	const json_t *upload = json_object_get(status, "upload");
	uint64_t epochs = number(upload, "pending_epochs");
	char done[FORMAT_MAX], total[FORMAT_MAX];

	if (!epochs || json_is_true(json_object_get(status, "local_only")))
		return;
	buf_printf(line, "%s%" PRIu64 " epoch%s to upload", line->len ? "; " : "", epochs,
		   plural(epochs));
	if (!number(upload, "bytes_total"))
		return;
	format_size(number(upload, "bytes_done"), done);
	format_size(number(upload, "bytes_total"), total);
	buf_printf(line, ", %s of %s", done, total);
}

static void print_pending(const json_t *status, const char *indent)
{
	cleanup_buf struct buf what = {0}, line = {0};

	add_changes(status, &what);
	add_uploads(status, &what);
	if (what.len)
		buf_printf(&line, "pending: %s", buf_str(&what));
	else
		buf_printf(&line, "nothing is pending");
	put_line(indent, &line);
}

void glance_mount(const json_t *status, const char *indent)
{
	print_latest(status, indent);
	print_wrong(status, indent);
	print_pending(status, indent);
}

void glance_remote(const json_t *status)
{
	const json_t *lease = json_object_get(status, "lease");
	const char *state = json_string_value(json_object_get(lease, "state"));
	const char *host = json_string_value(json_object_get(lease, "host"));
	const char *place = json_string_value(json_object_get(lease, "mountpoint"));
	cleanup_buf struct buf line = {0};

	print_latest(status, "");
	if (!state || strcmp(state, "held") != 0)
		buf_printf(&line, "nobody writes to it");
	else
		buf_printf(&line, "%s writes to it%s%s", host ? host : "a mount",
			   place && *place ? ", mounted at " : "", place ? place : "");
	put_line("", &line);
	puts("`epochfs doctor` and `epochfs fsck` say whether something is wrong");
}
