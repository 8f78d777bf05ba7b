/* SPDX-License-Identifier: Apache-2.0 */
/* The fault layer: each fault does what it says, repeatably, and the control file steers it. */
#include "lib/net/open.h"
#include "lib/remote/remote.h"

#include <pthread.h>
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct remote *open_url(const char *url)
{
	struct remote *r = NULL;

	unit_ok(remote_open(url, &r));
	return r;
}

/* Opens `fault+memory:x?PARAMETERS`, and the memory below it with object `k` = "0123456789". */
static struct remote *open_faulty(const char *parameters, struct remote **ret_below)
{
	char url[512];

	*ret_below = open_url("memory:x");
	unit_ok(remote_put(*ret_below, "k", "0123456789", 10));
	snprintf(url, sizeof(url), "fault+memory:x?%s", parameters);
	return open_url(url);
}

static bool is_there(struct remote *r, const char *key)
{
	uint64_t size;

	return remote_size(r, key, &size) == 0;
}

static int count_key(void *arg, const char *key, uint64_t size)
{
	(void)key, (void)size;
	++*(int *)arg;
	return 0;
}

START_TEST(each_refusal_has_its_error_and_does_nothing)
{
	static const struct {
		const char *kind;
		int err;
	} kinds[] = {{"error", -EIO}, {"denied", -EACCES}, {"down", -ECONNREFUSED}};
	struct buf cleanup_buf out = {0};
	struct remote *below, *r;
	char parameters[64];
	uint64_t size;
	int listed = 0;

	snprintf(parameters, sizeof(parameters), "all.%s=1", kinds[_i].kind);
	r = open_faulty(parameters, &below);
	unit_error(remote_put(r, "new", "x", 1), kinds[_i].err);
	unit_error(remote_put_if_absent(r, "new", "x", 1), kinds[_i].err);
	unit_error(remote_get(r, "k", 0, 10, &out), kinds[_i].err);
	unit_error(remote_size(r, "k", &size), kinds[_i].err);
	unit_error(remote_list(r, "", count_key, &listed), kinds[_i].err);
	unit_error(remote_delete(r, "k"), kinds[_i].err);
	ck_assert(!is_there(below, "new"));
	ck_assert(is_there(below, "k"));
	ck_assert_int_eq(listed, 0);
	ck_assert_uint_eq(out.len, 0);
	remote_close(r);
	remote_close(below);
}
END_TEST

START_TEST(a_lost_answer_is_of_something_done)
{
	struct buf cleanup_buf out = {0};
	struct remote *below, *r = open_faulty("all.lost=1", &below);
	int listed = 0;

	unit_error(remote_put(r, "put", "x", 1), -EIO);
	ck_assert(is_there(below, "put"));
	unit_error(remote_put_if_absent(r, "created", "x", 1), -EIO);
	ck_assert(is_there(below, "created"));
	unit_error(remote_delete(r, "put"), -EIO);
	ck_assert(!is_there(below, "put"));
	unit_error(remote_get(r, "k", 0, 10, &out), -EIO);
	ck_assert_uint_eq(out.len, 0);
	unit_error(remote_list(r, "", count_key, &listed), -EIO);
	ck_assert_int_eq(listed, 2);
	remote_close(r);
	remote_close(below);
}
END_TEST

START_TEST(a_fault_is_of_its_operation_only)
{
	struct remote *below, *r = open_faulty("put.enospc=1&create.enospc=0&get.error=1", &below);
	struct buf cleanup_buf out = {0};
	int listed = 0;

	unit_error(remote_put(r, "a", "x", 1), -ENOSPC);
	unit_ok(remote_put_if_absent(r, "a", "x", 1));
	unit_error(remote_get(r, "a", 0, 1, &out), -EIO);
	ck_assert(is_there(r, "a"));
	unit_ok(remote_list(r, "", count_key, &listed));
	ck_assert_int_eq(listed, 2);
	unit_ok(remote_delete(r, "a"));
	remote_close(r);
	remote_close(below);
	r = open_faulty("put.error=1", &below);
	unit_error(remote_put_if_absent(r, "b", "x", 1), -EIO);
	remote_close(r);
	remote_close(below);
}
END_TEST

