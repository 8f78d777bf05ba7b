/* SPDX-License-Identifier: Apache-2.0 */
/* Killed writers (contract 1.2.4): what is undone, what stays, what an epoch says. */
#include <sys/resource.h>

#include "lib/cache/torn.h"
#include "lib/epochs/epochs.h"
#include "lib/live/handle.h"
#include "lib/live/live.h"
#include "lib/util/process.h"
#include "tests/unit/volume_unit.h"

static struct vu u;

static void setup(void)
{
	vu_start(&u);
}

static void teardown(void)
{
	vu_stop(&u);
}

/* A child that ended as a thread in FLUSH does, and stays to be looked at: a zombie. */
static struct vu_child ended(struct vu_child c, int how)
{
	siginfo_t info;

	if (how < 0)
		ck_assert_int_eq(kill(c.pid, -how), 0);
	else
		ck_assert_int_eq(write(c.go, "x", 1), 1);
	ck_assert_int_eq(waitid(P_PID, (id_t)c.pid, &info, WEXITED | WNOWAIT), 0);
	return c;
}

static struct handle *open_as(const char *name, int flags, pid_t pid)
{
	struct handle *h = NULL;

	unit_ok(vu_open_as(&u, name, flags, pid, &h));
	return h;
}

static void close_as(struct handle *h, pid_t pid)
{
	unit_ok(handle_flush(h, pid, NULL, NULL));
	handle_release(h, false);
}

/* Opens as a child, writes, lets it end (a signal if negative, else a status), closes as it ends. */
static void die_writing(const char *name, int flags, const char *text, int how)
{
	struct vu_child c = vu_child_exiting(how < 0 ? 0 : how);
	struct handle *h = open_as(name, flags, c.pid);

	vu_write(h, text, 0);
	c = ended(c, how);
	close_as(h, c.pid);
	vu_child_wait(&c);
}

struct torn_seen {
	unsigned count;
	char last[256];
	uint64_t size;
};

static int see_torn(void *arg, const char *name, uint64_t id, uint64_t size, int64_t mtime_ns)
{
	struct torn_seen *s = arg;

	(void)id;
	(void)mtime_ns;
	s->count++;
	s->size = size;
	snprintf(s->last, sizeof(s->last), "%s", name);
	return 0;
}

static struct torn_seen torn(void)
{
	struct torn_seen s = {0};

	unit_ok(torn_each(u.vol, see_torn, &s));
	return s;
}

static bool next_epoch_is_complete(void)
{
	struct epoch_info e;
	bool complete;

	unit_ok(epochs_get(u.vol, vu_seal(&u), &e));
	complete = e.complete;
	epoch_info_free(&e);
	return complete;
}

START_TEST(how_a_process_ended_is_told)
{
	static const struct {
		int how;
		bool killed;
	} cases[] = {{0, false},       {1, true},	 {85, true},	   {255, true},
		     {-SIGKILL, true}, {-SIGTERM, true}, {-SIGQUIT, true}, {-SIGINT, true}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vu_child c = vu_child_exiting(cases[i].how < 0 ? 0 : cases[i].how);

		ck_assert(!process_was_killed(c.pid));
		ck_assert_int_eq(process_of(c.pid), c.pid);
		c = ended(c, cases[i].how);
		ck_assert_msg(process_was_killed(c.pid) == cases[i].killed, "case %zu", i);
		vu_child_wait(&c);
	}
	ck_assert(!process_was_killed(getpid()));
	ck_assert(!process_was_killed(0));
}
END_TEST

static void *tell_process(void *arg)
{
	pid_t *tid = arg;

	*tid = gettid();
	ck_assert_int_eq(process_of(*tid), getpid());
	return NULL;
}

START_TEST(the_process_of_a_thread_is_found)
{
	pthread_t thread;
	pid_t tid = 0;

	pthread_create(&thread, NULL, tell_process, &tid);
	pthread_join(thread, NULL);
	ck_assert_int_ne(tid, getpid());
	ck_assert_int_eq(process_of(-1), 0);
}
END_TEST

