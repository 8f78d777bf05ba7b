/* SPDX-License-Identifier: Apache-2.0 */
/* The WebDAV remote: creating an object only if it is absent.
 *
 * Means, by strength:
 *   conditional  PUT with If-None-Match: *. One request; nothing is left when the writer dies.
 *   mkcol        the object is put to a temporary name; the collection `.tmp-creating` is made, as a
 *                mutex: MKCOL refuses what is there (RFC 4918, 9.3.1); if the object is still absent,
 *                MOVE places it; the collection is removed.
 *   lock         the same with an exclusive write LOCK on the resource `.tmp-lock` as the mutex.
 *   checked      look, put, read back. It is no mutex: REMOTE_CREATE_CHECKED.
 *
 * Each is tried out before its first use (a second creation must be refused). But no trial shows
 * what happens in a race, and servers do differ there: apache's conditional PUT and XRootD's MKCOL
 * look before they leap, and of eight racing writers up to six win. So a server that says it is
 * XRootD is `checked`; one that says it is lighttpd, whose conditional PUT is one link(2), is
 * `conditional`; every other is `mkcol`, since that is one mkdir(2) wherever collections are
 * directories; where that fails the trial, `lock`, then `checked`. `create=` in the URL overrides.
 * All writers of a volume choose alike, since they talk to one server.
 *
 * A mutex whose holder was killed. A holder makes two short requests, each of which ends within
 * DAV_CONTROL_LIMIT, and gives up where more than HOLD_MAX have gone by before the second. Whoever
 * waits has seen the same mutex, by its time of making, for EXPIRES by his own clock: then it is left
 * over, and is removed, under a second mutex `.tmp-expiring` so that two who wait cannot remove each
 * other's next one. No clock is compared with another machine's. A lock names its time-out to the
 * server instead, which removes it.
 */
#include "lib/net/dav.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include "lib/util/clock.h"
#include "lib/util/log.h"

#define MUTEX	     DAV_TEMP_PREFIX "creating/"
#define EXPIRING     DAV_TEMP_PREFIX "expiring/"
#define LOCK_FILE    DAV_TEMP_PREFIX "lock"
#define HOLD_MAX     (15 * NS_PER_S)
#define EXPIRES	     (30 * NS_PER_S)
#define WAIT_MAX     (75 * NS_PER_S) /* for the mutex, in one call */
#define WAIT_FIRST   (5 * NS_PER_MS)
#define WAIT_LONG    (200 * NS_PER_MS)
#define REFUSALS_MAX 50 /* in one call; the trial found that collections can be made */

/* ---- the mutex as a collection */

/* 0: it is ours; -EAGAIN: another's. */
static int take_collection(struct dav *d, const char *name)
{
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {.method = "MKCOL"};
	struct dav_entry entry;
	int r = dav_do(d, d->control, name, &q, &a);

	if (r == 0 && (a.status == 405 || a.status == 423))
		return -EAGAIN;
	if (r == 0 && (a.status == 409 || a.status == 404)) {
		r = dav_make_parents(d, name);
		return r < 0 ? r : -EAGAIN;
	}
	/* What apache says to those who lose a race. */
	if (r == 0 && (a.status == 403 || a.status == 500)) {
		r = dav_refused(d, q.method, &a);
		return dav_stat(d, d->control, name, &entry) == 0 ? -EAGAIN : r;
	}
	return dav_result(d, r, q.method, &a);
}

static int expire(struct dav *d, const char *seen)
{
	struct dav_entry entry;
	int r = take_collection(d, EXPIRING);

	if (r < 0)
		return r;
	r = dav_stat(d, d->control, MUTEX, &entry);
	if (r == 0 && strcmp(entry.modified, seen) == 0) {
		log_warn(
			"%s: a writer was killed while it created an object: its mutex %s is removed",
			d->base.name, MUTEX);
		r = dav_remove(d, d->control, MUTEX);
	}
	dav_remove(d, d->control, EXPIRING);
	return r == -ENOENT ? 0 : r;
}

/* What somebody who waits has seen of a mutex. */
struct sight {
	char modified[DAV_MODIFIED_MAX];
	int64_t since_ns;
};

