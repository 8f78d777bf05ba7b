/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs status: what an operator wants to see of a mount or a remote. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/meta/listing.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/doctor.h"
#include "tools/glance.h"
#include "tools/mounts.h"
#include "tools/table.h"
#include "tools/target.h"

/* Of a remote: what its epochs say. */
static int remote_status(const struct target *t, json_t **ret_status)
{
	json_t *epochs, *tags, *lease, *waiting, *epoch, *newest = NULL;
	json_int_t bytes_stored = 0;
	size_t i, complete = 0;
	int code = target_epochs(t, &epochs);

	if (code != EXIT_DONE)
		return code;
	code = target_tags(t, &tags);
	if (code != EXIT_DONE) {
		json_decref(epochs);
		return code;
	}
	code = target_lease(t, &lease);
	if (code != EXIT_DONE) {
		json_decref(epochs);
		json_decref(tags);
		return code;
	}
	code = target_waiting(t, &waiting);
	if (code != EXIT_DONE) {
		json_decref(epochs);
		json_decref(tags);
		json_decref(lease);
		return code;
	}
	json_array_foreach(epochs, i, epoch)
	{
		if (__builtin_add_overflow(
			    bytes_stored,
			    json_integer_value(json_object_get(epoch, "bytes_stored")),
			    &bytes_stored))
			bytes_stored = INT64_MAX; /* records may say anything */
		if (json_is_true(json_object_get(epoch, "complete"))) {
			complete++;
			newest = epoch;
		}
	}
	*ret_status =
		json_pack("{s:s, s:s, s:{s:I, s:I, s:I}, s:I, s:o, s:o}", "remote", t->name, "uuid",
			  catalog_uuid(t->catalog), "epochs", "count",
			  (json_int_t)json_array_size(epochs), "complete", (json_int_t)complete,
			  "latest", json_integer_value(json_object_get(newest, "epoch")),
			  "bytes_stored", bytes_stored, "tags", tags, "lease", lease);
	if (newest)
		json_object_set_new(*ret_status, "latest", listing_brief(newest));
	if (json_array_size(waiting))
		json_object_set(*ret_status, "waiting_for", waiting);
	json_decref(waiting);
	json_decref(epochs);
	return EXIT_DONE;
}

/* The URL as it was typed may hold a password: what is printed shows it only where it is as public as
 * the remote's name. */
static void hide_url(json_t *status)
{
	const json_t *url = json_object_get(status, "remote_url");

	if (!json_equal(url, json_object_get(status, "remote")))
		json_object_del(status, "remote_url");
}

static int get_status(const char *name, bool count, json_t **ret_status)
{
	json_t *usage;
	struct target target;
	int code = target_open(name, &target);

	if (code != EXIT_DONE)
		return code;
	if (target.catalog)
		code = remote_status(&target, ret_status);
	else
		code = client_call(target.name, json_pack("{s:s}", "op", "status"), ret_status);
	if (code == EXIT_DONE) {
		hide_url(*ret_status);
		/* Where it fails, its line is said, and the rest shown. */
		if (target_usage(&target, count, &usage) == EXIT_DONE) {
			json_object_update(*ret_status, usage);
			json_decref(usage);
		}
	}
	target_close(&target);
	return code;
}

/* "bytes" keys readable, times as ages, nested objects indented: any key that the mount tells is shown. */
static void print_value(const char *key, json_t *value, int depth);

