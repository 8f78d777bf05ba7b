/* SPDX-License-Identifier: Apache-2.0 */
/* What is output (contract 1.2.5), asked in process: names, threads, the order of opens and saves. */
#include "lib/live/bodies.h"
#include "lib/util/lock.h"
#include "tests/unit/handle_unit.h"

/* ---- names ---- */

static bool alike(const char *a, const char *b, bool parts)
{
	return output_shape(a, parts) == output_shape(b, parts);
}

START_TEST(numbers_do_not_count_but_those_of_parts)
{
	ck_assert(alike("lj.restart.50", "lj.restart.1000", true));
	ck_assert(alike("checkpoint-50/model.pt", "checkpoint-100/model.pt", true));
	ck_assert(!alike("lj.restart.50", "lj.restart", true));
	ck_assert(!alike("restart.a", "restart.b", true));
	ck_assert(!alike("a/model.pt", "b/model.pt", true));
	ck_assert(!alike("model-00001-of-00002.bin", "model-00002-of-00002.bin", true));
	ck_assert(!alike("layer_0.bin", "layer_1.bin", true));
	ck_assert(!alike("rank_0.pt", "rank_1.pt", true));
	/* Beside an open file they are of the same save. */
	ck_assert(alike("model-00001-of-00002.bin", "model-00002-of-00002.bin", false));
	ck_assert(alike("__0_0.distcp", "__0_1.distcp", false));
}
END_TEST

/* ---- threads and order ---- */

static struct live_caller by(pid_t tid)
{
	return (struct live_caller){.pid = tid};
}

static struct handle *open_new(const char *name, const char *text, pid_t tid)
{
	struct live_caller who = by(tid);
	struct live_attr a = {0};
	struct handle *h = NULL;

	unit_ok(handle_create(u.vol, ROOT_INO, name, 0644, O_WRONLY | O_CREAT, &who, &a, &h));
	vu_write(h, text, 0);
	return h;
}

static void close_one(struct handle *h)
{
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	handle_release(h, false);
}

static void save_new(const char *name, pid_t tid)
{
	close_one(open_new(name, "saved", tid));
}

static bool is_output(struct handle *h)
{
	SCOPED_LOCK(&u.vol->lock);

	return body_is_output_locked(u.vol, h->body);
}

START_TEST(two_saves_of_one_name_while_it_is_open_make_it_output)
{
	struct handle *before = open_new("before", "\x80", getpid()), *later;

	save_new("r.50", getpid());
	ck_assert(!is_output(before));
	later = open_new("later", "\x80", getpid());
	save_new("other", getpid());
	ck_assert(!is_output(before));
	save_new("r.100", getpid());
	ck_assert(is_output(before) && !is_output(later));
	ck_assert(!before->body->fragile && later->body->fragile);
	save_new("r.150", getpid());
	ck_assert(is_output(later));
	close_one(before);
	close_one(later);
}
END_TEST

START_TEST(parts_and_logs_and_its_own_name_do_not)
{
	struct handle *h = open_new("part_0", "\x80", getpid());

	save_new("part_1", getpid());
	save_new("part_2", getpid());
	save_new("layer_0", getpid());
	save_new("layer_1", getpid());
	save_new("a.log", getpid());
	unit_ok(live_unlink(u.vol, ROOT_INO, "a.log"));
	save_new("a.log", getpid());
	ck_assert(!is_output(h));
	close_one(h);
}
END_TEST

START_TEST(a_rename_is_a_save)
{
	struct handle *h = open_new("traj", "\x80", getpid());
	struct live_caller me = by(getpid());

	save_new("tmpaaaaaaaa", getpid());
	unit_ok(live_rename(u.vol, ROOT_INO, "tmpaaaaaaaa", ROOT_INO, "model", 0, &me));
	ck_assert(!is_output(h));
	save_new("tmpbbbbbbbb", getpid());
	unit_ok(live_rename(u.vol, ROOT_INO, "tmpbbbbbbbb", ROOT_INO, "model", 0, &me));
	ck_assert(is_output(h));
	close_one(h);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_output");
	TCase *t = handle_case(s, "output");

	tcase_add_test(t, numbers_do_not_count_but_those_of_parts);
	tcase_add_test(t, two_saves_of_one_name_while_it_is_open_make_it_output);
	tcase_add_test(t, parts_and_logs_and_its_own_name_do_not);
	tcase_add_test(t, a_rename_is_a_save);
	return unit_run(s);
}
