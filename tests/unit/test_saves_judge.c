/* SPDX-License-Identifier: Apache-2.0 */
/* What an epoch is, and when the live tree goes back: each row of the table, by traces. */
#include "tests/unit/saves_unit.h"

#define STEPS                                                                                      \
	TRACE_STEP(0, 5, 1, 1, 2, 1, "/checkpoint-1")                                              \
	TRACE_STEP(10, 15, 1, 3, 4, 2, "/checkpoint-2")
#define HALF                                                                                       \
	"20 made process=1 path=/checkpoint-3\n" /**/                                              \
		TRACE_SAVE(20, 1, 5, "new", 4000, "/checkpoint-3/model.bin")
#define LACKS "checkpoint-3 has no optimizer.bin, which the saves before it had"

START_TEST(j0_somebody_vouches)
{
	saves_unit_check(STEPS HALF "21 asked is=whole\n"
				    "  seal 3 S1 J0 whole\n");
}
END_TEST

START_TEST(j1_cut_off)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 100, "/a.pt") /**/
		"1 opened process=1 handle=2 is=edit path=/b.pt\n"
		"1.1 closed handle=2 size=50 is=torn path=/b.pt\n"
		"6.1 time\n"
		"  seal 1 S4 J1 not whole: b.pt is cut off, or a write of it was refused\n" /**/
		TRACE_SAVE(
			7, 1, 3, "replace", 100,
			"/a.pt") "12.2 time\n"
				 "  seal 2 S4 J1 not whole: b.pt is cut off, or a write of it was refused\n" TRACE_SAVE(
					 13, 1, 4, "replace", 100,
					 "/b.pt") "18.2 time\n"
						  "  seal 3 S4 J7 whole\n");
}
END_TEST

START_TEST(j1_what_is_cut_off_teaches_nothing)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 4000, "/model.bin")	   /**/
		TRACE_SAVE(0, 1, 2, "new", 8000, "/optimizer.bin") /**/
		"5.2 time\n"
		"  seal 1 S4 J7 whole\n"
		"6 opened process=1 handle=3 is=new path=/best.pt\n"
		"6.1 closed handle=3 size=50 is=torn path=/best.pt\n"
		"11.1 time\n"
		"  seal 2 S4 J1 not whole: best.pt is cut off, or a write of it was refused\n"
		"12 removed path=/best.pt\n"
		"13 asked\n"
		"  seal 3 S1 J7 whole\n");
}
END_TEST

START_TEST(j1_a_write_was_refused)
{
	saves_unit_check("0 opened process=1 handle=1 is=new path=/a.pt\n"
			 "0.1 refused handle=1\n"
			 "0.2 closed handle=1 size=50 path=/a.pt\n"
			 "5.2 time\n"
			 "  seal 1 S4 J1 not whole: a.pt is cut off, or a write of it was refused\n"
			 "6 removed path=/a.pt\n" /**/
			 TRACE_SAVE(6, 1, 2, "new", 100, "/b.pt") "11.2 time\n"
								  "  seal 2 S4 J7 whole\n");
}
END_TEST

#define LEFT_HALF                                                                                  \
	TRACE_SAVE(0, 1, 1, "new", 100, "/a.pt")                                                   \
	"5.2 time\n"                                                                               \
	"  seal 1 S4 J7 whole\n"                                                                   \
	"6 made process=1 path=/tmp-checkpoint-2\n"                                                \
	"6.1 opened process=1 handle=2 is=new path=/tmp-checkpoint-2/o.pt\n"                       \
	"6.2 ended process=1 status=137\n"                                                         \
	"6.3 closed handle=2 size=50 is=killed path=/tmp-checkpoint-2/o.pt\n"

