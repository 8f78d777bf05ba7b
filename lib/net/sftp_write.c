/* SPDX-License-Identifier: Apache-2.0 */
/* Writing objects to an SFTP server: a temporary name, then the real one. */
#include "lib/net/sftp.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

#define NEW_ROOT_MODE 0700u

/* One object on its way. Paths are the server's. */
struct writing {
	struct sftp *s;
	struct sftp_link *l;
	struct buf temp, path;
	uint32_t mode; /* permission bits of the root */
	bool there;    /* the temporary file exists */
};

/* ---- directories */

/* What a refusal means that has no number of its own in version 3: -ENOSPC where there is no room
 * for `len` bytes more, -EPERM where a directory is in the way, else as it is. */
static int explain_failure(struct writing *w, int status, size_t len)
{
	struct sftp_attrs attrs;
	struct buf cleanup_buf root = {0};
	uint64_t room;

	if (status != SFTP_FAILURE)
		return sftp_errno(status);
	if (w->l->can.statvfs && sftp_path(w->s, "", &root) == 0 &&
	    sftp_call_room(w->l, buf_str(&root), &room) == 0 && room < len)
		return -ENOSPC;
	if (sftp_call_lstat(w->l, buf_str(&w->path), &attrs) == 0 && sftp_is_dir(&attrs))
		return -EPERM;
	return -EIO;
}

/* Makes one directory, or finds it there: 0, -ENOENT where the one above is missing, -EPERM where
 * a file is in its place. */
static int make_dir(struct sftp_link *l, const char *path, uint32_t mode)
{
	struct sftp_attrs attrs;
	int status = sftp_call_mkdir(l, path, mode), there;

	if (status <= 0 || status == SFTP_NO_SUCH_FILE)
		return sftp_errno(status);
	there = sftp_call_stat(l, path, &attrs);
	if (there == 0)
		return sftp_is_dir(&attrs) ? 0 : -EPERM;
	return there < 0 ? there : sftp_errno(status);
}

/* Makes the directories between the root and the object; the root is there. */
static int make_parents(struct writing *w)
{
	size_t from = strlen(w->s->root);
	char *path = (char *)w->path.data;

	for (char *p = strchr(path + from, '/'); p; p = strchr(p + 1, '/')) {
		int error;

		*p = '\0';
		error = make_dir(w->l, path, w->mode);
		*p = '/';
		if (error)
			return error;
	}
	return 0;
}

/* The root's modes, which all that is made below it gets; makes a missing root. */
static int find_root(struct writing *w)
{
	struct buf cleanup_buf root = {0};
	struct sftp_attrs attrs = {0};
	int status, error = sftp_path(w->s, "", &root);

	mutex_lock(&w->s->lock);
	w->mode = w->s->root_mode;
	mutex_unlock(&w->s->lock);
	if (error || w->mode)
		return error;
	status = sftp_call_stat(w->l, buf_str(&root), &attrs);
	if (status == SFTP_NO_SUCH_FILE) {
		error = make_dir(w->l, buf_str(&root), NEW_ROOT_MODE);
		if (error == -ENOENT)
			error = remote_set_reason(&w->s->base, -EIO,
						  "the directory above %s does not exist there; "
						  "create that, or check the path",
						  buf_str(&root));
		status = error ? SFTP_OK : sftp_call_stat(w->l, buf_str(&root), &attrs);
	}
	if (!error)
		error = sftp_errno(status);
	if (error)
		return error;
	w->mode = attrs.has_mode ? (attrs.mode & 0777) | NEW_ROOT_MODE : NEW_ROOT_MODE;
	SCOPED_LOCK(&w->s->lock);
	w->s->root_mode = w->mode;
	return 0;
}

/* ---- the temporary file */

static int name_temp(struct writing *w)
{
	uint8_t random[8];
	char name[32], id[17];

	if (random_bytes(random, sizeof(random)) < 0)
		return -EIO;
	hex_encode(random, sizeof(random), id);
	snprintf(name, sizeof(name), TEMP_PREFIX "%s", id);
	return sftp_path(w->s, name, &w->temp);
}