START_TEST(an_open_descriptor_is_found_by_name)
{
	cleanup_free char *path = unit_path(u.cache, "some name");
	cleanup_close int fd = open(path, O_RDWR | O_CREAT, 0600);
	cleanup_close int reader = -1;
	struct stat st;

	ck_assert_int_ge(fd, 0);
	ck_assert(process_has_open(getpid(), "some name", 0, true));
	reader = open(path, O_RDONLY);
	close(steal_fd(&fd));
	ck_assert(!process_has_open(getpid(), "some name", 0, true));
	ck_assert(process_has_open(getpid(), "some name", 0, false));
	ck_assert(!process_has_open(getpid(), "name", 0, false));
	unlink(path);
	ck_assert(process_has_open(getpid(), "some name", 0, false));
	ck_assert(!process_has_open(getpid(), "another", 0, false));
	ck_assert_int_eq(fstat(reader, &st), 0);
	ck_assert(process_has_open(getpid(), "another", st.st_ino, false));
	ck_assert(!process_has_open(getpid(), "another", st.st_ino, true));
}
END_TEST

START_TEST(what_a_process_has_is_not_denied_where_it_cannot_be_told)
{
	struct rlimit before, none;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
	ck_assert(!process_has_open(getpid(), "no such file", 0, false));
	ck_assert(!process_has_mapped(getpid(), "no such file"));
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	bool open = process_has_open(getpid(), "no such file", 0, false);
	bool mapped = process_has_mapped(getpid(), "no such file");
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	ck_assert(!open); /* a close is still to come by its release */
	ck_assert(mapped);
}
END_TEST

START_TEST(a_killed_replacement_leaves_the_old)
{
	vu_save(&u, "a", "old");
	die_writing("a", O_WRONLY | O_TRUNC, "half of the n", -SIGKILL);
	vu_holds(&u, "a", "old");
	ck_assert_uint_eq(torn().count, 1);
	ck_assert_uint_eq(torn().size, strlen("half of the n"));
	ck_assert_str_eq(torn().last, "1-a");
	/* Nothing else of that save is there: all is as it was before. */
	ck_assert(next_epoch_is_complete());
	vu_save(&u, "companion", "of the next save");
	die_writing("a", O_WRONLY | O_TRUNC, "half of the n", -SIGKILL);
	vu_holds(&u, "a", "old");
	ck_assert(!next_epoch_is_complete());
	vu_save(&u, "a", "new");
	vu_holds(&u, "a", "new");
	ck_assert(next_epoch_is_complete());
}
END_TEST

START_TEST(a_failed_exit_counts_as_killed_and_a_good_one_does_not)
{
	vu_save(&u, "a", "old");
	die_writing("a", O_WRONLY | O_TRUNC, "torn", 1);
	vu_holds(&u, "a", "old");
	die_writing("a", O_WRONLY | O_TRUNC, "whole", 0);
	vu_holds(&u, "a", "whole");
}
END_TEST

START_TEST(a_killed_replacement_is_undone_even_if_it_was_synced)
{
	struct vu_child c = vu_child();
	struct handle *h;

	vu_save(&u, "a", "old");
	h = open_as("a", O_RDWR | O_TRUNC, c.pid);
	vu_write(h, "new", 0);
	unit_ok(handle_fsync(h, false));
	c = ended(c, -SIGKILL);
	close_as(h, c.pid);
	vu_child_wait(&c);
	vu_holds(&u, "a", "old");
}
END_TEST

START_TEST(a_killed_new_file_goes_if_it_was_write_only)
{
	vu_save(&u, "other", "x");
	die_writing("a", O_WRONLY | O_CREAT, "half", -SIGTERM);
	vu_missing(&u, "a");
	ck_assert_uint_eq(torn().count, 1);
	ck_assert(!next_epoch_is_complete());
}
END_TEST

