/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary names, markers, logs and step labels. */
#include "lib/meta/rules.h"

#include "tests/unit/unit.h"

static struct rules *rules_of(const struct volume_options *o)
{
	struct rules *r = NULL;

	unit_ok(rules_new(o, &r));
	return r;
}

START_TEST(names_of_frameworks_are_temporary)
{
	static const char *const yes[] = {
		"_checkpoint",
		"tmp-checkpoint-500",
		".tmp0ab3",
		".metadata.tmp",
		"model.safetensors.tmpX",
		"ckpt-1_temp",
		"7.orbax-checkpoint-tmp-12",
		"7.orbax-checkpoint-tmp",
	};
	static const char *const no[] = {
		"checkpoint", "checkpoint-500", "temp",		 "_checkpoint2",
		"tmp",	      "my_temperature", "a.tempstate12", "template.pt",
	};
	struct volume_options o = {0};
	struct rules *r = rules_of(&o);

	ck_assert(!rules_want_path(r));
	for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
		ck_assert_msg(rules_temporary(r, yes[i], NULL), "%s", yes[i]);
	for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
		ck_assert_msg(!rules_temporary(r, no[i], NULL), "%s", no[i]);
	rules_free(r);
}
END_TEST

START_TEST(names_of_logs)
{
	static const char *const yes[] = {
		"train.log",	"metrics.jsonl", "a.csv",
		"slurm-12.out", "slurm-12.err",	 "events.out.tfevents.1700000000.host.1.0",
	};
	struct volume_options o = {0};
	struct rules *r = rules_of(&o);

	for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
		ck_assert_msg(rules_log(r, yes[i], NULL), "%s", yes[i]);
	ck_assert(!rules_log(r, "model.pt", NULL));
	ck_assert(!rules_log(r, "log", NULL));
	ck_assert(!rules_log(r, "catalog", NULL));
	ck_assert(!rules_log(r, "catalog.txt", NULL) && !rules_log(r, "mylog.txt", NULL));
	ck_assert(rules_log(r, "log.txt", NULL) && rules_log(r, "train_log.txt", NULL));
	ck_assert(rules_log(r, "run-1.wandb", NULL) && rules_log(r, "stderr.txt", NULL));
	rules_free(r);
}
END_TEST

START_TEST(globs_of_the_options_come_on_top)
{
	struct volume_options o = {
		.temporary = {.pattern = {"*.part"}, .count = 1},
		.marker = {.pattern = {"COMMIT", "run/*/done"}, .count = 2},
		.log = {.pattern = {"*.txt"}, .count = 1},
	};
	struct rules *r = rules_of(&o);

	ck_assert(rules_want_path(r));
	ck_assert(rules_temporary(r, "a.part", "x/a.part"));
	ck_assert(rules_temporary(r, "tmp-a", "x/tmp-a"));
	ck_assert(rules_marker(r, "COMMIT", "any/where/COMMIT"));
	ck_assert(rules_marker(r, "done", "run/7/done"));
	ck_assert(!rules_marker(r, "done", "run/7/8/done"));
	ck_assert(!rules_marker(r, "done", "done"));
	ck_assert(rules_log(r, "a.txt", "a.txt"));
	ck_assert(rules_log(r, "a.log", "a.log"));
	rules_free(r);

	o = (struct volume_options){0};
	r = rules_of(&o);
	ck_assert(!rules_marker(r, "latest", "latest"));
	rules_free(r);
}
END_TEST

/* Adds the paths (NULL ends them) and compares the winner; want -1: none. */
static void check_step(const char *regex, const char *const *paths, int64_t want,
		       const char *want_name)
{
	struct volume_options o = {.step_regex = regex};
	struct rules *r = rules_of(&o);
	struct step_votes v = {0};
	const struct step_candidate *w;

	for (const char *const *p = paths; *p; p++)
		unit_ok(step_votes_add(&v, r, *p));
	w = step_votes_winner(&v);
	if (want < 0) {
		ck_assert_msg(!w, "%s has step %llu", paths[0],
			      w ? (unsigned long long)w->step : 0);
	} else {
		ck_assert_msg(w != NULL, "%s has no step", paths[0]);
		ck_assert_msg(w->step == (uint64_t)want, "%s has step %llu", paths[0],
			      (unsigned long long)w->step);
		if (want_name)
			ck_assert_str_eq(w->name, want_name);
	}
	step_votes_free(&v);
	rules_free(r);
}

