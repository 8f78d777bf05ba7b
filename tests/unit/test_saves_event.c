/* SPDX-License-Identifier: Apache-2.0 */
/* Events as lines of text. */
#include "lib/saves/event.h"
#include "tests/unit/unit.h"

static void check_same(const char *line)
{
	char *copy = strdup(line);
	cleanup_buf struct buf printed = {0};
	struct save_event e;

	ck_assert_ptr_nonnull(copy);
	ck_assert_msg(save_event_parse(copy, &e) == 0, "%s", line);
	save_event_print(&printed, &e);
	ck_assert_str_eq(buf_str(&printed), line);
	free(copy);
}

START_TEST(a_line_of_each_kind_comes_back)
{
	check_same("0 made process=812 path=/checkpoint-500");
	check_same("0.5 opened process=1 handle=2 is=new path=/a");
	check_same("1 opened process=1 handle=2 is=replace path=/a/b");
	check_same("1 opened process=0 handle=2 is=edit path=/a/b");
	check_same("1.000000001 refused handle=2");
	check_same("2 closed handle=2 size=4096 path=/a");
	check_same("2 closed handle=2 size=0");
	check_same("2 closed handle=18446744073709551615 size=1 is=grew,had,killed path=/a");
	check_same("2 undone handle=2 is=killed path=/a");
	check_same("2 undone handle=2 is=refused");
	check_same("3 renamed process=1 size=7 path=/a.tmp to=/a");
	check_same("3 renamed process=1 size=7 is=over,directory path=/a.tmp to=/a");
	check_same("3 exchanged process=1 size=7 path=/a to=/b");
	check_same("3 linked process=1 size=7 path=/b");
	check_same("3 removed path=/b");
	check_same("3 removed is=directory path=/b");
	check_same("4 ended process=1 status=137");
	check_same("4 ended process=1 status=0 is=unknown");
	check_same("5 asked");
	check_same("5 asked is=whole");
	check_same("5 sealed epoch=3 rule=S4");
	check_same("5 back epoch=3");
	check_same("6 lost");
	check_same("4611686018 time");
}
END_TEST

START_TEST(any_name_comes_back)
{
	char path[256] = "";
	cleanup_buf struct buf line = {0};
	struct save_event e = {.kind = SAVE_REMOVED, .path = path}, back;

	for (int c = 1; c < 256; c++)
		path[c - 1] = (char)(c == '/' ? 'x' : c);
	save_event_print(&line, &e);
	ck_assert_ptr_null(strpbrk(buf_str(&line), "\n\t\r\x7f"));
	unit_ok(buf_error(&line));
	unit_ok(save_event_parse((char *)line.data, &back));
	ck_assert_str_eq(back.path, path);
}
END_TEST

START_TEST(nothing_else_is_an_event)
{
	static const char *const lines[] = {
		"",
		" ",
		"1",
		"1 ",
		"1 nothing",
		"-1 time",
		"01 time",
		"1. time",
		"1.50 time",
		"1.0000000001 time",
		"9999999999999999999 time",
		"99999999999 time",
		"1 time ",
		" 1 time",
		"1  time",
		"1 time path=/a",
		"1 asked is=",
		"1 asked is=new",
		"1 asked is=whole,whole",
		"1 made path=/a",
		"1 made process=1",
		"1 made process= path=/a",
		"1 made process=01 path=/a",
		"1 made process=-1 path=/a",
		"1 made process=18446744073709551616 path=/a",
		"1 made process=1 path=a",
		"1 made process=1 path=/",
		"1 made process=1 path=/a/",
		"1 made process=1 path=//a",
		"1 made process=1 path=/a/../b",
		"1 made process=1 path=/.",
		"1 made process=1 path=/a%",
		"1 made process=1 path=/a%2",
		"1 made process=1 path=/a%41",
		"1 made process=1 path=/a%0a",
		"1 made process=1 path=/a%00",
		"1 made process=1 path=/a\tb",
		"1 made path=/a process=1",
		"1 made process=1 is=directory path=/a",
		"1 opened process=1 handle=1 path=/a",
		"1 opened process=1 handle=1 is=new,edit path=/a",
		"1 closed handle=1 size=1 is=had,grew path=/a",
		"1 undone handle=1 path=/a",
		"1 renamed process=1 size=1 path=/a",
		"1 renamed process=1 size=1 to=/a",
		"1 renamed process=1 size=1 path=/a to=/a",
		"1 sealed epoch=1 rule=4",
		"1 sealed epoch=1",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		char *copy = strdup(lines[i]);
		struct save_event e;

		ck_assert_ptr_nonnull(copy);
		ck_assert_msg(save_event_parse(copy, &e) == -EINVAL, "%s", lines[i]);
		free(copy);
	}
}
END_TEST

START_TEST(what_its_kind_has_not_makes_an_event_invalid)
{
	struct save_event e = {.kind = SAVE_TIME, .at_ns = 1};

	ck_assert(save_event_valid(&e));
	e.epoch = 1;
	ck_assert(!save_event_valid(&e));
	e.epoch = 0;
	e.path = "a";
	ck_assert(!save_event_valid(&e));
	e.path = NULL;
	e.at_ns = -1;
	ck_assert(!save_event_valid(&e));
	e.at_ns = 1;
	e.kind = SAVE_EVENT_COUNT;
	ck_assert(!save_event_valid(&e));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("saves_event");
	TCase *t = unit_case(s, "lines");

	tcase_add_test(t, a_line_of_each_kind_comes_back);
	tcase_add_test(t, any_name_comes_back);
	tcase_add_test(t, nothing_else_is_an_event);
	tcase_add_test(t, what_its_kind_has_not_makes_an_event_invalid);
	return unit_run(s);
}
