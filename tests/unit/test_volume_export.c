/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring without a mount: what comes back, what is refused, what one damaged file does. */
#include "lib/volume/catalog_internal.h"

#include <dirent.h>
#include <grp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "lib/format/xattrs.h"
#include "tests/unit/catalog_unit.h"

#define NOBODY 65534

static struct made made;
static char *target;
static int to;
static uint64_t failed;

static void setup(void)
{
	made_start(&made);
	target = unit_dir();
	to = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(to, 0);
}

static void teardown(void)
{
	close(to);
	free(target);
	made_stop(&made);
}

static const struct epoch_record whole = {.complete = RECORD_COMPLETE};

/* ---- short forms ---- */

static int restore_from(const char *url, uint64_t number, struct catalog_export how)
{
	struct catalog *c = catalog_at(url);
	int error;

	if (!how.path)
		how.path = "";
	how.to_fd = to;
	failed = 99;
	error = catalog_export(c, number, &how, &failed);
	catalog_close(c);
	return error;
}

static int restore_epoch(uint64_t number, struct catalog_export how)
{
	return restore_from("memory:t", number, how);
}

static struct stat stat_of(const char *path)
{
	struct stat st;

	ck_assert_msg(fstatat(to, path, &st, AT_SYMLINK_NOFOLLOW) == 0, "%s: %s", path,
		      strerror(errno));
	return st;
}

static bool is_there(const char *path)
{
	struct stat st;

	return fstatat(to, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void holds(const char *path, const void *data, size_t len)
{
	cleanup_buf struct buf found = {0};

	unit_ok(io_read_file(to, path, (size_t)1 << 30, &found));
	unit_same_bytes(found.data, found.len, data, len);
}

static void holds_text(const char *path, const char *text)
{
	holds(path, text, strlen(text));
}

static void put_text(const char *path, const char *text)
{
	unit_ok(io_replace_file(to, path, text, strlen(text)));
}

/* Names in a directory, without "." and ".."; none may be left over from restoring. */
static int count_names(const char *path)
{
	int fd = openat(to, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
	cleanup_closedir DIR *d = fdopendir(fd);
	struct dirent *e;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		ck_assert_msg(strncmp(e->d_name, ".epochfs-export-", 16) != 0, "%s is left over",
			      e->d_name);
		count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	}
	return count;
}

/* model/{a,b}, top: two contents in packs, one in the tree. */
#define BIG (300 * KIB)
static uint8_t *a_bytes, *b_bytes;

static uint64_t make_three(void)
{
	a_bytes = random_content(BIG, 1);
	b_bytes = random_content(BIG + 777, 2);
	made_begin(&made);
	made_dir(&made, 1, "model");
	made_add(&made, 2, "a", made_content(&made, a_bytes, BIG));
	made_add(&made, 2, "b", made_content(&made, b_bytes, BIG + 777));
	made_add(&made, 1, "top", made_inline("small"));
	return made_end(&made, whole);
}

static void free_three(void)
{
	free(a_bytes);
	free(b_bytes);
}

/* ---- what comes back ---- */

struct watched {
	struct catalog_progress last;
	unsigned calls;
	atomic_int inside;
};

static void watch(void *arg, const struct catalog_progress *p)
{
	struct watched *w = arg;

	ck_assert_int_eq(atomic_fetch_add(&w->inside, 1), 0);
	ck_assert_uint_ge(p->bytes, w->last.bytes);
	ck_assert_uint_ge(p->files, w->last.files);
	w->last = *p;
	w->calls++;
	atomic_fetch_sub(&w->inside, 1);
}

START_TEST(contents_and_progress)
{
	struct watched w = {.calls = 0};
	struct catalog_export how = {
		.progress = watch, .arg = &w, .threads = (unsigned)(_i ? 4 : 1)};

	make_three();
	unit_ok(restore_epoch(1, how));
	ck_assert_uint_eq(failed, 0);
	holds("model/a", a_bytes, BIG);
	holds("model/b", b_bytes, BIG + 777);
	holds_text("top", "small");
	ck_assert_uint_eq(w.last.files, 3);
	ck_assert_uint_eq(w.last.files_total, 3);
	ck_assert_uint_eq(w.last.bytes, 2 * BIG + 777 + 5);
	ck_assert_uint_eq(w.last.bytes_total, 2 * BIG + 777 + 5);
	ck_assert_uint_gt(w.calls, 3);
	ck_assert_int_eq(count_names("."), 2);
	ck_assert_int_eq(count_names("model"), 2);
	free_three();
}
END_TEST

START_TEST(many_files_by_many_threads)
{
	char name[16], text[16];

	made_begin(&made);
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "f%04d", i);
		snprintf(text, sizeof(text), "text %d", i);
		made_add(&made, 1, name, made_inline(text));
	}
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.threads = 8}));
	ck_assert_int_eq(count_names("."), 500);
	holds_text("f0000", "text 0");
	holds_text("f0321", "text 321");
	holds_text("f0499", "text 499");
}
END_TEST

