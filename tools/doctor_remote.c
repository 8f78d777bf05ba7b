/* SPDX-License-Identifier: Apache-2.0 */
/* What epochfs doctor looks at in a remote: whether it answers, what it cannot do, and who writes to it. */
#include "tools/doctor.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "lib/admin/catalog.h"
#include "lib/admin/check.h"
#include "lib/format/wire.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "tools/attendant.h"
#include "tools/cli.h"
#include "tools/mount_options.h"
#include "tools/mountpoint.h"
#include "tools/target.h"

static const char *text(const json_t *o, const char *key)
{
	const char *value = json_string_value(json_object_get(o, key));

	return value ? value : "";
}

/* ---- what it can ---- */

static void look_at_operations(struct doctor *d, const json_t *report)
{
	const json_t *operation;
	unsigned failed = 0;
	size_t i;

	json_array_foreach(json_object_get(report, "operations"), i, operation)
	{
		if (json_is_true(json_object_get(operation, "ok")))
			continue;
		failed++;
		doctor_wrong(d, "remote",
			     "see what its server and its rights allow; `epochfs check` says more",
			     "%s fails: %s: %s", text(report, "remote"), text(operation, "name"),
			     text(operation, "detail"));
	}
	if (!failed)
		doctor_ok(d, "remote", "%s can be reached, read and written",
			  text(report, "remote"));
}

static void look_at_creating(struct doctor *d, const json_t *report)
{
	const char *how = text(report, "create_if_absent");

	if (!strcmp(how, "atomic"))
		doctor_ok(d, "create-if-absent",
			  "one mount writes at a time: a second one is told who does");
	else
		doctor_note(d, "create-if-absent", "never let two write to one volume there",
			    "the remote does not create an object only where it is absent (%s)",
			    how);
	if (json_is_true(json_object_get(report, "keeps_versions")))
		doctor_note(d, "versions",
			    "have a rule of the bucket remove old versions, see epochfs-remotes(7)",
			    "the bucket keeps what is deleted");
}

static void look_at_redirects(struct doctor *d, const json_t *report)
{
	const char *to = text(report, "redirects_to");

	if (*to)
		doctor_note(d, "redirects", "see that a firewall lets this machine reach it, too",
			    "reads are redirected to %s", to);
}

/* A mount that ends meanwhile uploads nothing more, so there must be time to see it. */
#define CREDENTIALS_NOTED_NS (24 * 3600 * NS_PER_S)

void doctor_credentials(struct doctor *d, const char *whose, int64_t left_ns, bool renewed)
{
	static const char what_to_do[] =
		"put new ones into the environment and mount again, or give a source that renews them (a profile, credential_process)";
	char left[FORMAT_MAX];

	format_age(left_ns < 0 ? -left_ns : left_ns, left);
	if (renewed)
		doctor_ok(d, "credentials", "the credentials%s are renewed by themselves", whose);
	else if (left_ns <= 0)
		doctor_wrong(d, "credentials", what_to_do, "the credentials%s ended %s ago", whose,
			     left);
	else if (left_ns < CREDENTIALS_NOTED_NS)
		doctor_note(d, "credentials", what_to_do, "the credentials%s end in %s", whose,
			    left);
	else
		doctor_ok(d, "credentials", "the credentials%s end in %s", whose, left);
}

static void look_at_expiry(struct doctor *d, const json_t *report)
{
	const json_t *credentials = json_object_get(report, "credentials");

	if (json_is_object(credentials))
		doctor_credentials(d, " of this environment",
				   json_integer_value(json_object_get(credentials, "expires_ns")) -
					   clock_wall_ns(),
				   json_is_true(json_object_get(credentials, "renewed")));
}

/* Servers tell their time to a second. */
#define CLOCK_NOTED_MS (5 * 1000)
#define CLOCK_WRONG_MS (60 * 1000)

static void look_at_clock(struct doctor *d, const json_t *report)
{
	const json_t *told = json_object_get(report, "clock_ahead_ms");
	json_int_t ahead = json_integer_value(told), apart = ahead < 0 ? -ahead : ahead;
	const char *direction = ahead < 0 ? "behind" : "ahead of";
	char apart_text[FORMAT_MAX];

	format_age(apart * NS_PER_MS, apart_text);
	if (!json_is_integer(told))
		return;
	if (apart >= CLOCK_WRONG_MS)
		doctor_wrong(
			d, "clock",
			"set this machine's clock, as by NTP: ages, and the grace of garbage collection, go by it",
			"the clock of the remote is %s %s that of this machine", apart_text,
			direction);
	else if (apart >= CLOCK_NOTED_MS)
		doctor_note(d, "clock", "keep this machine's clock set, as by NTP",
			    "the clock of the remote is %s %s that of this machine", apart_text,
			    direction);
	else
		doctor_ok(d, "clock", "the clocks of the remote and of this machine agree");
}

