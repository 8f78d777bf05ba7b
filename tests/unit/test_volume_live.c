/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree: names and attributes of a real volume without a remote. */
#include "lib/volume/live.h"

#include <limits.h>
#include <signal.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "lib/util/clock.h"
#include "lib/volume/body.h"
#include "lib/volume/epochs.h"
#include "lib/volume/live_internal.h"
#include "tests/unit/unit.h"

static char *cache;
static struct volume *vol;
static struct live_caller me;

static void open_volume(bool read_only)
{
	struct volume_options o;
	char *message = NULL;
	int error;

	volume_options_init(&o);
	o.remote = "none";
	o.cache_dir = cache;
	o.read_only = read_only;
	/* No epoch comes by itself. */
	o.settle_ns = 3600 * NS_PER_S;
	error = volume_open(&o, &vol, &message);
	ck_assert_msg(!error, "volume_open: %d, %s", error, message ? message : "");
}

static void reopen(bool read_only)
{
	volume_close(vol);
	open_volume(read_only);
}

static void setup(void)
{
	cache = unit_dir();
	me = (struct live_caller){.uid = 1000, .gid = 1001, .pid = getpid()};
	open_volume(false);
}

static void teardown(void)
{
	volume_close(vol);
	free(cache);
}

/* ---- short forms ---- */

static struct live_attr look(uint64_t parent, const char *name)
{
	struct live_attr a = {0};

	unit_ok(live_lookup(vol, parent, name, 0, &a));
	return a;
}

static int looks(uint64_t parent, const char *name)
{
	struct live_attr a;

	return live_lookup(vol, parent, name, 0, &a);
}

static struct live_attr attr(uint64_t ino)
{
	struct live_attr a = {0};

	unit_ok(live_getattr(vol, ino, 0, &a));
	return a;
}

static uint64_t mkdir_at(uint64_t parent, const char *name)
{
	struct live_attr a = {0};

	unit_ok(live_mkdir(vol, parent, name, 0755, &me, &a));
	return a.ino;
}

static uint64_t empty_at(uint64_t parent, const char *name)
{
	struct live_attr a = {0};

	unit_ok(live_mknod(vol, parent, name, S_IFREG | 0644, 0, &me, &a));
	return a.ino;
}

/* A new file, still open, with these bytes in it. */
static struct handle *writing_at(uint64_t parent, const char *name, const char *text,
				 const struct live_caller *who, struct live_attr *ret_attr)
{
	struct handle *h = NULL;

	unit_ok(handle_create(vol, parent, name, 0644, O_WRONLY | O_CREAT, who, ret_attr, &h));
	ck_assert_int_eq(handle_write(h, text, strlen(text), 0), strlen(text));
	return h;
}

static void close_handle(struct handle *h)
{
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	handle_release(h, false);
}

/* A committed file. */
static uint64_t file_at(uint64_t parent, const char *name, const char *text)
{
	struct live_attr a = {0};

	close_handle(writing_at(parent, name, text, &me, &a));
	return a.ino;
}

static void assert_text(uint64_t parent, const char *name, const char *want)
{
	struct live_attr a = look(parent, name);
	struct handle *h = NULL;
	char got[100] = "";

	unit_ok(handle_open(vol, a.ino, a.body, O_RDONLY, &me, NULL, NULL, &h));
	ck_assert_int_eq(handle_read(h, got, sizeof(got) - 1, 0, NULL, NULL), strlen(want));
	ck_assert_str_eq(got, want);
	handle_release(h, false);
}

/* A process that only waits; it dies with its parent's close of nothing but a signal. */
static pid_t start_writer(void)
{
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		for (;;)
			pause();
	}
	return child;
}

/* Kills it and closes what it had open, as the kernel does: it is a zombie meanwhile. */
static void kill_writer(pid_t child, struct handle *h)
{
	siginfo_t info;

	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	unit_ok(handle_flush(h, child, NULL, NULL));
	handle_release(h, false);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

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
	unit_error(live_getattr(vol, ino, a.body + 12345, &a), -ESTALE);
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
	unit_ok(live_link(vol, look(dir, "b").ino, dir, "c", &a));
	ck_assert_int_ge(attr(dir).mtime_ns, start);
	age(dir);
	age(other);
	unit_ok(live_rename(vol, dir, "b", other, "b", 0));
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

	unit_ok(live_link(vol, ino, dir, "b", &a));
	ck_assert_uint_eq(a.ino, ino);
	ck_assert_uint_eq(a.nlink, 2);
	ck_assert_uint_eq(look(ROOT_INO, "a").nlink, 2);
	unit_error(live_link(vol, ino, dir, "b", &a), -EEXIST);
	unit_error(live_link(vol, dir, ROOT_INO, "c", &a), -EPERM);
	unit_error(live_link(vol, 9999, ROOT_INO, "c", &a), -ENOENT);
	unit_error(live_link(vol, ino, ino, "c", &a), -ENOTDIR);
	unit_ok(live_unlink(vol, ROOT_INO, "a"));
	ck_assert_uint_eq(look(dir, "b").nlink, 1);
	assert_text(dir, "b", "text");

	unit_ok(state_file_get(vol->state, ino, &f));
	f.nlink = 65000;
	unit_ok(state_file_set(vol->state, &f));
	unit_error(live_link(vol, ino, ROOT_INO, "c", &a), -EMLINK);
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
	ck_assert_int_eq(handle_write(h, "more", 4, 4), 4);
	unit_ok(live_getattr(vol, a.ino, a.body, &a));
	ck_assert_uint_eq(a.nlink, 0);
	ck_assert_uint_eq(a.size, 8);
	unit_error(live_link(vol, a.ino, ROOT_INO, "again", &a), -ENOENT);
	close_handle(h);
	unit_error(live_getattr(vol, a.ino, 0, &a), -ENOENT);
}
END_TEST