START_TEST(a_directory_or_a_file_alone)
{
	make_three();
	unit_ok(restore_epoch(1, (struct catalog_export){.path = "/model/"}));
	ck_assert_int_eq(count_names("."), 1);
	holds("model/b", b_bytes, BIG + 777);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = "model/a"}));
	ck_assert_int_eq(count_names("."), 2);
	holds("a", a_bytes, BIG);
	free_three();
}
END_TEST

START_TEST(a_missing_path_restores_nothing)
{
	make_three();
	unit_error(restore_epoch(1, (struct catalog_export){.path = "model/c"}), -ENOENT);
	ck_assert_uint_eq(failed, 0);
	unit_error(restore_epoch(1, (struct catalog_export){.path = "top/x"}), -ENOENT);
	unit_error(restore_epoch(1, (struct catalog_export){.path = "../x"}), -ENOENT);
	unit_error(restore_epoch(2, (struct catalog_export){.path = ""}), -ENOENT);
	ck_assert_int_eq(count_names("."), 0);
	free_three();
}
END_TEST

START_TEST(modes_times_and_xattrs)
{
	cleanup_buf struct buf list = {0};
	struct tree_entry e = made_inline("text"), dir = {.type = TREE_DIR, .mode = 0500};
	struct stat st;
	char value[16];

	unit_ok(xattrs_set(&list, "user.note", "kept", 4));
	e.mode = 0440;
	e.mtime_ns = -1500000001;
	e.xattrs = list.data;
	e.xattrs_len = list.len;
	dir.mtime_ns = 1234567890123456789;
	made_begin(&made);
	made_add(&made, 1, "dir", dir);
	made_add(&made, 2, "file", e);
	made_add(&made, 2, "later", made_inline("x"));
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	st = stat_of("dir/file");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0440);
	ck_assert_int_eq(clock_ns(st.st_mtim), -1500000001);
	st = stat_of("dir");
	ck_assert_uint_eq(st.st_mode, S_IFDIR | 0500);
	ck_assert_int_eq(clock_ns(st.st_mtim), 1234567890123456789);
	/* The directory was empty: it is the tree's root now. */
	st = stat_of(".");
	ck_assert_uint_eq(st.st_mode, S_IFDIR | 0755);
	ck_assert_int_eq(clock_ns(st.st_mtim), 5);
	ck_assert_int_eq(fchdir(to), 0);
	if (getxattr("dir/file", "user.note", value, sizeof(value)) < 0)
		ck_assert_int_eq(errno, ENOTSUP); /* the file system below has none */
	else
		ck_assert_mem_eq(value, "kept", 4);
	/* Once more over it: the directory forbids writing now. */
	unit_ok(restore_epoch(1, (struct catalog_export){.force = true}));
	ck_assert_uint_eq(stat_of("dir").st_mode, S_IFDIR | 0500);
	ck_assert_int_eq(fchmodat(to, "dir", 0700, 0), 0);
}
END_TEST

START_TEST(a_directory_in_use_keeps_its_own_attributes)
{
	put_text("mine", "mine");
	ck_assert_int_eq(fchmod(to, 0711), 0);
	made_epoch(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	ck_assert_uint_eq(stat_of(".").st_mode, S_IFDIR | 0711);
	holds_text("file", "text");
	holds_text("mine", "mine");
}
END_TEST

START_TEST(hard_links_stay_one_file)
{
	struct tree_entry e = made_inline("shared"), further = {.group = 1};

	e.group = 1;
	made_begin(&made);
	made_dir(&made, 1, "a");
	made_add(&made, 2, "first", e);
	made_dir(&made, 1, "b");
	made_add(&made, 2, "second", further);
	made_add(&made, 2, "third", further);
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	ck_assert_uint_eq(stat_of("a/first").st_nlink, 3);
	ck_assert_uint_eq(stat_of("a/first").st_ino, stat_of("b/third").st_ino);
	/* Again over it, in one go. */
	unit_ok(restore_epoch(1, (struct catalog_export){.force = true}));
	ck_assert_uint_eq(stat_of("a/first").st_nlink, 3);
	ck_assert_int_eq(count_names("b"), 2);
	/* A part that lacks the first name. */
	ck_assert_int_eq(renameat(to, "b", to, "whole-b"), 0);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = "b"}));
	ck_assert_uint_eq(stat_of("b/second").st_nlink, 2);
	ck_assert_uint_eq(stat_of("b/second").st_ino, stat_of("b/third").st_ino);
	holds_text("b/third", "shared");
}
END_TEST

