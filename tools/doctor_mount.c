/* SPDX-License-Identifier: Apache-2.0 */
/* What epochfs doctor looks at in a mount: what its status says, and the disk of its cache. */
#include "tools/doctor.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>

#include "lib/util/buf.h"
#include "lib/format/wire.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/network_fs.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/table.h"
#include "tools/target.h"

static uint64_t number(const json_t *o, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(o, key));

	return value > 0 ? (uint64_t)value : 0;
}

static const char *text(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static const char *age(const json_t *o, const char *key, char ret_text[FORMAT_MAX])
{
	format_age(clock_wall_ns() - (int64_t)number(o, key), ret_text);
	return ret_text;
}

/* ---- what is on its way to the remote ---- */

static void look_at_upload(struct doctor *d, const json_t *status)
{
	const json_t *upload = json_object_get(status, "upload");
	const char *error = text(upload, "error");
	uint64_t pending = number(upload, "pending_epochs");
	char since[FORMAT_MAX];

	if (json_is_true(json_object_get(status, "local_only")))
		doctor_note(d, "upload", "what is in it is lost with this machine: mount a remote",
			    "the mount has no remote");
	else if (error && number(upload, "failing_since_ns"))
		doctor_wrong(
			d, "upload",
			"see that the remote can be reached and written to; it is tried again by itself, and nothing is lost",
			"uploads have failed for %s: %s", age(upload, "failing_since_ns", since),
			error);
	else if (error)
		doctor_wrong(d, "upload",
			     "see that the remote can be reached and written to; nothing is lost",
			     "uploads fail: %s", error);
	else if (pending)
		doctor_ok(d, "upload",
			  "%" PRIu64 " epoch%s not durable yet, of which the oldest is %s old",
			  pending, plural_of(pending, " is", "s are"),
			  age(upload, "oldest_sealed_ns", since));
	else
		doctor_ok(d, "upload", "all epochs are durable");
}

static void look_at_lease(struct doctor *d, const json_t *status)
{
	static const char what_to_do[] =
		"its work is in its cache only: get it out with `epochfs export` of this mount, unmount, and mount again; see epochfs-troubleshooting(7)";
	const json_t *lease = json_object_get(status, "lease");
	const char *state = text(lease, "state"), *winner = text(lease, "taken_over_by");
	bool conflict =
		json_is_true(json_object_get(json_object_get(status, "upload"), "conflict"));

	if (state && !strcmp(state, "lost"))
		doctor_wrong(d, "lease", what_to_do,
			     "the volume was taken over by %s: this mount uploads nothing any more",
			     winner ? winner : "another mount");
	else if (conflict)
		doctor_wrong(
			d, "lease", what_to_do,
			"another mount writes to the volume: this one uploads nothing any more");
	else if (state)
		doctor_ok(d, "lease", "the mount holds the lease of the volume");
}

/* ---- saves ---- */

static void look_at_doubts(struct doctor *d, const json_t *status)
{
	cleanup_json json_t *texts = doubts_texts(json_object_get(status, "doubts"));
	const json_t *one;
	size_t i;

	json_array_foreach(texts, i, one) doctor_wrong(
		d, "saves", "until then epochs are not complete, and latest does not move on", "%s",
		json_string_value(one));
}

/* What an epoch of now would not be whole for. */
static bool look_at_verdict(struct doctor *d, const json_t *status)
{
	const json_t *waits = json_object_get(status, "resume_waits");
	json_int_t pid = json_integer_value(json_object_get(waits, "for_pid"));
	const char *why = text(status, "why");
	const char *mountpoint = text(status, "mountpoint");
	char what_to_do[128 + PATH_MAX];

	if (!why)
		return false;
	if (pid)
		snprintf(what_to_do, sizeof(what_to_do),
			 "the live tree goes back to latest once process %lld has ended",
			 (long long)pid);
	else if (waits)
		snprintf(
			what_to_do, sizeof(what_to_do),
			"the live tree goes back to latest as soon as nothing is open for writing");
	else
		snprintf(
			what_to_do, sizeof(what_to_do),
			"that clears with the next whole save, or go back: epochfs rollback %s latest",
			mountpoint ? mountpoint : "MOUNT");
	doctor_wrong(d, "saves", what_to_do, "the live tree is not whole: %s", why);
	return true;
}

static void look_at_saves(struct doctor *d, const json_t *status)
{
	cleanup_buf struct buf torn = {0};
	bool not_whole;
	const char *failure = text(status, "seal_failure");
	const char *resume = text(json_object_get(status, "resumed"), "error");

	look_at_doubts(d, status);
	not_whole = look_at_verdict(d, status);
	if (torn_text(json_object_get(status, "torn"), 1, &torn))
		doctor_note(d, "saves", "look at them, and remove what is of no use", "%s",
			    buf_str(&torn));
	if (failure)
		doctor_wrong(
			d, "saves",
			"what changed goes into the next epoch; the log of the mount says more",
			"an epoch could not be sealed: %s", failure);
	if (resume)
		doctor_wrong(
			d, "saves",
			"the tree is as the last save left it: roll back by `epochfs rollback`",
			"-o resume failed: %s", resume);
	if (!failure && !resume && !not_whole &&
	    !json_array_size(json_object_get(status, "doubts")))
		doctor_ok(d, "saves", "no save is in doubt");
}

/* ---- the cache ---- */

static void look_at_cache_disk(struct doctor *d, const char *directory)
{
	struct statfs st;
	const char *network;

	if (statfs(directory, &st) < 0)
		return;
	network = network_fs_name(&st);
	if (!network && st.f_type == FUSE_SUPER_MAGIC)
		network = "a FUSE file system";
	if (network)
		doctor_wrong(
			d, "cache-disk",
			"mount with the cache on a local disk (-o cache-dir=DIR), once all is durable",
			"the cache %s lies on %s: saves wait for it", directory, network);
	else
		doctor_ok(d, "cache-disk", "the cache %s lies on a local disk", directory);
	if (st.f_files && st.f_ffree < st.f_files / 100)
		doctor_wrong(
			d, "cache-disk", "remove files there",
			"inodes on the disk of the cache are nearly used up: %llu of %llu are free",
			(unsigned long long)st.f_ffree, (unsigned long long)st.f_files);
}

/* What one more save of this size finds: what is durable gives way to it. */
static void look_at_room(struct doctor *d, const json_t *cache, uint64_t epoch)
{
	uint64_t bytes = number(cache, "bytes"), dirty = number(cache, "dirty_bytes");
	uint64_t room = number(cache, "free_bytes") + (bytes > dirty ? bytes - dirty : 0);
	char free_text[FORMAT_MAX], epoch_text[FORMAT_MAX];

	format_size(number(cache, "free_bytes"), free_text);
	format_size(epoch, epoch_text);
	if (room <= epoch)
		doctor_wrong(
			d, "cache-room",
			"make room there, or mount with the cache on a larger disk (-o cache-dir=DIR)",
			"the disk of the cache has %s left, and the newest epoch has %s: the next save may find it full",
			free_text, epoch_text);
	else
		doctor_ok(d, "cache-room", "the disk of the cache has %s left", free_text);
}

static void look_at_limit(struct doctor *d, const json_t *cache, uint64_t epoch)
{
	uint64_t limit = number(cache, "limit_bytes");
	char limit_text[FORMAT_MAX], epoch_text[FORMAT_MAX];

	if (!limit)
		return;
	format_size(limit, limit_text);
	format_size(epoch, epoch_text);
	if (limit < epoch)
		doctor_wrong(
			d, "cache-limit", "mount with a larger cache-size",
			"cache-size is %s, and the newest epoch has %s: no epoch stays local whole",
			limit_text, epoch_text);
	else
		doctor_ok(d, "cache-limit",
			  "cache-size is %s, which the newest epoch of %s fits into", limit_text,
			  epoch_text);
}

/* ---- what else a mount does ---- */

static void look_at_errors(struct doctor *d, const json_t *status)
{
	const char *gc = text(json_object_get(status, "gc"), "error");
	const char *follow = text(json_object_get(status, "follow"), "error"), *sink;
	json_t *announce;

	if (gc)
		doctor_wrong(d, "gc", "it is tried again; `epochfs fsck` says what is damaged",
			     "the last garbage collection failed: %s", gc);
	if (follow)
		doctor_wrong(d, "follow", "see that the remote can be reached",
			     "new epochs of the remote are not seen: %s", follow);
	json_object_foreach(json_object_get(status, "announce"), sink, announce)
	{
		const char *error = text(announce, "error");

		if (error)
			doctor_wrong(d, "announce", "it is tried again: see its program or file",
				     "-o %s fails: %s", sink, error);
	}
}

static void look_at_credentials(struct doctor *d, const json_t *status)
{
	const json_t *credentials = json_object_get(status, "credentials");

	if (json_is_object(credentials))
		doctor_credentials(d, " of the mount",
				   json_integer_value(json_object_get(credentials, "left_ns")),
				   json_is_true(json_object_get(credentials, "renewed")));
}

static void look_at_passthrough(struct doctor *d, const json_t *status)
{
	const json_t *passthrough = json_object_get(status, "passthrough");
	const char *mode = text(passthrough, "mode"), *reason = text(passthrough, "reason");

	if (mode && !strcmp(mode, "on"))
		doctor_ok(d, "passthrough", "the kernel reads and writes the cache by itself");
	else if (mode)
		doctor_note(d, "passthrough",
			    "Linux 6.9, root, and a cache that is not on an overlayfs have it",
			    "no passthrough: %s", reason ? reason : "not known why");
}

void doctor_status(struct doctor *d, const json_t *status)
{
	const json_t *cache = json_object_get(status, "cache");
	uint64_t epoch = number(json_object_get(status, "latest"), "bytes");

	look_at_upload(d, status);
	look_at_lease(d, status);
	look_at_saves(d, status);
	if (text(cache, "directory"))
		look_at_cache_disk(d, text(cache, "directory"));
	look_at_room(d, cache, epoch);
	look_at_limit(d, cache, epoch);
	look_at_errors(d, status);
	look_at_credentials(d, status);
	look_at_passthrough(d, status);
}

/* What of the remote is kept in the process that serves the mount no other can see. */
static bool is_elsewhere(const char *url)
{
	return strncmp(url, "memory:", strlen("memory:")) != 0;
}

int doctor_mount(struct doctor *d, const char *mount)
{
	cleanup_json json_t *status = NULL;
	cleanup_free char *url = NULL;
	int code = client_call(mount, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	doctor_status(d, status);
	if (json_is_true(json_object_get(status, "read_only")))
		return EXIT_DONE;
	code = target_mount_remote(mount, &url);
	if (code != EXIT_DONE || !url || !is_elsewhere(url))
		return code;
	return doctor_remote(d, url, text(status, "uuid"));
}