/* Looks at a mutex that is another's, and removes what is left over. */
static int watch(struct dav *d, const char *name, struct sight *s)
{
	struct dav_entry entry;
	int64_t now = clock_mono_ns();
	int r = dav_stat(d, d->control, name, &entry);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (s->since_ns == 0 || strcmp(s->modified, entry.modified) != 0) {
		s->since_ns = now;
		memcpy(s->modified, entry.modified, sizeof(s->modified));
	}
	/* A server that does not say when it was made cannot be told from one that is busy. */
	if (now - s->since_ns < EXPIRES || !entry.modified[0])
		return 0;
	s->since_ns = 0;
	if (strcmp(name, EXPIRING) == 0)
		return dav_remove(d, d->control, name);
	r = expire(d, entry.modified);
	return r == -EAGAIN ? 0 : r;
}

/* ---- the mutex as a lock (RFC 4918, 9.10) */

static const char lock_request[] =
	"<?xml version=\"1.0\" encoding=\"utf-8\"?><D:lockinfo xmlns:D=\"DAV:\">"
	"<D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype>"
	"<D:owner>epochfs</D:owner></D:lockinfo>";

static int take_lock(struct dav *d, char ret_token[HTTP_LOCK_TOKEN_MAX])
{
	struct http_headers cleanup_http_headers headers = {0};
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {
		.method = "LOCK",
		.headers = &headers,
		.body = lock_request,
		.body_len = strlen(lock_request),
		.has_body = true,
	};
	char timeout[32];
	int r;

	snprintf(timeout, sizeof(timeout), "Second-%d", (int)(EXPIRES / NS_PER_S));
	r = http_headers_add(&headers, "Timeout", timeout);
	if (r == 0)
		r = http_headers_add(&headers, "Depth", "0");
	if (r == 0)
		r = http_headers_add(&headers, "Content-Type", "application/xml; charset=utf-8");
	if (r == 0)
		r = dav_do(d, d->control, LOCK_FILE, &q, &a);
	if (r == 0 && a.status == 423)
		return -EAGAIN;
	r = dav_result(d, r, q.method, &a);
	if (r == 0 && !a.lock_token[0])
		r = remote_set_reason(&d->base, -EPERM, "LOCK: the server gives no token");
	if (r == 0)
		memcpy(ret_token, a.lock_token, HTTP_LOCK_TOKEN_MAX);
	return r;
}

static void give_lock(struct dav *d, const char *token)
{
	struct http_headers cleanup_http_headers headers = {0};
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {.method = "UNLOCK", .headers = &headers};

	/* Where it does not work, the lock times out. */
	if (http_headers_add(&headers, "Lock-Token", token) == 0)
		(void)dav_do(d, d->control, LOCK_FILE, &q, &a);
}

/* ---- either */

struct dav_mutex {
	struct dav *d;
	bool lock;
	char token[HTTP_LOCK_TOKEN_MAX];
	int64_t taken_ns; /* before it was asked for */
};

static int mutex_try(struct dav_mutex *m)
{
	m->taken_ns = clock_mono_ns();
	return m->lock ? take_lock(m->d, m->token) : take_collection(m->d, MUTEX);
}

static void mutex_give(struct dav_mutex *m)
{
	if (m->lock)
		give_lock(m->d, m->token);
	else if (clock_mono_ns() - m->taken_ns < HOLD_MAX)
		(void)dav_remove(m->d, m->d->control, MUTEX);
	/* Later it may be another's already: ours is removed as a killed one's would be. */
}

/* Is the object there? */
static int check_absent(struct dav *d, const char *key)
{
	struct dav_entry entry;
	int r = dav_stat(d, d->control, key, &entry);

	return r == 0 ? -EEXIST : r == -ENOENT ? 0 : r;
}

