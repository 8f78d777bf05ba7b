/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's part of a mount that outlives its daemon. */
#include "fs/supervise.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "fs/handover.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"

/* The largest request, and more than the kernel wants to have room for. */
#define REQUEST_MAX ((1u << 20) + (64u << 10))
/* The kernel marks by it what it sends again. */
#define UNIQUE_RESENT (UINT64_C(1) << 63)

int fs_table_make(void)
{
	return table_make();
}

int fs_table_note(int table_fd, uint32_t restarts)
{
	struct table t;
	int r = table_open(table_fd, &t);

	if (r < 0)
		return r;
	t.start->supervisor = (uint32_t)getpid();
	t.start->restarts = restarts;
	table_close(&t);
	return 0;
}

enum fs_told fs_told(int socket, int *ret_fd)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control.space,
				 .msg_controllen = sizeof(control.space)};
	const struct cmsghdr *head;

	*ret_fd = -1;
	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) <= 0)
		return FS_TOLD_NOTHING;
	head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(head), sizeof(*ret_fd));
	switch (byte) {
	case HANDOVER_SERVES:
		return FS_TOLD_SERVES;
	case HANDOVER_LOG:
		return FS_TOLD_LOG;
	case HANDOVER_DEAD:
		return FS_TOLD_DEAD;
	default:
		return FS_TOLD_NOTHING;
	}
}

void fs_tell_end(int socket, bool hurry)
{
	/* Of one that died meanwhile, the next is told. */
	(void)handover_send(socket, hurry ? HANDOVER_HURRY : HANDOVER_END, -1);
}

/* Nobody holds a lock while he waits for these; the next worker gets them. */
static bool can_wait(uint32_t opcode)
{
	return opcode == FUSE_RELEASE || opcode == FUSE_RELEASEDIR || opcode == FUSE_FLUSH ||
	       opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT;
}

/* As /proc/<pid>/task/<tid>/stat has it: the state follows the name, which may have any character. */
static bool is_uninterruptible(int task_fd, const char *tid)
{
	char path[32], stat[256];
	cleanup_close int fd = -1;
	const char *end;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/stat", tid);
	fd = openat(task_fd, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, stat, sizeof(stat) - 1);
	if (n < 0)
		return false;
	stat[n] = '\0';
	end = strrchr(stat, ')');
	return end && end[1] == ' ' && end[2] == 'D';
}

bool fs_waits_in_kernel(pid_t pid)
{
	cleanup_closedir DIR *dir = NULL;
	cleanup_close int fd = -1;
	char path[32];
	const char *tid;
	int got;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* Where it cannot be told, nobody is to wait for good. */
	if (fd < 0 || io_opendir(fd, &dir) < 0)
		return true;
	while ((got = io_readdir(dir, &tid)) > 0)
		if (is_uninterruptible(dirfd(dir), tid))
			return true;
	return got < 0;
}

static void refuse_one(int fuse_fd, const struct table *t, char *room)
{
	ssize_t n = read(fuse_fd, room, REQUEST_MAX);
	struct fuse_out_header answer = {.len = sizeof(answer), .error = -EIO};
	struct fuse_in_header head;
	struct table_file *opened;

	if (n < (ssize_t)sizeof(head))
		return;
	memcpy(&head, room, sizeof(head));
	if (can_wait(head.opcode))
		return;
	/* Where the worker had opened the file already, nobody will close it. */
	opened = table_file_opened_by(t, head.unique & ~UNIQUE_RESENT);
	if (opened)
		opened->abandoned = true;
	answer.unique = head.unique;
	/* It fails where the requester was killed: then nobody waits. */
	if (write(fuse_fd, &answer, sizeof(answer)) < 0)
		return;
}

void fs_refuse(int fuse_fd, int table_fd, int until_fd)
{
	struct pollfd fds[] = {{.fd = fuse_fd, .events = POLLIN},
			       {.fd = until_fd, .events = POLLIN}};
	cleanup_free char *room = malloc(REQUEST_MAX);
	struct table t;

	if (!room || table_open(table_fd, &t) < 0 || handover_resend(fuse_fd) < 0)
		return;
	while ((poll(fds, 2, -1) > 0 || errno == EINTR) && !fds[1].revents &&
	       !(fds[0].revents & (POLLERR | POLLHUP))) {
		if (fds[0].revents & POLLIN)
			refuse_one(fuse_fd, &t, room);
	}
	table_close(&t);
}