/* ---- rename ---- */

START_TEST(a_rename_replaces)
{
	uint64_t dir = mkdir_at(ROOT_INO, "dir"), a = file_at(ROOT_INO, "a", "new");

	file_at(dir, "b", "old");
	unit_ok(live_rename(vol, ROOT_INO, "a", dir, "b", 0));
	unit_error(looks(ROOT_INO, "a"), -ENOENT);
	ck_assert_uint_eq(look(dir, "b").ino, a);
	ck_assert_uint_eq(look(dir, "b").nlink, 1);
	assert_text(dir, "b", "new");
}
END_TEST

START_TEST(a_rename_tells_what_is_wrong)
{
	uint64_t dir = mkdir_at(ROOT_INO, "dir"), sub = mkdir_at(dir, "sub");
	char name[258];

	memset(name, 'n', sizeof(name));
	name[257] = '\0';
	file_at(ROOT_INO, "file", "x");
	mkdir_at(ROOT_INO, "empty");
	unit_error(live_rename(vol, ROOT_INO, "none", ROOT_INO, "b", 0), -ENOENT);
	unit_error(live_rename(vol, ROOT_INO, "file", 9999, "b", 0), -ENOENT);
	unit_error(live_rename(vol, ROOT_INO, "file", look(ROOT_INO, "file").ino, "b", 0),
		   -ENOTDIR);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, name, 0), -ENAMETOOLONG);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "a/b", 0), -EINVAL);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "empty", 0), -EISDIR);
	unit_error(live_rename(vol, ROOT_INO, "empty", ROOT_INO, "file", 0), -ENOTDIR);
	unit_error(live_rename(vol, ROOT_INO, "empty", ROOT_INO, "dir", 0), -ENOTEMPTY);
	unit_error(live_rename(vol, ROOT_INO, "dir", sub, "in", 0), -EINVAL);
	unit_error(live_rename(vol, ROOT_INO, "dir", dir, "in", 0), -EINVAL);
	unit_error(live_rename(vol, dir, "sub", ROOT_INO, "dir", 0), -ENOTEMPTY);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "dir", RENAME_NOREPLACE), -EEXIST);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "b", RENAME_EXCHANGE), -ENOENT);
	unit_error(live_rename(vol, ROOT_INO, "dir", dir, "sub", RENAME_EXCHANGE), -EINVAL);
	unit_error(live_rename(vol, dir, "sub", ROOT_INO, "dir", RENAME_EXCHANGE), -EINVAL);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "b", 0x80), -EINVAL);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "b",
			       RENAME_EXCHANGE | RENAME_NOREPLACE),
		   -EINVAL);
	unit_ok(live_rename(vol, ROOT_INO, "file", ROOT_INO, "b", RENAME_NOREPLACE));
	unit_ok(live_rename(vol, ROOT_INO, "b", ROOT_INO, "b", 0));
	assert_text(ROOT_INO, "b", "x");
}
END_TEST

START_TEST(two_names_of_one_file_stay)
{
	uint64_t ino = file_at(ROOT_INO, "a", "x");
	struct live_attr a;

	unit_ok(live_link(vol, ino, ROOT_INO, "b", &a));
	unit_ok(live_rename(vol, ROOT_INO, "a", ROOT_INO, "b", 0));
	ck_assert_uint_eq(look(ROOT_INO, "a").nlink, 2);
	ck_assert_uint_eq(look(ROOT_INO, "b").ino, ino);
}
END_TEST

START_TEST(directories_move_with_their_links)
{
	uint64_t a = mkdir_at(ROOT_INO, "a"), b = mkdir_at(ROOT_INO, "b");
	uint64_t moved = mkdir_at(a, "moved"), parent = 0;

	mkdir_at(b, "over");
	file_at(moved, "file", "x");
	unit_ok(live_rename(vol, a, "moved", b, "over", 0));
	ck_assert_uint_eq(attr(a).nlink, 2);
	ck_assert_uint_eq(attr(b).nlink, 3);
	unit_ok(live_parent(vol, moved, &parent));
	ck_assert_uint_eq(parent, b);
	assert_text(moved, "file", "x");
	unit_ok(live_rename(vol, b, "over", ROOT_INO, "top", 0));
	ck_assert_uint_eq(attr(b).nlink, 2);
	ck_assert_uint_eq(attr(ROOT_INO).nlink, 5);
}
END_TEST

START_TEST(an_exchange_swaps_a_file_and_a_directory)
{
	uint64_t dir = mkdir_at(ROOT_INO, "dir"), sub = mkdir_at(dir, "sub"), parent = 0;
	uint64_t file = file_at(ROOT_INO, "file", "x");

	unit_ok(live_rename(vol, ROOT_INO, "file", dir, "sub", RENAME_EXCHANGE));
	ck_assert_uint_eq(look(ROOT_INO, "file").ino, sub);
	ck_assert_uint_eq(look(dir, "sub").ino, file);
	ck_assert_uint_eq(attr(dir).nlink, 2);
	ck_assert_uint_eq(attr(ROOT_INO).nlink, 4);
	unit_ok(live_parent(vol, sub, &parent));
	ck_assert_uint_eq(parent, ROOT_INO);
}
END_TEST

