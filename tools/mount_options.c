/* SPDX-License-Identifier: Apache-2.0 */
/* The table of mount options, and reading them. */
#include "tools/mount_options.h"

#include <ctype.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/log.h"
#include "lib/util/parse.h"
#include "lib/volume/keep.h"
#include "tools/cli.h"

/* Sets the option from its text ("" where none was given): NULL, or what a right value looks like. */
typedef const char *(*option_fn)(struct mount_options *o, const char *value);

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

static const char *set_ro(struct mount_options *o, const char *value)
{
	o->volume.read_only = true;
	return *value ? "ro takes no value" : NULL;
}

static const char *set_epoch(struct mount_options *o, const char *value)
{
	return parse_u64(value, &o->volume.at_epoch) || !o->volume.at_epoch
		       ? "an epoch's number, from 1"
		       : NULL;
}

static const char *set_cache_dir(struct mount_options *o, const char *value)
{
	o->volume.cache_dir = value;
	return value[0] == '/' ? NULL : "an absolute path";
}

static const char *set_cache_size(struct mount_options *o, const char *value)
{
	return parse_size(value, &o->volume.cache_size) ? "a size, such as 200G" : NULL;
}

static const char *set_min_free(struct mount_options *o, const char *value)
{
	char number[8];
	size_t len = strlen(value);
	uint64_t percent;

	if (len && value[len - 1] == '%')
		len--;
	if (len >= sizeof(number))
		return "a percentage from 0 to 99";
	memcpy(number, value, len);
	number[len] = '\0';
	if (parse_u64(number, &percent) || percent > 99)
		return "a percentage from 0 to 99";
	o->volume.min_free_percent = (unsigned)percent;
	return NULL;
}

static const char *set_settle(struct mount_options *o, const char *value)
{
	return parse_duration(value, &o->volume.settle_ns) ? "a time, such as 5s" : NULL;
}

static const char *set_patience(struct mount_options *o, const char *value)
{
	return parse_duration(value, &o->volume.patience_ns) ? "a time, such as 60s" : NULL;
}

static const char *set_full(struct mount_options *o, const char *value)
{
	o->volume.full_wait = !strcmp(value, "wait");
	return o->volume.full_wait || !strcmp(value, "error") ? NULL : "wait or error";
}

static const char *set_durability(struct mount_options *o, const char *value)
{
	o->volume.durable_close = !strcmp(value, "remote");
	return o->volume.durable_close || !strcmp(value, "local") ? NULL : "local or remote";
}

static const char *add_glob(struct globs *globs, const char *value)
{
	if (!*value)
		return "a shell pattern";
	if (globs->count == GLOBS_MAX)
		return "at most 64 patterns";
	globs->pattern[globs->count++] = value;
	return NULL;
}

static const char *set_temporary(struct mount_options *o, const char *value)
{
	return add_glob(&o->volume.temporary, value);
}

static const char *set_marker(struct mount_options *o, const char *value)
{
	return add_glob(&o->volume.marker, value);
}

