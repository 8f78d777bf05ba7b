/* SPDX-License-Identifier: Apache-2.0 */
/* The WebDAV remote: writing.
 *
 * An object must appear whole and at once. Most servers write a PUT aside and rename it; there PUT
 * is all. XRootD writes in place: there an object is put to `.tmp-RANDOM` beside the volume's first
 * objects, and MOVE (RFC 4918, 9.9) renames it. MOVE is not taken where PUT will do, since some
 * servers (apache) remove what is there before they move something over it. Which of both a server
 * is, is tried out before the first write: a probe is put over a smaller one, and looked at when
 * half of it is on the way.
 *
 * Collections are made when a PUT finds that they are missing, and remembered. Temporaries that a
 * crash left are removed by the first write of a remote, when they are an hour old by the clock of the
 * server's files.
 */
#include "lib/net/dav.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

#define STALE_AFTER_S	3600
#define FOLDERS_MAX	4096 /* that are remembered */
#define PROBE_OLD	"old"
#define PROBE_SIZE	(128U << 10)
#define PROBE_LOOKS	4
#define PROBE_LOOK_WAIT (20 * NS_PER_MS)
#define TEMP_ID_LEN	16
#define NAME_PLAIN	200

int dav_temp_name(char ret_name[DAV_TEMP_MAX])
{
	uint8_t random[TEMP_ID_LEN / 2];
	char id[TEMP_ID_LEN + 1];

	if (random_bytes(random, sizeof(random)) < 0)
		return -EIO;
	hex_encode(random, sizeof(random), id);
	snprintf(ret_name, DAV_TEMP_MAX, DAV_TEMP_PREFIX "%s", id);
	return 0;
}

/* ---- collections */

static bool is_remembered(struct dav *d, const char *folder)
{
	SCOPED_LOCK(&d->lock);

	for (size_t i = 0; i < d->folder_count; i++)
		if (strcmp(d->folders[i], folder) == 0)
			return true;
	return false;
}

/* Not to remember only costs a request. */
static void remember(struct dav *d, const char *folder)
{
	char **folders, *copy;

	if (is_remembered(d, folder))
		return;
	SCOPED_LOCK(&d->lock);
	if (d->folder_count == FOLDERS_MAX)
		return;
	folders = reallocarray(d->folders, d->folder_count + 1, sizeof(*folders));
	copy = strdup(folder);
	if (folders)
		d->folders = folders;
	if (folders && copy)
		d->folders[d->folder_count++] = steal_ptr(copy);
	free(copy);
}

bool dav_has_parents(struct dav *d, const char *key)
{
	const char *slash = strrchr(key, '/');
	cleanup_free char *folder = strndup(key, slash ? (size_t)(slash + 1 - key) : 0);

	return folder && is_remembered(d, folder);
}

static int mkcol(struct dav *d, struct http *h, const char *path, int *ret_status)
{
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {.method = "MKCOL"};
	struct dav_entry entry;
	int r = dav_do_at(d, h, path, &q, &a);

	if (r < 0)
		return r;
	*ret_status = a.status;
	if (a.status == 405 || a.status == 404 || a.status == 409)
		return 0;
	r = dav_result(d, r, q.method, &a);
	/* Of those who race to make it, apache refuses all but one. */
	if (r < 0 && dav_stat_at(d, h, path, &entry) == 0)
		r = 0;
	return r;
}

/* Makes the collection at this path (with a `/` at its end), and those above as far as they are
 * missing. */
static int make_folder(struct dav *d, const char *path)
{
	size_t len = strlen(path), above = len - 1;
	cleanup_free char *parent = NULL;
	int status = 0;
	int r = mkcol(d, d->http, path, &status);

	if (r < 0 || (status != 404 && status != 409))
		return r;
	while (above > 0 && path[above - 1] != '/')
		above--;
	if (above <= 1)
		return remote_set_reason(&d->base, -EPERM,
					 "MKCOL: the server answers %d: check the URL", status);
	parent = strndup(path, above);
	if (!parent)
		return -ENOMEM;
	r = make_folder(d, parent);
	if (r == 0)
		r = mkcol(d, d->http, path, &status);
	if (r == 0 && (status == 404 || status == 409))
		r = remote_set_reason(&d->base, -EIO, "MKCOL: the server answers %d", status);
	return r;
}

int dav_make_parents(struct dav *d, const char *key)
{
	const char *slash = strrchr(key, '/');
	cleanup_free char *folder = strndup(key, slash ? (size_t)(slash + 1 - key) : 0);
	cleanup_free char *path = folder ? dav_path(d, folder) : NULL;
	int r;

	if (!path)
		return -ENOMEM;
	if (strcmp(path, "/") == 0)
		return 0;
	r = make_folder(d, path);
	if (r == 0)
		remember(d, folder);
	return r;
}

/* Whether what became of a PUT or MOVE may mean that the collection above is missing: nginx and recent versions of lighttpd say 500,
 * and a server that refuses a body may hang up. `had`: it was known to be there before the request; another thread may have made
 * it since. */
