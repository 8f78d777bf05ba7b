/* SPDX-License-Identifier: Apache-2.0 */
/* When an epoch is sealed: each row of the table, by traces. */
#include "tests/unit/saves_unit.h"

START_TEST(s1_somebody_asks)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/model.bin") /**/
			 "0.3 asked\n"
			 "  seal 1 S1 J7 whole\n"
			 "0.4 asked is=whole\n"
			 "  seal 2 S1 J0 whole\n"
			 "9 time\n");
}
END_TEST

/* Megatron writes metadata.json after PyTorch's .metadata: which file is the last one, the save before says. */
START_TEST(s2_the_last_file_of_a_full_save)
{
	saves_unit_check("0 made process=1 path=/checkpoint-5\n"			/**/
			 TRACE_SAVE(0, 1, 1, "new", 4000, "/checkpoint-5/__0_0.distcp") /**/
			 TRACE_SAVE(1, 1, 2, "new", 10, "/checkpoint-5/.metadata")	/**/
			 TRACE_SAVE(2, 1, 3, "new", 10, "/checkpoint-5/metadata.json")	/**/
			 "7.2 time\n"
			 "  seal 1 S4 J7 whole\n"
			 "10 made process=1 path=/checkpoint-6\n"			 /**/
			 TRACE_SAVE(10, 1, 4, "new", 4000, "/checkpoint-6/__0_0.distcp") /**/
			 TRACE_SAVE(11, 1, 5, "new", 10, "/checkpoint-6/.metadata")	 /**/
			 TRACE_SAVE(12, 1, 6, "new", 10, "/checkpoint-6/metadata.json")	 /**/
			 "17.2 time\n"
			 "  seal 2 S4 J7 whole\n");
	saves_unit_check("0 made process=1 path=/c-5\n"				   /**/
			 TRACE_SAVE(0, 1, 1, "new", 4000, "/c-5/model.bin")	   /**/
			 TRACE_SAVE(1, 1, 2, "new", 20, "/c-5/trainer_state.json") /**/
			 "6.2 time\n"
			 "  seal 1 S4 J7 whole\n"
			 "10 made process=1 path=/c-6\n"			    /**/
			 TRACE_SAVE(10, 1, 3, "new", 4000, "/c-6/model.bin")	    /**/
			 TRACE_SAVE(11, 1, 4, "new", 20, "/c-6/trainer_state.json") /**/
			 "  seal 2 S2 J7 whole\n");
}
END_TEST

START_TEST(s2_a_temporary_directory_gets_its_name)
{
	saves_unit_check(
		"0 made process=1 path=/tmp-checkpoint-5\n" /**/
		TRACE_SAVE(0, 1, 1, "new", 100, "/tmp-checkpoint-5/model.bin") TRACE_SAVE(
			1, 1, 2, "new", 100,
			"/tmp-checkpoint-5/optimizer.bin") "30 time\n"
							   "31 renamed process=1 size=0 is=directory path=/tmp-checkpoint-5 to=/checkpoint-5\n"
							   "  seal 1 S2 J7 whole\n"
							   "40 made process=1 path=/tmp-checkpoint-6\n" /**/
		TRACE_SAVE(
			40, 1, 3, "new", 100,
			"/tmp-checkpoint-6/model.bin") "41 renamed process=1 size=0 is=directory path=/tmp-checkpoint-6 to=/checkpoint-6\n"
						       "  seal 2 S2 J7 whole\n");
}
END_TEST

START_TEST(s2_the_name_of_a_full_save)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 100, "/last.pt.tmp") /**/
		"0.3 renamed process=1 size=100 path=/last.pt.tmp to=/last.pt\n"
		"5.3 time\n"
		"  seal 1 S4 J7 whole\n" /**/
		TRACE_SAVE(
			9, 1, 2, "new", 100,
			"/last.pt.tmp") "9.3 renamed process=1 size=100 is=over path=/last.pt.tmp to=/last.pt\n"
					"  seal 2 S2 J7 whole\n");
}
END_TEST

START_TEST(s2_not_while_something_is_unfinished)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 100, "/last.pt") /**/
		"5.2 time\n"
		"  seal 1 S4 J7 whole\n" /**/
		TRACE_SAVE(
			9, 1, 2, "new", 100,
			"/last.pt.tmp") "9.25 opened process=1 handle=3 is=new path=/other.bin\n"
					"9.3 renamed process=1 size=100 is=over path=/last.pt.tmp to=/last.pt\n"
					"9.4 closed handle=3 size=5 path=/other.bin\n"
					"14.3 time\n"
					"14.4 time\n"
					"  seal 2 S4 J7 whole\n");
}
END_TEST

