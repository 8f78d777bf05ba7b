/* SPDX-License-Identifier: Apache-2.0 */
/* Finding out what create-if-absent is worth, over servers that keep, ignore or break it; and the
 * reasons that a remote gives for its errors. */
#include "lib/net/open.h"
#include "lib/remote/remote_ops.h"

#include "lib/util/clock.h"
#include "tests/unit/unit.h"

/* A server of one object, which does as it is told. */
struct server {
	struct remote base;
	enum { KEEPS, IGNORES, LIES, HAS_NONE, FAILS_ONCE } habit;
	char key[64];
	uint8_t data[64];
	size_t len;
	unsigned calls, deleted;
};

static int server_put(struct remote *r, const char *key, const void *data, size_t len)
{
	struct server *s = (struct server *)r;

	snprintf(s->key, sizeof(s->key), "%s", key);
	memcpy(s->data, data, len);
	s->len = len;
	return 0;
}

static int server_create(struct remote *r, const char *key, const void *data, size_t len)
{
	struct server *s = (struct server *)r;
	bool there = strcmp(s->key, key) == 0;

	if (s->habit == HAS_NONE)
		return -EOPNOTSUPP;
	if (s->habit == FAILS_ONCE && s->calls++ == 1)
		return -EIO;
	if (!there || s->habit == IGNORES || s->habit == LIES)
		server_put(r, key, data, len);
	return there && s->habit != IGNORES ? -EEXIST : 0;
}

static int server_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		      struct buf *out)
{
	struct server *s = (struct server *)r;

	(void)offset, (void)len;
	if (strcmp(s->key, key) != 0)
		return -ENOENT;
	buf_put(out, s->data, s->len);
	return buf_error(out);
}

static int server_delete(struct remote *r, const char *key)
{
	struct server *s = (struct server *)r;

	if (strcmp(s->key, key) == 0) {
		s->key[0] = '\0';
		s->deleted++;
	}
	return 0;
}

static int server_check_create(struct remote *r, enum remote_create *ret_create)
{
	bool kept = false;
	int err = remote_probe_create(r, server_create, &kept);

	if (err == 0)
		*ret_create = kept ? REMOTE_CREATE_ATOMIC : REMOTE_CREATE_CHECKED;
	return err;
}

static const struct remote_ops server_ops = {
	.put = server_put,
	.put_if_absent = server_create,
	.get = server_get,
	.delete = server_delete,
	.check_create = server_check_create,
};

static struct server *new_server(int habit)
{
	struct server *s = calloc(1, sizeof(*s));

	s->habit = habit;
	unit_ok(remote_init(&s->base, &server_ops, "test:server", NULL));
	return s;
}

START_TEST(a_server_is_believed_only_when_it_refuses_and_keeps)
{
	static const struct {
		int habit, err;
		enum remote_create create;
	} cases[] = {{KEEPS, 0, REMOTE_CREATE_ATOMIC},
		     {IGNORES, 0, REMOTE_CREATE_CHECKED},
		     {LIES, -EIO, REMOTE_CREATE_NONE},
		     {HAS_NONE, -EOPNOTSUPP, REMOTE_CREATE_NONE},
		     {FAILS_ONCE, -EIO, REMOTE_CREATE_NONE}};
	struct server *s = new_server(cases[_i].habit);
	enum remote_create create = REMOTE_CREATE_NONE;

	unit_error(remote_check_create(&s->base, &create), cases[_i].err);
	ck_assert_int_eq(create, cases[_i].create);
	ck_assert_str_eq(s->key, "");
	ck_assert_uint_eq(s->deleted, cases[_i].habit == HAS_NONE ? 0 : 1);
	remote_close(&s->base);
}
END_TEST

START_TEST(layers_pass_the_question_on_and_retries_repeat_it)
{
	struct server *s = new_server(FAILS_ONCE);
	struct remote_retry_policy fast = {.first_wait_ns = NS_PER_MS};
	enum remote_create create = REMOTE_CREATE_NONE;
	struct remote *r = NULL;

	unit_ok(remote_retry_new(&s->base, &fast, &r));
	unit_ok(remote_check_create(r, &create));
	ck_assert_int_eq(create, REMOTE_CREATE_ATOMIC);
	remote_cancel(r);
	unit_error(remote_check_create(r, &create), -ECANCELED);
	remote_close(r);
}
END_TEST

START_TEST(kinds_that_need_no_probe_answer_at_once)
{
	static const char *const urls[] = {"memory:m", "fault+memory:m"};
	enum remote_create create = REMOTE_CREATE_NONE;
	struct remote *r = NULL;

	unit_ok(remote_open(urls[_i], &r));
	unit_ok(remote_check_create(r, &create));
	ck_assert_int_eq(create, REMOTE_CREATE_ATOMIC);
	remote_close(r);
	unit_ok(remote_open("none", &r));
	unit_error(remote_check_create(r, &create), -EROFS);
	remote_close(r);
}
END_TEST

START_TEST(the_last_reason_for_an_error_is_said)
{
	struct server *s = new_server(KEEPS);
	struct remote *r = NULL;
	char text[REMOTE_TEXT_MAX], long_reason[2 * REMOTE_TEXT_MAX];

	unit_ok(remote_retry_new(&s->base, NULL, &r));
	unit_error(remote_set_reason(&s->base, -ENOENT, "no bucket %s\n\x1b[1m", "b"), -ENOENT);
	ck_assert_str_eq(remote_strerror(r, -ENOENT, text),
			 "test:server: not found; check that the URL names the right place (no "
			 "bucket b??[1m)");
	ck_assert_ptr_null(strstr(remote_strerror(r, -EACCES, text), "bucket"));
	/* One that says what to do is told as it is. */
	remote_set_reason(&s->base, -EACCES, "wrong key; give another");
	ck_assert_str_eq(remote_strerror(r, -EACCES, text), "test:server: wrong key; give another");
	ck_assert_ptr_null(strstr(remote_strerror(r, -ENOENT, text), "bucket"));
	memset(long_reason, 'x', sizeof(long_reason) - 1);
	long_reason[sizeof(long_reason) - 1] = '\0';
	remote_set_reason(&s->base, -EIO, "%s", long_reason);
	ck_assert_uint_gt(strlen(remote_strerror(r, -EIO, text)), REMOTE_REASON_MAX);
	ck_assert_uint_lt(strlen(text), REMOTE_TEXT_MAX);
	ck_assert_int_eq(strncmp(text, "test:server: ", strlen("test:server: ")), 0);
	remote_close(r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_create");
	TCase *t = unit_case(s, "create-if-absent");

	tcase_add_loop_test(t, a_server_is_believed_only_when_it_refuses_and_keeps, 0, 5);
	tcase_add_test(t, layers_pass_the_question_on_and_retries_repeat_it);
	tcase_add_loop_test(t, kinds_that_need_no_probe_answer_at_once, 0, 2);
	t = unit_case(s, "reasons");
	tcase_add_test(t, the_last_reason_for_an_error_is_said);
	return unit_run(s);
}
