/* SPDX-License-Identifier: Apache-2.0 */
/* What belongs to a save, and what does not, by traces. */
#include "tests/unit/saves_unit.h"

/* Files of one directory whose names carry the same step are a checkpoint. */
START_TEST(numbers_in_names_of_files_are_put_aside)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 100, "/model_1.pt") /**/
		TRACE_SAVE(1, 1, 2, "new", 100, "/model_1.json") "6.2 time\n"
								 "  seal 1 S4 J7 whole\n" /**/
		TRACE_SAVE(
			10, 1, 3, "new", 100,
			"/model_2.pt") "15.2 time\n"
				       "  seal 2 S4 J6 pending: the save has no model_#.json, which the saves before it had\n"
				       "16.1 opened process=1 handle=4 is=new path=/model_2.json\n"
				       "16.2 closed handle=4 size=100 path=/model_2.json\n"
				       "  decided 2 part\n"
				       "21.2 time\n"
				       "  seal 3 S4 J7 whole\n");
}
END_TEST

/* CP2K, MrBayes: the last file gets the name of a copy, and a new one is written. */
START_TEST(what_only_moves_begins_a_save)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 100, "/m.pt") /**/
		TRACE_SAVE(1, 1, 2, "new", 100, "/o.pt") /**/
		"6.2 time\n"
		"  seal 1 S4 J7 whole\n"
		"10 renamed process=1 size=100 path=/m.pt to=/m.pt.bak-1\n"
		"10.1 renamed process=1 size=100 path=/o.pt to=/o.pt.bak-1\n" /**/
		TRACE_SAVE(11, 1, 3, "new", 100, "/m.pt")		      /**/
		"12 ended process=1 status=137\n"
		"  seal 2 S1 J4 not whole: the save has no o.pt, which the saves before it had\n"
		"  back 1\n");
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/m.pt") /**/
			 "5.2 time\n"
			 "  seal 1 S4 J7 whole\n"
			 "10 renamed process=1 size=100 path=/m.pt to=/m.bak\n"
			 "10.2 opened process=1 handle=2 is=new path=/m.pt\n"
			 "11 ended process=1 status=137\n"
			 "11 undone handle=2 is=killed path=/m.pt\n"
			 "  seal 2 S1 J2 not whole: process 1 was killed while it wrote m.pt\n"
			 "  back 1\n");
}
END_TEST

/* Else the pauses between saves would lie within them from then on, as it seems. */
START_TEST(what_saves_begin_with_ends_what_is_pending)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 100, "/m.pt") /**/
		TRACE_SAVE(1, 1, 2, "new", 100, "/o.pt") /**/
		"6.2 time\n"
		"  seal 1 S4 J7 whole\n"		      /**/
		TRACE_SAVE(10, 1, 3, "replace", 100, "/m.pt") /**/
		"15.2 time\n"
		"  seal 2 S4 J6 pending: the save has no o.pt, which the saves before it had\n"
		"75.2 time\n"
		"  decided 2 whole\n"			       /**/
		TRACE_SAVE(100, 1, 4, "replace", 100, "/o.pt") /**/
		"105.2 time\n"
		"  seal 3 S4 J6 pending: the save has no m.pt, which the saves before it had\n"
		"120.1 opened process=1 handle=5 is=replace path=/m.pt\n"
		"120.2 closed handle=5 size=100 path=/m.pt\n"
		"  decided 3 whole\n"			       /**/
		TRACE_SAVE(121, 1, 6, "replace", 100, "/o.pt") /**/
		"126.2 time\n"
		"  seal 4 S4 J7 whole\n");
}
END_TEST