START_TEST(a_tree_is_as_deep_as_an_epoch_may_be)
{
	uint64_t at = ROOT_INO, half = 0, side = mkdir_at(ROOT_INO, "side"), number = 0;
	struct epochs_seal how = {.trigger = "commit"};
	struct live_attr a;

	for (int depth = 1; depth < TREE_DEPTH_MAX; depth++) {
		at = mkdir_at(at, "d");
		if (depth == TREE_DEPTH_MAX / 2)
			half = at;
	}
	unit_error(live_mkdir(vol, at, "d", 0755, &me, &a), -ENAMETOOLONG);
	empty_at(at, "file");
	unit_error(live_rename(vol, ROOT_INO, "d", side, "d", 0), -ENAMETOOLONG);
	unit_error(live_rename(vol, half, "d", at, "e", 0), -EINVAL);
	unit_error(live_rename(vol, ROOT_INO, "side", at, "e", 0), -ENAMETOOLONG);
	unit_ok(live_rename(vol, half, "d", side, "d", 0));
	unit_ok(live_rename(vol, side, "d", half, "d", 0));
	unit_ok(epochs_seal(vol, &how, &number));
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
	uint64_t after = 0;
	char name[32];
	int n = 0;

	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		empty_at(dir, name);
	}
	unit_ok(live_readdir(vol, dir, 0, 0, list, l));
	ck_assert_int_eq(l->count, 1000);
	for (l->stop = 7;; n += l->count) {
		l->count = 0;
		unit_ok(live_readdir(vol, dir, after, 0, list, l));
		for (int i = 0; i < l->count; i++) {
			snprintf(name, sizeof(name), "n%d", n + i);
			ck_assert_str_eq(l->names[i], name);
			/* What goes meanwhile does not shift the rest. */
			unit_ok(live_unlink(vol, dir, name));
		}
		if (!l->count)
			break;
		after = l->cookies[l->count - 1];
	}
	ck_assert_int_eq(n, 1000);
	unit_ok(live_rmdir(vol, ROOT_INO, "dir"));
	unit_error(live_readdir(vol, dir, 0, 0, list, l), -ENOENT);
	unit_error(live_readdir(vol, empty_at(ROOT_INO, "f"), 0, 0, list, l), -ENOTDIR);
	free(l);
}
END_TEST

/* ---- attributes ---- */

START_TEST(attributes_are_set_and_kept)
{
	struct live_change c = {
		.set = LIVE_SET_MODE | LIVE_SET_UID | LIVE_SET_GID | LIVE_SET_ATIME |
		       LIVE_SET_MTIME,
		.mode = S_IFDIR | 07601, /* the type stays */
		.uid = 5,
		.gid = 6,
		.atime_ns = INT64_C(1234567890123456789),
		.mtime_ns = -1,
	};
	uint64_t ino = file_at(ROOT_INO, "file", "text");
	struct live_attr a = {0};

	unit_ok(live_setattr(vol, ino, 0, &c, &a));
	ck_assert_uint_eq(a.mode, S_IFREG | 07601);
	reopen(false);
	a = look(ROOT_INO, "file");
	ck_assert_uint_eq(a.mode, S_IFREG | 07601);
	ck_assert_uint_eq(a.uid, 5);
	ck_assert_uint_eq(a.gid, 6);
	ck_assert_int_eq(a.atime_ns, INT64_C(1234567890123456789));
	ck_assert_int_eq(a.mtime_ns, -1);
	ck_assert_uint_eq(a.size, 4);
	unit_error(live_setattr(vol, 9999, 0, &c, &a), -ENOENT);
}
END_TEST

START_TEST(chown_takes_the_right_to_be_somebody)
{
	struct live_change suid = {.set = LIVE_SET_MODE, .mode = 06755};
	struct live_change lock = {.set = LIVE_SET_MODE, .mode = 06745};
	struct live_change owner = {.set = LIVE_SET_UID, .uid = 5};
	struct live_change both = {.set = LIVE_SET_UID | LIVE_SET_MODE, .mode = 06755};
	uint64_t ino = empty_at(ROOT_INO, "file"), dir = mkdir_at(ROOT_INO, "dir");
	struct live_attr a;

	unit_ok(live_setattr(vol, ino, 0, &suid, &a));
	unit_ok(live_setattr(vol, ino, 0, &owner, &a));
	ck_assert_uint_eq(a.mode, S_IFREG | 0755);
	unit_ok(live_setattr(vol, ino, 0, &lock, &a));
	unit_ok(live_setattr(vol, ino, 0, &owner, &a));
	ck_assert_uint_eq(a.mode, S_IFREG | 02745);
	unit_ok(live_setattr(vol, ino, 0, &both, &a));
	ck_assert_uint_eq(a.mode, S_IFREG | 06755);
	unit_ok(live_setattr(vol, dir, 0, &suid, &a));
	unit_ok(live_setattr(vol, dir, 0, &owner, &a));
	ck_assert_uint_eq(a.mode, S_IFDIR | 06755);
}
END_TEST

