/* SPDX-License-Identifier: Apache-2.0 */
/* The table of mount options: what each is called, means and takes, and how its value is set. */
#include "tools/mount_options.h"

#include <regex.h>
#include <string.h>

#include "lib/meta/retention_policy.h"
#include "lib/metrics/address.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"

/* ---- options that are more than a value ---- */

static const char *add_glob(struct globs *globs, const char *value)
{
	if (!*value)
		return "a shell pattern";
	if (globs->count == GLOBS_MAX)
		return "at most 64 patterns";
	globs->pattern[globs->count++] = value;
	return NULL;
}

static const char *set_resume(struct mount_options *o, const char *value)
{
	bool off = !strcmp(value, "off");

	o->volume.resume = off ? RESUME_OFF : RESUME_ALWAYS;
	return off || !*value || !strcmp(value, "on") ? NULL : "on or off";
}

static const char *set_marker(struct mount_options *o, const char *value)
{
	if (!strcmp(value, "none")) {
		o->volume.no_last_files = true;
		return NULL;
	}
	return add_glob(&o->volume.marker, value);
}

static const char *set_step(struct mount_options *o, const char *value)
{
	regex_t regex;
	bool good;

	if (regcomp(&regex, value, REG_EXTENDED))
		return "a POSIX extended regular expression";
	good = regex.re_nsub >= 1;
	regfree(&regex);
	o->volume.step_regex = value;
	return good ? NULL : "a regular expression with a (group) around the number";
}

static const char *set_keep(struct mount_options *o, const char *value)
{
	struct retention_policy policy;
	char why[RETENTION_WHY_MAX];

	o->volume.keep = value;
	if (!retention_parse(value, &policy, why))
		return NULL;
	value = mount_options_keep(o, why);
	return value ? value : "a policy";
}

/* Below the rate at which a transfer counts as stalled nothing would ever be whole. */
static const char *set_rate(uint64_t *rate, const char *value)
{
	return parse_size(value, rate) || (*rate > 0 && *rate < 10 << 10)
		       ? "bytes a second, such as 50M, from 10K; 0: no limit"
		       : NULL;
}

static const char *set_upload_limit(struct mount_options *o, const char *value)
{
	return set_rate(&o->volume.limits.upload_rate, value);
}

static const char *set_download_limit(struct mount_options *o, const char *value)
{
	return set_rate(&o->volume.limits.download_rate, value);
}

/* The last one that is given counts: what stands on the command line wins over the environment. */
static const char *set_passphrase_file(struct mount_options *o, const char *value)
{
	o->volume.limits.passphrase_file = value;
	o->volume.limits.key_file = NULL;
	return value[0] == '/' ? NULL : "an absolute path";
}

static const char *set_key_file(struct mount_options *o, const char *value)
{
	o->volume.limits.key_file = value;
	o->volume.limits.passphrase_file = NULL;
	return value[0] == '/' ? NULL : "an absolute path";
}

static const char *set_metrics(struct mount_options *o, const char *value)
{
	struct metrics_address address;

	o->metrics = value;
	return metrics_address_parse(value, &address)
		       ? "127.0.0.1:PORT, [::1]:PORT, unix:/PATH or file:/PATH"
		       : NULL;
}

static const char *set_log_level(struct mount_options *o, const char *value)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};

	(void)o;
	for (int i = 0; i < 4; i++)
		if (!strcmp(value, names[i])) {
			log_set_level((enum log_level)i);
			return NULL;
		}
	return "error, warning, info or debug";
}

/* ---- by kind ---- */

static bool in_bounds(const struct option_row *row, int64_t value)
{
	return value >= row->least && (!row->most || value <= row->most);
}

static bool set_count(const struct option_row *row, unsigned *count, const char *value)
{
	char number[8];
	size_t len = strlen(value);
	uint64_t n;

	if (row->percent && len && value[len - 1] == '%')
		len--;
	if (len >= sizeof(number))
		return false;
	memcpy(number, value, len);
	number[len] = '\0';
	if (parse_u64(number, &n) || n > INT32_MAX || !in_bounds(row, (int64_t)n))
		return false;
	*count = (unsigned)n;
	return true;
}

static bool set_choice(const struct option_row *row, void *member, const char *value)
{
	for (unsigned i = 0; row->choices[i]; i++) {
		if (strcmp(value, row->choices[i]) != 0)
			continue;
		if (row->is_bool)
			*(bool *)member = i > 0;
		else
			*(unsigned *)member = i;
		return true;
	}
	return false;
}

static bool set_text(const struct option_row *row, const char **text, const char *value)
{
	*text = value;
	return row->kind == OPTION_PATH ? value[0] == '/' : (int64_t)strlen(value) >= row->least;
}

