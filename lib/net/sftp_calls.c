/* SPDX-License-Identifier: Apache-2.0 */
/* The single requests of SFTP. */
#include "lib/net/sftp.h"

#include <errno.h>
#include <string.h>

#include "lib/util/log.h"

/* Sends the request and waits for its answer. */
static int ask(struct sftp_link *l, size_t mark, uint32_t id, struct sftp_answer *ret_answer)
{
	int error;

	sftp_request_end(l, mark);
	error = sftp_receive(l, ret_answer);
	if (error)
		return error;
	return ret_answer->id == id ? 0 : sftp_nonsense(l, "an answer to no question");
}

static int ask_status(struct sftp_link *l, size_t mark, uint32_t id)
{
	struct sftp_answer a;
	int error = ask(l, mark, id, &a);

	return error ? error : sftp_status_of(l, &a);
}

static int ask_handle(struct sftp_link *l, size_t mark, uint32_t id, struct sftp_handle *ret_handle)
{
	struct sftp_answer a;
	const uint8_t *data;
	size_t len;
	int error = ask(l, mark, id, &a);

	if (error)
		return error;
	if (a.type != SFTP_HANDLE) {
		error = sftp_status_of(l, &a);
		return error == SFTP_OK ? sftp_nonsense(l, "no handle") : error;
	}
	data = sftp_string(&a.fields, &len);
	if (!data || len > SFTP_HANDLE_MAX)
		return sftp_nonsense(l, "a handle");
	memcpy(ret_handle->bytes, data, len);
	ret_handle->len = len;
	return 0;
}

static size_t begin_path(struct sftp_link *l, enum sftp_type type, const char *path,
			 uint32_t *ret_id)
{
	size_t mark;

	sftp_link_start(l);
	mark = sftp_request_begin(l, type, ret_id);
	sftp_put_text(&l->out, path);
	return mark;
}

static size_t begin_handle(struct sftp_link *l, enum sftp_type type, const struct sftp_handle *h,
			   uint32_t *ret_id)
{
	size_t mark;

	sftp_link_start(l);
	mark = sftp_request_begin(l, type, ret_id);
	sftp_put_string(&l->out, h->bytes, h->len);
	return mark;
}

int sftp_call_open(struct sftp_link *l, const char *path, uint32_t pflags, uint32_t mode,
		   struct sftp_handle *ret_handle)
{
	uint32_t id;
	size_t mark = begin_path(l, SFTP_OPEN, path, &id);

	sftp_put_u32(&l->out, pflags);
	if (pflags & SFTP_OPEN_CREAT)
		sftp_put_mode(&l->out, mode);
	else
		sftp_put_no_attrs(&l->out);
	return ask_handle(l, mark, id, ret_handle);
}

int sftp_call_opendir(struct sftp_link *l, const char *path, struct sftp_handle *ret_handle)
{
	uint32_t id;
	size_t mark = begin_path(l, SFTP_OPENDIR, path, &id);

	return ask_handle(l, mark, id, ret_handle);
}

int sftp_call_readdir(struct sftp_link *l, const struct sftp_handle *h, struct buf *names,
		      uint32_t *count)
{
	struct sftp_answer a;
	uint32_t id;
	size_t mark = begin_handle(l, SFTP_READDIR, h, &id);
	int error = ask(l, mark, id, &a);

	if (error)
		return error;
	if (a.type != SFTP_NAME) {
		error = sftp_status_of(l, &a);
		return error == SFTP_OK ? sftp_nonsense(l, "no names") : error;
	}
	*count += sftp_u32(&a.fields);
	if (reader_error(&a.fields))
		return sftp_nonsense(l, "names");
	buf_put(names, a.fields.p, reader_left(&a.fields));
	return buf_error(names);
}

int sftp_call_close(struct sftp_link *l, const struct sftp_handle *h)
{
	uint32_t id;
	size_t mark = begin_handle(l, SFTP_CLOSE, h, &id);

	return ask_status(l, mark, id);
}

void sftp_close_forget(struct sftp_link *l, const struct sftp_handle *h)
{
	uint32_t id;
	size_t mark;

	if (l->broken)
		return;
	mark = begin_handle(l, SFTP_CLOSE, h, &id);
	sftp_request_end(l, mark);
	sftp_forget(l, id);
}

static int call_stat(struct sftp_link *l, enum sftp_type type, const char *path,
		     struct sftp_attrs *ret_attrs)
{
	struct sftp_answer a;
	uint32_t id;
	size_t mark = begin_path(l, type, path, &id);
	int error = ask(l, mark, id, &a);

	if (error)
		return error;
	if (a.type != SFTP_ATTRS) {
		error = sftp_status_of(l, &a);
		return error == SFTP_OK ? sftp_nonsense(l, "no attributes") : error;
	}
	sftp_attrs(&a.fields, ret_attrs);
	return reader_error(&a.fields) ? sftp_nonsense(l, "attributes") : 0;
}

