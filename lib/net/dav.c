/* SPDX-License-Identifier: Apache-2.0 */
/* The WebDAV remote: opening, requests, reading. */
#include "lib/net/dav.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include "lib/net/open.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

#define HOPS_MAX	 3 /* to other hosts */
#define WHOLE_TRIES	 12
#define CONTROL_PARALLEL 2

/* ---- requests */

char *dav_path(const struct dav *d, const char *key)
{
	char *path = NULL;

	return text_print(&path, "%s/%s", d->url.path, key) < 0 ? NULL : path;
}

/* Where the answer sends us: to another host, over https where we came so. */
static bool sends_away(const struct dav *d, const struct http_answer *a)
{
	if (a->status != 301 && a->status != 302 && a->status != 307 && a->status != 308)
		return false;
	return strncasecmp(a->location, "https://", 8) == 0 ||
	       (!d->url.tls && strncasecmp(a->location, "http://", 7) == 0);
}

/* What http_do does not follow: it would tell the other host our password or token. A redirector of
 * XRootD puts what the data server needs into the address. */
static int follow_away(struct dav *d, struct http *h, struct http_request *q, struct http_answer *a)
{
	for (unsigned hop = 0; hop < HOPS_MAX && sends_away(d, a); hop++) {
		cleanup_free char *to = strdup(a->location);
		int r;

		if (!to)
			return -ENOMEM;
		http_answer_free(a);
		q->url = to;
		q->userpwd = q->bearer = NULL;
		r = http_do(h, q, a);
		if (r < 0)
			return r;
	}
	return 0;
}

static int make_request(struct dav *d, struct http *h, const char *url, const char *token,
			struct http_request *q, struct http_answer *ret_answer)
{
	struct http_answer cleanup_http_answer a = {0};
	int r;

	q->url = url;
	q->userpwd = d->url.userpwd;
	q->bearer = token[0] ? token : NULL;
	/* XRootD needs it, and with others a body that is refused is not sent. */
	q->expect_continue = q->has_body && strcmp(q->method, "PUT") == 0;
	r = http_do(h, q, &a);
	if (r == 0)
		r = follow_away(d, h, q, &a);
	if (r < 0)
		return r;
	*ret_answer = a;
	a = (struct http_answer){0};
	return 0;
}

int dav_do_at(struct dav *d, struct http *h, const char *path, struct http_request *q,
	      struct http_answer *ret_answer)
{
	cleanup_free char *url = NULL;
	struct buf cleanup_buf token = {0};
	int r = dav_url_token(&d->url, &token);

	if (r == -EACCES)
		return remote_set_reason(
			&d->base, r,
			"the file with the bearer token cannot be read, or holds none; "
			"see BEARER_TOKEN_FILE");
	if (r < 0)
		return r;
	if (text_print(&url, "%s%s", d->url.origin, path) < 0)
		r = -ENOMEM;
	if (r == 0)
		r = make_request(d, h, url, buf_str(&token), q, ret_answer);
	if (token.data)
		explicit_bzero(token.data, token.cap);
	return r;
}

int dav_do(struct dav *d, struct http *h, const char *key, struct http_request *q,
	   struct http_answer *ret_answer)
{
	cleanup_free char *path = dav_path(d, key);

	return path ? dav_do_at(d, h, path, q, ret_answer) : -ENOMEM;
}

static const char *advice_of(int status)
{
	switch (status) {
	case 401:
		return "it does not know us: check user and password, token or certificate";
	case 403:
		return "it does not allow that: check the permissions there";
	case 404:
		return "nothing is there: check the URL";
	case 405:
	case 415:
	case 501:
		return "is WebDAV enabled for this URL, and writing?";
	case 413:
		return "it limits the size of a request: raise that";
	case 507:
		return "it is full";
	default:
		return "see the server's log";
	}
}

