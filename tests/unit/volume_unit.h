/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests of open files need: a volume without a mount, callers, files by name. */
#ifndef EPOCHFS_TESTS_VOLUME_UNIT_H
#define EPOCHFS_TESTS_VOLUME_UNIT_H

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/epochs/epochs.h"
#include "lib/live/handle.h"
#include "lib/live/live.h"
#include "lib/util/clock.h"
#include "lib/live/bodies.h"
#include "lib/live/body.h"
#include "lib/volume/volume.h"
#include "tests/unit/unit.h"

/* Files are named in the root directory; `settle` is long, so that no epoch seals by itself. */
struct vu {
	char *cache, *remote;
	struct volume *vol;
};

/* As the program has it by itself; else the sealer's own rules (sealer.h), which some tests are of. */
__attribute__((unused)) static bool vu_by_saves = true;

__attribute__((unused)) static void vu_options(const struct vu *u, struct volume_options *o)
{
	volume_options_init(o);
	o->remote = u->remote;
	o->cache_dir = u->cache;
	o->settle_ns = 3600 * NS_PER_S;
	o->by_saves = vu_by_saves;
	o->resume = RESUME_OFF;
	o->min_free_percent = 0;
	if (unit_is_hurried())
		o->lease_ns = LEASE_MIN_NS;
}

__attribute__((unused)) static void vu_mount(struct vu *u)
{
	struct volume_options o;
	char *message = NULL;
	int error;

	vu_options(u, &o);
	error = volume_open(&o, &u->vol, &message);
	ck_assert_msg(!error, "volume_open: %d: %s", error, message ? message : "");
}

__attribute__((unused)) static void vu_start(struct vu *u)
{
	u->cache = unit_dir();
	u->remote = strdup("none");
	vu_mount(u);
}

__attribute__((unused)) static void vu_remount(struct vu *u)
{
	volume_close(u->vol);
	vu_mount(u);
}

__attribute__((unused)) static void vu_stop(struct vu *u)
{
	volume_close(u->vol);
	free(u->cache);
	free(u->remote);
}

__attribute__((unused)) static struct live_caller vu_caller(pid_t pid)
{
	return (struct live_caller){.uid = getuid(), .gid = getgid(), .pid = pid};
}

/* As the kernel does it: looks up, opens or creates, and where it is told ESTALE, once more. */
__attribute__((unused)) static int vu_open_as(struct vu *u, const char *name, int flags, pid_t pid,
					      struct handle **ret_handle)
{
	struct live_caller who = vu_caller(pid);
	struct live_attr attr;
	int error = -ESTALE;

	for (int i = 0; i < 2 && error == -ESTALE; i++) {
		error = live_lookup(u->vol, ROOT_INO, name, pid, &attr);
		if (error == -ENOENT && (flags & O_CREAT))
			return handle_create(u->vol, ROOT_INO, name, 0644, flags, &who, &attr,
					     ret_handle);
		if (!error)
			error = handle_open(u->vol, attr.ino, attr.body, flags & ~O_CREAT, &who,
					    NULL, NULL, ret_handle);
	}
	return error;
}

__attribute__((unused)) static struct handle *vu_open(struct vu *u, const char *name, int flags)
{
	struct handle *h = NULL;

	unit_ok(vu_open_as(u, name, flags, getpid(), &h));
	return h;
}

__attribute__((unused)) static void vu_write(struct handle *h, const char *text, uint64_t offset)
{
	ck_assert_int_eq(handle_write(h, text, strlen(text), offset, NULL, NULL),
			 (ssize_t)strlen(text));
}

__attribute__((unused)) static void vu_close(struct handle *h)
{
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	handle_release(h, false);
}

/* What the kernel has of a node with passthrough: its registered backing file. */
struct vu_grant {
	struct grant *grant;
	int fd;
};

__attribute__((unused)) static struct vu_grant vu_grant(struct handle *h)
{
	struct vu_grant g;

	unit_ok(handle_grant(h, &g.grant, &g.fd));
	ck_assert_int_ge(g.fd, 0);
	return g;
}

