/* SPDX-License-Identifier: Apache-2.0 */
/* Mount options: reading them, and the table of what each means. */
#include "tools/mount_options.h"

#include <ctype.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/meta/retention_policy.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"
#include "tools/cli.h"

char *mount_options_keep(struct mount_options *o, const char *text)
{
	size_t len = strlen(text) + 1;
	char *node = malloc(sizeof(char *) + len);

	if (!node)
		return NULL;
	*(char **)(void *)node = o->text;
	o->text = node;
	return memcpy(node + sizeof(char *), text, len);
}

void mount_options_init(struct mount_options *o)
{
	*o = (struct mount_options){0};
	volume_options_init(&o->volume);
	o->fs.grace_ns = FS_GRACE_NS;
}

void mount_options_free(struct mount_options *o)
{
	/* The list of texts: each begins with a pointer to the next. */
	while (o->text) {
		char *next = *(char **)(void *)o->text;

		free(o->text);
		o->text = next;
	}
}

static int from_environment(struct mount_options *o, const struct option_row *row)
{
	char name[64];
	const char *value, *expected;
	size_t n = (size_t)snprintf(name, sizeof(name), "EPOCHFS_%s", row->name);

	for (size_t k = 0; k < n; k++)
		name[k] = name[k] == '-' ? '_' : (char)toupper((unsigned char)name[k]);
	value = getenv(name);
	if (!value || !*value)
		return EXIT_DONE;
	value = mount_options_keep(o, value);
	if (!value)
		return cli_error(EXIT_FAILED, "out of memory");
	expected = mount_option_set(row, o, value);
	if (expected)
		return cli_error(EXIT_USAGE, "environment %s=%s: expected %s", name, value,
				 expected);
	return EXIT_DONE;
}

/* ---- misspelt names in the environment ---- */

#define NAME_MAX_LEN 32

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* How many letters must be put in, left out or changed to make one of the other (Levenshtein); both up to NAME_MAX_LEN. */
static size_t distance(const char *a, const char *b)
{
	size_t row[NAME_MAX_LEN + 1], len = strlen(b);

	for (size_t k = 0; k <= len; k++)
		row[k] = k;
	for (size_t i = 0; a[i]; i++) {
		size_t before = row[0];

		row[0] = i + 1;
		for (size_t k = 1; k <= len; k++) {
			size_t changed = before + (a[i] != b[k - 1]);

			before = row[k];
			row[k] = smaller(changed, smaller(row[k], row[k - 1]) + 1);
		}
	}
	return row[len];
}

/* Short names are close to much. KEY is close to KEY_FILE, CACHE_DIRECTORY to CACHE_DIR. */
static bool is_close(const char *name, const char *option, size_t far)
{
	size_t len = strlen(name), wanted = strlen(option);

	if (far <= (wanted < 6 ? 1u : 2u))
		return true;
	if (len < wanted)
		return len >= 3 && !strncmp(name, option, len) && option[len] == '_';
	return (wanted >= 6 || (wanted >= 4 && name[wanted] == '_')) &&
	       !strncmp(name, option, wanted);
}

/* What a kind of remote reads by itself: all that begins so is meant for it. */
#define DAV_PREFIX "DAV_"

static bool is_of_dav(const char *given)
{
	static const char *const known[] = {"DAV_USER", "DAV_PASSWORD", "DAV_PASSWORD_FILE"};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(given, known[i]))
			return true;
	return false;
}