/* Others of the same kind say nothing of a save that shares no name with them. */
START_TEST(a_core_is_of_saves_that_share_a_name)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 4000, "/model.pt") /**/
		TRACE_SAVE(1, 1, 2, "new", 4000, "/optim.pt") "6.2 time\n"
							      "  seal 1 S4 J7 whole\n" /**/
		TRACE_SAVE(10, 1, 3, "new", 4000, "/best.pt") "15.2 time\n"
							      "  seal 2 S4 J7 whole\n" /**/
		TRACE_SAVE(20, 1, 4, "replace", 4000, "/best.pt") "25.2 time\n"
								  "  seal 3 S4 J7 whole\n" /**/
		TRACE_SAVE(
			30, 1, 5, "edit", 4000,
			"/model.pt") "35.2 time\n"
				     "  seal 4 S4 J6 pending: the save has no optim.pt, which the saves before it had\n");
}
END_TEST

START_TEST(a_core_name_that_is_removed_begins_a_save)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 4000, "/model.pt") /**/
		TRACE_SAVE(
			1, 1, 2, "new", 10,
			"/state.json") "6.2 time\n"
				       "  seal 1 S4 J7 whole\n"
				       "10 removed path=/model.pt\n"
				       "15 time\n"
				       "  seal 2 S4 J6 pending: the save has no model.pt, state.json, which the saves before it had\n");
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 4000, "/a.ckp") /**/
		"5.2 time\n"
		"  seal 1 S4 J7 whole\n"
		"10 renamed process=1 size=4000 path=/a.ckp to=/a.ckp~\n"
		"15 time\n"
		"  seal 2 S4 J6 pending: the save has no a.ckp, which the saves before it had\n");
	/* What was no part of the saves before begins none. */
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 4000, "/checkpoint-1/model.pt") /**/
			 "5.2 time\n"
			 "  seal 1 S4 J7 whole\n"
			 "10 removed path=/other\n"
			 "15 time\n");
}
END_TEST

START_TEST(a_name_more_often_than_before_begins_the_save_anew)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 4000, "/model.pt") /**/
		TRACE_SAVE(1, 1, 2, "new", 4000, "/optim.pt") "6.2 time\n"
							      "  seal 1 S4 J7 whole\n" /**/
		TRACE_SAVE(10, 1, 3, "edit", 4000, "/model.pt")
			TRACE_SAVE(11, 1, 4, "edit", 4000, "/optim.pt") TRACE_SAVE(
				12, 1, 5, "edit", 4000,
				"/model.pt") "17.2 time\n"
					     "  seal 2 S4 J6 pending: the save has no optim.pt, which the saves before it had\n");
}
END_TEST

START_TEST(how_often_a_name_is_saved_counts)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 9, "/c-1/a") /**/
		"5.2 time\n"
		"  seal 1 S4 J7 whole\n" /**/
		TRACE_SAVE(10, 1, 2, "new", 9, "/c-1/a") TRACE_SAVE(10, 1, 3, "new", 9, "/c-1/x")
			TRACE_SAVE(10, 1, 4, "edit", 9, "/c-1/x") "15.2 time\n"
								  "  seal 2 S4 J7 whole\n" /**/
		TRACE_SAVE(20, 1, 5, "new", 9, "/c-1/a") TRACE_SAVE(20, 1, 6, "new", 9, "/c-1/x")
			TRACE_SAVE(20, 1, 7, "edit", 9, "/c-1/x") "25.2 time\n"
								  "  seal 3 S4 J7 whole\n" /**/
		TRACE_SAVE(30, 1, 8, "new", 9, "/c-1/a") TRACE_SAVE(
			30, 1, 9, "new", 9,
			"/c-1/x") "35.2 time\n"
				  "  seal 4 S4 J6 pending: c-1 has no x, which the saves before it had\n");
}
END_TEST

START_TEST(the_temporary_name_that_replaces_does_not_hold_it_up)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 4000, "/model.pt") /**/
		TRACE_SAVE(
			1, 1, 2, "new", 4000,
			"/model.pt.tmp") "1.3 renamed process=1 size=4000 is=over path=/model.pt.tmp to=/model.pt\n"
					 "  seal 1 S3 J7 whole\n"
					 "  seal 2 S2 J7 whole\n");
}
END_TEST