/* The node's last file is closed. */
__attribute__((unused)) static void vu_give_back(struct vu *u, const struct vu_grant *g)
{
	close(g->fd);
	grant_release(u->vol, g->grant);
}

/* A whole file, closed. */
__attribute__((unused)) static void vu_save(struct vu *u, const char *name, const char *text)
{
	struct handle *h = vu_open(u, name, O_WRONLY | O_CREAT | O_TRUNC);

	vu_write(h, text, 0);
	vu_close(h);
}

__attribute__((unused)) static void vu_handle_holds(struct handle *h, const char *text)
{
	char data[4096];
	ssize_t n = handle_read(h, data, sizeof(data) - 1, 0, NULL, NULL);

	ck_assert_int_ge(n, 0);
	data[n] = '\0';
	ck_assert_str_eq(data, text);
}

/* What a process of its own sees under the name. */
__attribute__((unused)) static void vu_holds_for(struct vu *u, const char *name, const char *text,
						 pid_t pid)
{
	struct handle *h = NULL;
	struct live_attr attr;

	unit_ok(vu_open_as(u, name, O_RDONLY, pid, &h));
	vu_handle_holds(h, text);
	unit_ok(live_getattr(u->vol, handle_ino(h), handle_body(h), &attr));
	ck_assert_uint_eq(attr.size, strlen(text));
	handle_release(h, false);
}

/* What everyone sees: a process that writes nothing (1 is always there). */
__attribute__((unused)) static void vu_holds(struct vu *u, const char *name, const char *text)
{
	vu_holds_for(u, name, text, 1);
}

__attribute__((unused)) static void vu_missing(struct vu *u, const char *name)
{
	struct live_attr attr;

	unit_error(live_lookup(u->vol, ROOT_INO, name, 1, &attr), -ENOENT);
}

__attribute__((unused)) static struct state_file vu_file(struct vu *u, const char *name)
{
	struct state_name n;
	struct state_file f;

	mutex_lock(&u->vol->lock);
	unit_ok(state_name_get(u->vol->state, ROOT_INO, name, &n));
	unit_ok(state_file_get(u->vol->state, n.ino, &f));
	mutex_unlock(&u->vol->lock);
	return f;
}

__attribute__((unused)) static struct state_version vu_version(struct vu *u, uint64_t id)
{
	struct state_version v;

	mutex_lock(&u->vol->lock);
	unit_ok(state_version_get(u->vol->state, id, &v));
	mutex_unlock(&u->vol->lock);
	return v;
}

/* A child that exits with this status when it is told to, by a byte or by closing `go`. */
struct vu_child {
	pid_t pid;
	int go, ready;
};

__attribute__((unused)) static struct vu_child vu_child_exiting(int status)
{
	struct vu_child c = {0};
	int go[2];
	char byte;

	/* check's own handlers, inherited, would end the whole test; a shell's background job ignores
	 * SIGINT and SIGQUIT. */
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	c.pid = fork();
	ck_assert_int_ge(c.pid, 0);
	if (!c.pid) {
		/* Nothing of the volume is kept open, its lock least of all. */
		dup2(go[0], STDIN_FILENO);
		close_range(STDERR_FILENO + 1, ~0u, 0);
		_exit(read(STDIN_FILENO, &byte, 1) < 0 ? 99 : status);
	}
	close(go[0]);
	c.go = go[1];
	return c;
}

__attribute__((unused)) static struct vu_child vu_child(void)
{
	return vu_child_exiting(0);
}

__attribute__((unused)) static void vu_child_wait(struct vu_child *c)
{
	close(c->go);
	waitpid(c->pid, NULL, 0);
}

/* Sealed now, whatever is open. */
__attribute__((unused)) static uint64_t vu_seal(struct vu *u)
{
	struct epochs_seal how = {.trigger = "commit"};
	uint64_t number = 0;

	unit_ok(epochs_seal(u->vol, &how, &number));
	return number;
}

#endif
