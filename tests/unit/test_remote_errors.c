/* SPDX-License-Identifier: Apache-2.0 */
/* The wall in remote.c: what a kind answers, and what its callers are given. */
#include "lib/remote/remote.h"

#include "lib/remote/remote_ops.h"
#include "tests/unit/unit.h"

/* A kind whose every operation fails with the same error. */
struct odd {
	struct remote base;
	int error;
};

static int refuse(struct remote *r)
{
	int error = ((struct odd *)r)->error;

	return remote_set_reason(r, error, "said %d; look there", -error);
}

static int odd_put(struct remote *r, const char *key, const void *data, size_t len)
{
	(void)key, (void)data, (void)len;
	return refuse(r);
}

static int odd_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		   struct buf *out)
{
	(void)key, (void)offset, (void)len, (void)out;
	return refuse(r);
}

static int odd_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	(void)key, (void)ret_size;
	return refuse(r);
}

static int odd_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	(void)prefix;
	return fn(arg, "k", 1) ? -EIO : refuse(r);
}

static int odd_delete(struct remote *r, const char *key)
{
	(void)key;
	return refuse(r);
}

static int odd_check_create(struct remote *r, enum remote_create *ret_create)
{
	(void)ret_create;
	return refuse(r);
}

static const struct remote_ops odd_ops = {
	.put = odd_put,
	.put_if_absent = odd_put,
	.get = odd_get,
	.size = odd_size,
	.list = odd_list,
	.delete = odd_delete,
	.check_create = odd_check_create,
};

static struct remote *odd_open(int error)
{
	struct odd *o = calloc(1, sizeof(*o));

	ck_assert_ptr_nonnull(o);
	unit_ok(remote_init(&o->base, &odd_ops, "odd", NULL));
	o->error = error;
	return &o->base;
}

static int pass(void *arg, const char *key, uint64_t size)
{
	(void)key, (void)size;
	return *(int *)arg;
}

/* Every operation gives `wanted`, but those that may give it as their answer. */
static void all_give(struct remote *r, int wanted, int of_reading, int of_creating)
{
	struct buf out = {0};
	enum remote_create create;
	uint64_t size;
	int go_on = 0;

	unit_error(remote_put(r, "k", "v", 1), wanted);
	unit_error(remote_put_if_absent(r, "k", "v", 1), of_creating);
	unit_error(remote_get(r, "k", 0, 1, &out), of_reading);
	unit_error(remote_size(r, "k", &size), of_reading);
	unit_error(remote_list(r, "", pass, &go_on), wanted);
	unit_error(remote_delete(r, "k"), wanted);
	unit_error(remote_delete_many(r, (const char *const[]){"k", "l"}, 2), wanted);
	unit_error(remote_check_create(r, &create), wanted);
	buf_free(&out);
}

START_TEST(an_answer_comes_only_from_the_operation_that_may_give_it)
{
	struct remote *gone = odd_open(-ENOENT), *there = odd_open(-EEXIST);

	all_give(gone, -EIO, -ENOENT, -EIO);
	all_give(there, -EIO, -EIO, -EEXIST);
	remote_close(gone);
	remote_close(there);
}
END_TEST

/* What upper layers say to one another is nobody else's. */
START_TEST(what_is_not_in_the_table_is_eio)
{
	static const int foreign[] = {-ENODATA, -EBADMSG, -EUCLEAN, -ESTALE, -EAGAIN, 1};
	struct remote *r = odd_open(foreign[_i]);

	all_give(r, -EIO, -EIO, -EIO);
	remote_close(r);
}
END_TEST

START_TEST(what_is_in_the_table_passes)
{
	static const int known[] = {-EACCES,	-EPERM,	       -EROFS, -EIO,
				    -ETIMEDOUT, -ECONNREFUSED, -ENOMEM};
	struct remote *r = odd_open(known[_i]);

	all_give(r, known[_i], known[_i], known[_i]);
	remote_close(r);
}
END_TEST

/* Of anything but a put it would look like a full disk here, for which caches are emptied. */
START_TEST(a_full_remote_is_told_by_puts_alone)
{
	struct remote *r = odd_open(-ENOSPC);
	struct buf out = {0};
	enum remote_create create;
	uint64_t size;
	int go_on = 0;

	unit_error(remote_put(r, "k", "v", 1), -ENOSPC);
	unit_error(remote_put_if_absent(r, "k", "v", 1), -ENOSPC);
	unit_error(remote_check_create(r, &create), -ENOSPC);
	unit_error(remote_get(r, "k", 0, 1, &out), -EIO);
	unit_error(remote_size(r, "k", &size), -EIO);
	unit_error(remote_list(r, "", pass, &go_on), -EIO);
	unit_error(remote_delete(r, "k"), -EIO);
	unit_error(remote_delete_many(r, (const char *const[]){"k", "l"}, 2), -EIO);
	buf_free(&out);
	remote_close(r);
}
END_TEST

START_TEST(the_reason_stays)
{
	char text[REMOTE_TEXT_MAX];
	struct remote *r = odd_open(-ENOENT);

	unit_error(remote_put(r, "k", "v", 1), -EIO);
	ck_assert_str_eq(remote_strerror(r, -EIO, text), "odd: said 2; look there");
	remote_close(r);
}
END_TEST

/* Whatever the callback says ends the listing, and is what the caller gets: through layers, too. */
START_TEST(what_a_callback_says_is_no_error_of_the_remote)
{
	static const int said[] = {1, -ENOENT, -EUCLEAN};
	struct remote *r = odd_open(-EIO), *retry;
	struct remote_state state;

	unit_ok(remote_retry_new(r, NULL, &retry));
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		int end = said[i];

		unit_error(remote_list(r, "", pass, &end), said[i]);
		unit_error(remote_list(retry, "", pass, &end), said[i]);
	}
	remote_get_state(retry, &state);
	ck_assert_uint_eq(state.retries, 0);
	remote_close(retry);
}
END_TEST

/* For a put it was a success: the log said that the remote works again. */
START_TEST(a_put_without_its_bucket_counts_as_a_failure)
{
	const struct remote_retry_policy once = {.max_tries = 1};
	struct remote *r = odd_open(-ENOENT), *retry;
	struct remote_state state;

	unit_ok(remote_retry_new(r, &once, &retry));
	unit_error(remote_put(retry, "k", "v", 1), -EIO);
	remote_get_state(retry, &state);
	ck_assert_uint_eq(state.failures, 1);
	remote_close(retry);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_errors");
	TCase *t = unit_case(s, "wall");

	tcase_add_test(t, an_answer_comes_only_from_the_operation_that_may_give_it);
	tcase_add_loop_test(t, what_is_not_in_the_table_is_eio, 0, 6);
	tcase_add_loop_test(t, what_is_in_the_table_passes, 0, 7);
	tcase_add_test(t, a_full_remote_is_told_by_puts_alone);
	tcase_add_test(t, the_reason_stays);
	tcase_add_test(t, what_a_callback_says_is_no_error_of_the_remote);
	tcase_add_test(t, a_put_without_its_bucket_counts_as_a_failure);
	return unit_run(s);
}
