/* SPDX-License-Identifier: Apache-2.0 */
/* Serving until the mount is gone, and ending in order. */
#include "fs/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/files.h"
#include "fs/life.h"
#include "fs/loop.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/log.h"

#define BUSY_POLL_MS 100
/* After the connection was cut, its threads end at once. */
#define CUT_WAIT_MS 5000
#define ECHO_NS	    (2 * NS_PER_S)
/* A restart waits so long for requests that are being answered; the others are sent again. */
#define RESTART_WAIT_NS (3 * NS_PER_S)

struct server {
	struct fs_mount *m;
	int signal_fd;
	/* The last signal: whose, and when. */
	pid_t signal_from;
	int64_t signal_ns;
};

extern char **environ;

/* ---- the system's list of mounts ---- */

/* Undoes the \040 of mountinfo, in place. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		unsigned value;

		if (s[0] == '\\' && sscanf(s + 1, "%3o", &value) == 1) {
			*to++ = (char)value;
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = 0;
}

/* Looks for a mount of this device ("" for any) on this point: the last one, which lies on top. */
static bool find_mount(const char *device, const char *mountpoint, char ret_device[24])
{
	cleanup_fclose FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (f && getline(&line, &room, f) > 0) {
		char dev[24];
		int start = 0, end = 0;

		if (sscanf(line, "%*d %*d %23s %*s %n%*s%n", dev, &start, &end) < 1 || end == 0)
			continue;
		line[end] = 0;
		unescape(line + start);
		if (strcmp(line + start, mountpoint) || (*device && strcmp(dev, device)))
			continue;
		found = true;
		memcpy(ret_device, dev, sizeof(dev));
	}
	return found;
}

void serve_find_device(struct fs_mount *m)
{
	char device[24];

	if (find_mount("", m->mountpoint, device))
		memcpy(m->device, device, sizeof(device));
}

static bool is_mounted(const struct fs_mount *m)
{
	char device[24];

	return find_mount(m->device, m->mountpoint, device);
}

/* ---- unmounting ---- */

/* Where we may not unmount ourselves, the setuid helper may. */
static int run_fusermount(const struct fs_mount *m, bool lazy)
{
	const char *const argv[] = {"fusermount3", lazy ? "-uqz" : "-uq", "--", m->mountpoint,
				    NULL};
	int status;
	pid_t pid;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ))
		return -ENOENT;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return status == 0 ? 0 : -EBUSY;
}

/* 0, or -EBUSY while somebody uses the mount. */
static int unmount_idle(const struct fs_mount *m)
{
	if (umount2(m->mountpoint, UMOUNT_NOFOLLOW) == 0)
		return 0;
	return errno == EPERM ? run_fusermount(m, false) : -errno;
}