static struct tree_entry link_to(const char *text)
{
	return (struct tree_entry){.type = TREE_SYMLINK,
				   .mode = 0777,
				   .mtime_ns = 9000000007,
				   .size = strlen(text),
				   .u.target = text};
}

START_TEST(symlinks_fifos_sockets)
{
	char text[64] = "";
	struct stat st;

	made_begin(&made);
	made_add(&made, 1, "fifo",
		 (struct tree_entry){.type = TREE_FIFO, .mode = 0622, .mtime_ns = 77});
	made_add(&made, 1, "link", link_to("nowhere/at all"));
	made_add(&made, 1, "socket", (struct tree_entry){.type = TREE_SOCKET, .mode = 0700});
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	st = stat_of("fifo");
	ck_assert_uint_eq(st.st_mode, S_IFIFO | 0622);
	ck_assert_int_eq(clock_ns(st.st_mtim), 77);
	ck_assert_uint_eq(stat_of("socket").st_mode, S_IFSOCK | 0700);
	st = stat_of("link");
	ck_assert_uint_eq(st.st_mode & S_IFMT, S_IFLNK);
	ck_assert_int_eq(clock_ns(st.st_mtim), 9000000007);
	ck_assert_int_eq(readlinkat(to, "link", text, sizeof(text) - 1), 14);
	ck_assert_str_eq(text, "nowhere/at all");
	unit_ok(restore_epoch(1, (struct catalog_export){.force = true}));
	ck_assert_int_eq(count_names("."), 3);
}
END_TEST

START_TEST(holes_stay_holes)
{
	size_t len = 64 * MIB;
	uint8_t *data = calloc(1, len), *mark = random_content(64 * KIB, 3);
	struct stat st;

	memcpy(data + len - 64 * KIB, mark, 64 * KIB);
	made_begin(&made);
	made_add(&made, 1, "sparse", made_content(&made, data, len));
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	st = stat_of("sparse");
	ck_assert_int_eq(st.st_size, len);
	ck_assert_int_lt(st.st_blocks * 512, 4 * MIB);
	holds("sparse", data, len);
	free(data);
	free(mark);
}
END_TEST

START_TEST(an_empty_epoch_and_empty_files)
{
	made_begin(&made);
	made_end(&made, whole);
	made_begin(&made);
	made_add(&made, 1, "empty", (struct tree_entry){.type = TREE_REGULAR});
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = "/"}));
	ck_assert_int_eq(count_names("."), 0);
	unit_ok(restore_epoch(2, (struct catalog_export){.path = "/"}));
	holds("empty", "", 0);
}
END_TEST

/* ---- what is there already ---- */

START_TEST(nothing_is_replaced_without_force)
{
	make_three();
	put_text("top", "mine");
	unit_error(restore_epoch(1, (struct catalog_export){.path = ""}), -EEXIST);
	ck_assert_uint_eq(failed, 1);
	holds_text("top", "mine");
	holds("model/a", a_bytes, BIG);
	ck_assert_int_eq(count_names("."), 2);
	free_three();
}
END_TEST

START_TEST(force_replaces_files)
{
	make_three();
	put_text("top", "mine");
	ck_assert_int_eq(mkdirat(to, "model", 0700), 0);
	put_text("model/mine", "mine");
	unit_ok(restore_epoch(1, (struct catalog_export){.force = true}));
	holds_text("top", "small");
	holds_text("model/mine", "mine");
	holds("model/a", a_bytes, BIG);
	free_three();
}
END_TEST

START_TEST(force_does_not_remove_a_directory)
{
	make_three();
	ck_assert_int_eq(mkdirat(to, "top", 0700), 0);
	put_text("top/mine", "mine");
	unit_error(restore_epoch(1, (struct catalog_export){.force = true}), -EISDIR);
	ck_assert_uint_eq(failed, 1);
	holds_text("top/mine", "mine");
	ck_assert_int_eq(count_names("."), 2);
	free_three();
}
END_TEST

/* A file under the name of a directory fails that one and all below it, and nothing else. */
START_TEST(a_file_in_the_way_of_a_directory)
{
	make_three();
	put_text("model", "mine");
	unit_error(restore_epoch(1, (struct catalog_export){.force = true}), -EEXIST);
	ck_assert_uint_eq(failed, 3);
	holds_text("model", "mine");
	holds_text("top", "small");
	free_three();
}
END_TEST

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

