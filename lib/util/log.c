/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines. */
#include "lib/util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "lib/util/cleanup.h"
#include "lib/util/text.h"

#define LINE_MAX_BYTES 2048

static atomic_int log_level = LOG_LEVEL_INFO;
static atomic_int log_fd = 2;
static atomic_int looked; /* the process that has looked at the end of the file; 0: none */

void log_set_level(enum log_level level)
{
	atomic_store(&log_level, (int)level);
}

void log_set_fd(int fd)
{
	atomic_store(&log_fd, fd);
	atomic_store(&looked, 0);
}

/* Whether a file ends in the middle of a line, which another process may have left so. */
static bool ends_cut(int fd)
{
	cleanup_close int file = -1;
	struct stat st;
	char path[32], last;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !st.st_size)
		return false;
	/* The descriptor itself may be for writing only. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	file = open(path, O_RDONLY | O_CLOEXEC);
	return file >= 0 && pread(file, &last, 1, st.st_size - 1) == 1 && last != '\n';
}

/*
 * Writes a line that has a newline before it, too. A disk that gets full takes the beginning of a line: the next one
 * then begins with that newline, in one write, so that two never run together. Nobody is waited for; where nothing
 * can be written there is nobody left to tell.
 */
static void write_whole(int fd, const char *line, size_t len)
{
	static atomic_bool cut;
	size_t from, left;
	ssize_t n;

	if (atomic_exchange(&looked, getpid()) != getpid() && ends_cut(fd))
		atomic_store(&cut, true);
	from = atomic_exchange(&cut, false) ? 0 : 1;
	left = len - from;
	n = write(fd, line + from, left);
	if (n > 0 && (size_t)n < left) {
		left -= (size_t)n;
		if (write(fd, line + len - left, left) != (ssize_t)left)
			atomic_store(&cut, true);
	} else if (n < 0 && !from) {
		atomic_store(&cut, true);
	}
}

static void write_line(int fd, enum log_level level, const char *text)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	char line[LINE_MAX_BYTES + 64], when[32];
	struct timespec now;
	struct tm tm;
	int n;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	n = snprintf(line, sizeof(line), "\n%s.%03ldZ %s: %s\n", when, now.tv_nsec / 1000000,
		     names[level], text);
	if (n > 0)
		write_whole(fd, line, (size_t)n);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	static const int priorities[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	char text[LINE_MAX_BYTES];
	int saved = errno, fd;
	va_list ap;

	if ((int)level > atomic_load(&log_level))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printable_mask(text);
	fd = atomic_load(&log_fd);
	if (fd < 0)
		syslog(priorities[level], "%s", text);
	else
		write_line(fd, level, text);
	errno = saved;
}
