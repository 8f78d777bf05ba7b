/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals that end a wait. The kernel says that a request was interrupted for whatever looks like a signal to it: also for work that
 * it has to do in the thread (a ring of io_uring that ends, a cgroup that is frozen), and for a stop. A program that had no signal must
 * not see EINTR, and one that had does not expect it of a call that takes a moment: no local disk gives it. So what is
 * pending for the thread decides, and for a signal that it catches, how long the request has taken.
 */
#include "fs/fs.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/loop.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/process.h"

/* From here on it is a wait. */
#define WAIT_NS NS_PER_S

#define BIT(number) (UINT64_C(1) << ((number)-1))
/*
 * These end no wait, caught or not: they tell a program what happened beside it, or measure it. A DataLoader catches SIGCHLD, a profiler
 * SIGPROF, and neither wants that a save fails for it. Nor do real-time signals, which timers and libraries use.
 */
#define HARMLESS                                                                                   \
	(BIT(SIGSTOP) | BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU) | BIT(SIGCONT) | BIT(SIGCHLD) | \
	 BIT(SIGURG) | BIT(SIGWINCH) | BIT(SIGPROF) | BIT(SIGVTALRM) | BIT(SIGIO) | REAL_TIME)
#define REAL_TIME (~UINT64_C(0) << 31)

/* The set of signals in a line of /proc/TID/status, such as "SigPnd:"; false where it has none. */
static bool read_set(const char *status, const char *line, uint64_t *ret_set)
{
	const char *p = strstr(status, line);

	if (p)
		*ret_set = strtoull(p + strlen(line), NULL, 16);
	return p;
}

/* The signals that are about to reach the thread; false where that cannot be told. */
static bool pending_signals(pid_t tid, uint64_t *ret_set)
{
	uint64_t own, shared, blocked;
	cleanup_close int fd = -1;
	char path[32], text[8192];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : io_pread_some(fd, text, sizeof(text) - 1, 0);
	if (n < 0)
		return false;
	text[n] = '\0';
	if (!read_set(text, "\nSigPnd:", &own) || !read_set(text, "\nShdPnd:", &shared) ||
	    !read_set(text, "\nSigBlk:", &blocked))
		return false;
	*ret_set = (own | shared) & ~blocked & ~HARMLESS;
	return true;
}

bool request_interrupted(void *arg)
{
	fuse_req_t req = arg;
	uint64_t signals;

	if (fs_of(req)->gone)
		return true;
	if (!fuse_req_interrupted(req))
		return false;
	if (!pending_signals(fuse_req_ctx(req)->pid, &signals))
		return loop_request_age() > WAIT_NS;
	/* The kernel makes SIGKILL of each that ends the process. */
	return signals & BIT(SIGKILL) || (signals && loop_request_age() > WAIT_NS);
}

bool read_interrupted(void *arg)
{
	pid_t pid = fuse_req_ctx(arg)->pid;

	return request_interrupted(arg) || (pid && process_is_ending(pid));
}
