/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree: looking names up, making, removing and listing them. */
#include "lib/live/live.h"

#include "tests/unit/live_unit.h"

/* ---- looking up ---- */

START_TEST(the_root_is_there)
{
	struct live_attr a = attr(ROOT_INO);
	uint64_t parent = 0;

	ck_assert_uint_eq(a.mode, S_IFDIR | 0755);
	ck_assert_uint_eq(a.uid, geteuid());
	ck_assert_uint_eq(a.nlink, 2);
	ck_assert_uint_eq(a.body, 0);
	unit_ok(live_parent(vol, ROOT_INO, &parent));
	ck_assert_uint_eq(parent, ROOT_INO);
}
END_TEST

START_TEST(a_lookup_tells_what_is_wrong)
{
	uint64_t file = empty_at(ROOT_INO, "file");
	char name[258];

	memset(name, 'n', sizeof(name));
	name[257] = '\0';
	unit_error(looks(ROOT_INO, "none"), -ENOENT);
	unit_error(looks(ROOT_INO, ""), -ENOENT);
	unit_error(looks(ROOT_INO, name), -ENAMETOOLONG);
	unit_error(looks(file, "below"), -ENOTDIR);
	unit_error(looks(9999, "none"), -ENOENT);
	unit_error(live_getattr(vol, 9999, 0, &(struct live_attr){0}), -ENOENT);
	unit_error(live_parent(vol, file, &(uint64_t){0}), -ENOTDIR);
	name[255] = '\0';
	empty_at(ROOT_INO, name);
	unit_ok(looks(ROOT_INO, name));
}
END_TEST

START_TEST(a_body_that_is_gone_is_looked_up_anew)
{
	uint64_t ino = file_at(ROOT_INO, "file", "text");
	struct live_attr a = look(ROOT_INO, "file");

	ck_assert_uint_eq(a.ino, ino);
	ck_assert_uint_ne(a.body, 0);
	unit_ok(live_getattr(vol, ino, a.body, &a));
	unit_ok(live_getattr(vol, ino, a.body + 12345, &a));
	ck_assert_uint_eq(a.body, look(ROOT_INO, "file").body);
}
END_TEST

/* ---- making ---- */

START_TEST(a_directory_counts_its_subdirectories)
{
	struct live_attr before, a = {0};
	uint64_t dir;

	dir = mkdir_at(ROOT_INO, "dir");
	unit_ok(live_mkdir(vol, dir, "sub", 01777, &me, &a));
	ck_assert_uint_eq(a.mode, S_IFDIR | 01777);
	ck_assert_uint_eq(a.uid, 1000);
	ck_assert_uint_eq(a.gid, 1001);
	ck_assert_uint_eq(a.nlink, 2);
	ck_assert_uint_eq(a.size, 4096);
	empty_at(dir, "file");
	ck_assert_uint_eq(attr(dir).nlink, 3);
	mkdir_at(dir, "other");
	before = attr(dir);
	ck_assert_uint_eq(before.nlink, 4);
	unit_ok(live_rmdir(vol, dir, "sub"));
	ck_assert_uint_eq(attr(dir).nlink, 3);
	unit_error(live_mkdir(vol, dir, "other", 0755, &me, &a), -EEXIST);
	unit_error(live_mkdir(vol, dir, "a/b", 0755, &me, &a), -EINVAL);
	unit_error(live_mkdir(vol, dir, "..", 0755, &me, &a), -EINVAL);
	unit_error(live_mkdir(vol, 9999, "a", 0755, &me, &a), -ENOENT);
	unit_error(live_mkdir(vol, look(dir, "file").ino, "a", 0755, &me, &a), -ENOTDIR);
	ck_assert_uint_eq(attr(dir).nlink, 3);
}
END_TEST

/* Sets the directory's times to long ago, so that a change shows. */
static void age(uint64_t ino)
{
	struct live_change c = {.set = LIVE_SET_MTIME, .mtime_ns = 1};
	struct live_attr a;

	unit_ok(live_setattr(vol, ino, 0, &c, &a));
	ck_assert_int_eq(attr(ino).mtime_ns, 1);
}