static bool may_lack_parents(bool had, int r, int status)
{
	if (r == 0 && (status == 404 || status == 409))
		return true;
	return (r == -EIO || (r == 0 && status == 500)) && !had;
}

/* ---- one PUT, MOVE, DELETE */

static int put_once(struct dav *d, struct http_request *q, const char *key, bool absent,
		    struct http_answer *a)
{
	struct http_headers cleanup_http_headers headers = {0};
	int r = 0;

	if (absent)
		r = http_headers_add(&headers, "If-None-Match", "*");
	q->headers = &headers;
	if (r == 0)
		r = dav_do(d, d->http, key, q, a);
	q->headers = NULL;
	return r;
}

static int put_request(struct dav *d, struct http_request *q, const char *key, bool absent)
{
	struct http_answer cleanup_http_answer a = {0};
	bool had = dav_has_parents(d, key);
	int r = put_once(d, q, key, absent, &a);

	if (may_lack_parents(had, r, a.status)) {
		r = dav_make_parents(d, key);
		if (r == 0) {
			http_answer_free(&a);
			r = put_once(d, q, key, absent, &a);
		}
	}
	if (r == 0 && absent && a.status == 412)
		return -EEXIST;
	return dav_result(d, r, q->method, &a);
}

int dav_put_at(struct dav *d, const char *key, const void *data, size_t len, bool absent)
{
	struct http_request q = {.method = "PUT", .body = data, .body_len = len, .has_body = true};

	return put_request(d, &q, key, absent);
}

static int move_once(struct dav *d, struct http *h, const char *from, const char *to, bool replace,
		     struct http_answer *a)
{
	struct http_headers cleanup_http_headers headers = {0};
	struct http_request q = {.method = "MOVE", .headers = &headers};
	cleanup_free char *destination = NULL;
	bool raw = atomic_load(&d->raw_destination);
	int r;

	if (text_print(&destination, "%s%s/%s", d->url.origin,
		       raw ? d->url.path_decoded : d->url.path, to) < 0)
		return -ENOMEM;
	r = http_headers_add(&headers, "Destination", destination);
	if (r == 0)
		r = http_headers_add(&headers, "Overwrite", replace ? "T" : "F");
	return r < 0 ? r : dav_do(d, h, from, &q, a);
}

int dav_move(struct dav *d, struct http *h, const char *from, const char *to, bool replace)
{
	struct http_answer cleanup_http_answer a = {0};
	bool had = dav_has_parents(d, to);
	int r = move_once(d, h, from, to, replace, &a);

	if (may_lack_parents(had, r, a.status)) {
		r = dav_make_parents(d, to);
		if (r == 0) {
			http_answer_free(&a);
			r = move_once(d, h, from, to, replace, &a);
		}
	}
	if (r == 0 && !replace && a.status == 412)
		return -EEXIST;
	r = dav_result(d, r, "MOVE", &a);
	/* The source was there a moment ago. */
	return r == -ENOENT ? -EIO : r;
}

int dav_remove(struct dav *d, struct http *h, const char *key)
{
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {.method = "DELETE"};
	int r = dav_do(d, h, key, &q, &a);

	r = dav_result(d, r, q.method, &a);
	return r == -ENOENT ? 0 : r;
}

/* ---- how to place an object */

/* Somebody who looks at the probe while it is being replaced. */
struct looking {
	struct dav *d;
	const char *key;
	bool looked;
	bool torn; /* saw something else than the old bytes */
};

static void look(void *arg)
{
	struct looking *l = arg;

	l->looked = true;
	for (int i = 0; i < PROBE_LOOKS && !l->torn; i++) {
		struct http_answer cleanup_http_answer a = {0};
		struct buf cleanup_buf got = {0};
		struct http_request q = {
			.method = "GET", .max_answer = 2 * PROBE_SIZE, .out = &got};

		if (i > 0 && remote_sleep(&l->d->base, PROBE_LOOK_WAIT) < 0)
			return;
		l->torn = dav_do(l->d, l->d->control, l->key, &q, &a) < 0 || a.status != 200 ||
			  strcmp(buf_str(&got), PROBE_OLD) != 0;
	}
}

/* Replaces the probe and has it looked at meanwhile. */
static int probe_put(struct dav *d, const char *key, enum dav_placement *ret_placement)
{
	struct looking l = {.d = d, .key = key};
	cleanup_free char *body = calloc(1, PROBE_SIZE);
	struct http_request q = {
		.method = "PUT",
		.body = body,
		.body_len = PROBE_SIZE,
		.has_body = true,
		.half_sent = look,
		.half_sent_arg = &l,
	};
	int r;

	if (!body)
		return -ENOMEM;
	memset(body, 'n', PROBE_SIZE);
	r = dav_put_at(d, key, PROBE_OLD, strlen(PROBE_OLD), false);
	if (r == 0)
		r = put_request(d, &q, key, false);
	if (r == 0)
		*ret_placement = l.looked && !l.torn ? DAV_PLACE_PUT : DAV_PLACE_MOVE;
	return r;
}

