/* SPDX-License-Identifier: Apache-2.0 */
/* One suite over every kind of remote: what remote.h promises. */
#include "tests/unit/conformance_unit.h"

START_TEST(what_is_put_comes_back_and_is_replaced)
{
	struct remote *r = fresh(_i);

	put_text(r, "epochfs.json", "one");
	assert_holds(r, "epochfs.json", "one");
	put_text(r, "epochfs.json", "another, longer");
	assert_holds(r, "epochfs.json", "another, longer");
	put_text(r, "epochfs.json", "");
	assert_holds(r, "epochfs.json", "");
	put_text(r, "packs/00/a.b_c-D", "deep");
	assert_holds(r, "packs/00/a.b_c-D", "deep");
	remote_close(r);
}
END_TEST

START_TEST(all_bytes_and_sizes_survive)
{
	static const size_t sizes[] = {1, 255, 4096, 65537, (5 << 20) + 3};
	struct remote *r = fresh(_i);

	for (size_t i = 0; i < COUNT(sizes); i++) {
		uint8_t *data = malloc(sizes[i]);
		struct buf cleanup_buf got = {0};

		for (size_t at = 0; at < sizes[i]; at++)
			data[at] = (uint8_t)(at * 131 + at / 256);
		unit_ok(remote_put(r, "bytes", data, sizes[i]));
		unit_ok(remote_get(r, "bytes", 0, REMOTE_TO_END, &got));
		unit_same_bytes(got.data, got.len, data, sizes[i]);
		free(data);
	}
	remote_close(r);
}
END_TEST

START_TEST(absent_is_enoent_and_changes_nothing)
{
	struct buf cleanup_buf out = {0};
	struct remote *r = fresh(_i);
	uint64_t size = 7;

	buf_put(&out, "kept", 4);
	unit_error(remote_get(r, "no", 0, REMOTE_TO_END, &out), -ENOENT);
	unit_error(remote_get(r, "no/such/object", 0, 1, &out), -ENOENT);
	unit_error(remote_size(r, "no", &size), -ENOENT);
	put_text(r, "dir/object", "x");
	unit_error(remote_get(r, "dir", 0, 1, &out), -ENOENT);
	unit_error(remote_get(r, "dir/other", 0, 1, &out), -ENOENT);
	ck_assert_str_eq(buf_str(&out), "kept");
	ck_assert_uint_eq(size, 7);
	unit_ok(remote_delete(r, "no"));
	unit_ok(remote_delete(r, "no/such/object"));
	unit_ok(remote_delete(r, "dir/other"));
	unit_ok(remote_delete(r, "dir/object"));
	unit_error(remote_size(r, "dir/object", &size), -ENOENT);
	unit_ok(remote_delete(r, "dir/object"));
	remote_close(r);
}
END_TEST

START_TEST(ranges_are_appended_and_end_with_the_object)
{
	static const struct {
		uint64_t offset, len;
		const char *text;
	} ranges[] = {{0, 10, "0123456789"},
		      {0, 1, "0"},
		      {9, 1, "9"},
		      {3, 4, "3456"},
		      {8, 100, "89"},
		      {10, 1, ""},
		      {11, 5, ""},
		      {5, UINT64_MAX, "56789"},
		      {UINT64_MAX, UINT64_MAX, ""},
		      {4, 0, ""},
		      {1, UINT64_MAX - 1, "123456789"}};
	struct remote *r = fresh(_i);

	put_text(r, "a/range", "0123456789");
	for (size_t i = 0; i < COUNT(ranges); i++) {
		struct buf cleanup_buf out = {0};

		buf_put_u8(&out, '>');
		unit_ok(remote_get(r, "a/range", ranges[i].offset, ranges[i].len, &out));
		unit_ok(buf_error(&out));
		ck_assert_str_eq(buf_str(&out) + 1, ranges[i].text);
		ck_assert_int_eq(out.data[0], '>');
	}
	remote_close(r);
}
END_TEST

START_TEST(put_if_absent_never_replaces)
{
	struct remote *r = fresh(_i);

	unit_ok(remote_put_if_absent(r, "epochs/1", "first", 5));
	unit_error(remote_put_if_absent(r, "epochs/1", "other", 5), -EEXIST);
	unit_error(remote_put_if_absent(r, "epochs/1", "longer one", 10), -EEXIST);
	assert_holds(r, "epochs/1", "first");
	unit_ok(remote_delete(r, "epochs/1"));
	unit_ok(remote_put_if_absent(r, "epochs/1", "", 0));
	assert_holds(r, "epochs/1", "");
	put_text(r, "epochs/1", "put replaces");
	assert_holds(r, "epochs/1", "put replaces");
	remote_close(r);
}
END_TEST

/* The size that was listed for this key, exactly once; -1: not listed. */
static int64_t seen_size(const struct seen *s, const char *key)
{
	int64_t size = -1;

	for (size_t i = 0; i < s->count; i++) {
		if (strcmp(s->keys[i], key) != 0)
			continue;
		ck_assert_msg(size == -1, "%s listed twice", key);
		size = (int64_t)s->sizes[i];
	}
	return size;
}

