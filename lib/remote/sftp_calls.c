/* SPDX-License-Identifier: Apache-2.0 */
/* The single requests of SFTP. */
#include <errno.h>
#include <string.h>
#include "lib/remote/sftp_link.h"

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
