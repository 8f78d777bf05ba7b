/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring without a mount: untrusted trees and directories, what one damaged file does. */
#include "lib/admin/catalog_internal.h"

#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "lib/format/xattrs.h"

#include "lib/net/open.h"
#include "tests/unit/export_unit.h"

#define NOBODY 65534

/* ---- enemies ---- */

START_TEST(no_symlink_is_followed_on_the_way)
{
	cleanup_free char *outside = unit_dir();

	/* The first epoch plants a symlink, the second has a directory of that name. */
	made_begin(&made);
	made_add(&made, 1, "out", link_to(outside));
	made_end(&made, whole);
	made_begin(&made);
	made_dir(&made, 1, "out");
	made_dir(&made, 2, "deep");
	made_add(&made, 3, "evil", made_inline("evil"));
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	unit_error(restore_epoch(2, (struct catalog_export){.force = true}), -EEXIST);
	ck_assert_uint_eq(failed, 2); /* `out` and the file; `deep` is said with `out` */
	ck_assert_int_eq(rmdir(outside), 0);
}
END_TEST

START_TEST(a_symlink_in_the_place_of_a_file_is_replaced_not_followed)
{
	cleanup_free char *outside = unit_dir(), *victim = unit_path(outside, "victim");
	cleanup_buf struct buf found = {0};

	unit_ok(io_replace_file(AT_FDCWD, victim, "safe", 4));
	ck_assert_int_eq(symlinkat(victim, to, "file"), 0);
	made_epoch(&made, whole);
	unit_error(restore_epoch(1, (struct catalog_export){.path = ""}), -EEXIST);
	unit_ok(restore_epoch(1, (struct catalog_export){.force = true}));
	ck_assert_uint_eq(stat_of("file").st_mode & S_IFMT, S_IFREG);
	holds_text("file", "text");
	unit_ok(io_read_file(AT_FDCWD, victim, 100, &found));
	unit_same_bytes(found.data, found.len, "safe", 4);
}
END_TEST

/* For the rest of this test's process. */
static void become_nobody(void)
{
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(fchown(to, NOBODY, NOBODY), 0);
	ck_assert_int_eq(setgroups(0, NULL), 0);
	ck_assert_int_eq(setgid(NOBODY), 0);
	ck_assert_int_eq(setuid(NOBODY), 0);
	/* Else /proc/self is root's from here on. */
	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
}

static void make_privileged_epoch(void)
{
	struct tree_entry e = made_inline("#!"), further = {.group = 1};
	cleanup_buf struct buf attributes = {0};

	e.mode = 06755;
	e.uid = 123;
	e.gid = 456;
	unit_ok(xattrs_set(&attributes, "trusted.mine", "x", 1));
	e.xattrs = attributes.data;
	e.xattrs_len = attributes.len;
	made_begin(&made);
	made_add(&made, 1, "device",
		 (struct tree_entry){
			 .type = TREE_CHAR, .rdev_major = 1, .rdev_minor = 3, .group = 1});
	made_add(&made, 1, "program", e);
	further.type = TREE_CHAR;
	made_add(&made, 1, "same device", further);
	made_end(&made, whole);
}

START_TEST(root_gives_setuid_and_devices_where_it_is_asked_to)
{
	struct stat st;

	if (geteuid() != 0)
		unit_skip("only root is given owners and devices");
	make_privileged_epoch();
	unit_ok(restore_epoch(1, (struct catalog_export){.privileged = true}));
	st = stat_of("program");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 06755);
	ck_assert_uint_eq(st.st_uid, 123);
	ck_assert_uint_eq(st.st_gid, 456);
	st = stat_of("device");
	ck_assert_uint_eq(st.st_mode & S_IFMT, S_IFCHR);
	ck_assert_uint_eq(major(st.st_rdev), 1);
	ck_assert_uint_eq(minor(st.st_rdev), 3);
	ck_assert_uint_eq(stat_of("same device").st_ino, st.st_ino);
}
END_TEST

START_TEST(root_gives_owners_and_nothing_that_lends_rights)
{
	char value[16];
	struct stat st;

	if (geteuid() != 0)
		unit_skip("only root is given owners and devices");
	make_privileged_epoch();
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	ck_assert_uint_eq(failed, 0);
	st = stat_of("program");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0755);
	ck_assert_uint_eq(st.st_uid, 123);
	ck_assert_uint_eq(st.st_gid, 456);
	ck_assert_int_eq(fchdir(to), 0);
	ck_assert_int_lt(lgetxattr("program", "trusted.mine", value, sizeof(value)), 0);
	ck_assert(!is_there("device") && !is_there("same device"));
	ck_assert_int_eq(count_names("."), 1);
}
END_TEST

START_TEST(others_get_no_setuid_and_no_devices)
{
	struct stat st;

	make_privileged_epoch();
	become_nobody();
	/* What they cannot have is left out, whatever they ask for. */
	unit_ok(restore_epoch(1, (struct catalog_export){.privileged = true}));
	ck_assert_uint_eq(failed, 0);
	st = stat_of("program");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0755);
	ck_assert_uint_eq(st.st_uid, geteuid());
	holds_text("program", "#!");
	ck_assert(!is_there("device"));
	ck_assert_int_eq(count_names("."), 1);
}
END_TEST

/* ---- damage ---- */

