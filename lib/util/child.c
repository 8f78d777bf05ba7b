/* SPDX-License-Identifier: Apache-2.0 */
/* Starting, hearing and ending the program that a remote runs. */
#include "lib/util/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "lib/util/log.h"

#define TIDY_MS	    500 /* between SIGTERM and SIGKILL */
#define PIPE_BYTES  (1 << 20)
#define LINES_SHOWN 8

/* Two connected ends, the first to read from, that are not among the three standard descriptors,
 * which the child's would overwrite each other on. */
static int high_pair(bool socket, int ret_ends[2])
{
	int ends[2];

	if ((socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
		    : pipe2(ends, O_CLOEXEC)) < 0)
		return -errno;
	for (int i = 0; i < 2; i++) {
		int high = ends[i] > 2 ? ends[i] : fcntl(ends[i], F_DUPFD_CLOEXEC, 3);

		if (high < 0) {
			close(ends[0]);
			close(ends[1]);
			return -EMFILE;
		}
		if (high != ends[i])
			close(ends[i]);
		ends[i] = high;
	}
	/* Fewer switches between the two; a smaller pipe does as well. */
	fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES);
	memcpy(ret_ends, ends, sizeof(ends));
	return 0;
}

static void close_fd(int *fd)
{
	cleanup_close_fn(fd);
	*fd = -1;
}

/* Without memory the actions fail; then so does posix_spawn or we say so. */
static int add_actions(posix_spawn_file_actions_t *actions, const int fds[3])
{
	int error = 0;

	for (int i = 0; i < 3 && !error; i++)
		error = posix_spawn_file_actions_adddup2(actions, fds[i], i);
	/* Libraries of ours may not mark theirs close-on-exec. */
	return error ? error : posix_spawn_file_actions_addclosefrom_np(actions, 3);
}

static int add_attributes(posix_spawnattr_t *attr)
{
	sigset_t all, none;
	int error;

	sigfillset(&all);
	sigemptyset(&none);
	error = posix_spawnattr_setsigdefault(attr, &all);
	if (!error)
		error = posix_spawnattr_setsigmask(attr, &none);
	if (!error)
		error = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
							       POSIX_SPAWN_SETSIGMASK);
	return error;
}

/* posix_spawn with all of the above: 0 or a positive errno. */
static int spawn(const char *const *argv, const int fds[3], pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int error;

	if (posix_spawn_file_actions_init(&actions) != 0)
		return ENOMEM;
	if (posix_spawnattr_init(&attr) != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return ENOMEM;
	}
	error = add_actions(&actions, fds);
	if (!error)
		error = add_attributes(&attr);
	if (!error)
		error = posix_spawnp(ret_pid, argv[0], &actions, &attr, (char *const *)argv,
				     environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

static int start_error(int error)
{
	switch (error) {
	case ENOENT:
	case ENOTDIR:
		return -ENOENT;
	case EACCES:
	case EPERM:
	case ENOEXEC:
	case EISDIR:
		return -EACCES;
	case ENOMEM:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

static int set_nonblocking(int fd)
{
	return fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* Gives the child our ends of the pipes, and starts it with the others. */
static int start_on(const char *const *argv, int input, int in[2], int out[2], int err[2],
		    struct child *c)
{
	const int fds[3] = {input >= 0 ? input : in[0], out[1], err[1]};
	int error;

	if (set_nonblocking(in[1]) || set_nonblocking(out[0]) || set_nonblocking(err[0]))
		return -EIO;
	error = spawn(argv, fds, &c->pid);
	if (error) {
		c->pid = 0;
		return start_error(error);
	}
	c->in = steal_fd(&in[1]);
	c->out = steal_fd(&out[0]);
	c->err = steal_fd(&err[0]);
	c->pidfd = pidfd_open(c->pid, 0);
	if (c->pidfd < 0) {
		child_end(c);
		return -EIO;
	}
	return 0;
}

int child_start(const char *const *argv, int input, struct child *c)
{
	int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
	struct child fresh = NO_CHILD;
	int error = input < 0 ? high_pair(true, in) : 0;

	if (!error)
		error = high_pair(false, out);
	if (!error)
		error = high_pair(false, err);
	error = error ? -EIO : start_on(argv, input, in, out, err, &fresh);
	for (int i = 0; i < 2; i++) {
		close_fd(&in[i]);
		close_fd(&out[i]);
		close_fd(&err[i]);
	}
	if (!error)
		*c = fresh;
	return error;
}

/* ---- what it says */

static void keep(struct child *c, const char *text, size_t len)
{
	size_t over;

	if (len > CHILD_SAID_MAX) {
		text += len - CHILD_SAID_MAX;
		len = CHILD_SAID_MAX;
	}
	over = c->said_len + len > CHILD_SAID_MAX ? c->said_len + len - CHILD_SAID_MAX : 0;
	memmove(c->said, c->said + over, c->said_len - over);
	memcpy(c->said + c->said_len - over, text, len);
	c->said_len += len - over;
	c->said[c->said_len] = '\0';
}

void child_listen(struct child *c)
{
	char part[4096];
	ssize_t n = 0;

	/* Bounded, so that one who never stops talking does not keep us here. */
	for (int i = 0; i < 64 && c->err >= 0; i++) {
		n = read(c->err, part, sizeof(part));
		if (n < 0)
			break;
		if (n == 0)
			close_fd(&c->err);
		keep(c, part, (size_t)n);
	}
}

/* NUL and other control characters become spaces; newlines part the lines. */
static void make_printable(struct child *c)
{
	for (size_t i = 0; i < c->said_len; i++)
		if (c->said[i] != '\n' && ((unsigned char)c->said[i] < ' ' || c->said[i] == 0x7f))
			c->said[i] = ' ';
}

const char *child_last_line(struct child *c)
{
	char *start;

	make_printable(c);
	while (c->said_len && strchr(" \n", c->said[c->said_len - 1]))
		c->said[--c->said_len] = '\0';
	start = memrchr(c->said, '\n', c->said_len);
	return start ? start + 1 : c->said;
}

void child_log(struct child *c, const char *who)
{
	char *line = c->said, *next;
	int lines = 0;

	make_printable(c);
	for (const char *p = c->said; *p; p++)
		lines += *p == '\n';
	for (; line && *line; line = next) {
		size_t len = strcspn(line, "\n");

		next = line[len] ? line + len + 1 : NULL;
		if (len && lines-- < LINES_SHOWN)
			log_debug("%s says: %.*s", who, (int)len, line);
	}
}

/* ---- its end */

static bool has_ended(const struct child *c, int wait_ms)
{
	struct pollfd end = {.fd = c->pidfd, .events = POLLIN};

	return c->pidfd < 0 || poll(&end, 1, wait_ms) > 0;
}

int child_end(struct child *c)
{
	int status = -1;

	if (!c->pid)
		return -1;
	close_fd(&c->in);
	close_fd(&c->out);
	/* Until it is reaped, its number, and so that of its group, is nobody else's. */
	if (!has_ended(c, 0)) {
		kill(-c->pid, SIGTERM);
		has_ended(c, TIDY_MS);
	}
	kill(-c->pid, SIGKILL);
	while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
		;
	child_listen(c);
	close_fd(&c->err);
	close_fd(&c->pidfd);
	c->pid = 0;
	return status;
}
