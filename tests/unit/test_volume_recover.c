/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon dies at every step of opening, writing, closing, editing and undoing: no closed content is
 * lost, no torn one is committed. */
#include "tests/unit/recover_unit.h"

static void replace(void)
{
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_TRUNC);

	vu_write(h, "the new ", 0);
	vu_write(h, "content", 8);
	close_and_say(h);
}

static void create(void)
{
	struct handle *h = vu_open(&u, "new", O_WRONLY | O_CREAT | O_TRUNC);

	vu_write(h, "made", 0);
	close_and_say(h);
}

static void create_synced(void)
{
	struct handle *h = vu_open(&u, "new", O_RDWR | O_CREAT);

	vu_write(h, "made", 0);
	unit_ok(handle_fsync(h, false));
	close_and_say(h);
}

/* With a reader that the kernel serves: the edit takes the file over. */
static void edit_taking_over(void)
{
	struct handle *reader = vu_open(&u, "a", O_RDONLY);
	struct vu_grant g = vu_grant(reader);

	edit();
	handle_release(reader, true);
	vu_give_back(&u, &g);
}

static void edit_nothing(void)
{
	struct live_attr attr;
	struct handle *h;

	unit_ok(live_setattr(u.vol, vu_file(&u, "a").ino, 0,
			     &(struct live_change){.set = LIVE_SET_MTIME, .mtime_ns = 1000},
			     &attr));
	h = vu_open(&u, "a", O_RDWR);
	unit_ok(handle_join_grant(h, NULL, NULL));
	close_and_say(h);
}

static void truncate_file(void)
{
	struct state_file f = vu_file(&u, "a");

	unit_ok(body_truncate(u.vol, f.ino, f.body, &(struct live_change){.size = 3}));
	say(SAID_CLOSED);
}

static void copy(void)
{
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_TRUNC);

	vu_write(h, "the new content", 0);
	unit_ok(body_commit_copy(u.vol, handle_body(h), NULL, NULL));
	close_and_say(h);
}

static void save_over(void)
{
	struct handle *h = vu_open(&u, "a.tmp", O_WRONLY | O_CREAT);

	vu_write(h, "the new content", 0);
	unit_ok(live_rename(u.vol, ROOT_INO, "a.tmp", ROOT_INO, "a", 0, NULL));
	close_and_say(h);
}

/* The same, and the writer is killed. */
static void killed_over(void)
{
	struct vu_child c = vu_child();
	struct handle *h = NULL;
	siginfo_t info;

	unit_ok(vu_open_as(&u, "a.tmp", O_WRONLY | O_CREAT, c.pid, &h));
	vu_write(h, "half", 0);
	unit_ok(live_rename(u.vol, ROOT_INO, "a.tmp", ROOT_INO, "a", 0, NULL));
	kill(c.pid, SIGKILL);
	waitid(P_PID, (id_t)c.pid, &info, WEXITED | WNOWAIT);
	unit_ok(handle_flush(h, c.pid, NULL, NULL));
	handle_release(h, false);
	vu_child_wait(&c);
}

static void unlink_open(void)
{
	struct handle *h = vu_open(&u, "b", O_RDWR);

	vu_write(h, "OF", 0);
	unit_ok(live_unlink(u.vol, ROOT_INO, "b"));
	vu_write(h, "AN", 3);
	close_and_say(h);
}

struct scenario {
	const char *fault;
	void (*work)(void);
	const char *name;	    /* the file that it changes */
	const char *before, *after; /* NULL: no such file */
	/* What may be there when it died before the close was answered; NULL: not there. */
	const char *torn;
	bool torn_counts; /* `torn` says something; else it is `before` */
};

#define REPLACE(fault)                                                                             \
	{                                                                                          \
		fault, replace, "a", "the old content", "the new content", NULL, false             \
	}
#define CREATE(fault)                                                                              \
	{                                                                                          \
		fault, create, "new", NULL, "made", NULL, false                                    \
	}
#define EDIT(fault, how)                                                                           \
	{                                                                                          \
		fault, how, "a", "the old content", "THE old content", "THE old content", true     \
	}

