/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of opening and recovery share: a volume that is not open yet, daemons that die over it, and what
 * must hold after that. */
#ifndef EPOCHFS_TESTS_RECOVER_UNIT_H
#define EPOCHFS_TESTS_RECOVER_UNIT_H

#include "lib/epochs/epochs.h"
#include "lib/live/handle.h"
#include "tests/unit/volume_unit.h"

static struct vu u;

__attribute__((unused)) static void setup(void)
{
	u = (struct vu){.cache = unit_dir(), .remote = strdup("none")};
}

__attribute__((unused)) static void teardown(void)
{
	if (u.vol)
		volume_close(u.vol);
	free(u.cache);
	free(u.remote);
}

__attribute__((unused)) static TCase *recover_case(Suite *s, const char *name)
{
	TCase *t = unit_case(s, name);

	tcase_add_checked_fixture(t, setup, teardown);
	return t;
}

/* ---- daemons that die ---- */

/* What a daemon did before it died. */
#define SAID_CLOSED 'c' /* flush was answered */
#define SAID_END    'e' /* it came to its end: the fault point was not met */

static int say_fd;

__attribute__((unused)) static void say(char what)
{
	ck_assert_int_eq(write(say_fd, &what, 1), 1);
}

/*
 * Runs `work` on a mounted volume in a process of its own, which dies at the fault point (NULL: at
 * its end, as by kill -9 too), with nothing closed in order. Gives what it said.
 */
__attribute__((unused)) static const char *daemon_dies(const char *fault, void (*work)(void))
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

__attribute__((unused)) static bool was_said(const char *said, char what)
{
	return strchr(said, what) != NULL;
}

/* ---- what must hold after every recovery ---- */

__attribute__((unused)) static int check_version(void *arg, const struct state_version *v)
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

__attribute__((unused)) static int check_file(void *arg, const struct state_name *n,
					      const char *name, const struct state_file *f)
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

__attribute__((unused)) static int no_unlinked(void *arg, const struct state_file *f)
{
	(void)arg;
	ck_abort_msg("inode %llu has no name", (unsigned long long)f->ino);
	return 0;
}

__attribute__((unused)) static void sound(void)
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
__attribute__((unused)) static void mount_and_check(void)
{
	vu_mount(&u);
	vu_remount(&u);
	sound();
}

__attribute__((unused)) static bool next_epoch_is_complete(void)
{
	struct epoch_info e;
	bool complete;

	unit_ok(epochs_get(u.vol, vu_seal(&u), &e));
	complete = e.complete;
	epoch_info_free(&e);
	return complete;
}

/* ---- what a daemon does before it dies ---- */

__attribute__((unused)) static void prepare(void)
{
	vu_save(&u, "a", "the old content");
	vu_save(&u, "b", "of another file");
	vu_seal(&u);
}

__attribute__((unused)) static void close_and_say(struct handle *h)
{
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	say(SAID_CLOSED);
	handle_release(h, false);
}

__attribute__((unused)) static void edit(void)
{
	struct handle *h = vu_open(&u, "a", O_RDWR);

	vu_write(h, "THE", 0);
	close_and_say(h);
}

#endif
