/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of doubt, asked one by one: the unit of a path, what nobody can tell is gone, which are named. */
#include "lib/meta/doubts.h"
#include "tests/unit/unit.h"

START_TEST(units_of_paths)
{
	static const struct {
		const char *path;
		size_t len;
		bool temporary, file;
	} paths[] = {
		{"model.pt", 0, false, false},
		{"dir/model.pt", 0, false, false},
		{"checkpoint-500/model.pt", 14, false, false},
		{"run/checkpoint-500/model.pt", 18, false, false},
		{"checkpoint-500/global_step500/mp_rank_00.pt", 14, false, false},
		{"checkpoint_5/random_states_0.pkl", 12, false, false},
		{"00012/a", 5, false, false},
		{"model_12.pt", 11, false, true},
		{"epoch=3-step=400.ckpt", 21, false, true},
		{"tmp-checkpoint-500/model.pt", 18, true, false},
		{"checkpoint-500/model.pt.tmp", 27, true, false},
		{"_checkpoint/checkpoint-5/a", 11, true, false},
	};
	static const struct volume_options options;
	struct rules *r = NULL;

	unit_ok(rules_new(&options, &r));
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		struct doubt_unit u = doubt_unit_of(r, paths[i].path);

		ck_assert_msg(u.len == paths[i].len && u.temporary == paths[i].temporary &&
				      u.file == paths[i].file,
			      "%s: %zu %d %d", paths[i].path, u.len, u.temporary, u.file);
	}
	rules_free(r);
}
END_TEST

START_TEST(units_of_what_killed_writers_had_open)
{
	static const struct {
		const char *path;
		size_t len;
		bool temporary, file;
	} paths[] = {
		{"model.pt", 0, false, false},
		{"model.pt.tmp", 0, false, false},
		{"dir/.metadata.tmp", 0, false, false},
		{"checkpoint-500/.metadata.tmp", 14, false, false},
		{"checkpoint-500/global_step500/x.tmp4711", 14, false, false},
		{"model_12.pt.tmp", 11, false, true},
		{"model_12.pt", 11, false, true},
		{"tmp-model_12.pt", 11, false, true},
		{"model.pt.tmp.17", 0, false, false},
		{"step-7/model.pt.tmp.17", 6, false, false},
		{"epoch=3-step=400.ckpt.tmp", 21, false, true},
		{"step-7/tmp-x", 6, false, false},
		{"tmp-checkpoint-500/model.pt", 18, true, false},
		{"tmp-checkpoint-500/model.pt.tmp", 18, true, false},
		{"_checkpoint/checkpoint-5/a.tmp", 11, true, false},
		{"_checkpoint", 0, false, false},
	};
	static const struct volume_options options;
	struct rules *r = NULL;

	unit_ok(rules_new(&options, &r));
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		struct doubt_unit u = doubt_unit_of_kill(r, paths[i].path);

		ck_assert_msg(u.len == paths[i].len && u.temporary == paths[i].temporary &&
				      u.file == paths[i].file,
			      "%s: %zu %d %d", paths[i].path, u.len, u.temporary, u.file);
	}
	rules_free(r);
}
END_TEST

START_TEST(units_of_what_is_saved_again)
{
	static const struct {
		const char *path;
		size_t len;
		bool file;
	} paths[] = {
		{"model.pt", 0, false},
		{"consolidated.01.pth", 0, false},
		{"dir/model_1.pt", 0, false},
		{"checkpoint-5/model_1.pt", 12, false},
		{"epoch=3-step=400.ckpt", 21, true},
		{"model.7/part_1.pt", 7, false},
	};
	static const struct volume_options options;
	struct rules *r = NULL;

	unit_ok(rules_new(&options, &r));
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		struct doubt_unit u = doubt_unit_of_again(r, paths[i].path);

		ck_assert_msg(u.len == paths[i].len && u.file == paths[i].file, "%s: %zu %d",
			      paths[i].path, u.len, u.file);
	}
	ck_assert(doubt_same_shape("model_1.pt", "model_22.pt"));
	ck_assert(!doubt_same_shape("model_1.pt", "model_1.pth"));
	ck_assert(!doubt_same_shape("model.pt", "model_1.pt"));
	ck_assert(doubt_is_of_another_save("model0100.pt", "model0200.pt"));
	ck_assert(doubt_is_of_another_save("n-1-state/a", "n-22-state/a"));
	ck_assert(doubt_is_of_another_save("rank_0/m9.pt", "rank_0/m10.pt"));
	ck_assert(!doubt_is_of_another_save("m9.pt", "m9.pt"));
	ck_assert(!doubt_is_of_another_save("m9.pt", "m9.pth"));
	ck_assert(!doubt_is_of_another_save("rank_0.pt", "rank_1.pt"));
	ck_assert(!doubt_is_of_another_save("m9-00001-of-00004.pt", "m9-00002-of-00004.pt"));
	rules_free(r);
}
END_TEST