/* Takes the mutex, or -EEXIST as soon as the object is there. */
static int mutex_take(struct dav_mutex *m, const char *key)
{
	int64_t began = clock_mono_ns(), wait_ns = WAIT_FIRST;
	struct sight mutex = {0}, expiring = {0};
	unsigned refusals = 0;

	for (;;) {
		int r = check_absent(m->d, key);

		if (r == 0)
			r = mutex_try(m);
		/* Refused, but it may be that the one who had it has just given it back. */
		if (r == -EACCES && refusals++ < REFUSALS_MAX)
			r = -EAGAIN;
		if (r != -EAGAIN)
			return r;
		r = m->lock ? 0 : watch(m->d, MUTEX, &mutex);
		if (r == 0 && mutex.since_ns && clock_mono_ns() - mutex.since_ns > EXPIRES)
			r = watch(m->d, EXPIRING, &expiring);
		if (r == 0 && clock_mono_ns() - began > WAIT_MAX)
			r = remote_set_reason(
				&m->d->base, -EIO,
				"others create objects all the time, or left %s there",
				m->lock ? LOCK_FILE : MUTEX);
		if (r == 0)
			r = remote_sleep(&m->d->base, wait_ns);
		if (r < 0)
			return r;
		wait_ns = clock_backoff(wait_ns, wait_ns, WAIT_LONG);
	}
}

/* With the mutex held: the object is absent, so place it. */
static int place(struct dav_mutex *m, const char *temp, const char *key)
{
	int r = check_absent(m->d, key);

	if (r < 0)
		return r;
	if (clock_mono_ns() - m->taken_ns > HOLD_MAX)
		return remote_set_reason(&m->d->base, -ETIMEDOUT, "the server was too slow");
	return dav_move(m->d, m->d->control, temp, key, false);
}

static int create_under_mutex(struct dav *d, bool lock, const char *key, const void *data,
			      size_t len)
{
	struct dav_mutex m = {.d = d, .lock = lock};
	char temp[DAV_TEMP_MAX];
	int r = check_absent(d, key);

	if (r == 0)
		r = dav_temp_name(temp);
	/* The collections first: under the mutex every request counts. */
	if (r == 0 && !dav_has_parents(d, key))
		r = dav_make_parents(d, key);
	if (r == 0)
		r = dav_put_at(d, temp, data, len, false);
	if (r < 0)
		return r;
	r = mutex_take(&m, key);
	if (r == 0) {
		r = place(&m, temp, key);
		mutex_give(&m);
	}
	if (r < 0)
		(void)dav_remove(d, d->http, temp);
	return r;
}

/* ---- the other means */

static int create_conditional(struct remote *remote, const char *key, const void *data, size_t len)
{
	return dav_put_at(dav_of(remote), key, data, len, true);
}

static int create_mkcol(struct remote *remote, const char *key, const void *data, size_t len)
{
	return create_under_mutex(dav_of(remote), false, key, data, len);
}

static int create_lock(struct remote *remote, const char *key, const void *data, size_t len)
{
	struct dav *d = dav_of(remote);
	struct dav_entry entry;
	int r = dav_stat(d, d->control, LOCK_FILE, &entry);

	/* What is locked must be there: LOCK makes it on some servers, and not on others. */
	if (r == -ENOENT) {
		r = dav_put_at(d, LOCK_FILE, "", 0, false);
		/* Somebody else has made it and locked it meanwhile. */
		if (r < 0 && dav_stat(d, d->control, LOCK_FILE, &entry) == 0)
			r = 0;
	}
	return r < 0 ? r : create_under_mutex(d, true, key, data, len);
}

static int create_checked(struct remote *remote, const char *key, const void *data, size_t len)
{
	struct buf cleanup_buf got = {0};
	int r = check_absent(dav_of(remote), key);

	if (r == 0)
		r = dav_put(remote, key, data, len);
	if (r == 0)
		r = remote_get(remote, key, 0, REMOTE_TO_END, &got);
	if (r == 0 && (got.len != len || (len > 0 && memcmp(got.data, data, len) != 0)))
		r = -EEXIST;
	return r == -ENOENT ? -EIO : r;
}

/* ---- which */

