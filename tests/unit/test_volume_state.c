/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: rows of every kind, transactions, snapshots, damage, what survives a crash. */
#include "lib/volume/state.h"

#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"

static char *dir, *path;
static int dirfd_;
static struct state *s;

static void open_state(void)
{
	unit_ok(state_open(dirfd_, path, &s));
}

static void reopen(void)
{
	state_close(s);
	open_state();
}

static void setup(void)
{
	dir = unit_dir();
	path = unit_path(dir, "state.db");
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(dirfd_, 0);
	open_state();
}

static void teardown(void)
{
	state_close(s);
	close(dirfd_);
	free(path);
	free(dir);
}

static uint64_t new_file(uint32_t mode)
{
	struct state_file f = {.mode = mode, .nlink = 1};
	uint64_t ino = 0;

	unit_ok(state_file_new(s, &f, &ino));
	ck_assert_uint_eq(f.ino, ino);
	return ino;
}

static uint64_t new_version(const struct state_version *want)
{
	struct state_version v = *want;
	uint64_t id = 0;

	unit_ok(state_version_new(s, &v, &id));
	ck_assert_uint_eq(v.id, id);
	return id;
}

/* ---- opening ---- */

START_TEST(the_first_file_is_the_root)
{
	ck_assert_uint_eq(new_file(S_IFDIR | 0755), ROOT_INO);
}
END_TEST

START_TEST(foreign_bytes_are_refused)
{
	struct state *other = NULL;
	cleanup_free char *file = unit_path(dir, "other.db");
	char garbage[8192];

	memset(garbage, 'x', sizeof(garbage));
	unit_ok(io_replace_file(AT_FDCWD, file, garbage, sizeof(garbage)));
	unit_error(state_open(dirfd_, file, &other), -EUCLEAN);
	ck_assert_ptr_null(other);
}
END_TEST

static void sql(const char *file, const char *text)
{
	sqlite3 *db = NULL;

	ck_assert_int_eq(sqlite3_open(file, &db), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

START_TEST(somebody_elses_database_is_refused)
{
	struct state *other = NULL;
	cleanup_free char *file = unit_path(dir, "other.db");

	sql(file, "CREATE TABLE t (x)");
	unit_error(state_open(dirfd_, file, &other), -EUCLEAN);
	sql(file, "PRAGMA user_version = 1");
	unit_error(state_open(dirfd_, file, &other), -EUCLEAN);
	ck_assert_ptr_null(other);
}
END_TEST

START_TEST(a_newer_schema_is_refused)
{
	struct state *other = NULL;

	state_close(s);
	s = NULL;
	sql(path, "PRAGMA user_version = 2");
	unit_error(state_open(dirfd_, path, &other), -EPROTONOSUPPORT);
	ck_assert_ptr_null(other);
}
END_TEST

START_TEST(a_missing_directory_is_enoent)
{
	struct state *other = NULL;
	cleanup_free char *file = unit_path(dir, "none/state.db");

	unit_error(state_open(dirfd_, file, &other), -ENOENT);
	ck_assert_ptr_null(other);
}
END_TEST

START_TEST(a_damaged_page_is_told)
{
	char zeros[4096] = {0};
	struct state_file f;
	int fd;

	for (int i = 0; i < 200; i++)
		new_file(S_IFREG | 0644);
	state_close(s);
	s = NULL;
	/* All pages but the first, which holds the schema. */
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	for (off_t at = 4096, end = lseek(fd, 0, SEEK_END); at < end; at += 4096)
		ck_assert_int_eq(pwrite(fd, zeros, 4096, at), 4096);
	close(fd);
	if (state_open(dirfd_, path, &s) == 0)
		unit_error(state_file_get(s, 7, &f), -EUCLEAN);
	else
		unit_error(state_open(dirfd_, path, &s), -EUCLEAN);
}
END_TEST

/* ---- small values ---- */

START_TEST(meta_comes_back)
{
	cleanup_buf struct buf b = {0};
	uint64_t v = 77;

	unit_error(state_get_meta(s, "uuid", &b), -ENOENT);
	unit_error(state_get_meta_u64(s, "n", &v), -ENOENT);
	ck_assert_uint_eq(v, 77);
	unit_ok(state_set_meta(s, "uuid", "abc"));
	unit_ok(state_set_meta(s, "uuid", "defg"));
	unit_ok(state_set_meta_u64(s, "n", UINT64_MAX));
	reopen();
	unit_ok(state_get_meta(s, "uuid", &b));
	ck_assert_str_eq(buf_str(&b), "defg");
	unit_ok(state_get_meta_u64(s, "n", &v));
	ck_assert_uint_eq(v, UINT64_MAX);
	unit_error(state_get_meta_u64(s, "uuid", &v), -EUCLEAN);
}
END_TEST

/* ---- transactions ---- */

START_TEST(a_rollback_leaves_nothing)
{
	uint64_t ino, v;

	unit_ok(state_begin(s));
	ino = new_file(S_IFREG);
	unit_ok(state_set_meta(s, "k", "v"));
	ck_assert_uint_eq(state_file_count(s), 1);
	unit_error(state_end(s, -EPERM), -EPERM);
	ck_assert_uint_eq(state_file_count(s), 0);
	unit_error(state_get_meta_u64(s, "k", &v), -ENOENT);
	ck_assert_uint_gt(new_file(S_IFREG), ino);
}
END_TEST

START_TEST(an_inner_failure_rolls_all_back)
{
	struct state_file f;
	uint64_t ino;

	unit_ok(state_begin(s));
	ino = new_file(S_IFREG);
	unit_ok(state_begin(s));
	unit_error(state_end(s, -ENOENT), -ENOENT);
	unit_error(state_end(s, 0), -ENOENT);
	unit_error(state_file_get(s, ino, &f), -ENOENT);

	unit_ok(state_begin(s));
	unit_ok(state_begin(s));
	ino = new_file(S_IFREG);
	unit_ok(state_end(s, 0));
	unit_ok(state_end(s, 0));
	unit_ok(state_file_get(s, ino, &f));
}
END_TEST

START_TEST(a_failed_statement_spoils_no_transaction)
{
	struct state_name n;

	unit_ok(state_begin(s));
	unit_ok(state_name_add(s, 1, "a", 5));
	unit_error(state_name_add(s, 1, "a", 6), -EEXIST);
	unit_ok(state_name_add(s, 1, "b", 7));
	unit_ok(state_end(s, 0));
	unit_ok(state_name_get(s, 1, "a", &n));
	ck_assert_uint_eq(n.ino, 5);
	unit_ok(state_name_get(s, 1, "b", &n));
}
END_TEST

START_TEST(numbers_are_never_given_twice)
{
	uint64_t last = 0, last_version = 0;

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 1500; i++) {
			uint64_t ino, version;

			unit_ok(state_begin(s));
			ino = new_file(S_IFREG);
			version = new_version(&(struct state_version){0});
			ck_assert_uint_gt(ino, last);
			ck_assert_uint_gt(version, last_version);
			last = ino;
			last_version = version;
			if (i % 3 == 0)
				unit_ok(state_file_remove(s, ino));
			state_end(s, i % 100 == 0 ? -EIO : 0);
		}
		reopen();
	}
}
END_TEST

