/* SPDX-License-Identifier: Apache-2.0 */
/* The WebDAV remote: what lies there (PROPFIND, RFC 4918, 9.1). */
#include "lib/remote/dav.h"

#include <errno.h>
#include <string.h>
#include "lib/util/log.h"
#include "lib/util/text.h"

#define FOLDERS_MAX 1000000 /* of one listing: a server must not make it endless */

static int propfind(struct dav *d, struct http *h, const char *path, const char *depth,
		    size_t max_answer, dav_list_fn *fn, void *arg)
{
	struct http_headers cleanup_http_headers headers = {0};
	struct http_answer cleanup_http_answer a = {0};
	struct buf cleanup_buf text = {0};
	struct http_request q = {
		.method = "PROPFIND",
		.headers = &headers,
		.body = dav_list_request,
		.body_len = strlen(dav_list_request),
		.has_body = true,
		.max_answer = max_answer,
		.out = &text,
	};
	int r = http_headers_add(&headers, "Depth", depth);

	if (r == 0)
		r = http_headers_add(&headers, "Content-Type", "application/xml; charset=utf-8");
	if (r == 0)
		r = dav_do_at(d, h, path, &q, &a);
	r = dav_result(d, r, q.method, &a);
	if (r < 0)
		return r;
	if (a.status != 207)
		return remote_set_reason(
			&d->base, -EPERM,
			"PROPFIND: the server answers %d, not 207: is WebDAV enabled "
			"for this URL?",
			a.status);
	r = dav_list_parse(text.data, text.len, fn, arg);
	if (r == -EBADMSG)
		return remote_set_reason(&d->base, -EIO,
					 "PROPFIND: the server's list is malformed");
	return r;
}

/* ---- one resource */

static int take_first(void *arg, const struct dav_entry *entry)
{
	*(struct dav_entry *)arg = *entry;
	return 1;
}

int dav_stat_at(struct dav *d, struct http *h, const char *path, struct dav_entry *ret_entry)
{
	cleanup_free struct dav_entry *entry = calloc(1, sizeof(*entry));
	int r;

	if (!entry)
		return -ENOMEM;
	r = propfind(d, h, path, "0", 1U << 20, take_first, entry);
	if (r < 0)
		return r;
	if (r == 0)
		return remote_set_reason(&d->base, -EIO, "PROPFIND: the server's list is empty");
	*ret_entry = *entry;
	return 0;
}

int dav_stat(struct dav *d, struct http *h, const char *key, struct dav_entry *ret_entry)
{
	cleanup_free char *path = dav_path(d, key);

	return path ? dav_stat_at(d, h, path, ret_entry) : -ENOMEM;
}

/* ---- a collection */

struct members {
	struct dav_place place;
	dav_member_fn *fn;
	void *arg;
	char name[DAV_HREF_MAX];
};

static int take_member(void *arg, const struct dav_entry *entry)
{
	struct members *m = arg;

	if (dav_member_name(&m->place, entry->href, m->name) < 0)
		return 0;
	return m->fn(m->arg, m->name, entry);
}

int dav_members(struct dav *d, const char *folder, dav_member_fn *fn, void *arg)
{
	cleanup_free struct members *m = calloc(1, sizeof(*m));
	cleanup_free char *path = dav_path(d, folder);
	cleanup_free char *decoded = NULL;

	if (!m || !path || text_print(&decoded, "%s/%s", d->url.path_decoded, folder) < 0)
		return -ENOMEM;
	m->place = (struct dav_place){.authority = d->url.authority, .path = decoded};
	m->fn = fn;
	m->arg = arg;
	return propfind(d, d->http, path, "1", DAV_LIST_MAX, take_member, m);
}

/* ---- all below a prefix */

struct walk {
	struct dav *d;
	remote_list_fn *fn;
	void *arg;
	const char *folder; /* which is read now */
	struct buf todo;    /* folders, each with its NUL */
	size_t folders;
	int result; /* of fn, where it ended the listing */
};

static int walk_member(void *arg, const char *name, const struct dav_entry *entry)
{
	struct walk *w = arg;
	char key[2 * REMOTE_KEY_MAX];
	int n = snprintf(key, sizeof(key), "%s%s", w->folder, name);

	if (n < 0 || (size_t)n > REMOTE_KEY_MAX || !remote_key_valid(key))
		return 0;
	if (entry->collection) {
		if (++w->folders > FOLDERS_MAX)
			return remote_set_reason(&w->d->base, -EIO,
						 "the server lists no end of folders");
		buf_put(&w->todo, key, (size_t)n);
		buf_put(&w->todo, "/", 2);
		return buf_error(&w->todo);
	}
	if (entry->size == DAV_NO_SIZE)
		return remote_set_reason(&w->d->base, -EIO,
					 "the server does not say how long %s is", key);
	w->result = w->fn(w->arg, key, entry->size);
	return w->result ? 1 : 0;
}

int dav_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct walk w = {.d = dav_of(r), .fn = fn, .arg = arg};
	int err = 0;

	buf_put(&w.todo, prefix, strlen(prefix) + 1);
	err = buf_error(&w.todo);
	/* The last first: what is to be done stays as small as the tree is deep. */
	while (err == 0 && w.todo.len > 0) {
		char folder[REMOTE_KEY_MAX + 2];
		size_t at = w.todo.len - 1;

		while (at > 0 && w.todo.data[at - 1])
			at--;
		memcpy(folder, w.todo.data + at, w.todo.len - at);
		w.todo.len = at;
		w.folder = folder;
		err = dav_members(w.d, folder, walk_member, &w);
		if (err == -ENOENT)
			err = 0;
	}
	buf_free(&w.todo);
	return w.result ? w.result : err;
}
