/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a history on a directory. */
#include "tests/enumerate/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/enumerate/async.h"

/* Of a handle: the descriptor and its duplicate; -1: none. */
struct working {
	int fd[HANDLES][2];
	char *mapping;
	unsigned unit;
};

/* ---- files ---- */

int open_flags_of(uint8_t op)
{
	switch (op) {
	case OP_OPEN_READ:
		return O_RDONLY | O_CLOEXEC;
	case OP_OPEN_WRITE:
		return O_RDWR | O_CREAT | O_CLOEXEC;
	case OP_OPEN_DIRECT:
		return O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC;
	case OP_OPEN_APPEND:
		return O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
	default:
		return O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC;
	}
}

int read_descriptor(int fd, unsigned unit, struct seen *ret_seen)
{
	static char data[LETTERS_MAX * UNIT_MAX] __attribute__((aligned(UNIT_MAX)));
	/* One call gives all that is there of a file. */
	ssize_t n = pread(fd, data, sizeof(data), 0);

	if (n < 0)
		return -errno;
	seen_letters(ret_seen, data, (size_t)n, unit);
	return 0;
}

int stat_path(const char *path, struct seen *ret_seen)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	ret_seen->size = (uint64_t)st.st_size;
	ret_seen->links = st.st_nlink;
	return 0;
}

static int write_letters(int fd, char letter, unsigned unit)
{
	size_t len = (size_t)WRITE_LETTERS * unit;
	ssize_t n = write(fd, letter_bytes(letter, WRITE_LETTERS, unit), len);

	return n < 0 ? -errno : (size_t)n == len ? 0 : -EIO;
}

static int map_keep(int fd, unsigned unit, char **ret_map)
{
	char *map = mmap(NULL, unit, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	*ret_map = map;
	return 0;
}

static int store_letter(char *map, char letter, unsigned unit)
{
	memcpy(map, letter_bytes(letter, 1, unit), unit);
	return msync(map, unit, MS_SYNC) < 0 ? -errno : 0;
}

static int map_letter(int fd, char letter, unsigned unit)
{
	char *map = NULL;
	int r = map_keep(fd, unit, &map);

	if (r)
		return r;
	r = store_letter(map, letter, unit);
	munmap(map, unit);
	return r;
}

/* Where the descriptor stands, which then moves on. */
static int write_async(int fd, char letter, unsigned unit, bool older)
{
	size_t len = (size_t)WRITE_LETTERS * unit;
	const char *bytes = letter_bytes(letter, WRITE_LETTERS, unit);
	bool appends = fcntl(fd, F_GETFL) & O_APPEND;
	off_t at = lseek(fd, 0, appends ? SEEK_END : SEEK_CUR);
	ssize_t n = async_write(fd, bytes, len, at, older);

	if (n < 0)
		return (int)n;
	lseek(fd, at + n, SEEK_SET);
	return (size_t)n == len ? 0 : -EIO;
}

/* From "b" beside this name. */
static int copy_letters(int fd, const char *path, unsigned unit)
{
	off_t at = 0, to = (off_t)COPY_AT * unit;
	size_t left = (size_t)COPY_LETTERS * unit;
	int from = open(path, O_RDONLY | O_CLOEXEC), r = from < 0 ? -errno : 0;
	ssize_t n = 1;

	while (!r && left && n) {
		n = copy_file_range(from, &at, fd, &to, left, 0);
		if (n < 0)
			r = -errno;
		else
			left -= (size_t)n;
	}
	if (from >= 0)
		close(from);
	return r;
}

/* ---- the worker ---- */

/* The descriptor that was duplicated goes before its duplicate. */
static int close_one(int fd[2])
{
	int r = close(fd[0]) < 0 ? -errno : 0;

	fd[0] = fd[1];
	fd[1] = -1;
	return r;
}

static int do_extended(struct working *w, const struct ask *ask)
{
	int fd = w->fd[ask->step.handle][0], r;

	switch (ask->step.op) {
	case OP_ASYNC:
		return write_async(fd, (char)('A' + ask->k), w->unit, ask->k % 2);
	case OP_PREALLOCATE:
		r = fallocate(fd, 0, 0, (off_t)ALLOCATE_LETTERS * w->unit);
		break;
	case OP_PUNCH:
		r = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			      (off_t)PUNCH_AT * w->unit, w->unit);
		break;
	case OP_COPY:
		return copy_letters(fd, ask->path, w->unit);
	case OP_MAP_KEEP:
		return map_keep(fd, w->unit, &w->mapping);
	case OP_STORE:
		return store_letter(w->mapping, (char)('0' + ask->k), w->unit);
	default: /* OP_UNMAP */
		r = munmap(w->mapping, w->unit);
	}
	return r < 0 ? -errno : 0;
}