static const char *set_log(struct mount_options *o, const char *value)
{
	return add_glob(&o->volume.log, value);
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

static const char *set_node(struct mount_options *o, const char *value)
{
	o->volume.node = value;
	return *value ? NULL : "a name";
}

static const char *set_run_id(struct mount_options *o, const char *value)
{
	o->volume.run_id = value;
	return *value ? NULL : "a name";
}

static const char *set_db_type(struct mount_options *o, const char *value)
{
	o->volume.db_type = value;
	return *value ? NULL : "a name";
}

static const char *set_message(struct mount_options *o, const char *value)
{
	o->volume.message = value;
	return NULL;
}

static const char *set_on_epoch(struct mount_options *o, const char *value)
{
	o->volume.on_epoch = value;
	return *value ? NULL : "a program";
}

static const char *set_on_epoch_timeout(struct mount_options *o, const char *value)
{
	int64_t *ns = &o->volume.on_epoch_timeout_ns;

	return parse_duration(value, ns) || *ns < ON_EPOCH_TIMEOUT_MIN_NS ? "a time from 100ms"
									  : NULL;
}

static const char *set_catalog(struct mount_options *o, const char *value)
{
	o->volume.catalog_db = value;
	return value[0] == '/' ? NULL : "an absolute path";
}

static const char *set_keep(struct mount_options *o, const char *value)
{
	struct keep_policy policy;
	char why[KEEP_WHY_MAX];

	o->volume.keep = value;
	if (!keep_parse(value, &policy, why))
		return NULL;
	value = mount_options_keep(o, why);
	return value ? value : "a policy";
}

static const char *set_threads(struct mount_options *o, const char *value)
{
	uint64_t threads;

	if (parse_u64(value, &threads) || threads > 256)
		return "a number from 1 to 256, or 0 for one a core";
	o->volume.threads = (unsigned)threads;
	return NULL;
}

static const char *set_lease(struct mount_options *o, const char *value)
{
	return parse_duration(value, &o->volume.lease_ns) || o->volume.lease_ns < LEASE_MIN_NS ||
			       o->volume.lease_ns > LEASE_MAX_NS
		       ? "a time from 1s to 1h"
		       : NULL;
}

static const char *set_take_over(struct mount_options *o, const char *value)
{
	o->volume.take_over = true;
	return *value ? "take-over takes no value" : NULL;
}

static const char *set_refresh(struct mount_options *o, const char *value)
{
	return parse_duration(value, &o->volume.refresh_ns) || o->volume.refresh_ns < REFRESH_MIN_NS
		       ? "a time from 100ms"
		       : NULL;
}

static const char *set_connections(struct mount_options *o, const char *value)
{
	uint64_t connections;

	if (parse_u64(value, &connections) || connections < 1 || connections > 256)
		return "a number from 1 to 256";
	o->volume.limits.connections = (unsigned)connections;
	return NULL;
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

static const char *set_timeout(struct mount_options *o, const char *value)
{
	int64_t *ns = &o->volume.limits.stall_timeout_ns;

	return parse_duration(value, ns) || *ns <= 0 ? "a time, such as 30s" : NULL;
}

static const char *set_passthrough(struct mount_options *o, const char *value)
{
	static const struct {
		const char *name;
		enum fs_passthrough mode;
	} modes[] = {{"auto", FS_PASSTHROUGH_AUTO},
		     {"on", FS_PASSTHROUGH_ON},
		     {"off", FS_PASSTHROUGH_OFF}};

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(value, modes[i].name)) {
			o->fs.passthrough = modes[i].mode;
			return NULL;
		}
	return "auto, on or off";
}

static const char *set_allow_other(struct mount_options *o, const char *value)
{
	o->fs.allow_other = true;
	return *value ? "allow_other takes no value" : NULL;
}

static const char *set_nonempty(struct mount_options *o, const char *value)
{
	o->nonempty = true;
	return *value ? "nonempty takes no value" : NULL;
}

static const char *set_log_file(struct mount_options *o, const char *value)
{
	o->log_file = value;
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

static const char *set_noexec(struct mount_options *o, const char *value)
{
	o->fs.noexec = true;
	return *value ? "noexec takes no value" : NULL;
}

/* What fstab and mount(8) pass and the mount either always does or need not know. */
static const char *ignore(struct mount_options *o, const char *value)
{
	(void)o;
	(void)value;
	return NULL;
}

static const struct option_row {
	const char *name;
	option_fn set;
	bool environment; /* EPOCHFS_NAME sets it too */
} option_table[] = {
	{"ro", set_ro, false},
	{"epoch", set_epoch, true},
	{"cache-dir", set_cache_dir, true},
	{"cache-size", set_cache_size, true},
	{"min-free", set_min_free, true},
	{"settle", set_settle, true},
	{"patience", set_patience, true},
	{"full", set_full, true},
	{"durability", set_durability, true},
	{"temporary", set_temporary, true},
	{"marker", set_marker, true},
	{"log", set_log, true},
	{"step", set_step, true},
	{"node", set_node, true},
	{"nodes", mount_options_set_nodes, true},
	{"run-id", set_run_id, true},
	{"run", set_run_id, true},
	{"message", set_message, true},
	{"db-type", set_db_type, true},
	{"on-epoch", set_on_epoch, true},
	{"on-epoch-timeout", set_on_epoch_timeout, true},
	{"catalog", set_catalog, true},
	{"keep", set_keep, true},
	{"threads", set_threads, true},
	{"connections", set_connections, true},
	{"upload-limit", set_upload_limit, true},
	{"download-limit", set_download_limit, true},
	{"timeout", set_timeout, true},
	{"lease", set_lease, true},
	{"take-over", set_take_over, false},
	{"refresh", set_refresh, true},
	{"passthrough", set_passthrough, true},
	{"log-file", set_log_file, true},
	{"log-level", set_log_level, true},
	{"allow_other", set_allow_other, false},
	{"nonempty", set_nonempty, false},
	{"noexec", set_noexec, false},
	{"rw", ignore, false},
	{"defaults", ignore, false},
	{"auto", ignore, false},
	{"noauto", ignore, false},
	{"nofail", ignore, false},
	{"_netdev", ignore, false},
	{"user", ignore, false},
	{"users", ignore, false},
	{"nouser", ignore, false},
	{"nosuid", ignore, false},
	{"nodev", ignore, false},
	{"exec", ignore, false},
	{"async", ignore, false},
	{"noatime", ignore, false}, /* access times are not kept */
	{"relatime", ignore, false},
	{"nodiratime", ignore, false},
};
#define OPTION_COUNT (sizeof(option_table) / sizeof(option_table[0]))

void mount_options_init(struct mount_options *o)
{
	*o = (struct mount_options){0};
	volume_options_init(&o->volume);
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
	expected = row->set(o, value);
	if (expected)
		return cli_error(EXIT_USAGE, "environment %s=%s: expected %s", name, value,
				 expected);
	return EXIT_DONE;
}

int mount_options_environment(struct mount_options *o)
{
	int code = EXIT_DONE;

	for (size_t i = 0; i < OPTION_COUNT && code == EXIT_DONE; i++)
		if (option_table[i].environment)
			code = from_environment(o, &option_table[i]);
	return code;
}

static bool is_limit(const struct option_row *row)
{
	return row->set == set_connections || row->set == set_upload_limit ||
	       row->set == set_download_limit || row->set == set_timeout;
}

int mount_options_limits(struct remote_limits *ret_limits)
{
	struct mount_options o;
	int code = EXIT_DONE;

	mount_options_init(&o);
	for (size_t i = 0; i < OPTION_COUNT && code == EXIT_DONE; i++)
		if (is_limit(&option_table[i]))
			code = from_environment(&o, &option_table[i]);
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
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (strcmp(option_table[i].name, option))
			continue;
		expected = option_table[i].set(o, value ? value : "");
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
		if ((c != ',' && c != '\0') || (c == ',' && keep_goes_on(option, p + 1))) {
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