/* ---- files and names ---- */

START_TEST(a_file_comes_back_whole)
{
	struct state_file f = {.mode = S_IFREG | 0640,
			       .uid = UINT32_MAX,
			       .gid = 7,
			       .rdev = 0x12345,
			       .nlink = 3,
			       .size = (uint64_t)1 << 40,
			       .mtime_ns = -5,
			       .ctime_ns = INT64_MAX,
			       .atime_ns = INT64_MIN,
			       .live = 11,
			       .closed = 12,
			       .body = 13,
			       .born = 14,
			       .parent = 15};
	struct state_file got = {0};
	uint64_t ino;

	unit_ok(state_file_new(s, &f, &ino));
	unit_ok(state_file_get(s, ino, &got));
	ck_assert_mem_eq(&got, &f, sizeof(f));
	f.size = 1;
	f.live = 99;
	f.parent = 3;
	unit_ok(state_file_set(s, &f));
	reopen();
	unit_ok(state_file_get(s, ino, &got));
	ck_assert_mem_eq(&got, &f, sizeof(f));
	unit_ok(state_file_remove(s, ino));
	unit_error(state_file_get(s, ino, &got), -ENOENT);
	unit_error(state_file_set(s, &f), -ENOENT);
	unit_error(state_file_remove(s, ino), -ENOENT);
}
END_TEST

static int count_xattr(void *arg, const char *name, const void *value, size_t len)
{
	(void)name;
	(void)value;
	(void)len;
	++*(int *)arg;
	return 0;
}

START_TEST(a_removed_file_takes_target_and_xattrs_along)
{
	uint64_t ino = new_file(S_IFLNK | 0777);
	cleanup_buf struct buf b = {0};
	int count = 0;

	unit_error(state_symlink_get(s, ino, &b), -ENOENT);
	unit_ok(state_symlink_set(s, ino, "to\xff/here", 8));
	unit_ok(state_symlink_get(s, ino, &b));
	unit_same_bytes(b.data, b.len, "to\xff/here", 8);
	unit_ok(state_xattr_set(s, ino, "user.a", "1", 1));
	unit_ok(state_file_remove(s, ino));
	buf_reset(&b);
	unit_error(state_symlink_get(s, ino, &b), -ENOENT);
	unit_ok(state_xattr_list(s, ino, count_xattr, &count));
	ck_assert_int_eq(count, 0);
}
END_TEST

START_TEST(files_are_counted)
{
	uint64_t a = new_file(S_IFREG);

	new_file(S_IFREG);
	ck_assert_uint_eq(state_file_count(s), 2);
	unit_ok(state_file_remove(s, a));
	ck_assert_uint_eq(state_file_count(s), 1);
	reopen();
	ck_assert_uint_eq(state_file_count(s), 1);
}
END_TEST

