/* SPDX-License-Identifier: Apache-2.0 */
/* What names say about saves. */
#include "lib/saves/facts.h"

#include "lib/util/map.h"
#include "tests/unit/unit.h"

static struct rules *built_in(void)
{
	struct volume_options o;
	struct rules *r;

	volume_options_init(&o);
	unit_ok(rules_new(&o, &r));
	return r;
}

START_TEST(temporary_names)
{
	struct rules *r = built_in();
	static const char *const yes[] = {"a.tmp",
					  "a/b.tmp.123",
					  "tmp-checkpoint-5",
					  "step-200.incomplete",
					  "checkpoint-7-tmp",
					  "x_tmp",
					  "x.partial",
					  "x.part",
					  "_checkpoint",
					  "5.orbax-checkpoint-tmp-3",
					  "tmpab12cd_8"};
	static const char *const no[] = {"a.tmp/b",    "-tmp",	  ".part",    "a.parts",
					 "incomplete", "tmp.pth", "model.bin"};

	for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
		ck_assert_msg(facts_temporary(r, yes[i]), "%s", yes[i]);
	for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
		ck_assert_msg(!facts_temporary(r, no[i]), "%s", no[i]);
	ck_assert(facts_in_temporary(r, "a.tmp/b"));
	ck_assert(facts_in_temporary(r, "a/step-200.incomplete/b/c"));
	ck_assert(facts_in_temporary(r, "a/b.tmp"));
	ck_assert(!facts_in_temporary(r, "a/b/c"));
	rules_free(r);
}
END_TEST

START_TEST(what_a_temporary_name_is_for)
{
	static const char *const pairs[][2] = {
		{"tmp-checkpoint-5/a", "checkpoint-5/a"},
		{".model.bin.tmp.9f3", "model.bin"},
		{"model.bin.tmp", "model.bin"},
		{"a_temp/b-tmp/c_tmp", "a/b/c"},
		{"a.incomplete/b.partial", "a/b"},
		{"5.orbax-checkpoint-tmp-12/d", "5/d"},
		{"model.bin.part", "model.bin"},
		{"a/b", "a/b"},
		{"tmp-", "tmp-"},
		{".tmp", ".tmp"},
		{"_tmp", "_tmp"},
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		cleanup_buf struct buf out = {0};

		facts_stands_for(pairs[i][0], &out);
		ck_assert_str_eq(buf_str(&out), pairs[i][1]);
	}
}
END_TEST

static void check_checkpoint_by(const struct rules *r, const char *path, bool directory,
				const char *text)
{
	cleanup_buf struct buf out = {0};
	struct checkpoint_place c = facts_checkpoint(r, path, directory);

	checkpoint_put(&c, &out);
	ck_assert_msg(!strcmp(buf_str(&out), text), "%s: %s, not %s", path, buf_str(&out), text);
	ck_assert(checkpoint_is(&c, text));
	ck_assert(!checkpoint_is(&c, "else"));
	ck_assert_uint_eq(checkpoint_hash(&c), map_hash_text(0, text));
}

static void check_checkpoint(const char *path, bool directory, const char *text)
{
	struct rules *r = built_in();

	check_checkpoint_by(r, path, directory, text);
	rules_free(r);
}

START_TEST(the_checkpoint_of_a_path_by_a_regex)
{
	struct volume_options o;
	struct rules *r;

	volume_options_init(&o);
	o.step_regex = "save([0-9]+)";
	unit_ok(rules_new(&o, &r));
	check_checkpoint_by(r, "run1/save7/model.pt", false, "run1/save7");
	check_checkpoint_by(r, "run1/save7", true, "run1/save7");
	check_checkpoint_by(r, "checkpoint-500/save7.pt", false, "");
	check_checkpoint_by(r, "save8.pt", false, "");
	rules_free(r);
}
END_TEST

START_TEST(the_checkpoint_of_a_path)
{
	check_checkpoint("model.bin", false, "");
	check_checkpoint("checkpoint-500/model.bin", false, "checkpoint-500");
	check_checkpoint("checkpoint-500", true, "checkpoint-500");
	check_checkpoint("run/checkpoint-500/a/b-3.bin", false, "run/checkpoint-500");
	check_checkpoint("model_12.zarr/0.0", false, "model_12.zarr");
	check_checkpoint("out/1000_steps/x", false, "out/1000_steps");
	check_checkpoint("ep0-ba40/x", false, "ep0-ba40");
	/* A number in the name of a file says nothing. */
	check_checkpoint("model_12.pt", false, "");
	check_checkpoint("epoch=3-step=400.ckpt", false, "");
	check_checkpoint("h2-1.restart.bak-2", false, "");
	/* Nothing but a number: near the root only, and of directories. */
	check_checkpoint("500/model.bin", false, "500");
	check_checkpoint("a/500/model.bin", false, "a/500");
	check_checkpoint("a/b/500/model.bin", false, "");
	check_checkpoint("0.005/U", false, "0.005");
	check_checkpoint("a/0.0", false, "");
	check_checkpoint("7", false, "");
	/* Parts of one save. */
	check_checkpoint("rank_3/state.pth", false, "");
	check_checkpoint("layer_5/w.pt", false, "");
}
END_TEST

START_TEST(numbers_aside)
{
	cleanup_buf struct buf out = {0};

	ck_assert(facts_same_kind("checkpoint-500", "checkpoint-1000"));
	ck_assert(facts_same_kind("", ""));
	ck_assert(facts_belongs_to("run/state.db-journal", "run/state.db"));
	ck_assert(facts_belongs_to("model.gguf.aria2", "model.gguf"));
	ck_assert(facts_belongs_to("d.12", "d.3") && facts_belongs_to("d.12~", "d.3"));
	ck_assert(!facts_belongs_to("run/state.db", "run/state.db-journal"));
	ck_assert(!facts_belongs_to("models", "model") && !facts_belongs_to("", "a"));
	ck_assert(!facts_same_kind("checkpoint-500", "checkpoint-"));
	ck_assert(!facts_same_kind("checkpoint-500", "checkpoint-500a"));
	facts_shape_name("checkpoint-500/model-00001-of-00002.bin", "checkpoint-500", &out);
	ck_assert_str_eq(buf_str(&out), "model-#-of-#.bin");
	buf_reset(&out);
	facts_shape_name("checkpoint-5000/a", "checkpoint-500", &out);
	ck_assert_str_eq(buf_str(&out), "checkpoint-#/a");
}
END_TEST

START_TEST(notes_logs_and_last_files)
{
	struct rules *r = built_in();

	ck_assert(facts_note(10, 2561));
	ck_assert(!facts_note(10, 2560));
	ck_assert(!facts_note(0, 0));
	ck_assert(facts_log(r, "a/train.log"));
	ck_assert(!facts_log(r, "train.log/a"));
	ck_assert(facts_last_file("checkpoint-5/trainer_state.json"));
	ck_assert(facts_last_file("5/commit_success.txt"));
	ck_assert(facts_last_file("latest"));
	ck_assert(!facts_last_file("model.ckpt"));
	ck_assert(!facts_marker(r, "DONE"));
	rules_free(r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("saves_facts");
	TCase *t = unit_case(s, "names");

	tcase_add_test(t, temporary_names);
	tcase_add_test(t, what_a_temporary_name_is_for);
	tcase_add_test(t, the_checkpoint_of_a_path);
	tcase_add_test(t, the_checkpoint_of_a_path_by_a_regex);
	tcase_add_test(t, numbers_aside);
	tcase_add_test(t, notes_logs_and_last_files);
	return unit_run(s);
}