static const struct scenario scenarios[] = {
	REPLACE("open.object"),
	REPLACE("open.pending"),
	REPLACE("open.chosen"),
	REPLACE("write.ready"),
	REPLACE("write.done"),
	REPLACE("write.done:2"),
	REPLACE("flush.begin"),
	REPLACE("flush.journaled"),
	REPLACE("release.begin"),
	REPLACE("commit.begin"),
	REPLACE("commit.rows"),
	REPLACE("release.end"),
	CREATE("open.object"),
	CREATE("create.rows"),
	CREATE("write.done"),
	CREATE("flush.journaled"),
	CREATE("commit.begin"),
	CREATE("commit.rows"),
	{"fsync.data", create_synced, "new", NULL, "made", "made", true},
	{"flush.begin", create_synced, "new", NULL, "made", "made", true},
	{"commit.rows", create_synced, "new", NULL, "made", "made", true},
	EDIT("edit.cloned", edit),
	EDIT("edit.rows", edit),
	EDIT("write.done", edit),
	EDIT("flush.journaled", edit),
	EDIT("commit.begin", edit),
	EDIT("commit.rows", edit),
	EDIT("edit.cloned", edit_taking_over),
	EDIT("edit.linked", edit_taking_over),
	EDIT("edit.renamed", edit_taking_over),
	EDIT("edit.rows", edit_taking_over),
	EDIT("write.done", edit_taking_over),
	EDIT("commit.rows", edit_taking_over),
	{"commit.restored", edit_nothing, "a", "the old content", "the old content", NULL, false},
	{"commit.begin", truncate_file, "a", "the old content", "the", "the", true},
	{"commit.rows", truncate_file, "a", "the old content", "the", "the", true},
	{"commit.copied", copy, "a", "the old content", "the new content", "the new content", true},
	{"write.done", save_over, "a", "the old content", "the new content", NULL, false},
	{"flush.journaled", save_over, "a", "the old content", "the new content", NULL, false},
	{"commit.begin", save_over, "a", "the old content", "the new content", NULL, false},
	{"commit.rows", save_over, "a", "the old content", "the new content", NULL, false},
	{"undo.names", killed_over, "a", "the old content", "the old content", NULL, false},
	{"undo.torn", killed_over, "a", "the old content", "the old content", NULL, false},
	{"undo.rows", killed_over, "a", "the old content", "the old content", NULL, false},
	{"write.done", unlink_open, "b", "of another file", NULL, "OF another file", true},
	{"write.done:2", unlink_open, "b", NULL, NULL, NULL, false},
	{"release.begin", unlink_open, "b", NULL, NULL, NULL, false},
	{"undo.rows", unlink_open, "b", NULL, NULL, NULL, false},
};

static bool file_is(const char *name, const char *want)
{
	struct handle *h = NULL;
	char data[64];
	ssize_t n;
	int error = vu_open_as(&u, name, O_RDONLY, 1, &h);

	if (error) {
		unit_error(error, -ENOENT);
		return !want;
	}
	n = handle_read(h, data, sizeof(data) - 1, 0, NULL, NULL);
	ck_assert_int_ge(n, 0);
	data[n] = '\0';
	handle_release(h, false);
	return want && !strcmp(data, want);
}

START_TEST(the_daemon_dies)
{
	const struct scenario *s = &scenarios[_i];
	const char *said;

	daemon_dies(NULL, prepare);
	said = daemon_dies(s->fault, s->work);
	ck_assert_msg(!was_said(said, SAID_END), "%s: the fault point was not met", s->fault);
	mount_and_check();
	if (was_said(said, SAID_CLOSED))
		ck_assert_msg(file_is(s->name, s->after), "%s after the close", s->fault);
	else
		ck_assert_msg(file_is(s->name, s->before) || file_is(s->name, s->after) ||
				      (s->torn_counts && file_is(s->name, s->torn)),
			      "%s before the close", s->fault);
	vu_missing(&u, "a.tmp");
	if (strcmp(s->name, "b") != 0)
		vu_holds(&u, "b", "of another file");
	/* The epoch that was sealed before has what it had. */
	ck_assert_uint_eq(epochs_latest(u.vol) ? epochs_latest(u.vol) : 1, 1);
	vu_save(&u, "a", "and it goes on");
	vu_holds(&u, "a", "and it goes on");
}
END_TEST

/* Recovery itself dies, and the next one ends it. */
START_TEST(recovery_dies)
{
	static const char *const faults[] = {"recover.begin", "undo.torn", "undo.rows",
					     "recover.end"};
	const char *said;

	daemon_dies(NULL, prepare);
	daemon_dies("write.done", replace);
	said = daemon_dies(faults[_i], prepare);
	ck_assert_msg(!was_said(said, SAID_END), "%s: the fault point was not met", faults[_i]);
	mount_and_check();
	vu_holds(&u, "a", "the old content");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_recover");
	TCase *t = recover_case(s, "recover");

	tcase_add_loop_test(t, the_daemon_dies, 0, (int)(sizeof(scenarios) / sizeof(scenarios[0])));
	tcase_add_loop_test(t, recovery_dies, 0, 4);
	return unit_run(s);
}