START_TEST(names_are_bytes)
{
	char longest[256];
	struct state_name n;

	memset(longest, 0xfe, 255);
	longest[255] = '\0';
	unit_ok(state_name_add(s, 1, longest, 5));
	unit_ok(state_name_add(s, 1, "\xff\x01", 6));
	unit_ok(state_name_add(s, 1, "A", 7));
	unit_ok(state_name_add(s, 1, "a", 8));
	unit_ok(state_name_add(s, 2, "a", 9));
	unit_ok(state_name_get(s, 1, longest, &n));
	ck_assert_uint_eq(n.ino, 5);
	ck_assert_uint_eq(n.parent, 1);
	unit_ok(state_name_get(s, 1, "\xff\x01", &n));
	ck_assert_uint_eq(n.ino, 6);
	unit_ok(state_name_get(s, 1, "a", &n));
	ck_assert_uint_eq(n.ino, 8);
	unit_error(state_name_get(s, 1, "", &n), -ENOENT);
	unit_ok(state_name_remove(s, 1, "a"));
	unit_error(state_name_remove(s, 1, "a"), -ENOENT);
	unit_error(state_name_get(s, 1, "a", &n), -ENOENT);
	unit_ok(state_name_get(s, 2, "a", &n));
	ck_assert_uint_eq(n.ino, 9);
}
END_TEST

START_TEST(a_lookup_gives_name_and_file)
{
	uint64_t ino = new_file(S_IFREG | 0611);
	struct state_name n = {0};
	struct state_file f = {0};

	unit_ok(state_name_add(s, 9, "a", ino));
	unit_ok(state_name_add(s, 9, "ghost", ino + 1));
	unit_ok(state_name_lookup(s, 9, "a", &n, &f));
	ck_assert_uint_eq(n.ino, ino);
	ck_assert_uint_eq(n.parent, 9);
	ck_assert_uint_eq(f.ino, ino);
	ck_assert_uint_eq(f.mode, S_IFREG | 0611);
	unit_error(state_name_lookup(s, 9, "b", &n, &f), -ENOENT);
	unit_error(state_name_lookup(s, 9, "ghost", &n, &f), -ENOENT);
}
END_TEST

START_TEST(a_name_that_is_set_keeps_its_id)
{
	struct state_name n, m;
	cleanup_buf struct buf name = {0};
	uint64_t parent = 0;

	unit_ok(state_name_add(s, 1, "a", 5));
	unit_ok(state_name_get(s, 1, "a", &n));
	ck_assert_uint_eq(n.covered, 0);
	unit_error(state_name_covering(s, 0, &parent, &name), -ENOENT);
	unit_ok(state_name_set(s, 1, "a", 6, 5));
	unit_ok(state_name_get(s, 1, "a", &m));
	ck_assert_uint_eq(m.id, n.id);
	ck_assert_uint_eq(m.ino, 6);
	ck_assert_uint_eq(m.covered, 5);
	unit_ok(state_name_covering(s, 5, &parent, &name));
	ck_assert_uint_eq(parent, 1);
	ck_assert_str_eq(buf_str(&name), "a");
	unit_error(state_name_set(s, 1, "b", 6, 0), -ENOENT);
}
END_TEST

struct listed {
	char names[64][256];
	uint64_t ids[64];
	int count, stop_at;
	bool missing;
};

static int list_name(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	struct listed *l = arg;

	strcpy(l->names[l->count], name);
	l->ids[l->count++] = n->id;
	if (!f)
		l->missing = true;
	else
		ck_assert_uint_eq(f->ino, n->ino);
	return l->count == l->stop_at ? 1000 + l->count : 0;
}

START_TEST(a_directory_is_listed_in_order_of_ids_and_of_names)
{
	static const char *const names[] = {"b", "a", "\xff", "aa", "B"};
	static const char *const sorted[] = {"B", "a", "aa", "b", "\xff"};
	struct listed l = {.stop_at = -1}, m = {.stop_at = 2}, k = {.stop_at = -1};

	for (size_t i = 0; i < 5; i++)
		unit_ok(state_name_add(s, 3, names[i], new_file(S_IFREG)));
	unit_ok(state_name_add(s, 4, "other", new_file(S_IFREG)));
	unit_ok(state_dir_list(s, 3, 0, list_name, &l));
	ck_assert_int_eq(l.count, 5);
	ck_assert(!l.missing);
	for (int i = 0; i < 5; i++) {
		ck_assert_str_eq(l.names[i], names[i]);
		ck_assert(i == 0 || l.ids[i] > l.ids[i - 1]);
	}
	ck_assert_int_eq(state_dir_list(s, 3, l.ids[1], list_name, &m), 1002);
	ck_assert_str_eq(m.names[0], names[2]);
	ck_assert_str_eq(m.names[1], names[3]);
	unit_ok(state_dir_list_sorted(s, 3, list_name, &k));
	for (int i = 0; i < 5; i++)
		ck_assert_str_eq(k.names[i], sorted[i]);
	unit_ok(state_dir_empty(s, 5));
	unit_error(state_dir_empty(s, 4), -ENOTEMPTY);
}
END_TEST

static int list_below(void *arg, const struct state_name *n, const char *name,
		      const struct state_file *f)
{
	(void)name;
	(void)f;
	++*(int *)arg;
	return state_dir_list_sorted(s, n->ino, list_below, arg);
}

START_TEST(a_listing_may_list_what_is_below)
{
	uint64_t above = new_file(S_IFDIR);
	int count = 0;

	for (int depth = 0; depth < 300; depth++) {
		uint64_t below = new_file(S_IFDIR);

		unit_ok(state_name_add(s, above, "sub", below));
		unit_ok(state_name_add(s, above, "twin", new_file(S_IFREG)));
		above = below;
	}
	unit_ok(state_dir_list_sorted(s, 1, list_below, &count));
	ck_assert_int_eq(count, 600);
}
END_TEST