START_TEST(every_change_is_one_of_ctime)
{
	uint64_t ino = empty_at(ROOT_INO, "file");
	struct live_change c = {.set = LIVE_SET_MODE, .mode = 0600};
	struct state_file f;
	struct live_attr a;

#define CHANGES_CTIME(call)                                                                        \
	do {                                                                                       \
		unit_ok(state_file_get(vol->state, ino, &f));                                      \
		f.ctime_ns = 1;                                                                    \
		unit_ok(state_file_set(vol->state, &f));                                           \
		unit_ok(call);                                                                     \
		ck_assert_int_gt(attr(ino).ctime_ns, 1);                                           \
	} while (0)
	CHANGES_CTIME(live_setattr(vol, ino, 0, &c, &a));
	CHANGES_CTIME(live_link(vol, ino, ROOT_INO, "b", &a));
	CHANGES_CTIME(live_rename(vol, ROOT_INO, "b", ROOT_INO, "c", 0));
	CHANGES_CTIME(live_unlink(vol, ROOT_INO, "c"));
	CHANGES_CTIME(live_setxattr(vol, ino, "user.a", "x", 1, 0));
	CHANGES_CTIME(live_removexattr(vol, ino, "user.a"));
#undef CHANGES_CTIME
}
END_TEST

START_TEST(a_size_is_set)
{
	struct live_change c = {.set = LIVE_SET_SIZE, .size = 2};
	uint64_t ino = file_at(ROOT_INO, "file", "text"), dir = mkdir_at(ROOT_INO, "dir");
	struct live_attr a = {0};

	unit_ok(live_setattr(vol, ino, 0, &c, &a));
	ck_assert_uint_eq(a.size, 2);
	assert_text(ROOT_INO, "file", "te");
	c.size = 5;
	unit_ok(live_setattr(vol, ino, a.body, &c, &a));
	ck_assert_uint_eq(look(ROOT_INO, "file").size, 5);
	unit_error(live_setattr(vol, dir, 0, &c, &a), -EISDIR);
	unit_ok(live_symlink(vol, ROOT_INO, "link", "to", &me, &a));
	unit_error(live_setattr(vol, a.ino, 0, &c, &a), -EINVAL);
	c.size = UINT64_MAX;
	unit_error(live_setattr(vol, ino, 0, &c, &a), -EFBIG);
}
END_TEST

START_TEST(times_of_what_is_being_written_are_kept_by_its_close)
{
	struct live_change c = {.set = LIVE_SET_MTIME, .mtime_ns = INT64_C(1000000000000000123)};
	struct live_attr a = {0};
	struct handle *h = writing_at(ROOT_INO, "file", "text", &me, &a);

	unit_ok(live_setattr(vol, a.ino, a.body, &c, &a));
	ck_assert_int_eq(a.mtime_ns, c.mtime_ns);
	ck_assert_uint_eq(a.size, 4);
	close_handle(h);
	ck_assert_int_eq(look(ROOT_INO, "file").mtime_ns, c.mtime_ns);
	reopen(false);
	ck_assert_int_eq(look(ROOT_INO, "file").mtime_ns, c.mtime_ns);
}
END_TEST

START_TEST(xattrs_obey_their_flags)
{
	uint64_t ino = empty_at(ROOT_INO, "file");
	cleanup_buf struct buf b = {0};
	char name[258], big[65537] = {0};

	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	unit_error(live_getxattr(vol, ino, "user.a", &b), -ENODATA);
	unit_error(live_setxattr(vol, ino, "user.a", "1", 1, XATTR_REPLACE), -ENODATA);
	unit_ok(live_setxattr(vol, ino, "user.a", "1", 1, XATTR_CREATE));
	unit_error(live_setxattr(vol, ino, "user.a", "2", 1, XATTR_CREATE), -EEXIST);
	unit_ok(live_setxattr(vol, ino, "user.a", "22", 2, XATTR_REPLACE));
	unit_ok(live_setxattr(vol, ino, "user.b", "", 0, 0));
	unit_ok(live_getxattr(vol, ino, "user.a", &b));
	ck_assert_str_eq(buf_str(&b), "22");
	buf_reset(&b);
	unit_ok(live_listxattr(vol, ino, &b));
	unit_same_bytes(b.data, b.len, "user.a\0user.b", 14);
	unit_ok(live_removexattr(vol, ino, "user.a"));
	unit_error(live_removexattr(vol, ino, "user.a"), -ENODATA);
	unit_error(live_setxattr(vol, ino, "user.a", "1", 1, 0x40), -EINVAL);
	unit_error(live_setxattr(vol, ino, name, "1", 1, 0), -ERANGE);
	unit_error(live_setxattr(vol, ino, "user.a", big, 65537, 0), -E2BIG);
	unit_error(live_setxattr(vol, ino, "system.posix_acl_access", "1", 1, 0), -EOPNOTSUPP);
	unit_error(live_setxattr(vol, 9999, "user.a", "1", 1, 0), -ENOENT);
	unit_error(live_getxattr(vol, 9999, "user.a", &b), -ENOENT);
	for (int i = 0; i < 15; i++) {
		snprintf(name, sizeof(name), "user.big%d", i);
		unit_ok(live_setxattr(vol, ino, name, big, 65536, 0));
	}
	unit_error(live_setxattr(vol, ino, "user.big15", big, 65536, 0), -ENOSPC);
	unit_ok(live_setxattr(vol, ino, "user.big14", big, 65536, 0));
}
END_TEST

/* ---- content that is being replaced ---- */