START_TEST(list_gives_every_object_below_the_prefix_once)
{
	static const char *const keys[] = {"epochfs.json", "epochs/1", "epochs/2",  "packs/aa/x",
					   "packs/ab/y",   "packs2/z", "epochs.d/q"};
	struct remote *r = fresh(_i);
	struct seen all = {0}, packs = {0}, none = {0}, stopped = {.stop_at = 2};

	unit_ok(remote_list(r, "", see, &none));
	for (size_t i = 0; i < COUNT(keys); i++)
		unit_ok(remote_put(r, keys[i], "0123456789", i));
	unit_ok(remote_list(r, "", see, &all));
	ck_assert_uint_eq(all.count, COUNT(keys));
	for (size_t i = 0; i < COUNT(keys); i++)
		ck_assert_int_eq(seen_size(&all, keys[i]), (int64_t)i);
	unit_ok(remote_list(r, "packs/", see, &packs));
	ck_assert_uint_eq(packs.count, 2);
	ck_assert_int_eq(seen_size(&packs, "packs/aa/x"), 3);
	ck_assert_int_eq(seen_size(&packs, "packs/ab/y"), 4);
	unit_ok(remote_list(r, "absent/", see, &none));
	unit_ok(remote_list(r, "packs/zz/", see, &none));
	ck_assert_uint_eq(none.count, 0);
	unit_error(remote_list(r, "", see, &stopped), 77);
	ck_assert_uint_eq(stopped.count, 2);
	remote_close(r);
}
END_TEST

static int delete_it(void *arg, const char *key, uint64_t size)
{
	struct remote *r = arg;

	(void)size;
	return remote_delete(r, key);
}

START_TEST(a_list_callback_may_use_the_remote)
{
	struct remote *r = fresh(_i);
	struct seen left = {0};
	char key[32];

	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "packs/%02d/x", i);
		put_text(r, key, "x");
	}
	unit_ok(remote_list(r, "packs/", delete_it, r));
	unit_ok(remote_list(r, "", see, &left));
	ck_assert_uint_eq(left.count, 0);
	remote_close(r);
}
END_TEST

static int count_one(void *arg, const char *key, uint64_t size)
{
	(void)key, (void)size;
	++*(size_t *)arg;
	return 0;
}

static size_t objects_below(struct remote *r, const char *prefix)
{
	size_t count = 0;

	unit_ok(remote_list(r, prefix, count_one, &count));
	return count;
}

/* More than one request takes, where a request takes many; less where each costs. */
static size_t many_keys(void)
{
	if (!server)
		return 2500;
	return strncmp(server, "s3:", 3) == 0 || strncmp(server, "gs:", 3) == 0 ? 1001 : 40;
}

START_TEST(many_are_deleted_whether_they_are_there_or_not)
{
	size_t count = many_keys(), there = count < 500 ? count / 4 : count / 50;
	struct remote *r = fresh(_i);
	char(*keys)[32] = calloc(count, sizeof(*keys));
	const char **each = calloc(count, sizeof(*each));

	unit_ok(remote_delete_many(r, NULL, 0));
	put_text(r, "many/kept", "x");
	put_text(r, "others/000001", "x");
	for (size_t i = 0; i < count; i++) {
		snprintf(keys[i], sizeof(keys[i]), "many/%02zu/%06zu", i % 7, i);
		each[i] = keys[i];
		if (i % (count / there) == 0 || i + 1 == count)
			put_text(r, keys[i], "x");
	}
	ck_assert_uint_gt(objects_below(r, "many/"), there);
	unit_ok(remote_delete_many(r, each, count));
	ck_assert_uint_eq(objects_below(r, "many/"), 1);
	assert_holds(r, "many/kept", "x");
	assert_holds(r, "others/000001", "x");
	unit_ok(remote_delete_many(r, each, count < 20 ? count : 20));
	free(each);
	free(keys);
	remote_close(r);
}
END_TEST

START_TEST(a_bad_key_keeps_many_from_being_deleted)
{
	static const char *const keys[] = {"a", "b", "a", "b", "../c", "d"};
	struct remote *r = fresh(_i);

	put_text(r, "a", "x");
	unit_error(remote_delete_many(r, keys, COUNT(keys)), -EINVAL);
	assert_holds(r, "a", "x");
	remote_cancel(r);
	unit_error(remote_delete_many(r, keys, 2), -ECANCELED);
	remote_resume(r);
	/* A key may be there twice. */
	unit_ok(remote_delete_many(r, keys, 4));
	ck_assert_uint_eq(objects_below(r, ""), 0);
	remote_close(r);
}
END_TEST

