/* SPDX-License-Identifier: Apache-2.0 */
/* The progress bar. */
#include "tools/progress.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/util/buf.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"

#define QUIET_NS	 NS_PER_S
#define BAR_INTERVAL_NS	 (100 * NS_PER_MS)
#define LINE_INTERVAL_NS (10 * NS_PER_S)
#define BAR_WIDTH	 28

static void show_bar(const struct progress *p, uint64_t done, uint64_t total, const char *detail)
{
	char bar[BAR_WIDTH + 1], have[FORMAT_MAX], all[FORMAT_MAX], rate[FORMAT_MAX];
	int64_t ns = clock_mono_ns() - p->started_ns;
	size_t full = total ? (size_t)((double)BAR_WIDTH * ((double)done / (double)total)) : 0;

	if (full > BAR_WIDTH)
		full = BAR_WIDTH;
	memset(bar, '#', full);
	memset(bar + full, '.', BAR_WIDTH - full);
	bar[BAR_WIDTH] = '\0';
	if (p->counts) {
		fprintf(stderr, "\r%s [%s] %s\033[K", p->label, bar, detail ? detail : "");
		return;
	}
	format_size(done, have);
	format_size(total, all);
	format_size((uint64_t)((double)done * 1e9 / (double)(ns ? ns : 1)), rate);
	fprintf(stderr, "\r%s [%s] %s of %s, %s/s%s%s\033[K", p->label, bar, have, all, rate,
		detail ? ", " : "", detail ? detail : "");
}

static void show_line(const struct progress *p, uint64_t done, uint64_t total, const char *detail)
{
	char have[FORMAT_MAX], all[FORMAT_MAX];

	if (p->counts) {
		fprintf(stderr, "%s: %s\n", p->label, detail ? detail : "");
		return;
	}
	format_size(done, have);
	format_size(total, all);
	fprintf(stderr, "%s: %s of %s%s%s\n", p->label, have, all, detail ? ", " : "",
		detail ? detail : "");
}

void progress_update(struct progress *p, uint64_t done, uint64_t total, const char *detail)
{
	bool terminal = isatty(STDERR_FILENO);
	cleanup_buf struct buf shown = {
		0}; /* it may be the reason of a failure, in a server's words */
	int64_t now = clock_mono_ns();

	if (!p->started_ns)
		p->started_ns = now;
	if (now - p->started_ns < QUIET_NS)
		return;
	if (p->visible && now - p->shown_ns < (terminal ? BAR_INTERVAL_NS : LINE_INTERVAL_NS))
		return;
	p->visible = true;
	p->shown_ns = now;
	if (detail)
		printable_put(&shown, detail);
	if (terminal)
		show_bar(p, done, total, detail ? buf_str(&shown) : NULL);
	else
		show_line(p, done, total, detail ? buf_str(&shown) : NULL);
}

void progress_end(struct progress *p)
{
	if (p->visible && isatty(STDERR_FILENO))
		fputc('\n', stderr);
	p->visible = false;
}

/* ---- Waiting for durability. ---- */

#define POLL_US 50000
/* Of what is not the data itself. */
#define CHANGES_LIMIT_NS (10 * NS_PER_S)

/* What `status` says of the upload. */
struct upload_view {
	uint64_t epochs, oldest, changes, bytes_done, bytes_total;
	bool local_only, conflict, retaining;
	char error[256];
};

static uint64_t number(const json_t *object, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(object, key));

	return v > 0 ? (uint64_t)v : 0;
}

static int look(const char *mount, struct upload_view *ret_view)
{
	json_t *status = NULL;
	const json_t *upload;
	const char *error;
	int code = client_call(mount, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	upload = json_object_get(status, "upload");
	*ret_view = (struct upload_view){
		.epochs = number(upload, "pending_epochs"),
		.oldest = number(upload, "oldest_epoch"),
		.changes = number(upload, "pending_changes"),
		.bytes_done = number(upload, "bytes_done"),
		.bytes_total = number(upload, "bytes_total"),
		.conflict = json_is_true(json_object_get(upload, "conflict")),
		.retaining =
			json_is_true(json_object_get(json_object_get(status, "retention"), "busy")),
		.local_only = json_is_true(json_object_get(status, "local_only")),
	};
	error = json_string_value(json_object_get(upload, "error"));
	if (error)
		snprintf(ret_view->error, sizeof(ret_view->error), "%s", error);
	json_decref(status);
	return EXIT_DONE;
}

static int not_in_time(const char *mount, const struct upload_view *v)
{
	return cli_error(
		EXIT_NOT_DURABLE,
		"%s: %" PRIu64 " epoch%s %s not durable in time%s%s; %s kept here, and the upload "
		"goes on",
		mount, v->epochs, plural(v->epochs), plural_of(v->epochs, "is", "are"),
		*v->error ? ": " : "", v->error, plural_of(v->epochs, "it is", "they are"));
}

/* Another writer is there: no waiting helps. */
static int in_conflict(const char *mount, const struct upload_view *v)
{
	return cli_error(EXIT_CONFLICT, "%s: %" PRIu64 " epoch%s cannot be uploaded: %s", mount,
			 v->epochs, plural(v->epochs), v->error);
}

static int drain(const char *mount, uint64_t number_wanted, int64_t (*left_ns)(void *arg),
		 void *arg)
{
	struct progress progress = {.label = "uploading"};
	struct upload_view view;
	int code;

	for (;;) {
		char detail[320];

		code = look(mount, &view);
		if (code != EXIT_DONE || view.local_only || !view.epochs ||
		    view.oldest > number_wanted)
			break;
		if (view.conflict) {
			progress_end(&progress);
			return in_conflict(mount, &view);
		}
		if (left_ns(arg) == 0) {
			progress_end(&progress);
			return not_in_time(mount, &view);
		}
		snprintf(detail, sizeof(detail), "%" PRIu64 " epoch%s left%s%s", view.epochs,
			 plural(view.epochs), *view.error ? "; " : "", view.error);
		progress_update(&progress, view.bytes_done, view.bytes_total, detail);
		usleep(POLL_US);
	}
	progress_end(&progress);
	return code;
}

static int64_t left_until(void *arg)
{
	const int64_t *deadline = arg;
	int64_t left = *deadline - clock_mono_ns();

	return left > 0 ? left : 0;
}

int drain_epoch_with_progress(const char *mount, uint64_t number_wanted, int64_t timeout_ns)
{
	int64_t deadline = timeout_ns < 0 ? INT64_MAX : clock_mono_ns() + timeout_ns;

	return drain(mount, number_wanted, left_until, &deadline);
}

int drain_with_progress(const char *mount, int64_t timeout_ns)
{
	return drain_epoch_with_progress(mount, UINT64_MAX, timeout_ns);
}

int drain_within(const char *mount, int64_t (*left_ns)(void *arg), void *arg)
{
	return drain(mount, UINT64_MAX, left_ns, arg);
}

void drain_changes(const char *mount)
{
	int64_t deadline = clock_mono_ns() + CHANGES_LIMIT_NS;
	struct upload_view view;

	for (;;) {
		if (look(mount, &view) != EXIT_DONE || (!view.changes && !view.retaining))
			return;
		if (view.conflict || *view.error || clock_mono_ns() >= deadline)
			break;
		usleep(POLL_US);
	}
	fprintf(stderr,
		"%s: the remote has not been told of %" PRIu64
		" change%s (drops, tags) yet%s%s; that goes on by itself\n",
		mount, view.changes, plural(view.changes), *view.error ? ": " : "", view.error);
}