START_TEST(a_replacement_is_seen_by_its_writer_only)
{
	uint64_t ino = file_at(ROOT_INO, "file", "old text");
	struct live_attr old = look(ROOT_INO, "file"), mine = {0}, a = {0};
	struct live_caller who = {.pid = start_writer()};
	struct handle *h = NULL;

	unit_error(handle_open(vol, ino, old.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		   -ESTALE);
	unit_ok(live_lookup(vol, ROOT_INO, "file", who.pid, &mine));
	ck_assert_uint_eq(mine.ino, ino);
	ck_assert_uint_ne(mine.body, old.body);
	ck_assert(mine.pending);
	ck_assert_uint_eq(mine.size, 0);
	unit_ok(handle_open(vol, ino, mine.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	ck_assert_int_eq(handle_write(h, "new", 3, 0), 3);
	a = look(ROOT_INO, "file");
	ck_assert_uint_eq(a.body, old.body);
	ck_assert_uint_eq(a.size, 8);
	ck_assert(a.pending);
	unit_ok(live_getattr(vol, ino, mine.body, &a));
	ck_assert_uint_eq(a.size, 3);
	unit_ok(live_lookup(vol, ROOT_INO, "file", getpid(), &a));
	ck_assert_uint_eq(a.body, old.body);
	close_handle(h);
	a = look(ROOT_INO, "file");
	ck_assert_uint_eq(a.body, mine.body);
	ck_assert(!a.pending);
	assert_text(ROOT_INO, "file", "new");
	kill(who.pid, SIGKILL);
	waitpid(who.pid, NULL, 0);
}
END_TEST

START_TEST(content_that_was_replaced_keeps_its_size_for_readers)
{
	uint64_t ino = file_at(ROOT_INO, "file", "old text");
	struct live_attr old = look(ROOT_INO, "file"), a = {0};
	struct handle *reader = NULL, *h = NULL;

	unit_ok(handle_open(vol, ino, old.body, O_RDONLY, &me, NULL, NULL, &reader));
	unit_error(handle_open(vol, ino, old.body, O_WRONLY | O_TRUNC, &me, NULL, NULL, &h),
		   -ESTALE);
	unit_ok(live_lookup(vol, ROOT_INO, "file", me.pid, &a));
	unit_ok(handle_open(vol, ino, a.body, O_WRONLY | O_TRUNC, &me, NULL, NULL, &h));
	close_handle(h);
	ck_assert_uint_eq(look(ROOT_INO, "file").size, 0);
	unit_ok(live_getattr(vol, ino, old.body, &a));
	ck_assert_uint_eq(a.size, 8);
	handle_release(reader, false);
	unit_error(live_getattr(vol, ino, old.body, &a), -ESTALE);
}
END_TEST

/* ---- renames that may be undone ---- */

/* A committed file "final", and an open new one "temporary" of a process of its own. */
struct fragile {
	uint64_t old;
	struct live_attr fresh;
	struct live_caller who;
	struct handle *h;
};

static struct fragile fragile_start(void)
{
	struct fragile f = {.old = file_at(ROOT_INO, "final", "old")};

	f.who = (struct live_caller){.pid = start_writer()};
	f.h = writing_at(ROOT_INO, "temporary", "new", &f.who, &f.fresh);
	return f;
}

static void fragile_close(struct fragile *f)
{
	close_handle(f->h);
	kill(f->who.pid, SIGKILL);
	waitpid(f->who.pid, NULL, 0);
}

START_TEST(a_killed_writers_rename_is_undone)
{
	struct fragile f = fragile_start();

	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0));
	ck_assert_uint_eq(look(ROOT_INO, "final").ino, f.fresh.ino);
	kill_writer(f.who.pid, f.h);
	unit_error(looks(ROOT_INO, "temporary"), -ENOENT);
	ck_assert_uint_eq(look(ROOT_INO, "final").ino, f.old);
	ck_assert_uint_eq(look(ROOT_INO, "final").nlink, 1);
	assert_text(ROOT_INO, "final", "old");
}
END_TEST

START_TEST(a_closed_writers_rename_stays)
{
	struct fragile f = fragile_start();

	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0));
	fragile_close(&f);
	assert_text(ROOT_INO, "final", "new");
	unit_error(live_getattr(vol, f.old, 0, &(struct live_attr){0}), -ENOENT);
}
END_TEST

START_TEST(what_a_second_rename_covers_is_the_committed_file)
{
	struct fragile f = fragile_start();
	struct live_attr a = {0};
	struct handle *h = writing_at(ROOT_INO, "second", "2nd", &f.who, &a);

	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0));
	unit_ok(live_rename(vol, ROOT_INO, "second", ROOT_INO, "final", 0));
	ck_assert_uint_eq(look(ROOT_INO, "final").ino, a.ino);
	close_handle(f.h);
	ck_assert_uint_eq(look(ROOT_INO, "final").ino, a.ino);
	kill_writer(f.who.pid, h);
	assert_text(ROOT_INO, "final", "old");
}
END_TEST

START_TEST(a_removed_name_takes_what_it_covered_along)
{
	struct fragile f = fragile_start();

	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0));
	unit_ok(live_unlink(vol, ROOT_INO, "final"));
	unit_error(looks(ROOT_INO, "final"), -ENOENT);
	kill_writer(f.who.pid, f.h);
	unit_error(looks(ROOT_INO, "final"), -ENOENT);
	unit_error(live_getattr(vol, f.old, 0, &(struct live_attr){0}), -ENOENT);
}
END_TEST

START_TEST(a_committed_file_over_a_covering_one_is_final)
{
	struct fragile f = fragile_start();

	file_at(ROOT_INO, "done", "done");
	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0));
	unit_ok(live_rename(vol, ROOT_INO, "done", ROOT_INO, "final", 0));
	kill_writer(f.who.pid, f.h);
	assert_text(ROOT_INO, "final", "done");
	unit_error(live_getattr(vol, f.old, 0, &(struct live_attr){0}), -ENOENT);
}
END_TEST

