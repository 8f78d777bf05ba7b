/* SPDX-License-Identifier: Apache-2.0 */
/* When a watched directory is sealed: by names, by quiet, and what holds that up. */
#include "lib/import/watch_internal.h"
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define S NS_PER_S

static struct rules *rules;
static struct watch_pending p;

static void start(void)
{
	static struct volume_options options = {
		.marker = {.pattern = {"DONE"}, .count = 1},
	};

	unit_ok(rules_new(&options, &rules));
	p = (struct watch_pending){.rules = rules, .settle_ns = 5 * S, .patience_ns = 60 * S};
}

static void stop(void)
{
	watch_pending_free(&p);
	rules_free(rules);
}

static void save(const char *path, int64_t now)
{
	unit_ok(watch_note_made(&p, path, WATCH_MADE_OPEN, now));
	unit_ok(watch_note_write(&p, path, now));
	unit_ok(watch_note_close(&p, path, now));
}

static enum settle_verdict verdict(int64_t now)
{
	return watch_decide(&p, now).verdict;
}

START_TEST(quiet_after_a_close_seals)
{
	ck_assert_int_eq(verdict(1 * S), SETTLE_IDLE);
	save("model", 1 * S);
	ck_assert_int_eq(verdict(2 * S), SETTLE_WAIT);
	ck_assert_int_eq(watch_decide(&p, 2 * S).until_ns, 6 * S);
	ck_assert_int_eq(verdict(6 * S), SETTLE_SEAL);
	ck_assert_int_eq(watch_trigger(&p), RECORD_TRIGGER_QUIET);
	watch_sealed(&p);
	ck_assert_int_eq(verdict(7 * S), SETTLE_IDLE);
	ck_assert_uint_eq(p.files.count, 0);
}
END_TEST

START_TEST(an_open_file_holds_it_up_for_as_long_as_patience)
{
	save("model", 1 * S);
	unit_ok(watch_note_made(&p, "optimizer", WATCH_MADE_OPEN, 2 * S));
	unit_ok(watch_note_write(&p, "optimizer", 10 * S));
	ck_assert_int_eq(verdict(30 * S), SETTLE_WAIT);
	ck_assert_int_eq(watch_decide(&p, 30 * S).hold, SETTLE_HOLD_WRITER);
	ck_assert_int_eq(verdict(70 * S), SETTLE_SEAL);
	ck_assert(watch_pending_any(&p));
	watch_sealed(&p);
	ck_assert(!watch_pending_any(&p));
	/* As something old it holds nothing up any more. */
	unit_ok(watch_note_write(&p, "optimizer", 71 * S));
	save("model", 71 * S);
	ck_assert_int_eq(verdict(76 * S), SETTLE_SEAL);
}
END_TEST

START_TEST(what_was_there_holds_it_up_from_its_first_change)
{
	/* A database: written again and again, never closed. */
	for (int i = 1; i <= 59; i++)
		unit_ok(watch_note_write(&p, "db", i * S));
	save("model", 59 * S);
	ck_assert_int_eq(verdict(60 * S), SETTLE_WAIT);
	unit_ok(watch_note_write(&p, "db", 64 * S));
	ck_assert_int_eq(verdict(65 * S), SETTLE_SEAL);
}
END_TEST

START_TEST(a_temporary_name_holds_it_up_and_its_end_seals)
{
	unit_ok(watch_note_made(&p, "tmp-7", WATCH_MADE_DIRECTORY, 1 * S));
	save("tmp-7/model", 2 * S);
	ck_assert_int_eq(watch_decide(&p, 10 * S).hold, SETTLE_HOLD_TEMPORARY);
	unit_ok(watch_note_move(&p, "tmp-7", "checkpoint-7", 11 * S));
	ck_assert_int_eq(verdict(11 * S), SETTLE_SEAL);
	ck_assert_int_eq(watch_trigger(&p), RECORD_TRIGGER_RENAME);
	watch_sealed(&p);
	ck_assert_int_eq(verdict(12 * S), SETTLE_IDLE);
}
END_TEST