START_TEST(other_new_files_stay)
{
	struct vu_child c = vu_child();
	struct handle *h;

	die_writing("rw", O_RDWR | O_CREAT, "database", -SIGKILL);
	vu_holds(&u, "rw", "database");
	die_writing("append", O_WRONLY | O_CREAT | O_APPEND, "line", -SIGKILL);
	vu_holds(&u, "append", "line");
	ck_assert(!next_epoch_is_complete());
	h = open_as("synced", O_WRONLY | O_CREAT, c.pid);
	vu_write(h, "safe", 0);
	unit_ok(handle_fsync(h, true));
	c = ended(c, -SIGKILL);
	close_as(h, c.pid);
	vu_child_wait(&c);
	vu_holds(&u, "synced", "safe");
	ck_assert_uint_eq(torn().count, 0);
	ck_assert(!next_epoch_is_complete());
}
END_TEST

START_TEST(a_killed_edit_stays_and_the_epoch_is_not_complete)
{
	vu_save(&u, "a", "hello world");
	ck_assert(next_epoch_is_complete());
	die_writing("a", O_RDWR, "HELLO", -SIGKILL);
	vu_holds(&u, "a", "HELLO world");
	ck_assert(!next_epoch_is_complete());
}
END_TEST

START_TEST(a_log_survives_its_writer)
{
	die_writing("train.log", O_WRONLY | O_CREAT, "step 1\n", -SIGKILL);
	vu_holds(&u, "train.log", "step 1\n");
	die_writing("train.log", O_WRONLY | O_TRUNC, "step 2\n", -SIGKILL);
	vu_holds(&u, "train.log", "step 2\n");
	vu_save(&u, "model", "m");
	ck_assert(next_epoch_is_complete());
}
END_TEST

START_TEST(a_killed_rename_brings_back_what_it_covered)
{
	struct vu_child c = vu_child();
	struct handle *h;

	vu_save(&u, "model", "good");
	h = open_as("model.tmp", O_WRONLY | O_CREAT, c.pid);
	vu_write(h, "half", 0);
	unit_ok(live_rename(u.vol, ROOT_INO, "model.tmp", ROOT_INO, "model", 0, NULL));
	vu_holds(&u, "model", "half");
	c = ended(c, -SIGKILL);
	close_as(h, c.pid);
	vu_child_wait(&c);
	vu_holds(&u, "model", "good");
	vu_missing(&u, "model.tmp");
	ck_assert_uint_eq(vu_file(&u, "model").nlink, 1);
	vu_remount(&u);
	vu_holds(&u, "model", "good");
}
END_TEST

START_TEST(a_closed_rename_drops_what_it_covered)
{
	struct state_file old;
	struct state_file f;
	struct handle *h;

	vu_save(&u, "model", "good");
	old = vu_file(&u, "model");
	h = vu_open(&u, "model.tmp", O_WRONLY | O_CREAT);
	vu_write(h, "better", 0);
	unit_ok(live_rename(u.vol, ROOT_INO, "model.tmp", ROOT_INO, "model", 0, NULL));
	vu_close(h);
	vu_holds(&u, "model", "better");
	mutex_lock(&u.vol->lock);
	unit_error(state_file_get(u.vol->state, old.ino, &f), -ENOENT);
	ck_assert(!state_version_exists(u.vol->state, old.closed));
	mutex_unlock(&u.vol->lock);
}
END_TEST

START_TEST(the_death_of_a_forked_child_does_not_count)
{
	struct vu_child c = vu_child();
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_CREAT);

	vu_write(h, "whole", 0);
	c = ended(c, -SIGKILL);
	unit_ok(handle_flush(h, c.pid, NULL, NULL));
	vu_child_wait(&c);
	vu_close(h);
	vu_holds(&u, "a", "whole");
	ck_assert(next_epoch_is_complete());
}
END_TEST

