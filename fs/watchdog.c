/* SPDX-License-Identifier: Apache-2.0 */
/* The process that ends the connection to the kernel when the daemon was killed. */
#include "fs/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/handover.h"
#include "lib/util/log.h"

#define PARENT_GONE SIGUSR1

/* What the child needs, made before it: it may call nothing that takes a lock of the daemon. */
struct watched {
	pid_t daemon;
	const char *mountpoint;
	unsigned major, minor; /* of the mount */
	int handover;	       /* of a supervised mount the socket (handover.h); else -1 */
	char abort_file[64];   /* in the file system fusectl, where that is mounted */
};

/* Whether this is our mount's root; asks nothing of the daemon. */
static bool is_ours(const struct watched *w, int fd)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) == 0 &&
	       st.stx_dev_major == w->major && st.stx_dev_minor == w->minor;
}

static void abort_by_file(const struct watched *w)
{
	int fd = open(w->abort_file, O_WRONLY | O_CLOEXEC);

	/* Nobody is left who could be told of a failure. */
	if (fd >= 0 && write(fd, "1", 1) == 1)
		return;
}

/*
 * The descriptor keeps the mount busy: so the force ends the connection and does not unmount, and
 * no program writes into the directory below by mistake.
 */
static void abort_connection(const struct watched *w)
{
	char path[32];
	int fd = open(w->mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || !is_ours(w, fd))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (umount2(path, MNT_FORCE) < 0 && errno == EPERM)
		abort_by_file(w);
}

static void keep_only(int fd)
{
	if (fd > 0)
		close_range(0, (unsigned)fd - 1, 0);
	close_range((unsigned)(fd + 1), ~0U, 0);
}

/* The child. The daemon's descriptors must not live on in it: locks, and /dev/fuse itself. */
static _Noreturn void watch(const struct watched *w)
{
	siginfo_t info;
	sigset_t set;

	keep_only(w->handover);
	prctl(PR_SET_NAME, "epochfs-watch");
	sigfillset(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);
	sigemptyset(&set);
	sigaddset(&set, PARENT_GONE);
	if (chdir("/") < 0 || prctl(PR_SET_PDEATHSIG, PARENT_GONE) < 0)
		_exit(1);
	/* Of a process that ends comes the signal with its own id; others may send it by mistake. */
	while (getppid() == w->daemon && (sigwaitinfo(&set, &info) < 0 || info.si_pid != w->daemon))
		;
	/* A supervisor that is there starts another worker. */
	if (w->handover < 0 || handover_peer_gone(w->handover) ||
	    handover_send(w->handover, HANDOVER_DEAD, -1) < 0)
		abort_connection(w);
	_exit(0);
}

void watchdog_start(struct fs_mount *m)
{
	struct watched w = {.daemon = getpid(),
			    .mountpoint = m->mountpoint,
			    .handover = m->handover ? m->handover->socket : -1};
	pid_t pid;

	if (sscanf(m->device, "%u:%u", &w.major, &w.minor) != 2)
		return;
	snprintf(w.abort_file, sizeof(w.abort_file), "/sys/fs/fuse/connections/%u/abort", w.minor);
	pid = fork();
	if (pid == 0)
		watch(&w);
	if (pid < 0)
		log_warn("no watchdog (%s): if this process is killed, `umount -f` may be needed",
			 strerror(errno));
	else
		m->watchdog = pid;
}

void watchdog_stop(struct fs_mount *m)
{
	if (!m->watchdog)
		return;
	kill(m->watchdog, SIGKILL);
	while (waitpid(m->watchdog, NULL, 0) < 0 && errno == EINTR)
		;
	m->watchdog = 0;
}