int dav_refused(struct dav *d, const char *method, const struct http_answer *a)
{
	int r = http_errno_of(a->status);

	/* What will not go away by itself is not to be repeated. */
	if (a->status < 400 || a->status == 400 || a->status == 405 || a->status == 415 ||
	    a->status == 501)
		r = -EPERM;
	if (r == -ENOENT)
		return r;
	if (a->status >= 300 && a->status < 400)
		return remote_set_reason(&d->base, r,
					 "%s: the server answers %d and sends us to "
					 "another place: give that URL",
					 method, a->status);
	return remote_set_reason(&d->base, r, "%s: the server answers %d: %s", method, a->status,
				 advice_of(a->status));
}

int dav_result(struct dav *d, int r, const char *method, const struct http_answer *a)
{
	if (r < 0)
		return r;
	return a->status >= 200 && a->status < 300 ? 0 : dav_refused(d, method, a);
}

/* ---- reading */

/* What is asked of an object: [offset, end), end REMOTE_TO_END: to its end. */
struct span {
	uint64_t offset;
	uint64_t end;
};

static struct span span_of(uint64_t offset, uint64_t len)
{
	/* What no object reaches is as good as its end. */
	bool far = len > INT64_MAX || offset > INT64_MAX || offset + len > INT64_MAX;

	return (struct span){offset, far ? REMOTE_TO_END : offset + len};
}

static bool is_whole(const struct span *s)
{
	return s->offset == 0 && s->end == REMOTE_TO_END;
}

static int add_range(struct http_headers *headers, const struct span *s)
{
	char range[64];

	if (is_whole(s))
		return 0;
	if (s->end == REMOTE_TO_END)
		snprintf(range, sizeof(range), "bytes=%" PRIu64 "-", s->offset);
	else
		snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, s->offset, s->end - 1);
	return http_headers_add(headers, "Range", range);
}

/* Of "bytes FIRST-LAST/TOTAL", with `*` for a total that is not known: is it what was asked for? */
static bool is_range(const char *text, const struct span *asked, uint64_t len)
{
	uint64_t first, last, total;
	int n = 0;

	if (sscanf(text, "bytes %" SCNu64 "-%" SCNu64 "/%n", &first, &last, &n) != 2 || n == 0)
		return false;
	if (first != asked->offset || last < first || last - first + 1 != len)
		return false;
	if (asked->end != REMOTE_TO_END && last >= asked->end)
		return false;
	if (text[n] == '*')
		return asked->end != REMOTE_TO_END && last == asked->end - 1;
	if (sscanf(text + n, "%" SCNu64, &total) != 1 || last >= total)
		return false;
	return last + 1 == (asked->end < total ? asked->end : total);
}

/* The whole object came: leaves what was asked for. */
static void cut(struct buf *out, size_t before, const struct span *s)
{
	uint64_t len = out->len - before;
	uint64_t from = s->offset < len ? s->offset : len;
	uint64_t to = s->end < len ? s->end : len;

	if (to < from)
		to = from;
	if (from < to)
		memmove(out->data + before, out->data + before + from, to - from);
	out->len = before + (to - from);
}

/*
 * An answer that does not speak for itself. A server may show a collection as a page for people: that
 * has no ETag, or was redirected to. And some (apache, XRootD) take the length of an object before
 * they open it: where it is replaced in between, the head is the old one's and the bytes are the
 * new one's; a range is asked of what is never replaced, but who asks for the whole must not get that.
 */
static bool is_doubtful(const struct span *s, const struct http_answer *a)
{
	if (a->redirected)
		return true;
	if (a->status == 200 && !a->etag[0])
		return true;
	return is_whole(s) && (strncmp(a->etag, "W/", 2) == 0 ||
			       strncasecmp(a->server, "Apache", strlen("Apache")) == 0);
}

/* 0 for an object of this length (DAV_NO_SIZE: any), -EAGAIN for another's, -ENOENT for a collection. */
static int check_object(struct dav *d, const char *key, uint64_t len)
{
	struct dav_entry entry;
	int r = dav_stat(d, d->http, key, &entry);

	if (r == 0 && entry.collection)
		r = -ENOENT;
	if (r == 0 && len != DAV_NO_SIZE && entry.size != len)
		r = -EAGAIN;
	return r;
}