START_TEST(a_damaged_file_fails_alone)
{
	make_three();
	damage_content(made.f.remote, a_bytes, 1000);
	unit_error(restore_epoch(1, (struct catalog_export){.threads = 3}), -EBADMSG);
	ck_assert_uint_eq(failed, 1);
	ck_assert(!is_there("model/a"));
	holds("model/b", b_bytes, BIG + 777);
	holds_text("top", "small");
	ck_assert_int_eq(count_names("model"), 1);
	free_three();
}
END_TEST

START_TEST(what_is_there_stays_where_the_new_file_is_damaged)
{
	make_three();
	ck_assert_int_eq(mkdirat(to, "model", 0700), 0);
	put_text("model/a", "old");
	damage_content(made.f.remote, a_bytes, 1000);
	unit_error(restore_epoch(1, (struct catalog_export){.force = true}), -EBADMSG);
	holds_text("model/a", "old");
	ck_assert_int_eq(count_names("model"), 2);
	free_three();
}
END_TEST

START_TEST(links_to_a_damaged_file_fail_too)
{
	uint8_t *data = random_content(BIG, 4);
	struct tree_entry e, further = {.group = 1};

	made_begin(&made);
	e = made_content(&made, data, BIG);
	e.group = 1;
	made_add(&made, 1, "first", e);
	made_add(&made, 1, "second", further);
	made_end(&made, whole);
	damage_content(made.f.remote, data, 1000);
	put_text("first", "old");
	unit_error(restore_epoch(1, (struct catalog_export){.force = true}), -EBADMSG);
	ck_assert_uint_eq(failed, 2);
	holds_text("first", "old");
	ck_assert(!is_there("second"));
	free(data);
}
END_TEST

START_TEST(a_lost_pack_fails_what_lies_in_it)
{
	struct key_list packs;

	make_three(); /* the tree of the second epoch lies in a pack of its own */
	packs = list_keys(made.f.remote, PREFIX_PACKS);
	made_begin(&made);
	made_dir(&made, 1, "model");
	made_add(&made, 2, "a", made_content(&made, a_bytes, BIG));
	made_add(&made, 1, "top", made_inline("other"));
	made_end(&made, whole);
	for (size_t i = 0; i < packs.count; i++)
		unit_ok(remote_delete(made.f.remote, packs.keys[i]));
	unit_error(restore_epoch(2, (struct catalog_export){.path = ""}), -EBADMSG);
	ck_assert_uint_eq(failed, 1);
	ck_assert(!is_there("model/a"));
	holds_text("top", "other");
	free_three();
}
END_TEST

/* The remote fails when files are read; what is not tried counts as failed. */
START_TEST(a_remote_that_goes_away_ends_it)
{
	const struct remote_retry_policy once = {.max_tries = 1};
	struct catalog_export how = {.path = "", .to_fd = to, .threads = 1};
	struct remote *inner;
	struct key_list packs;
	struct catalog *c;
	char url[KEY_MAX + 64];

	make_three();
	packs = list_keys(made.f.remote, PREFIX_PACKS);
	ck_assert_uint_eq(packs.count, 1);
	made_begin(&made);
	made_add(&made, 1, "a", made_content(&made, a_bytes, BIG));
	made_add(&made, 1, "b", made_content(&made, b_bytes, BIG + 777));
	made_end(&made, whole);
	snprintf(url, sizeof(url), "fault+memory:t?get.error=1&only=%s", packs.keys[0]);
	c = catalog_at(url);
	remote_close(c->remote);
	unit_ok(remote_open(url, &inner));
	unit_ok(remote_retry_new(inner, &once, &c->remote));
	unit_error(catalog_export(c, 2, &how, &failed), -EHOSTUNREACH);
	ck_assert_uint_eq(failed, 2);
	ck_assert_int_eq(count_names("."), 0);
	catalog_close(c);
	free_three();
}
END_TEST

START_TEST(a_disk_that_refuses_fails_the_file_and_nothing_else)
{
	const struct rlimit limit = {100 * KIB, 100 * KIB};

	make_three();
	/* A limit on the size of files stands for a disk that refuses. */
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	unit_error(restore_epoch(1, (struct catalog_export){.path = ""}), -EFBIG);
	ck_assert_uint_eq(failed, 2);
	holds_text("top", "small");
	ck_assert_int_eq(count_names("model"), 0);
	free_three();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admin_export_hostile");
	TCase *enemies = unit_case(s, "enemies"), *damaged = unit_case(s, "damage");

	tcase_add_checked_fixture(enemies, setup, teardown);
	tcase_add_checked_fixture(damaged, setup, teardown);
	tcase_add_test(enemies, no_symlink_is_followed_on_the_way);
	tcase_add_test(enemies, a_symlink_in_the_place_of_a_file_is_replaced_not_followed);
	tcase_add_test(enemies, root_gives_setuid_and_devices_where_it_is_asked_to);
	tcase_add_test(enemies, root_gives_owners_and_nothing_that_lends_rights);
	tcase_add_test(enemies, others_get_no_setuid_and_no_devices);
	tcase_add_test(damaged, a_damaged_file_fails_alone);
	tcase_add_test(damaged, what_is_there_stays_where_the_new_file_is_damaged);
	tcase_add_test(damaged, links_to_a_damaged_file_fail_too);
	tcase_add_test(damaged, a_lost_pack_fails_what_lies_in_it);
	tcase_add_test(damaged, a_remote_that_goes_away_ends_it);
	tcase_add_test(damaged, a_disk_that_refuses_fails_the_file_and_nothing_else);
	return unit_run(s);
}