int sftp_call_lstat(struct sftp_link *l, const char *path, struct sftp_attrs *ret_attrs)
{
	return call_stat(l, SFTP_LSTAT, path, ret_attrs);
}

int sftp_call_stat(struct sftp_link *l, const char *path, struct sftp_attrs *ret_attrs)
{
	return call_stat(l, SFTP_STAT, path, ret_attrs);
}

int sftp_call_remove(struct sftp_link *l, const char *path)
{
	uint32_t id;
	size_t mark = begin_path(l, SFTP_REMOVE, path, &id);

	return ask_status(l, mark, id);
}

int sftp_call_mkdir(struct sftp_link *l, const char *path, uint32_t mode)
{
	uint32_t id;
	size_t mark = begin_path(l, SFTP_MKDIR, path, &id);

	sftp_put_mode(&l->out, mode);
	return ask_status(l, mark, id);
}

int sftp_call_rename(struct sftp_link *l, const char *from, const char *to)
{
	uint32_t id;
	size_t mark = begin_path(l, SFTP_RENAME, from, &id);

	sftp_put_text(&l->out, to);
	return ask_status(l, mark, id);
}

static int call_extended(struct sftp_link *l, const char *name, const char *from, const char *to)
{
	uint32_t id;
	size_t mark = begin_path(l, SFTP_EXTENDED, name, &id);

	sftp_put_text(&l->out, from);
	sftp_put_text(&l->out, to);
	return ask_status(l, mark, id);
}

int sftp_call_posix_rename(struct sftp_link *l, const char *from, const char *to)
{
	return call_extended(l, "posix-rename@openssh.com", from, to);
}

int sftp_call_hardlink(struct sftp_link *l, const char *from, const char *to)
{
	return call_extended(l, "hardlink@openssh.com", from, to);
}

int sftp_call_fsync(struct sftp_link *l, const struct sftp_handle *h)
{
	uint32_t id;
	size_t mark = begin_path(l, SFTP_EXTENDED, "fsync@openssh.com", &id);

	sftp_put_string(&l->out, h->bytes, h->len);
	return ask_status(l, mark, id);
}

int sftp_call_room(struct sftp_link *l, const char *path, uint64_t *ret_bytes)
{
	struct sftp_answer a;
	uint64_t fragment, available;
	uint32_t id;
	size_t mark = begin_path(l, SFTP_EXTENDED, "statvfs@openssh.com", &id);
	int error;

	sftp_put_text(&l->out, path);
	error = ask(l, mark, id, &a);
	if (error)
		return error;
	if (a.type != SFTP_EXTENDED_REPLY) {
		error = sftp_status_of(l, &a);
		return error == SFTP_OK ? sftp_nonsense(l, "no statvfs") : error;
	}
	sftp_u64(&a.fields); /* f_bsize */
	fragment = sftp_u64(&a.fields);
	sftp_u64(&a.fields); /* f_blocks */
	sftp_u64(&a.fields); /* f_bfree */
	available = sftp_u64(&a.fields);
	if (reader_error(&a.fields))
		return sftp_nonsense(l, "statvfs");
	if (__builtin_mul_overflow(fragment, available, ret_bytes))
		*ret_bytes = UINT64_MAX;
	return 0;
}

/* ---- Walking the directories of an SFTP server. ---- */

#define STALE_AFTER_S 3600
#define LISTING_MAX   (UINT64_C(1) << 30) /* bytes of names that are taken from one server */

/* Reads the names of one directory, as sftp_call_readdir gives them. 0 or an error of remote.h. */
static int read_dir(struct sftp_link *l, const char *path, struct buf *names, uint32_t *ret_count)
{
	struct sftp_handle h;
	int status = sftp_call_opendir(l, path, &h);

	*ret_count = 0;
	if (status == SFTP_FAILURE) {
		/* Not every server says of a file that it is no directory. */
		struct sftp_attrs attrs;

		if (sftp_call_stat(l, path, &attrs) == 0 && !sftp_is_dir(&attrs))
			return -ENOENT;
	}
	if (status != SFTP_OK)
		return sftp_errno(status);
	while (status == SFTP_OK && names->len <= LISTING_MAX)
		status = sftp_call_readdir(l, &h, names, ret_count);
	sftp_close_forget(l, &h);
	if (status == SFTP_OK)
		return sftp_nonsense(l, "a directory without end");
	return status == SFTP_EOF ? 0 : sftp_errno(status);
}

struct walk {
	struct sftp *s;
	struct sftp_link *l;
	struct buf found; /* u64 size, then the key as buf_put_bytes has it, with its NUL */
	struct buf dirs;  /* keys with a `/` and a NUL: still to be read */
};

/* One name of the directory whose key, with its `/`, is `prefix`. */
static int walk_name(struct walk *w, const char *prefix, const uint8_t *name, size_t len,
		     struct sftp_attrs *attrs)
{
	struct buf cleanup_buf path = {0};
	char key[REMOTE_KEY_MAX + 2];
	int status = 0;