/* The answer to a GET. -ERANGE where the server got the range wrong, -EAGAIN where the object was
 * replaced meanwhile. */
static int take_answer(struct dav *d, const char *key, const struct span *s,
		       const struct http_answer *a, struct buf *out, size_t before)
{
	uint64_t len = out->len - before;
	int r = 0;

	switch (a->status) {
	case 200:
		if (is_doubtful(s, a))
			r = check_object(d, key, len);
		if (r == 0)
			cut(out, before, s);
		return r;
	case 206:
		if (!is_range(a->content_range, s, len))
			return -ERANGE;
		return is_doubtful(s, a) ? check_object(d, key, DAV_NO_SIZE) : 0;
	case 416:
		return -ERANGE;
	case 403:
	case 301:
	case 302:
		/* Some refuse to show a collection. */
		r = check_object(d, key, DAV_NO_SIZE);
		return r == 0 ? dav_refused(d, "GET", a) : r;
	default:
		return dav_refused(d, "GET", a);
	}
}

static int get_span(struct dav *d, const char *key, const struct span *s, struct buf *out)
{
	struct http_headers cleanup_http_headers headers = {0};
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {
		.method = "GET", .headers = &headers, .max_answer = REMOTE_GET_MAX, .out = out};
	size_t before = out->len;
	int r = add_range(&headers, s);

	if (r == 0)
		r = dav_do(d, d->http, key, &q, &a);
	if (r == 0)
		r = take_answer(d, key, s, &a, out, before);
	if (r < 0)
		out->len = before;
	return r;
}

/* The whole object, or what a server that knows no ranges sends. */
static int get_whole(struct dav *d, const char *key, const struct span *s, struct buf *out)
{
	/* A writer that replaces it all the time may spoil a few attempts; other faults are for the
	 * retry layer. */
	for (int tries = WHOLE_TRIES; tries > 0;) {
		int r = get_span(d, key, s, out);

		if (r != -EAGAIN && r != -EIO && r != -ERANGE)
			return r;
		tries -= r == -EAGAIN ? 1 : WHOLE_TRIES / 6;
	}
	return -EIO;
}

/* The object's size, as the server lists it. */
static int object_size(struct dav *d, const char *key, uint64_t *ret_size)
{
	struct dav_entry entry;
	int r = dav_stat(d, d->http, key, &entry);

	if (r < 0)
		return r;
	if (entry.collection)
		return -ENOENT;
	if (entry.size == DAV_NO_SIZE)
		return remote_set_reason(&d->base, -EIO, "the server does not say how long %s is",
					 key);
	*ret_size = entry.size;
	return 0;
}

/* With a range that is known to lie inside the object. */
static int get_inside(struct dav *d, const char *key, const struct span *s, struct buf *out)
{
	uint64_t size = 0;
	struct span inside = *s;
	size_t before = out->len;
	int r = object_size(d, key, &size);

	if (r < 0)
		return r;
	if (s->offset >= size || s->end <= s->offset)
		return 0;
	if (inside.end > size)
		inside.end = size;
	if (inside.offset == 0 && inside.end == size)
		inside.end = REMOTE_TO_END;
	r = is_whole(&inside) ? get_whole(d, key, &inside, out) : get_span(d, key, &inside, out);
	if (r == 0 && inside.end != REMOTE_TO_END &&
	    out->len - before != inside.end - inside.offset)
		r = -ERANGE;
	if (r < 0)
		out->len = before;
	if (r == -ERANGE)
		r = remote_set_reason(&d->base, -EIO,
				      "the server sent another part of %s than was "
				      "asked for",
				      key);
	return r;
}

static int dav_get(struct remote *remote, const char *key, uint64_t offset, uint64_t len,
		   struct buf *out)
{
	struct dav *d = dav_of(remote);
	struct span s = span_of(offset, len);
	struct dav_entry entry;
	int r;

