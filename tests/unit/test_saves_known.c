/* SPDX-License-Identifier: Apache-2.0 */
/* What one mount knows of saves the next one knows, by traces. */
#include "tests/unit/saves_unit.h"

#define STEPS                                                                                      \
	TRACE_STEP(0, 5, 1, 1, 2, 1, "/checkpoint-1")                                              \
	TRACE_STEP(10, 15, 1, 3, 4, 2, "/checkpoint-2")
#define HALF                                                                                       \
	"20 made process=2 path=/checkpoint-3\n" /**/                                              \
		TRACE_SAVE(20, 2, 5, "new", 4000, "/checkpoint-3/model.bin")
#define LACKS "checkpoint-3 has no optimizer.bin, which the saves before it had"

START_TEST(what_saves_have)
{
	saves_unit_check(STEPS "remount\n" HALF "21 ended process=2 status=137\n"
			       "  seal 3 S1 J4 not whole: " LACKS "\n"
			       "  back 2\n");
}
END_TEST

START_TEST(what_saves_have_twice)
{
	saves_unit_check(STEPS "remount\nremount\n" HALF "25.2 time\n"
			       "  seal 3 S4 J6 pending: " LACKS "\n");
}
END_TEST

/* Each byte that a file name may have. */
START_TEST(names_of_any_bytes)
{
	saves_unit_check(TRACE_STEP(0, 5, 1, 1, 2, 1, "/%25%20\xff=\xc3\xa4-1") /**/
			 "remount\n"						/**/
			 TRACE_STEP(10, 15, 1, 3, 4, 2, "/%25%20\xff=\xc3\xa4-2"));
}
END_TEST

#define KILLED                                                                                     \
	TRACE_SAVE(0, 1, 1, "new", 4000, "/model.bin")                                             \
	TRACE_SAVE(0, 1, 2, "new", 8000, "/optimizer.bin")                                         \
	"5.2 time\n"                                                                               \
	"  seal 1 S4 J7 whole\n"				    /**/                           \
		TRACE_SAVE(10, 2, 3, "replace", 4000, "/model.bin") /**/                           \
		"11 opened process=2 handle=4 is=replace path=/optimizer.bin\n"                    \
		"11.1 undone handle=4 is=killed path=/optimizer.bin\n"                             \
		"16.1 time\n"                                                                      \
		"  seal 2 S4 J2 not whole: process 2 was killed while it wrote optimizer.bin\n"

START_TEST(a_broken_save)
{
	saves_unit_check_with(
		KILLED "remount\n" /**/
		TRACE_SAVE(
			20, 3, 5, "new", 100,
			"/note.txt") "25.2 time\n" /**/
				     "  seal 3 S4 J2 not whole: a process was killed while it wrote optimizer.bin\n" /**/
		TRACE_SAVE(30, 3, 6, "replace", 4000, "/model.bin") /**/
		TRACE_SAVE(30, 3, 7, "replace", 8000, "/optimizer.bin") "35.2 time\n"
									"  seal 4 S4 J7 whole\n",
		RESUME_OFF);
}
END_TEST

/* Another writer of that save lives until then. */
START_TEST(it_goes_back_to_what_was_whole)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 4000, "/model.bin")	   /**/
		TRACE_SAVE(0, 1, 2, "new", 8000, "/optimizer.bin") /**/
		"5.2 time\n"
		"  seal 1 S4 J7 whole\n"			    /**/
		TRACE_SAVE(10, 2, 3, "replace", 4000, "/model.bin") /**/
		"11 opened process=3 handle=4 is=replace path=/optimizer.bin\n"
		"11.1 undone handle=4 is=killed path=/optimizer.bin\n"
		"16.1 time\n"
		"  seal 2 S4 J2 not whole: process 3 was killed while it wrote optimizer.bin\n"
		"remount\n"
		"20 time\n"
		"  back 1\n");
}
END_TEST