START_TEST(directories_know_their_depth_and_height)
{
	struct state_file root = {.mode = S_IFDIR, .parent = ROOT_INO}, f;
	uint64_t ino = 0, top = 0, depth = 0, height = 0;

	unit_ok(state_file_new(s, &root, &ino));
	for (int i = 0; i < 300; i++) {
		f = (struct state_file){.mode = S_IFDIR, .parent = ino};
		unit_ok(state_file_new(s, &f, &ino));
		if (i == 99)
			top = ino;
	}
	unit_ok(state_dir_depth(s, ROOT_INO, &depth));
	ck_assert_uint_eq(depth, 0);
	unit_ok(state_dir_depth(s, ino, &depth));
	ck_assert_uint_eq(depth, 300);
	unit_ok(state_dir_height(s, ROOT_INO, &height));
	ck_assert_uint_eq(height, 300);
	unit_ok(state_dir_height(s, ino, &height));
	ck_assert_uint_eq(height, 0);
	/* Moved right below the root. */
	unit_ok(state_file_get(s, top, &f));
	f.parent = ROOT_INO;
	unit_ok(state_file_set(s, &f));
	unit_ok(state_dir_depth(s, ino, &depth));
	ck_assert_uint_eq(depth, 201);
	unit_ok(state_dir_height(s, ROOT_INO, &height));
	ck_assert_uint_eq(height, 201);
}
END_TEST

static int rename_names(void *arg, const struct state_name *n, const char *name,
			const struct state_file *f)
{
	char other[300];

	ck_assert_ptr_nonnull(f);
	++*(int *)arg;
	unit_ok(state_name_remove(s, n->parent, name));
	snprintf(other, sizeof(other), "%s-moved", name);
	return state_name_add(s, n->parent, other, n->ino);
}

START_TEST(the_names_of_a_file_may_change_while_they_are_told)
{
	uint64_t ino = new_file(S_IFREG);
	int count = 0;

	unit_ok(state_name_add(s, 1, "a", ino));
	unit_ok(state_name_add(s, 2, "b", ino));
	unit_ok(state_name_add(s, 2, "c", ino + 1));
	unit_ok(state_names_of(s, ino, rename_names, &count));
	ck_assert_int_eq(count, 2);
}
END_TEST

START_TEST(a_name_without_a_file_is_told_so)
{
	struct listed l = {.stop_at = -1};

	unit_ok(state_name_add(s, 1, "ghost", 12345));
	unit_ok(state_dir_list(s, 1, 0, list_name, &l));
	ck_assert_int_eq(l.count, 1);
	ck_assert(l.missing);
}
END_TEST

START_TEST(xattrs_come_back)
{
	cleanup_buf struct buf b = {0};
	char big[65536];
	int count = 0;

	memset(big, 'v', sizeof(big));
	unit_error(state_xattr_get(s, 1, "user.a", &b), -ENODATA);
	unit_ok(state_xattr_set(s, 1, "user.a", "x\0y", 3));
	unit_ok(state_xattr_set(s, 1, "user.empty", NULL, 0));
	unit_ok(state_xattr_set(s, 1, "user.big", big, sizeof(big)));
	unit_ok(state_xattr_get(s, 1, "user.a", &b));
	unit_same_bytes(b.data, b.len, "x\0y", 3);
	buf_reset(&b);
	unit_ok(state_xattr_get(s, 1, "user.empty", &b));
	ck_assert_uint_eq(b.len, 0);
	unit_ok(state_xattr_get(s, 1, "user.big", &b));
	unit_same_bytes(b.data, b.len, big, sizeof(big));
	unit_ok(state_xattr_list(s, 1, count_xattr, &count));
	ck_assert_int_eq(count, 3);
	unit_ok(state_xattr_remove(s, 1, "user.a"));
	unit_error(state_xattr_remove(s, 1, "user.a"), -ENODATA);
}
END_TEST

/* ---- versions ---- */

static void fill_hash(struct hash *h, uint64_t n)
{
	hash_of(&n, sizeof(n), h);
}

START_TEST(a_version_comes_back_whole)
{
	struct state_version v = {.ino = 2,
				  .body = 3,
				  .state = VERSION_DURABLE,
				  .kind = VERSION_EDIT,
				  .size = 1000,
				  .born = 4,
				  .died = 5,
				  .fragile = true,
				  .torn = true,
				  .has_recipe = true,
				  .flushed_size = 6,
				  .flushed_ctime_ns = -7,
				  .local_bytes = 500,
				  .local_whole = true,
				  .used_ns = 8};
	struct state_version got;
	uint64_t id;

	fill_hash(&v.recipe, 1);
	unit_ok(state_version_new(s, &v, &id));
	reopen();
	memset(&got, 0, sizeof(got));
	unit_ok(state_version_get(s, id, &got));
	ck_assert_uint_eq(got.ino, 2);
	ck_assert_uint_eq(got.body, 3);
	ck_assert_int_eq(got.state, VERSION_DURABLE);
	ck_assert_int_eq(got.kind, VERSION_EDIT);
	ck_assert_uint_eq(got.size, 1000);
	ck_assert_uint_eq(got.born, 4);
	ck_assert_uint_eq(got.died, 5);
	ck_assert(got.fragile && !got.fsynced && got.torn && got.local_whole && got.has_recipe);
	ck_assert(hash_equal(&got.recipe, &v.recipe));
	ck_assert_uint_eq(got.flushed_size, 6);
	ck_assert_int_eq(got.flushed_ctime_ns, -7);
	ck_assert_uint_eq(got.local_bytes, 500);
	ck_assert_int_eq(got.used_ns, 8);

	v.fsynced = true;
	v.has_recipe = v.fragile = v.torn = v.local_whole = false;
	unit_ok(state_version_set(s, &v));
	unit_ok(state_version_get(s, id, &got));
	ck_assert(!got.fragile && got.fsynced && !got.torn && !got.local_whole && !got.has_recipe);
	ck_assert(state_version_exists(s, id));
	unit_ok(state_inline_set(s, id, "abc", 3));
	unit_ok(state_version_remove(s, id));
	ck_assert(!state_version_exists(s, id));
	unit_error(state_version_get(s, id, &got), -ENOENT);
	unit_error(state_version_set(s, &v), -ENOENT);
	unit_error(state_version_remove(s, id), -ENOENT);
}
END_TEST