	if (len == 0 || offset > INT64_MAX || (atomic_load(&d->exact_ranges) && !is_whole(&s)))
		return get_inside(d, key, &s, out);
	if (is_whole(&s))
		return get_whole(d, key, &s, out);
	r = get_span(d, key, &s, out);
	if (r == -EAGAIN)
		r = -EIO;
	else if (r != -ERANGE && r != -EIO)
		return r;
	/* XRootD promises as many bytes as were asked for, sends what there is, and hangs up. */
	if (r == -EIO) {
		r = dav_stat(d, d->http, key, &entry);
		if (r < 0 || entry.size == DAV_NO_SIZE || s.end <= entry.size)
			return r < 0 ? r : -EIO;
		atomic_store(&d->exact_ranges, true);
	}
	return get_inside(d, key, &s, out);
}

static int dav_size(struct remote *remote, const char *key, uint64_t *ret_size)
{
	return object_size(dav_of(remote), key, ret_size);
}

/* DELETE of a collection takes all below it along: never send it for a key that is one. */
static int dav_delete(struct remote *remote, const char *key)
{
	struct dav *d = dav_of(remote);
	struct dav_entry entry;
	int r = dav_stat(d, d->http, key, &entry);

	if (r == -ENOENT || (r == 0 && entry.collection))
		return 0;
	return r < 0 ? r : dav_remove(d, d->http, key);
}

/* ---- opening */

static void dav_release(struct remote *remote)
{
	struct dav *d = dav_of(remote);

	http_free(d->http);
	http_free(d->control);
	dav_url_free(&d->url);
	for (size_t i = 0; i < d->folder_count; i++)
		free(d->folders[i]);
	free(d->folders);
	mutex_destroy(&d->lock);
}

static const struct remote_ops dav_ops = {
	.put = dav_put,
	.put_if_absent = dav_put_if_absent,
	.get = dav_get,
	.size = dav_size,
	.list = dav_list,
	.delete = dav_delete,
	.upload_check = "TLS on https; the server itself compares nothing",
	.check_create = dav_check_create,
	.release = dav_release,
};

static int open_engines(struct dav *d, const struct remote_limits *limits)
{
	struct http_config config = {
		.limits = *limits,
		.ca_file = d->url.ca_file,
		.ca_dir = d->url.ca_dir,
		.client_cert = d->url.cert,
		.client_key = d->url.key,
		/* Over HTTP/2 there is no "100 Continue", and where lighttpd refuses a PUT, its answer may
		 * be lost in the end of the stream. */
		.http1 = true,
	};
	int r = http_new(&d->base, &config, &d->http);

	config.limits = (struct remote_limits){
		.connections = CONTROL_PARALLEL,
		.connect_timeout_ns = limits->connect_timeout_ns,
		.stall_timeout_ns = DAV_CONTROL_LIMIT,
		.total_timeout_ns = DAV_CONTROL_LIMIT,
	};
	return r < 0 ? r : http_new(&d->base, &config, &d->control);
}

int remote_dav_open(const struct remote_url *url, const char *text,
		    const struct remote_limits *limits, struct remote **ret_remote)
{
	struct dav *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	r = dav_url_parse(url, &d->url);
	if (r == -EINVAL)
		r = remote_open_reason(
			r,
			"give http[s]://[USER@]HOST[:PORT]/PATH, %%-encoded, with ?cert=, key=, ca= "
			"(absolute paths, https only) or create=conditional|mkcol|lock|checked");
	else if (r == -EACCES || r == -ENOENT)
		r = remote_open_reason(-EACCES, "EPOCHFS_DAV_PASSWORD_FILE cannot be read");
	if (r == 0)
		r = remote_init(&d->base, &dav_ops, text, NULL);
	if (r < 0) {
		dav_url_free(&d->url);
		free(d);
		return r;
	}
	mutex_init(&d->lock, LOCK_REMOTE_DAV);
	r = open_engines(d, limits);
	if (r == -EINVAL)
		r = remote_open_reason(r,
				       "a certificate, key or authority is missing or not PEM: %s",
				       d->url.cert	? d->url.cert
				       : d->url.ca_file ? d->url.ca_file
							: "");
	if (r < 0) {
		remote_close(&d->base);
		return r;
	}
	atomic_store(&d->create, (int)d->url.create);
	*ret_remote = &d->base;
	return 0;
}
