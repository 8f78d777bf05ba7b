/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a mount and of commands on a remote: what limits the network. */
#include "tools/mount_options.h"

#include <sys/stat.h>

#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "tests/unit/unit.h"
#include "tools/cli.h"

/* NULL, or what a right value looks like. */
static const char *try_option(const char *name, const char *value)
{
	static struct mount_options o;
	const char *expected = "a row";

	mount_options_free(&o);
	mount_options_init(&o);
	for (size_t i = 0; i < mount_option_count; i++)
		if (!strcmp(mount_option_table[i].name, name))
			expected = mount_option_set(&mount_option_table[i], &o, value);
	return expected;
}

START_TEST(limits_come_from_the_command_line_over_the_environment)
{
	struct mount_options o;

	setenv("EPOCHFS_CONNECTIONS", "3", 1);
	setenv("EPOCHFS_UPLOAD_LIMIT", "1M", 1);
	mount_options_init(&o);
	ck_assert_uint_eq(o.volume.limits.connections, 0);
	ck_assert_int_eq(mount_options_environment(&o), EXIT_DONE);
	ck_assert_int_eq(mount_options_parse(&o, "upload-limit=20M,download-limit=1.5K\\,"),
			 EXIT_USAGE);
	ck_assert_int_eq(mount_options_parse(&o, "upload-limit=20M,download-limit=100K"),
			 EXIT_DONE);
	ck_assert_uint_eq(o.volume.limits.connections, 3);
	ck_assert_uint_eq(o.volume.limits.upload_rate, 20 << 20);
	ck_assert_uint_eq(o.volume.limits.download_rate, 100 << 10);
	mount_options_free(&o);
}
END_TEST

START_TEST(commands_take_limits_from_the_environment_and_nothing_else)
{
	struct remote_limits limits;

	setenv("EPOCHFS_SETTLE", "nonsense", 1);
	setenv("EPOCHFS_CONNECTIONS", "2", 1);
	setenv("EPOCHFS_DOWNLOAD_LIMIT", "50M", 1);
	ck_assert_int_eq(mount_options_limits(NULL, &limits), EXIT_DONE);
	ck_assert_uint_eq(limits.connections, 2);
	ck_assert_uint_eq(limits.download_rate, 50 << 20);
	ck_assert_uint_eq(limits.upload_rate, 0);
	setenv("EPOCHFS_CONNECTIONS", "many", 1);
	ck_assert_int_eq(mount_options_limits(NULL, &limits), EXIT_USAGE);
}
END_TEST

static void write_config(const char *text)
{
	cleanup_free char *above = unit_dir();
	cleanup_free char *folder = unit_path(above, "epochfs");
	cleanup_free char *path = unit_path(folder, "config");
	cleanup_fclose FILE *f = NULL;

	ck_assert_int_eq(mkdir(folder, 0700), 0);
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fchmod(fileno(f), 0600);
	setenv("XDG_CONFIG_HOME", above, 1);
}

START_TEST(what_is_configured_and_counts_is_a_list_for_the_next_process)
{
	struct mount_options o, next;

	write_config("key-file = /run/key\nmessage = a, b\nlease = 2s\nlog = *.a\nlog = *.b\n");
	setenv("EPOCHFS_PASSPHRASE_FILE", "/run/passphrase", 1);
	setenv("EPOCHFS_LEASE", "3s", 1);
	setenv("EPOCHFS_LOG", "*.c", 1);
	mount_options_init(&o);
	ck_assert_int_eq(mount_options_defaults(&o, "s3://bucket/run7"), EXIT_DONE);
	ck_assert_str_eq(o.volume.limits.passphrase_file, "/run/passphrase");
	ck_assert_ptr_null(o.volume.limits.key_file);
	mount_options_init(&next);
	ck_assert_int_eq(mount_options_environment(&next), EXIT_DONE);
	ck_assert_int_eq(mount_options_parse(&next, mount_options_configured(&o)), EXIT_DONE);
	ck_assert_str_eq(next.volume.limits.passphrase_file, "/run/passphrase");
	ck_assert_str_eq(next.volume.message, "a, b");
	ck_assert_int_eq(next.volume.lease_ns, 3 * NS_PER_S);
	ck_assert_uint_eq(next.volume.log.count, 3);
	mount_options_free(&next);
	mount_options_free(&o);
}
END_TEST

