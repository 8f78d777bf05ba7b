/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the command, from JSON to the volume and back. */
#include "lib/admin/control.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/admin/catalog.h"
#include "lib/admin/repair.h"
#include "lib/epochs/retention.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/fact_log.h"
#include "lib/epochs/driver.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/usage.h"
#include "lib/meta/listing.h"
#include "lib/meta/record_metadata.h"
#include "lib/metrics/metrics.h"
#include "lib/upload/nodes.h"
#include "lib/upload/upload.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/volume/volume.h"

/* ---- the fields of a request ---- */

/* Notes why it failed, and gives `error`. */
__attribute__((format(printf, 3, 4))) static int request_fail(struct request *r, int error,
							      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->message, sizeof(r->message), fmt, ap);
	va_end(ap);
	return error;
}

/* The text of a key (the request's), or NULL. */
static const char *request_text(const struct request *r, const char *key)
{
	return json_string_value(json_object_get(r->json, key));
}

/* 0; -ENOENT where the key is missing; or what is wrong with it. */
static int request_number(struct request *r, const char *key, uint64_t *ret_number)
{
	const json_t *value = json_object_get(r->json, key);
	json_int_t number = json_integer_value(value);

	if (!value || json_is_null(value))
		return -ENOENT;
	if (!json_is_integer(value) || number < 0)
		return request_fail(r, -EINVAL, "\"%s\" is not a number from 0", key);
	*ret_number = (uint64_t)number;
	return 0;
}

/* An each_fn that stops at the first. */
static int there_is_one(void *arg, uint64_t number, int64_t sealed_ns)
{
	(void)arg;
	(void)number;
	(void)sealed_ns;
	return 1;
}

static int no_such_epoch(struct request *r, const char *text)
{
	int some = strcmp(text, "latest") ? 0 : epochs_numbers(r->vol, 0, there_is_one, NULL);

	if (some > 0)
		return request_fail(
			r, -ENOENT,
			"no epoch is complete: name one by its number (`epochfs log` says which there are, and why)");
	if (!strcmp(text, "latest"))
		return request_fail(r, -ENOENT, "there is no epoch yet");
	return request_fail(r, -ENOENT, "there is no epoch %s: `epochfs log` lists those there are",
			    text);
}

int request_epoch(struct request *r, const char *key, uint64_t *ret_number)
{
	const char *text = request_text(r, key);
	char digits[24];
	uint64_t number;
	int error;

	if (!text) {
		error = request_number(r, key, &number);
		if (error == -ENOENT)
			return request_fail(r, -EINVAL, "no epoch is given");
		if (error)
			return error;
		snprintf(digits, sizeof(digits), "%" PRIu64, number);
		text = digits;
	}
	error = epochs_resolve(r->vol, text, ret_number);
	if (error == -ENOENT)
		return no_such_epoch(r, text);
	if (error == -EINVAL)
		return request_fail(
			r, error,
			"%s names no epoch: give a number, step=N, latest, current, a tag, or "
			"@AGE such as @2h",
			text);
	return error;
}

static int answer_epoch(struct request *r, uint64_t number)
{
	r->answer = nodes_is_part(number) ? nodes_part_json(r->vol, number)
					  : json_pack("{s:I}", "epoch", (json_int_t)number);
	return r->answer ? 0 : -ENOMEM;
}

/* ---- operations ---- */

static int op_status(struct request *r)
{
	r->answer = control_status(r->vol);
	return r->answer ? 0 : -ENOMEM;
}

static int tag_failure(struct request *r, int error, const char *tag)
{
	if (error == -EOPNOTSUPP)
		return request_fail(
			r, error,
			"the epoch of several nodes is there once all have sealed: tag it then, "
			"with epochfs tag and step=N");
	if (error == -EEXIST)
		return request_fail(r, error,
				    "the tag %s is taken: untag it first, or choose another name",
				    tag);
	if (error == -EINVAL)
		return request_fail(
			r, error,
			"%s cannot be a tag: not only digits, no '/', no '.' in front, no step= in "
			"front, none of latest, current, torn",
			tag);
	return error;
}

/* What a metadata writer says, as text, or NULL; the caller's to free. */
static int commit_metadata(struct request *r, char **ret_text)
{
	json_t *object = json_object_get(r->json, "metadata");

	*ret_text = NULL;
	if (!object)
		return 0;
	if (!metadata_valid(object))
		return request_fail(
			r, -EINVAL,
			"the metadata has an empty or too long text, or a key that is unknown");
	*ret_text = json_dumps(object, JSON_COMPACT);
	return *ret_text ? 0 : -ENOMEM;
}