/* Once a mount: what killed uploads left. The server's clock is read off the file just made. */
static void sweep_once(struct writing *w)
{
	struct sftp_attrs attrs;
	bool swept;

	mutex_lock(&w->s->lock);
	swept = w->s->swept;
	w->s->swept = true;
	mutex_unlock(&w->s->lock);
	if (!swept && sftp_call_lstat(w->l, buf_str(&w->temp), &attrs) == 0 && attrs.has_times)
		sftp_sweep(w->s, w->l, attrs.mtime);
}

/* Makes the temporary file, again where the root was missing. */
static int open_temp(struct writing *w, struct sftp_handle *h)
{
	const uint32_t flags = SFTP_OPEN_WRITE | SFTP_OPEN_CREAT | SFTP_OPEN_EXCL;
	int error = find_root(w), status;

	if (!error)
		error = name_temp(w);
	if (error)
		return error;
	status = sftp_call_open(w->l, buf_str(&w->temp), flags, (w->mode & 0666) | 0600, h);
	if (status == SFTP_NO_SUCH_FILE) {
		/* It was there once: somebody took it, or its file system, away. */
		return remote_set_reason(&w->s->base, -EIO, "its directory has gone");
	}
	w->there = status == SFTP_OK;
	return status < 0 ? status : explain_failure(w, status, 1);
}

static int write_temp(struct writing *w, const void *data, size_t len)
{
	struct sftp_handle h;
	int error = open_temp(w, &h), status, closed;

	if (error)
		return error;
	sweep_once(w);
	status = sftp_send_file(w->l, &h, data, len);
	if (status == SFTP_OK && w->l->can.fsync)
		status = sftp_call_fsync(w->l, &h);
	if (status < 0)
		return status;
	closed = sftp_call_close(w->l, &h);
	if (status == SFTP_OK)
		status = closed;
	return status < 0 ? status : explain_failure(w, status, len);
}

/* ---- into its place */

/* Tries it, and once more with the directories made where one is missing. */
static int into_place(struct writing *w,
		      int (*call)(struct sftp_link *l, const char *from, const char *to))
{
	const char *from = buf_str(&w->temp), *to = buf_str(&w->path);
	int status = call(w->l, from, to), error;

	if (status != SFTP_NO_SUCH_FILE)
		return status;
	error = make_parents(w);
	return error ? error : call(w->l, from, to);
}

/* For servers that replace nothing: sftp.h says what that costs. */
static int rename_over(struct writing *w)
{
	struct sftp_attrs attrs;
	int status = into_place(w, sftp_call_rename);

	if (status <= 0 || sftp_call_lstat(w->l, buf_str(&w->path), &attrs) != 0 ||
	    !sftp_is_file(&attrs))
		return status;
	status = sftp_call_remove(w->l, buf_str(&w->path));
	if (status != SFTP_OK && status != SFTP_NO_SUCH_FILE)
		return status;
	return into_place(w, sftp_call_rename);
}

static int replace(struct writing *w)
{
	int status =
		w->l->can.posix_rename ? into_place(w, sftp_call_posix_rename) : rename_over(w);

	w->there = status != SFTP_OK;
	return status < 0 ? status : explain_failure(w, status, 0);
}

/* Refused because the name is taken, or for another reason? Version 3 has one number for both. */
static int create(struct writing *w)
{
	bool link = w->l->can.hardlink;
	int status = into_place(w, link ? sftp_call_hardlink : sftp_call_rename);
	struct sftp_attrs attrs;

	w->there = link || status != SFTP_OK;
	if (status <= 0)
		return status;
	if (sftp_call_lstat(w->l, buf_str(&w->path), &attrs) == 0)
		return sftp_is_dir(&attrs) ? -EPERM : -EEXIST;
	if (link && (status == SFTP_FAILURE || status == SFTP_OP_UNSUPPORTED))
		/* A file system without hard links. */
		return -EOPNOTSUPP;
	return explain_failure(w, status, 0);
}