START_TEST(a_covered_name_is_no_link_that_is_seen)
{
	struct fragile f = fragile_start();
	struct live_attr a = {0};

	unit_ok(live_link(vol, f.old, ROOT_INO, "other", &a));
	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0));
	ck_assert_uint_eq(look(ROOT_INO, "other").nlink, 1);
	/* Where the covering name goes on over the other link, the link count stays right. */
	unit_ok(live_rename(vol, ROOT_INO, "final", ROOT_INO, "other", 0));
	kill_writer(f.who.pid, f.h);
	unit_error(looks(ROOT_INO, "final"), -ENOENT);
	ck_assert_uint_eq(look(ROOT_INO, "other").ino, f.old);
	ck_assert_uint_eq(look(ROOT_INO, "other").nlink, 1);
	assert_text(ROOT_INO, "other", "old");
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
	unit_error(live_link(vol, ino, ROOT_INO, "a", &a), -EROFS);
	unit_error(live_unlink(vol, ROOT_INO, "file"), -EROFS);
	unit_error(live_rmdir(vol, ROOT_INO, "dir"), -EROFS);
	unit_error(live_rename(vol, ROOT_INO, "file", dir, "b", 0), -EROFS);
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
	struct live_info info = {0};
	uint64_t ino = file_at(ROOT_INO, "file", "text"), number = 0, late;

	unit_ok(live_info(vol, ino, &info));
	ck_assert_str_eq(info.state, "staged");
	ck_assert_uint_eq(info.epoch, 0);
	unit_ok(epochs_seal(vol, &how, &number));
	unit_ok(live_info(vol, ino, &info));
	ck_assert_str_eq(info.state, "sealed");
	ck_assert_uint_eq(info.epoch, number);
	ck_assert(info.has_step);
	ck_assert_uint_eq(info.step, 500);
	late = mkdir_at(ROOT_INO, "late");
	unit_ok(live_info(vol, late, &info));
	ck_assert_str_eq(info.state, "staged");
	ck_assert(!info.has_step);
	unit_error(live_info(vol, 9999, &info), -ENOENT);
	unit_ok(live_sync(vol));
}
END_TEST

/* ---- a directory of the system as the model ---- */

#define MODEL_OPS 3000

struct model {
	char *root;
	unsigned short seed[3];
	bool counts_subdirectories;
};

static unsigned pick(struct model *m, unsigned below)
{
	return (unsigned)nrand48(m->seed) % below;
}

/* A random path of few names, so that they meet: "" is the root. */
static void pick_path(struct model *m, char path[64])
{
	unsigned depth = pick(m, 4);

	path[0] = '\0';
	for (unsigned i = 0; i <= depth; i++)
		sprintf(path + strlen(path), "%s%c", i ? "/" : "", 'a' + (int)pick(m, 4));
}

/* Walks to the directory of the last component: 0 or -errno. */
static int walk(const char *path, uint64_t *ret_parent, const char **ret_name)
{
	uint64_t at = ROOT_INO;
	const char *slash;

	for (; (slash = strchr(path, '/')); path = slash + 1) {
		char name[8] = "";
		struct live_attr a;
		int error;

		memcpy(name, path, (size_t)(slash - path));
		error = live_lookup(vol, at, name, 0, &a);
		if (error)
			return error;
		if (!S_ISDIR(a.mode))
			return S_ISLNK(a.mode) ? -ENOENT : -ENOTDIR;
		at = a.ino;
	}
	*ret_parent = at;
	*ret_name = path;
	return 0;
}

enum {
	OP_MKDIR,
	OP_MKNOD,
	OP_FIFO,
	OP_SYMLINK,
	OP_LINK,
	OP_UNLINK,
	OP_RMDIR,
	OP_CHMOD,
	OP_RENAME,
	OP_RENAME_AGAIN,
	OP_NOREPLACE,
	OP_EXCHANGE,
	OP_COUNT
};

static int live_two(unsigned op, uint64_t p, const char *a, const char *to)
{
	static const unsigned flags[OP_COUNT] = {
		[OP_NOREPLACE] = RENAME_NOREPLACE, [OP_EXCHANGE] = RENAME_EXCHANGE};
	uint64_t q;
	struct live_attr at;
	const char *b;
	int error;

	if (op == OP_LINK) {
		error = live_lookup(vol, p, a, 0, &at);
		if (!error)
			error = walk(to, &q, &b);
		return error ? error : live_link(vol, at.ino, q, b, &at);
	}
	error = walk(to, &q, &b);
	return error ? error : live_rename(vol, p, a, q, b, flags[op]);
}

static int live_op(unsigned op, const char *from, const char *to, mode_t mode)
{
	struct live_change c = {.set = LIVE_SET_MODE, .mode = mode};
	struct live_attr at;
	uint64_t p;
	const char *a;
	int error = walk(from, &p, &a);

	if (error)
		return error;
	switch (op) {
	case OP_MKDIR:
		return live_mkdir(vol, p, a, mode, &me, &at);
	case OP_MKNOD:
		return live_mknod(vol, p, a, S_IFREG | mode, 0, &me, &at);
	case OP_FIFO:
		return live_mknod(vol, p, a, S_IFIFO | mode, 0, &me, &at);
	case OP_SYMLINK:
		return live_symlink(vol, p, a, "dangling", &me, &at);
	case OP_UNLINK:
		return live_unlink(vol, p, a);
	case OP_RMDIR:
		return live_rmdir(vol, p, a);
	case OP_CHMOD:
		error = live_lookup(vol, p, a, 0, &at);
		if (!error && S_ISLNK(at.mode))
			return -ENOENT; /* chmod(2) follows it */
		return error ? error : live_setattr(vol, at.ino, at.body, &c, &at);
	}
	return live_two(op, p, a, to);
}

