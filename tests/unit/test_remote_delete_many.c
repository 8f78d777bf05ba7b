/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deleting many objects: what is tried when some are refused, and how it goes through the layers to a
 * kind that takes several at once. With EPOCHFS_TEST_REMOTE=URL in the environment 1,001 keys are
 * deleted there, and the errno is to be EPOCHFS_TEST_ERROR (0: none).
 */
#include "lib/net/open.h"
#include "lib/remote/remote.h"

#include "lib/remote/remote_ops.h"
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define TOGETHER 3

/* A kind that takes three keys at once, and notes what it is asked. */
struct batching {
	struct remote base;
	unsigned requests;
	size_t gone;   /* keys in requests that went well */
	int errors[8]; /* of the next requests; 0: it goes well */
	char first[64];
};

static int batching_delete(struct remote *r, const char *const *keys, size_t *count)
{
	struct batching *b = (struct batching *)r;
	int err = b->requests < COUNT(b->errors) ? b->errors[b->requests] : 0;

	*count = *count < TOGETHER ? *count : TOGETHER;
	b->requests++;
	b->gone += err ? 0 : *count;
	snprintf(b->first, sizeof(b->first), "%s", keys[0]);
	return err;
}

static const struct remote_ops batching_ops = {.delete_batch = batching_delete};

static struct batching *batching_new(void)
{
	struct batching *b = calloc(1, sizeof(*b));

	unit_ok(remote_init(&b->base, &batching_ops, "batching:", NULL));
	return b;
}

static const char *const seven[] = {"a/0", "a/1", "a/2", "a/3", "a/4", "a/5", "a/6"};

START_TEST(several_go_in_one_request)
{
	struct batching *b = batching_new();

	unit_ok(remote_delete_many(&b->base, seven, 0));
	ck_assert_uint_eq(b->requests, 0);
	unit_ok(remote_delete_many(&b->base, seven, COUNT(seven)));
	ck_assert_uint_eq(b->requests, 3);
	ck_assert_uint_eq(b->gone, COUNT(seven));
	ck_assert_str_eq(b->first, "a/6");
	remote_close(&b->base);
}
END_TEST

START_TEST(a_refusal_leaves_the_others_to_be_tried)
{
	struct batching *b = batching_new();

	b->errors[0] = -EACCES;
	b->errors[1] = -EPERM;
	unit_error(remote_delete_many(&b->base, seven, COUNT(seven)), -EACCES);
	ck_assert_uint_eq(b->requests, 3);
	ck_assert_uint_eq(b->gone, 1);
	remote_close(&b->base);
}
END_TEST

START_TEST(what_does_not_work_now_ends_it)
{
	struct batching *b = batching_new();

	b->errors[0] = -EACCES;
	b->errors[1] = -ECONNREFUSED;
	unit_error(remote_delete_many(&b->base, seven, COUNT(seven)), -ECONNREFUSED);
	ck_assert_uint_eq(b->requests, 2);
	unit_ok(remote_delete_many(&b->base, seven, COUNT(seven)));
	ck_assert_uint_eq(b->requests, 5);
	remote_close(&b->base);
}
END_TEST

START_TEST(the_retry_layer_repeats_the_request_that_failed)
{
	static const struct remote_retry_policy fast = {.first_wait_ns = NS_PER_MS / 10,
							.longest_wait_ns = NS_PER_MS};
	struct batching *b = batching_new();
	struct remote_state state;
	struct remote *r = NULL;

	b->errors[1] = b->errors[2] = -EIO;
	unit_ok(remote_retry_new(&b->base, &fast, &r));
	unit_ok(remote_delete_many(r, seven, COUNT(seven)));
	ck_assert_uint_eq(b->requests, 5);
	ck_assert_uint_eq(b->gone, COUNT(seven));
	remote_get_state(r, &state);
	ck_assert_uint_eq(state.retries, 2);
	ck_assert_uint_eq(state.failures, 0);
	remote_close(r);
}
END_TEST

static bool is_there(struct remote *r, const char *key)
{
	uint64_t size;

	return remote_size(r, key, &size) == 0;
}

/* Opens `fault+memory:x?PARAMETERS`, and the memory below it with the seven. */
static struct remote *open_faulty(const char *parameters, struct remote **ret_below)
{
	struct remote *r = NULL;
	char url[256];

	unit_ok(remote_open("memory:x", ret_below));
	for (size_t i = 0; i < COUNT(seven); i++)
		unit_ok(remote_put(*ret_below, seven[i], "x", 1));
	snprintf(url, sizeof(url), "fault+memory:x?%s", parameters);
	unit_ok(remote_open(url, &r));
	return r;
}