START_TEST(hostile_keys_are_refused_everywhere)
{
	static const char *const bad[] = {"",	   "/",	       "/a",	   "a/",   "a//b",
					  ".",	   "..",       "a/..",	   "../a", "a/../b",
					  "./a",   "a/.",      "a b",	   "a\nb", "a\\b",
					  "a%2fb", "\xc3\xa4", "a:b",	   "a*",   "~",
					  "a\x7f", ".tmp-abc", "a/.tmp-1", "a+b",  "/etc/passwd"};
	struct remote *r = fresh(_i);
	struct buf cleanup_buf out = {0};
	struct seen seen = {0};
	char longest[REMOTE_KEY_MAX + 2], part[258];
	uint64_t size;

	for (size_t i = 0; i < COUNT(bad); i++) {
		unit_error(remote_put(r, bad[i], "x", 1), -EINVAL);
		unit_error(remote_put_if_absent(r, bad[i], "x", 1), -EINVAL);
		unit_error(remote_get(r, bad[i], 0, 1, &out), -EINVAL);
		unit_error(remote_size(r, bad[i], &size), -EINVAL);
		unit_error(remote_delete(r, bad[i]), -EINVAL);
	}
	unit_error(remote_list(r, "a", see, &seen), -EINVAL);
	unit_error(remote_list(r, "/", see, &seen), -EINVAL);
	unit_error(remote_list(r, "../", see, &seen), -EINVAL);
	unit_error(remote_list(r, "a//", see, &seen), -EINVAL);
	memset(part, 'p', sizeof(part) - 1);
	part[256] = '\0';
	unit_error(remote_put(r, part, "x", 1), -EINVAL);
	part[255] = '\0';
	put_text(r, part, "255 bytes");
	memset(longest, 'k', sizeof(longest));
	longest[200] = longest[400] = '/';
	longest[REMOTE_KEY_MAX + 1] = '\0';
	unit_error(remote_put(r, longest, "x", 1), -EINVAL);
	longest[REMOTE_KEY_MAX] = '\0';
	put_text(r, longest, "512 bytes");
	assert_holds(r, longest, "512 bytes");
	put_text(r, ".hidden/..x/...", "odd but good");
	assert_holds(r, ".hidden/..x/...", "odd but good");
	remote_close(r);
}
END_TEST

START_TEST(a_remote_is_checked_for_writing_without_a_trace)
{
	struct remote *r = fresh(_i);
	struct seen seen = {0};

	unit_ok(remote_check_writable(r));
	unit_ok(remote_list(r, "", see, &seen));
	ck_assert_uint_eq(seen.count, 0);
	remote_close(r);
}
END_TEST

START_TEST(cancel_holds_until_resume)
{
	struct remote *r = fresh(_i);
	struct seen seen = {0};
	struct buf cleanup_buf out = {0};

	remote_cancel(r);
	unit_error(remote_put(r, "a", "x", 1), -ECANCELED);
	unit_error(remote_put_if_absent(r, "a", "x", 1), -ECANCELED);
	unit_error(remote_get(r, "a", 0, 1, &out), -ECANCELED);
	unit_error(remote_list(r, "", see, &seen), -ECANCELED);
	unit_error(remote_delete(r, "a"), -ECANCELED);
	remote_resume(r);
	put_text(r, "a", "x");
	remote_close(r);
}
END_TEST

START_TEST(references_share_one_remote)
{
	char *dir = unit_dir();
	struct remote *a = open_kind(_i, dir);
	struct remote *b = remote_ref(a);
	struct remote *other = open_kind(_i, dir);

	put_text(a, "shared", "yes");
	remote_close(a);
	assert_holds(b, "shared", "yes");
	remote_close(b);
	assert_holds(other, "shared", "yes");
	remote_close(other);
	free(dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_conformance");
	TCase *t = unit_case(s, "every kind");
	int count = kinds_to_test();

	tcase_add_loop_test(t, what_is_put_comes_back_and_is_replaced, 0, count);
	tcase_add_loop_test(t, all_bytes_and_sizes_survive, 0, count);
	tcase_add_loop_test(t, absent_is_enoent_and_changes_nothing, 0, count);
	tcase_add_loop_test(t, ranges_are_appended_and_end_with_the_object, 0, count);
	tcase_add_loop_test(t, put_if_absent_never_replaces, 0, count);
	tcase_add_loop_test(t, list_gives_every_object_below_the_prefix_once, 0, count);
	tcase_add_loop_test(t, a_list_callback_may_use_the_remote, 0, count);
	tcase_add_loop_test(t, many_are_deleted_whether_they_are_there_or_not, 0, count);
	tcase_add_loop_test(t, a_bad_key_keeps_many_from_being_deleted, 0, count);
	tcase_add_loop_test(t, hostile_keys_are_refused_everywhere, 0, count);
	tcase_add_loop_test(t, a_remote_is_checked_for_writing_without_a_trace, 0, count);
	tcase_add_loop_test(t, cancel_holds_until_resume, 0, count);
	tcase_add_loop_test(t, references_share_one_remote, 0, count);
	return unit_run(s);
}