START_TEST(damage_flips_one_bit_and_short_cuts)
{
	static const char whole[] = ">0123456789";
	struct remote *below, *r = open_faulty("get.damage=1", &below);
	struct buf cleanup_buf out = {0};
	int bits = 0;

	buf_put_u8(&out, '>');
	unit_ok(remote_get(r, "k", 0, 10, &out));
	ck_assert_uint_eq(out.len, 11);
	ck_assert_int_eq(out.data[0], '>');
	for (size_t i = 0; i < out.len; i++)
		bits += __builtin_popcount((unsigned)(out.data[i] ^ (uint8_t)whole[i]));
	ck_assert_int_eq(bits, 1);
	remote_close(r);
	remote_close(below);

	r = open_faulty("get.short=1", &below);
	out.len = 1;
	unit_ok(remote_get(r, "k", 0, 10, &out));
	ck_assert_uint_ge(out.len, 1);
	ck_assert_uint_lt(out.len, 11);
	ck_assert_mem_eq(out.data, whole, out.len);
	unit_ok(remote_get(r, "k", 10, 10, &out));
	remote_close(r);
	remote_close(below);
}
END_TEST

/* Which of 200 gets fail, as text. */
static void fates(const char *parameters, char ret_text[201])
{
	struct remote *below, *r = open_faulty(parameters, &below);

	for (int i = 0; i < 200; i++) {
		struct buf cleanup_buf out = {0};

		ret_text[i] = remote_get(r, "k", 0, 10, &out) == 0 ? '.' : 'X';
	}
	ret_text[200] = '\0';
	remote_close(r);
	remote_close(below);
}

START_TEST(the_seed_decides)
{
	char a[201], same[201], other[201], rare[201];
	int failed = 0;

	fates("get.error=0.5&seed=7", a);
	fates("get.error=0.5&seed=7&put.error=1&get.damage=1", same);
	fates("get.error=0.5&seed=8", other);
	fates("get.error=0.05&seed=7", rare);
	ck_assert_str_eq(a, same);
	ck_assert_str_ne(a, other);
	for (int i = 0; i < 200; i++) {
		failed += a[i] == 'X';
		/* A lower chance hits a subset. */
		ck_assert(rare[i] == '.' || a[i] == 'X');
	}
	ck_assert_int_gt(failed, 60);
	ck_assert_int_lt(failed, 140);
	ck_assert_ptr_nonnull(strchr(rare, 'X'));
}
END_TEST

START_TEST(after_times_and_only_choose_the_calls)
{
	struct remote *below, *r = open_faulty("put.error=1&after=2&times=3&only=packs/", &below);
	int failed[8];

	/* Calls 0 and 1 are spared; 2, 4 and 5 fail; 3 is not below packs/; then it is over. */
	static const int want[8] = {0, 0, -EIO, 0, -EIO, -EIO, 0, 0};

	for (int i = 0; i < 8; i++)
		failed[i] = remote_put(r, i == 3 ? "epochs/1" : "packs/1", "x", 1);
	for (int i = 0; i < 8; i++)
		ck_assert_msg(failed[i] == want[i], "call %d: %d", i, failed[i]);
	remote_close(r);
	remote_close(below);
}
END_TEST

START_TEST(a_delay_lasts)
{
	struct remote *below, *r = open_faulty("get.delay=30ms", &below);
	struct buf cleanup_buf out = {0};
	int64_t before = clock_mono_ns();

	unit_ok(remote_get(r, "k", 0, 10, &out));
	ck_assert_int_ge(clock_mono_ns() - before, 30 * NS_PER_MS);
	remote_close(r);
	remote_close(below);
}
END_TEST

struct waiting {
	struct remote *r;
	int result;
};

static void *delete_slowly(void *arg)
{
	struct waiting *w = arg;

	w->result = remote_delete(w->r, "k");
	return NULL;
}

