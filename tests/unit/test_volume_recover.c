/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon dies at every step of opening, writing, closing, editing and undoing; the machine loses
 * power: no closed content is lost, no torn one is committed. */
#include <sqlite3.h>

#include "tests/unit/volume_unit.h"

static struct vu u;

static void setup(void)
{
	u = (struct vu){.cache = unit_dir(), .remote = strdup("none")};
}

static void teardown(void)
{
	if (u.vol)
		volume_close(u.vol);
	free(u.cache);
	free(u.remote);
}

/* ---- daemons that die ---- */

/* What a daemon did before it died. */
#define SAID_CLOSED 'c' /* flush was answered */
#define SAID_END    'e' /* it came to its end: the fault point was not met */

static int say_fd;

static void say(char what)
{
	ck_assert_int_eq(write(say_fd, &what, 1), 1);
}

/*
 * Runs `work` on a mounted volume in a process of its own, which dies at the fault point (NULL: at
 * its end, as by kill -9 too), with nothing closed in order. Gives what it said.
 */
static const char *daemon_dies(const char *fault, void (*work)(void))
{
	static char said[16];
	int pipe_fd[2], status;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe2(pipe_fd, O_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		say_fd = pipe_fd[1];
		if (fault)
			setenv("EPOCHFS_FAULT", fault, 1);
		vu_mount(&u);
		work();
		say(SAID_END);
		kill(getpid(), SIGKILL);
	}
	close(pipe_fd[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "%s: the daemon ended with status %x", fault ? fault : "none", status);
	n = read(pipe_fd[0], said, sizeof(said) - 1);
	ck_assert_int_ge(n, 0);
	said[n] = '\0';
	close(pipe_fd[0]);
	return said;
}

static bool was_said(const char *said, char what)
{
	return strchr(said, what) != NULL;
}

/* ---- what must hold after every recovery ---- */

static int check_version(void *arg, const struct state_version *v)
{
	cleanup_close int fd = -1;
	struct stat st;

	(void)arg;
	ck_assert_int_ne(v->state, VERSION_STAGED);
	fd = object_open(u.vol, v->id, O_RDONLY);
	if (!v->size)
		return 0;
	ck_assert_msg(fd >= 0, "version %llu has no file", (unsigned long long)v->id);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, v->size);
	return 0;
}

static int check_file(void *arg, const struct state_name *n, const char *name,
		      const struct state_file *f)
{
	struct state_version v;

	(void)arg;
	ck_assert_msg(f != NULL, "%s leads nowhere", name);
	ck_assert_uint_eq(n->covered, 0);
	if (!S_ISREG(f->mode))
		return 0;
	ck_assert_uint_eq(f->live, f->closed);
	ck_assert_uint_eq(f->nlink, 1);
	unit_ok(state_version_get(u.vol->state, f->closed, &v));
	ck_assert_uint_eq(v.size, f->size);
	ck_assert_uint_eq(v.died, 0);
	return 0;
}

static int no_unlinked(void *arg, const struct state_file *f)
{
	(void)arg;
	ck_abort_msg("inode %llu has no name", (unsigned long long)f->ino);
	return 0;
}

static void sound(void)
{
	DIR *dir;
	struct dirent *d;

	mutex_lock(&u.vol->lock);
	unit_ok(state_version_each_unsafe(u.vol->state, check_version, NULL));
	unit_ok(state_dir_list(u.vol->state, ROOT_INO, 0, check_file, NULL));
	unit_ok(state_file_each_unlinked(u.vol->state, no_unlinked, NULL));
	dir = fdopendir(openat(u.vol->objects_fd, ".", O_RDONLY | O_DIRECTORY));
	while ((d = readdir(dir)))
		if (d->d_name[0] != '.')
			ck_assert_msg(
				state_version_exists(u.vol->state, strtoull(d->d_name, NULL, 16)),
				"objects/%s is a stray", d->d_name);
	closedir(dir);
	mutex_unlock(&u.vol->lock);
}