/* What was synced stays as it is: half of a file, that counts once it has its final name. */
START_TEST(j1_left_by_a_kill_under_a_temporary_name)
{
	saves_unit_check(
		LEFT_HALF
		"7 renamed process=3 size=0 is=directory path=/tmp-checkpoint-2 to=/checkpoint-2\n"
		"  seal 2 S2 J1 not whole: checkpoint-2/o.pt is cut off, or a write of it was refused\n");
	/* Also when an epoch has it already, and after a mount. */
	saves_unit_check(
		LEFT_HALF
		"7 asked\n"
		"  seal 2 S1 J7 whole\n"
		"remount\n"
		"8 renamed process=3 size=0 is=directory path=/tmp-checkpoint-2 to=/checkpoint-2\n"
		"  seal 3 S2 J1 not whole: checkpoint-2/o.pt is cut off, or a write of it was refused\n"
		"  back 2\n");
	/* Saved again it is none any more. */
	saves_unit_check(LEFT_HALF TRACE_SAVE(
		7, 3, 4, "replace", 100,
		"/tmp-checkpoint-2/o.pt") "8 renamed process=3 size=0 is=directory path=/tmp-checkpoint-2 to=/checkpoint-2\n"
					  "  seal 2 S2 J7 whole\n");
}
END_TEST

START_TEST(j1_goes_back_when_its_writer_has_ended)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/a.pt") /**/
			 "5.2 time\n"
			 "  seal 1 S4 J7 whole\n"
			 "6 opened process=1 handle=2 is=edit path=/a.pt\n"
			 "6.1 closed handle=2 size=50 is=had,torn path=/a.pt\n"
			 "11.1 time\n"
			 "  seal 2 S4 J1 not whole: a.pt is cut off, or a write of it was refused\n"
			 "12 ended process=1 status=0\n"
			 "  back 1\n");
}
END_TEST

START_TEST(j2_undone_and_others_of_the_save_are_there)
{
	saves_unit_check(
		STEPS HALF
		"20.3 opened process=1 handle=6 is=new path=/checkpoint-3/optimizer.bin\n"
		"20.4 ended process=1 status=137\n"
		"20.5 undone handle=6 is=killed path=/checkpoint-3/optimizer.bin\n"
		"  seal 3 S1 J2 not whole: process 1 was killed while it wrote checkpoint-3/optimizer.bin\n"
		"  back 2\n");
}
END_TEST

START_TEST(j2_the_empty_checkpoint_that_it_made)
{
	saves_unit_check(
		STEPS
		"20 made process=1 path=/checkpoint-3\n"
		"20.1 opened process=1 handle=5 is=new path=/checkpoint-3/model.bin\n"
		"20.2 ended process=1 status=137\n"
		"20.3 undone handle=5 is=killed path=/checkpoint-3/model.bin\n"
		"  seal 3 S1 J2 not whole: process 1 was killed while it wrote checkpoint-3/model.bin\n"
		"  back 2\n");
}
END_TEST

START_TEST(j2_not_where_nothing_is_left)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/a.pt") /**/
			 "5.2 time\n"
			 "  seal 1 S4 J7 whole\n"
			 "6 opened process=1 handle=2 is=replace path=/a.pt\n"
			 "6.1 ended process=1 status=137\n"
			 "6.2 undone handle=2 is=killed path=/a.pt\n"
			 "70 time\n");
}
END_TEST

START_TEST(j2_stands_until_the_file_is_saved_again)
{
	saves_unit_check_with(
		TRACE_SAVE(0, 1, 1, "new", 100, "/a.pt") /**/
		"5.2 time\n"
		"  seal 1 S4 J7 whole\n"
		"6 opened process=1 handle=2 is=edit path=/a.pt\n"
		"6.1 ended process=1 status=137\n"
		"6.2 closed handle=2 size=100 is=had,killed path=/a.pt\n"
		"11.2 time\n"
		"  seal 2 S4 J2 not whole: process 1 was killed while it wrote a.pt\n" /**/
		TRACE_SAVE(
			20, 2, 3, "new", 100,
			"/b.txt") "25.2 time\n"
				  "  seal 3 S4 J2 not whole: process 1 was killed while it wrote a.pt\n" /**/
		TRACE_SAVE(
			30, 2, 4, "new", 100,
			"/a.pt.tmp") "30.3 renamed process=2 size=100 is=over path=/a.pt.tmp to=/a.pt\n"
				     "  seal 4 S2 J7 whole\n",
		RESUME_OFF);
}
END_TEST