/* rsync: a name that nobody knows to be temporary, another one each time. */
START_TEST(what_replaces_a_file_of_its_own_save_teaches_nothing)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 4000, "/.model.pt.sY5Xsr")			/**/
		"0.3 renamed process=1 size=4000 path=/.model.pt.sY5Xsr to=/model.pt\n" /**/
		TRACE_SAVE(1, 2, 2, "new", 4000, "/.model.pt.Uc0EHE")			/**/
		"1.3 renamed process=2 size=4000 is=over path=/.model.pt.Uc0EHE to=/model.pt\n"
		"6.3 time\n"
		"  seal 1 S4 J7 whole\n"			      /**/
		TRACE_SAVE(7, 3, 3, "new", 4000, "/.model.pt.n5Ut8w") /**/
		"7.3 renamed process=3 size=4000 is=over path=/.model.pt.n5Ut8w to=/model.pt\n"
		"  seal 2 S2 J7 whole\n");
}
END_TEST

/* caffe2's minidb opens its file once to write, and again to append. */
#define APPENDED(s, h, size, path)                                                                 \
#s ".3 opened process=1 handle=" #h " is=edit path=" path "\n" #s ".4 closed handle=" #h   \
	   " size=" #size " is=grew path=" path "\n"
#define MINIDB(s, h1, h2, h3, h4, n)                                                               \
	TRACE_SAVE(s, 1, h1, "new", 100, "/trainer." #n)                                           \
	APPENDED(s, h2, 200, "/trainer." #n)                                                       \
	TRACE_SAVE(s, 1, h3, "new", 100, "/reader." #n)                                            \
	APPENDED(s, h4, 200, "/reader." #n)

START_TEST(what_is_appended_to_is_saved_once)
{
	saves_unit_check(MINIDB(0, 1, 2, 3, 4, 0) "5.4 time\n"
						  "  seal 1 S4 J7 whole\n" /**/
			 MINIDB(6, 5, 6, 7, 8, 1) "11.4 time\n"
						  "  seal 2 S4 J7 whole\n");
}
END_TEST

START_TEST(output_is_no_part_of_a_save)
{
	/* By its name, and with the same bytes. */
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 4000, "/train.log") /**/
			 "1.1 opened process=1 handle=2 is=edit path=/a.h5\n"
			 "1.2 closed handle=2 size=10 is=same path=/a.h5\n"
			 "1.3 opened process=1 handle=3 is=edit path=/a.h5\n"
			 "1.4 closed handle=3 size=10 is=shared path=/a.h5\n"
			 "2.1 opened process=1 handle=4 is=edit path=/b.csv.txt\n"
			 "2.2 closed handle=4 size=10 is=grew,had path=/b.csv.txt\n"
			 "90 time\n");
	/* It stays open while its process saves another name twice. */
	saves_unit_check(
		"0 opened process=1 handle=1 is=new path=/md.trr\n"	 /**/
		TRACE_SAVE(1, 1, 2, "new", 100, "/restart.1") "2 time\n" /**/
		TRACE_SAVE(3, 2, 3, "new", 100, "/other.1") TRACE_SAVE(
			4, 1, 4, "new", 100,
			"/restart.2") "9.2 time\n"
				      "  seal 1 S4 J7 whole\n"
				      "10 ended process=1 status=137\n"
				      "10.1 closed handle=1 size=100 is=killed path=/md.trr\n"
				      "90 time\n");
}
END_TEST

/* Two files that are written at once: neither makes the other output. */
START_TEST(files_of_one_save_are_no_output)
{
	struct saves_options o = {.settle_ns = NS_PER_S, .patience_ns = 60 * NS_PER_S};
	cleanup_buf struct buf seen = {0};
	struct driver d = {0};

	unit_ok(driver_begin(&d, o, NULL));
	saves_unit_play(&d, "0 opened process=1 handle=1 is=new path=/c/__0_0.distcp", &seen);
	saves_unit_play(&d, "0 opened process=1 handle=2 is=new path=/c/__0_1.distcp", &seen);
	saves_unit_play(&d, "0 opened process=1 handle=3 is=new path=/c/.metadata", &seen);
	saves_unit_play(&d, "1 closed handle=2 size=100 path=/c/__0_1.distcp", &seen);
	ck_assert(!saves_handle_is_output(d.saves, 1));
	ck_assert(!saves_handle_is_output(d.saves, 3));
	ck_assert(saves_path_is_output(d.saves, "c/train.log"));
	ck_assert(!saves_path_is_output(d.saves, "c/__0_0.distcp"));
	driver_end(&d);
}
END_TEST

/* The trajectory of CP2K: going back must not take what was written since. */
START_TEST(what_only_grew_stays_where_the_tree_goes_back)
{
	static const char *const lines[] = {
		"0 opened process=1 handle=1 is=new path=/md.xyz",
		"0 closed handle=1 size=10 path=/md.xyz",
		"5 time",
		"9 opened process=1 handle=2 is=edit path=/md.xyz",
		"9 closed handle=2 size=20 is=grew,had path=/md.xyz",
		"10 opened process=1 handle=3 is=edit path=/md.xyz",
		"10 closed handle=3 size=20 is=had path=/md.xyz",
	};
	static const bool stays[] = {false, false, false, false, true, true, false};
	struct saves_options o = {.settle_ns = 5 * NS_PER_S, .patience_ns = 60 * NS_PER_S};
	cleanup_buf struct buf seen = {0};
	struct driver d = {0};

	unit_ok(driver_begin(&d, o, NULL));
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		saves_unit_play(&d, lines[i], &seen);
		ck_assert_int_eq(saves_path_stays(d.saves, "md.xyz"), stays[i]);
	}
	driver_end(&d);
}
END_TEST

START_TEST(a_kill_of_what_turned_out_output_breaks_nothing)
{
	saves_unit_check_with(
		TRACE_SAVE(0, 1, 1, "new", 100, "/restart.bin") /**/
		"1 opened process=1 handle=2 is=new path=/md.trr\n"
		"1.1 ended process=1 status=137\n"
		"1.2 closed handle=2 size=10 is=killed path=/md.trr\n"
		"6.2 time\n"
		"  seal 1 S4 J2 not whole: process 1 was killed while it wrote md.trr\n"
		"20 opened process=2 handle=3 is=edit path=/md.trr\n" /**/
		TRACE_SAVE(20, 2, 4, "edit", 100, "/state.bin")
			TRACE_SAVE(21, 2, 5, "edit", 101, "/state.bin") "26.2 time\n"
									"  seal 2 S4 J7 whole\n",
		RESUME_OFF);
}
END_TEST

/* A limit: nothing says that the first save of a run is not over. */
START_TEST(a_pause_in_the_first_save)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 4000, "/model.pt") /**/
			 "5.2 time\n"
			 "  seal 1 S4 J7 whole\n" /**/
			 TRACE_SAVE(10, 1, 2, "new", 4000, "/optim.pt") "15.2 time\n"
									"  seal 2 S4 J7 whole\n");
}
END_TEST

