/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials that a program prints: credential_process of a profile, by the shell as Amazon's tools
 * run it ("Process credential provider" in the AWS SDKs and Tools Reference Guide). */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include "lib/remote/aws_source_internal.h"
#include "lib/remote/child.h"
#include "lib/util/clock.h"

#define OUTPUT_MAX  ((size_t)64 << 10)
#define PATIENCE_NS (60 * NS_PER_S)
#define LOOK_MS	    100 /* how soon a cancel is seen */

/* Takes what is there: 1 where more may come, 0 at the end, or -errno. */
static int take_output(struct child *c, struct buf *out)
{
	ssize_t n;

	if (out->len == OUTPUT_MAX)
		return -EBADMSG;
	n = read(c->out, out->data + out->len, OUTPUT_MAX - out->len);
	if (n > 0)
		out->len += (size_t)n;
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)) ? 1 : 0;
}

static int read_all(struct aws_source *s, struct child *c, struct buf *out)
{
	int64_t deadline = clock_mono_ns() + PATIENCE_NS;
	int r = 1;

	while (r > 0) {
		struct pollfd fds[] = {{.fd = c->out, .events = POLLIN},
				       {.fd = c->err, .events = POLLIN}};

		if (atomic_load(&s->owner->cancelled))
			return -ECANCELED;
		if (clock_mono_ns() >= deadline)
			return -ETIMEDOUT;
		if (poll(fds, 2, LOOK_MS) < 0 && errno != EINTR)
			return -EIO;
		if (fds[0].revents)
			r = take_output(c, out);
		child_listen(c);
	}
	return r;
}

int aws_from_process(struct aws_source *s, const char *command, struct credentials *ret_credentials)
{
	const char *const argv[] = {"/bin/sh", "-c", command, NULL};
	struct child cleanup_child c = NO_CHILD;
	cleanup_buf struct buf out = {0};
	int r = buf_reserve(&out, OUTPUT_MAX);

	if (r == 0)
		r = child_start(argv, -1, &c);
	if (r < 0)
		return r;
	close(steal_fd(&c.in));
	r = read_all(s, &c, &out);
	if (r == 0)
		r = aws_credentials_from_json(out.data, out.len, "SessionToken", ret_credentials);
	explicit_bzero(out.data, out.cap);
	if (r == 0 || r == -ECANCELED || r == -ENOMEM)
		return r;
	if (r == -EBADMSG)
		r = -EACCES;
	return remote_set_reason(
		s->owner, r, "profile %s: credential_process printed no credentials: %s",
		s->profile, *child_last_line(&c) ? child_last_line(&c) : strerror(-r));
}