START_TEST(totals_follow_every_change)
{
	struct state_version v = {.state = VERSION_STAGED, .local_bytes = 100};
	uint64_t a = new_version(&v), local = 0, dirty = 0, b;

	v.local_bytes = 30;
	b = new_version(&v);
	unit_ok(state_version_totals(s, &local, &dirty));
	ck_assert_uint_eq(local, 130);
	ck_assert_uint_eq(dirty, 130);
	unit_ok(state_version_get(s, a, &v));
	v.state = VERSION_DURABLE;
	v.local_bytes = 110;
	unit_ok(state_version_set(s, &v));
	unit_ok(state_version_totals(s, &local, &dirty));
	ck_assert_uint_eq(local, 140);
	ck_assert_uint_eq(dirty, 30);
	unit_ok(state_begin(s));
	unit_ok(state_version_remove(s, b));
	unit_ok(state_version_totals(s, &local, &dirty));
	ck_assert_uint_eq(dirty, 0);
	state_end(s, -EIO);
	unit_ok(state_version_totals(s, &local, &dirty));
	ck_assert_uint_eq(local, 140);
	ck_assert_uint_eq(dirty, 30);
	reopen();
	unit_ok(state_version_totals(s, &local, &dirty));
	ck_assert_uint_eq(local, 140);
	ck_assert_uint_eq(dirty, 30);
}
END_TEST

START_TEST(inline_content_goes_with_its_version)
{
	uint64_t id = new_version(&(struct state_version){.state = VERSION_DURABLE});
	cleanup_buf struct buf b = {0};

	unit_error(state_inline_get(s, id, &b), -ENOENT);
	unit_ok(state_inline_set(s, id, "a\0b", 3));
	unit_ok(state_inline_get(s, id, &b));
	unit_same_bytes(b.data, b.len, "a\0b", 3);
	unit_ok(state_version_remove(s, id));
	unit_error(state_inline_get(s, id, &b), -ENOENT);
}
END_TEST

START_TEST(a_recipe_finds_its_version_local_ones_first)
{
	struct state_version v = {.state = VERSION_DURABLE, .has_recipe = true}, got;
	struct hash other;
	uint64_t local;

	fill_hash(&v.recipe, 1);
	fill_hash(&other, 2);
	new_version(&v);
	v.local_bytes = 5;
	local = new_version(&v);
	v.local_bytes = 9;
	v.state = VERSION_CLOSED;
	new_version(&v);
	unit_ok(state_version_by_recipe(s, &v.recipe, &got));
	ck_assert_uint_eq(got.id, local);
	unit_error(state_version_by_recipe(s, &other, &got), -ENOENT);
}
END_TEST

struct ids {
	uint64_t id[16];
	int count;
	bool remove;
};

static int note_version(void *arg, const struct state_version *v)
{
	struct ids *ids = arg;

	ids->id[ids->count++] = v->id;
	if (ids->remove) {
		unit_ok(state_version_remove(s, v->id));
		new_version(v);
	}
	return 0;
}

START_TEST(versions_are_told_by_what_they_need)
{
	struct ids unsafe = {.remove = true}, dead = {0}, two = {0}, evictable = {0}, again = {0};
	uint64_t staged = new_version(&(struct state_version){.state = VERSION_STAGED});
	uint64_t closed = new_version(&(struct state_version){.state = VERSION_CLOSED, .died = 9});
	uint64_t old = new_version(&(struct state_version){
		.state = VERSION_DURABLE, .local_bytes = 1, .used_ns = 50, .died = 3});
	uint64_t older = new_version(
		&(struct state_version){.state = VERSION_DURABLE, .local_bytes = 1, .used_ns = 20});
	uint64_t empty = new_version(
		&(struct state_version){.state = VERSION_DURABLE, .kind = VERSION_CACHE});

	new_version(&(struct state_version){.state = VERSION_DURABLE});
	unit_ok(state_version_each_dead(s, 100, note_version, &dead));
	ck_assert_int_eq(dead.count, 3);
	ck_assert_uint_eq(dead.id[0], empty);
	ck_assert_uint_eq(dead.id[1], old);
	ck_assert_uint_eq(dead.id[2], closed);
	unit_ok(state_version_each_dead(s, 2, note_version, &two));
	ck_assert_int_eq(two.count, 2);
	unit_ok(state_version_each_evictable(s, note_version, &evictable));
	ck_assert_int_eq(evictable.count, 2);
	ck_assert_uint_eq(evictable.id[0], older);
	ck_assert_uint_eq(evictable.id[1], old);
	unit_ok(state_version_each_unsafe(s, note_version, &unsafe));
	ck_assert_int_eq(unsafe.count, 2);
	ck_assert_uint_eq(unsafe.id[0], staged);
	ck_assert_uint_eq(unsafe.id[1], closed);
	unit_ok(state_version_each_unsafe(s, note_version, &again));
	ck_assert_int_eq(again.count, 2);
	ck_assert_uint_gt(again.id[0], empty);
}
END_TEST

