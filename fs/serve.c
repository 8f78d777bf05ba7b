/* SPDX-License-Identifier: Apache-2.0 */
/* Serving until the mount is gone, and ending in order. */
#include "fs/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/files.h"
#include "fs/handover.h"
#include "fs/loop.h"
#include "fs/users.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/end_signals.h"
#include "lib/util/log.h"
#include "lib/util/mountinfo.h"

/* How often an unmount is tried while the mount is busy: rarer and rarer. */
#define BUSY_POLL_MS	 50
#define BUSY_POLL_MAX_MS 1000
/* A restart waits so long for requests that are being answered; the others are sent again. */
#define RESTART_WAIT_NS (3 * NS_PER_S)

struct server {
	struct fs_mount *m;
	int signal_fd;
	struct end_request
		asked; /* hurry: no upload is waited for, nor processes that use nothing */
	/* Done, here; copies in other mount namespaces may keep the connection, and are nobody's to end. */
	bool unmounted;
	int64_t orphaned_ns; /* when a run that had mounted it was found dead; 0: none was */
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

/* Looks for a mount of this device ("" for any) on this point: the last one, which lies on top. 1; 0 where there is none, or -errno. */
static int find_mount(const char *device, const char *mountpoint, char ret_device[24])
{
	cleanup_fclose FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	size_t room = 0;
	int found = 0;

	if (!f)
		return -errno;
	while (getline(&line, &room, f) > 0) {
		char dev[24];
		int start = 0, end = 0;

		if (sscanf(line, "%*d %*d %23s %*s %n%*s%n", dev, &start, &end) < 1 || end == 0)
			continue;
		line[end] = 0;
		unescape(line + start);
		if (strcmp(line + start, mountpoint) || (*device && strcmp(dev, device)))
			continue;
		found = 1;
		memcpy(ret_device, dev, sizeof(dev));
	}
	return ferror(f) ? -EIO : found;
}

void serve_find_device(struct fs_mount *m)
{
	char device[24];

	if (find_mount("", m->mountpoint, device) > 0)
		memcpy(m->device, device, sizeof(device));
}

/* Where it cannot be told, it is: nothing is given up then. */
static bool is_mounted(const struct fs_mount *m)
{
	char device[24];

	return find_mount(m->device, m->mountpoint, device) != 0;
}

/* ---- unmounting ---- */

/* Where we may not unmount ourselves, the setuid helper may. */
static int run_fusermount(const struct fs_mount *m)
{
	const char *const argv[] = {"fusermount3", "-uq", "--", m->mountpoint, NULL};
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

/* Ours is the mount that lies on top; what is below it, or was mounted there since, is another's. */
static bool is_on_top(const struct fs_mount *m)
{
	char device[24];

	/* Where the list did not show it from the start, it tells nothing. */
	return !*m->device ||
	       (find_mount("", m->mountpoint, device) > 0 && !strcmp(device, m->device));
}

/* 0, -EINVAL where it is not there any more, or -EBUSY while somebody uses the mount. */
static int unmount_idle(const struct fs_mount *m)
{
	if (!is_on_top(m))
		return is_mounted(m) ? -EBUSY : -EINVAL;
	if (umount2(m->mountpoint, UMOUNT_NOFOLLOW) == 0)
		return 0;
	return errno == EPERM ? run_fusermount(m) : -errno;
}

/* ---- signals ---- */

/* Says it where what was asked cannot be done now. */
static void tell_held(const struct server *s)
{
	if (users_held(s->m->users))
		log_info("%s: asked to end, which waits until `epochfs run` ends",
			 s->m->mountpoint);
}

/* While a supervisor lives, its word alone counts (handover.h). */
static bool is_supervised(const struct server *s)
{
	return s->m->handover && !handover_peer_gone(s->m->handover->socket);
}

static void take_signals(struct server *s)
{
	struct end_request unheard = {0};

	end_signals_take(s->signal_fd, is_supervised(s) ? &unheard : &s->asked);
}

/* The supervisor has judged its signals by the same rule. */
static void take_word(struct server *s)
{
	int word = handover_take(s->m->handover->socket);

	if (word != HANDOVER_END && word != HANDOVER_HURRY)
		return;
	end_request_note(&s->asked, SIGTERM, false, clock_mono_ns());
	s->asked.hurry |= word == HANDOVER_HURRY;
}

/* Takes in what asks for an end, without waiting. */
static void take_requests(struct server *s)
{
	bool asked = s->asked.first != 0;

	if (is_supervised(s))
		take_word(s);
	take_signals(s);
	if (!asked && s->asked.first)
		tell_held(s);
}

/* Waits for a signal, the end, fs_restart, or the end of a hold: the last three as bits. */
#define GOT_END	    1
#define GOT_RESTART 2
static int wait_for(struct server *s, int timeout_ms)
{
	struct pollfd fds[] = {
		{.fd = s->signal_fd, .events = POLLIN},
		{.fd = loop_ended_fd(s->m->loop), .events = POLLIN},
		{.fd = s->m->restart_fd, .events = POLLIN},
		{.fd = users_fd(s->m->users), .events = POLLIN},
		{.fd = is_supervised(s) ? s->m->handover->socket : -1, .events = POLLIN},
	};
	int got = 0;

	if (poll(fds, 5, timeout_ms) <= 0)
		return 0;
	if (fds[0].revents || fds[4].revents)
		take_requests(s);
	if (fds[1].revents)
		got |= GOT_END;
	if (fds[2].revents)
		got |= GOT_RESTART;
	if (fds[3].revents)
		users_look(s->m->users);
	return got;
}

/* Whether the mount is to end now, of which nobody has taken hold. */
static bool is_to_end(const struct server *s)
{
	struct users *users = s->m->users;

	return !s->unmounted && !users_held(users) &&
	       (s->asked.first || users_orphaned(users) || users_ended(users));
}

/* Until when uploads, and processes that may save once more, are waited for. */
static int64_t deadline_of(const struct server *s)
{
	if (users_ended(s->m->users))
		return 0;
	if (s->asked.first)
		return end_request_deadline(&s->asked, s->m->options.grace_ns);
	/* Nobody told the training command to end; but of processes that we do not know no word will come. */
	return s->orphaned_ns && users_alive(s->m->users) < 0
		       ? s->orphaned_ns + s->m->options.grace_ns
		       : INT64_MAX;
}

static bool grace_is_over(const struct server *s)
{
	return clock_mono_ns() >= deadline_of(s);
}

/* An interrupted_fn of a drain while the mount is there. */
static bool drains_no_longer(void *arg)
{
	struct server *s = arg;

	return wait_for(s, 0) || !is_to_end(s) || grace_is_over(s);
}

static bool drains_no_longer_at_the_end(void *arg)
{
	struct server *s = arg;

	take_requests(s);
	return grace_is_over(s);
}

/* ---- the end by a signal, or after a run ---- */

static void tell_busy(const struct fs_mount *m)
{
	char who[MOUNT_USERS_TEXT];

	mount_users_text(m->mountpoint, who);
	log_info("%s: to be unmounted once it is not in use any more%s%s", m->mountpoint,
		 *who ? ": " : "", who);
}

/* Unmounts as soon as nobody uses the mount, however long that takes. Comes back where there is nothing to wait for, or another hold. */
static void unmount_when_idle(struct server *s)
{
	int pause_ms = BUSY_POLL_MS;
	bool told = false;

	if (!s->orphaned_ns && users_orphaned(s->m->users))
		s->orphaned_ns = clock_mono_ns();
	for (;;) {
		if (grace_is_over(s) || !users_alive(s->m->users)) {
			int r = unmount_idle(s->m);

			if (r == 0 || r == -EINVAL || r == -ENOENT) {
				s->unmounted = true; /* by us, or before */
				return;
			}
			if (!told)
				tell_busy(s->m);
			told = true;
			pause_ms = pause_ms < BUSY_POLL_MAX_MS ? 2 * pause_ms : pause_ms;
		}
		if (wait_for(s, pause_ms) || !is_to_end(s))
			return;
	}
}

static void tell_of_end(const struct server *s, int r)
{
	if (r == -EINTR && grace_is_over(s))
		log_warn("%s: the grace is over: what is not uploaded yet, the next mount uploads",
			 s->m->mountpoint);
	else if (r < 0 && r != -EINTR)
		log_warn("%s: cannot seal or upload at the end: %s", s->m->mountpoint,
			 strerror(-r));
}

static void end_in_order(struct server *s)
{
	int r = volume_finish(s->m->vol, !grace_is_over(s), drains_no_longer, s);

	tell_of_end(s, r);
	unmount_when_idle(s);
}

/* ---- serving ---- */

/*
 * After the end of the connection. The kernel unmounts in order only when all files are closed, but
 * may drop the last RELEASEs: these closes count. Else -EBUSY where a writer was cut off.
 */
static int release_files(struct fs_mount *m)
{
	if (is_mounted(m) && files_written(m))
		return -EBUSY;
	files_release_all(m);
	return 0;
}

/* Until the connection has ended: false; or true where a restart was asked for. */
static bool serve(struct server *s)
{
	for (;;) {
		int got = wait_for(s, is_to_end(s) ? 0 : -1);

		if (got & GOT_END)
			return false;
		if (got & GOT_RESTART)
			return true;
		if (is_to_end(s))
			end_in_order(s);
	}
}

/* All that is closed is sealed; what of it the grace suffices for, is uploaded. */
static int finish(struct server *s)
{
	if (s->asked.first && !grace_is_over(s))
		tell_of_end(s, volume_finish(s->m->vol, true, drains_no_longer_at_the_end, s));
	return volume_finish(s->m->vol, false, drains_no_longer_at_the_end, s);
}

/* The supervisor must have the connection before anybody can see that the mount serves. */
static int tell_supervisor(struct fs_mount *m)
{
	int r;

	if (!m->handover)
		return 0;
	r = handover_send(m->handover->socket, HANDOVER_SERVES, fuse_session_fd(m->se));
	if (r == 0 && m->handover->fuse_fd >= 0)
		r = handover_resend(m->handover->fuse_fd);
	if (r < 0)
		log_error("%s: the supervisor or the kernel does not take part: %s", m->mountpoint,
			  strerror(-r));
	return r;
}

int fs_restart(struct fs_mount *m)
{
	const uint64_t one = 1;

	if (!m->handover || handover_peer_gone(m->handover->socket))
		return -EOPNOTSUPP;
	return write(m->restart_fd, &one, sizeof(one)) < 0 ? -errno : 0;
}

int fs_serve(struct fs_mount *m, bool (*ready)(void *arg), void *arg)
{
	struct server s = {.m = m};
	cleanup_close int signal_fd = -1;
	int r;

	/* They stay blocked: one more of them must not disturb the end of the process. */
	signal_fd = s.signal_fd = end_signals_open();
	if (s.signal_fd < 0)
		return s.signal_fd;
	r = tell_supervisor(m);
	if (r == 0)
		r = loop_start(m->loop);
	if (r < 0)
		return r;
	if (ready && !ready(arg))
		users_end(m->users);
	if (m->handover)
		(void)handover_send(m->handover->socket, HANDOVER_LOG, STDERR_FILENO);
	if (serve(&s)) {
		loop_stop(m->loop, RESTART_WAIT_NS);
		return -ERESTART;
	}
	volume_unmounted(m->vol);
	loop_join(m->loop);
	r = release_files(m);
	return r < 0 ? r : finish(&s);
}