START_TEST(a_rename_seals_only_what_is_whole)
{
	/* Another file is still being written; */
	save("a.tmp", 1 * S);
	unit_ok(watch_note_made(&p, "b", WATCH_MADE_OPEN, 1 * S));
	unit_ok(watch_note_move(&p, "a.tmp", "a", 2 * S));
	ck_assert_int_eq(verdict(2 * S), SETTLE_WAIT);
	unit_ok(watch_note_close(&p, "b", 2 * S));
	/* another temporary name is beside it; */
	save("c.tmp", 3 * S);
	save("d.tmp", 3 * S);
	unit_ok(watch_note_move(&p, "c.tmp", "c", 4 * S));
	ck_assert_int_eq(verdict(4 * S), SETTLE_WAIT);
	/* it lies in something temporary itself; */
	unit_ok(watch_note_move(&p, "d.tmp", "tmp-x/d", 5 * S));
	ck_assert_int_eq(p.now, RECORD_TRIGGER_UNKNOWN);
	/* or nothing in it is new. */
	watch_sealed(&p);
	unit_ok(watch_note_move(&p, "old.tmp", "old", 6 * S));
	ck_assert_int_eq(p.now, RECORD_TRIGGER_UNKNOWN);
	ck_assert_int_eq(verdict(11 * S), SETTLE_SEAL);
}
END_TEST

START_TEST(a_marker_seals_once_all_else_is_closed)
{
	unit_ok(watch_note_made(&p, "s/model", WATCH_MADE_OPEN, 1 * S));
	save("s/DONE", 2 * S);
	ck_assert_int_eq(verdict(2 * S), SETTLE_WAIT);
	unit_ok(watch_note_close(&p, "s/model", 3 * S));
	unit_ok(watch_note_move(&p, "elsewhere", "s/DONE", 4 * S));
	ck_assert_int_eq(verdict(4 * S), SETTLE_SEAL);
	ck_assert_int_eq(watch_trigger(&p), RECORD_TRIGGER_MARKER);
}
END_TEST

/* Which save of a line's files, in this order, is sealed at once: by its last file and no sooner. "-" before a name: it is renamed to it. */
START_TEST(what_frameworks_write_last_seals)
{
	static const struct {
		const char *names[5];
		bool seals;
	} saves[] = {
		{{"iter_1/a.pt", "iter_1/b.pt", "latest_checkpointed_iteration.txt"}, true},
		{{"global_step1/a.pt", "latest"}, true},
		{{"checkpoint-5/global_step5/a.pt", "checkpoint-5/latest"}, false},
		{{"latest"}, false},
		{{"train.log", "latest"}, false},
		{{"s/__0_0.distcp", "s/.metadata"}, true},
		{{"s/.metadata", "s/__0_0.distcp"}, false},
		{{"c/model.pt", "c/rng_state.pth", "c/trainer_state.json"}, true},
		{{"c/model.pt", "c/trainer_state.json", "c/rng_state.pth"}, true},
		{{"c/model.pt", "c/trainer_state.json"}, false},
		{{"b/rng_state.pth", "c/trainer_state.json"}, false},
		{{"rng_state.pth", "trainer_state.json"}, true},
		{{"-epoch=0.ckpt"}, true},
		{{"epoch=0.ckpt"}, false},
		{{"a.pt", "tmp-c/checkpoint"}, false},
	};

	for (int off = 0; off < 2; off++)
		for (size_t i = 0; i < sizeof(saves) / sizeof(*saves); i++) {
			p.last_files = !off;
			for (size_t k = 0; k < 5 && saves[i].names[k]; k++) {
				const char *name = saves[i].names[k];

				ck_assert_int_eq(p.now, RECORD_TRIGGER_UNKNOWN);
				if (*name != '-')
					save(name, 1 * S);
				else
					unit_ok(watch_note_move(&p, NULL, name + 1, 1 * S));
			}
			ck_assert_msg((p.now == RECORD_TRIGGER_MARKER) == (saves[i].seals && !off),
				      "save %zu, %s", i, off ? "off" : "on");
			watch_sealed(&p);
		}
}
END_TEST

/* As a directory is listed that came at once. */
START_TEST(the_order_of_a_listing_is_none_of_time)
{
	p.last_files = true;
	unit_ok(watch_note_made(&p, "backup", WATCH_MADE_DIRECTORY, 1 * S));
	unit_ok(watch_note_made(&p, "backup/training_metadata.json", WATCH_MADE_WHOLE, 1 * S));
	unit_ok(watch_note_made(&p, "backup/weights.pt", WATCH_MADE_OPEN, 1 * S));
	watch_note_all_made(&p, "backup");
	ck_assert_int_eq(p.now, RECORD_TRIGGER_UNKNOWN);
	watch_sealed(&p);
	unit_ok(watch_note_made(&p, "backup/training_metadata.json", WATCH_MADE_WHOLE, 2 * S));
	unit_ok(watch_note_made(&p, "backup/more.pt", WATCH_MADE_WHOLE, 2 * S));
	watch_note_all_made(&p, "elsewhere");
	ck_assert_int_eq(p.now, RECORD_TRIGGER_UNKNOWN);
	watch_note_all_made(&p, "backup");
	ck_assert_int_eq(p.now, RECORD_TRIGGER_MARKER);
}
END_TEST