START_TEST(commands_on_a_remote_have_its_limits_and_its_key)
{
	struct remote_limits limits;

	write_config(
		"[remote \"s3://bucket\"]\nconnections = 5\nkey-file = /run/key\nsettle = nonsense\n");
	ck_assert_int_eq(mount_options_limits("s3://bucket/run7", &limits), EXIT_DONE);
	ck_assert_uint_eq(limits.connections, 5);
	ck_assert_str_eq(limits.key_file, "/run/key");
	ck_assert_int_eq(mount_options_limits("s3://other/run7", &limits), EXIT_DONE);
	ck_assert_ptr_null(limits.key_file);
	setenv("EPOCHFS_PASSPHRASE_FILE", "/run/passphrase", 1);
	ck_assert_int_eq(mount_options_limits("s3://bucket/run7", &limits), EXIT_DONE);
	ck_assert_ptr_null(limits.key_file);
	ck_assert_str_eq(limits.passphrase_file, "/run/passphrase");
}
END_TEST

START_TEST(of_keys_the_last_one_counts)
{
	struct remote_limits limits;
	struct mount_options o;

	setenv("EPOCHFS_KEY_FILE", "/run/key", 1);
	mount_options_init(&o);
	ck_assert_int_eq(mount_options_environment(&o), EXIT_DONE);
	ck_assert_str_eq(o.volume.limits.key_file, "/run/key");
	ck_assert_int_eq(mount_options_parse(&o, "passphrase-file=/run/passphrase"), EXIT_DONE);
	ck_assert_str_eq(o.volume.limits.passphrase_file, "/run/passphrase");
	ck_assert_ptr_null(o.volume.limits.key_file);
	ck_assert_int_eq(mount_options_parse(&o, "key-file=relative"), EXIT_USAGE);
	mount_options_free(&o);
	/* What a command gets outlives the options that it was read by. */
	ck_assert_int_eq(mount_options_limits(NULL, &limits), EXIT_DONE);
	ck_assert_str_eq(limits.key_file, "/run/key");
	ck_assert_ptr_null(limits.passphrase_file);
}
END_TEST

START_TEST(limits_that_make_no_sense_are_usage_errors)
{
	static const char *const wrong[] = {"connections=0",  "connections=257",
					    "connections=",   "upload-limit=1K",
					    "upload-limit=x", "download-limit=-1"};
	struct mount_options o;

	mount_options_init(&o);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_int_eq(mount_options_parse(&o, wrong[i]), EXIT_USAGE);
	ck_assert_int_eq(mount_options_parse(&o, "upload-limit=0"), EXIT_DONE);
	mount_options_free(&o);
}
END_TEST

START_TEST(each_value_is_held_against_its_row)
{
	static const struct {
		const char *name, *good[3], *wrong[4];
	} rows[] = {
		{"ro", {""}, {"1"}},
		{"nosuid", {""}, {"yes"}},
		{"epoch", {"1", "18446744073709551615"}, {"0", "", "x"}},
		{"cache-dir", {"/c"}, {"c", ""}},
		{"cache-size", {"0", "200G"}, {"", "1X"}},
		{"min-free", {"0", "99", "10%"}, {"100", "", "%", "1%%"}},
		{"settle", {"0", "5s", "100ms"}, {"", "s", "-1s"}},
		{"gc-grace", {"0", "24h"}, {"-1h", ""}},
		{"full", {"wait", "error"}, {"", "on"}},
		{"durability", {"local", "remote"}, {"", "both"}},
		{"temporary", {"*.part"}, {""}},
		{"marker", {"none", "DONE"}, {""}},
		{"node", {"n1"}, {""}},
		{"message", {"", "text"}, {NULL}},
		{"on-epoch-timeout", {"100ms", "1h"}, {"99ms", "x"}},
		{"gc", {"on", "off"}, {"", "auto"}},
		{"threads", {"0", "256"}, {"257", "-1", "", "99999999999"}},
		{"timeout", {"1s"}, {"0", ""}},
		{"lease", {"1s", "1h"}, {"999ms", "3601s"}},
		{"refresh", {"100ms"}, {"99ms"}},
		{"resume", {"", "on", "off"}, {"yes"}},
		{"supervise", {"", "on", "off"}, {"no"}},
		{"passthrough", {"auto", "on", "off"}, {"", "yes"}},
		{"log-level", {"error", "debug"}, {"", "loud"}},
		{"noatime", {"", "whatever"}, {NULL}},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (size_t k = 0; k < 4 && rows[i].wrong[k]; k++)
			ck_assert_ptr_nonnull(try_option(rows[i].name, rows[i].wrong[k]));
		for (size_t k = 0; k < 3 && rows[i].good[k]; k++)
			ck_assert_ptr_null(try_option(rows[i].name, rows[i].good[k]));
	}
}
END_TEST