START_TEST(next_in_step)
{
	static const char *const next[][2] = {
		{"ep0-ba2-rank0.pt", "ep0-ba4-rank0.pt"},
		{"ep0-ba2-rank0.pt", "ep0-ba4-rank1.pt"},
		{"checkpoint_1_500.pt", "checkpoint_1_1000.pt"},
		{"epoch=0-val_loss=0.523.ckpt", "epoch=0-val_loss=0.519.ckpt"},
		{"epoch=0-val_loss=1.02.ckpt", "epoch=0-val_loss=0.98.ckpt"},
		{"model_epoch0_batch5.pt", "model_epoch0_batch6.pt"},
	};
	static const char *const same[][2] = {
		{"ep0-ba2-rank0.pt", "ep0-ba2-rank1.pt"},
		{"ep0-ba2-rank0.pt", "ep0-ba2-rank100.pt"},
		{"model_step500_0.pt", "model_step500_15.pt"},
		{"model_step500_12.pt", "model_step500_14.pt"},
		{"step100_layer12.pt", "step100_layer40.pt"},
		{"step5-00011-of-00064.pt", "step5-00043-of-00064.pt"},
		{"model-step500.pt", "optim-step500.pt"},
		{"model-step500.pt", "model-step500.pt"},
		{"checkpoint_1_500.pt", "checkpoint_1_1000.pth"},
	};

	for (size_t i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
		ck_assert_msg(doubt_is_next_in_step(next[i][0], next[i][1]), "%s", next[i][0]);
		ck_assert_msg(doubt_is_next_in_step(next[i][1], next[i][0]), "%s", next[i][1]);
	}
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		ck_assert_msg(!doubt_is_next_in_step(same[i][0], same[i][1]), "%s", same[i][1]);
}
END_TEST

START_TEST(files_and_directories_of_one_step_in_one_place_are_one_unit)
{
	static const struct {
		const char *a, *b;
		bool same;
	} pairs[] = {
		{"model.ckpt-20.index", "model.ckpt-20.meta", true},
		{"trainer:0.2/MANIFEST", "trainer:1.2/LOG", true},
		{"run/rank0-20/a", "run/rank1-20/sub/b", true},
		{"checkpoint-500/a", "checkpoint-510/a", false},
		{"rank0/step-20/a", "rank1/step-20/a", false},
		{"checkpoint-20/a", "model.ckpt-20.meta", false},
		{"tmp-a-20/a", "tmp-b-20/a", false},
		{"model.pt", "checkpoint-20/a", false},
	};
	static const struct volume_options options;
	struct rules *r = NULL;

	unit_ok(rules_new(&options, &r));
	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		struct doubt_unit a = doubt_unit_of(r, pairs[i].a),
				  b = doubt_unit_of(r, pairs[i].b);

		ck_assert_msg(doubt_unit_same(pairs[i].a, &a, pairs[i].b, &b) == pairs[i].same &&
				      doubt_unit_same(pairs[i].b, &b, pairs[i].a, &a) ==
					      pairs[i].same,
			      "%s %s", pairs[i].a, pairs[i].b);
	}
	rules_free(r);
}
END_TEST

/* One node's database is left half, another's of the same step is whole, and was begun later. */
START_TEST(the_half_of_one_node_counts_where_another_saved_last)
{
	static const struct volume_options options;
	cleanup_doubts struct doubts *d = NULL;
	struct rules *r = NULL;

	unit_ok(rules_new(&options, &r));
	unit_ok(doubts_new(r, 1, &d));
	unit_ok(doubts_add_kill(d, &(const struct doubts_kill){.id = 9,
							       .kind = DOUBT_LEFT,
							       .path = "trainer:0.2/MANIFEST",
							       .why = "its writer was killed",
							       .since = 2,
							       .base = 1,
							       .ino_then = 3,
							       .version_then = 5,
							       .ino_now = 3,
							       .version_now = 5}));
	unit_ok(doubts_add_file(d, &(const struct doubts_file){.path = "trainer:0.2/MANIFEST",
							       .ino = 3,
							       .version = 5,
							       .born = 2,
							       .mtime_ns = 5}));
	unit_ok(doubts_add_file(d, &(const struct doubts_file){.path = "trainer:1.2/MANIFEST",
							       .ino = 4,
							       .version = 6,
							       .born = 2,
							       .mtime_ns = 6}));
	unit_ok(doubts_decide(d));
	ck_assert_uint_eq(doubts_counting(d), 1);
	rules_free(r);
}
END_TEST

