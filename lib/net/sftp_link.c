/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to an SFTP server. */
#include "lib/net/sftp.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include "lib/util/clock.h"

#define PROTOCOL	 3
#define SLICE_MS	 100 /* how soon a cancel is seen */
#define READ_BYTES	 (256u << 10)
#define LEAST_RATE	 1024	     /* bytes a second; less is a stall */
#define DEFAULT_TRANSFER (32u << 10) /* what every server takes in a READ or WRITE */
#define LARGEST_TRANSFER (255u << 10)

/* ---- what goes wrong */

/* What ssh says, in the errors of remote.h. All are texts of OpenSSH, which does not translate. */
static int explain_end(struct sftp_link *l)
{
	struct sftp *s = l->owner;
	struct remote *r = &s->base;
	const char *last = child_last_line(&l->ssh), *said = l->ssh.said;

	if (strstr(said, "HOST IDENTIFICATION HAS CHANGED"))
		return remote_set_reason(
			r, -EACCES,
			"the host key is another than the known one: ask its "
			"administrator; only if it was really changed, ssh-keygen -R "
			"and add the new one to %s",
			s->known_hosts);
	if (strstr(said, "Host key verification failed"))
		return remote_set_reason(
			r, -EACCES,
			"the host key is not known: compare the key's fingerprint, and add "
			"it with: ssh-keyscan %s >> %s",
			s->host, s->known_hosts);
	if (strstr(said, "Permission denied"))
		return remote_set_reason(
			r, -EACCES,
			"the server takes none of your keys: name one with ?key=FILE, or "
			"ssh-add it (%s)",
			last);
	if (strstr(said, "subsystem request failed"))
		return remote_set_reason(r, -EACCES, "the server offers no SFTP to this user");
	if (strstr(said, "timed out") || strstr(said, "Timeout"))
		return remote_set_reason(r, -ETIMEDOUT, "%s", last);
	if (strstr(said, "Connection refused") || strstr(said, "No route to host") ||
	    strstr(said, "Could not resolve") || strstr(said, "unreachable"))
		return remote_set_reason(r, -ECONNREFUSED, "%s", last);
	return remote_set_reason(r, -EIO, "the connection ended%s%s", *last ? ": " : "", last);
}

/* ssh is gone, or going. */
static int link_ended(struct sftp_link *l)
{
	l->broken = true;
	child_end(&l->ssh);
	child_log(&l->ssh, "ssh");
	return explain_end(l);
}

static int give_up(struct sftp_link *l, int error)
{
	l->broken = true;
	if (error == -ETIMEDOUT)
		return remote_set_reason(&l->owner->base, error, "the server does not answer");
	return error;
}

int sftp_nonsense(struct sftp_link *l, const char *what)
{
	l->broken = true;
	return remote_set_reason(&l->owner->base, -EIO, "the server breaks the SFTP protocol (%s)",
				 what);
}

/* ---- moving bytes */

void sftp_link_start(struct sftp_link *l)
{
	l->mark_ns = clock_mono_ns();
	l->deadline_ns = l->mark_ns + l->owner->times.total_ns;
	l->moved_at_mark = l->moved;
}

/* Time is up, or nothing much moves. */
static bool too_late(struct sftp_link *l)
{
	int64_t now = clock_mono_ns(), stall = l->owner->times.stall_ns;

	if (now >= l->deadline_ns)
		return true;
	if (now - l->mark_ns < stall)
		return false;
	if (l->moved - l->moved_at_mark < (uint64_t)(stall / NS_PER_S * LEAST_RATE) + 1)
		return true;
	l->mark_ns = now;
	l->moved_at_mark = l->moved;
	return false;
}