static int model_op(unsigned op, const char *from, const char *to, mode_t mode)
{
	int rc = -1;

	switch (op) {
	case OP_MKDIR:
		rc = mkdir(from, mode);
		break;
	case OP_MKNOD:
		rc = mknod(from, S_IFREG | mode, 0);
		break;
	case OP_FIFO:
		rc = mknod(from, S_IFIFO | mode, 0);
		break;
	case OP_SYMLINK:
		rc = symlink("dangling", from);
		break;
	case OP_LINK:
		rc = linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
		break;
	case OP_UNLINK:
		rc = unlink(from);
		break;
	case OP_RMDIR:
		rc = rmdir(from);
		break;
	case OP_CHMOD:
		rc = chmod(from, mode);
		break;
	case OP_RENAME:
	case OP_RENAME_AGAIN:
		rc = rename(from, to);
		break;
	case OP_NOREPLACE:
		rc = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
		break;
	case OP_EXCHANGE:
		rc = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE);
		break;
	}
	return rc < 0 ? -errno : 0;
}

struct compared {
	struct model *m;
	const char *path;
	unsigned count;
};

static void compare_dir(struct model *m, uint64_t ino, const char *path);

static int compare_entry(void *arg, const char *name, uint64_t cookie, const struct live_attr *a)
{
	struct compared *c = arg;
	char path[PATH_MAX];
	struct stat st;

	(void)cookie;
	c->count++;
	snprintf(path, sizeof(path), "%s/%s", c->path, name);
	ck_assert_msg(lstat(path, &st) == 0, "%s: %s", path, strerror(errno));
	ck_assert_msg(a->mode == st.st_mode, "%s: mode %o, not %o", path, a->mode, st.st_mode);
	if (!S_ISDIR(a->mode) || c->m->counts_subdirectories)
		ck_assert_msg(a->nlink == st.st_nlink, "%s: %u links, not %u", path, a->nlink,
			      (unsigned)st.st_nlink);
	if (!S_ISDIR(a->mode))
		ck_assert_uint_eq(a->size, (uint64_t)st.st_size);
	else
		compare_dir(c->m, a->ino, path);
	return 0;
}

static void compare_dir(struct model *m, uint64_t ino, const char *path)
{
	struct compared c = {.m = m, .path = path};
	unsigned count = 0;
	cleanup_closedir DIR *dir = opendir(path);

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	unit_ok(live_readdir(vol, ino, 0, 0, compare_entry, &c));
	ck_assert_uint_eq(c.count + 2, count);
}

/* The kernel looks at these paths before it asks a file system: nothing of ours. */
static bool kernels_own(unsigned op, const char *from, const char *to)
{
	size_t len = strlen(to);

	return op >= OP_RENAME && strncmp(from, to, len) == 0 && from[len] == '/';
}

START_TEST(random_changes_do_what_a_system_directory_does)
{
	const char *seed = getenv("SEED"); /* another run of changes */
	struct model m = {.root = unit_dir(), .seed = {1, 2, 3}};
	struct stat st;

	if (seed)
		m.seed[0] = (unsigned short)atoi(seed);
	umask(0);
	ck_assert_int_eq(chdir(m.root), 0);
	ck_assert_int_eq(stat(".", &st), 0);
	m.counts_subdirectories = st.st_nlink == 2;
	for (int i = 0; i < MODEL_OPS; i++) {
		unsigned op = pick(&m, OP_COUNT);
		mode_t mode = (mode_t)pick(&m, 01000) | 0700;
		char from[64], to[64];
		int got, want;

		pick_path(&m, from);
		pick_path(&m, to);
		if (kernels_own(op, from, to))
			continue;
		got = live_op(op, from, to, mode);
		want = model_op(op, from, to, mode);
		ck_assert_msg(got == want, "change %d: %u of %s (%s): %s, not %s", i, op, from, to,
			      strerror(-got), strerror(-want));
		if (i % 100 == 0)
			compare_dir(&m, ROOT_INO, m.root);
		if (i % 1000 == 999)
			reopen(false);
	}
	compare_dir(&m, ROOT_INO, m.root);
	ck_assert_int_eq(chdir("/"), 0);
	free(m.root);
}
END_TEST

/* ---- threads ---- */

#define THREADS		   4
#define CHANGES_PER_THREAD 300

static int count_entry(void *arg, const char *name, uint64_t cookie, const struct live_attr *a)
{
	(void)name;
	(void)cookie;
	(void)a;
	++*(int *)arg;
	return 0;
}

static int count_name(void *arg, const struct state_name *n, const char *name,
		      const struct state_file *f)
{
	(void)n;
	(void)name;
	(void)f;
	++*(unsigned *)arg;
	return 0;
}

struct links {
	unsigned dirs;
};

static void check_links(uint64_t ino);

static int check_entry(void *arg, const char *name, uint64_t cookie, const struct live_attr *a)
{
	struct links *l = arg;
	struct live_attr found;

	(void)name;
	(void)cookie;
	unit_ok(live_getattr(vol, a->ino, 0, &found));
	if (S_ISDIR(a->mode)) {
		l->dirs++;
		check_links(a->ino);
	} else {
		unsigned names = 0;

		unit_ok(state_names_of(vol->state, a->ino, count_name, &names));
		ck_assert_uint_eq(found.nlink, names);
	}
	return 0;
}