START_TEST(names_move_with_their_directory)
{
	saves_unit_check(
		"0 made process=1 path=/new\n" /**/
		TRACE_SAVE(
			0, 1, 1, "new", 100,
			"/new/a/model.bin") "1 renamed process=1 size=0 is=directory path=/new to=/checkpoint-1\n"
					    "6 time\n"
					    "  seal 1 S4 J7 whole\n"
					    "10 made process=1 path=/new\n" /**/
		TRACE_SAVE(
			10, 1, 2, "new", 100,
			"/new/b/model.bin") "11 renamed process=1 size=0 is=directory path=/new to=/checkpoint-2\n"
					    "16 time\n"
					    "  seal 2 S4 J7 whole\n");
	/* What is open moves, too. */
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/x") /**/
			 "1 opened process=1 handle=2 is=new path=/d/large\n"
			 "2 renamed process=1 size=0 is=directory path=/d to=/e\n"
			 "3 exchanged process=1 size=7 path=/e/large to=/x\n"
			 "4 asked\n"
			 "  seal 1 S1 J3 not whole: x is being written\n");
}
END_TEST

START_TEST(a_link_is_a_save_of_its_name)
{
	saves_unit_check("0 linked process=1 size=100 path=/last.pt\n"
			 "5 time\n"
			 "  seal 1 S4 J7 whole\n"
			 "6 linked process=1 size=100 path=/last.pt.tmp\n"
			 "20 time\n");
}
END_TEST