/* How its writers ended nobody knows any more. */
START_TEST(it_goes_back_from_half_a_save_where_it_always_does)
{
	saves_unit_check(STEPS "remount pending\n"
			       "20 time\n");
	saves_unit_check_with(STEPS "remount pending\n"
				    "20 time\n"
				    "  back 2\n",
			      RESUME_ALWAYS);
}
END_TEST

#define AT_ROOT                                                                                    \
	TRACE_SAVE(0, 1, 1, "new", 4000, "/model.bin")                                             \
	TRACE_SAVE(0, 1, 2, "new", 8000, "/optimizer.bin")                                         \
	"5.2 time\n"                                                                               \
	"  seal 1 S4 J7 whole\n"					/**/                       \
		TRACE_SAVE(10, 1, 3, "replace", 4000, "/model.bin")	/**/                       \
		TRACE_SAVE(10, 1, 4, "replace", 8000, "/optimizer.bin") /**/                       \
		"15.2 time\n"                                                                      \
		"  seal 2 S4 J7 whole\n"			    /**/                           \
		TRACE_SAVE(20, 2, 5, "replace", 4000, "/model.bin") /**/                           \
		"21 ended process=2 status=0 is=unknown\n"                                         \
		"25.2 time\n"                                                                      \
		"  seal 3 S4 J4 not whole: the save has no optimizer.bin, which the saves before it had\n"
#define OTHER(number, at)                                                                          \
	TRACE_SAVE(at, 3, 6, "new", 100, "/best.pt")                                               \
#at "9 time\n"                                                                             \
	    "  seal " #number                                                                      \
	    " S4 J4 not whole: the save has no optimizer.bin, which the saves before it had\n"

/* A half stays what it is, whatever comes beside it. */
START_TEST(half_a_save_stands_until_a_full_one)
{
	saves_unit_check(
		AT_ROOT OTHER(4, 3) "remount\n" OTHER(5, 4)		/**/
		TRACE_SAVE(50, 3, 7, "replace", 8000, "/optimizer.bin") /**/
		"55.2 time\n"
		"  seal 6 S4 J4 not whole: the save has no optimizer.bin, which the saves before it had\n");
}
END_TEST

/* What goes on in the next mount, and what is saved beside it. */
START_TEST(half_a_save)
{
	saves_unit_check(STEPS HALF "25.2 time\n"
				    "  seal 3 S4 J6 pending: " LACKS "\n"
				    "remount pending\n" /**/
			 TRACE_SAVE(30, 3, 6, "new", 100,
				    "/note.txt") "35.2 time\n"
						 "  seal 4 S4 J4 not whole: checkpoint-3 is half\n"
						 "remount\n"				  /**/
			 TRACE_SAVE(40, 4, 7, "new", 8000, "/checkpoint-3/optimizer.bin") /**/
			 TRACE_SAVE(40, 4, 8, "replace", 4000,
				    "/checkpoint-3/model.bin") "45.2 time\n"
							       "  seal 5 S4 J7 whole\n");
}
END_TEST

/* A half that is saved again, and is half again, teaches nothing. */
START_TEST(half_a_save_twice)
{
	saves_unit_check(
		AT_ROOT TRACE_SAVE(30, 3, 6, "replace", 4000, "/model.bin") /**/
		"35.2 time\n"
		"  seal 4 S4 J6 pending: the save has no optimizer.bin, which the saves before it had\n"
		"remount pending\n"				    /**/
		TRACE_SAVE(40, 4, 6, "replace", 4000, "/model.bin") /**/
		"45.2 time\n"
		"  seal 5 S4 J4 not whole: the save is half\n"
		"remount\n"					    /**/
		TRACE_SAVE(50, 5, 6, "replace", 4000, "/model.bin") /**/
		"55.2 time\n"
		"  seal 6 S4 J6 pending: the save has no optimizer.bin, which the saves before it had\n");
}
END_TEST