/* ---- epochs and tags ---- */

static void set_epoch(uint64_t number, enum epoch_state state)
{
	struct state_epoch e = {.number = number, .state = state, .record = (char *)"{}"};

	unit_ok(state_epoch_set(s, &e));
}

START_TEST(an_epoch_comes_back_whole)
{
	struct state_epoch e = {.number = 7,
				.state = EPOCH_FAILED,
				.record = (char *)"{\"a\":1}",
				.error = (char *)"no space",
				.remote_delete_pending = true};
	struct state_epoch got;

	unit_error(state_epoch_get(s, 7, &got), -ENOENT);
	unit_ok(state_epoch_set(s, &e));
	reopen();
	unit_ok(state_epoch_get(s, 7, &got));
	ck_assert_int_eq(got.state, EPOCH_FAILED);
	ck_assert_str_eq(got.record, "{\"a\":1}");
	ck_assert_str_eq(got.error, "no space");
	ck_assert(got.remote_delete_pending && !got.superseded);
	state_epoch_free(&got);
	e = (struct state_epoch){.number = 7, .state = EPOCH_DROPPED, .superseded = true};
	unit_ok(state_epoch_set(s, &e));
	unit_ok(state_epoch_get(s, 7, &got));
	ck_assert_ptr_null(got.record);
	ck_assert_ptr_null(got.error);
	ck_assert(!got.remote_delete_pending && got.superseded);
}
END_TEST

static int drop_epoch(void *arg, const struct state_epoch *e)
{
	uint64_t *sum = arg;

	*sum = *sum * 10 + e->number;
	set_epoch(e->number + 100, EPOCH_DROPPED);
	return 0;
}

START_TEST(epochs_are_told_ascending_and_may_change)
{
	uint64_t sum = 0;

	set_epoch(3, EPOCH_SEALED);
	set_epoch(1, EPOCH_DROPPED);
	set_epoch(2, EPOCH_DURABLE);
	unit_ok(state_epoch_each(s, drop_epoch, &sum));
	ck_assert_uint_eq(sum, 123);
}
END_TEST

START_TEST(pending_epochs_are_found)
{
	uint64_t first = 0;

	unit_error(state_epoch_first_pending(s, &first), -ENOENT);
	set_epoch(1, EPOCH_DURABLE);
	set_epoch(2, EPOCH_DROPPED);
	unit_error(state_epoch_first_pending(s, &first), -ENOENT);
	ck_assert(!state_epoch_pending_in(s, 1, 0));
	set_epoch(5, EPOCH_UPLOADING);
	set_epoch(4, EPOCH_FAILED);
	set_epoch(6, EPOCH_SEALED);
	unit_ok(state_epoch_first_pending(s, &first));
	ck_assert_uint_eq(first, 4);
	ck_assert(state_epoch_pending_in(s, 1, 0));
	ck_assert(state_epoch_pending_in(s, 6, 7));
	ck_assert(!state_epoch_pending_in(s, 1, 4));
	ck_assert(state_epoch_pending_in(s, 1, 5));
	ck_assert(!state_epoch_pending_in(s, 7, 0));
	ck_assert(!state_epoch_pending_in(s, 5, 5));
}
END_TEST

static int sync_tag(void *arg, const char *name, uint64_t number)
{
	char *told = arg;

	sprintf(told + strlen(told), "%s=%d ", name, (int)number);
	return state_tag_synced(s, name, number);
}

START_TEST(tags_remember_what_the_remote_has_not_seen)
{
	char told[100] = "", all[100] = "", none[100] = "";
	uint64_t n;

	unit_error(state_tag_get(s, "best", &n), -ENOENT);
	unit_error(state_tag_remove(s, "best"), -ENOENT);
	unit_ok(state_tag_set(s, "best", 4));
	unit_ok(state_tag_set(s, "best", 5));
	unit_ok(state_tag_set(s, "a", 1));
	unit_ok(state_tag_set(s, "gone", 2));
	unit_ok(state_tag_remove(s, "gone"));
	unit_ok(state_tag_get(s, "best", &n));
	ck_assert_uint_eq(n, 5);
	unit_ok(state_tag_synced(s, "best", 4));
	unit_ok(state_tag_each_unsynced(s, sync_tag, told));
	ck_assert_str_eq(told, "a=1 best=5 gone=0 ");
	unit_ok(state_tag_each_unsynced(s, sync_tag, none));
	ck_assert_str_eq(none, "");
	unit_ok(state_tag_each(s, sync_tag, all));
	ck_assert_str_eq(all, "a=1 best=5 ");
}
END_TEST