static int writing_begin(struct sftp *s, const char *key, struct writing *ret_w)
{
	int error = sftp_path(s, key, &ret_w->path);

	ret_w->s = s;
	return error ? error : sftp_take(s, &ret_w->l);
}

static void writing_end(struct writing *w)
{
	if (w->l && w->there && !w->l->broken)
		sftp_call_remove(w->l, buf_str(&w->temp));
	sftp_give(w->s, w->l);
	buf_free(&w->temp);
	buf_free(&w->path);
}

int sftp_put(struct remote *r, const char *key, const void *data, size_t len)
{
	struct writing w = {0};
	int error = writing_begin((struct sftp *)r, key, &w);

	if (!error)
		error = write_temp(&w, data, len);
	if (!error)
		error = replace(&w);
	writing_end(&w);
	/* Absent is no answer to a put. */
	return error == -EOPNOTSUPP ? -EIO : error;
}

/* ---- creating only if absent */

static int create_once(struct remote *r, const char *key, const void *data, size_t len)
{
	struct writing w = {0};
	struct sftp_attrs attrs;
	int error = writing_begin((struct sftp *)r, key, &w);

	if (!error) {
		/* Saves sending what would be thrown away. */
		int status = sftp_call_lstat(w.l, buf_str(&w.path), &attrs);

		error = status < 0 ? status : status == SFTP_OK ? -EEXIST : 0;
	}
	if (!error)
		error = write_temp(&w, data, len);
	if (!error)
		error = create(&w);
	writing_end(&w);
	return error;
}

/* The trial of create_once would be answered by its own look at the name: this one goes without. */
static int create_blindly(struct remote *r, const char *key, const void *data, size_t len)
{
	struct writing w = {0};
	int error = writing_begin((struct sftp *)r, key, &w);

	if (!error)
		error = write_temp(&w, data, len);
	if (!error)
		error = create(&w);
	writing_end(&w);
	return error;
}

/* As remote.h says of REMOTE_CREATE_CHECKED. */
static int create_checked(struct remote *r, const char *key, const void *data, size_t len)
{
	struct buf cleanup_buf got = {0};
	uint64_t size;
	int error = remote_size(r, key, &size);

	if (error != -ENOENT)
		return error ? error : -EEXIST;
	error = sftp_put(r, key, data, len);
	if (!error)
		error = remote_get(r, key, 0, REMOTE_TO_END, &got);
	if (error)
		return error == -ENOENT ? -EIO : error;
	return got.len == len && (!len || memcmp(got.data, data, len) == 0) ? 0 : -EEXIST;
}

int sftp_check_create(struct remote *r, enum remote_create *ret_create)
{
	struct sftp *s = (struct sftp *)r;
	bool kept = false, tried;
	int error;

	mutex_lock(&s->lock);
	tried = s->tried;
	*ret_create = s->create;
	mutex_unlock(&s->lock);
	if (tried)
		return 0;
	error = remote_probe_create(r, create_blindly, &kept);
	if (error && error != -EOPNOTSUPP)
		return error;
	SCOPED_LOCK(&s->lock);
	s->tried = true;
	s->create = kept ? REMOTE_CREATE_ATOMIC : REMOTE_CREATE_CHECKED;
	*ret_create = s->create;
	return 0;
}

int sftp_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	enum remote_create how;
	int error = sftp_check_create(r, &how);

	if (error)
		return error;
	return how == REMOTE_CREATE_ATOMIC ? create_once(r, key, data, len)
					   : create_checked(r, key, data, len);
}

/* Whole files over SFTP: many requests under way at once, since each answer takes a round trip. */

#define UNDER_WAY_BYTES (4u << 20) /* twice the window of OpenSSH's channels */
#define UNDER_WAY_MAX	64
#define UNSENT_MAX	(1u << 20)

/* Waits until these bytes may be moved; that is no stall. */
static int pace(struct sftp_link *l, struct rate *rate, size_t bytes)
{
	int64_t wait_ns = rate_take(rate, bytes, clock_mono_ns());

	if (!wait_ns)
		return 0;
	l->deadline_ns += wait_ns;
	l->mark_ns += wait_ns;
	if (remote_sleep(&l->owner->base, wait_ns) == 0)
		return 0;
	l->broken = true;
	return -ECANCELED;
}

