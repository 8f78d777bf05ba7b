/* SPDX-License-Identifier: Apache-2.0 */
/* -o resume: the live tree goes back by itself after a killed or torn save. */
#include <inttypes.h>
#include "lib/volume/bodies.h"
#include "lib/volume/control.h"
#include "lib/volume/resume.h"
#include <sys/wait.h>
#include "tests/unit/epochs_unit.h"

static void prepare(void)
{
	eu_prepare();
	eu_options.resume = true;
}

static void start(void)
{
	prepare();
	eu_mount();
}

static uint32_t root_links(void)
{
	struct state_file f;

	SCOPED_LOCK(&u.vol->lock);
	unit_ok(state_file_get(u.vol->state, ROOT_INO, &f));
	return f.nlink;
}

/* A killed process's last descriptor goes. */
static void kill_writer(struct handle *h)
{
	h->killed = true;
	handle_release(h, false);
}

static struct handle *begin_save(const char *path)
{
	struct handle *h = eu_open(path, O_WRONLY | O_CREAT | O_TRUNC);

	vu_write(h, "half", 0);
	return h;
}

/* a and b are epoch 1, complete. */
static void save_both(void)
{
	eu_save("a", "a1");
	eu_save("b", "b1");
	ck_assert_uint_eq(eu_seal(), 1);
}

static bool is_complete(uint64_t number)
{
	struct epoch_info info = eu_info(number);
	bool complete = info.complete;

	epoch_info_free(&info);
	return complete;
}

/* That epoch has what was there, and the next one what epoch 1 has. */
static void went_back(uint64_t left, uint64_t to)
{
	struct epoch_info info = eu_info(left + 1);

	ck_assert(!is_complete(left));
	ck_assert(info.complete);
	ck_assert_uint_eq(info.record.restores, to);
	epoch_info_free(&info);
	ck_assert_uint_eq(epochs_current(u.vol), left + 1);
	ck_assert_uint_eq(epochs_latest(u.vol), left + 1);
	eu_live_holds("a", "a1");
	eu_live_holds("b", "b1");
}

static void went_back_from(uint64_t left)
{
	went_back(left, 1);
}

static json_t *status(void)
{
	static const char request[] = "{\"op\":\"status\"}";
	cleanup_buf struct buf answer = {0};
	json_t *o;

	unit_ok(volume_control(u.vol, request, strlen(request), NULL, NULL, &answer));
	o = json_loads(buf_str(&answer), 0, NULL);
	ck_assert_ptr_nonnull(o);
	return o;
}

static void hide_tree(uint64_t number)
{
	char name[32];

	snprintf(name, sizeof(name), "%020" PRIu64, number);
	ck_assert_int_eq(linkat(u.vol->trees_fd, name, u.vol->trees_fd, "hidden", 0), 0);
	unit_ok(trees_remove(u.vol, number));
}

static void show_tree(uint64_t number)
{
	char name[32];

	snprintf(name, sizeof(name), "%020" PRIu64, number);
	ck_assert_int_eq(renameat(u.vol->trees_fd, "hidden", u.vol->trees_fd, name), 0);
}

START_TEST(half_a_save)
{
	json_t *o, *resumed;

	save_both();
	eu_save("a", "a2");
	kill_writer(begin_save("b"));
	went_back_from(2);
	eu_epoch_holds(2, "a", "a2");
	eu_epoch_holds(2, "b", "b1");
	o = status();
	resumed = json_object_get(o, "resumed");
	ck_assert_int_eq(json_integer_value(json_object_get(resumed, "left")), 2);
	ck_assert_int_eq(json_integer_value(json_object_get(resumed, "to")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(resumed, "epoch")), 3);
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(resumed, "why")),
				     "b: its writer was killed"));
	ck_assert_str_eq(json_string_value(json_object_get(resumed, "to_undo")),
			 "epochfs rollback DIRECTORY 2");
	ck_assert_ptr_null(json_object_get(o, "doubts"));
	json_decref(o);
	/* The next save is as any. */
	eu_save("a", "a3");
	eu_save("b", "b3");
	ck_assert_uint_eq(eu_seal(), 4);
	ck_assert_uint_eq(epochs_latest(u.vol), 4);
}
END_TEST

