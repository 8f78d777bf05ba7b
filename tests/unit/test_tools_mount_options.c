/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a mount and of commands on a remote: what limits the network. */
#include "tools/mount_options.h"

#include "tests/unit/unit.h"
#include "tools/cli.h"

/* The table of subcommands is in the program's main file, which no test has. */
const struct command *command_find(const char *name)
{
	(void)name;
	return NULL;
}

void command_help(const struct command *c)
{
	(void)c;
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
	ck_assert_int_eq(mount_options_limits(&limits), EXIT_DONE);
	ck_assert_uint_eq(limits.connections, 2);
	ck_assert_uint_eq(limits.download_rate, 50 << 20);
	ck_assert_uint_eq(limits.upload_rate, 0);
	setenv("EPOCHFS_CONNECTIONS", "many", 1);
	ck_assert_int_eq(mount_options_limits(&limits), EXIT_USAGE);
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
	ck_assert_int_eq(mount_options_limits(&limits), EXIT_DONE);
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

int main(void)
{
	Suite *s = suite_create("tools_mount_options");
	TCase *t = unit_case(s, "limits");

	tcase_add_test(t, limits_come_from_the_command_line_over_the_environment);
	tcase_add_test(t, commands_take_limits_from_the_environment_and_nothing_else);
	tcase_add_test(t, limits_that_make_no_sense_are_usage_errors);
	tcase_add_test(t, of_keys_the_last_one_counts);
	return unit_run(s);
}
