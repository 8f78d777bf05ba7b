/* SPDX-License-Identifier: Apache-2.0 */
/* The directory remote: what lies on the disk, and what a hostile or broken directory does. */
#include "lib/net/open.h"
#include "lib/remote/remote.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include "lib/util/cleanup.h"
#include "tests/unit/failing_call.h"
#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* An open remote and its directory. */
struct on_disk {
	char *dir;
	struct remote *r;
};

static struct on_disk open_fresh(void)
{
	struct on_disk d = {.dir = unit_dir()};

	unit_ok(remote_open(d.dir, &d.r));
	return d;
}

static void done(struct on_disk *d)
{
	remote_close(d->r);
	free(d->dir);
}

static void make_file(const char *dir, const char *name, const char *text)
{
	cleanup_free char *path = unit_path(dir, name);
	cleanup_fclose FILE *f = fopen(path, "we");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
}

static void make_dir(const char *dir, const char *name)
{
	cleanup_free char *path = unit_path(dir, name);

	ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void make_link(const char *target, const char *dir, const char *name)
{
	cleanup_free char *path = unit_path(dir, name);

	ck_assert_int_eq(symlink(target, path), 0);
}

static bool is_there(const char *dir, const char *name, struct stat *ret_stat)
{
	cleanup_free char *path = unit_path(dir, name);

	return lstat(path, ret_stat) == 0;
}

static int count_names(const char *dir)
{
	cleanup_closedir DIR *d = opendir(dir);
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	return n - 2;
}

static void assert_holds(struct remote *r, const char *key, const char *text)
{
	struct buf cleanup_buf got = {0};

	unit_ok(remote_get(r, key, 0, REMOTE_TO_END, &got));
	ck_assert_str_eq(buf_str(&got), text);
}

static int append_key(void *arg, const char *key, uint64_t size)
{
	(void)size;
	buf_printf(arg, "%s ", key);
	return 0;
}

START_TEST(an_object_is_a_file_and_nothing_else_is_left)
{
	struct on_disk d = open_fresh();
	struct stat st;

	unit_ok(remote_put(d.r, "packs/ab/p1", "data", 4));
	unit_ok(remote_put_if_absent(d.r, "epochs/1.json", "{}", 2));
	unit_error(remote_put_if_absent(d.r, "epochs/1.json", "[]", 2), -EEXIST);
	ck_assert(is_there(d.dir, "packs/ab/p1", &st) && S_ISREG(st.st_mode) && st.st_size == 4);
	ck_assert(is_there(d.dir, "epochs/1.json", &st) && st.st_nlink == 1);
	ck_assert_int_eq(count_names(d.dir), 2);
	done(&d);
}
END_TEST

START_TEST(a_missing_root_is_made_by_the_first_write_only)
{
	cleanup_free char *above = unit_dir();
	cleanup_free char *root = unit_path(above, "new dir/");
	struct buf cleanup_buf out = {0};
	struct remote *r = NULL;
	struct stat st;

	unit_ok(remote_open(root, &r));
	unit_error(remote_get(r, "epochfs.json", 0, 1, &out), -ENOENT);
	unit_ok(remote_list(r, "", append_key, &out));
	unit_ok(remote_list(r, "epochs/", append_key, &out));
	unit_ok(remote_delete(r, "epochfs.json"));
	ck_assert_uint_eq(out.len, 0);
	ck_assert_int_eq(count_names(above), 0);
	unit_ok(remote_check_writable(r));
	ck_assert(is_there(above, "new dir", &st));
	ck_assert_int_eq(st.st_mode & 0777, 0700);
	remote_close(r);
}
END_TEST

START_TEST(urls_name_the_same_directory)
{
	static const char *const forms[] = {"file://%s", "file:%s", "file://localhost%s"};
	cleanup_free char *above = unit_dir();
	struct remote *plain = NULL;
	char path[PATH_MAX], url[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/a b?c", above);
	unit_ok(remote_open(path, &plain));
	unit_ok(remote_put(plain, "k", "v", 1));
	for (size_t i = 0; i < COUNT(forms); i++) {
		int before = (int)strcspn(forms[i], "%");
		struct remote *r = NULL;

		snprintf(url, sizeof(url), "%.*s%s/a%%20b%%3Fc", before, forms[i], above);
		unit_ok(remote_open(url, &r));
		assert_holds(r, "k", "v");
		remote_close(r);
	}
	remote_close(plain);
}
END_TEST

START_TEST(permissions_follow_the_root_not_the_umask)
{
	cleanup_free char *dir = unit_dir();
	struct remote *r = NULL;
	struct stat st;

	ck_assert_int_eq(chmod(dir, 0750), 0);
	umask(0);
	unit_ok(remote_open(dir, &r));
	unit_ok(remote_put(r, "a/b", "x", 1));
	unit_ok(remote_put_if_absent(r, "a/c", "x", 1));
	umask(077);
	unit_ok(remote_put(r, "d/e", "x", 1));
	ck_assert(is_there(dir, "a", &st) && (st.st_mode & 0777) == 0750);
	ck_assert(is_there(dir, "a/b", &st) && (st.st_mode & 0777) == 0640);
	ck_assert(is_there(dir, "a/c", &st) && (st.st_mode & 0777) == 0640);
	ck_assert(is_there(dir, "d", &st) && (st.st_mode & 0777) == 0750);
	ck_assert(is_there(dir, "d/e", &st) && (st.st_mode & 0777) == 0640);
	remote_close(r);
}
END_TEST

START_TEST(stale_temporaries_go_at_the_first_write)
{
	static const struct timespec old[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
	cleanup_free char *dir = unit_dir();
	cleanup_free char *stale = unit_path(dir, ".tmp-0123456789abcdef");
	struct buf cleanup_buf keys = {0};
	struct remote *r = NULL;
	struct stat st;

	make_file(dir, ".tmp-0123456789abcdef", "left by a crash");
	make_file(dir, ".tmp-fresh", "of somebody at work");
	ck_assert_int_eq(utimensat(AT_FDCWD, stale, old, 0), 0);
	unit_ok(remote_open(dir, &r));
	unit_ok(remote_list(r, "", append_key, &keys));
	ck_assert_uint_eq(keys.len, 0);
	ck_assert_msg(is_there(dir, ".tmp-0123456789abcdef", &st), "reading removed something");
	unit_ok(remote_put(r, "k", "v", 1));
	ck_assert(!is_there(dir, ".tmp-0123456789abcdef", &st));
	ck_assert(is_there(dir, ".tmp-fresh", &st));
	remote_close(r);
}
END_TEST

START_TEST(foreign_things_are_no_objects)
{
	struct on_disk d = open_fresh();
	cleanup_free char *fifo = unit_path(d.dir, "fifo");
	struct buf cleanup_buf out = {0};
	uint64_t size;

	make_file(d.dir, "bad name", "");
	make_file(d.dir, "a\nb", "");
	make_file(d.dir, "\xff\xfe", "");
	make_dir(d.dir, "lost+found");
	make_file(d.dir, "lost+found/x", "");
	make_dir(d.dir, "empty");
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	unit_ok(remote_put(d.r, "good", "x", 1));
	unit_ok(remote_list(d.r, "", append_key, &out));
	ck_assert_str_eq(buf_str(&out), "good ");
	unit_error(remote_get(d.r, "fifo", 0, 1, &out), -EPERM);
	unit_error(remote_size(d.r, "fifo", &size), -EPERM);
	unit_error(remote_get(d.r, "empty", 0, 1, &out), -ENOENT);
	unit_error(remote_size(d.r, "empty", &size), -ENOENT);
	unit_ok(remote_delete(d.r, "empty"));
	unit_error(remote_put(d.r, "empty", "x", 1), -EPERM);
	unit_error(remote_put(d.r, "good/below", "x", 1), -EPERM);
	assert_holds(d.r, "good", "x");
	done(&d);
}
END_TEST

START_TEST(symlinks_are_not_followed_out)
{
	struct on_disk d = open_fresh();
	cleanup_free char *outside = unit_dir();
	cleanup_free char *secret = unit_path(outside, "secret");
	struct buf cleanup_buf out = {0};
	struct stat st;
	uint64_t size;

	make_file(outside, "secret", "secret");
	make_link(outside, d.dir, "packs");
	make_link(secret, d.dir, "tag");
	unit_error(remote_get(d.r, "packs/secret", 0, 9, &out), -EPERM);
	unit_error(remote_get(d.r, "tag", 0, 9, &out), -EPERM);
	unit_error(remote_size(d.r, "tag", &size), -EPERM);
	unit_error(remote_put(d.r, "packs/new", "x", 1), -EPERM);
	unit_error(remote_put_if_absent(d.r, "packs/new", "x", 1), -EPERM);
	unit_error(remote_delete(d.r, "packs/secret"), -EPERM);
	unit_error(remote_list(d.r, "packs/", append_key, &out), -EPERM);
	unit_ok(remote_list(d.r, "", append_key, &out));
	ck_assert_uint_eq(out.len, 0);
	/* Replacing and deleting touch the link itself. */
	unit_ok(remote_put(d.r, "tag", "object", 6));
	assert_holds(d.r, "tag", "object");
	unit_ok(remote_delete(d.r, "packs"));
	ck_assert(!is_there(d.dir, "packs", &st));
	ck_assert(is_there(outside, "secret", &st) && st.st_size == 6);
	ck_assert_int_eq(count_names(outside), 1);
	done(&d);
}
END_TEST

START_TEST(the_root_itself_may_be_a_symlink)
{
	cleanup_free char *real = unit_dir();
	cleanup_free char *above = unit_dir();
	cleanup_free char *link = unit_path(above, "link");
	cleanup_free char *dangling = unit_path(above, "dangling");
	struct remote *r = NULL;
	struct stat st;

	make_link(real, above, "link");
	make_link("/no/such/place", above, "dangling");
	unit_ok(remote_open(link, &r));
	unit_ok(remote_put(r, "k", "v", 1));
	ck_assert(is_there(real, "k", &st));
	remote_close(r);
	unit_error(remote_open(dangling, &r), -ENOENT);
}
END_TEST

START_TEST(a_root_that_vanished_is_a_failure_not_an_empty_remote)
{
	struct on_disk d = open_fresh();
	struct buf cleanup_buf out = {0};
	uint64_t size;

	unit_ok(remote_put(d.r, "epochs/1", "x", 1));
	unit_ok(io_remove_tree(AT_FDCWD, d.dir));
	unit_error(remote_get(d.r, "epochs/1", 0, 1, &out), -EIO);
	unit_error(remote_size(d.r, "top", &size), -EIO);
	unit_error(remote_list(d.r, "", append_key, &out), -EIO);
	unit_error(remote_list(d.r, "epochs/", append_key, &out), -EIO);
	unit_error(remote_put(d.r, "k", "v", 1), -EIO);
	unit_error(remote_put_if_absent(d.r, "epochs/2", "v", 1), -EIO);
	unit_error(remote_delete(d.r, "epochs/1"), -EIO);
	/* Another directory of that name is another remote. */
	ck_assert_int_eq(mkdir(d.dir, 0700), 0);
	unit_error(remote_get(d.r, "epochs/1", 0, 1, &out), -EIO);
	ck_assert_int_eq(count_names(d.dir), 0);
	done(&d);
}
END_TEST

static void set_mode(const char *dir, const char *name, mode_t mode)
{
	cleanup_free char *path = unit_path(dir, name);

	ck_assert_int_eq(chmod(path, mode), 0);
}

/* Root may do all, so it becomes nobody, for the rest of this test's own process. */
static void give_up_root(void)
{
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(chmod(unit_root, 0755), 0);
	ck_assert_int_eq(setresgid(65534, 65534, 65534), 0);
	ck_assert_int_eq(setresuid(65534, 65534, 65534), 0);
	/* The leak checker of the sanitizers looks into /proc/self. */
	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
}

START_TEST(a_root_that_was_renamed_takes_no_writes_until_it_is_back)
{
	char *dir = unit_dir();
	cleanup_free char *root = unit_path(dir, "root"), *away = unit_path(dir, "away");
	struct buf cleanup_buf got = {0};
	char text[REMOTE_TEXT_MAX];
	struct remote *r;
	struct stat st;

	unit_ok(remote_open(root, &r));
	unit_ok(remote_put(r, "a/b", "one", 3));
	for (int replaced = 0; replaced < 2; replaced++) {
		ck_assert_int_eq(rename(root, away), 0);
		if (replaced)
			ck_assert_int_eq(mkdir(root, 0700), 0);
		unit_error(remote_put(r, "a/b", "two", 3), -EIO);
		ck_assert_ptr_nonnull(strstr(remote_strerror(r, -EIO, text), "put it back"));
		unit_error(remote_put_if_absent(r, "new/c", "two", 3), -EIO);
		unit_error(remote_delete(r, "a/b"), -EIO);
		ck_assert(!is_there(away, "new", &st));
		/* It is what was there. */
		buf_reset(&got);
		unit_ok(remote_get(r, "a/b", 0, REMOTE_TO_END, &got));
		ck_assert_str_eq(buf_str(&got), "one");
		if (replaced)
			ck_assert_int_eq(rmdir(root), 0);
		ck_assert_int_eq(rename(away, root), 0);
	}
	unit_ok(remote_put_if_absent(r, "new/c", "two", 3));
	unit_ok(remote_delete(r, "a/b"));
	remote_close(r);
	free(dir);
}
END_TEST

START_TEST(what_permissions_forbid_is_eacces)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *below = unit_path(dir, "closed/root");
	struct buf cleanup_buf out = {0};
	struct remote *r = NULL;

	make_dir(dir, "closed");
	make_dir(dir, "closed/root");
	make_file(dir, "readable", "x");
	make_file(dir, "unreadable", "x");
	set_mode(dir, "closed", 0);
	set_mode(dir, "readable", 0444);
	set_mode(dir, "unreadable", 0);
	set_mode(dir, ".", 0555);
	give_up_root();
	unit_ok(remote_open(dir, &r));
	assert_holds(r, "readable", "x");
	unit_error(remote_get(r, "unreadable", 0, 1, &out), -EACCES);
	unit_error(remote_put(r, "k", "v", 1), -EACCES);
	unit_error(remote_put_if_absent(r, "k/l", "v", 1), -EACCES);
	unit_error(remote_delete(r, "readable"), -EACCES);
	unit_error(remote_list(r, "", append_key, &out), -EACCES);
	unit_error(remote_check_writable(r), -EACCES);
	remote_close(r);
	unit_error(remote_open(below, &r), -EACCES);
	/* So that it can be removed; nobody may not, but then root does that. */
	if (chmod(dir, 0700) == 0)
		set_mode(dir, "closed", 0700);
}
END_TEST

START_TEST(a_write_that_is_cut_short_leaves_the_old_object)
{
	static const struct rlimit small = {.rlim_cur = 1000, .rlim_max = RLIM_INFINITY};
	struct on_disk d = open_fresh();
	char data[4096] = {0};
	int err;

	unit_ok(remote_put(d.r, "k", "old", 3));
	/* A file size limit cuts the write short as a full disk does. */
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	err = remote_put(d.r, "k", data, sizeof(data));
	ck_assert_int_lt(err, 0);
	ck_assert_int_lt(remote_put_if_absent(d.r, "new", data, sizeof(data)), 0);
	assert_holds(d.r, "k", "old");
	ck_assert_int_eq(count_names(d.dir), 1);
	done(&d);
}
END_TEST

START_TEST(without_hard_links_create_if_absent_still_holds)
{
	static const int errors[] = {EPERM, EOPNOTSUPP, ENOSYS};
	struct on_disk d = open_fresh();
	struct stat st;

	forbid_links(errors[_i]);
	unit_ok(remote_put_if_absent(d.r, "epochs/1", "first", 5));
	unit_error(remote_put_if_absent(d.r, "epochs/1", "other", 5), -EEXIST);
	assert_holds(d.r, "epochs/1", "first");
	ck_assert(is_there(d.dir, "epochs/1", &st) && st.st_nlink == 1);
	ck_assert_int_eq(count_names(d.dir), 1);
	done(&d);
}
END_TEST

START_TEST(an_object_that_is_absurdly_large_is_refused)
{
	struct on_disk d = open_fresh();
	cleanup_free char *path = unit_path(d.dir, "huge");
	struct buf cleanup_buf out = {0};

	make_file(d.dir, "huge", "begin");
	ck_assert_int_eq(truncate(path, (off_t)REMOTE_GET_MAX * 2), 0);
	unit_error(remote_get(d.r, "huge", 0, REMOTE_TO_END, &out), -EFBIG);
	ck_assert_uint_eq(out.len, 0);
	unit_ok(remote_get(d.r, "huge", 0, 5, &out));
	ck_assert_str_eq(buf_str(&out), "begin");
	done(&d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_file");
	TCase *t = unit_case(s, "file");

	tcase_add_test(t, an_object_is_a_file_and_nothing_else_is_left);
	tcase_add_test(t, a_missing_root_is_made_by_the_first_write_only);
	tcase_add_test(t, urls_name_the_same_directory);
	tcase_add_test(t, permissions_follow_the_root_not_the_umask);
	tcase_add_test(t, stale_temporaries_go_at_the_first_write);
	tcase_add_test(t, foreign_things_are_no_objects);
	tcase_add_test(t, symlinks_are_not_followed_out);
	tcase_add_test(t, the_root_itself_may_be_a_symlink);
	tcase_add_test(t, a_root_that_vanished_is_a_failure_not_an_empty_remote);
	tcase_add_test(t, a_root_that_was_renamed_takes_no_writes_until_it_is_back);
	tcase_add_test(t, what_permissions_forbid_is_eacces);
	tcase_add_test(t, a_write_that_is_cut_short_leaves_the_old_object);
	tcase_add_loop_test(t, without_hard_links_create_if_absent_still_holds, 0, 3);
	tcase_add_test(t, an_object_that_is_absurdly_large_is_refused);
	return unit_run(s);
}