/* How many requests of this size are kept under way. */
static size_t depth_of(size_t piece)
{
	size_t depth = UNDER_WAY_BYTES / piece;

	return depth < UNDER_WAY_MAX ? depth : UNDER_WAY_MAX;
}

/* ---- sending */

static void request_write(struct sftp_link *l, const struct sftp_handle *h, uint64_t offset,
			  const uint8_t *data, size_t len)
{
	uint32_t id;
	size_t mark = sftp_request_begin(l, SFTP_WRITE, &id);

	sftp_put_string(&l->out, h->bytes, h->len);
	sftp_put_u64(&l->out, offset);
	sftp_put_string(&l->out, data, len);
	sftp_request_end(l, mark);
}

int sftp_send_file(struct sftp_link *l, const struct sftp_handle *h, const uint8_t *data,
		   size_t len)
{
	struct rate *rate = &l->owner->upload;
	size_t piece = rate_piece(rate, l->max_write), depth = depth_of(piece);
	size_t sent = 0, under_way = 0;
	int status = SFTP_OK;

	sftp_link_start(l);
	/* After a refusal nothing more is sent, but all answers are taken. */
	while (under_way || (sent < len && status == SFTP_OK)) {
		struct sftp_answer a;
		int r = 0;

		while (!r && status == SFTP_OK && sent < len && under_way < depth &&
		       sftp_unsent(l) < UNSENT_MAX) {
			size_t n = len - sent < piece ? len - sent : piece;

			r = pace(l, rate, n);
			request_write(l, h, sent, data + sent, n);
			sent += n;
			under_way++;
		}
		if (!r)
			r = sftp_receive(l, &a);
		if (!r)
			r = sftp_status_of(l, &a);
		if (r < 0)
			return r;
		under_way--;
		if (status == SFTP_OK)
			status = r;
	}
	return status;
}

/* ---- receiving */

/* One READ under way. */
struct piece {
	uint32_t id; /* 0: free */
	uint64_t offset;
	uint32_t len;
};

struct receiving {
	struct sftp_link *l;
	const struct sftp_handle *h;
	struct buf *out;
	size_t start;	    /* of our bytes in `out` */
	uint64_t offset;    /* of the first one in the file */
	uint64_t next, end; /* in the file: what to ask for next, and where to stop */
	uint32_t stat_id;   /* of the FSTAT under way; 0: answered */
	struct piece pieces[UNDER_WAY_MAX];
	size_t under_way, depth, piece;
};

static void request_stat(struct receiving *rc)
{
	size_t mark = sftp_request_begin(rc->l, SFTP_FSTAT, &rc->stat_id);

	sftp_put_string(&rc->l->out, rc->h->bytes, rc->h->len);
	sftp_request_end(rc->l, mark);
}

static int request_read(struct receiving *rc, uint64_t offset, uint32_t len)
{
	struct piece *p = rc->pieces;
	size_t mark;

	while (p->id)
		p++;
	mark = sftp_request_begin(rc->l, SFTP_READ, &p->id);
	sftp_put_string(&rc->l->out, rc->h->bytes, rc->h->len);
	sftp_put_u64(&rc->l->out, offset);
	sftp_put_u32(&rc->l->out, len);
	sftp_request_end(rc->l, mark);
	p->offset = offset;
	p->len = len;
	rc->under_way++;
	return pace(rc->l, &rc->l->owner->download, len);
}

/* Until the size is known, one piece is asked for, not to the end of what may be wanted. */
static int ask_more(struct receiving *rc)
{
	size_t depth = rc->stat_id ? 1 : rc->depth;
	int error = 0;

	while (!error && rc->next < rc->end && rc->under_way < depth) {
		uint64_t left = rc->end - rc->next;
		uint32_t len = (uint32_t)(left < rc->piece ? left : rc->piece);

		error = request_read(rc, rc->next, len);
		rc->next += len;
	}
	return error;
}