/* Two ranks write one file: the one that lives on closes it half. */
START_TEST(j2_in_place_stands_until_another_program_changes_the_file)
{
	saves_unit_check_with(
		TRACE_SAVE(0, 1, 1, "new", 100, "/a.h5") /**/
		"5.2 time\n"
		"  seal 1 S4 J7 whole\n"
		"6 opened process=1 handle=2 is=edit path=/a.h5\n"
		"6 opened process=2 handle=3 is=edit path=/a.h5\n"
		"6.1 ended process=1 status=137\n"
		"6.2 closed handle=2 size=100 is=had,killed path=/a.h5\n"
		"6.3 closed handle=3 size=100 is=had path=/a.h5\n"
		"11.3 time\n"
		"  seal 2 S4 J2 not whole: process 1 was killed while it wrote a.h5\n" /**/
		"20 opened process=3 handle=4 is=edit path=/a.h5\n"
		"20.1 closed handle=4 size=100 is=had path=/a.h5\n"
		"25.1 time\n"
		"  seal 3 S4 J7 whole\n",
		RESUME_OFF);
}
END_TEST

START_TEST(j2_is_over_when_the_rest_is_removed)
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
						   "7 removed path=/checkpoint-3/model.bin\n" /**/
		TRACE_SAVE(7, 2, 3, "new", 100, "/b.txt") "12.2 time\n"
							  "  seal 2 S4 J7 whole\n",
		RESUME_OFF);
}
END_TEST

START_TEST(j2_is_over_when_the_killed_file_and_the_rest_are_gone)
{
	saves_unit_check_with(
		TRACE_SAVE(0, 1, 1, "new", 100, "/a.pt") /**/
		"1 opened process=1 handle=2 is=new path=/b.mix\n"
		"1.1 ended process=1 status=137\n"
		"1.2 closed handle=2 size=10 is=killed path=/b.mix\n"
		"6.2 time\n"
		"  seal 1 S4 J2 not whole: process 1 was killed while it wrote b.mix\n"
		"7 removed path=/b.mix\n" /**/
		TRACE_SAVE(8, 2, 3, "edit", 100, "/a.pt") "13.2 time\n"
							  "  seal 2 S4 J7 whole\n",
		RESUME_OFF);
}
END_TEST

/* What a program keeps in the root, as a file that names its newest checkpoint, is of that save, too. */
START_TEST(j2_of_the_root_beside_the_newest_checkpoint)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 100, "/model_1.pth") /**/
		TRACE_SAVE(0, 1, 2, "new", 10, "/last_checkpoint") "5.2 time\n"
								   "  seal 1 S4 J7 whole\n" /**/
		TRACE_SAVE(
			10, 1, 3, "new", 100,
			"/model_2.pth") "10.3 opened process=1 handle=4 is=replace path=/last_checkpoint\n"
					"10.4 ended process=1 status=137\n"
					"10.5 undone handle=4 is=killed path=/last_checkpoint\n"
					"  seal 2 S1 J2 not whole: process 1 was killed while it wrote last_checkpoint\n"
					"  back 1\n");
}
END_TEST

START_TEST(j2_a_cut_off_replacement_counts_as_killed)
{
	saves_unit_check(
		STEPS HALF
		"20.3 opened process=1 handle=6 is=replace path=/checkpoint-3/optimizer.bin\n"
		"20.4 undone handle=6 is=torn path=/checkpoint-3/optimizer.bin\n"
		"25.4 time\n"
		"  seal 3 S4 J2 not whole: what process 1 wrote for checkpoint-3/optimizer.bin is cut off\n");
}
END_TEST

#define TWO_FILES                                                                                  \
	TRACE_SAVE(0, 1, 1, "new", 100, "/m.pt")                                                   \
	TRACE_SAVE(1, 1, 2, "new", 100, "/o.pt")                                                   \
	"6.2 time\n"                                                                               \
	"  seal 1 S4 J7 whole\n"