#define PATHS(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(step_of_one_path)
{
	static const struct {
		const char *path;
		int64_t step;
	} cases[] = {
		{"checkpoint-500/model.safetensors", 500},
		{"checkpoint-500/model-00001-of-00002.safetensors", 500},
		{"checkpoint-500/rng_state_0.pth", 500},
		{"epoch=3-step=400.ckpt", 400},
		{"lightning_logs/version_0/checkpoints/epoch=3-step=400-v1.ckpt", 400},
		{"step=400-epoch=3.ckpt", 400},
		{"epoch=3-val_loss=0.25.ckpt", 3},
		{"global_step12/mp_rank_00_model_states.pt", 12},
		{"rl_model_1000_steps.zip", 1000},
		{"rl_model_replay_buffer_1000_steps.pkl", 1000},
		{"2000steps/model.pt", 2000},
		{"model_3-step-40.pt", 40},
		{"run_500_step_1000.pt", 1000},
		{"model_50_steps2.pt", 2},
		{"iter_0000100/mp_rank_00/model_optim_rng.pt", 100},
		{"step-7/__0_0.distcp", 7},
		{"prefix/model.7", 7},
		{"trainer:0.7", 7},
		{"trainer:12.7/data.mdb", 7},
		{"worker3.7/MANIFEST-000002", 7},
		{":0.7", 7},
		{"torch1.13", -1},
		{"v1.13/x", -1},
		{"1.13", -1},
		{".13", -1},
		{"ckpt-5.index", 5},
		{"model.ckpt-1000.data-00000-of-00001", 1000},
		{"weights-12.index", 12},
		{"checkpoint_000012/data.pkl", 12},
		{"checkpoints/checkpoint_3/model.bin", 3},
		{"1000/default/d/0e2f", 1000},
		{"0012/13/x", 12},
		{"model_100.pt", 100},
		{"Model-Step-0009.pt", 9},
		{"model.pt", -1},
		{"model-00001-of-00002.safetensors", -1},
		{"rank_0.pt", -1},
		{"shard-3.bin", -1},
		{"mp3.txt", -1},
		{"1234", -1},
		{"loss-0.25.ckpt", -1},
		{"checkpoint-12ab/x", -1},
		{"step-99999999999999999999.pt", -1},
		{"", -1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check_step(NULL, PATHS(cases[i].path), cases[i].step, NULL);
}
END_TEST

START_TEST(step_of_many_paths)
{
	/* the best kind, though fewer paths have it */
	check_step(NULL, PATHS("a.1", "b.1", "epoch=3-step=400.ckpt"), 400,
		   "epoch=3-step=400.ckpt");
	/* then the most common */
	check_step(NULL, PATHS("checkpoint-10/a", "checkpoint-10/b", "checkpoint-20/a"), 10,
		   "checkpoint-10");
	/* then the greatest */
	check_step(NULL, PATHS("step_2.pt", "step_3.pt", "step_1.pt"), 3, "step_3.pt");
}
END_TEST

START_TEST(step_by_regex)
{
	check_step("it([0-9]+)x", PATHS("checkpoint-5/it17x.pt"), 17, "it17x.pt");
	check_step("s([0-9]+)", PATHS("s1/s2/s3-m.pt"), 3, "s3-m.pt");
	check_step("s([0-9]*)", PATHS("s1/sx"), 1, "s1");
	check_step("it([0-9]+)", PATHS("checkpoint-5/model.pt"), -1, NULL);
	check_step("()", PATHS("abc"), -1, NULL);
}
END_TEST

START_TEST(bad_regex_is_refused)
{
	struct volume_options o = {.step_regex = "([0-9"};
	struct rules *r = NULL;

	unit_error(rules_new(&o, &r), -EINVAL);
	o.step_regex = "[0-9]+";
	unit_error(rules_new(&o, &r), -EINVAL);
	ck_assert_ptr_null(r);
}
END_TEST

START_TEST(many_steps_are_bounded)
{
	struct volume_options o = {0};
	struct rules *r = rules_of(&o);
	struct step_votes v = {0};
	char path[64];

	for (int i = 0; i < 2 * STEP_CANDIDATES_MAX; i++) {
		snprintf(path, sizeof(path), "step_%d.pt", i);
		unit_ok(step_votes_add(&v, r, path));
	}
	ck_assert_uint_eq(v.count, STEP_CANDIDATES_MAX);
	ck_assert_uint_eq(step_votes_winner(&v)->step, STEP_CANDIDATES_MAX - 1);
	step_votes_free(&v);
	rules_free(r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_rules");
	TCase *t = unit_case(s, "rules");

	tcase_add_test(t, names_of_frameworks_are_temporary);
	tcase_add_test(t, names_of_logs);
	tcase_add_test(t, globs_of_the_options_come_on_top);
	tcase_add_test(t, step_of_one_path);
	tcase_add_test(t, step_of_many_paths);
	tcase_add_test(t, step_by_regex);
	tcase_add_test(t, bad_regex_is_refused);
	tcase_add_test(t, many_steps_are_bounded);
	return unit_run(s);
}