/* ---- the store's ---- */

START_TEST(chunks_know_their_pack)
{
	struct state_chunk c = {.offset = 77, .stored_len = 10, .plain_len = UINT32_MAX}, got;
	struct hash one, two, three, pack_b;

	fill_hash(&one, 1);
	fill_hash(&two, 2);
	fill_hash(&three, 3);
	fill_hash(&c.pack, 10);
	fill_hash(&pack_b, 11);
	unit_error(state_chunk_get(s, &one, &got), -ENOENT);
	unit_ok(state_chunk_put(s, &one, &c));
	unit_ok(state_begin(s));
	c.pack = pack_b;
	unit_ok(state_chunk_put(s, &two, &c));
	state_end(s, -EIO);
	unit_ok(state_chunk_put(s, &three, &c));
	unit_error(state_chunk_get(s, &two, &got), -ENOENT);
	unit_ok(state_chunk_get(s, &three, &got));
	ck_assert(hash_equal(&got.pack, &pack_b));
	ck_assert_uint_eq(got.offset, 77);
	ck_assert_uint_eq(got.stored_len, 10);
	ck_assert_uint_eq(got.plain_len, UINT32_MAX);
	unit_ok(state_chunk_forget_pack(s, &pack_b));
	unit_ok(state_chunk_forget_pack(s, &two));
	unit_error(state_chunk_get(s, &three, &got), -ENOENT);
	unit_ok(state_chunk_get(s, &one, &got));
	unit_ok(state_chunk_put(s, &three, &c));
	unit_ok(state_chunk_get(s, &three, &got));
	ck_assert(hash_equal(&got.pack, &pack_b));
}
END_TEST

START_TEST(recipes_and_indexes_are_remembered)
{
	cleanup_buf struct buf b = {0};
	struct hash h;

	fill_hash(&h, 1);
	ck_assert(!state_index_loaded(s, "index/a"));
	unit_ok(state_index_mark_loaded(s, "index/a"));
	unit_ok(state_index_mark_loaded(s, "index/a"));
	unit_error(state_recipe_get(s, &h, &b), -ENOENT);
	unit_ok(state_recipe_put(s, &h, "re\0cipe", 7));
	reopen();
	ck_assert(state_index_loaded(s, "index/a"));
	ck_assert(!state_index_loaded(s, "index/b"));
	unit_ok(state_recipe_get(s, &h, &b));
	unit_same_bytes(b.data, b.len, "re\0cipe", 7);
}
END_TEST

/* ---- snapshots, threads, crashes ---- */

START_TEST(a_snapshot_sees_what_was_committed)
{
	uint64_t ino = new_file(S_IFREG);
	struct state *a = NULL, *b = NULL;
	struct state_file f;

	unit_ok(state_name_add(s, 1, "before", ino));
	unit_ok(state_begin(s));
	unit_ok(state_name_add(s, 1, "open", ino));
	unit_ok(state_snapshot_begin(s, &a));
	unit_ok(state_end(s, 0));
	unit_ok(state_name_remove(s, 1, "before"));
	unit_ok(state_snapshot_begin(s, &b));
	unit_ok(state_name_get(a, 1, "before", &(struct state_name){0}));
	unit_error(state_name_get(a, 1, "open", &(struct state_name){0}), -ENOENT);
	unit_error(state_name_get(b, 1, "before", &(struct state_name){0}), -ENOENT);
	unit_ok(state_name_get(b, 1, "open", &(struct state_name){0}));
	ck_assert_uint_eq(state_file_count(a), 1);
	state_snapshot_end(a);
	new_file(S_IFREG);
	/* A connection that comes back is a new view. */
	unit_ok(state_snapshot_begin(s, &a));
	ck_assert_uint_eq(state_file_count(a), 2);
	unit_ok(state_file_get(a, ino, &f));
	unit_error(state_file_remove(a, ino), -EROFS);
	state_snapshot_end(a);
	state_snapshot_end(b);
}
END_TEST

struct reading {
	struct state *snapshot;
	int count;
};

static int count_name(void *arg, const struct state_name *n, const char *name,
		      const struct state_file *f)
{
	(void)n;
	(void)name;
	(void)f;
	++*(int *)arg;
	return 0;
}

static void *read_snapshot(void *arg)
{
	struct reading *r = arg;

	state_dir_list_sorted(r->snapshot, 1, count_name, &r->count);
	state_snapshot_end(r->snapshot);
	return NULL;
}

START_TEST(snapshots_are_read_beside_a_writer)
{
	char name[32];

	for (int round = 0; round < 10; round++) {
		struct reading r[3] = {{0}};
		pthread_t thread[3];

		for (int t = 0; t < 3; t++) {
			for (int i = 0; i < 300; i++) {
				snprintf(name, sizeof(name), "%d.%d.%d", round, t, i);
				unit_ok(state_name_add(s, 1, name, 5));
			}
			unit_ok(state_snapshot_begin(s, &r[t].snapshot));
			ck_assert_int_eq(pthread_create(&thread[t], NULL, read_snapshot, &r[t]), 0);
		}
		for (int t = 0; t < 3; t++) {
			ck_assert_int_eq(pthread_join(thread[t], NULL), 0);
			ck_assert_int_eq(r[t].count, 900 * round + 300 * (t + 1));
		}
	}
}
END_TEST