/* What kind of file it is, and how long. */
static int take_stat(struct receiving *rc, struct sftp_answer *a)
{
	struct sftp_attrs attrs;

	rc->stat_id = 0;
	if (a->type != SFTP_ATTRS) {
		int status = sftp_status_of(rc->l, a);

		return status < 0 ? status : -EIO;
	}
	sftp_attrs(&a->fields, &attrs);
	if (reader_error(&a->fields) || !attrs.has_size)
		return sftp_nonsense(rc->l, "attributes");
	if (attrs.has_mode && !sftp_is_file(&attrs))
		return sftp_is_dir(&attrs) ? -ENOENT : -EPERM;
	if (attrs.size < rc->end)
		rc->end = attrs.size > rc->offset ? attrs.size : rc->offset;
	if (rc->end - rc->offset > REMOTE_GET_MAX)
		return -EFBIG;
	return buf_reserve(rc->out, rc->end - rc->offset);
}

/* Puts bytes to where they belong. */
static int place(struct receiving *rc, uint64_t offset, const uint8_t *data, size_t len)
{
	size_t at = rc->start + (size_t)(offset - rc->offset);

	if (at + len > rc->out->len) {
		if (buf_reserve(rc->out, at + len - rc->out->len) < 0)
			return -ENOMEM;
		/* Pieces may come in another order: what is not there yet must not be garbage. */
		if (at > rc->out->len)
			memset(rc->out->data + rc->out->len, 0, at - rc->out->len);
		rc->out->len = at + len;
	}
	memcpy(rc->out->data + at, data, len);
	return 0;
}

/* An answer to a READ: data, less than asked for perhaps, or the end of the file. */
static int take_piece(struct receiving *rc, struct sftp_answer *a)
{
	struct piece p = {0};
	const uint8_t *data;
	size_t len;
	int error;

	for (size_t i = 0; i < UNDER_WAY_MAX && !p.id; i++)
		if (rc->pieces[i].id == a->id) {
			p = rc->pieces[i];
			rc->pieces[i].id = 0;
		}
	if (!p.id)
		return sftp_nonsense(rc->l, "an answer to no question");
	rc->under_way--;
	if (a->type != SFTP_DATA) {
		error = sftp_status_of(rc->l, a);
		if (error == SFTP_EOF && p.offset < rc->end)
			rc->end = p.offset;
		return error == SFTP_EOF ? 0 : error < 0 ? error : sftp_errno(error);
	}
	data = sftp_string(&a->fields, &len);
	if (!data || !len || len > p.len)
		return sftp_nonsense(rc->l, "data");
	error = place(rc, p.offset, data, len);
	if (!error && len < p.len)
		error = request_read(rc, p.offset + len, p.len - (uint32_t)len);
	return error;
}

int sftp_receive_file(struct sftp_link *l, const struct sftp_handle *h, uint64_t offset,
		      uint64_t len, struct buf *out)
{
	struct receiving rc = {
		.l = l, .h = h, .out = out, .start = out->len, .offset = offset, .next = offset};
	int result = 0;

	rc.piece = rate_piece(&l->owner->download, l->max_read);
	rc.depth = depth_of(rc.piece);
	if (__builtin_add_overflow(offset, len, &rc.end) || rc.end > INT64_MAX)
		rc.end = INT64_MAX;
	if (rc.next > rc.end)
		rc.next = rc.end = rc.offset;
	sftp_link_start(l);
	request_stat(&rc);
	/* After a failure, what is under way is still taken: the link stays good. */
	while (rc.stat_id || rc.under_way || (!result && rc.next < rc.end)) {
		struct sftp_answer a;
		int error = result ? 0 : ask_more(&rc);

		if (!error)
			error = sftp_receive(l, &a);
		if (!error)
			error = a.id == rc.stat_id ? take_stat(&rc, &a) : take_piece(&rc, &a);
		if (l->broken)
			return error ? error : -EIO;
		if (error && !result)
			result = error;
	}
	if (!result && out->len - rc.start > rc.end - rc.offset)
		out->len = rc.start + (size_t)(rc.end - rc.offset);
	return result;
}