static int move_and_look(struct dav *d, const char *from, const char *to)
{
	struct dav_entry entry;
	int r = dav_move(d, d->http, from, to, true);

	if (r == 0)
		r = dav_stat(d, d->http, to, &entry);
	return r == -ENOENT ? -EPERM : r;
}

/* Is MOVE there at all? XRootD 5.5 takes the Destination as it stands, without decoding it: that is
 * tried first, since the other way round would leave a folder of an odd name. */
static int probe_move(struct dav *d, const char *from, const char *to)
{
	bool encoded = strcmp(d->url.path, d->url.path_decoded) != 0;
	int r;

	atomic_store(&d->raw_destination, encoded && !strchr(d->url.path_decoded, '%'));
	r = move_and_look(d, from, to);
	if (r == -EPERM && atomic_exchange(&d->raw_destination, false))
		r = move_and_look(d, from, to);
	if (r == -EPERM || r == -EOPNOTSUPP)
		return remote_set_reason(
			&d->base, -EOPNOTSUPP,
			"the server shows objects that are still being written, and "
			"has no MOVE to avoid that: it cannot hold a volume");
	return r;
}

static int probe_placement(struct dav *d, enum dav_placement *ret_placement)
{
	char key[DAV_TEMP_MAX], moved[DAV_TEMP_MAX];
	int r = dav_temp_name(key);

	if (r == 0)
		r = dav_temp_name(moved);
	if (r < 0)
		return r;
	r = probe_put(d, key, ret_placement);
	if (r == 0 && *ret_placement == DAV_PLACE_MOVE) {
		r = probe_move(d, key, moved);
		if (r == 0)
			dav_remove(d, d->http, moved);
	}
	if (r < 0 || *ret_placement == DAV_PLACE_PUT)
		dav_remove(d, d->http, key);
	return r;
}

/* Threads that start together may each try: they find the same. */
static int find_placement(struct dav *d, enum dav_placement *ret_placement)
{
	enum dav_placement placement = (enum dav_placement)atomic_load(&d->placement);
	int r = 0;

	if (placement == DAV_PLACE_UNKNOWN) {
		r = probe_placement(d, &placement);
		if (r < 0)
			return r;
		log_debug("%s: objects are placed by %s", d->base.name,
			  placement == DAV_PLACE_PUT ? "PUT" : "PUT to a temporary name and MOVE");
		atomic_store(&d->placement, (int)placement);
	}
	*ret_placement = placement;
	return 0;
}

/* ---- temporaries that a crash left */

struct sweep {
	struct dav *d;
	int64_t now_s;
	struct buf names; /* each with its NUL */
};

static int sweep_one(void *arg, const char *name, const struct dav_entry *entry)
{
	struct sweep *s = arg;
	time_t made = curl_getdate(entry->modified, NULL);

	if (entry->collection || strncmp(name, DAV_TEMP_PREFIX, strlen(DAV_TEMP_PREFIX)) != 0 ||
	    strspn(name + strlen(DAV_TEMP_PREFIX), "0123456789abcdef") != TEMP_ID_LEN ||
	    strlen(name) != strlen(DAV_TEMP_PREFIX) + TEMP_ID_LEN)
		return 0;
	if (made == -1 || s->now_s - made < STALE_AFTER_S)
		return 0;
	buf_put(&s->names, name, strlen(name) + 1);
	return buf_error(&s->names);
}

/* The server's own clock, as its files have it: the probe has just changed this collection. */
static int64_t server_now_s(struct dav *d)
{
	struct dav_entry entry;

	return dav_stat(d, d->http, "", &entry) == 0 ? curl_getdate(entry.modified, NULL) : -1;
}

/* What cannot be removed does no harm. */
static void sweep(struct dav *d)
{
	struct sweep s = {.d = d};

	if (atomic_exchange(&d->swept, true))
		return;
	s.now_s = server_now_s(d);
	if (s.now_s > 0 && dav_members(d, "", sweep_one, &s) == 0) {
		for (size_t at = 0; at < s.names.len; at += strlen((char *)s.names.data + at) + 1)
			dav_remove(d, d->http, (char *)s.names.data + at);
	}
	buf_free(&s.names);
}

/* ---- */

/* What lighttpd does not do well by PUT: an empty object is made in place, and served with the length
 * that it remembers; the name beside a long one is too long. */
static bool is_odd(const char *key, size_t len)
{
	const char *slash = strrchr(key, '/');

	return len == 0 || strlen(slash ? slash + 1 : key) > NAME_PLAIN;
}

int dav_put(struct remote *remote, const char *key, const void *data, size_t len)
{
	struct dav *d = dav_of(remote);
	enum dav_placement placement;
	char temp[DAV_TEMP_MAX];
	int r = find_placement(d, &placement);

	if (r < 0)
		return r;
	sweep(d);
	if (placement == DAV_PLACE_PUT && !is_odd(key, len))
		return dav_put_at(d, key, data, len, false);
	r = dav_temp_name(temp);
	if (r == 0)
		r = dav_put_at(d, temp, data, len, false);
	if (r < 0)
		return r;
	r = dav_move(d, d->http, temp, key, true);
	if (r < 0 && r != -ECANCELED)
		dav_remove(d, d->http, temp);
	return r;
}