START_TEST(new_files_go)
{
	save_both();
	eu_mkdir("checkpoint-2");
	eu_save("checkpoint-2/model", "m");
	eu_save("checkpoint-2/train.log", "l");
	kill_writer(begin_save("checkpoint-2/optimizer"));
	went_back_from(2);
	ck_assert(!eu_there("checkpoint-2"));
	eu_epoch_holds(2, "checkpoint-2/model", "m");
	eu_epoch_holds(2, "checkpoint-2/train.log", "l");
}
END_TEST

/* Killed in its first file: the tree is as it was, but for the directory. */
START_TEST(an_empty_directory_goes)
{
	eu_mkdir("runs");
	eu_mkdir("runs/checkpoint-1");
	save_both();
	eu_mkdir("runs/checkpoint-2");
	eu_mkdir("runs/checkpoint-2/global_step2");
	eu_mkdir("runs/empty");
	kill_writer(begin_save("runs/checkpoint-2/global_step2/model"));
	ck_assert(!eu_there("runs/checkpoint-2"));
	kill_writer(begin_save("runs/checkpoint-1/model"));
	kill_writer(begin_save("runs/empty/model"));
	ck_assert(eu_there("runs/checkpoint-1") && eu_there("runs/empty"));
	ck_assert_uint_eq(eu_count(), 1);
	eu_mkdir("checkpoint-3");
	eu_options.resume = false;
	eu_remount();
	kill_writer(begin_save("checkpoint-3/model"));
	ck_assert(eu_there("checkpoint-3"));
	eu_options.resume = true;
	eu_remount();
	ck_assert(!eu_there("checkpoint-3"));
}
END_TEST

START_TEST(nothing_happens_where_nothing_is_in_doubt)
{
	struct handle *h;
	json_t *o;

	save_both();
	/* Without companions. */
	kill_writer(begin_save("b"));
	eu_live_holds("b", "b1");
	/* Under a temporary name. */
	eu_mkdir("_checkpoint");
	eu_save("_checkpoint/model", "m");
	kill_writer(begin_save("_checkpoint/optimizer"));
	/* A log. */
	h = eu_open("train.log", O_WRONLY | O_CREAT | O_APPEND);
	vu_write(h, "line", 0);
	kill_writer(h);
	mutex_lock(&u.vol->lock);
	ck_assert_uint_eq(u.vol->next_epoch, 2);
	mutex_unlock(&u.vol->lock);
	eu_live_holds("_checkpoint/model", "m");
	eu_live_holds("train.log", "line");
	eu_remount();
	ck_assert_uint_eq(eu_count(), 1);
	o = status();
	ck_assert_ptr_null(json_object_get(o, "resumed"));
	json_decref(o);
}
END_TEST

/* It is as good as it was: nothing that others wrote since is taken away. */
START_TEST(a_database_that_a_killed_writer_left)
{
	struct handle *h;

	eu_save_bytes("runs.db", "SQLite format 3\0 rows", 21);
	save_both();
	eu_save("a", "a2");
	h = eu_open("runs.db", O_RDWR);
	vu_write(h, "ROWS", 17);
	kill_writer(h);
	ck_assert_uint_eq(eu_count(), 1);
	eu_live_holds("a", "a2");
	ck_assert_uint_eq(eu_seal(), 2);
	ck_assert(!is_complete(2));
	eu_remount();
	eu_live_holds("a", "a2");
}
END_TEST

/* As if `settle` had passed. */
static void become_quiet(void)
{
	SCOPED_LOCK(&u.vol->lock);
	u.vol->sealer->pending.activity_ns -= EU_LONG;
	u.vol->resume.retry_ns = clock_mono_ns();
	sealer_wake_locked(u.vol);
}

/* It is not to miss the directory that it has just made. */
START_TEST(a_save_between_two_of_its_files_is_waited_for)
{
	save_both();
	eu_mkdir("checkpoint-7");
	eu_save("checkpoint-7/model", "m");
	eu_save("a", "a2");
	kill_writer(begin_save("b"));
	eu_save("checkpoint-7/optimizer", "o");
	ck_assert(eu_there("checkpoint-7/model"));
	ck_assert_uint_eq(eu_count(), 1);
	become_quiet();
	unit_until(epochs_current(u.vol) == 3);
	went_back_from(2);
	eu_epoch_holds(2, "checkpoint-7/optimizer", "o");
}
END_TEST