static remote_create_fn *const creators[] = {
	[DAV_CREATE_CONDITIONAL] = create_conditional,
	[DAV_CREATE_MKCOL] = create_mkcol,
	[DAV_CREATE_LOCK] = create_lock,
	[DAV_CREATE_CHECKED] = create_checked,
};
static const char *const names[] = {
	[DAV_CREATE_CONDITIONAL] = "conditional PUT",
	[DAV_CREATE_MKCOL] = "MKCOL as a mutex",
	[DAV_CREATE_LOCK] = "LOCK as a mutex",
	[DAV_CREATE_CHECKED] = "looking before and after; it has no atomic way",
};

/* Is a collection refused where one is? Found out beside the mutex, which others may hold. */
static int probe_mkcol(struct dav *d, bool *ret_kept)
{
	char name[DAV_TEMP_MAX + 1];
	struct dav_entry entry;
	int r = dav_temp_name(name), second;

	if (r == 0)
		r = dav_make_parents(d, name);
	if (r < 0)
		return r;
	strcat(name, "/");
	r = take_collection(d, name);
	if (r == -EAGAIN) {
		/* Refused as if it were there: is it? */
		r = dav_stat(d, d->control, name, &entry);
		*ret_kept = false;
		return r == -ENOENT ? 0 : r < 0 ? r : -EIO;
	}
	if (r < 0)
		return r;
	second = take_collection(d, name);
	r = dav_remove(d, d->control, name);
	if (second != 0 && second != -EAGAIN)
		return second;
	*ret_kept = second == -EAGAIN;
	return r;
}

/* Only what the server says it has not, or what it has shown not to keep, counts against a means: two
 * writers that choose differently would not see each other. */
static int try_means(struct dav *d, enum dav_create_means means, bool *ret_kept)
{
	int r = 0;

	*ret_kept = true;
	if (means == DAV_CREATE_MKCOL)
		r = probe_mkcol(d, ret_kept);
	if (r == 0 && *ret_kept)
		r = remote_probe_create(&d->base, creators[means], ret_kept);
	if (r != -EPERM && r != -EOPNOTSUPP)
		return r;
	*ret_kept = false;
	return 0;
}

/* The server's first choice, by what it says it is. */
static int first_choice(struct dav *d, enum dav_create_means *ret_means)
{
	struct http_answer cleanup_http_answer a = {0};
	/* Not OPTIONS: lighttpd's answer to that has no end where nothing is there. */
	struct http_request q = {.method = "HEAD"};
	int r = dav_do(d, d->http, "", &q, &a);

	if (r < 0)
		return r;
	*ret_means = DAV_CREATE_MKCOL;
	if (strncasecmp(a.server, "lighttpd", strlen("lighttpd")) == 0)
		*ret_means = DAV_CREATE_CONDITIONAL;
	if (strncasecmp(a.server, "XRootD", strlen("XRootD")) == 0)
		*ret_means = DAV_CREATE_CHECKED;
	return 0;
}

static int find_means(struct dav *d, enum dav_create_means *ret_means)
{
	enum dav_create_means means = (enum dav_create_means)atomic_load(&d->create);
	bool kept = false;
	int r;

	if (means != DAV_CREATE_UNKNOWN) {
		*ret_means = means;
		return 0;
	}
	r = first_choice(d, &means);
	for (; r == 0; means++) {
		r = try_means(d, means, &kept);
		if (r < 0 || kept || means == DAV_CREATE_CHECKED)
			break;
	}
	if (r < 0)
		return r;
	if (!kept)
		return remote_set_reason(&d->base, -EIO, "what is put there cannot be read back");
	log_debug("%s: objects are created only if absent by %s", d->base.name, names[means]);
	atomic_store(&d->create, (int)means);
	*ret_means = means;
	return 0;
}

int dav_put_if_absent(struct remote *remote, const char *key, const void *data, size_t len)
{
	enum dav_create_means means;
	int r = find_means(dav_of(remote), &means);

	return r < 0 ? r : creators[means](remote, key, data, len);
}

int dav_check_create(struct remote *remote, enum remote_create *ret_create)
{
	enum dav_create_means means;
	int r = find_means(dav_of(remote), &means);

	if (r == 0)
		*ret_create =
			means == DAV_CREATE_CHECKED ? REMOTE_CREATE_CHECKED : REMOTE_CREATE_ATOMIC;
	return r;
}