static int push(struct sftp_link *l)
{
	while (l->sent < l->out.len) {
		ssize_t n =
			send(l->ssh.in, l->out.data + l->sent, l->out.len - l->sent, MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : link_ended(l);
		l->sent += (size_t)n;
		l->moved += (uint64_t)n;
	}
	buf_reset(&l->out);
	l->sent = 0;
	return 0;
}

static int pull(struct sftp_link *l)
{
	ssize_t n;

	/* What was taken makes room. */
	if (l->taken) {
		memmove(l->in.data, l->in.data + l->taken, l->in.len - l->taken);
		l->in.len -= l->taken;
		l->taken = 0;
	}
	if (buf_reserve(&l->in, READ_BYTES) < 0)
		return give_up(l, -ENOMEM);
	n = read(l->ssh.out, l->in.data + l->in.len, READ_BYTES);
	if (n == 0)
		return link_ended(l);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : link_ended(l);
	l->in.len += (size_t)n;
	l->moved += (uint64_t)n;
	return 0;
}

/* Waits until something can be moved, and moves it. */
static int move(struct sftp_link *l)
{
	struct pollfd fds[] = {
		{.fd = l->ssh.out, .events = POLLIN},
		{.fd = l->sent < l->out.len ? l->ssh.in : -1, .events = POLLOUT},
		{.fd = l->ssh.err, .events = POLLIN},
	};
	int error = 0;

	if (atomic_load(&l->owner->base.cancelled))
		return give_up(l, -ECANCELED);
	if (too_late(l))
		return give_up(l, -ETIMEDOUT);
	if (poll(fds, 3, SLICE_MS) < 0)
		return errno == EINTR ? 0 : give_up(l, -EIO);
	if (fds[2].revents)
		child_listen(&l->ssh);
	/* Answers first: a server that has ended may have said why. */
	if (fds[0].revents)
		error = pull(l);
	if (!error && fds[1].revents)
		error = push(l);
	return error;
}

/* ---- requests and answers */

size_t sftp_request_begin(struct sftp_link *l, enum sftp_type type, uint32_t *ret_id)
{
	size_t mark = l->out.len;

	if (++l->last_id == 0)
		l->last_id = 1;
	sftp_put_u32(&l->out, 0);
	buf_put_u8(&l->out, (uint8_t)type);
	sftp_put_u32(&l->out, l->last_id);
	*ret_id = l->last_id;
	return mark;
}

void sftp_request_end(struct sftp_link *l, size_t mark)
{
	uint32_t len;

	if (buf_error(&l->out)) {
		l->broken = true;
		return;
	}
	len = __builtin_bswap32((uint32_t)(l->out.len - mark - 4));
	memcpy(l->out.data + mark, &len, 4);
}

size_t sftp_unsent(const struct sftp_link *l)
{
	return l->out.len - l->sent;
}

void sftp_forget(struct sftp_link *l, uint32_t id)
{
	for (size_t i = 0; i < sizeof(l->forgotten) / sizeof(l->forgotten[0]); i++)
		if (!l->forgotten[i]) {
			l->forgotten[i] = id;
			return;
		}
	/* A server that leaves so many requests without an answer is none. */
	l->broken = true;
}

static bool is_forgotten(struct sftp_link *l, uint32_t id)
{
	for (size_t i = 0; i < sizeof(l->forgotten) / sizeof(l->forgotten[0]); i++)
		if (id && l->forgotten[i] == id) {
			l->forgotten[i] = 0;
			return true;
		}
	return false;
}

/* Takes the next whole packet that has come: 1, 0 where there is none, or -errno. */
static int next_packet(struct sftp_link *l, struct sftp_answer *ret_answer)
{
	const uint8_t *data = l->in.data + l->taken;
	int64_t len = sftp_packet_len(l->in.len ? data : NULL, l->in.len - l->taken);
	struct reader r;

	if (len < 0)
		return sftp_nonsense(l, "length of a packet");
	if (!len)
		return 0;
	r = reader_of(data + 4, (size_t)len - 4);
	ret_answer->type = reader_u8(&r);
	ret_answer->id = sftp_u32(&r);
	ret_answer->fields = r;
	l->taken += (size_t)len;
	return 1;
}

int sftp_receive(struct sftp_link *l, struct sftp_answer *ret_answer)
{
	if (l->broken)
		return buf_error(&l->out) ? -ENOMEM : -EIO;
	for (;;) {
		int r = next_packet(l, ret_answer);

		if (r < 0)
			return r;
		if (r > 0 && (ret_answer->type == SFTP_VERSION || !is_forgotten(l, ret_answer->id)))
			return 0;
		if (r == 0 && (r = move(l)) < 0)
			return r;
	}
}

int sftp_status_of(struct sftp_link *l, struct sftp_answer *a)
{
	uint32_t status;

	if (a->type != SFTP_STATUS)
		return sftp_nonsense(l, "an answer of another kind");
	status = sftp_u32(&a->fields);
	if (reader_error(&a->fields) || status > INT32_MAX)
		return sftp_nonsense(l, "a status");
	return (int)status;
}

/* ---- opening and closing */

/* limits@openssh.com: how much a READ or WRITE may carry. */
static int ask_limits(struct sftp_link *l)
{
	struct sftp_answer a;
	uint64_t packet, most_read, most_write;
	uint32_t id;
	size_t mark = sftp_request_begin(l, SFTP_EXTENDED, &id);
	int error;

	sftp_put_text(&l->out, "limits@openssh.com");
	sftp_request_end(l, mark);
	error = sftp_receive(l, &a);
	if (error)
		return error;
	if (a.id != id || a.type != SFTP_EXTENDED_REPLY)
		return 0;
	packet = sftp_u64(&a.fields);
	most_read = sftp_u64(&a.fields);
	most_write = sftp_u64(&a.fields);
	if (reader_error(&a.fields) || packet < DEFAULT_TRANSFER)
		return 0;
	if (most_read > l->max_read)
		l->max_read = most_read < LARGEST_TRANSFER ? (uint32_t)most_read : LARGEST_TRANSFER;
	if (most_write > l->max_write)
		l->max_write =
			most_write < LARGEST_TRANSFER ? (uint32_t)most_write : LARGEST_TRANSFER;
	return 0;
}

static int shake_hands(struct sftp_link *l)
{
	struct sftp_answer a;
	int error;

	sftp_link_start(l);
	l->deadline_ns = l->mark_ns + l->owner->times.connect_ns;
	sftp_put_u32(&l->out, 5);
	buf_put_u8(&l->out, SFTP_INIT);
	sftp_put_u32(&l->out, PROTOCOL);
	error = sftp_receive(l, &a);
	if (error)
		return error;
	if (a.type != SFTP_VERSION || a.id < PROTOCOL)
		return sftp_nonsense(l, "its version is not 3");
	if (sftp_extensions(&a.fields, &l->can) < 0)
		return sftp_nonsense(l, "its extensions");
	return l->can.limits ? ask_limits(l) : 0;
}

int sftp_link_open(struct sftp *owner, struct sftp_link **ret_link)
{
	struct sftp_link *l = calloc(1, sizeof(*l));
	int error;

	if (!l)
		return -ENOMEM;
	l->owner = owner;
	l->ssh = NO_CHILD;
	l->max_read = l->max_write = DEFAULT_TRANSFER;
	error = child_start((const char *const *)owner->argv, -1, &l->ssh);
	if (error == -ENOENT || error == -EACCES)
		error = remote_set_reason(&owner->base, -EACCES,
					  "cannot run ssh: install it (Debian: openssh-client)");
	if (!error)
		error = shake_hands(l);
	if (error) {
		sftp_link_close(l);
		return error;
	}
	*ret_link = l;
	return 0;
}

void sftp_link_close(struct sftp_link *l)
{
	child_end(&l->ssh);
	buf_free(&l->out);
	buf_free(&l->in);
	free(l);
}

bool sftp_link_alive(struct sftp_link *l)
{
	struct pollfd fds[] = {{.fd = l->ssh.pidfd, .events = POLLIN}};

	if (l->broken || poll(fds, 1, 0) != 0)
		return false;
	/* Answers that nobody waits for may be there, but no end. */
	fds[0].fd = l->ssh.out;
	return poll(fds, 1, 0) >= 0 && !(fds[0].revents & (POLLHUP | POLLERR));
}