START_TEST(after_going_back_nothing_is_begun)
{
	saves_unit_check_with(
		"0 made process=1 path=/checkpoint-3\n" /**/
		TRACE_SAVE(
			0, 1, 1, "new", 4000,
			"/checkpoint-3/model.bin") "0.3 opened process=1 handle=2 is=new path=/checkpoint-3/optimizer.bin\n"
						   "0.4 ended process=1 status=137\n"
						   "0.5 undone handle=2 is=killed path=/checkpoint-3/optimizer.bin\n"
						   "5.5 time\n"
						   "  seal 1 S4 J2 not whole: process 1 was killed while it wrote checkpoint-3/optimizer.bin\n"
						   "6 back epoch=1\n"
						   "7 asked\n"
						   "  seal 2 S1 J7 whole\n",
		RESUME_OFF);
}
END_TEST

START_TEST(what_cannot_be_is_refused)
{
	struct saves_options o = {.settle_ns = NS_PER_S, .patience_ns = NS_PER_S};
	struct driver d = {0};
	struct save_event e = {.kind = SAVE_CLOSED, .handle = 3, .size = 1, .path = "a"};

	unit_ok(driver_begin(&d, o, NULL));
	unit_error(saves_apply(d.saves, &e), -EINVAL);
	e.kind = SAVE_REFUSED;
	unit_error(saves_apply(d.saves, &e), -EINVAL);
	e = (struct save_event){
		.kind = SAVE_OPENED, .process = 1, .handle = 3, .facts = SAVE_IS_NEW, .path = "a"};
	unit_ok(saves_apply(d.saves, &e));
	unit_error(saves_apply(d.saves, &e), -EINVAL);
	e = (struct save_event){.kind = SAVE_SEALED, .epoch = 1, .rule = 9};
	unit_error(saves_apply(d.saves, &e), -EINVAL);
	driver_end(&d);
}
END_TEST