/* A trainer that is started next must not meet the half: the last one's other saves are not waited for. */
START_TEST(a_process_that_has_ended_is_not_waited_for)
{
	struct handle *h;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	save_both();
	unit_ok(vu_open_as(&u, "step=5.ckpt", O_WRONLY | O_CREAT | O_TRUNC, pid, &h));
	vu_write(h, "m", 0);
	vu_close(h);
	eu_save("a", "a2");
	kill_writer(begin_save("b"));
	went_back_from(2);
}
END_TEST

START_TEST(it_waits_for_other_writers)
{
	struct handle *rank1, *other, *log;

	save_both();
	eu_mkdir("checkpoint-7");
	other = begin_save("checkpoint-7/model");
	log = eu_open("metrics.jsonl", O_WRONLY | O_CREAT | O_APPEND);
	vu_write(log, "{}", 0);
	eu_save("a", "a2");
	rank1 = begin_save("c");
	kill_writer(begin_save("b"));
	eu_live_holds("a", "a2");
	ck_assert_uint_eq(eu_count(), 1);
	vu_close(rank1);
	/* Somebody else's save is under way: nothing of it goes nowhere. */
	eu_live_holds("a", "a2");
	vu_write(other, " and more", 4);
	vu_close(other);
	ck_assert(eu_there("checkpoint-7/model"));
	become_quiet();
	unit_until(epochs_current(u.vol) == 3);
	went_back_from(2);
	ck_assert(!eu_there("c"));
	eu_epoch_holds(2, "c", "half");
	eu_epoch_holds(2, "checkpoint-7/model", "half and more");
	ck_assert(!eu_there("checkpoint-7"));
	/* The log is as it was. */
	vu_write(log, "{}", 2);
	vu_close(log);
	eu_live_holds("metrics.jsonl", "{}{}");
}
END_TEST

/* A database that is held open for writing all the time. */
START_TEST(who_has_written_nothing_elsewhere_is_not_waited_for)
{
	struct handle *idle;

	eu_mkdir("checkpoint-1");
	eu_save("checkpoint-1/notes", "x");
	save_both();
	idle = eu_open("checkpoint-1/notes", O_RDWR);
	eu_save("a", "a2");
	kill_writer(begin_save("b"));
	went_back_from(2);
	vu_close(idle);
}
END_TEST

/* Nobody saw its writers end: it may be good, and what is in doubt is not. */
START_TEST(an_epoch_of_which_it_is_not_known_is_good_enough)
{
	struct epoch_info info;

	save_both();
	eu_save("a", "a2");
	mutex_lock(&u.vol->lock);
	sealer_unknown_locked(u.vol);
	mutex_unlock(&u.vol->lock);
	ck_assert_uint_eq(eu_seal(), 2);
	info = eu_info(2);
	ck_assert_int_eq(info.record.complete, RECORD_UNKNOWN);
	epoch_info_free(&info);
	eu_save_bytes("model.pt", "PK\3\4 and no more", 15);
	info = eu_info(4);
	ck_assert_uint_eq(info.record.restores, 2);
	epoch_info_free(&info);
	eu_live_holds("a", "a2");
	ck_assert(!eu_there("model.pt"));
	ck_assert_uint_eq(epochs_latest(u.vol), 1);
}
END_TEST

static bool status_tells_an_error(void)
{
	json_t *o = status();
	bool tells = json_object_get(json_object_get(o, "resumed"), "error") != NULL;

	json_decref(o);
	return tells;
}

/* The tree of epoch 1 cannot be read for a while. */
START_TEST(what_fails_is_tried_again)
{
	json_t *o, *resumed;

	save_both();
	hide_tree(1);
	eu_save("a", "a2");
	kill_writer(begin_save("b"));
	eu_live_holds("a", "a2");
	o = status();
	resumed = json_object_get(o, "resumed");
	ck_assert_ptr_nonnull(json_object_get(resumed, "error"));
	ck_assert_ptr_null(json_object_get(resumed, "to_undo"));
	json_decref(o);
	show_tree(1);
	unit_until(epochs_current(u.vol) == 3 && !status_tells_an_error());
	went_back_from(2);
	o = status();
	resumed = json_object_get(o, "resumed");
	ck_assert_int_eq(json_integer_value(json_object_get(resumed, "left")), 2);
	json_decref(o);
}
END_TEST