/* Backing files of buried versions go a little later. */
static void mount_and_check(void)
{
	vu_mount(&u);
	vu_remount(&u);
	sound();
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

/* ---- scenarios ---- */

static void prepare(void)
{
	vu_save(&u, "a", "the old content");
	vu_save(&u, "b", "of another file");
	vu_seal(&u);
}

static void close_and_say(struct handle *h)
{
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	say(SAID_CLOSED);
	handle_release(h, false);
}

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

static void edit(void)
{
	struct handle *h = vu_open(&u, "a", O_RDWR);

	vu_write(h, "THE", 0);
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
	unit_ok(body_commit_copy(u.vol, handle_body(h)));
	close_and_say(h);
}

static void save_over(void)
{
	struct handle *h = vu_open(&u, "a.tmp", O_WRONLY | O_CREAT);

	vu_write(h, "the new content", 0);
	unit_ok(live_rename(u.vol, ROOT_INO, "a.tmp", ROOT_INO, "a", 0));
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
	unit_ok(live_rename(u.vol, ROOT_INO, "a.tmp", ROOT_INO, "a", 0));
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

static void write_log(void)
{
	struct handle *h = vu_open(&u, "train.log", O_WRONLY | O_CREAT | O_TRUNC);

	vu_write(h, "step 1\n", 0);
}

START_TEST(a_log_survives)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, write_log);
	mount_and_check();
	vu_holds(&u, "train.log", "step 1\n");
	vu_save(&u, "c", "c");
	ck_assert(next_epoch_is_complete());
}
END_TEST

/* However often the daemon starts before that epoch is sealed. */
START_TEST(an_open_file_makes_the_epoch_incomplete)
{
	daemon_dies(NULL, prepare);
	ck_assert(!was_said(daemon_dies("write.done", edit), SAID_END));
	mount_and_check();
	vu_holds(&u, "a", "THE old content");
	ck_assert(!next_epoch_is_complete());
	vu_save(&u, "a", "whole");
	ck_assert(next_epoch_is_complete());
}
END_TEST

static void kill_a_writer_alone(void)
{
	struct vu_child c = vu_child();
	struct handle *h = NULL;
	siginfo_t info;

	unit_ok(vu_open_as(&u, "a", O_WRONLY | O_TRUNC, c.pid, &h));
	vu_write(h, "half", 0);
	kill(c.pid, SIGKILL);
	waitid(P_PID, (id_t)c.pid, &info, WEXITED | WNOWAIT);
	unit_ok(handle_flush(h, c.pid, NULL, NULL));
	handle_release(h, false);
	vu_child_wait(&c);
}

static void kill_a_writer(void)
{
	vu_save(&u, "c", "closed in order");
	kill_a_writer_alone();
}

START_TEST(a_killed_writer_is_remembered)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, kill_a_writer);
	mount_and_check();
	vu_holds(&u, "a", "the old content");
	ck_assert(!next_epoch_is_complete());
}
END_TEST

/* The second save since the newest complete epoch, of two files: one is closed, and not committed yet. */
static void end_in_a_second_save(void)
{
	struct handle *a, *b;

	vu_save(&u, "b", "of the first save");
	a = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	b = vu_open(&u, "b", O_WRONLY | O_TRUNC);
	vu_write(a, "half", 0);
	vu_write(b, "of the second save", 0);
	unit_ok(handle_flush(b, getpid(), NULL, NULL));
}

/* The same, where the daemon had seen the kill, and the other file was closed after that. */
static void end_after_a_kill_in_a_second_save(void)
{
	struct handle *b;

	vu_save(&u, "b", "of the first save");
	b = vu_open(&u, "b", O_WRONLY | O_TRUNC);
	vu_write(b, "of the second save", 0);
	kill_a_writer_alone();
	unit_ok(handle_flush(b, getpid(), NULL, NULL));
}

START_TEST(what_was_closed_before_a_crash_is_not_saved_again_by_the_recovery)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, _i ? end_after_a_kill_in_a_second_save : end_in_a_second_save);
	mount_and_check();
	vu_holds(&u, "a", "the old content");
	vu_holds(&u, "b", "of the second save");
	ck_assert(!next_epoch_is_complete());
	ck_assert(!next_epoch_is_complete());
	vu_save(&u, "a", "of the second save");
	ck_assert(next_epoch_is_complete());
}
END_TEST

static void two_replacements(void)
{
	struct vu_child other = vu_child();
	struct handle *mine = vu_open(&u, "a", O_WRONLY | O_TRUNC), *theirs = NULL;

	unit_ok(vu_open_as(&u, "a", O_WRONLY | O_TRUNC, other.pid, &theirs));
	vu_write(mine, "closed last", 0);
	/* Written last, closed first: the times of the files do not tell the order of the closes. */
	for (int64_t start = clock_wall_ns(); clock_wall_ns() - start < 20 * NS_PER_MS;)
		vu_write(theirs, "closed first", 0);
	unit_ok(handle_flush(theirs, other.pid, NULL, NULL));
	unit_ok(handle_flush(mine, getpid(), NULL, NULL));
}

START_TEST(the_last_of_two_closes_wins_after_a_crash)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, two_replacements);
	mount_and_check();
	vu_holds(&u, "a", "closed last");
}
END_TEST

