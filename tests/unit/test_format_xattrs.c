/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of extended attributes. */
#include "lib/format/xattrs.h"
#include "tests/unit/unit.h"

static char big[XATTR_VALUE_BYTES_MAX + 1];

START_TEST(attributes_are_kept_in_order)
{
	cleanup_buf struct buf list = {0};
	struct xattrs_iter it;
	static const char *const names[] = {"security.a", "user.a", "user.aa", "user.b"};
	static const char *const values[] = {"sec", "one", "", "two"};
	const char *name;
	const void *value;
	size_t len, i = 0;

	unit_ok(xattrs_set(&list, "user.b", "two", 3));
	unit_ok(xattrs_set(&list, "user.a", "older", 5));
	unit_ok(xattrs_set(&list, "user.aa", NULL, 0));
	unit_ok(xattrs_set(&list, "security.a", "sec", 3));
	unit_ok(xattrs_set(&list, "user.a", "one", 3));
	unit_ok(xattrs_check(list.data, list.len));
	it = xattrs_iter_of(list.data, list.len);
	for (; xattrs_next(&it, &name, &value, &len); i++) {
		ck_assert_str_eq(name, names[i]);
		unit_same_bytes(value, len, values[i], strlen(values[i]));
	}
	ck_assert_uint_eq(i, 4);
	unit_ok(xattrs_get(list.data, list.len, "user.b", &value, &len));
	unit_same_bytes(value, len, "two", 3);
	unit_error(xattrs_get(list.data, list.len, "user.c", &value, &len), -ENODATA);
	unit_error(xattrs_get(list.data, list.len, "user", &value, &len), -ENODATA);
}
END_TEST

START_TEST(removing_the_last_leaves_nothing)
{
	cleanup_buf struct buf list = {0};

	unit_error(xattrs_remove(&list, "user.a"), -ENODATA);
	unit_ok(xattrs_set(&list, "user.a", "1", 1));
	unit_ok(xattrs_set(&list, "user.b", "2", 1));
	unit_error(xattrs_remove(&list, "user.c"), -ENODATA);
	unit_ok(xattrs_remove(&list, "user.a"));
	unit_ok(xattrs_check(list.data, list.len));
	unit_ok(xattrs_remove(&list, "user.b"));
	ck_assert_uint_eq(list.len, 0);
	unit_ok(xattrs_check(list.data, list.len));
}
END_TEST

START_TEST(limits_have_their_errors)
{
	cleanup_buf struct buf list = {0};
	char name[XATTR_NAME_BYTES_MAX + 2], numbered[32];
	size_t len;
	int error;

	memset(name, 'n', sizeof(name));
	name[XATTR_NAME_BYTES_MAX + 1] = '\0';
	unit_error(xattrs_set(&list, name, "", 0), -ERANGE);
	unit_error(xattrs_set(&list, "", "", 0), -ERANGE);
	name[XATTR_NAME_BYTES_MAX] = '\0';
	unit_ok(xattrs_set(&list, name, "", 0));
	unit_error(xattrs_set(&list, "user.a", big, XATTR_VALUE_BYTES_MAX + 1), -E2BIG);
	unit_ok(xattrs_set(&list, "user.a", big, XATTR_VALUE_BYTES_MAX));
	for (int i = 0;; i++) {
		len = list.len;
		snprintf(numbered, sizeof(numbered), "user.%d", i);
		error = xattrs_set(&list, numbered, big, XATTR_VALUE_BYTES_MAX);
		if (error)
			break;
	}
	ck_assert_int_eq(error, -ENOSPC);
	ck_assert_uint_eq(list.len, len);
	ck_assert_uint_le(list.len, XATTRS_BYTES_MAX);
	unit_ok(xattrs_check(list.data, list.len));
}
END_TEST

START_TEST(malformed_lists_are_refused)
{
	static const struct {
		const char *bytes;
		size_t len;
	} bad[] = {
		{"\1a\0", 3},		      /* no value */
		{"\1a\0\2x", 5},	      /* the value is cut */
		{"\1a\1\0", 4},		      /* no NUL after the name */
		{"\0\0\0", 3},		      /* empty name */
		{"\2a\0\0\0", 5},	      /* NUL in the name */
		{"\1b\0\0\1a\0\0", 8},	      /* not sorted */
		{"\1a\0\0\1a\0\0", 8},	      /* twice */
		{"\x81\0a\0\0", 5},	      /* a longer varint than needed */
		{"\1a\0\xff\xff\xff\xff", 7}, /* a length without end */
	};

	unit_ok(xattrs_check("\1a\0\0\1b\0\0", 8));
	unit_ok(xattrs_check(NULL, 0));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		unit_error(xattrs_check(bad[i].bytes, bad[i].len), -EBADMSG);
}
END_TEST

START_TEST(too_long_names_values_and_lists_are_refused)
{
	cleanup_buf struct buf list = {0};

	buf_put_varint(&list, 256);
	buf_put(&list, big, 1);
	for (int i = 0; i < 256; i++)
		buf_put_u8(&list, 'n');
	buf_put(&list, "\0\0", 2);
	unit_error(xattrs_check(list.data, list.len), -EBADMSG);
	buf_reset(&list);
	buf_put(&list, "\1a\0", 3);
	buf_put_bytes(&list, big, sizeof(big));
	unit_error(xattrs_check(list.data, list.len), -EBADMSG);
	buf_reset(&list);
	for (char c = 'a'; list.len <= XATTRS_BYTES_MAX && !buf_error(&list); c++) {
		buf_put_u8(&list, 1);
		buf_put_u8(&list, (uint8_t)c);
		buf_put_u8(&list, 0);
		buf_put_bytes(&list, big, XATTR_VALUE_BYTES_MAX);
	}
	unit_ok(buf_error(&list));
	unit_error(xattrs_check(list.data, list.len), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_xattrs");
	TCase *t = unit_case(s, "list");

	tcase_add_test(t, attributes_are_kept_in_order);
	tcase_add_test(t, removing_the_last_leaves_nothing);
	tcase_add_test(t, limits_have_their_errors);
	tcase_add_test(t, malformed_lists_are_refused);
	tcase_add_test(t, too_long_names_values_and_lists_are_refused);
	return unit_run(s);
}