/* ---- the volume there ---- */

static void look_at_lease(struct doctor *d, struct catalog *volume)
{
	cleanup_json json_t *lease = NULL;
	int error = catalog_lease(volume, &lease);
	const char *state = text(lease, "state");

	if (error)
		doctor_wrong(d, "lease", "`epochfs fsck` says what is damaged",
			     "the lease of the volume cannot be read: %s", cli_reason(error));
	else if (!strcmp(state, "held"))
		doctor_note(
			d, "lease",
			"write to it there; where that process is gone, another mount waits until the lease has lapsed, or takes it with --take-over",
			"a process of %s (pid %" JSON_INTEGER_FORMAT ") writes to the volume%s%s",
			text(lease, "host"), json_integer_value(json_object_get(lease, "pid")),
			*text(lease, "mountpoint") ? ", mounted on " : "",
			text(lease, "mountpoint"));
	else if (!strcmp(state, "free"))
		doctor_ok(d, "lease", "nobody writes to the volume");
	else
		doctor_wrong(d, "lease", "`epochfs fsck --repair` of the remote",
			     "the lease of the volume is %s", state);
}

/* Which one it is. False: it is not what a mount has there. */
static bool look_at_identity(struct doctor *d, struct catalog *volume, const char *uuid)
{
	if (uuid && (!volume || strcmp(catalog_uuid(volume), uuid) != 0)) {
		doctor_wrong(d, "volume",
			     "was it moved, or is its disk not mounted? Bring it back where it was",
			     "the remote has %s",
			     volume ? "another volume than this mount"
				    : "the volume of this mount no more");
		return false;
	}
	doctor_ok(d, "volume", "%s",
		  volume ? "a volume is there, and can be opened" : "no volume is there yet");
	return true;
}

/* False: there is no use in trying what the remote can. */
static bool look_at_volume(struct doctor *d, const char *url, const struct remote_limits *limits,
			   const char *uuid)
{
	cleanup_free char *message = NULL;
	struct catalog *volume = NULL;
	int error = catalog_open(url, limits, &volume, &message);
	bool there;

	if (error && error != -ENOENT) {
		bool damaged = exit_code_of(error) == EXIT_DAMAGED;

		doctor_wrong(d, damaged ? "volume" : "remote",
			     damaged ? "`epochfs fsck` says what is damaged"
				     : "see that it is there, can be reached, and allows this user",
			     "%s", message ? message : cli_reason(error));
		return damaged;
	}
	there = look_at_identity(d, volume, uuid);
	if (volume && !uuid)
		look_at_lease(d, volume);
	if (volume)
		catalog_close(volume);
	return there;
}

/* A directory that is not there would be made by what is put there. */
static bool look_at_directory(struct doctor *d, const char *url)
{
	char path[PATH_MAX];

	if (!mountpoint_remote_directory(url, path) || access(path, F_OK) == 0)
		return true;
	doctor_wrong(
		d, "remote",
		"is its disk mounted, and its name right? Of a new volume, make the directory, or mount: that makes it",
		"%s: %s", path, strerror(errno));
	return false;
}

/* ---- the whole ---- */

/* EXIT_DONE with a report, or with a line of why there is none; else the exit code after a line. */
static int try_out(const char *url, const struct remote_limits *limits, json_t **ret_report,
		   char **ret_message)
{
	struct attendant attendant = {0};
	const struct check_options how = {.limits = *limits,
					  .unmeasured = true,
					  .interrupted = attendant_interrupted,
					  .interrupted_arg = &attendant};
	int error = attendant_start(&attendant);

	if (error)
		return cli_error(EXIT_FAILED, "cannot start a thread: %s", strerror(-error));
	error = check_remote(url, &how, ret_report, ret_message);
	attendant_stop(&attendant);
	if (error == -EINTR)
		return cli_error(EXIT_FAILED, "interrupted; what was put there is deleted");
	if (error && !*ret_message)
		return cli_error(exit_code_of(error), "%s", strerror(-error));
	return EXIT_DONE;
}

int doctor_remote(struct doctor *d, const char *url, const char *uuid)
{
	cleanup_json json_t *report = NULL;
	cleanup_free char *message = NULL;
	struct remote_limits limits;
	int code = mount_options_limits(url, &limits);

	if (code != EXIT_DONE)
		return code;
	if (!look_at_directory(d, url) || !look_at_volume(d, url, &limits, uuid))
		return EXIT_DONE;
	code = try_out(url, &limits, &report, &message);
	if (code != EXIT_DONE)
		return code;
	if (!report) {
		doctor_wrong(d, "remote",
			     "see that it is there, can be reached, and lets this user write", "%s",
			     message);
		return EXIT_DONE;
	}
	look_at_operations(d, report);
	look_at_creating(d, report);
	look_at_redirects(d, report);
	look_at_expiry(d, report);
	look_at_clock(d, report);
	return EXIT_DONE;
}