START_TEST(j2_of_each_file_that_was_changed_in_place)
{
	saves_unit_check_with(
		TWO_FILES "10 opened process=1 handle=3 is=edit path=/m.pt\n"
			  "10.1 opened process=1 handle=4 is=edit path=/o.pt\n"
			  "11 ended process=1 status=137\n"
			  "11 closed handle=3 size=100 is=killed path=/m.pt\n"
			  "11 closed handle=4 size=100 is=killed path=/o.pt\n"
			  "16 time\n"
			  "  seal 2 S4 J2 not whole: process 1 was killed while it wrote o.pt\n"
		/**/ TRACE_SAVE(20, 2, 5, "edit", 100, "/o.pt") /**/
		"25.2 time\n"
		"  seal 3 S4 J2 not whole: process 1 was killed while it wrote m.pt\n",
		RESUME_OFF);
}
END_TEST

START_TEST(j3_the_rest_of_a_save_is_open)
{
	saves_unit_check(TWO_FILES /**/ TRACE_SAVE(10, 1, 3, "replace", 100, "/m.pt") /**/
			 "11 opened process=1 handle=4 is=replace path=/o.pt\n"
			 "71 time\n"
			 "  seal 2 S4 J3 not whole: o.pt is being written\n"
			 "100 closed handle=4 size=100 path=/o.pt\n"
			 "105 time\n"
			 "  seal 3 S4 J7 whole\n");
}
END_TEST

START_TEST(j3_the_rest_was_killed)
{
	saves_unit_check(TWO_FILES /**/ TRACE_SAVE(10, 1, 3, "replace", 100, "/m.pt") /**/
			 "11 opened process=1 handle=4 is=replace path=/o.pt\n"
			 "71 time\n"
			 "  seal 2 S4 J3 not whole: o.pt is being written\n"
			 "80 ended process=1 status=137\n"
			 "80 undone handle=4 is=killed path=/o.pt\n"
			 "  seal 3 S1 J2 not whole: process 1 was killed while it wrote o.pt\n"
			 "  back 1\n");
}
END_TEST

/* Quantum ESPRESSO keeps a file open from the end of one save to the next. */
START_TEST(j3_not_beside_a_full_save)
{
	saves_unit_check(TWO_FILES /**/ TRACE_SAVE(10, 1, 3, "replace", 100, "/m.pt") /**/
			 TRACE_SAVE(11, 1, 4, "replace", 100, "/o.pt")		      /**/
			 "12 opened process=1 handle=5 is=new path=/scratch\n"
			 "72 time\n"
			 "  seal 2 S4 J7 whole\n");
}
END_TEST

START_TEST(j3_the_journal_of_a_database)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/a.db") /**/
			 "5.2 time\n"
			 "  seal 1 S4 J7 whole\n"		    /**/
			 TRACE_SAVE(10, 1, 2, "edit", 100, "/a.db") /**/
			 "11 opened process=1 handle=3 is=new path=/a.db-journal\n"
			 "71 time\n"
			 "  seal 2 S4 J3 not whole: a.db-journal is being written\n");
}
END_TEST

START_TEST(j4_the_writers_are_gone)
{
	saves_unit_check(STEPS HALF "20.3 ended process=1 status=1\n"
				    "  seal 3 S1 J4 not whole: " LACKS "\n"
				    "  back 2\n");
	/* Nobody knows how it ended: it is half, but nothing goes back by itself. */
	saves_unit_check(STEPS HALF "20.3 ended process=1 status=0 is=unknown\n"
				    "25.2 time\n"
				    "  seal 3 S4 J4 not whole: " LACKS "\n");
	saves_unit_check_with(STEPS HALF "20.3 ended process=1 status=0 is=unknown\n"
					 "  seal 3 S1 J4 not whole: " LACKS "\n"
					 "  back 2\n",
			      RESUME_ALWAYS);
}
END_TEST