static int do_step(struct working *w, const struct ask *ask, struct seen *ret_seen)
{
	int *fd = w->fd[op_opens(ask->step.op) ? ask->handle : ask->step.handle], r;

	if (ask->step.op >= OP_ASYNC && ask->step.op <= OP_UNMAP)
		return do_extended(w, ask);
	switch (ask->step.op) {
	case OP_DUP:
		r = fd[1] = dup(fd[0]);
		break;
	case OP_CLOSE:
		return close_one(fd);
	case OP_READ:
		return read_descriptor(fd[0], w->unit, ret_seen);
	case OP_WRITE:
		return write_letters(fd[0], (char)('A' + ask->k), w->unit);
	case OP_TRUNCATE:
		r = ftruncate(fd[0], (off_t)TRUNCATE_LETTERS * w->unit);
		break;
	case OP_MAP:
		return map_letter(fd[0], (char)('0' + ask->k), w->unit);
	case OP_FSYNC:
		r = fsync(fd[0]);
		break;
	default:
		r = fd[0] = open(ask->path, open_flags_of(ask->step.op), 0644);
	}
	return r < 0 ? -errno : 0;
}

static int stat_descriptor(int fd, struct seen *ret_seen)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	ret_seen->size = (uint64_t)st.st_size;
	return 0;
}

static int answer(struct working *w, const struct ask *ask, struct seen *ret_seen)
{
	switch (ask->kind) {
	case ASK_STEP:
		return do_step(w, ask, ret_seen);
	case ASK_STAT_HANDLE:
		return stat_descriptor(w->fd[ask->step.handle][0], ret_seen);
	case ASK_READ_HANDLE:
		return read_descriptor(w->fd[ask->step.handle][0], w->unit, ret_seen);
	default:
		return stat_path(ask->path, ret_seen);
	}
}

__attribute__((noreturn)) static void work(int fd, unsigned unit)
{
	struct working w = {.unit = unit};
	struct ask ask;

	memset(w.fd, -1, sizeof(w.fd));
	while (recv(fd, &ask, sizeof(ask), 0) == (ssize_t)sizeof(ask)) {
		struct seen seen = {0};

		seen.error = -answer(&w, &ask, &seen);
		if (send(fd, &seen, sizeof(seen), 0) != (ssize_t)sizeof(seen))
			break;
	}
	_exit(0);
}

void worker_start(struct worker *w, unsigned unit)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		give_up("socketpair: %s", strerror(errno));
	w->pid = fork();
	if (w->pid < 0)
		give_up("fork: %s", strerror(errno));
	if (!w->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pair[1], STDERR_FILENO + 1);
		close_range(STDERR_FILENO + 2, ~0u, 0);
		work(STDERR_FILENO + 1, unit);
	}
	close(pair[1]);
	w->fd = pair[0];
}

void worker_ask(const struct worker *w, const struct ask *ask, struct seen *ret_seen)
{
	if (send(w->fd, ask, sizeof(*ask), MSG_NOSIGNAL) != (ssize_t)sizeof(*ask) ||
	    recv(w->fd, ret_seen, sizeof(*ret_seen), 0) != (ssize_t)sizeof(*ret_seen))
		give_up("a worker is gone");
}

void worker_kill(struct worker *w)
{
	kill(w->pid, SIGKILL);
	waitpid(w->pid, NULL, 0);
	close(w->fd);
}