static bool set_member(const struct option_row *row, void *member, const char *value)
{
	switch (row->kind) {
	case OPTION_SET:
	case OPTION_CLEARED:
		*(bool *)member = row->kind == OPTION_SET;
		return !*value;
	case OPTION_SWITCH:
		*(bool *)member = !*value || !strcmp(value, "on");
		return *(bool *)member || !strcmp(value, "off");
	case OPTION_CHOICE:
		return set_choice(row, member, value);
	case OPTION_DURATION:
		return !parse_duration(value, member) && in_bounds(row, *(int64_t *)member);
	case OPTION_SIZE:
		return !parse_size(value, member);
	case OPTION_COUNT:
		return set_count(row, member, value);
	case OPTION_NUMBER:
		return !parse_u64(value, member) && *(uint64_t *)member >= (uint64_t)row->least;
	case OPTION_TEXT:
	case OPTION_PATH:
		return set_text(row, member, value);
	default:
		return true;
	}
}

const struct option_row *mount_option_find(const char *name, size_t len)
{
	for (size_t i = 0; i < mount_option_count; i++) {
		const char *other = mount_option_table[i].name;
		size_t k = 0;

		while (k < len && (name[k] == other[k] || (name[k] == '-' && other[k] == '_')))
			k++;
		if (k == len && !other[k])
			return &mount_option_table[i];
	}
	return NULL;
}

const char *mount_option_set(const struct option_row *row, struct mount_options *o,
			     const char *value)
{
	void *member = (char *)o + row->offset;

	if (row->kind == OPTION_SPECIAL)
		return row->set(o, value);
	if (row->kind == OPTION_GLOB)
		return add_glob(member, value);
	return set_member(row, member, value) ? NULL : row->expected;
}

/* ---- the table ---- */

#define MEMBER(member) .offset = offsetof(struct mount_options, member)
/* Given with -o alone, and without a value. */
#define FLAG(text, how, member, says)                                                              \
	{                                                                                          \
		.name = (text), .value = "", .help = (says), .expected = text " takes no value",   \
		.kind = (how), MEMBER(member)                                                      \
	}
#define IGNORED(text)                                                                              \
	{                                                                                          \
		.name = (text), .kind = OPTION_IGNORED                                             \
	}
/* With a value, from -o and from the environment. */
#define VALUE(text, how, looks, says, ...)                                                         \
	{                                                                                          \
		.name = (text), .value = (looks), .help = (says), .kind = (how),                   \
		.environment = true, __VA_ARGS__                                                   \
	}
#define SPECIAL(text, looks, says, fn, ...)                                                        \
	VALUE(text, OPTION_SPECIAL, looks, says, .set = (fn), __VA_ARGS__)

static const char *const one_or_two[] = {"1", "2", NULL};

static const char *const local_or_remote[] = {"local", "remote", NULL};
static const char *const error_or_wait[] = {"error", "wait", NULL};
static const char *const on_or_off[] = {"on", "off", NULL};
static const char *const auto_on_off[] = {[FS_PASSTHROUGH_AUTO] = "auto",
					  [FS_PASSTHROUGH_ON] = "on",
					  [FS_PASSTHROUGH_OFF] = "off",
					  NULL};