START_TEST(what_is_torn)
{
	saves_unit_check_with(
		TRACE_SAVE(0, 1, 1, "new", 4000, "/model.bin") /**/
		"5.2 time\n"
		"  seal 1 S4 J7 whole\n"
		"6 opened process=1 handle=2 is=edit path=/model.bin\n"
		"6.1 closed handle=2 size=100 is=torn path=/model.bin\n"
		"11.2 time\n"
		"  seal 2 S4 J1 not whole: model.bin is cut off, or a write of it was refused\n"
		"remount\n"				      /**/
		TRACE_SAVE(20, 2, 3, "new", 4000, "/best.pt") /**/
		"25.2 time\n"
		"  seal 3 S4 J1 not whole: model.bin is cut off, or a write of it was refused\n",
		RESUME_OFF);
}
END_TEST

START_TEST(what_is_malformed_is_left_out)
{
	static const char *const bad[] = {
		"shape",
		"shape x 1 /a",
		"shape / 0 /a",
		"shape / 1",
		"shape / 1 a",
		"shape /%0 1 /a",
		"shape /%00 1 /a",
		"broken / /a",
		"broken / /a x",
		"broken / /a killed no",
		"newest",
		"word /a",
		"torn",
		"torn /",
	};
	struct driver d = {0};
	struct saves_options o = {.settle_ns = 5 * NS_PER_S, .patience_ns = 60 * NS_PER_S};
	cleanup_buf struct buf known = {0};

	unit_ok(driver_begin(&d, o, NULL));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(saves_take_known(d.saves, bad[i]) == -EINVAL ||
				      saves_take_broken(d.saves, bad[i]) == -EINVAL,
			      "%s", bad[i]);
	ck_assert_int_eq(saves_take_known(d.saves, "no\nshape / 2 /a 1 /b\nno"), -EINVAL);
	saves_put_known(d.saves, &known);
	ck_assert_str_eq(buf_str(&known), "shape / 2 /a 1 /b\n");
	driver_end(&d);
}
END_TEST

/* What was saved longest ago goes first. */
START_TEST(there_is_a_limit)
{
	struct driver d = {0};
	struct saves_options o = {.settle_ns = 5 * NS_PER_S, .patience_ns = 60 * NS_PER_S};
	cleanup_buf struct buf known = {0};

	unit_ok(driver_begin(&d, o, NULL));
	for (int i = 0; i < 200; i++) {
		cleanup_buf struct buf line = {0};

		buf_printf(&line, "shape /k%c%c-1 1 /", 'a' + i / 26, 'a' + i % 26);
		for (int j = 0; j < 100; j++)
			buf_put_u8(&line, 'n');
		unit_ok(saves_take_known(d.saves, buf_str(&line)));
	}
	saves_put_known(d.saves, &known);
	ck_assert_uint_le(known.len, SAVES_KNOWN_MAX);
	ck_assert_uint_gt(known.len, SAVES_KNOWN_MAX - 200);
	ck_assert_ptr_null(strstr(buf_str(&known), "/kaa-1"));
	ck_assert_ptr_nonnull(strstr(buf_str(&known), "/khr-1"));
	driver_end(&d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("saves_known");
	TCase *t = unit_case(s, "known");

	tcase_add_test(t, what_saves_have);
	tcase_add_test(t, what_saves_have_twice);
	tcase_add_test(t, names_of_any_bytes);
	tcase_add_test(t, a_broken_save);
	tcase_add_test(t, it_goes_back_to_what_was_whole);
	tcase_add_test(t, it_goes_back_from_half_a_save_where_it_always_does);
	tcase_add_test(t, half_a_save_stands_until_a_full_one);
	tcase_add_test(t, half_a_save);
	tcase_add_test(t, half_a_save_twice);
	tcase_add_test(t, what_is_torn);
	tcase_add_test(t, what_is_malformed_is_left_out);
	tcase_add_test(t, there_is_a_limit);
	return unit_run(s);
}
