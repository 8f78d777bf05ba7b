/* SPDX-License-Identifier: Apache-2.0 */
/* Open files that outlive the daemon: their handles come back, whatever step it died at. */
#include "tests/unit/volume_unit.h"

#include <sys/mman.h>
#include "lib/live/handle.h"
#include "lib/live/live.h"
#include "lib/live/survivors.h"

#define RECORDS 4
#define TOLD	4

/* What two daemons share. */
struct shared {
	struct handle_record record[RECORDS];
	struct stale_retry_record told[TOLD];
};

static struct vu u;
static struct shared *shared;
static struct survivor survivor[RECORDS];

static void setup(void)
{
	u = (struct vu){.cache = unit_dir(), .remote = strdup("none")};
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
}

static void teardown(void)
{
	if (u.vol)
		volume_close(u.vol);
	free(u.cache);
	free(u.remote);
	munmap(shared, sizeof(*shared));
}

/* Mounts with the handles of the first `count` records. */
static void mount_with(size_t count)
{
	struct volume_options o;
	char *message = NULL;
	int error;

	vu_options(&u, &o);
	for (size_t i = 0; i < count; i++)
		survivor[i] = (struct survivor){.record = &shared->record[i]};
	o.survivors = survivor;
	o.survivors_count = count;
	o.stale_retry_records = shared->told;
	o.stale_retry_records_count = TOLD;
	error = volume_open(&o, &u.vol, &message);
	ck_assert_msg(!error, "volume_open: %d: %s", error, message ? message : "");
}

/* A daemon does `work` and dies, at the fault point or at its end. */
static void daemon_dies(const char *fault, void (*work)(void))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		if (fault)
			setenv("EPOCHFS_FAULT", fault, 1);
		mount_with(0);
		work();
		if (!fault)
			kill(getpid(), SIGKILL);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it ended with status %x",
		      status);
}

/* Opens for a process that is there before and after: the parent of both daemons. */
static struct handle *open_kept(const char *name, int flags, size_t i)
{
	struct handle *h = NULL;

	unit_ok(vu_open_as(&u, name, flags, getppid(), &h));
	handle_keep_record(h, &shared->record[i]);
	return h;
}

static void save_two(void)
{
	vu_save(&u, "edited", "0123456789");
	vu_save(&u, "replaced", "old");
}

static void write_three(void)
{
	struct handle *h;

	save_two();
	h = open_kept("new", O_WRONLY | O_CREAT | O_TRUNC, 0);
	vu_write(h, "one", 0);
	h = open_kept("edited", O_RDWR, 1);
	vu_write(h, "one", 0);
	h = open_kept("replaced", O_WRONLY | O_TRUNC, 2);
	vu_write(h, "one", 0);
	open_kept("edited", O_RDONLY, 3);
}

/* The handle of record i, which came back. */
static struct handle *revived(int i)
{
	ck_assert_ptr_nonnull(survivor[i].ret_handle);
	return survivor[i].ret_handle;
}

START_TEST(what_was_written_is_written_on)
{
	daemon_dies(NULL, write_three);
	mount_with(4);
	for (int i = 0; i < 3; i++) {
		ck_assert(handle_writes(revived(i)));
		vu_write(revived(i), "two", 3);
	}
	vu_handle_holds(revived(3), "onetwo6789");
	vu_holds(&u, "replaced", "old");
	for (int i = 0; i < 3; i++) {
		unit_ok(handle_flush(revived(i), getpid(), NULL, NULL));
		handle_release(revived(i), false);
	}
	handle_release(revived(3), false);
	vu_holds(&u, "new", "onetwo");
	vu_holds(&u, "edited", "onetwo6789");
	vu_holds(&u, "replaced", "onetwo");
}
END_TEST

static void write_and_be_refused(void)
{
	static const char *const names[] = {"edited", "replaced"};

	for (size_t i = 0; i < 2; i++)
		vu_save(&u, names[i], "old");
	for (size_t i = 0; i < 2; i++) {
		struct handle *h = open_kept(names[i], O_WRONLY | O_TRUNC, i);

		vu_write(h, "one", 0);
		handle_note_write(h, 3, 3, -ENOSPC);
		handle_note_write(h, 9, 3, -EIO);
	}
}

/* What the daemon before was refused is missing still, unless it is written now. */
START_TEST(what_was_refused_is_missing_still)
{
	daemon_dies(NULL, write_and_be_refused);
	mount_with(2);
	handle_note_write(revived(0), 0, 12, 12);
	for (int i = 0; i < 2; i++) {
		unit_ok(handle_flush(revived(i), getpid(), NULL, NULL));
		handle_release(revived(i), false);
	}
	vu_holds(&u, "edited", "one");
	vu_holds(&u, "replaced", "old");
}
END_TEST

/* Nobody says that they are open: as after any crash. */
START_TEST(without_its_record_a_file_is_recovered)
{
	struct live_attr attr;

	daemon_dies(NULL, write_three);
	mount_with(0);
	vu_holds(&u, "replaced", "old");
	unit_error(live_lookup(u.vol, ROOT_INO, "new", 1, &attr), -ENOENT);
}
END_TEST

static void read_old(void)
{
	save_two();
	open_kept("edited", O_RDONLY, 0);
	open_kept("replaced", O_RDONLY, 1);
	vu_save(&u, "replaced", "newer");
	unit_ok(live_unlink(u.vol, ROOT_INO, "edited"));
}