START_TEST(a_backup_that_makes_room_seals_nothing)
{
	p.last_files = true;
	unit_ok(watch_note_move(&p, "last.ckpt", "prev.ckpt", 1 * S));
	ck_assert_int_eq(p.now, RECORD_TRIGGER_UNKNOWN);
	unit_ok(watch_note_move(&p, "x", "last.ckpt", 2 * S));
	ck_assert_int_eq(p.now, RECORD_TRIGGER_MARKER);
}
END_TEST

START_TEST(what_came_and_went_opens_no_epoch)
{
	save("lock", 1 * S);
	watch_note_gone(&p, "lock", 2 * S);
	ck_assert_int_eq(verdict(100 * S), SETTLE_IDLE);
	save("d/x", 3 * S);
	unit_ok(watch_note_made(&p, "dd", WATCH_MADE_DIRECTORY, 3 * S));
	watch_note_gone(&p, "d", 4 * S);
	ck_assert_uint_eq(p.files.count, 1);
	watch_note_gone(&p, "dd", 4 * S);
	ck_assert_int_eq(verdict(100 * S), SETTLE_IDLE);
	ck_assert(p.rides);
}
END_TEST

START_TEST(logs_open_nothing_and_hold_nothing_up)
{
	save("train.log", 1 * S);
	unit_ok(watch_note_write(&p, "train.log", 2 * S));
	ck_assert_int_eq(verdict(100 * S), SETTLE_IDLE);
	save("model", 101 * S);
	unit_ok(watch_note_write(&p, "train.log", 105 * S));
	ck_assert_int_eq(verdict(106 * S), SETTLE_SEAL);
}
END_TEST

START_TEST(without_settle_the_last_close_seals)
{
	p.settle_ns = 0;
	unit_ok(watch_note_made(&p, "d", WATCH_MADE_DIRECTORY, 1 * S));
	ck_assert_int_eq(verdict(1 * S), SETTLE_IDLE);
	unit_ok(watch_note_made(&p, "d/a", WATCH_MADE_OPEN, 1 * S));
	save("d/b", 2 * S);
	ck_assert_int_eq(verdict(2 * S), SETTLE_WAIT);
	unit_ok(watch_note_close(&p, "d/a", 3 * S));
	ck_assert_int_eq(verdict(3 * S), SETTLE_SEAL);
	ck_assert_int_eq(watch_trigger(&p), RECORD_TRIGGER_CLOSE);
}
END_TEST

START_TEST(many_files_are_kept_apart)
{
	char path[32];

	for (int i = 0; i < 2000; i++) {
		snprintf(path, sizeof(path), "d/%d", i);
		save(path, S);
	}
	ck_assert_uint_eq(p.files.count, 2000);
	unit_ok(watch_note_move(&p, "d", "e", 2 * S));
	ck_assert_uint_eq(p.files.count, 2001);
	watch_note_gone(&p, "e/7", 3 * S);
	ck_assert_uint_eq(p.files.count, 2000);
	watch_note_gone(&p, "e", 3 * S);
	ck_assert_uint_eq(p.files.count, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("import_watch_pending");
	TCase *t = unit_case(s, "pending");

	tcase_add_checked_fixture(t, start, stop);
	tcase_add_test(t, quiet_after_a_close_seals);
	tcase_add_test(t, an_open_file_holds_it_up_for_as_long_as_patience);
	tcase_add_test(t, what_was_there_holds_it_up_from_its_first_change);
	tcase_add_test(t, a_temporary_name_holds_it_up_and_its_end_seals);
	tcase_add_test(t, a_rename_seals_only_what_is_whole);
	tcase_add_test(t, a_marker_seals_once_all_else_is_closed);
	tcase_add_test(t, what_frameworks_write_last_seals);
	tcase_add_test(t, the_order_of_a_listing_is_none_of_time);
	tcase_add_test(t, a_backup_that_makes_room_seals_nothing);
	tcase_add_test(t, what_came_and_went_opens_no_epoch);
	tcase_add_test(t, logs_open_nothing_and_hold_nothing_up);
	tcase_add_test(t, without_settle_the_last_close_seals);
	tcase_add_test(t, many_files_are_kept_apart);
	return unit_run(s);
}