/* Ctrl-C in the middle of a save: closed in good order. */
START_TEST(a_torn_file)
{
	save_both();
	eu_save("a", "a2");
	eu_save_bytes("model.pt", "PK\3\4 and no more", 15);
	went_back_from(2);
	ck_assert(!eu_there("model.pt"));
	ck_assert(eu_has(2, "model.pt"));
}
END_TEST

/* A writer that changed it in place. */
START_TEST(a_file_changed_in_place)
{
	struct handle *h;

	save_both();
	h = eu_open("a", O_RDWR);
	vu_write(h, "X", 0);
	kill_writer(h);
	went_back_from(2);
	eu_epoch_holds(2, "a", "X1");
}
END_TEST

START_TEST(logs_stay)
{
	struct handle *log;

	eu_save("old.log", "one");
	eu_save("gone.csv", "x");
	eu_mkdir("runs");
	eu_save("runs/1.log", "one");
	save_both();
	eu_save("old.log", "one and two");
	eu_unlink("gone.csv");
	eu_save("runs/1.log", "one and two");
	eu_save("runs/best", "no log");
	eu_mkdir("new");
	eu_mkdir("new/deep");
	eu_mkdir("new/empty");
	eu_save("new/deep/events.out.tfevents.1", "event");
	eu_save("new/deep/model", "m");
	eu_mkdir("plain");
	eu_save("plain/model", "m");
	log = eu_open("train.log", O_WRONLY | O_CREAT | O_APPEND);
	vu_write(log, "line 1, ", 0);
	eu_save("a", "a2");
	kill_writer(begin_save("b"));
	went_back_from(2);
	eu_live_holds("old.log", "one and two");
	eu_live_holds("runs/1.log", "one and two");
	eu_live_holds("new/deep/events.out.tfevents.1", "event");
	ck_assert(!eu_there("gone.csv") && !eu_there("runs/best"));
	ck_assert(!eu_there("new/deep/model") && !eu_there("new/empty") && !eu_there("plain"));
	ck_assert_uint_eq(vu_file(&u, "new").nlink, 3);
	ck_assert_uint_eq(root_links(), 4);
	vu_write(log, "line 2", 8);
	vu_close(log);
	eu_live_holds("train.log", "line 1, line 2");
	/* The epoch that was made has them as they stood. */
	eu_epoch_holds(3, "old.log", "one and two");
	eu_epoch_holds(3, "train.log", "line 1, ");
	/* A directory comes back with what was in it. */
	eu_unlink("runs/1.log");
	unit_ok(live_rmdir(u.vol, ROOT_INO, "runs"));
	eu_save("a", "a4");
	kill_writer(begin_save("b"));
	eu_live_holds("runs/1.log", "one and two");
}
END_TEST

START_TEST(without_a_complete_epoch_it_stays)
{
	json_t *o;

	eu_save("a", "a1");
	kill_writer(begin_save("b"));
	eu_live_holds("a", "a1");
	ck_assert(!eu_there("b"));
	ck_assert_uint_eq(epochs_latest(u.vol), 0);
	o = status();
	ck_assert_ptr_nonnull(json_object_get(o, "resumed"));
	ck_assert_ptr_null(json_object_get(json_object_get(o, "resumed"), "to_undo"));
	json_decref(o);
}
END_TEST

START_TEST(without_the_option_nothing)
{
	struct resumed done;

	save_both();
	eu_save("a", "a2");
	kill_writer(begin_save("b"));
	eu_live_holds("a", "a2");
	ck_assert_uint_eq(eu_count(), 1);
	/* But for who asks. */
	unit_ok(resume_now(u.vol, &done));
	ck_assert_uint_eq(done.left, 2);
	ck_assert_uint_eq(done.to, 1);
	ck_assert_uint_eq(done.as, 3);
	went_back_from(2);
	unit_ok(resume_now(u.vol, &done));
	ck_assert_uint_eq(done.as, 3);
	ck_assert_uint_eq(eu_count(), 3);
	eu_save("a", "a4");
	unit_ok(resume_now(u.vol, &done));
	ck_assert_uint_eq(done.as, 3);
	eu_save("b", "b4");
	ck_assert_uint_eq(eu_seal(), 4);
	unit_ok(resume_now(u.vol, &done));
	ck_assert_uint_eq(done.left + done.to + done.as, 0);
}
END_TEST