struct worker {
	pthread_t thread;
	struct model m;
	int failed;
};

static int change_at_random(struct model *m)
{
	unsigned op = pick(m, OP_COUNT + 2);
	struct live_caller who = {.pid = getpid()};
	char from[64], to[64];
	struct handle *h;
	struct live_attr a;
	uint64_t p;
	const char *name;
	int error;

	pick_path(m, from);
	pick_path(m, to);
	if (op < OP_COUNT)
		return live_op(op, from, to, 0700);
	error = walk(from, &p, &name);
	if (!error && op == OP_COUNT)
		return live_readdir(vol, p, 0, getpid(), count_entry, &(int){0});
	if (!error)
		error = handle_create(vol, p, name, 0600, O_WRONLY, &who, &a, &h);
	if (error)
		return error;
	if (handle_write(h, "text", 4, 0) != 4)
		return -EIO;
	error = handle_flush(h, getpid(), NULL, NULL);
	handle_release(h, false);
	return error;
}

static void *work(void *arg)
{
	static const int usual[] = {0, ENOENT, EEXIST, ENOTDIR, EISDIR, ENOTEMPTY, EINVAL, EPERM};
	struct worker *w = arg;

	for (int i = 0; i < CHANGES_PER_THREAD && !w->failed; i++) {
		int error = -change_at_random(&w->m);
		bool known = false;

		for (size_t k = 0; k < sizeof(usual) / sizeof(usual[0]); k++)
			known |= error == usual[k];
		if (!known)
			w->failed = error;
	}
	return NULL;
}

/* What the names say is what the link counts say. */
static void check_links(uint64_t ino)
{
	struct links l = {.dirs = 2};

	unit_ok(live_readdir(vol, ino, 0, 0, check_entry, &l));
	ck_assert_uint_eq(attr(ino).nlink, l.dirs);
}

START_TEST(threads_change_names_at_the_same_time)
{
	struct worker workers[THREADS] = {0};

	for (int i = 0; i < THREADS; i++) {
		workers[i].m.seed[0] = (unsigned short)(i + 1);
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
		ck_assert_msg(!workers[i].failed, "%s", strerror(workers[i].failed));
	}
	check_links(ROOT_INO);
	reopen(false);
	check_links(ROOT_INO);
}
END_TEST

static TCase *fixture(Suite *suite, const char *name)
{
	TCase *t = unit_case(suite, name);

	tcase_add_checked_fixture(t, setup, teardown);
	return t;
}

static void add_names(Suite *suite)
{
	TCase *t = fixture(suite, "names");

	tcase_add_test(t, the_root_is_there);
	tcase_add_test(t, a_lookup_tells_what_is_wrong);
	tcase_add_test(t, a_body_that_is_gone_is_looked_up_anew);
	tcase_add_test(t, a_directory_counts_its_subdirectories);
	tcase_add_test(t, changes_of_names_change_the_directorys_mtime);
	tcase_add_test(t, a_setgid_directory_gives_its_group);
	tcase_add_test(t, special_files_are_made);
	tcase_add_test(t, a_symlink_gives_its_target);
	tcase_add_test(t, hard_links_are_one_file);
	tcase_add_test(t, removals_tell_what_is_wrong);
	tcase_add_test(t, an_unlinked_file_lives_while_it_is_open);
	tcase_add_test(t, a_rename_replaces);
	tcase_add_test(t, a_rename_tells_what_is_wrong);
	tcase_add_test(t, two_names_of_one_file_stay);
	tcase_add_test(t, directories_move_with_their_links);
	tcase_add_test(t, an_exchange_swaps_a_file_and_a_directory);
	tcase_add_test(t, a_tree_is_as_deep_as_an_epoch_may_be);
	tcase_add_test(t, a_listing_goes_on_where_it_stopped);
	tcase_add_test(t, threads_change_names_at_the_same_time);
	tcase_add_test(t, random_changes_do_what_a_system_directory_does);
}

static void add_attributes(Suite *suite)
{
	TCase *t = fixture(suite, "attributes");

	tcase_add_test(t, attributes_are_set_and_kept);
	tcase_add_test(t, chown_takes_the_right_to_be_somebody);
	tcase_add_test(t, every_change_is_one_of_ctime);
	tcase_add_test(t, a_size_is_set);
	tcase_add_test(t, times_of_what_is_being_written_are_kept_by_its_close);
	tcase_add_test(t, xattrs_obey_their_flags);
	tcase_add_test(t, a_read_only_volume_refuses_changes);
	tcase_add_test(t, a_file_says_which_epoch_has_it);
}

static void add_content(Suite *suite)
{
	TCase *t = fixture(suite, "content");

	tcase_add_test(t, a_replacement_is_seen_by_its_writer_only);
	tcase_add_test(t, content_that_was_replaced_keeps_its_size_for_readers);
	tcase_add_test(t, a_killed_writers_rename_is_undone);
	tcase_add_test(t, a_closed_writers_rename_stays);
	tcase_add_test(t, what_a_second_rename_covers_is_the_committed_file);
	tcase_add_test(t, a_removed_name_takes_what_it_covered_along);
	tcase_add_test(t, a_committed_file_over_a_covering_one_is_final);
	tcase_add_test(t, a_covered_name_is_no_link_that_is_seen);
}

int main(void)
{
	Suite *suite = suite_create("volume_live");

	add_names(suite);
	add_attributes(suite);
	add_content(suite);
	return unit_run(suite);
}