START_TEST(cancel_ends_a_delay)
{
	struct remote *below;
	struct waiting w = {.r = open_faulty("delete.delay=1d", &below)};
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, delete_slowly, &w), 0);
	/* Before the call or in it: both end; the test's limit fails it if not. */
	remote_cancel(w.r);
	pthread_join(thread, NULL);
	unit_error(w.result, -ECANCELED);
	remote_resume(w.r);
	ck_assert(is_there(below, "k"));
	remote_close(w.r);
	remote_close(below);
}
END_TEST

START_TEST(a_control_file_steers_while_it_runs)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *control = unit_path(dir, "control");
	struct buf cleanup_buf out = {0};
	struct remote *below, *r;
	char parameters[PATH_MAX + 64];

	snprintf(parameters, sizeof(parameters), "get.denied=1&control=%s", control);
	r = open_faulty(parameters, &below);
	unit_error(remote_get(r, "k", 0, 1, &out), -EACCES);
	unit_ok(io_replace_file(AT_FDCWD, control, "down=1\n", 7));
	unit_error(remote_get(r, "k", 0, 1, &out), -ECONNREFUSED);
	unit_error(remote_put(r, "k", "v", 1), -ECONNREFUSED);
	unit_ok(io_replace_file(AT_FDCWD, control, "get.denied=0\nput.enospc=1", 25));
	unit_ok(remote_get(r, "k", 0, 1, &out));
	unit_error(remote_put(r, "k", "v", 1), -ENOSPC);
	unit_ok(io_replace_file(AT_FDCWD, control, "put.eror=1", 10));
	unit_error(remote_put(r, "k", "v", 1), -EINVAL);
	unit_ok(io_replace_file(AT_FDCWD, control, "", 0));
	unit_ok(remote_put(r, "k", "v", 1));
	unit_error(remote_get(r, "k", 0, 1, &out), -EACCES);
	ck_assert_int_eq(unlink(control), 0);
	unit_error(remote_get(r, "k", 0, 1, &out), -EACCES);
	unit_ok(remote_put(r, "k", "v", 1));
	remote_close(r);
	remote_close(below);
}
END_TEST

START_TEST(parameters_are_checked_and_only_its_own_are_taken)
{
	static const char *const bad[] = {
		"put.error=2",	"put.error=-1", "put.error=x",	"put.error=",	  "put.error=nan",
		"put.error=1x", "put.errors=1", "pt.error=1",	"p.error=1",	  "put.=1",
		".error=1",	"get.enospc=1", "put.damage=1", "get.delay=soon", "seed=x",
		"after=-1",	"times=",	"control=rel",	"down=yes",	  "unknown=1",
		"put.error=%zz"};
	char url[128];
	struct remote *r = NULL;

	for (size_t i = 0; i < COUNT(bad); i++) {
		snprintf(url, sizeof(url), "fault+memory:x?%s", bad[i]);
		ck_assert_msg(remote_open(url, &r) == -EINVAL, "%s", bad[i]);
	}
	ck_assert_ptr_null(r);
	/* A layer on a layer: the outer one takes what it knows, so both see nothing else left. */
	r = open_url("fault+fault+memory:x?put.error=1&seed=3");
	unit_error(remote_put(r, "k", "v", 1), -EIO);
	ck_assert_str_eq(remote_name(r), "fault+fault+memory:x?put.error=1&seed=3");
	remote_close(r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_fault");
	TCase *t = unit_case(s, "fault");

	tcase_add_loop_test(t, each_refusal_has_its_error_and_does_nothing, 0, 3);
	tcase_add_test(t, a_lost_answer_is_of_something_done);
	tcase_add_test(t, a_fault_is_of_its_operation_only);
	tcase_add_test(t, damage_flips_one_bit_and_short_cuts);
	tcase_add_test(t, the_seed_decides);
	tcase_add_test(t, after_times_and_only_choose_the_calls);
	tcase_add_test(t, a_delay_lasts);
	tcase_add_test(t, cancel_ends_a_delay);
	tcase_add_test(t, a_control_file_steers_while_it_runs);
	tcase_add_test(t, parameters_are_checked_and_only_its_own_are_taken);
	return unit_run(s);
}