static void print_scalar(const char *key, const json_t *value)
{
	char text[FORMAT_MAX];
	size_t len = strlen(key);

	if (json_is_integer(value) && strstr(key, "bytes")) {
		json_int_t v = json_integer_value(value);

		format_size(v > 0 ? (uint64_t)v : 0, text);
		puts(text);
	} else if (json_is_integer(value) && len > 3 && !strcmp(key + len - 3, "_ns")) {
		json_int_t v = json_integer_value(value);

		format_age(v > INT64_C(1000000000000000) ? clock_wall_ns() - v : v, text);
		printf("%s%s\n", text, v > INT64_C(1000000000000000) ? " ago" : "");
	} else if (json_is_integer(value)) {
		printf("%" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
	} else if (json_is_string(value)) {
		cli_put(json_string_value(value));
		putchar('\n');
	} else {
		puts(json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "-");
	}
}

static void print_object(json_t *object, int depth)
{
	const char *key;
	json_t *value;

	json_object_foreach(object, key, value) print_value(key, value, depth);
}

/* A key as people read it: words, without the unit that the value shows. */
static void print_label(const char *key, int depth, bool alone)
{
	size_t len = strlen(key);
	char text[64];

	if (len > 3 && !strcmp(key + len - 3, "_ns"))
		len -= 3;
	snprintf(text, sizeof(text), "%.*s", (int)len, key);
	for (char *p = text; *p; p++)
		if (*p == '_')
			*p = ' ';
	if (alone)
		printf("%*s%s\n", 2 * depth, "", text);
	else
		printf("%*s%-*s ", 2 * depth, "", 18 - 2 * depth, text);
}

static void print_value(const char *key, json_t *value, int depth)
{
	json_t *item;
	size_t i;

	if (json_is_string(value) && !*json_string_value(value))
		return;
	if (json_is_object(value) && json_object_size(value)) {
		print_label(key, depth, true);
		print_object(value, depth + 1);
	} else if (json_is_array(value)) {
		json_array_foreach(value, i, item)
		{
			if (json_is_object(item)) {
				print_label(key, depth, true);
				print_object(item, depth + 1);
			} else {
				print_label(key, depth, false);
				print_scalar(key, item);
			}
		}
	} else if (!json_is_object(value)) {
		print_label(key, depth, false);
		print_scalar(key, value);
	}
}

static void print_status(json_t *status, bool json)
{
	if (json) {
		cli_print_json(status, JSON_INDENT(2));
	} else {
		json_t *doubts = doubts_texts(json_object_get(status, "doubts"));
		cleanup_buf struct buf torn = {0};

		if (json_object_get(status, "pid"))
			glance_mount(status, "");
		else
			glance_remote(status);
		putchar('\n');

		if (torn_text(json_object_get(status, "torn"), 1, &torn))
			json_object_set_new(status, "torn", listing_string(buf_str(&torn)));
		else
			json_object_del(status, "torn");
		if (doubts)
			json_object_set_new(status, "doubts", doubts);
		print_object(status, 0);
	}
	fflush(stdout);
}

struct how {
	bool json, watch, usage;
};

static void clear_screen(const struct how *how)
{
	if (how->watch && isatty(STDOUT_FILENO))
		fputs("\033[H\033[J", stdout);
}

/* ---- all mounts ---- */

/* What it says, or why it does not, as "error". */
static json_t *status_of(const char *mount)
{
	enum doctor_answer answer = doctor_ask(mount);
	json_t *status = NULL;
	int error = answer == DOCTOR_ANSWERS
			    ? client_ask(mount, json_pack("{s:s}", "op", "status"), &status)
			    : -ENOTCONN;

	if (!error)
		return status;
	return json_pack("{s:s, s:s}", "mountpoint", mount, "error",
			 answer == DOCTOR_DEAD	  ? "its process is gone: mount it again"
			 : answer == DOCTOR_HANGS ? "it does not answer"
						  : strerror(-error));
}

static void add_status(void *arg, const char *mount)
{
	json_t *status = status_of(mount);

	hide_url(status);
	json_array_append_new(arg, status);
}

static void print_mount(const json_t *status)
{
	const char *error = json_string_value(json_object_get(status, "error"));
	const char *remote = json_string_value(json_object_get(status, "remote"));

	cli_put(json_string_value(json_object_get(status, "mountpoint")));
	if (remote) {
		fputs("  ", stdout);
		cli_put(remote);
	}
	putchar('\n');
	if (error) {
		fputs("  wrong: ", stdout);
		cli_put(error);
		putchar('\n');
	} else {
		glance_mount(status, "  ");
	}
}

static int print_all(const struct how *how)
{
	json_t *all = json_array(), *status;
	size_t i;

	mounts_each(add_status, all);
	clear_screen(how);
	if (how->json)
		cli_print_json(all, JSON_INDENT(2));
	else if (!json_array_size(all))
		puts("nothing is mounted; `epochfs status TARGET` looks at a remote");
	else
		json_array_foreach(all, i, status) print_mount(status);
	json_decref(all);
	fflush(stdout);
	return EXIT_DONE;
}

/* ---- the command ---- */

static int print_one(const char *name, const struct how *how)
{
	json_t *status;
	int code = get_status(name, how->usage, &status);

	if (code != EXIT_DONE)
		return code;
	clear_screen(how);
	print_status(status, how->json);
	json_decref(status);
	return EXIT_DONE;
}

int command_status(int argc, char **argv)
{
	struct how how = {0};
	const struct cli_place places[] = {{"json", &how.json, NULL},
					   {"watch", &how.watch, NULL},
					   {"usage", &how.usage, NULL},
					   {0}};
	bool all;
	cleanup_free char *here = NULL;
	const char *name = NULL;
	int code, count = cli_parse("status", argc, argv, places, &name, 1, &code);

	if (count < 0)
		return code;
	here = count ? NULL : target_mount_of_path(".");
	all = !count && !here;
	for (;;) {
		code = all ? print_all(&how) : print_one(name ? name : here, &how);
		if (!how.watch || code != EXIT_DONE)
			return code;
		sleep(1);
	}
}