static int op_commit(struct request *r)
{
	cleanup_free char *metadata = NULL;
	struct epochs_seal how = {
		.trigger = "commit",
		.tag = request_text(r, "tag"),
		.message = request_text(r, "message"),
		.whole = json_is_true(json_object_get(r->json, "whole")),
	};
	uint64_t number;
	int error = request_number(r, "step", &how.step);

	if (error && error != -ENOENT)
		return error;
	how.has_step = !error;
	if (how.message && strlen(how.message) > RECORD_TEXT_MAX)
		return request_fail(r, -EINVAL, "the message is longer than %u bytes",
				    RECORD_TEXT_MAX);
	error = commit_metadata(r, &metadata);
	if (error)
		return error;
	how.metadata = metadata;
	error = epochs_seal(r->vol, &how, &number);
	if (error)
		return how.tag ? tag_failure(r, error, how.tag) : error;
	return answer_epoch(r, number);
}

static int op_seal(struct request *r)
{
	struct epochs_seal how = {.trigger = "wait"};
	uint64_t number = epochs_current(r->vol);
	int error = volume_read_only(r->vol) ? 0 : epochs_seal(r->vol, &how, &number);

	return error ? error : answer_epoch(r, number);
}

static int op_wait(struct request *r)
{
	uint64_t number = 0, ms;
	int64_t timeout_ns = -1;
	int error = json_object_get(r->json, "epoch") ? request_epoch(r, "epoch", &number) : 0;

	if (error)
		return error;
	error = request_number(r, "timeout_ms", &ms);
	if (!error)
		timeout_ns = ms < INT64_MAX / NS_PER_MS ? (int64_t)ms * NS_PER_MS : -1;
	else if (error != -ENOENT)
		return error;
	error = epochs_wait(r->vol, number, timeout_ns, r->interrupted, r->arg);
	if (error == -ETIMEDOUT)
		return request_fail(r, error,
				    "not durable in time; it is kept here and goes on uploading: "
				    "`epochfs status` says what is pending");
	if (error == -EBUSY)
		return request_fail(
			r, error,
			"another writer has taken the volume over: nothing is uploaded from here any "
			"more; `epochfs status` says who");
	if (error)
		return error;
	return answer_epoch(r, number ? number : epochs_current(r->vol));
}

/* What the live tree is now, and what it was. */
static int answer_rollback(struct request *r, uint64_t made)
{
	struct epoch_info info;
	int error = epochs_get(r->vol, made, &info);

	if (error)
		return error;
	r->answer = json_pack("{s:I, s:I, s:I}", "epoch", (json_int_t)made, "restores",
			      (json_int_t)info.record.restores, "before",
			      (json_int_t)info.record.parent);
	epoch_info_free(&info);
	return r->answer ? 0 : -ENOMEM;
}

static int op_rollback(struct request *r)
{
	uint64_t number, made;
	int error = request_epoch(r, "epoch", &number);

	if (!error)
		error = epochs_rollback(r->vol, number, &made);
	if (error == -EOPNOTSUPP)
		return request_fail(
			r, error,
			"several nodes write to this volume and go back together: unmount it on "
			"all of them, and mount it again: each begins from the newest complete "
			"epoch");
	return error ? error : answer_rollback(r, made);
}

static int op_resume(struct request *r)
{
	struct resumed done;
	int error = r->vol->driver ? driver_go_back_now(r->vol, &done) : resume_now(r->vol, &done);

	if (error)
		return error;
	r->answer = json_pack("{s:I, s:I, s:I}", "left", (json_int_t)done.left, "to",
			      (json_int_t)done.to, "epoch", (json_int_t)done.as);
	return r->answer ? 0 : -ENOMEM;
}

static int op_rm(struct request *r)
{
	uint64_t number;
	int error = request_epoch(r, "epoch", &number);

	if (error)
		return error;
	error = epochs_drop(r->vol, number);
	if (error == -EBUSY) {
		cleanup_buf struct buf why = {0};

		drop_refusal(r->vol, number, &why);
		return request_fail(r, error, "%s", buf_str(&why));
	}
	return error ? error : answer_epoch(r, number);
}

static int undrop_failure(struct request *r, int error, uint64_t number, const char *tag)
{
	cleanup_buf struct buf why = {0};

	switch (error) {
	case -ENOENT:
		return request_fail(r, error, "there never was an epoch %" PRIu64, number);
	case -ENODATA:
		undrop_refusal(number, &why);
		return request_fail(r, -ENOENT, "%s", buf_str(&why));
	case -EOPNOTSUPP:
		return request_fail(r, error,
				    "without a remote nothing of a dropped epoch is kept");
	case -ESTALE:
		return request_fail(
			r, -EBUSY,
			"another writer has taken the volume over: bring the epoch back "
			"there");
	default:
		return tag_failure(r, error, tag);
	}
}