const struct option_row mount_option_table[] = {
	FLAG("ro", OPTION_SET, volume.read_only,
	     "read-only: the root shows the newest epoch of the remote, and follows it"),
	VALUE("epoch", OPTION_NUMBER, "N",
	      "with ro: the root shows this epoch, and nothing follows", MEMBER(volume.at_epoch),
	      .least = 1, .expected = "an epoch's number, from 1"),
	VALUE("refresh", OPTION_DURATION, "TIME",
	      "how often a read-only mount looks for what is new", MEMBER(volume.refresh_ns),
	      .by_default = "10s", .least = REFRESH_MIN_NS, .expected = "a time from 100ms"),
	VALUE("cache-dir", OPTION_PATH, "DIR",
	      "where local state and content lie (default: /var/cache/epochfs; of other users than root "
	      "$XDG_CACHE_HOME/epochfs or $HOME/.cache/epochfs)",
	      MEMBER(volume.cache_dir), .expected = "an absolute path"),
	VALUE("cache-size", OPTION_SIZE, "SIZE",
	      "what content may take there; 0: as much as min-free leaves",
	      MEMBER(volume.cache_size), .by_default = "0", .expected = "a size, such as 200G"),
	VALUE("min-free", OPTION_COUNT, "PERCENT", "how much of that file system stays free",
	      MEMBER(volume.min_free_percent), .by_default = "10", .most = 99, .percent = true,
	      .expected = "a percentage from 0 to 99"),
	VALUE("full", OPTION_CHOICE, "wait|error",
	      "whether writers wait for space, at most patience, or get ENOSPC at once",
	      MEMBER(volume.full_wait), .by_default = "wait", .is_bool = true,
	      .choices = error_or_wait, .expected = "wait or error"),
	VALUE("settle", OPTION_DURATION, "TIME", "the quiet that seals; 0: the last close seals",
	      MEMBER(volume.settle_ns), .by_default = "5s", .expected = "a time, such as 5s"),
	VALUE("patience", OPTION_DURATION, "TIME",
	      "how long unfinished work holds a seal up, and readers wait for a remote that is away",
	      MEMBER(volume.patience_ns), .by_default = "60s", .expected = "a time, such as 60s"),
	VALUE("grace", OPTION_DURATION, "TIME",
	      "after SIGTERM, SIGINT or SIGHUP: how long uploads are waited for, and processes that have "
	      "used the mount and may save once more",
	      MEMBER(fs.grace_ns), .by_default = "25s", .expected = "a time, such as 25s"),
	VALUE("durability", OPTION_CHOICE, "local|remote",
	      "remote: each close waits until its epoch is in the remote",
	      MEMBER(volume.durable_close), .by_default = "local", .is_bool = true,
	      .choices = local_or_remote, .expected = "local or remote"),
	VALUE("rules", OPTION_CHOICE, "1|2",
	      "which rules say when an epoch is sealed and what is whole: 2 are those of one page, which "
	      "become the default",
	      MEMBER(volume.by_saves), .by_default = "1", .is_bool = true, .choices = one_or_two,
	      .expected = "1 or 2"),
	SPECIAL("resume", "",
		"after a killed or torn save the live tree goes back to the newest whole epoch by itself; "
		"resume=off: it does not",
		set_resume, .by_default = "off"),
	VALUE("temporary", OPTION_GLOB, "GLOB", "more names of unfinished work; may be repeated",
	      MEMBER(volume.temporary)),
	SPECIAL("marker", "GLOB|none",
		"more names of files whose close seals; may be repeated; none: the last files of frameworks "
		"seal nothing",
		set_marker),
	VALUE("log", OPTION_GLOB, "GLOB", "more names of logs; may be repeated",
	      MEMBER(volume.log)),
	SPECIAL("step", "REGEX",
		"a POSIX extended regular expression whose first group is the training step in a changed "
		"name",
		set_step),
	VALUE("node", OPTION_TEXT, "NAME",
	      "the name of this node, recorded with each epoch (default: the host's)",
	      MEMBER(volume.node), .least = 1, .expected = "a name"),
	SPECIAL("nodes", "N|auto",
		"N mounts, each with another node and the same run, write to the volume together; auto: as "
		"Slurm, torchrun, Open MPI or MPICH say",
		mount_options_set_nodes),
	VALUE("run-id", OPTION_TEXT, "ID",
	      "the name of the run, recorded with each epoch (default: the scheduler's job)",
	      MEMBER(volume.run_id), .least = 1, .expected = "a name"),
	VALUE("run", OPTION_TEXT, "ID", "the same as run-id", MEMBER(volume.run_id), .least = 1,
	      .expected = "a name"),
	VALUE("message", OPTION_TEXT, "TEXT", "recorded with each epoch", MEMBER(volume.message)),
	VALUE("db-type", OPTION_TEXT, "NAME",
	      "what checkpoints are kept in (minidb, leveldb, lmdb, ...), recorded with each epoch for "
	      "those who resume",
	      MEMBER(volume.db_type), .least = 1, .expected = "a name"),
	VALUE("on-epoch", OPTION_TEXT, "PROGRAM",
	      "a program that is run for each epoch that is sealed, and again once it is durable, with one JSON object on "
	      "standard input",
	      MEMBER(volume.on_epoch), .least = 1, .expected = "a program", .hidden = true),
	VALUE("on-epoch-timeout", OPTION_DURATION, "TIME",
	      "the program is ended, with its process group, when it has run for so long",
	      MEMBER(volume.on_epoch_timeout_ns), .by_default = "60s",
	      .least = ON_EPOCH_TIMEOUT_MIN_NS, .expected = "a time from 100ms"),
	VALUE("catalog", OPTION_PATH, "FILE",
	      "an SQLite database, by its absolute path, that gets a row for each epoch",
	      MEMBER(volume.catalog_db), .expected = "an absolute path"),
	SPECIAL("keep", "POLICY",
		"which epochs stay, such as last:10,hourly:24,daily:7,every:1000,tagged; others are dropped "
		"whenever one has become durable; what can be taken back yet pushes none out, nor a small one a "
		"large one (default: all stay)",
		set_keep),
	VALUE("gc", OPTION_CHOICE, "on|off",
	      "with keep: whether the mount collects the garbage of the remote in the background",
	      MEMBER(volume.gc_off), .by_default = "on", .is_bool = true, .choices = on_or_off,
	      .expected = "on or off"),
	VALUE("gc-grace", OPTION_DURATION, "TIME",
	      "for how long that leaves what dropped epochs held", MEMBER(volume.gc_grace_ns),
	      .by_default = "24h", .expected = "a time such as 24h"),
	VALUE("threads", OPTION_COUNT, "N", "of upload and fetch; 0: one a core, at most 8",
	      MEMBER(volume.threads), .by_default = "0", .most = 256,
	      .expected = "a number from 1 to 256, or 0 for one a core"),
	VALUE("connections", OPTION_COUNT, "N", "transfers at once with a remote",
	      MEMBER(volume.limits.connections), .by_default = "8", .least = 1, .most = 256,
	      .limit = true, .expected = "a number from 1 to 256"),
	VALUE("timeout", OPTION_DURATION, "TIME",
	      "a transfer by HTTP or SFTP that stands still for so long is tried again",
	      MEMBER(volume.limits.stall_timeout_ns), .by_default = "30s", .least = 1,
	      .limit = true, .expected = "a time, such as 30s"),
	VALUE("upload-ahead", OPTION_SIZE, "SIZE",
	      "a new file of this size goes to the remote once it is closed, before an epoch is sealed "
	      "that has it; 0: none does",
	      MEMBER(volume.upload_ahead), .by_default = "32M",
	      .expected = "a size, such as 32M; 0: never"),
	SPECIAL("upload-limit", "RATE",
		"bytes a second, such as 50M, of all that a mount uploads; 0: no limit",
		set_upload_limit, .by_default = "0", .limit = true),
	SPECIAL("download-limit", "RATE", "likewise of all that it downloads", set_download_limit,
		.by_default = "0", .limit = true),
	SPECIAL("passphrase-file", "FILE",
		"the passphrase that opens an encrypted volume, or makes a new one encrypted; an absolute "
		"path",
		set_passphrase_file, .limit = true, .hidden = true),
	SPECIAL("key-file", "FILE", "the key file that does; of the two the last one given counts",
		set_key_file, .limit = true, .hidden = true),
	VALUE("lease", OPTION_DURATION, "TIME",
	      "how long the lease of a mount that writes lives, which it renews four times in this time",
	      MEMBER(volume.lease_ns), .by_default = "60s", .least = LEASE_MIN_NS,
	      .most = LEASE_MAX_NS, .expected = "a time from 1s to 1h"),
	FLAG("take-over", OPTION_SET, volume.take_over,
	     "take the lease at once, from a live holder too; the same as --take-over"),
	VALUE("passthrough", OPTION_CHOICE, "auto|on|off",
	      "whether the kernel reads and writes files of the cache itself",
	      MEMBER(fs.passthrough), .by_default = "auto", .choices = auto_on_off,
	      .expected = "auto, on or off"),
	VALUE("supervise", OPTION_SWITCH, "",
	      "a small parent process keeps the mount, and starts the process that serves again when it "
	      "dies",
	      MEMBER(supervise), .by_default = "off", .expected = "on or off"),
	SPECIAL("metrics", "ADDRESS",
		"metrics of the mount, for Prometheus: by HTTP at 127.0.0.1:PORT, [::1]:PORT or unix:/PATH, or as file:/PATH, "
		"which is replaced every 15 s",
		set_metrics),
	VALUE("log-file", OPTION_PATH, "FILE", "the log (default: in the volume's cache folder)",
	      MEMBER(log_file), .expected = "an absolute path"),
	SPECIAL("log-level", "error|warning|info|debug",
		"how much it says, from errors alone to all", set_log_level, .by_default = "info"),
	FLAG("allow_other", OPTION_SET, fs.allow_other,
	     "other users may use the mount, as modes and owners permit"),
	FLAG("nonempty", OPTION_SET, nonempty, "mount over a directory that holds something"),
	FLAG("noexec", OPTION_SET, fs.noexec, "no program is run from the mount"),
	FLAG("suid", OPTION_SET, fs.suid,
	     "setuid, setgid and file capabilities mean something on the mount; for root only"),
	FLAG("nosuid", OPTION_CLEARED, fs.suid, "they do not, as without suid"),
	FLAG("dev", OPTION_SET, fs.dev, "device nodes mean something on the mount; for root only"),
	FLAG("nodev", OPTION_CLEARED, fs.dev, "they do not, as without dev"),
	IGNORED("rw"),
	IGNORED("defaults"),
	IGNORED("auto"),
	IGNORED("noauto"),
	IGNORED("nofail"),
	IGNORED("_netdev"),
	IGNORED("user"),
	IGNORED("users"),
	IGNORED("nouser"),
	IGNORED("exec"),
	IGNORED("async"),
	IGNORED("noatime"), /* access times are not kept */
	IGNORED("relatime"),
	IGNORED("nodiratime"),
};
const size_t mount_option_count = sizeof(mount_option_table) / sizeof(mount_option_table[0]);