static void roll_back_under_writers(void)
{
	struct vu_child other = vu_child();
	struct handle *mine = vu_open(&u, "a", O_WRONLY | O_TRUNC), *theirs = NULL;
	uint64_t number;

	vu_write(mine, "of before", 0);
	unit_ok(handle_flush(mine, getpid(), NULL, NULL));
	vu_save(&u, "b", "the new content");
	unit_ok(vu_open_as(&u, "b", O_WRONLY | O_TRUNC, other.pid, &theirs));
	vu_write(theirs, "half", 0);
	unit_ok(epochs_rollback(u.vol, 1, &number));
}

/* Of a file that stays as it is and of one that gets its content back: what was open is of neither. */
START_TEST(what_was_open_at_a_rollback_replaces_nothing_after_a_crash)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, roll_back_under_writers);
	mount_and_check();
	vu_holds(&u, "a", "the old content");
	vu_holds(&u, "b", "of another file");
	ck_assert(next_epoch_is_complete());
}
END_TEST

/* ---- power loss ---- */

static void lose_power(void)
{
	mutex_lock(&u.vol->lock);
	unit_ok(state_set_meta(u.vol->state, "boot_id", "of an earlier boot"));
	mutex_unlock(&u.vol->lock);
}

static void cut_object(uint64_t version, off_t size)
{
	cleanup_close int fd = object_open(u.vol, version, O_RDWR);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
}

START_TEST(content_that_power_took_is_torn)
{
	uint64_t a, b;

	vu_mount(&u);
	vu_save(&u, "a", "sixteen bytes ok");
	vu_save(&u, "b", "sixteen bytes ok");
	a = vu_file(&u, "a").closed;
	b = vu_file(&u, "b").closed;
	lose_power();
	cut_object(a, 4);
	vu_remount(&u);
	ck_assert(vu_version(&u, a).torn);
	ck_assert(!vu_version(&u, b).torn);
	ck_assert_uint_eq(vu_version(&u, a).size, 16);
	sound();
	vu_holds(&u, "b", "sixteen bytes ok");
	ck_assert(!next_epoch_is_complete());
}
END_TEST

/* The size and the time of a replacement reach the disk before its bytes; its close was promised. */
static void lose_bytes_of_a_replacement(void)
{
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	static char data[65536];
	cleanup_close int fd = -1;
	struct state_version v;
	struct stat st;

	memset(data, 'x', sizeof(data));
	ck_assert_int_eq(handle_write(h, data, sizeof(data), 0, NULL, NULL), sizeof(data));
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	unit_ok(state_version_get(u.vol->state, h->body->version, &v));
	fd = object_open(u.vol, v.id, O_RDWR);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	v.flushed_ctime_ns = stat_ctime(&st);
	mutex_lock(&u.vol->lock);
	unit_ok(state_begin(u.vol->state));
	unit_ok(state_end(u.vol->state, state_version_set(u.vol->state, &v)));
	mutex_unlock(&u.vol->lock);
	lose_power();
}

START_TEST(a_replacement_whose_bytes_power_took_is_undone)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, lose_bytes_of_a_replacement);
	mount_and_check();
	vu_holds(&u, "a", "the old content");
}
END_TEST

START_TEST(a_cut_off_archive_is_torn)
{
	uint64_t a;

	vu_mount(&u);
	vu_save(&u, "a.npz", "PK\003\004 and no directory at its end, though it is long enough");
	a = vu_file(&u, "a.npz").closed;
	vu_remount(&u);
	ck_assert(!vu_version(&u, a).torn);
	lose_power();
	vu_remount(&u);
	ck_assert(vu_version(&u, a).torn);
}
END_TEST

START_TEST(content_without_a_file_is_torn_but_has_its_size)
{
	char data[32];
	struct handle *h;
	uint64_t a;

	vu_mount(&u);
	vu_save(&u, "a", "sixteen bytes ok");
	a = vu_file(&u, "a").closed;
	unit_ok(object_remove(u.vol, a));
	vu_remount(&u);
	ck_assert(vu_version(&u, a).torn);
	h = vu_open(&u, "a", O_RDONLY);
	ck_assert_int_eq(handle_read(h, data, sizeof(data), 0, NULL, NULL), 16);
	handle_release(h, false);
	sound();
}
END_TEST

START_TEST(synced_content_is_marked_so)
{
	struct handle *h;

	vu_mount(&u);
	h = vu_open(&u, "a", O_RDWR | O_CREAT);
	vu_write(h, "safe", 0);
	unit_ok(handle_fsync(h, false));
	vu_close(h);
	ck_assert(vu_version(&u, vu_file(&u, "a").closed).fsynced);
	h = vu_open(&u, "b", O_RDWR | O_CREAT);
	vu_write(h, "safe", 0);
	unit_ok(handle_fsync(h, false));
	vu_write(h, "not safe any more", 4);
	vu_close(h);
	ck_assert(!vu_version(&u, vu_file(&u, "b").closed).fsynced);
}
END_TEST