static off_t file_size(const char *suffix)
{
	char file[PATH_MAX];
	struct stat st;

	snprintf(file, sizeof(file), "%s%s", path, suffix);
	return stat(file, &st) == 0 ? st.st_size : -1;
}

START_TEST(the_wal_is_moved_into_the_database)
{
	char value[3000];

	memset(value, 'v', sizeof(value));
	value[sizeof(value) - 1] = '\0';
	/* 120 MB go through the WAL, which stays far below that. */
	for (int i = 0; i < 20000; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%d", i % 500);
		unit_ok(state_begin(s));
		unit_ok(state_set_meta(s, key, value));
		unit_ok(state_end(s, 0));
	}
	ck_assert_int_lt(file_size("-wal"), 80 << 20);
	ck_assert_int_gt(file_size(""), 500 * 3000);
	unit_ok(state_sync(s));
}
END_TEST

START_TEST(a_killed_process_loses_no_commit)
{
	pid_t child;
	uint64_t n = 0, seen = 0;
	int pipes[2], status;

	state_close(s);
	s = NULL;
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		close(pipes[0]);
		if (state_open(dirfd_, path, &s))
			_exit(1);
		for (uint64_t i = 1;; i++)
			if (state_set_meta_u64(s, "n", i) ||
			    write(pipes[1], &i, sizeof(i)) != sizeof(i))
				_exit(1);
	}
	close(pipes[1]);
	while (seen < 3000 && read(pipes[0], &n, sizeof(n)) == sizeof(n))
		seen = n;
	ck_assert_uint_eq(seen, 3000);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	while (read(pipes[0], &n, sizeof(n)) == sizeof(n))
		seen = n;
	close(pipes[0]);
	open_state();
	unit_ok(state_get_meta_u64(s, "n", &n));
	ck_assert_uint_ge(n, seen);
	ck_assert_uint_le(n, seen + 1);
}
END_TEST

static TCase *fixture(Suite *suite, const char *name)
{
	TCase *t = unit_case(suite, name);

	tcase_add_checked_fixture(t, setup, teardown);
	return t;
}

static void add_opening(Suite *suite)
{
	TCase *t = fixture(suite, "opening");

	tcase_add_test(t, the_first_file_is_the_root);
	tcase_add_test(t, foreign_bytes_are_refused);
	tcase_add_test(t, somebody_elses_database_is_refused);
	tcase_add_test(t, a_newer_schema_is_refused);
	tcase_add_test(t, a_missing_directory_is_enoent);
	tcase_add_test(t, a_damaged_page_is_told);
	tcase_add_test(t, meta_comes_back);
	t = fixture(suite, "transactions");
	tcase_add_test(t, a_rollback_leaves_nothing);
	tcase_add_test(t, an_inner_failure_rolls_all_back);
	tcase_add_test(t, a_failed_statement_spoils_no_transaction);
	tcase_add_test(t, numbers_are_never_given_twice);
}

static void add_files(Suite *suite)
{
	TCase *t = fixture(suite, "files");

	tcase_add_test(t, a_file_comes_back_whole);
	tcase_add_test(t, a_removed_file_takes_target_and_xattrs_along);
	tcase_add_test(t, files_are_counted);
	tcase_add_test(t, names_are_bytes);
	tcase_add_test(t, a_lookup_gives_name_and_file);
	tcase_add_test(t, a_name_that_is_set_keeps_its_id);
	tcase_add_test(t, a_directory_is_listed_in_order_of_ids_and_of_names);
	tcase_add_test(t, a_listing_may_list_what_is_below);
	tcase_add_test(t, directories_know_their_depth_and_height);
	tcase_add_test(t, the_names_of_a_file_may_change_while_they_are_told);
	tcase_add_test(t, a_name_without_a_file_is_told_so);
	tcase_add_test(t, xattrs_come_back);
}

static void add_content(Suite *suite)
{
	TCase *t = fixture(suite, "content");

	tcase_add_test(t, a_version_comes_back_whole);
	tcase_add_test(t, totals_follow_every_change);
	tcase_add_test(t, inline_content_goes_with_its_version);
	tcase_add_test(t, a_recipe_finds_its_version_local_ones_first);
	tcase_add_test(t, versions_are_told_by_what_they_need);
	tcase_add_test(t, an_epoch_comes_back_whole);
	tcase_add_test(t, epochs_are_told_ascending_and_may_change);
	tcase_add_test(t, pending_epochs_are_found);
	tcase_add_test(t, tags_remember_what_the_remote_has_not_seen);
	tcase_add_test(t, chunks_know_their_pack);
	tcase_add_test(t, recipes_and_indexes_are_remembered);
}

int main(void)
{
	Suite *suite = suite_create("volume_state");
	TCase *t;

	add_opening(suite);
	add_files(suite);
	add_content(suite);
	t = fixture(suite, "connections");
	tcase_add_test(t, a_snapshot_sees_what_was_committed);
	tcase_add_test(t, snapshots_are_read_beside_a_writer);
	tcase_add_test(t, the_wal_is_moved_into_the_database);
	tcase_add_test(t, a_killed_process_loses_no_commit);
	return unit_run(suite);
}
