/* SPDX-License-Identifier: Apache-2.0 */
/* Holds, and the processes that opened files. */
#include "fs/users.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <unistd.h>
#include "lib/live/bodies.h"
#include "lib/util/lock.h"
#include "lib/util/process.h"

/* Processes that are remembered: of more than these at once, the later ones count as unknown. */
#define KNOWN_MAX 128

struct known {
	pid_t pid;
	int fd; /* pidfd */
};

struct users {
	int event_fd;
	struct mutex lock; /* guards all below */
	unsigned holds;
	bool orphaned, ended, unknown;
	struct known known[KNOWN_MAX];
	size_t count;
};

int users_new(struct users **ret_users)
{
	struct users *users = calloc(1, sizeof(*users));

	if (!users)
		return -ENOMEM;
	users->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (users->event_fd < 0) {
		free(users);
		return -errno;
	}
	mutex_init(&users->lock, LOCK_FS_USERS);
	*ret_users = users;
	return 0;
}

void users_free(struct users *users)
{
	if (!users)
		return;
	for (size_t i = 0; i < users->count; i++)
		close(users->known[i].fd);
	close(users->event_fd);
	mutex_destroy(&users->lock);
	free(users);
}

/* ---- holds ---- */

int users_fd(const struct users *users)
{
	return users->event_fd;
}

static void wake(struct users *users)
{
	const uint64_t one = 1;

	/* It fails only where it is readable already. */
	if (write(users->event_fd, &one, sizeof(one)) < 0)
		return;
}

void users_look(struct users *users)
{
	uint64_t count;

	if (read(users->event_fd, &count, sizeof(count)) < 0)
		return;
}

void users_hold(struct users *users, enum hold hold)
{
	if (hold == HOLD_NONE)
		return;
	SCOPED_LOCK(&users->lock);
	users->holds++;
}

void users_let_go(struct users *users, enum hold hold, bool in_order)
{
	if (hold == HOLD_NONE)
		return;
	SCOPED_LOCK(&users->lock);
	users->holds--;
	users->orphaned |= hold == HOLD_MOUNTED && !in_order;
	wake(users);
}

bool users_held(struct users *users)
{
	SCOPED_LOCK(&users->lock);
	return users->holds > 0;
}

bool users_orphaned(struct users *users)
{
	SCOPED_LOCK(&users->lock);
	return users->orphaned;
}

void users_end(struct users *users)
{
	SCOPED_LOCK(&users->lock);
	users->ended = true;
	wake(users);
}

bool users_ended(struct users *users)
{
	SCOPED_LOCK(&users->lock);
	return users->ended;
}

/* ---- processes that opened files ---- */

static bool lives(const struct known *k)
{
	struct pollfd end = {.fd = k->fd, .events = POLLIN};

	return poll(&end, 1, 0) == 0;
}

/* Forgets those that have ended. */
static void sweep_locked(struct users *users)
{
	size_t kept = 0;

	for (size_t i = 0; i < users->count; i++) {
		if (lives(&users->known[i]))
			users->known[kept++] = users->known[i];
		else
			close(users->known[i].fd);
	}
	users->count = kept;
}

static bool is_known_locked(const struct users *users, pid_t pid)
{
	for (size_t i = users->count; i > 0; i--)
		if (users->known[i - 1].pid == pid)
			return lives(&users->known[i - 1]);
	return false;
}

static void remember_locked(struct users *users, pid_t pid)
{
	int fd = pidfd_open(pid, 0);

	if (fd < 0 && errno == ESRCH)
		return; /* gone since */
	if (users->count == KNOWN_MAX)
		sweep_locked(users);
	if (fd < 0 || users->count == KNOWN_MAX) {
		users->unknown = true;
		if (fd >= 0)
			close(fd);
		return;
	}
	users->known[users->count++] = (struct known){.pid = pid, .fd = fd};
}

void users_note(struct users *users, pid_t tid)
{
	pid_t pid = process_of(tid);

	SCOPED_LOCK(&users->lock);
	if (pid <= 0)
		users->unknown = true;
	else if (!is_known_locked(users, pid))
		remember_locked(users, pid);
}

pid_t users_alive(struct users *users)
{
	SCOPED_LOCK(&users->lock);
	sweep_locked(users);
	if (users->count)
		return users->known[0].pid;
	return users->unknown ? -1 : 0;
}