static void fold(const char *given, char ret_name[NAME_MAX_LEN + 1])
{
	snprintf(ret_name, NAME_MAX_LEN + 1, "%s", given);
	for (char *p = ret_name; *p; p++)
		*p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

/* What is close to the name of an option without being one. */
static void warn_if_misspelt(const char *given)
{
	const char *meant = NULL;
	char name[NAME_MAX_LEN + 1], option[NAME_MAX_LEN + 1];

	fold(given, name);
	if (!strncmp(name, DAV_PREFIX, strlen(DAV_PREFIX))) {
		if (!is_of_dav(given))
			fprintf(stderr,
				"epochfs: environment EPOCHFS_%s is ignored: WebDAV takes EPOCHFS_DAV_USER, "
				"EPOCHFS_DAV_PASSWORD and EPOCHFS_DAV_PASSWORD_FILE\n",
				given);
		return;
	}
	for (size_t i = 0; i < mount_option_count; i++) {
		const struct option_row *row = &mount_option_table[i];
		size_t far;

		fold(row->name, option);
		far = distance(name, option);
		if (!far && !row->environment)
			fprintf(stderr,
				"epochfs: environment EPOCHFS_%s is ignored: %s is given with -o alone\n",
				given, row->name);
		if (!far && (!row->environment || !strcmp(given, name)))
			return;
		if (row->environment && (!meant || !far) && is_close(name, option, far))
			meant = row->name;
	}
	/* Far from it by its letters: in silence a new volume would not be encrypted. */
	if (!meant && !strncmp(name, "PASSWORD", strlen("PASSWORD")))
		meant = "passphrase-file";
	if (meant)
		fprintf(stderr,
			"epochfs: environment EPOCHFS_%s is no option and is ignored: is %s meant?\n",
			given, meant);
}

/* Once: a command may look at the environment for a mount, and again for each remote. */
static void warn_of_misspelt(void)
{
	static bool done;

	if (done)
		return;
	done = true;
	for (char **e = environ; *e; e++) {
		char name[NAME_MAX_LEN + 1];
		size_t len = strcspn(*e, "=");

		if (strncmp(*e, "EPOCHFS_", 8) != 0 || len - 8 > NAME_MAX_LEN)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(len - 8), *e + 8);
		if (!name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-")])
			warn_if_misspelt(name);
	}
}

int mount_options_environment(struct mount_options *o)
{
	int code = EXIT_DONE;

	warn_of_misspelt();
	for (size_t i = 0; i < mount_option_count && code == EXIT_DONE; i++)
		if (mount_option_table[i].environment)
			code = from_environment(o, &mount_option_table[i]);
	return code;
}

int mount_options_limits(struct remote_limits *ret_limits)
{
	struct mount_options o;
	int code = EXIT_DONE;

	warn_of_misspelt();
	mount_options_init(&o);
	for (size_t i = 0; i < mount_option_count && code == EXIT_DONE; i++)
		if (mount_option_table[i].limit)
			code = from_environment(&o, &mount_option_table[i]);
	/* The environment's own texts, which outlive `o`. */
	if (o.volume.limits.key_file)
		o.volume.limits.key_file = getenv("EPOCHFS_KEY_FILE");
	if (o.volume.limits.passphrase_file)
		o.volume.limits.passphrase_file = getenv("EPOCHFS_PASSPHRASE_FILE");
	*ret_limits = o.volume.limits;
	mount_options_free(&o);
	return code;
}

static int set_one(struct mount_options *o, char *option)
{
	char *value = strchr(option, '=');
	const char *expected;

	if (value)
		*value++ = '\0';
	for (size_t i = 0; i < mount_option_count; i++) {
		if (strcmp(mount_option_table[i].name, option))
			continue;
		expected = mount_option_set(&mount_option_table[i], o, value ? value : "");
		if (expected)
			return cli_error(EXIT_USAGE, "option %s=%s: expected %s", option,
					 value ? value : "", expected);
		return EXIT_DONE;
	}
	return cli_error(EXIT_USAGE, "unknown option '%s'; see `epochfs mount --help`", option);
}

int mount_options_parse(struct mount_options *o, const char *list)
{
	char *text = mount_options_keep(o, list), *option = text, *out = text;

	if (!text)
		return cli_error(EXIT_FAILED, "out of memory");
	for (char *p = text;; p++) {
		char c = *p;
		int code;

		if (c == '\\' && p[1] == ',') {
			*out++ = *++p;
			continue;
		}
		/* The commas of keep=last:3,daily:7 part rules. */
		if ((c != ',' && c != '\0') || (c == ',' && retention_goes_on(option, p + 1))) {
			*out++ = c;
			continue;
		}
		*out++ = '\0';
		code = *option ? set_one(o, option) : EXIT_DONE;
		if (code != EXIT_DONE || c == '\0')
			return code;
		option = out = p + 1;
	}
}

int mount_options_check(const struct mount_options *o)
{
	if ((o->fs.suid || o->fs.dev) && geteuid() != 0)
		return cli_error(EXIT_DENIED,
				 "option %s is root's to give: a mount is nosuid and nodev else",
				 o->fs.suid ? "suid" : "dev");
	if (o->volume.take_over && o->volume.read_only)
		return cli_error(EXIT_USAGE,
				 "option take-over is for a mount that writes: leave ro out, "
				 "or take-over");
	if (o->volume.at_epoch && !o->volume.read_only)
		return cli_error(
			EXIT_USAGE,
			"option epoch=%llu shows a past epoch: give ro with it (-o ro,epoch=%llu), "
			"or roll back with `epochfs rollback`",
			(unsigned long long)o->volume.at_epoch,
			(unsigned long long)o->volume.at_epoch);
	return EXIT_DONE;
}

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
#define FLAG(text, how, member)                                                                    \
	{                                                                                          \
		.name = (text), .value = "", .expected = text " takes no value", .kind = (how),    \
		MEMBER(member)                                                                     \
	}
#define IGNORED(text)                                                                              \
	{                                                                                          \
		.name = (text), .kind = OPTION_IGNORED                                             \
	}
/* With a value, from -o and from the environment. */
#define VALUE(text, how, looks, ...)                                                               \
	{                                                                                          \
		.name = (text), .value = (looks), .kind = (how), .environment = true, __VA_ARGS__  \
	}
#define SPECIAL(text, looks, fn, ...) VALUE(text, OPTION_SPECIAL, looks, .set = (fn), __VA_ARGS__)

static const char *const local_or_remote[] = {"local", "remote", NULL};
static const char *const error_or_wait[] = {"error", "wait", NULL};
static const char *const on_or_off[] = {"on", "off", NULL};
static const char *const auto_on_off[] = {[FS_PASSTHROUGH_AUTO] = "auto",
					  [FS_PASSTHROUGH_ON] = "on",
					  [FS_PASSTHROUGH_OFF] = "off",
					  NULL};

const struct option_row mount_option_table[] = {
	FLAG("ro", OPTION_SET, volume.read_only),
	VALUE("epoch", OPTION_NUMBER, "N", MEMBER(volume.at_epoch), .least = 1,
	      .expected = "an epoch's number, from 1"),
	VALUE("cache-dir", OPTION_PATH, "DIR", MEMBER(volume.cache_dir),
	      .expected = "an absolute path"),
	VALUE("cache-size", OPTION_SIZE, "SIZE", MEMBER(volume.cache_size),
	      .expected = "a size, such as 200G"),
	VALUE("min-free", OPTION_COUNT, "PERCENT", MEMBER(volume.min_free_percent), .most = 99,
	      .percent = true, .expected = "a percentage from 0 to 99"),
	VALUE("settle", OPTION_DURATION, "TIME", MEMBER(volume.settle_ns),
	      .expected = "a time, such as 5s"),
	VALUE("patience", OPTION_DURATION, "TIME", MEMBER(volume.patience_ns),
	      .expected = "a time, such as 60s"),
	VALUE("grace", OPTION_DURATION, "TIME", MEMBER(fs.grace_ns),
	      .expected = "a time, such as 25s"),
	VALUE("full", OPTION_CHOICE, "wait|error", MEMBER(volume.full_wait), .is_bool = true,
	      .choices = error_or_wait, .expected = "wait or error"),
	VALUE("durability", OPTION_CHOICE, "local|remote", MEMBER(volume.durable_close),
	      .is_bool = true, .choices = local_or_remote, .expected = "local or remote"),
	VALUE("temporary", OPTION_GLOB, "GLOB", MEMBER(volume.temporary)),
	SPECIAL("marker", "GLOB|none", set_marker),
	VALUE("log", OPTION_GLOB, "GLOB", MEMBER(volume.log)),
	SPECIAL("step", "REGEX", set_step),
	VALUE("node", OPTION_TEXT, "NAME", MEMBER(volume.node), .least = 1, .expected = "a name"),
	SPECIAL("nodes", "N|auto", mount_options_set_nodes),
	VALUE("run-id", OPTION_TEXT, "ID", MEMBER(volume.run_id), .least = 1, .expected = "a name"),
	VALUE("run", OPTION_TEXT, "ID", MEMBER(volume.run_id), .least = 1, .expected = "a name"),
	VALUE("message", OPTION_TEXT, "TEXT", MEMBER(volume.message)),
	VALUE("db-type", OPTION_TEXT, "NAME", MEMBER(volume.db_type), .least = 1,
	      .expected = "a name"),
	VALUE("on-epoch", OPTION_TEXT, "PROGRAM", MEMBER(volume.on_epoch), .least = 1,
	      .expected = "a program"),
	VALUE("on-epoch-timeout", OPTION_DURATION, "TIME", MEMBER(volume.on_epoch_timeout_ns),
	      .least = ON_EPOCH_TIMEOUT_MIN_NS, .expected = "a time from 100ms"),
	VALUE("catalog", OPTION_PATH, "FILE", MEMBER(volume.catalog_db),
	      .expected = "an absolute path"),
	SPECIAL("keep", "POLICY", set_keep),
	VALUE("gc", OPTION_CHOICE, "on|off", MEMBER(volume.gc_off), .is_bool = true,
	      .choices = on_or_off, .expected = "on or off"),
	VALUE("gc-grace", OPTION_DURATION, "TIME", MEMBER(volume.gc_grace_ns),
	      .expected = "a time such as 24h"),
	VALUE("threads", OPTION_COUNT, "N", MEMBER(volume.threads), .most = 256,
	      .expected = "a number from 1 to 256, or 0 for one a core"),
	VALUE("connections", OPTION_COUNT, "N", MEMBER(volume.limits.connections), .least = 1,
	      .most = 256, .limit = true, .expected = "a number from 1 to 256"),
	VALUE("upload-ahead", OPTION_SIZE, "SIZE", MEMBER(volume.upload_ahead),
	      .expected = "a size, such as 32M; 0: never"),
	SPECIAL("upload-limit", "RATE", set_upload_limit, .limit = true),
	SPECIAL("download-limit", "RATE", set_download_limit, .limit = true),
	VALUE("timeout", OPTION_DURATION, "TIME", MEMBER(volume.limits.stall_timeout_ns),
	      .least = 1, .limit = true, .expected = "a time, such as 30s"),
	SPECIAL("passphrase-file", "FILE", set_passphrase_file, .limit = true),
	SPECIAL("key-file", "FILE", set_key_file, .limit = true),
	VALUE("lease", OPTION_DURATION, "TIME", MEMBER(volume.lease_ns), .least = LEASE_MIN_NS,
	      .most = LEASE_MAX_NS, .expected = "a time from 1s to 1h"),
	FLAG("take-over", OPTION_SET, volume.take_over),
	VALUE("resume", OPTION_SWITCH, "", MEMBER(volume.resume), .expected = "on or off"),
	VALUE("refresh", OPTION_DURATION, "TIME", MEMBER(volume.refresh_ns),
	      .least = REFRESH_MIN_NS, .expected = "a time from 100ms"),
	VALUE("passthrough", OPTION_CHOICE, "auto|on|off", MEMBER(fs.passthrough),
	      .choices = auto_on_off, .expected = "auto, on or off"),
	VALUE("supervise", OPTION_SWITCH, "", MEMBER(supervise), .expected = "on or off"),
	VALUE("log-file", OPTION_PATH, "FILE", MEMBER(log_file), .expected = "an absolute path"),
	SPECIAL("log-level", "error|warning|info|debug", set_log_level),
	FLAG("allow_other", OPTION_SET, fs.allow_other),
	FLAG("nonempty", OPTION_SET, nonempty),
	FLAG("noexec", OPTION_SET, fs.noexec),
	FLAG("suid", OPTION_SET, fs.suid),
	FLAG("nosuid", OPTION_CLEARED, fs.suid),
	FLAG("dev", OPTION_SET, fs.dev),
	FLAG("nodev", OPTION_CLEARED, fs.dev),
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

/* ---- the help ---- */

#define HELP_COLUMNS 100

void mount_option_help(FILE *out)
{
	size_t column = HELP_COLUMNS;
	const char *before = "";

	for (size_t i = 0; i < mount_option_count; i++) {
		const struct option_row *row = &mount_option_table[i];
		char word[64];
		size_t len;

		if (!row->value)
			continue;
		len = (size_t)snprintf(word, sizeof(word), "%s%s%s", row->name,
				       *row->value ? "=" : "", row->value);
		/* A comma before it, and one behind. */
		if (column + len + 3 > HELP_COLUMNS) {
			fprintf(out, "%s\n ", *before ? "," : "");
			column = 1;
			before = "";
		}
		fprintf(out, "%s %s", before, word);
		column += len + strlen(before) + 1;
		before = ",";
	}
	fputc('\n', out);
}
