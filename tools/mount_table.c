/* SPDX-License-Identifier: Apache-2.0 */
/* What each mount option means. */
#include "tools/mount_table.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/meta/keep.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"

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

static const char *set_grace(struct mount_options *o, const char *value)
{
	return parse_duration(value, &o->fs.grace_ns) ? "a time, such as 25s" : NULL;
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
	if (!strcmp(value, "none")) {
		o->volume.no_last_files = true;
		return NULL;
	}
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

static const char *set_gc(struct mount_options *o, const char *value)
{
	o->volume.gc_off = !strcmp(value, "off");
	return o->volume.gc_off || !strcmp(value, "on") ? NULL : "on or off";
}

static const char *set_gc_grace(struct mount_options *o, const char *value)
{
	return parse_duration(value, &o->volume.gc_grace_ns) || o->volume.gc_grace_ns < 0
		       ? "a time such as 24h"
		       : NULL;
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

static const char *set_resume(struct mount_options *o, const char *value)
{
	o->volume.resume = !strcmp(value, "") || !strcmp(value, "on");
	return o->volume.resume || !strcmp(value, "off") ? NULL : "on or off";
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

static const char *set_upload_ahead(struct mount_options *o, const char *value)
{
	return parse_size(value, &o->volume.upload_ahead) ? "a size, such as 32M; 0: never" : NULL;
}

static const char *set_timeout(struct mount_options *o, const char *value)
{
	int64_t *ns = &o->volume.limits.stall_timeout_ns;

	return parse_duration(value, ns) || *ns <= 0 ? "a time, such as 30s" : NULL;
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

static const char *set_supervise(struct mount_options *o, const char *value)
{
	o->supervise = !*value || !strcmp(value, "on");
	return o->supervise || !strcmp(value, "off") ? NULL : "on or off";
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

static const char *set_suid(struct mount_options *o, const char *value)
{
	o->fs.suid = true;
	return *value ? "suid takes no value" : NULL;
}

static const char *set_nosuid(struct mount_options *o, const char *value)
{
	o->fs.suid = false;
	return *value ? "nosuid takes no value" : NULL;
}

static const char *set_dev(struct mount_options *o, const char *value)
{
	o->fs.dev = true;
	return *value ? "dev takes no value" : NULL;
}

static const char *set_nodev(struct mount_options *o, const char *value)
{
	o->fs.dev = false;
	return *value ? "nodev takes no value" : NULL;
}

/* What fstab and mount(8) pass and the mount either always does or need not know. */
static const char *ignore(struct mount_options *o, const char *value)
{
	(void)o;
	(void)value;
	return NULL;
}

const struct option_row mount_option_table[] = {
	{"ro", set_ro, false, false},
	{"epoch", set_epoch, true, false},
	{"cache-dir", set_cache_dir, true, false},
	{"cache-size", set_cache_size, true, false},
	{"min-free", set_min_free, true, false},
	{"settle", set_settle, true, false},
	{"patience", set_patience, true, false},
	{"grace", set_grace, true, false},
	{"full", set_full, true, false},
	{"durability", set_durability, true, false},
	{"temporary", set_temporary, true, false},
	{"marker", set_marker, true, false},
	{"log", set_log, true, false},
	{"step", set_step, true, false},
	{"node", set_node, true, false},
	{"nodes", mount_options_set_nodes, true, false},
	{"run-id", set_run_id, true, false},
	{"run", set_run_id, true, false},
	{"message", set_message, true, false},
	{"db-type", set_db_type, true, false},
	{"on-epoch", set_on_epoch, true, false},
	{"on-epoch-timeout", set_on_epoch_timeout, true, false},
	{"catalog", set_catalog, true, false},
	{"keep", set_keep, true, false},
	{"gc", set_gc, true, false},
	{"gc-grace", set_gc_grace, true, false},
	{"threads", set_threads, true, false},
	{"connections", set_connections, true, true},
	{"upload-ahead", set_upload_ahead, true, false},
	{"upload-limit", set_upload_limit, true, true},
	{"download-limit", set_download_limit, true, true},
	{"timeout", set_timeout, true, true},
	{"passphrase-file", set_passphrase_file, true, true},
	{"key-file", set_key_file, true, true},
	{"lease", set_lease, true, false},
	{"take-over", set_take_over, false, false},
	{"resume", set_resume, true, false},
	{"refresh", set_refresh, true, false},
	{"passthrough", set_passthrough, true, false},
	{"supervise", set_supervise, true, false},
	{"log-file", set_log_file, true, false},
	{"log-level", set_log_level, true, false},
	{"allow_other", set_allow_other, false, false},
	{"nonempty", set_nonempty, false, false},
	{"noexec", set_noexec, false, false},
	{"suid", set_suid, false, false},
	{"nosuid", set_nosuid, false, false},
	{"dev", set_dev, false, false},
	{"nodev", set_nodev, false, false},
	{"rw", ignore, false, false},
	{"defaults", ignore, false, false},
	{"auto", ignore, false, false},
	{"noauto", ignore, false, false},
	{"nofail", ignore, false, false},
	{"_netdev", ignore, false, false},
	{"user", ignore, false, false},
	{"users", ignore, false, false},
	{"nouser", ignore, false, false},
	{"exec", ignore, false, false},
	{"async", ignore, false, false},
	{"noatime", ignore, false, false}, /* access times are not kept */
	{"relatime", ignore, false, false},
	{"nodiratime", ignore, false, false},
};
const size_t mount_option_count = sizeof(mount_option_table) / sizeof(mount_option_table[0]);