START_TEST(changes_of_names_change_the_directorys_mtime)
{
	uint64_t dir = mkdir_at(ROOT_INO, "dir"), other = mkdir_at(ROOT_INO, "other");
	struct live_attr a;
	int64_t start = live_now_ns();
	struct handle *h;

	age(dir);
	empty_at(dir, "a");
	ck_assert_int_ge(attr(dir).mtime_ns, start);
	age(dir);
	h = writing_at(dir, "b", "text", &me, &a);
	ck_assert_int_ge(attr(dir).mtime_ns, start);
	close_handle(h);
	age(dir);
	unit_ok(live_unlink(vol, dir, "a"));
	ck_assert_int_ge(attr(dir).mtime_ns, start);
	age(dir);
	unit_ok(live_link(vol, look(dir, "b").ino, dir, "c", NULL, &a));
	ck_assert_int_ge(attr(dir).mtime_ns, start);
	age(dir);
	age(other);
	unit_ok(live_rename(vol, dir, "b", other, "b", 0, NULL));
	ck_assert_int_ge(attr(dir).mtime_ns, start);
	ck_assert_int_ge(attr(other).mtime_ns, start);
	age(dir);
	unit_ok(live_mkdir(vol, dir, "d", 0755, &me, &a));
	ck_assert_int_ge(attr(dir).mtime_ns, start);
	age(dir);
	unit_ok(live_rmdir(vol, dir, "d"));
	ck_assert_int_ge(attr(dir).mtime_ns, start);
}
END_TEST

START_TEST(a_setgid_directory_gives_its_group)
{
	struct live_change c = {.set = LIVE_SET_MODE | LIVE_SET_GID, .mode = 02775, .gid = 77};
	uint64_t dir = mkdir_at(ROOT_INO, "dir");
	struct live_attr a;
	struct handle *h;

	unit_ok(live_setattr(vol, dir, 0, &c, &a));
	ck_assert_uint_eq(a.mode, S_IFDIR | 02775);
	unit_ok(live_mkdir(vol, dir, "sub", 0755, &me, &a));
	ck_assert_uint_eq(a.gid, 77);
	ck_assert_uint_eq(a.mode, S_IFDIR | 02755);
	h = writing_at(dir, "file", "x", &me, &a);
	ck_assert_uint_eq(a.gid, 77);
	ck_assert_uint_eq(a.mode, S_IFREG | 0644);
	close_handle(h);
}
END_TEST

START_TEST(special_files_are_made)
{
	struct live_attr a = {0};

	unit_ok(live_mknod(vol, ROOT_INO, "fifo", S_IFIFO | 0600, 0, &me, &a));
	ck_assert_uint_eq(a.mode, S_IFIFO | 0600);
	unit_ok(live_mknod(vol, ROOT_INO, "socket", S_IFSOCK | 0600, 0, &me, &a));
	unit_ok(live_mknod(vol, ROOT_INO, "dev", S_IFCHR | 0600, makedev(1, 3), &me, &a));
	ck_assert_uint_eq(a.rdev, makedev(1, 3));
	unit_ok(live_mknod(vol, ROOT_INO, "file", S_IFREG | 04711, 0, &me, &a));
	ck_assert_uint_eq(a.mode, S_IFREG | 04711);
	ck_assert_uint_eq(a.size, 0);
	ck_assert_uint_ne(a.body, 0);
	unit_error(live_mknod(vol, ROOT_INO, "dir", S_IFDIR | 0755, 0, &me, &a), -EINVAL);
	unit_error(live_mknod(vol, ROOT_INO, "fifo", S_IFIFO | 0600, 0, &me, &a), -EEXIST);
	reopen(false);
	ck_assert_uint_eq(look(ROOT_INO, "dev").rdev, makedev(1, 3));
	assert_text(ROOT_INO, "file", "");
	unit_ok(live_unlink(vol, ROOT_INO, "fifo"));
	unit_error(looks(ROOT_INO, "fifo"), -ENOENT);
}
END_TEST

START_TEST(a_symlink_gives_its_target)
{
	cleanup_buf struct buf target = {0};
	char *too_long = malloc(PATH_MAX + 1);
	struct live_attr a = {0};

	memset(too_long, 't', PATH_MAX);
	too_long[PATH_MAX] = '\0';
	unit_ok(live_symlink(vol, ROOT_INO, "link", "../to\xff", &me, &a));
	ck_assert_uint_eq(a.mode, S_IFLNK | 0777);
	ck_assert_uint_eq(a.size, 6);
	unit_ok(live_readlink(vol, a.ino, &target));
	ck_assert_str_eq(buf_str(&target), "../to\xff");
	unit_error(live_symlink(vol, ROOT_INO, "long", too_long, &me, &a), -ENAMETOOLONG);
	too_long[PATH_MAX - 1] = '\0';
	unit_ok(live_symlink(vol, ROOT_INO, "long", too_long, &me, &a));
	unit_error(live_symlink(vol, ROOT_INO, "empty", "", &me, &a), -ENOENT);
	unit_error(live_readlink(vol, ROOT_INO, &target), -EINVAL);
	free(too_long);
}
END_TEST