START_TEST(a_child_that_outlives_its_killed_parent_saves_nothing)
{
	struct vu_child parent = vu_child(), child = vu_child();
	struct handle *h;

	vu_save(&u, "a", "old");
	h = open_as("a", O_WRONLY | O_TRUNC, parent.pid);
	vu_write(h, "half", 0);
	parent = ended(parent, -SIGKILL);
	unit_ok(handle_flush(h, parent.pid, NULL, NULL));
	unit_ok(handle_flush(h, child.pid, NULL, NULL));
	handle_release(h, false);
	vu_child_wait(&parent);
	vu_child_wait(&child);
	vu_holds(&u, "a", "old");
}
END_TEST

/* Two files: one save is an epoch, of the next the first file is there. */
static void begin_saving(void)
{
	vu_save(&u, "a", "1");
	vu_save(&u, "b", "1");
	ck_assert(next_epoch_is_complete());
	vu_save(&u, "a", "2");
}

/* The kernel releases each file in the background. */
START_TEST(a_release_that_comes_late_saves_nothing_again)
{
	struct vu_child c = vu_child();
	struct handle *killed, *well;

	begin_saving();
	/* Opened first: an open waits for a close that is on its way. */
	killed = open_as("b", O_WRONLY | O_TRUNC, c.pid);
	well = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	vu_write(killed, "half", 0);
	vu_write(well, "3", 0);
	unit_ok(handle_flush(well, getpid(), NULL, NULL));
	c = ended(c, -SIGKILL);
	close_as(killed, c.pid);
	vu_child_wait(&c);
	handle_release(well, false);
	vu_holds(&u, "a", "3");
	vu_holds(&u, "b", "1");
	ck_assert(!next_epoch_is_complete());
	vu_save(&u, "b", "3");
	ck_assert(next_epoch_is_complete());
}
END_TEST

/* A rank writes under another name while one beside it is killed, and renames that over what it had saved before, closed or open. */
START_TEST(a_rename_of_what_began_before_a_kill_saves_nothing_again)
{
	struct handle *well;

	begin_saving();
	well = vu_open(&u, "a.tmp", O_WRONLY | O_CREAT);
	vu_write(well, "3", 0);
	die_writing("b", O_WRONLY | O_TRUNC, "half", -SIGKILL);
	if (!_i)
		close_as(well, getpid());
	unit_ok(live_rename(u.vol, ROOT_INO, "a.tmp", ROOT_INO, "a", 0, NULL));
	if (_i)
		close_as(well, getpid());
	vu_holds(&u, "a", "3");
	vu_holds(&u, "b", "1");
	ck_assert(!next_epoch_is_complete());
	vu_save(&u, "b", "3");
	ck_assert(next_epoch_is_complete());
}
END_TEST

/* With passthrough an edit begins as the file is opened, where somebody reads it. */
static void open_and_close(const char *name)
{
	struct handle *idle = vu_open(&u, name, O_RDWR);

	unit_ok(handle_join_grant(idle, NULL, NULL));
	vu_close(idle);
}

/* A companion of what was killed, or that itself; before a seal has judged the kill, or after. */
START_TEST(an_open_that_writes_nothing_saves_nothing_again)
{
	const char *name = _i & 1 ? "b" : "a";
	struct vu_child c = vu_child();
	struct handle *killed;

	vu_save(&u, "a", "1");
	vu_save(&u, "b", "1");
	ck_assert(next_epoch_is_complete());
	vu_save(&u, "a", "2");
	killed = open_as("b", O_WRONLY | O_TRUNC, c.pid);
	vu_write(killed, "2", 0);
	c = ended(c, -SIGKILL);
	close_as(killed, c.pid);
	vu_child_wait(&c);
	if (_i & 2) {
		ck_assert(!next_epoch_is_complete());
		vu_save(&u, "notes", "1");
	}
	open_and_close(name);
	ck_assert(!next_epoch_is_complete());
	vu_save(&u, name, "3");
	ck_assert(next_epoch_is_complete());
}
END_TEST