/* ---- opening ---- */

START_TEST(a_cache_is_used_by_one_mount_at_a_time)
{
	struct volume_options o;
	struct volume *second;
	char *message = NULL;
	char pid[16];

	vu_mount(&u);
	vu_options(&u, &o);
	unit_error(volume_open(&o, &second, &message), -ENOTUNIQ);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	ck_assert(message && strstr(message, pid));
	ck_assert(message && strstr(message, "cache-dir"));
	free(message);
}
END_TEST

/* ---- a database that cannot tell ---- */

static int selects, refused;

static int authorize(void *arg, int action, const char *table, const char *column,
		     const char *database, const char *trigger)
{
	(void)arg, (void)column, (void)database, (void)trigger;
	if (action == SQLITE_SELECT)
		selects++;
	return action == SQLITE_READ && strcmp(table, "versions") == 0 && selects == refused
		       ? SQLITE_DENY
		       : SQLITE_OK;
}

static int watch(sqlite3 *db, const char **ret_message, const struct sqlite3_api_routines *api)
{
	(void)ret_message, (void)api;
	return sqlite3_set_authorizer(db, authorize, NULL);
}

/* Whichever query about versions fails. */
START_TEST(content_of_which_the_database_cannot_tell_stays)
{
	struct volume_options o;
	unsigned failed = 0;

	vu_mount(&u);
	vu_save(&u, "a", "precious");
	volume_close(u.vol);
	vu_options(&u, &o);
	ck_assert_int_eq(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
	for (refused = 1; refused < 30; refused++) {
		char *message = NULL;

		selects = 0;
		u.vol = NULL;
		if (volume_open(&o, &u.vol, &message))
			failed++;
		else
			volume_close(u.vol);
		free(message);
	}
	u.vol = NULL;
	sqlite3_reset_auto_extension();
	ck_assert_uint_gt(failed, 0);
	vu_mount(&u);
	vu_holds(&u, "a", "precious");
}
END_TEST

START_TEST(what_is_no_volume_is_refused)
{
	struct volume_options o;
	struct volume *vol;
	char *message = NULL;
	char *dir = unit_dir(), *path = unit_path(dir, "thesis.txt");

	close(open(path, O_CREAT | O_WRONLY, 0600));
	free(u.remote);
	u.remote = dir;
	vu_options(&u, &o);
	unit_error(volume_open(&o, &vol, &message), -EBADMSG);
	ck_assert(message && strstr(message, "thesis.txt"));
	free(message);
	unlink(path);
	o.read_only = true;
	unit_error(volume_open(&o, &vol, &message), -ENOENT);
	free(message);
	o.read_only = false;
	unit_ok(volume_open(&o, &vol, &message));
	volume_close(vol);
	free(path);
}
END_TEST

START_TEST(without_a_remote_a_cache_directory_is_asked_for)
{
	struct volume_options o;
	struct volume *vol;
	char *message = NULL;

	volume_options_init(&o);
	unit_error(volume_open(&o, &vol, &message), -EINVAL);
	ck_assert(message && strstr(message, "cache-dir"));
	free(message);
	o.at_epoch = 1;
	unit_error(volume_open(&o, &vol, &message), -EINVAL);
	free(message);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_recover");
	TCase *t = unit_case(s, "recover");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, the_daemon_dies, 0, (int)(sizeof(scenarios) / sizeof(scenarios[0])));
	tcase_add_loop_test(t, recovery_dies, 0, 4);
	tcase_add_test(t, a_log_survives);
	tcase_add_test(t, an_open_file_makes_the_epoch_incomplete);
	tcase_add_test(t, a_killed_writer_is_remembered);
	tcase_add_loop_test(t, what_was_closed_before_a_crash_is_not_saved_again_by_the_recovery, 0,
			    2);
	tcase_add_test(t, the_last_of_two_closes_wins_after_a_crash);
	tcase_add_test(t, what_was_open_at_a_rollback_replaces_nothing_after_a_crash);
	tcase_add_test(t, content_that_power_took_is_torn);
	tcase_add_test(t, a_replacement_whose_bytes_power_took_is_undone);
	tcase_add_test(t, a_cut_off_archive_is_torn);
	tcase_add_test(t, content_without_a_file_is_torn_but_has_its_size);
	tcase_add_test(t, synced_content_is_marked_so);
	tcase_add_test(t, a_cache_is_used_by_one_mount_at_a_time);
	tcase_add_test(t, content_of_which_the_database_cannot_tell_stays);
	tcase_add_test(t, what_is_no_volume_is_refused);
	tcase_add_test(t, without_a_remote_a_cache_directory_is_asked_for);
	return unit_run(s);
}