START_TEST(hard_links_are_one_file)
{
	uint64_t ino = file_at(ROOT_INO, "a", "text"), dir = mkdir_at(ROOT_INO, "dir");
	struct live_attr a = {0};
	struct state_file f;

	unit_ok(live_link(vol, ino, dir, "b", NULL, &a));
	ck_assert_uint_eq(a.ino, ino);
	ck_assert_uint_eq(a.nlink, 2);
	ck_assert_uint_eq(look(ROOT_INO, "a").nlink, 2);
	unit_error(live_link(vol, ino, dir, "b", NULL, &a), -EEXIST);
	unit_error(live_link(vol, dir, ROOT_INO, "c", NULL, &a), -EPERM);
	unit_error(live_link(vol, 9999, ROOT_INO, "c", NULL, &a), -ENOENT);
	unit_error(live_link(vol, ino, ino, "c", NULL, &a), -ENOTDIR);
	unit_ok(live_unlink(vol, ROOT_INO, "a"));
	ck_assert_uint_eq(look(dir, "b").nlink, 1);
	assert_text(dir, "b", "text");

	unit_ok(state_file_get(vol->state, ino, &f));
	f.nlink = 65000;
	unit_ok(state_file_set(vol->state, &f));
	unit_error(live_link(vol, ino, ROOT_INO, "c", NULL, &a), -EMLINK);
}
END_TEST

/* ---- removing ---- */

START_TEST(removals_tell_what_is_wrong)
{
	uint64_t dir = mkdir_at(ROOT_INO, "dir");

	empty_at(dir, "file");
	unit_error(live_unlink(vol, ROOT_INO, "none"), -ENOENT);
	unit_error(live_rmdir(vol, ROOT_INO, "none"), -ENOENT);
	unit_error(live_unlink(vol, ROOT_INO, "dir"), -EISDIR);
	unit_error(live_rmdir(vol, ROOT_INO, "dir"), -ENOTEMPTY);
	unit_error(live_rmdir(vol, dir, "file"), -ENOTDIR);
	unit_ok(live_unlink(vol, dir, "file"));
	unit_ok(live_rmdir(vol, ROOT_INO, "dir"));
	unit_error(live_getattr(vol, dir, 0, &(struct live_attr){0}), -ENOENT);
	unit_error(live_mkdir(vol, dir, "sub", 0755, &me, &(struct live_attr){0}), -ENOENT);
}
END_TEST

START_TEST(an_unlinked_file_lives_while_it_is_open)
{
	struct live_attr a = {0};
	struct handle *h = writing_at(ROOT_INO, "file", "text", &me, &a);

	unit_ok(live_unlink(vol, ROOT_INO, "file"));
	unit_error(looks(ROOT_INO, "file"), -ENOENT);
	ck_assert_int_eq(handle_write(h, "more", 4, 4, NULL, NULL), 4);
	unit_ok(live_getattr(vol, a.ino, a.body, &a));
	ck_assert_uint_eq(a.nlink, 0);
	ck_assert_uint_eq(a.size, 8);
	unit_error(live_link(vol, a.ino, ROOT_INO, "again", NULL, &a), -ENOENT);
	close_handle(h);
	unit_error(live_getattr(vol, a.ino, 0, &a), -ENOENT);
}
END_TEST

/* ---- listing ---- */

struct listing {
	char names[2048][32];
	uint64_t cookies[2048];
	int count, stop;
};

static int list(void *arg, const char *name, uint64_t cookie, const struct live_attr *a)
{
	struct listing *l = arg;

	ck_assert_uint_ne(a->ino, 0);
	snprintf(l->names[l->count], sizeof(l->names[0]), "%s", name);
	l->cookies[l->count++] = cookie;
	return l->count == l->stop;
}

START_TEST(a_listing_goes_on_where_it_stopped)
{
	uint64_t dir = mkdir_at(ROOT_INO, "dir");
	struct listing *l = calloc(1, sizeof(*l));
	uint64_t before = 0;
	char name[32];
	int left = 1000;

	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		empty_at(dir, name);
	}
	unit_ok(live_readdir(vol, dir, 0, 0, list, l));
	ck_assert_int_eq(l->count, 1000);
	for (l->stop = 7;; left -= l->count) {
		l->count = 0;
		unit_ok(live_readdir(vol, dir, before, 0, list, l));
		for (int i = 0; i < l->count; i++) {
			snprintf(name, sizeof(name), "n%d", left - 1 - i);
			ck_assert_str_eq(l->names[i], name);
			/* What goes meanwhile does not shift the rest. */
			unit_ok(live_unlink(vol, dir, name));
			empty_at(dir, "later");
			unit_ok(live_unlink(vol, dir, "later"));
		}
		if (!l->count)
			break;
		before = l->cookies[l->count - 1];
	}
	ck_assert_int_eq(left, 0);
	unit_ok(live_rmdir(vol, ROOT_INO, "dir"));
	unit_error(live_readdir(vol, dir, 0, 0, list, l), -ENOENT);
	unit_error(live_readdir(vol, empty_at(ROOT_INO, "f"), 0, 0, list, l), -ENOTDIR);
	free(l);
}
END_TEST

