/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's part of a mount that outlives its daemon, and what both ends say. */
#include "fs/handover.h"

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "lib/util/cleanup.h"

/* Of the protocol, where the system's linux/fuse.h is older than it. */
#define NOTIFY_RESEND 7

int fs_handover_new(int socket, int table_fd, int fuse_fd, struct fs_handover **ret_handover)
{
	cleanup_free struct fs_handover *h = calloc(1, sizeof(*h));
	const struct table_start *start;
	int r;

	if (!h)
		return -ENOMEM;
	h->socket = socket;
	h->fuse_fd = fuse_fd;
	r = table_open(table_fd, &h->table);
	if (r < 0)
		return r;
	start = h->table.start;
	h->survivors = calloc((size_t)start->files + 1, sizeof(*h->survivors));
	if (!h->survivors) {
		table_close(&h->table);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < start->files; i++) {
		struct table_file *row = &h->table.files[i];

		if (row->fh && !row->abandoned && row->kind == FILE_LIVE)
			h->survivors[h->survivors_count++].record = &row->handle;
	}
	*ret_handover = steal_ptr(h);
	return 0;
}

void fs_handover_survivors(struct fs_handover *h, struct volume_options *o)
{
	o->survivors = h->fuse_fd >= 0 ? h->survivors : NULL;
	o->survivors_count = h->survivors_count;
	o->stale_retry_records = h->table.start->told;
	o->stale_retry_records_count = TABLE_TOLD;
	o->torn_record = &h->table.start->torn;
}

void fs_handover_free(struct fs_handover *h)
{
	if (!h)
		return;
	table_close(&h->table);
	if (h->socket >= 0)
		close(h->socket);
	free(h->survivors);
	free(h);
}

int handover_send(int socket, enum handover_message what, int fd)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	char byte = (char)what;
	struct iovec iov = {&byte, 1};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *head;

	if (fd >= 0) {
		message.msg_control = control.space;
		message.msg_controllen = sizeof(control.space);
		head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int handover_take(int socket)
{
	char byte;

	return recv(socket, &byte, 1, MSG_DONTWAIT) == 1 ? byte : 0;
}

bool handover_peer_gone(int socket)
{
	struct pollfd end = {.fd = socket};

	return poll(&end, 1, 0) == 1 && end.revents & (POLLHUP | POLLERR | POLLNVAL);
}

int handover_resend(int fuse_fd)
{
	const struct fuse_out_header notice = {.len = sizeof(notice), .error = NOTIFY_RESEND};

	return write(fuse_fd, &notice, sizeof(notice)) < 0 ? -errno : 0;
}
