/* SPDX-License-Identifier: Apache-2.0 */
/* What is promised of a single kind of remote: none, and memory. */
#include "lib/net/open.h"
#include "tests/unit/conformance_unit.h"

START_TEST(none_is_empty_and_takes_nothing)
{
	struct buf cleanup_buf out = {0};
	struct remote *r = NULL;
	struct seen seen = {0};
	uint64_t size;

	unit_ok(remote_open("none", &r));
	ck_assert(remote_is_none(r));
	unit_error(remote_put(r, "a", "x", 1), -EROFS);
	unit_error(remote_put_if_absent(r, "a", "x", 1), -EROFS);
	unit_error(remote_delete(r, "a"), -EROFS);
	unit_error(remote_get(r, "a", 0, 1, &out), -ENOENT);
	unit_error(remote_size(r, "a", &size), -ENOENT);
	unit_ok(remote_list(r, "", see, &seen));
	unit_error(remote_check_writable(r), -EROFS);
	unit_error(remote_put(r, "../a", "x", 1), -EINVAL);
	remote_close(r);
	unit_ok(remote_open("fault+none", &r));
	ck_assert(remote_is_none(r));
	remote_close(r);
	unit_ok(remote_open("memory:none", &r));
	ck_assert(!remote_is_none(r));
	remote_close(r);
}
END_TEST

START_TEST(memory_is_shared_by_name_while_it_is_open)
{
	struct remote *a = NULL, *same = NULL, *other = NULL;
	uint64_t size;

	unit_ok(remote_open("memory:a", &a));
	unit_ok(remote_open("memory:a", &same));
	unit_ok(remote_open("memory:b", &other));
	put_text(a, "k", "v");
	assert_holds(same, "k", "v");
	unit_error(remote_size(other, "k", &size), -ENOENT);
	remote_close(a);
	assert_holds(same, "k", "v");
	remote_close(same);
	unit_ok(remote_open("memory:a", &a));
	unit_error(remote_size(a, "k", &size), -ENOENT);
	remote_close(a);
	remote_close(other);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_single");
	TCase *t = unit_case(s, "single kinds");

	tcase_add_test(t, none_is_empty_and_takes_nothing);
	tcase_add_test(t, memory_is_shared_by_name_while_it_is_open);
	return unit_run(s);
}