/* ---- the volume ---- */

START_TEST(a_read_only_volume_refuses_changes)
{
	uint64_t ino = file_at(ROOT_INO, "file", "text"), dir = mkdir_at(ROOT_INO, "dir");
	struct live_change c = {.set = LIVE_SET_MODE, .mode = 0600};
	struct live_change size = {.set = LIVE_SET_SIZE};
	struct live_attr a;

	reopen(true);
	unit_error(live_mkdir(vol, ROOT_INO, "a", 0755, &me, &a), -EROFS);
	unit_error(live_mknod(vol, ROOT_INO, "a", S_IFIFO | 0600, 0, &me, &a), -EROFS);
	unit_error(live_symlink(vol, ROOT_INO, "a", "to", &me, &a), -EROFS);
	unit_error(live_link(vol, ino, ROOT_INO, "a", NULL, &a), -EROFS);
	unit_error(live_unlink(vol, ROOT_INO, "file"), -EROFS);
	unit_error(live_rmdir(vol, ROOT_INO, "dir"), -EROFS);
	unit_error(live_rename(vol, ROOT_INO, "file", dir, "b", 0, NULL), -EROFS);
	unit_error(live_setattr(vol, ino, 0, &c, &a), -EROFS);
	unit_error(live_setattr(vol, ino, 0, &size, &a), -EROFS);
	unit_error(live_setxattr(vol, ino, "user.a", "1", 1, 0), -EROFS);
	unit_error(live_removexattr(vol, ino, "user.a"), -EROFS);
	assert_text(ROOT_INO, "file", "text");
}
END_TEST

START_TEST(a_file_says_which_epoch_has_it)
{
	struct epochs_seal how = {.trigger = "commit", .has_step = true, .step = 500};
	struct file_epoch info = {0};
	uint64_t ino = file_at(ROOT_INO, "file", "text"), number = 0, late;

	unit_ok(epochs_of_file(vol, ino, &info));
	ck_assert_str_eq(info.state, "staged");
	ck_assert_uint_eq(info.epoch, 0);
	unit_ok(epochs_seal(vol, &how, &number));
	unit_ok(epochs_of_file(vol, ino, &info));
	ck_assert_str_eq(info.state, "sealed");
	ck_assert_uint_eq(info.epoch, number);
	ck_assert(info.has_step);
	ck_assert_uint_eq(info.step, 500);
	late = mkdir_at(ROOT_INO, "late");
	unit_ok(epochs_of_file(vol, late, &info));
	ck_assert_str_eq(info.state, "staged");
	ck_assert(!info.has_step);
	unit_error(epochs_of_file(vol, 9999, &info), -ENOENT);
	unit_ok(live_sync(vol));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("live_names");
	TCase *t;

	t = fixture(suite, "looking up");
	tcase_add_test(t, the_root_is_there);
	tcase_add_test(t, a_lookup_tells_what_is_wrong);
	tcase_add_test(t, a_body_that_is_gone_is_looked_up_anew);
	t = fixture(suite, "making");
	tcase_add_test(t, a_directory_counts_its_subdirectories);
	tcase_add_test(t, changes_of_names_change_the_directorys_mtime);
	tcase_add_test(t, a_setgid_directory_gives_its_group);
	tcase_add_test(t, special_files_are_made);
	tcase_add_test(t, a_symlink_gives_its_target);
	tcase_add_test(t, hard_links_are_one_file);
	t = fixture(suite, "removing");
	tcase_add_test(t, removals_tell_what_is_wrong);
	tcase_add_test(t, an_unlinked_file_lives_while_it_is_open);
	t = fixture(suite, "listing");
	tcase_add_test(t, a_listing_goes_on_where_it_stopped);
	t = fixture(suite, "the volume");
	tcase_add_test(t, a_read_only_volume_refuses_changes);
	tcase_add_test(t, a_file_says_which_epoch_has_it);
	return unit_run(suite);
}