START_TEST(old_content_is_read_on)
{
	daemon_dies(NULL, read_old);
	mount_with(2);
	vu_handle_holds(revived(0), "0123456789");
	vu_handle_holds(revived(1), "old");
	vu_holds(&u, "replaced", "newer");
	handle_release(revived(0), false);
	handle_release(revived(1), false);
	/* And what it took is given back. */
	vu_remount(&u);
	vu_holds(&u, "replaced", "newer");
}
END_TEST

/* The record still says what was before the step. */
static const struct {
	const char *point, *edited, *replaced;
} steps[] = {
	{"edit.cloned", "0123456789", "old"}, {"edit.rows", "0123456789", "old"},
	{"write.done", "one3456789", "old"},  {"flush.journaled", "one3456789", "old"},
	{"commit.rows", "one3456789", "old"}, {"release.end", "one3456789", "old"},
};

static void edit_and_close(void)
{
	struct handle *h;

	save_two();
	h = open_kept("edited", O_RDWR, 0);
	vu_write(h, "one", 0);
	unit_ok(handle_flush(h, getppid(), NULL, NULL));
	handle_release(h, false);
}

START_TEST(a_step_that_was_cut_off_is_made_up_for)
{
	char fault[40];
	/* save_two commits and closes twice. */
	int nth = strchr("fcr", steps[_i].point[0]) ? 3 : steps[_i].point[0] == 'w' ? 3 : 1;

	snprintf(fault, sizeof(fault), "%s:%d", steps[_i].point, nth);
	daemon_dies(fault, edit_and_close);
	mount_with(1);
	vu_handle_holds(revived(0), steps[_i].edited);
	vu_write(revived(0), "ONE", 0);
	unit_ok(handle_flush(revived(0), getpid(), NULL, NULL));
	handle_release(revived(0), false);
	vu_holds(&u, "edited", "ONE3456789");
	vu_holds(&u, "replaced", steps[_i].replaced);
	vu_remount(&u);
	vu_holds(&u, "edited", "ONE3456789");
}
END_TEST

/* The first of two opens was answered with ESTALE; the second comes to the next daemon. */
static void told_only(void)
{
	struct live_caller who = vu_caller(getppid());
	struct handle *h = NULL;
	struct live_attr attr;

	save_two();
	unit_ok(live_lookup(u.vol, ROOT_INO, "replaced", who.pid, &attr));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
}

START_TEST(an_open_goes_on_where_it_was_sent)
{
	struct live_caller who = vu_caller(getpid());
	struct live_attr mine, all;
	struct handle *h = NULL;

	daemon_dies(NULL, told_only);
	mount_with(0);
	unit_ok(live_lookup(u.vol, ROOT_INO, "replaced", getpid(), &mine));
	unit_ok(live_lookup(u.vol, ROOT_INO, "replaced", 1, &all));
	ck_assert_uint_ne(mine.body, all.body);
	unit_ok(handle_open(u.vol, mine.ino, mine.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	vu_write(h, "new", 0);
	vu_holds(&u, "replaced", "old");
	vu_close(h);
	vu_holds(&u, "replaced", "new");
}
END_TEST

START_TEST(a_record_that_makes_no_sense_gives_no_handle)
{
	daemon_dies(NULL, save_two);
	shared->record[0] = (struct handle_record){.ino = 999, .body = 1};
	shared->record[1] = (struct handle_record){.ino = ROOT_INO, .body = 1, .version = 1};
	shared->record[2] = (struct handle_record){.ino = 2, .body = 1, .version = 12345};
	mount_with(3);
	for (int i = 0; i < 3; i++)
		ck_assert_ptr_null(survivor[i].ret_handle);
	vu_holds(&u, "edited", "0123456789");
	vu_holds(&u, "replaced", "old");
}
END_TEST

/* Closed by its opener, whose worker had inherited it. */
static void close_held(void)
{
	struct handle *h;

	vu_save(&u, "replaced", "old");
	h = open_kept("replaced", O_WRONLY | O_TRUNC, 0);
	vu_write(h, "new", 0);
	unit_ok(handle_flush(h, getppid(), NULL, NULL));
	vu_seal(&u);
	ck_assert_uint_eq(h->body->held, 1);
}

START_TEST(what_another_process_keeps_open_stays_closed)
{
	struct state_file f;
	uint64_t epoch;

	daemon_dies(NULL, close_held);
	mount_with(1);
	f = vu_file(&u, "replaced");
	ck_assert_uint_ne(f.closed, f.live);
	ck_assert_uint_eq(revived(0)->body->held, 1);
	ck_assert_uint_eq(revived(0)->body->writers, 0);
	epoch = vu_seal(&u);
	handle_release(revived(0), false);
	ck_assert_uint_eq(vu_file(&u, "replaced").live, f.closed);
	ck_assert_uint_eq(vu_seal(&u), epoch);
	vu_holds(&u, "replaced", "new");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_survivors");
	TCase *t = unit_case(s, "survivors");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_was_written_is_written_on);
	tcase_add_test(t, what_was_refused_is_missing_still);
	tcase_add_test(t, without_its_record_a_file_is_recovered);
	tcase_add_test(t, old_content_is_read_on);
	tcase_add_loop_test(t, a_step_that_was_cut_off_is_made_up_for, 0,
			    (int)(sizeof(steps) / sizeof(steps[0])));
	tcase_add_test(t, an_open_goes_on_where_it_was_sent);
	tcase_add_test(t, a_record_that_makes_no_sense_gives_no_handle);
	tcase_add_test(t, what_another_process_keeps_open_stays_closed);
	return unit_run(s);
}