START_TEST(s3_a_file_is_about_to_be_replaced)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 4000, "/model.pt") /**/
		TRACE_SAVE(1, 1, 2, "new", 8000,
			   "/optim.pt") "2.1 opened process=1 handle=3 is=replace path=/model.pt\n"
					"  seal 1 S3 J7 whole\n"
					"2.2 closed handle=3 size=4000 is=had path=/model.pt\n"
					/* Not full: it waits for the other one. */
					"4 opened process=1 handle=4 is=replace path=/model.pt\n"
					"4.1 closed handle=4 size=4000 is=had path=/model.pt\n" /**/
		TRACE_SAVE(
			4, 1, 5, "replace", 8000,
			"/optim.pt") "4.4 opened process=1 handle=6 is=replace path=/model.pt\n"
				     "  seal 2 S3 J7 whole\n"
				     /* Once a second at most. */
				     "4.5 closed handle=6 size=4000 is=had path=/model.pt\n"
				     "4.6 opened process=1 handle=7 is=replace path=/optim.pt\n"
				     "4.7 closed handle=7 size=8000 is=had path=/optim.pt\n"
				     "4.8 opened process=1 handle=8 is=replace path=/model.pt\n");
}
END_TEST

START_TEST(s3_not_before_a_note)
{
	saves_unit_check(
		TRACE_SAVE(0, 1, 1, "new", 40000, "/model.pt") /**/
		TRACE_SAVE(
			1, 1, 2, "new", 10,
			"/status.json") "3.1 opened process=1 handle=3 is=replace path=/status.json\n"
					"3.2 closed handle=3 size=10 path=/status.json\n"
					"3.3 opened process=1 handle=4 is=replace path=/model.pt\n"
					"  seal 1 S3 J7 whole\n");
}
END_TEST

START_TEST(s3_not_where_nobody_knows_where_the_save_began)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 4000, "/a.pt") /**/
			 TRACE_SAVE(1, 1, 2, "new", 4000, "/b.pt") TRACE_SAVE(
				 2, 1, 3, "edit", 4000,
				 "/a.pt") "3.1 opened process=1 handle=4 is=replace path=/b.pt\n");
}
END_TEST

START_TEST(s3_the_name_of_the_next_step)
{
	saves_unit_check(
		"0 made process=1 path=/step-100\n" /**/
		TRACE_SAVE(0, 1, 1, "new", 100,
			   "/step-100/model.pt") "2 made process=1 path=/step-200.incomplete\n"
						 "  seal 1 S3 J7 whole\n");
}
END_TEST

/* An old file that is removed is of no save. */
START_TEST(s3_a_file_with_the_next_number)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/m_1.pt")   /**/
			 TRACE_SAVE(1, 1, 2, "new", 100, "/m_1.json") /**/
			 "6.2 time\n"
			 "  seal 1 S4 J7 whole\n"		       /**/
			 TRACE_SAVE(10, 1, 3, "new", 100, "/m_2.pt")   /**/
			 TRACE_SAVE(11, 1, 4, "new", 100, "/m_2.json") /**/
			 "12 removed path=/m_1.pt\n"
			 "12.1 removed path=/m_1.json\n"
			 "13 opened process=1 handle=5 is=new path=/m_3.pt\n"
			 "  seal 2 S3 J7 whole\n");
}
END_TEST

START_TEST(s4_quiet)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/a") /**/
			 "3 opened process=1 handle=2 is=new path=/b\n"
			 "20 time\n"
			 "21 closed handle=2 size=5 path=/b\n"
			 "25.9 time\n"
			 "26 time\n"
			 "  seal 1 S4 J7 whole\n"
			 "90 time\n");
}
END_TEST

/* What is in it an epoch has, but not under this name. */
START_TEST(s4_a_directory_gets_another_name)
{
	saves_unit_check(
		"0 made process=1 path=/being-made\n"			 /**/
		TRACE_SAVE(0, 1, 1, "new", 100, "/being-made/model.bin") /**/
		"5.2 time\n"
		"  seal 1 S4 J7 whole\n"
		"10 renamed process=1 size=0 is=directory path=/being-made to=/checkpoint-1\n"
		"15 time\n"
		"  seal 2 S4 J7 whole\n");
}
END_TEST