static int op_undrop(struct request *r)
{
	const char *tag = request_text(r, "tag");
	char own_tag[UNDROP_TAG_MAX];
	uint64_t number;
	int error = request_number(r, "epoch", &number);

	if (error)
		return request_fail(r, -EINVAL,
				    "the number of an epoch is asked for: what is dropped has no "
				    "other name");
	undrop_tag(number, own_tag);
	if (!tag)
		tag = own_tag;
	error = epochs_undrop(r->vol, number, tag, r->interrupted, r->arg);
	if (error)
		return undrop_failure(r, error, number, tag);
	r->answer = json_pack("{s:I, s:s}", "epoch", (json_int_t)number, "tag", tag);
	return r->answer ? 0 : -ENOMEM;
}

static int op_tag(struct request *r)
{
	const char *name = request_text(r, "name");
	uint64_t number;
	int error;

	if (!name)
		return request_fail(r, -EINVAL, "no name is given for the tag");
	error = request_epoch(r, "epoch", &number);
	if (error)
		return error;
	error = epochs_tag(r->vol, name, number, json_is_true(json_object_get(r->json, "replace")));
	return error ? tag_failure(r, error, name) : answer_epoch(r, number);
}

static int op_untag(struct request *r)
{
	const char *name = request_text(r, "name");
	int error = name ? epochs_untag(r->vol, name) : -EINVAL;

	if (!name)
		return request_fail(r, error, "no name is given for the tag");
	if (error == -ENOENT)
		return request_fail(r, error, "there is no tag %s", name);
	r->answer = error ? NULL : json_object();
	return error;
}

static int op_resolve(struct request *r)
{
	uint64_t number;
	int error = request_epoch(r, "epoch", &number);

	return error ? error : answer_epoch(r, number);
}

static int op_tags(struct request *r)
{
	json_t *tags;
	int error = request_tags(r->vol, &tags);

	if (error)
		return error;
	r->answer = json_pack("{s:o}", "tags", tags);
	return r->answer ? 0 : -ENOMEM;
}

static int op_usage(struct request *r)
{
	struct usage usage;
	int error = volume_usage(r->vol, json_is_true(json_object_get(r->json, "read")),
				 r->interrupted, r->arg, &usage);

	r->answer = error ? NULL : usage_json(&usage);
	return error || r->answer ? error : -ENOMEM;
}

static int op_explain(struct request *r)
{
	json_t *facts = fact_log_json(r->vol);

	r->answer = facts ? json_pack("{s:o}", "facts", facts) : NULL;
	return r->answer ? 0 : -ENOMEM;
}

static int op_options(struct request *r)
{
	const char *told = r->vol->options.told;
	json_t *options = told ? json_loads(told, 0, NULL) : json_object();

	r->answer = options ? json_pack("{s:o}", "options", options) : NULL;
	return r->answer ? 0 : -ENOMEM;
}

static int op_metrics(struct request *r)
{
	cleanup_buf struct buf text = {0};
	int error = metrics_put(r->vol, METRICS_OPENMETRICS, &text);

	r->answer = error ? NULL : json_pack("{s:s}", "metrics", buf_str(&text));
	return r->answer ? 0 : -ENOMEM;
}

static int op_fetch(struct request *r)
{
	struct control_range range = {0};
	int error = request_epoch(r, "epoch", &range.epoch);

	if (!error)
		error = request_number(r, "entry", &range.entry);
	if (!error)
		error = request_number(r, "offset", &range.offset);
	if (!error)
		error = request_number(r, "length", &range.length);
	if (error == -ENOENT && range.epoch)
		return request_fail(r, -EINVAL,
				    "\"entry\", \"offset\" and \"length\" are asked for");
	if (error)
		return error;
	error = control_fetch(r->vol, &range, r->interrupted, r->arg);
	r->answer = error ? NULL : json_object();
	return error;
}

static int op_durability(struct request *r)
{
	const char *value = request_text(r, "value");
	int64_t until = INT64_MAX;
	uint64_t ms;
	int error;

	if (!value || (strcmp(value, "remote") != 0 && strcmp(value, "local") != 0))
		return request_fail(r, -EINVAL, "\"value\" is local or remote");
	error = request_number(r, "for_ms", &ms);
	if (error && error != -ENOENT)
		return error;
	if (!error && ms < INT64_MAX / 2 / NS_PER_MS)
		until = clock_mono_ns() + (int64_t)ms * NS_PER_MS;
	atomic_store(&r->vol->durable_until_ns, strcmp(value, "remote") == 0 ? until : 0);
	r->answer = json_object();
	return r->answer ? 0 : -ENOMEM;
}

