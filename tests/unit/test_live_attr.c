/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree: attributes, also of content that is being replaced. */
#include "lib/live/live.h"

#include "tests/unit/live_unit.h"

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
	CHANGES_CTIME(live_link(vol, ino, ROOT_INO, "b", NULL, &a));
	CHANGES_CTIME(live_rename(vol, ROOT_INO, "b", ROOT_INO, "c", 0, NULL));
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
	ck_assert_int_eq(handle_write(h, "new", 3, 0, NULL, NULL), 3);
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
	/* Nobody has it open: what the file is now. */
	unit_ok(live_getattr(vol, ino, old.body, &a));
	ck_assert_uint_eq(a.size, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("live_attr");
	TCase *t;

	t = fixture(suite, "attributes");
	tcase_add_test(t, attributes_are_set_and_kept);
	tcase_add_test(t, chown_takes_the_right_to_be_somebody);
	tcase_add_test(t, every_change_is_one_of_ctime);
	tcase_add_test(t, a_size_is_set);
	tcase_add_test(t, times_of_what_is_being_written_are_kept_by_its_close);
	tcase_add_test(t, xattrs_obey_their_flags);
	t = fixture(suite, "content that is being replaced");
	tcase_add_test(t, a_replacement_is_seen_by_its_writer_only);
	tcase_add_test(t, content_that_was_replaced_keeps_its_size_for_readers);
	return unit_run(suite);
}