START_TEST(j4_half_a_save_teaches_nothing)
{
	saves_unit_check_with(
		STEPS HALF "20.3 ended process=1 status=1\n"
			   "25.2 time\n"
			   "  seal 3 S4 J4 not whole: " LACKS "\n"
			   "30 made process=2 path=/checkpoint-4\n" /**/
		TRACE_SAVE(
			30, 2, 6, "new", 4000,
			"/checkpoint-4/model.bin") "35.2 time\n"
						   "  seal 4 S4 J6 pending: checkpoint-4 has no optimizer.bin, which the saves before it had\n",
		RESUME_OFF);
}
END_TEST

/* Nobody knows that the first save was half, but it is no measure of those that follow. */
START_TEST(j4_a_first_save_that_was_killed_teaches_nothing)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/m.pt") /**/
			 "1 ended process=1 status=137\n"
			 "5.2 time\n"
			 "  seal 1 S4 J7 whole\n"		       /**/
			 TRACE_SAVE(10, 2, 2, "new", 100, "/m.pt.tmp") /**/
			 "10.3 renamed process=2 size=100 is=over path=/m.pt.tmp to=/m.pt\n"
			 /**/ TRACE_SAVE(11, 2, 3, "new", 100, "/o.pt") /**/
			 "16.2 time\n"
			 "  seal 2 S4 J7 whole\n");
}
END_TEST

START_TEST(j4_of_what_was_pending)
{
	saves_unit_check(STEPS HALF "25.2 time\n"
				    "  seal 3 S4 J6 pending: " LACKS "\n"
				    "30 ended process=1 status=137\n"
				    "  decided 3 not whole\n"
				    "  back 2\n");
}
END_TEST

START_TEST(j5_a_writer_that_cannot_be_seen)
{
	saves_unit_check(
		TRACE_SAVE(0, 0, 1, "new", 100, "/a.pt.tmp") /**/
		"0.3 renamed process=0 size=100 path=/a.pt.tmp to=/a.pt\n"
		"5.3 time\n"
		"  seal 1 S4 J5 unknown: a process that wrote the save cannot be seen from here\n" /**/
		TRACE_SAVE(
			6, 0, 2, "new", 100,
			"/a.pt.tmp") "6.3 renamed process=0 size=100 is=over path=/a.pt.tmp to=/a.pt\n"
				     "  seal 2 S2 J7 whole\n");
	/* In place there is no sign, but what the save before it had. */
	saves_unit_check(TRACE_SAVE(
		0, 0, 1, "new", 100,
		"/a.pt") "5.2 time\n"
			 "  seal 1 S4 J5 unknown: a process that wrote the save cannot be seen from here\n" /**/
			 TRACE_SAVE(6, 0, 2, "replace", 100, "/a.pt") "11.2 time\n"
								      "  seal 2 S4 J7 whole\n");
}
END_TEST

START_TEST(j6_pending_and_then_whole)
{
	saves_unit_check(STEPS HALF "25.2 time\n"
				    "  seal 3 S4 J6 pending: " LACKS "\n"
				    "80.1 time\n"
				    "80.2 time\n"
				    "  decided 3 whole\n");
	/* In order is no proof, but nobody is left to go on. */
	saves_unit_check(STEPS HALF "20.3 ended process=1 status=0\n"
				    "25.2 time\n"
				    "  seal 3 S4 J6 pending: " LACKS "\n"
				    "80.2 time\n"
				    "  decided 3 whole\n");
}
END_TEST

START_TEST(j6_pending_and_then_part)
{
	saves_unit_check(STEPS HALF
			 "25.2 time\n"
			 "  seal 3 S4 J6 pending: " LACKS "\n"
			 "30.1 opened process=1 handle=6 is=new path=/checkpoint-3/optimizer.bin\n"
			 "30.2 closed handle=6 size=8000 path=/checkpoint-3/optimizer.bin\n"
			 "  decided 3 part\n"
			 "35.2 time\n"
			 "  seal 4 S4 J7 whole\n");
}
END_TEST

/* What is saved in the root says nothing of the newest checkpoint, and puts nothing off. */
START_TEST(pending_goes_on_beside_the_root)
{
	saves_unit_check(
		STEPS HALF "25.2 time\n"
			   "  seal 3 S4 J6 pending: " LACKS "\n" /**/
		TRACE_SAVE(30, 1, 6, "new", 100, "/best.pt") "35.2 time\n"
							     "  seal 4 S4 J6 pending: " LACKS "\n"
							     "  decided 3 part\n"
							     "80.1 time\n"
							     "80.2 time\n"
							     "  decided 4 whole\n");
}
END_TEST