START_TEST(faults_of_delete_befall_each_request)
{
	static const struct {
		const char *parameters;
		int err;
		unsigned left; /* a bit for each that stays: memory takes one at a time */
	} cases[] = {
		{"delete.denied=1&only=a/3", -EACCES, 1 << 3},	{"delete.denied=1", -EACCES, 0x7f},
		{"delete.error=1&after=2", -EIO, 0x7c},		{"delete.lost=1", -EIO, 0x7e},
		{"delete.down=1&times=1", -ECONNREFUSED, 0x7f}, {"put.error=1", 0, 0},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct remote *below, *r = open_faulty(cases[i].parameters, &below);
		unsigned left = 0;
		int err = remote_delete_many(r, seven, COUNT(seven));

		for (size_t k = 0; k < COUNT(seven); k++)
			left |= (unsigned)is_there(below, seven[k]) << k;
		ck_assert_msg(err == cases[i].err, "%s: %d", cases[i].parameters, err);
		ck_assert_msg(left == cases[i].left, "%s: %x", cases[i].parameters, left);
		remote_close(r);
		remote_close(below);
	}
}
END_TEST

START_TEST(a_layer_hands_several_on)
{
	/* What is left of the URL: the fault layer is put over the stub by hand. */
	struct batching *b = batching_new();
	struct remote *below, *r = open_faulty("delete.lost=1&only=a/4", &below);
	struct remote *memory = r->inner;

	r->inner = &b->base;
	unit_error(remote_delete_many(r, seven, COUNT(seven)), -EIO);
	/* a/0 to a/2, a/3, and a/4, whose answer was lost. */
	ck_assert_uint_eq(b->requests, 3);
	ck_assert_uint_eq(b->gone, 5);
	remote_close(memory);
	remote_close(r);
	remote_close(below);
}
END_TEST

START_TEST(nothing_is_deleted_where_nothing_is_written)
{
	struct remote *r = NULL;

	unit_ok(remote_open("none", &r));
	unit_error(remote_delete_many(r, seven, COUNT(seven)), -EROFS);
	unit_ok(remote_delete_many(r, seven, 0));
	remote_close(r);
}
END_TEST

START_TEST(collected_keys_are_deleted_together)
{
	struct remote_keys cleanup_remote_keys keys = {0}, none = {0};
	struct batching *b = batching_new();

	unit_ok(remote_keys_delete(&b->base, &none));
	for (size_t i = 0; i < COUNT(seven); i++)
		unit_ok(remote_keys_add(&keys, seven[i]));
	unit_ok(remote_keys_delete(&b->base, &keys));
	ck_assert_uint_eq(b->requests, 3);
	ck_assert_uint_eq(b->gone, COUNT(seven));
	unit_ok(remote_keys_add(&keys, "../x"));
	unit_error(remote_keys_delete(&b->base, &keys), -EINVAL);
	ck_assert_uint_eq(b->requests, 3);
	remote_close(&b->base);
}
END_TEST

START_TEST(a_thousand_and_one_on_a_server)
{
	struct remote_keys cleanup_remote_keys keys = {0};
	const char *error = getenv("EPOCHFS_TEST_ERROR");
	char key[64], text[REMOTE_TEXT_MAX];
	struct remote *r = NULL;
	int err;

	unit_ok(remote_open(getenv("EPOCHFS_TEST_REMOTE"), &r));
	for (unsigned i = 0; i < 1001; i++) {
		snprintf(key, sizeof(key), "many/%04u", i);
		unit_ok(remote_keys_add(&keys, key));
	}
	err = remote_keys_delete(r, &keys);
	ck_assert_int_eq(-err, error ? atoi(error) : 0);
	if (err)
		fprintf(stderr, "%s\n", remote_strerror(r, err, text));
	remote_close(r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_delete_many");
	TCase *t = unit_case(s, "requests");

	if (getenv("EPOCHFS_TEST_REMOTE")) {
		tcase_add_test(t, a_thousand_and_one_on_a_server);
		return unit_run(s);
	}
	tcase_add_test(t, several_go_in_one_request);
	tcase_add_test(t, a_refusal_leaves_the_others_to_be_tried);
	tcase_add_test(t, what_does_not_work_now_ends_it);
	tcase_add_test(t, nothing_is_deleted_where_nothing_is_written);
	tcase_add_test(t, collected_keys_are_deleted_together);
	t = unit_case(s, "layers");
	tcase_add_test(t, the_retry_layer_repeats_the_request_that_failed);
	tcase_add_test(t, faults_of_delete_befall_each_request);
	tcase_add_test(t, a_layer_hands_several_on);
	return unit_run(s);
}
