/* SPDX-License-Identifier: Apache-2.0 */
/* The program that is notified of epochs. */
#include "lib/epochs/announce_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "lib/util/child.h"
#include "lib/remote/exec.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"

#define SLICE_MS 100 /* how soon a stop is seen */

struct announce_program {
	char **words;
	const char *name; /* of the program, for messages */
	int64_t timeout_ns;
};

int announce_program_new(const char *command, int64_t timeout_ns,
			 struct announce_program **ret_program)
{
	struct announce_program *p = calloc(1, sizeof(*p));
	size_t count;
	int error = p ? exec_words_split(command, &p->words, &count) : -ENOMEM;

	if (!error)
		error = exec_words_find(p->words);
	if (error) {
		announce_program_free(p);
		return error;
	}
	p->name = strrchr(p->words[0], '/') + 1;
	p->timeout_ns = timeout_ns;
	*ret_program = p;
	return 0;
}

void announce_program_free(struct announce_program *p)
{
	if (!p)
		return;
	exec_words_free(p->words);
	free(p);
}

/* A file in memory, so that nobody takes the beginning of a cut-off text for the whole: the
 * descriptor, above 2, or -errno. */
static int open_input(const char *text)
{
	cleanup_close int fd = memfd_create("epoch", MFD_CLOEXEC);
	int error, high;

	if (fd < 0)
		return -errno;
	error = io_write_full(fd, text, strlen(text));
	if (!error)
		error = io_write_full(fd, "\n", 1);
	if (error)
		return error;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	high = fd > 2 ? steal_fd(&fd) : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return high < 0 ? -errno : high;
}

/* So that it does not wait for us; bounded, so that we do not wait for it. */
static void throw_output_away(struct child *c)
{
	char room[4096];
	ssize_t n = 0;

	for (int i = 0; i < 64 && c->out >= 0; i++) {
		n = read(c->out, room, sizeof(room));
		if (n <= 0)
			break;
	}
	if (n == 0 && c->out >= 0) {
		close(c->out);
		c->out = -1;
	}
}

/* To its end: 0, -ETIMEDOUT, -ECANCELED, -EIO. */
static int follow(struct child *c, int64_t timeout_ns, const atomic_bool *stops)
{
	int64_t deadline = clock_mono_ns() + timeout_ns;

	for (;;) {
		struct pollfd fds[] = {{.fd = c->out, .events = POLLIN},
				       {.fd = c->err, .events = POLLIN},
				       {.fd = c->pidfd, .events = POLLIN}};

		if (atomic_load(stops))
			return -ECANCELED;
		if (clock_mono_ns() >= deadline)
			return -ETIMEDOUT;
		if (poll(fds, 3, SLICE_MS) < 0 && errno != EINTR)
			return -EIO;
		throw_output_away(c);
		child_listen(c);
		if (fds[2].revents)
			return 0;
	}
}

static void say_end(const struct announce_program *p, int status, const char *said, struct buf *why)
{
	if (WIFEXITED(status))
		buf_printf(why, "%s ended with exit code %d", p->name, WEXITSTATUS(status));
	else
		buf_printf(why, "%s was killed by signal %d", p->name,
			   WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	if (*said)
		buf_printf(why, ": %s", said);
}

int announce_program_run(struct announce_program *p, const char *text, const atomic_bool *stops,
			 struct buf *why)
{
	struct child cleanup_child child = NO_CHILD;
	cleanup_close int input = open_input(text);
	int error = input < 0 ? input : child_start((const char *const *)p->words, input, &child);
	int status;

	if (error) {
		buf_printf(why, "cannot run %s: %s", p->words[0], strerror(-error));
		return error;
	}
	error = follow(&child, p->timeout_ns, stops);
	status = child_end(&child);
	child_log(&child, p->name);
	if (error == -ETIMEDOUT)
		buf_printf(why, "%s was ended after %lld ms", p->name,
			   (long long)(p->timeout_ns / NS_PER_MS));
	if (error || (WIFEXITED(status) && !WEXITSTATUS(status)))
		return error;
	say_end(p, status, child_last_line(&child), why);
	return -EIO;
}