START_TEST(one_of_two_writers_closes_well)
{
	struct vu_child c = vu_child();
	struct handle *killed = open_as("a", O_WRONLY | O_CREAT, c.pid);
	struct handle *well = vu_open(&u, "a", O_WRONLY);

	vu_write(killed, "one", 0);
	vu_write(well, "two", 3);
	c = ended(c, -SIGKILL);
	close_as(killed, c.pid);
	vu_child_wait(&c);
	vu_holds(&u, "a", "onetwo");
	vu_close(well);
	vu_holds(&u, "a", "onetwo");
	ck_assert(!next_epoch_is_complete());
}
END_TEST

START_TEST(torn_bytes_can_be_read_and_the_newest_are_kept)
{
	char name[32], data[16] = "";
	int fd;

	for (int i = 0; i < TORN_MAX + 3; i++) {
		snprintf(name, sizeof(name), "file %d\n", i);
		die_writing(name, O_WRONLY | O_CREAT, "half", -SIGKILL);
	}
	ck_assert_uint_eq(torn().count, TORN_MAX);
	ck_assert_str_eq(torn().last, "19-file 18?");
	fd = torn_open(u.vol, "19-file 18?");
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(read(fd, data, sizeof(data)), 4);
	ck_assert_str_eq(data, "half");
	close(fd);
	ck_assert_int_eq(torn_open(u.vol, "1-file 0?"), -ENOENT);
	ck_assert_int_eq(torn_open(u.vol, "../lock"), -ENOENT);
	/* Also after an unmount in order. */
	unit_ok(volume_finish(u.vol, false, NULL, NULL));
	vu_remount(&u);
	ck_assert_uint_eq(torn().count, TORN_MAX);
	ck_assert_str_eq(torn().last, "19-file 18?");
}
END_TEST

START_TEST(torn_bytes_that_cannot_be_kept_are_counted)
{
	uint64_t next, mounted;

	ck_assert_int_eq(mkdirat(u.vol->torn_fd, "1-a", 0700), 0);
	die_writing("a", O_WRONLY | O_CREAT, "half", -SIGKILL);
	torn_ids(u.vol, &next, &mounted);
	ck_assert_uint_eq(torn().count, 0);
	ck_assert_uint_eq(mounted, 1);
	ck_assert_uint_eq(next, 2);
	die_writing("a", O_WRONLY | O_CREAT, "half", -SIGKILL);
	ck_assert_str_eq(torn().last, "2-a");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_killed");
	TCase *t = unit_case(s, "killed");

	vu_by_saves = false;
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, how_a_process_ended_is_told);
	tcase_add_test(t, the_process_of_a_thread_is_found);
	tcase_add_test(t, an_open_descriptor_is_found_by_name);
	tcase_add_test(t, what_a_process_has_is_not_denied_where_it_cannot_be_told);
	tcase_add_test(t, a_killed_replacement_leaves_the_old);
	tcase_add_test(t, a_failed_exit_counts_as_killed_and_a_good_one_does_not);
	tcase_add_test(t, a_killed_replacement_is_undone_even_if_it_was_synced);
	tcase_add_test(t, a_killed_new_file_goes_if_it_was_write_only);
	tcase_add_test(t, other_new_files_stay);
	tcase_add_test(t, a_killed_edit_stays_and_the_epoch_is_not_complete);
	tcase_add_test(t, a_log_survives_its_writer);
	tcase_add_test(t, a_killed_rename_brings_back_what_it_covered);
	tcase_add_test(t, a_closed_rename_drops_what_it_covered);
	tcase_add_test(t, the_death_of_a_forked_child_does_not_count);
	tcase_add_test(t, a_child_that_outlives_its_killed_parent_saves_nothing);
	tcase_add_test(t, a_release_that_comes_late_saves_nothing_again);
	tcase_add_loop_test(t, a_rename_of_what_began_before_a_kill_saves_nothing_again, 0, 2);
	tcase_add_loop_test(t, an_open_that_writes_nothing_saves_nothing_again, 0, 4);
	tcase_add_test(t, one_of_two_writers_closes_well);
	tcase_add_test(t, torn_bytes_can_be_read_and_the_newest_are_kept);
	tcase_add_test(t, torn_bytes_that_cannot_be_kept_are_counted);
	return unit_run(s);
}