/* Runs restoring as an ordinary user: its exit status, 100 for what cannot be set up. */
static int restore_as_nobody(uint64_t number, uint64_t *ret_failed)
{
	int status, result[2];
	pid_t child;

	ck_assert_int_eq(pipe2(result, O_CLOEXEC), 0);
	ck_assert_int_eq(fchown(to, NOBODY, NOBODY), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		int error;

		if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY) ||
		    prctl(PR_SET_DUMPABLE, 1))
			_exit(100);
		error = restore_epoch(number, (struct catalog_export){.path = ""});
		if (write(result[1], &failed, sizeof(failed)) != sizeof(failed))
			_exit(100);
		_exit(-error);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(read(result[0], ret_failed, sizeof(*ret_failed)), sizeof(*ret_failed));
	close(result[0]);
	close(result[1]);
	return -WEXITSTATUS(status);
}

static void make_privileged_epoch(void)
{
	struct tree_entry e = made_inline("#!");

	e.mode = 06755;
	e.uid = 123;
	e.gid = 456;
	made_begin(&made);
	made_add(&made, 1, "device",
		 (struct tree_entry){.type = TREE_CHAR, .rdev_major = 1, .rdev_minor = 3});
	made_add(&made, 1, "program", e);
	made_end(&made, whole);
}

START_TEST(root_gives_owners_setuid_and_devices)
{
	struct stat st;

	if (geteuid() != 0)
		return;
	make_privileged_epoch();
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	st = stat_of("program");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 06755);
	ck_assert_uint_eq(st.st_uid, 123);
	ck_assert_uint_eq(st.st_gid, 456);
	st = stat_of("device");
	ck_assert_uint_eq(st.st_mode & S_IFMT, S_IFCHR);
	ck_assert_uint_eq(major(st.st_rdev), 1);
	ck_assert_uint_eq(minor(st.st_rdev), 3);
}
END_TEST

START_TEST(others_get_no_setuid_and_no_devices)
{
	uint64_t count = 0;
	struct stat st;

	make_privileged_epoch();
	if (geteuid() == 0) {
		unit_error(restore_as_nobody(1, &count), -EPERM);
	} else {
		unit_error(restore_epoch(1, (struct catalog_export){.path = ""}), -EPERM);
		count = failed;
	}
	ck_assert_uint_eq(count, 1);
	st = stat_of("program");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0755);
	ck_assert_uint_ne(st.st_uid, 123);
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
	Suite *s = suite_create("volume_export");
	TCase *back = unit_case(s, "what comes back"), *there = unit_case(s, "what is there"),
	      *enemies = unit_case(s, "enemies"), *damaged = unit_case(s, "damage");

	tcase_add_checked_fixture(back, setup, teardown);
	tcase_add_checked_fixture(there, setup, teardown);
	tcase_add_checked_fixture(enemies, setup, teardown);
	tcase_add_checked_fixture(damaged, setup, teardown);
	tcase_add_loop_test(back, contents_and_progress, 0, 2);
	tcase_add_test(back, many_files_by_many_threads);
	tcase_add_test(back, a_directory_or_a_file_alone);
	tcase_add_test(back, a_missing_path_restores_nothing);
	tcase_add_test(back, modes_times_and_xattrs);
	tcase_add_test(back, a_directory_in_use_keeps_its_own_attributes);
	tcase_add_test(back, hard_links_stay_one_file);
	tcase_add_test(back, symlinks_fifos_sockets);
	tcase_add_test(back, holes_stay_holes);
	tcase_add_test(back, an_empty_epoch_and_empty_files);
	tcase_add_test(there, nothing_is_replaced_without_force);
	tcase_add_test(there, force_replaces_files);
	tcase_add_test(there, force_does_not_remove_a_directory);
	tcase_add_test(there, a_file_in_the_way_of_a_directory);
	tcase_add_test(enemies, no_symlink_is_followed_on_the_way);
	tcase_add_test(enemies, a_symlink_in_the_place_of_a_file_is_replaced_not_followed);
	tcase_add_test(enemies, root_gives_owners_setuid_and_devices);
	tcase_add_test(enemies, others_get_no_setuid_and_no_devices);
	tcase_add_test(damaged, a_damaged_file_fails_alone);
	tcase_add_test(damaged, what_is_there_stays_where_the_new_file_is_damaged);
	tcase_add_test(damaged, links_to_a_damaged_file_fail_too);
	tcase_add_test(damaged, a_lost_pack_fails_what_lies_in_it);
	tcase_add_test(damaged, a_remote_that_goes_away_ends_it);
	tcase_add_test(damaged, a_disk_that_refuses_fails_the_file_and_nothing_else);
	return unit_run(s);
}