START_TEST(who_begins_the_next_step_saved_all)
{
	saves_unit_check(STEPS HALF "25.2 time\n"
				    "  seal 3 S4 J6 pending: " LACKS "\n"
				    "30 made process=1 path=/checkpoint-4\n"
				    "  seal 4 S3 J7 whole\n"
				    "  decided 3 part\n");
}
END_TEST

START_TEST(pending_is_half_when_the_machine_is_lost)
{
	saves_unit_check(STEPS HALF "25.2 time\n"
				    "  seal 3 S4 J6 pending: " LACKS "\n"
				    "26 lost\n"
				    "  decided 3 not whole\n"
				    "99 time\n");
}
END_TEST

START_TEST(it_goes_back_when_nobody_writes)
{
	saves_unit_check(
		STEPS HALF
		"20.3 opened process=1 handle=6 is=new path=/checkpoint-3/optimizer.bin\n" /**/
		TRACE_SAVE(
			21, 2, 7, "new", 10,
			"/checkpoint-3/rank-1.bin") "22 ended process=1 status=137\n"
						    "22.1 undone handle=6 is=killed path=/checkpoint-3/optimizer.bin\n"
						    "27.1 time\n"
						    "  seal 3 S4 J2 not whole: process 1 was killed while it wrote checkpoint-3/optimizer.bin\n"
						    "28 ended process=2 status=143\n"
						    "  back 2\n");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("saves_judge");
	TCase *t = unit_case(s, "rules"), *back = unit_case(s, "back");

	tcase_add_test(t, j0_somebody_vouches);
	tcase_add_test(t, j1_cut_off);
	tcase_add_test(t, j1_what_is_cut_off_teaches_nothing);
	tcase_add_test(t, j1_a_write_was_refused);
	tcase_add_test(t, j1_left_by_a_kill_under_a_temporary_name);
	tcase_add_test(t, j2_undone_and_others_of_the_save_are_there);
	tcase_add_test(t, j2_the_empty_checkpoint_that_it_made);
	tcase_add_test(t, j2_not_where_nothing_is_left);
	tcase_add_test(t, j2_stands_until_the_file_is_saved_again);
	tcase_add_test(t, j2_in_place_stands_until_another_program_changes_the_file);
	tcase_add_test(t, j2_is_over_when_the_rest_is_removed);
	tcase_add_test(t, j2_is_over_when_the_killed_file_and_the_rest_are_gone);
	tcase_add_test(t, j2_of_the_root_beside_the_newest_checkpoint);
	tcase_add_test(t, j2_a_cut_off_replacement_counts_as_killed);
	tcase_add_test(t, j2_of_each_file_that_was_changed_in_place);
	tcase_add_test(t, j3_the_rest_of_a_save_is_open);
	tcase_add_test(t, j3_the_rest_was_killed);
	tcase_add_test(t, j3_not_beside_a_full_save);
	tcase_add_test(t, j3_the_journal_of_a_database);
	tcase_add_test(t, j4_the_writers_are_gone);
	tcase_add_test(t, j4_half_a_save_teaches_nothing);
	tcase_add_test(t, j4_a_first_save_that_was_killed_teaches_nothing);
	tcase_add_test(t, j4_of_what_was_pending);
	tcase_add_test(t, j5_a_writer_that_cannot_be_seen);
	tcase_add_test(t, j6_pending_and_then_whole);
	tcase_add_test(t, j6_pending_and_then_part);
	tcase_add_test(t, pending_goes_on_beside_the_root);
	tcase_add_test(t, who_begins_the_next_step_saved_all);
	tcase_add_test(t, pending_is_half_when_the_machine_is_lost);
	tcase_add_test(back, j1_goes_back_when_its_writer_has_ended);
	tcase_add_test(back, it_goes_back_when_nobody_writes);
	return unit_run(s);
}