/* Also where an epoch was sealed of it already. */
START_TEST(when_the_volume_is_opened)
{
	save_both();
	eu_save("a", "a2");
	kill_writer(begin_save("b"));
	if (_i)
		ck_assert_uint_eq(eu_seal(), 2);
	eu_options.resume = true;
	eu_remount();
	went_back_from(2);
}
END_TEST

START_TEST(a_torn_file_when_the_volume_is_opened)
{
	save_both();
	eu_save_bytes("a", "PK\3\4 and no more", 15);
	eu_options.resume = true;
	eu_remount();
	went_back_from(2);
}
END_TEST

/* It is undone by a rollback by hand, and that counts until something changes. */
START_TEST(what_was_undone_by_hand_stays)
{
	uint64_t number;

	save_both();
	eu_save("a", "a2");
	kill_writer(begin_save("b"));
	unit_ok(epochs_rollback(u.vol, 2, &number));
	eu_live_holds("a", "a2");
	eu_remount();
	eu_live_holds("a", "a2");
	ck_assert_uint_eq(eu_count(), 4);
	eu_save("notes", "x");
	eu_remount();
	went_back(5, 3);
	ck_assert(!eu_there("notes"));
}
END_TEST

/* ---- crashes ---- */

static const char *const fault_names[] = {"resume.begin",  "seal.begun:2",     "seal.rows:2",
					  "resume.sealed", "rollback.applied", "seal.begun:3",
					  "seal.frozen:3", "seal.rows:3",      "resume.end"};

static void go_back_and_die(const char *point)
{
	setenv("EPOCHFS_FAULT", point, 1);
	eu_mount();
	save_both();
	eu_save("a", "a2");
	kill_writer(begin_save("b"));
	_exit(0);
}

START_TEST(a_crash_while_it_goes_back)
{
	pid_t child = fork();
	uint64_t count;
	int status;

	ck_assert_int_ge(child, 0);
	if (!child)
		go_back_and_die(fault_names[_i]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSIGNALED(status), "%s is not reached: %x", fault_names[_i],
		      (unsigned)status);
	eu_mount();
	eu_live_holds("a", "a1");
	eu_live_holds("b", "b1");
	eu_epoch_holds(2, "a", "a2");
	ck_assert(!is_complete(2));
	eu_seal();
	count = eu_count();
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(epochs_latest(u.vol), 3);
	/* Once is enough. */
	eu_remount();
	ck_assert_uint_eq(eu_count(), 3);
	eu_live_holds("a", "a1");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_resume");
	TCase *t = unit_case(s, "resume");

	tcase_add_checked_fixture(t, start, eu_stop);
	tcase_add_test(t, half_a_save);
	tcase_add_test(t, new_files_go);
	tcase_add_test(t, an_empty_directory_goes);
	tcase_add_test(t, nothing_happens_where_nothing_is_in_doubt);
	tcase_add_test(t, a_database_that_a_killed_writer_left);
	tcase_add_test(t, a_save_between_two_of_its_files_is_waited_for);
	tcase_add_test(t, a_process_that_has_ended_is_not_waited_for);
	tcase_add_test(t, it_waits_for_other_writers);
	tcase_add_test(t, who_has_written_nothing_elsewhere_is_not_waited_for);
	tcase_add_test(t, an_epoch_of_which_it_is_not_known_is_good_enough);
	tcase_add_test(t, what_fails_is_tried_again);
	tcase_add_test(t, a_torn_file);
	tcase_add_test(t, a_file_changed_in_place);
	tcase_add_test(t, logs_stay);
	tcase_add_test(t, without_a_complete_epoch_it_stays);
	tcase_add_test(t, what_was_undone_by_hand_stays);

	t = unit_case(s, "off");
	tcase_add_checked_fixture(t, eu_start, eu_stop);
	tcase_add_test(t, without_the_option_nothing);
	tcase_add_loop_test(t, when_the_volume_is_opened, 0, 2);
	tcase_add_test(t, a_torn_file_when_the_volume_is_opened);

	t = unit_case(s, "crashes");
	tcase_add_checked_fixture(t, prepare, eu_stop);
	tcase_add_loop_test(t, a_crash_while_it_goes_back, 0,
			    sizeof(fault_names) / sizeof(*fault_names));
	return unit_run(s);
}