/* Where an allocation fails (tests/alloc), what comes after it is taken as ever. */
START_TEST(without_memory_it_goes_on)
{
	static const char trace[] = "0 made process=1 path=/tmp-checkpoint-1\n" /**/
		TRACE_SAVE(0, 1, 1, "new", 100, "/tmp-checkpoint-1/a.bin")
			TRACE_SAVE(0, 1, 2, "new", 100, "/tmp-checkpoint-1/b.bin") "1 renamed process=1 size=0 is=directory path=/tmp-checkpoint-1 to=/checkpoint-1\n" TRACE_SAVE(
				2, 1, 3, "new", 100,
				"/checkpoint-2/a.bin") "8 time\n"
						       "9 opened process=1 handle=4 is=new path=/checkpoint-2/b.bin\n" /**/
		TRACE_SAVE(
			9, 2, 5, "new", 100,
			"/checkpoint-2/c.bin") "10 ended process=1 status=137\n"
					       "10 undone handle=4 is=killed path=/checkpoint-2/b.bin\n"
					       "11 ended process=2 status=137\n" /**/
		TRACE_SAVE(
			12, 3, 6, "new", 100,
			"/last.pt.tmp") "12.3 renamed process=3 size=100 path=/last.pt.tmp to=/last.pt\n"
					"13 linked process=3 size=100 path=/best.pt\n"
					"13 removed path=/best.pt\n"
					"14 exchanged process=3 size=9 path=/last.pt to=/first.pt\n"
					"20 time\n"
					"90 time\n";
	struct saves_options o = {
		.settle_ns = 5 * NS_PER_S, .patience_ns = 60 * NS_PER_S, .resume = RESUME_ALWAYS};
	struct driver d = {0};
	char copy[sizeof(trace)], *rest = NULL;

	if (driver_begin(&d, o, NULL) != 0) {
		driver_end(&d);
		return;
	}
	memcpy(copy, trace, sizeof(copy));
	for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		struct save_event e;
		int r;

		unit_ok(save_event_parse(line, &e));
		driver_before(&d, &e);
		r = driver_tell(&d, &e);
		/* A handle that could not be noted is not open. */
		ck_assert(r == 0 || r == -ENOMEM || r == -EINVAL);
	}
	driver_end(&d);
}
END_TEST

START_TEST(it_says_when_something_is_due)
{
	struct saves_options o = {.settle_ns = 5 * NS_PER_S, .patience_ns = 60 * NS_PER_S};
	cleanup_buf struct buf seen = {0};
	struct driver d = {0};

	unit_ok(driver_begin(&d, o, NULL));
	ck_assert_int_eq(saves_next_ns(d.saves), INT64_MAX);
	saves_unit_play(&d, "1 opened process=1 handle=1 is=new path=/a", &seen);
	ck_assert_int_eq(saves_next_ns(d.saves), INT64_MAX);
	saves_unit_play(&d, "2 linked process=1 size=5 path=/b", &seen);
	ck_assert_int_eq(saves_next_ns(d.saves), 61 * NS_PER_S);
	saves_unit_play(&d, "3 closed handle=1 size=5 path=/a", &seen);
	ck_assert_int_eq(saves_next_ns(d.saves), 8 * NS_PER_S);
	driver_end(&d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("saves_words");
	TCase *t = unit_case(s, "words"), *output = unit_case(s, "output"),
	      *fold = unit_case(s, "fold");

	tcase_add_test(t, numbers_in_names_of_files_are_put_aside);
	tcase_add_test(t, what_only_moves_begins_a_save);
	tcase_add_test(t, what_saves_begin_with_ends_what_is_pending);
	tcase_add_test(t, a_core_is_of_saves_that_share_a_name);
	tcase_add_test(t, a_core_name_that_is_removed_begins_a_save);
	tcase_add_test(t, a_name_more_often_than_before_begins_the_save_anew);
	tcase_add_test(t, how_often_a_name_is_saved_counts);
	tcase_add_test(t, what_is_appended_to_is_saved_once);
	tcase_add_test(t, what_replaces_a_file_of_its_own_save_teaches_nothing);
	tcase_add_test(t, the_temporary_name_that_replaces_does_not_hold_it_up);
	tcase_add_test(t, a_pause_in_the_first_save);
	tcase_add_test(t, names_move_with_their_directory);
	tcase_add_test(t, a_link_is_a_save_of_its_name);
	tcase_add_test(output, output_is_no_part_of_a_save);
	tcase_add_test(output, files_of_one_save_are_no_output);
	tcase_add_test(output, what_only_grew_stays_where_the_tree_goes_back);
	tcase_add_test(output, a_kill_of_what_turned_out_output_breaks_nothing);
	tcase_add_test(fold, after_going_back_nothing_is_begun);
	tcase_add_test(fold, what_cannot_be_is_refused);
	tcase_add_test(fold, without_memory_it_goes_on);
	tcase_add_test(fold, it_says_when_something_is_due);
	return unit_run(s);
}