	if (strlen(prefix) + len > REMOTE_KEY_MAX || memchr(name, '\0', len) ||
	    memchr(name, '/', len))
		return 0;
	snprintf(key, sizeof(key), "%s%.*s", prefix, (int)len, (const char *)name);
	if (!remote_key_valid(key))
		return 0;
	if (!attrs->has_mode || !attrs->has_size) {
		if (sftp_path(w->s, key, &path) < 0)
			return -ENOMEM;
		status = sftp_call_lstat(w->l, buf_str(&path), attrs);
		if (status)
			return status == SFTP_NO_SUCH_FILE ? 0 : sftp_errno(status);
	}
	if (sftp_is_file(attrs)) {
		buf_put_u64(&w->found, attrs->size);
		buf_put_bytes(&w->found, key, strlen(key) + 1);
	} else if (sftp_is_dir(attrs) && strlen(key) < REMOTE_KEY_MAX) {
		buf_put(&w->dirs, key, strlen(key));
		buf_put(&w->dirs, "/", 2);
	}
	return buf_error(&w->found) ? -ENOMEM : buf_error(&w->dirs);
}

static int walk_dir(struct walk *w, const char *prefix)
{
	struct buf cleanup_buf path = {0}, names = {0};
	struct reader r;
	uint32_t count;
	int error = sftp_path(w->s, prefix, &path);

	if (!error)
		error = read_dir(w->l, buf_str(&path), &names, &count);
	if (error)
		return error == -ENOENT ? 0 : error;
	r = reader_of(names.data, names.len);
	for (uint32_t i = 0; i < count && !error; i++) {
		struct sftp_attrs attrs;
		const uint8_t *name;
		size_t len;

		if (!sftp_next_name(&r, &name, &len, &attrs))
			return sftp_nonsense(w->l, "names");
		error = walk_name(w, prefix, name, len, &attrs);
	}
	if (!error && w->found.len + w->dirs.len > LISTING_MAX)
		error = sftp_nonsense(w->l, "names without end");
	return error;
}

static int walk_all(struct walk *w, const char *prefix)
{
	int error = walk_dir(w, prefix);

	for (size_t at = 0; !error && at < w->dirs.len;) {
		/* A copy, since the list grows meanwhile. */
		char dir[REMOTE_KEY_MAX + 2];

		snprintf(dir, sizeof(dir), "%s", (const char *)w->dirs.data + at);
		at += strlen(dir) + 1;
		error = walk_dir(w, dir);
	}
	return error;
}

/* Collected first: fn may take its time and use the remote, for which there may be one link. */
int sftp_list_all(struct sftp *s, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct walk w = {.s = s};
	struct reader r;
	int error = sftp_take(s, &w.l);

	if (!error)
		error = walk_all(&w, prefix);
	sftp_give(s, w.l);
	r = reader_of(w.found.data, error ? 0 : w.found.len);
	while (!error && reader_left(&r) > 0) {
		uint64_t size = reader_u64(&r);
		size_t len = 0;
		const uint8_t *key = reader_bytes(&r, REMOTE_KEY_MAX + 1, &len);

		error = key ? fn(arg, (const char *)key, size) : -EIO;
	}
	buf_free(&w.found);
	buf_free(&w.dirs);
	return error;
}

/* True for a temporary of ours that nobody writes any more. */
static bool is_stale(const uint8_t *name, size_t len, const struct sftp_attrs *a, uint32_t now)
{
	return len > strlen(TEMP_PREFIX) && memcmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)) == 0 &&
	       !memchr(name, '/', len) && !memchr(name, '\0', len) && sftp_is_file(a) &&
	       a->has_times && now > a->mtime && now - a->mtime >= STALE_AFTER_S;
}

void sftp_sweep(struct sftp *s, struct sftp_link *link, uint32_t now)
{
	struct buf cleanup_buf path = {0}, names = {0};
	struct reader r;
	uint32_t count = 0;

	if (sftp_path(s, "", &path) < 0 || read_dir(link, buf_str(&path), &names, &count) < 0)
		return;
	r = reader_of(names.data, names.len);
	for (uint32_t i = 0; i < count; i++) {
		struct sftp_attrs attrs;
		const uint8_t *name;
		char text[64];
		size_t len;

		if (!sftp_next_name(&r, &name, &len, &attrs))
			return;
		if (!is_stale(name, len, &attrs, now) || len >= sizeof(text))
			continue;
		snprintf(text, sizeof(text), "%.*s", (int)len, (const char *)name);
		if (sftp_path(s, text, &path) == 0 &&
		    sftp_call_remove(link, buf_str(&path)) == SFTP_OK)
			log_debug("%s: removed %s, left by a killed upload", s->base.name, text);
	}
}