/* Takes the mount away from those who use it: their files end as if the machine had died. */
static void cut(const struct fs_mount *m)
{
	const char *minor = strchr(m->device, ':');
	char path[64];
	cleanup_close int fd = -1;

	log_warn("%s: files are still open: cutting them off", m->mountpoint);
	if (umount2(m->mountpoint, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		return;
	(void)run_fusermount(m, true);
	if (!minor)
		return;
	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%s/abort", minor + 1);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "1", 1) < 0)
		log_warn("%s: %s", path, strerror(errno));
}

/* ---- signals ---- */

/* Who ends all processes of a service signals this one and the supervisor, which passes it on: that is one signal. */
static bool is_echo(struct server *s, pid_t from)
{
	pid_t supervisor = s->m->life ? (pid_t)s->m->life->table.start->supervisor : 0;
	bool soon = s->signal_ns && clock_mono_ns() - s->signal_ns < ECHO_NS;
	bool echo = soon && from != s->signal_from &&
		    (from == supervisor || s->signal_from == supervisor);

	s->signal_from = from;
	s->signal_ns = clock_mono_ns();
	return supervisor && echo;
}

/* Waits for a signal, the end, or fs_restart: their bits as below. */
#define GOT_SIGNAL  1
#define GOT_END	    2
#define GOT_RESTART 4
static int wait_for(struct server *s, int timeout_ms)
{
	struct pollfd fds[] = {
		{.fd = s->signal_fd, .events = POLLIN},
		{.fd = loop_ended_fd(s->m->loop), .events = POLLIN},
		{.fd = s->m->restart_fd, .events = POLLIN},
	};
	struct signalfd_siginfo info;
	int got = 0;

	if (poll(fds, 3, timeout_ms) <= 0)
		return 0;
	if (fds[0].revents && read(s->signal_fd, &info, sizeof(info)) > 0 &&
	    !is_echo(s, (pid_t)info.ssi_pid))
		got |= GOT_SIGNAL;
	if (fds[1].revents)
		got |= GOT_END;
	if (fds[2].revents)
		got |= GOT_RESTART;
	return got;
}

static bool another_signal(void *arg)
{
	return wait_for(arg, 0) & GOT_SIGNAL;
}

/* A signal came: true where the connection had to be cut. */
static bool end_by_signal(struct server *s)
{
	int64_t deadline = clock_mono_ns() + FS_BUSY_GRACE_S * NS_PER_S;
	int r = volume_finish(s->m->vol, false, another_signal, s);
	bool hurry = r == -EINTR;
	int got;

	if (r < 0)
		log_warn("%s: cannot seal at the end: %s", s->m->mountpoint, strerror(-r));
	for (;;) {
		r = unmount_idle(s->m);
		if (r == 0 || r == -EINVAL || r == -ENOENT)
			return false; /* -EINVAL: it is gone already */
		if (hurry || clock_mono_ns() >= deadline)
			break;
		got = wait_for(s, BUSY_POLL_MS);
		if (got & GOT_END)
			return false;
		hurry = got & GOT_SIGNAL;
	}
	cut(s->m);
	return true;
}

/* They stay blocked: one more of them must not disturb the end of the process. */
static int open_signals(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/* ---- serving ---- */

/*
 * After the end of the connection. The kernel unmounts in order only when all files are closed, but
 * may drop the last RELEASEs: these closes count. Else -EBUSY where a writer was cut off.
 */
static int release_files(struct fs_mount *m, bool was_cut)
{
	if ((was_cut || is_mounted(m)) && files_written(m))
		return -EBUSY;
	files_release_all(m);
	return 0;
}

/* Waits for the end: true where the connection had to be cut. */
static bool serve(struct server *s, bool *ret_restarts)
{
	bool was_cut = false;
	int got;

	do {
		got = wait_for(s, -1);
		if (got & GOT_SIGNAL && !(got & GOT_END) && !was_cut)
			was_cut = end_by_signal(s);
	} while (!(got & (GOT_END | GOT_RESTART)) && !was_cut);
	*ret_restarts = !was_cut && !(got & GOT_END);
	return was_cut;
}

/* The supervisor must have the connection before anybody can see that the mount serves. */
static int tell_supervisor(struct fs_mount *m)
{
	int r;

	if (!m->life)
		return 0;
	r = life_send(m->life->socket, LIFE_SERVES, fuse_session_fd(m->se));
	if (r == 0 && m->life->fuse_fd >= 0)
		r = life_resend(m->life->fuse_fd);
	if (r < 0)
		log_error("%s: the supervisor or the kernel does not take part: %s", m->mountpoint,
			  strerror(-r));
	return r;
}

int fs_restart(struct fs_mount *m)
{
	const uint64_t one = 1;

	if (!m->life || life_peer_gone(m->life->socket))
		return -EOPNOTSUPP;
	return write(m->restart_fd, &one, sizeof(one)) < 0 ? -errno : 0;
}

int fs_serve(struct fs_mount *m, void (*ready)(void *arg), void *arg)
{
	struct server s = {.m = m};
	cleanup_close int signal_fd = -1;
	bool was_cut, restarts;
	int r;

	signal_fd = s.signal_fd = open_signals();
	if (s.signal_fd < 0)
		return s.signal_fd;
	r = tell_supervisor(m);
	if (r == 0)
		r = loop_start(m->loop);
	if (r == 0) {
		if (ready)
			ready(arg);
		if (m->life)
			(void)life_send(m->life->socket, LIFE_LOG, STDERR_FILENO);
		was_cut = serve(&s, &restarts);
		if (restarts) {
			loop_stop(m->loop, RESTART_WAIT_NS);
			return -ERESTART;
		}
		volume_unmounted(m->vol);
		if (was_cut && !(wait_for(&s, CUT_WAIT_MS) & GOT_END)) {
			r = -EBUSY; /* its threads still hang in the kernel */
		} else {
			loop_join(m->loop);
			r = release_files(m, was_cut);
		}
	}
	if (r == 0)
		r = volume_finish(m->vol, false, another_signal, &s);
	return r;
}