START_TEST(values_come_where_they_belong)
{
	struct mount_options o;

	mount_options_init(&o);
	ck_assert_int_eq(mount_options_parse(&o, "ro,suid,settle=2s,full=error,durability=remote,"
						 "gc=off,passthrough=off,min-free=7%,epoch=3"),
			 EXIT_DONE);
	ck_assert(o.volume.read_only && o.fs.suid && !o.volume.full_wait);
	ck_assert(o.volume.durable_close && o.volume.gc_off);
	ck_assert_int_eq(o.volume.settle_ns, 2 * NS_PER_S);
	ck_assert_int_eq(o.fs.passthrough, FS_PASSTHROUGH_OFF);
	ck_assert_uint_eq(o.volume.min_free_percent, 7);
	ck_assert_uint_eq(o.volume.at_epoch, 3);
	ck_assert_int_eq(mount_options_parse(&o, "nosuid,full=wait,gc=on,passthrough=on,resume,"
						 "durability=local,supervise,resume=off"),
			 EXIT_DONE);
	ck_assert(!o.fs.suid && o.volume.full_wait && !o.volume.gc_off && !o.volume.resume);
	ck_assert(!o.volume.durable_close && o.supervise);
	ck_assert_int_eq(o.fs.passthrough, FS_PASSTHROUGH_ON);
	mount_options_free(&o);
}
END_TEST

/* Whether a value makes no difference to the member that it sets. */
static bool is_what_counts_without(const struct option_row *row)
{
	struct mount_options without, given;
	const char *a = (const char *)&without + row->offset;
	const char *b = (const char *)&given + row->offset;
	bool same;

	mount_options_init(&without);
	mount_options_init(&given);
	ck_assert_ptr_null(mount_option_set(row, &given, row->by_default));
	switch (row->kind) {
	case OPTION_DURATION:
	case OPTION_SIZE:
		same = memcmp(a, b, sizeof(uint64_t)) == 0;
		break;
	case OPTION_CHOICE:
	case OPTION_SWITCH:
		same = memcmp(a, b,
			      row->kind == OPTION_SWITCH || row->is_bool ? sizeof(bool)
									 : sizeof(unsigned)) == 0;
		break;
	case OPTION_COUNT:
		same = memcmp(a, b, sizeof(unsigned)) == 0;
		break;
	default: /* what its own function sets */
		same = without.volume.limits.upload_rate == given.volume.limits.upload_rate &&
		       without.volume.limits.download_rate == given.volume.limits.download_rate;
	}
	mount_options_free(&without);
	mount_options_free(&given);
	return same;
}

START_TEST(the_table_says_what_each_option_means_and_what_counts_without_it)
{
	for (size_t i = 0; i < mount_option_count; i++) {
		const struct option_row *row = &mount_option_table[i];

		ck_assert_msg(!row->help == !row->value, "%s", row->name);
		ck_assert_msg(!row->value == (row->kind == OPTION_IGNORED), "%s", row->name);
		if (row->kind != OPTION_IGNORED && row->kind != OPTION_GLOB &&
		    row->kind != OPTION_SPECIAL)
			ck_assert_msg(row->expected || !row->least, "%s", row->name);
		/* Of these two 0 stands for it, until the remote is opened. */
		if (row->by_default && strcmp(row->name, "connections") != 0 &&
		    strcmp(row->name, "timeout") != 0)
			ck_assert_msg(is_what_counts_without(row), "%s=%s", row->name,
				      row->by_default);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tools_mount_options");
	TCase *t = unit_case(s, "limits");

	tcase_add_test(t, limits_come_from_the_command_line_over_the_environment);
	tcase_add_test(t, commands_take_limits_from_the_environment_and_nothing_else);
	tcase_add_test(t, limits_that_make_no_sense_are_usage_errors);
	tcase_add_test(t, of_keys_the_last_one_counts);
	tcase_add_test(t, what_is_configured_and_counts_is_a_list_for_the_next_process);
	tcase_add_test(t, commands_on_a_remote_have_its_limits_and_its_key);
	tcase_add_test(t, each_value_is_held_against_its_row);
	tcase_add_test(t, values_come_where_they_belong);
	tcase_add_test(t, the_table_says_what_each_option_means_and_what_counts_without_it);
	return unit_run(s);
}