/* A new file, undone, with nothing beside it. */
static uint64_t counting_of_one_kill(struct rules *r, bool base_is_there)
{
	cleanup_doubts struct doubts *d = NULL;

	unit_ok(doubts_new(r, 0, &d));
	unit_ok(doubts_add_kill(d, &(const struct doubts_kill){.id = 1,
							       .kind = DOUBT_UNDONE,
							       .path = "out/a",
							       .why = "its writer was killed",
							       .since = 2,
							       .base = 1}));
	ck_assert_uint_eq(doubts_next_base(d, 0), 1);
	if (!base_is_there)
		doubts_gone_unknown(d, 1);
	unit_ok(doubts_decide(d));
	return doubts_counting(d);
}

START_TEST(while_nobody_can_tell_what_is_gone_the_doubt_stands)
{
	static const struct volume_options options;
	struct rules *r = NULL;

	unit_ok(rules_new(&options, &r));
	ck_assert_uint_eq(counting_of_one_kill(r, true), 0);
	ck_assert_uint_eq(counting_of_one_kill(r, false), 1);
	rules_free(r);
}
END_TEST

START_TEST(what_was_gone_stands_where_the_epoch_that_had_it_is_dropped)
{
	static const struct volume_options options;
	struct rules *r = NULL;

	unit_ok(rules_new(&options, &r));
	for (uint64_t base = 0; base < 2; base++) {
		cleanup_doubts struct doubts *d = NULL;

		unit_ok(doubts_new(r, 0, &d));
		unit_ok(doubts_add_kill(d,
					&(const struct doubts_kill){.id = 1,
								    .kind = DOUBT_UNDONE,
								    .path = "out/a",
								    .why = "its writer was killed",
								    .since = 2,
								    .base = base,
								    .judged = true}));
		unit_ok(doubts_decide(d));
		/* Where that is there, and nobody told of anything, nothing is gone any more. */
		ck_assert_uint_eq(doubts_counting(d), !base);
	}
	rules_free(r);
}
END_TEST

START_TEST(of_many_torn_files_those_that_count_are_named_first)
{
	static const struct volume_options options;
	cleanup_doubts struct doubts *d = NULL;
	struct rules *r = NULL;
	char path[64];
	size_t count;

	unit_ok(rules_new(&options, &r));
	unit_ok(doubts_new(r, 0, &d));
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), "step-%u/a", i % 10 ? 1 : 2);
		unit_ok(doubts_add_file(d, &(const struct doubts_file){.path = path,
								       .ino = i + 1,
								       .version = i + 1,
								       .born = 1,
								       .torn = "torn"}));
	}
	snprintf(path, sizeof(path), "step-2/b");
	unit_ok(doubts_add_file(d, &(const struct doubts_file){
					   .path = path, .ino = 2000, .version = 2000, .born = 1}));
	unit_ok(doubts_decide(d));
	ck_assert_uint_eq(doubts_counting(d), 100);
	ck_assert(doubts_list(d, &count)[99].counts && !doubts_list(d, &count)[100].counts);
	ck_assert_uint_eq(count, DOUBTS_NAMED_MAX);
	ck_assert_str_eq(doubts_newest(d), "step-2/b");
	rules_free(r);
}
END_TEST

START_TEST(kinds_have_names)
{
	for (enum doubt_kind k = DOUBT_TORN; k <= DOUBT_LEFT; k++)
		ck_assert_int_eq(doubt_kind_parse(doubt_kind_name(k)), k);
	ck_assert_int_eq(doubt_kind_parse("of a newer program"), DOUBT_TORN);
	ck_assert_int_eq(doubt_kind_parse(NULL), DOUBT_TORN);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_doubts");
	TCase *c = unit_case(s, "doubts");

	tcase_add_test(c, units_of_paths);
	tcase_add_test(c, next_in_step);
	tcase_add_test(c, units_of_what_killed_writers_had_open);
	tcase_add_test(c, units_of_what_is_saved_again);
	tcase_add_test(c, files_and_directories_of_one_step_in_one_place_are_one_unit);
	tcase_add_test(c, the_half_of_one_node_counts_where_another_saved_last);
	tcase_add_test(c, while_nobody_can_tell_what_is_gone_the_doubt_stands);
	tcase_add_test(c, what_was_gone_stands_where_the_epoch_that_had_it_is_dropped);
	tcase_add_test(c, of_many_torn_files_those_that_count_are_named_first);
	tcase_add_test(c, kinds_have_names);
	return unit_run(s);
}
