/* SPDX-License-Identifier: Apache-2.0 */
/* The remote on an SFTP server: sftp.h has the manual. Links, paths, reading and deleting. */
#include "lib/net/sftp.h"

#include <errno.h>
#include <string.h>
#include "lib/util/clock.h"

#define WAIT_NS (100 * NS_PER_MS) /* how soon a cancel is seen */

static struct sftp *sftp_of(struct remote *r)
{
	return (struct sftp *)r;
}

/* ---- links */

/* An idle one; NULL where a new one may be made, which is then counted. -ECANCELED. */
static int take_idle(struct sftp *s, struct sftp_link **ret_link)
{
	SCOPED_LOCK(&s->lock);

	while (!s->idle && s->links >= s->connections) {
		if (atomic_load(&s->base.cancelled))
			return -ECANCELED;
		cond_wait_until(&s->freed, &s->lock, clock_mono_ns() + WAIT_NS);
	}
	*ret_link = s->idle;
	if (s->idle)
		s->idle = s->idle->next;
	else
		s->links++;
	return 0;
}

static void uncount(struct sftp *s)
{
	SCOPED_LOCK(&s->lock);

	s->links--;
	pthread_cond_signal(&s->freed);
}

int sftp_take(struct sftp *s, struct sftp_link **ret_link)
{
	for (;;) {
		struct sftp_link *l = NULL;
		int error = take_idle(s, &l);

		if (!error && !l) {
			error = sftp_link_open(s, &l);
			if (error)
				uncount(s);
		} else if (!error && !sftp_link_alive(l)) {
			/* The server ended it while it was idle: no failure of anything. */
			l->broken = true;
			sftp_give(s, l);
			continue;
		}
		if (!error)
			*ret_link = l;
		return error;
	}
}

void sftp_give(struct sftp *s, struct sftp_link *link)
{
	if (!link)
		return;
	if (link->broken) {
		sftp_link_close(link);
		uncount(s);
		return;
	}
	SCOPED_LOCK(&s->lock);
	link->next = s->idle;
	s->idle = link;
	pthread_cond_signal(&s->freed);
}

void sftp_close_links(struct sftp *s)
{
	while (s->idle) {
		struct sftp_link *l = s->idle;

		s->idle = l->next;
		sftp_link_close(l);
	}
}

/* ---- paths and errors */

int sftp_path(const struct sftp *s, const char *key, struct buf *out)
{
	size_t len;

	buf_reset(out);
	buf_put(out, s->root, strlen(s->root));
	buf_put(out, key, strlen(key));
	/* A directory goes without its slash; the home is ".". */
	len = out->len;
	while (len > 1 && out->data[len - 1] == '/')
		len--;
	out->len = len;
	if (!len)
		buf_put_u8(out, '.');
	buf_str(out);
	return buf_error(out);
}

int sftp_errno(int status)
{
	switch (status) {
	case SFTP_OK:
		return 0;
	case SFTP_NO_SUCH_FILE:
		return -ENOENT;
	case SFTP_PERMISSION_DENIED:
		return -EACCES;
	case SFTP_OP_UNSUPPORTED:
		return -EOPNOTSUPP;
	default:
		return status < 0 ? status : -EIO;
	}
}

/* ---- reading and deleting */

static int get_on(struct sftp_link *l, const char *path, uint64_t offset, uint64_t len,
		  struct buf *out)
{
	struct sftp_handle h;
	int error = sftp_errno(sftp_call_open(l, path, SFTP_OPEN_READ, 0, &h));

	if (error)
		return error;
	error = sftp_receive_file(l, &h, offset, len, out);
	sftp_close_forget(l, &h);
	return error;
}

static int sftp_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		    struct buf *out)
{
	struct buf cleanup_buf path = {0};
	struct sftp *s = sftp_of(r);
	struct sftp_link *l = NULL;
	size_t before = out->len;
	int error = sftp_path(s, key, &path);

	if (!error)
		error = sftp_take(s, &l);
	if (!error)
		error = get_on(l, buf_str(&path), offset, len, out);
	sftp_give(s, l);
	if (error && out->len > before)
		out->len = before;
	return error;
}

static int sftp_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	struct buf cleanup_buf path = {0};
	struct sftp *s = sftp_of(r);
	struct sftp_link *l = NULL;
	struct sftp_attrs attrs = {0};
	int error = sftp_path(s, key, &path);

	if (!error)
		error = sftp_take(s, &l);
	if (!error)
		error = sftp_errno(sftp_call_stat(l, buf_str(&path), &attrs));
	sftp_give(s, l);
	if (error)
		return error;
	if (!sftp_is_file(&attrs))
		return sftp_is_dir(&attrs) ? -ENOENT : -EPERM;
	if (!attrs.has_size)
		return -EIO;
	*ret_size = attrs.size;
	return 0;
}

static int delete_on(struct sftp_link *l, const char *path)
{
	struct sftp_attrs attrs;
	int status = sftp_call_remove(l, path);

	if (status == SFTP_NO_SUCH_FILE)
		return 0;
	/* A directory is no object, and servers differ in how they refuse to remove one. */
	if (status > 0 && sftp_call_lstat(l, path, &attrs) == 0 && sftp_is_dir(&attrs))
		return 0;
	return sftp_errno(status);
}

static int sftp_delete(struct remote *r, const char *key)
{
	struct buf cleanup_buf path = {0};
	struct sftp *s = sftp_of(r);
	struct sftp_link *l = NULL;
	int error = sftp_path(s, key, &path);

	if (!error)
		error = sftp_take(s, &l);
	if (!error)
		error = delete_on(l, buf_str(&path));
	sftp_give(s, l);
	return error;
}

static int sftp_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	return sftp_list_all(sftp_of(r), prefix, fn, arg);
}

const struct remote_ops sftp_ops = {
	.put = sftp_put,
	.put_if_absent = sftp_put_if_absent,
	.get = sftp_get,
	.size = sftp_size,
	.list = sftp_list,
	.delete = sftp_delete,
	.upload_check = "SSH checks each packet",
	.check_create = sftp_check_create,
	.release = sftp_release,
};