static int op_finish(struct request *r)
{
	int error = volume_finish(r->vol, json_is_true(json_object_get(r->json, "drain")),
				  r->interrupted, r->arg);

	r->answer = error ? NULL : json_object();
	return error;
}

/* ---- dispatch ---- */

static const struct {
	const char *name;
	int (*run)(struct request *r);
} operations[] = {
	{"status", op_status},
	{"log", request_log},
	{"commit", op_commit},
	{"seal", op_seal},
	{"wait", op_wait},
	{"rollback", op_rollback},
	{"rm", op_rm},
	{"tag", op_tag},
	{"untag", op_untag},
	{"tags", op_tags},
	{"resolve", op_resolve},
	{"show", request_show},
	{"diff", request_diff},
	{"finish", op_finish},
	{"durability", op_durability},
	{"undrop", op_undrop},
	{"fetch", op_fetch},
	{"usage", op_usage},
	{"explain", op_explain},
	{"options", op_options},
	{"metrics", op_metrics},
	{"repair", request_repair},
	{"resume", op_resume},
};

static int run(struct request *r)
{
	const char *op = request_text(r, "op");

	for (size_t i = 0; op && i < sizeof(operations) / sizeof(*operations); i++)
		if (strcmp(operations[i].name, op) == 0)
			return operations[i].run(r);
	return request_fail(r, -EOPNOTSUPP,
			    "unknown request: is the command newer than the mount?");
}

static const char *errno_text(int error)
{
	switch (error) {
	case -EROFS:
		return "this mount is read-only";
	case -EINTR:
		return "interrupted";
	case -EIO:
		return "an input/output error: the log of the mount says where";
	case -ENOSPC:
		return "no space is left in the cache directory";
	}
	return strerror(-error);
}

static json_t *error_json(const struct request *r, int error)
{
	json_t *message = listing_string(*r->message ? r->message : errno_text(error));

	return json_pack("{s:o, s:i}", "error", message, "errno", -error);
}

int volume_control(struct volume *vol, const char *request, size_t len, interrupted_fn interrupted,
		   void *arg, struct buf *response)
{
	json_t *json = json_loadb(request, len, JSON_REJECT_DUPLICATES, NULL);
	struct request r = {.vol = vol, .json = json, .interrupted = interrupted, .arg = arg};
	int error = json_is_object(json)
			    ? run(&r)
			    : request_fail(&r, -EINVAL, "the request is not a JSON object");
	char *text = NULL;

	if (error)
		r.answer = error_json(&r, error);
	if (r.answer)
		text = json_dumps(r.answer, JSON_COMPACT);
	if (text)
		buf_put(response, text, strlen(text));
	json_decref(r.answer);
	json_decref(json);
	free(text);
	return text ? buf_error(response) : -ENOMEM;
}

/* ---- Making a part of an epoch's file local, for `epochfs cache warm`. ---- */

/* An epoch's tree of local versions gives way to the final one once the epoch is durable, and the versions
 * that it named may be gone by then. */
#define TREE_TRIES 4

/* Its content; NULL where it is no regular file, or an empty one. */
static int open_entry(struct volume *vol, uint64_t epoch, uint64_t entry,
		      struct content **ret_content)
{
	cleanup_tree struct tree *tree = NULL;
	cleanup_buf struct buf what = {0};
	struct tree_entry e;
	int error = epochs_tree(vol, epoch, &tree);

	if (error)
		return error;
	if (entry >= tree_count(tree))
		return -EINVAL;
	tree_get(tree, (uint32_t)entry, &e);
	*ret_content = NULL;
	if (e.type != TREE_REGULAR || e.content == TREE_EMPTY)
		return 0;
	buf_printf(&what, "epoch %" PRIu64 ": ", epoch);
	error = tree_path(tree, (uint32_t)entry, &what);
	return error ? error : content_get_entry(vol, &e, buf_str(&what), ret_content);
}

int control_fetch(struct volume *vol, const struct control_range *range, interrupted_fn interrupted,
		  void *arg)
{
	struct content *c = NULL;
	int error = -ENOENT;

	for (int i = 0; error == -ENOENT && i < TREE_TRIES; i++)
		error = open_entry(vol, range->epoch, range->entry, &c);
	if (!error && c)
		error = content_fetch(c, range->offset, range->length, interrupted, arg);
	content_put(c);
	return error;
}

/* ---- Repairing the remote of a mount, for `epochfs fsck --repair`. ---- */

int request_repair(struct request *r)
{
	bool dry_run = json_is_true(json_object_get(r->json, "dry_run"));
	cleanup_free char *message = NULL;
	int error = repair_mount_json(r->vol, dry_run, &r->answer, &message);

	return error && message ? request_fail(r, error, "%s", message) : error;
}
