/* SPDX-License-Identifier: Apache-2.0 */
/* Short histories of two processes, three handles and two names beside a model (tests/enumerate): all
 * of the shortest, all of five steps with handles alone, and some of up to six. */
#include <sys/vfs.h>
#include <time.h>
#include "tests/enumerate/enumerate.h"
#include "tests/unit/unit.h"

#define LENGTH	6
#define SECONDS 8
/* Of those with O_DIRECT, preallocation, holes, copies and mappings. */
#define SECONDS_EXTENDED 4

/* What two handles that end in some order need. */
#define HANDLE_OPS "open-read,open-append,close,write"
#define HANDLE_ALL 5
/* What a mapping needs that outlives its descriptor, in a file that the kernel has. */
#define MAP_OPS "open-read,open-write,close,map-keep,store"
#define MAP_ALL 5

/* Where each test's volume lies. Nothing is lost with the machine: in memory it is faster. */
static char *place(void)
{
	char *dir = unit_dir(), *memory = NULL;
	struct statfs fs;

	if (statfs("/dev/shm", &fs) || (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < (64u << 20))
		return dir;
	memory = strdup("/dev/shm/epochfs-XXXXXX");
	if (!memory || !mkdtemp(memory)) {
		free(memory);
		return dir;
	}
	free(dir);
	return memory;
}

static void hold(bool passthrough, bool durable, const struct enumerate_options *want)
{
	char *dir = place();
	struct on *on =
		on_volume(dir, passthrough, durable, want->extended ? UNIT_EXTENDED : UNIT_DEFAULT);
	uint64_t failed = enumerate(on, want);

	on->close(on);
	rmdir(dir);
	free(dir);
	ck_assert_msg(!failed,
		      "%llu histories are not as they must be; build/tests/enumerate/enumerate "
		      "--on volume --passthrough %s --durable %s --replay runs one again",
		      (unsigned long long)failed, passthrough ? "on" : "off",
		      durable ? "on" : "off");
}

static void some(bool passthrough, bool durable)
{
	struct enumerate_options want = ENUMERATE_DEFAULTS;

	want.all = 2;
	want.length = LENGTH;
	want.seconds = unit_is_hurried() ? 1 : SECONDS;
	want.seed = (uint64_t)time(NULL);
	hold(passthrough, durable, &want);
}

static void extended(bool passthrough, bool durable)
{
	struct enumerate_options want = ENUMERATE_DEFAULTS;

	want.extended = true;
	want.all = unit_is_hurried() ? 1 : 2;
	want.length = LENGTH;
	want.seconds = unit_is_hurried() ? 1 : SECONDS_EXTENDED;
	want.seed = (uint64_t)time(NULL);
	want.batch = 100;
	hold(passthrough, durable, &want);
}

static void all_with(bool passthrough, bool durable, const char *ops, unsigned length)
{
	struct enumerate_options want = ENUMERATE_DEFAULTS;

	want.all = unit_is_hurried() ? 2 : length;
	want.names = 1;
	want.ops = history_ops(ops);
	want.batch = 100;
	hold(passthrough, durable, &want);
}

START_TEST(histories_through_the_daemon)
{
	some(false, _i);
}
END_TEST

START_TEST(histories_with_passthrough)
{
	some(true, _i);
}
END_TEST

START_TEST(handles_that_end_in_any_order)
{
	all_with(_i & 1, _i & 2, HANDLE_OPS, HANDLE_ALL);
}
END_TEST

START_TEST(mappings_that_outlive_descriptors)
{
	all_with(true, _i, MAP_OPS, MAP_ALL);
}
END_TEST

START_TEST(rarer_ways_to_write)
{
	extended(_i & 1, _i & 2);
}
END_TEST

START_TEST(a_script_is_a_history)
{
	static const char text[] = "p0 open-read a; p1 open-trunc b; dup h1; map h0; rename a b; "
				   "commit; kill p1";
	char again[HISTORY_TEXT_MAX];
	struct history h, part;

	unit_ok(history_parse(text, &h));
	ck_assert_uint_eq(h.length, 7);
	history_text(&h, again);
	ck_assert_str_eq(text, again);
	unit_ok(history_parse("p1 open-trunc b; commit", &part));
	ck_assert(history_contains(&h, &part) && !history_contains(&part, &h));
	unit_error(history_parse("p0 open-read c", &h), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_enumerate");
	TCase *t = unit_case(s, "histories");

	tcase_add_test(t, a_script_is_a_history);
	/* 0: what is sealed stays here; 1: it is durable at once, and evicted. */
	tcase_add_loop_test(t, histories_through_the_daemon, 0, 2);
	tcase_add_loop_test(t, histories_with_passthrough, 0, 2);
	tcase_add_loop_test(t, handles_that_end_in_any_order, 0, 4);
	tcase_add_loop_test(t, mappings_that_outlive_descriptors, 0, 2);
	tcase_add_loop_test(t, rarer_ways_to_write, 0, 4);
	return unit_run(s);
}