START_TEST(s4_a_temporary_name_holds_it_up_for_patience)
{
	saves_unit_check("0 made process=1 path=/step-200.incomplete\n" /**/
			 TRACE_SAVE(0, 1, 1, "new", 100, "/model.pt") "59 time\n"
								      "60 time\n"
								      "  seal 1 S4 J7 whole\n");
}
END_TEST

START_TEST(s5_a_file_is_written_for_longer_than_patience)
{
	saves_unit_check("0 opened process=1 handle=1 is=new path=/large\n" /**/
			 TRACE_SAVE(1, 1, 2, "new", 100, "/a") TRACE_SAVE(
				 58, 1, 3, "new", 100,
				 "/b") "60 time\n"
				       "  seal 1 S5 J3 not whole: large is being written\n" /**/
			 TRACE_SAVE(61, 1, 4, "new", 100, "/c") "66.2 time\n"
								"  seal 2 S4 J7 whole\n");
	/* Nothing was to be sealed when patience ended. */
	saves_unit_check("0 opened process=1 handle=1 is=new path=/large\n"
			 "60 time\n" /**/
			 TRACE_SAVE(61, 1, 2, "new", 100,
				    "/a") "66.1 time\n"
					  "66.2 time\n"
					  "  seal 1 S4 J3 not whole: large is being written\n");
}
END_TEST

START_TEST(edits_in_place_hold_nothing_up)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/a") /**/
			 "0.3 opened process=1 handle=2 is=edit path=/data.h5\n"
			 "5.2 time\n"
			 "  seal 1 S4 J7 whole\n");
}
END_TEST

/* `: > DONE`, the first time and again. */
START_TEST(s2_a_marker_with_nothing_in_it)
{
	saves_unit_check_of(TRACE_SAVE(0, 1, 1, "new", 100, "/model.pt") /**/
			    "1 opened process=1 handle=2 is=new path=/DONE\n"
			    "1.1 closed handle=2 size=0 path=/DONE\n"
			    "  seal 1 S2 J7 whole\n"			     /**/
			    TRACE_SAVE(9, 1, 3, "replace", 100, "/model.pt") /**/
			    "10 opened process=1 handle=4 is=edit path=/DONE\n"
			    "10.1 closed handle=4 size=0 is=same path=/DONE\n"
			    "  seal 2 S2 J7 whole\n"
			    "11 opened process=1 handle=5 is=edit path=/DONE\n"
			    "11.1 closed handle=5 size=0 is=same path=/DONE\n",
			    RESUME_KNOWN, "DONE");
}
END_TEST

START_TEST(s3_an_exchange)
{
	saves_unit_check(TRACE_SAVE(0, 1, 1, "new", 100, "/model.pt")  /**/
			 TRACE_SAVE(1, 1, 2, "new", 101, "/model.tmp") /**/
			 "2 exchanged process=1 size=101 path=/model.tmp to=/model.pt\n"
			 "  seal 1 S3 J7 whole\n");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("saves_seal");
	TCase *t = unit_case(s, "rules");

	tcase_add_test(t, s1_somebody_asks);
	tcase_add_test(t, s2_the_last_file_of_a_full_save);
	tcase_add_test(t, s2_a_marker_with_nothing_in_it);
	tcase_add_test(t, s2_a_temporary_directory_gets_its_name);
	tcase_add_test(t, s2_the_name_of_a_full_save);
	tcase_add_test(t, s2_not_while_something_is_unfinished);
	tcase_add_test(t, s3_a_file_is_about_to_be_replaced);
	tcase_add_test(t, s3_an_exchange);
	tcase_add_test(t, s3_not_before_a_note);
	tcase_add_test(t, s3_not_where_nobody_knows_where_the_save_began);
	tcase_add_test(t, s3_the_name_of_the_next_step);
	tcase_add_test(t, s3_a_file_with_the_next_number);
	tcase_add_test(t, s4_quiet);
	tcase_add_test(t, s4_a_directory_gets_another_name);
	tcase_add_test(t, s4_a_temporary_name_holds_it_up_for_patience);
	tcase_add_test(t, s5_a_file_is_written_for_longer_than_patience);
	tcase_add_test(t, edits_in_place_hold_nothing_up);
	return unit_run(s);
}
