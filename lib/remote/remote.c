/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that every operation on a remote shares. */
#include "lib/remote/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/remote/remote_ops.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

#define COMPONENT_MAX 255
#define KEY_CHARS     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define TEMP_PREFIX   ".tmp-"
#define HOLD_OFF_MAX  (300 * NS_PER_S)

static bool component_valid(const char *p, size_t len)
{
	if (len == 0 || len > COMPONENT_MAX || strspn(p, KEY_CHARS) < len)
		return false;
	if (p[0] == '.' && (len == 1 || (len == 2 && p[1] == '.')))
		return false;
	return len < strlen(TEMP_PREFIX) || memcmp(p, TEMP_PREFIX, strlen(TEMP_PREFIX)) != 0;
}

/* The one place where keys are checked. */
static bool key_valid(const char *key, size_t len)
{
	size_t i = 0;

	if (len == 0 || len > REMOTE_KEY_MAX)
		return false;
	while (i < len) {
		size_t n = strcspn(key + i, "/");

		if (n > len - i)
			n = len - i;
		if (!component_valid(key + i, n))
			return false;
		i += n;
		if (i < len && ++i == len)
			return false;
	}
	return true;
}

bool remote_key_valid(const char *key)
{
	return key_valid(key, strlen(key));
}

/* True for what can be a whole key or the beginning of longer ones: "" or a key and one `/`. */
static bool remote_prefix_valid(const char *prefix)
{
	size_t len = strlen(prefix);

	return len == 0 || (prefix[len - 1] == '/' && key_valid(prefix, len - 1));
}

int remote_init(struct remote *r, const struct remote_ops *ops, const char *name,
		struct remote *inner)
{
	char text[REMOTE_TEXT_MAX];

	remote_url_redact(name, text, sizeof(text));
	r->name = strdup(text);
	if (!r->name)
		return -ENOMEM;
	if (cond_init_mono(&r->wake) < 0) {
		free(r->name);
		return -ENOMEM;
	}
	mutex_init(&r->sleep_lock, LOCK_REMOTE_SLEEP);
	mutex_init(&r->reason_lock, LOCK_REMOTE_REASON);
	r->ops = ops;
	r->inner = inner;
	r->is_none = inner && inner->is_none;
	atomic_init(&r->refs, 1);
	atomic_init(&r->cancelled, false);
	atomic_init(&r->not_before_ns, 0);
	atomic_init(&r->clock_ahead_ns, INT64_MIN);
	return 0;
}

struct remote *remote_ref(struct remote *r)
{
	atomic_fetch_add(&r->refs, 1);
	return r;
}

void remote_close(struct remote *r)
{
	if (!r || atomic_fetch_sub(&r->refs, 1) > 1)
		return;
	if (r->ops->release)
		r->ops->release(r);
	remote_close(r->inner);
	pthread_cond_destroy(&r->wake);
	mutex_destroy(&r->sleep_lock);
	mutex_destroy(&r->reason_lock);
	free(r->name);
	free(r);
}

const char *remote_name(const struct remote *r)
{
	return r->name;
}

bool remote_is_none(const struct remote *r)
{
	return r->is_none;
}

/* Before an operation: may it start? It takes as long as the network does: nobody else may have to
 * wait for a lock meanwhile. */
static int check_call(struct remote *r, bool name_valid)
{
	lock_none_held(LOCK_REMOTE_FIRST, "an operation of the remote");
	if (!name_valid)
		return -EINVAL;
	return atomic_load(&r->cancelled) ? -ECANCELED : 0;
}

/* What only some operations give, and upper layers take for an answer, or for an error of this machine. */
static bool is_limited(int err)
{
	return err == -ENOENT || err == -EEXIST || err == -ENOSPC;
}

const char *remote_failure_name(enum remote_failure failure)
{
	static const char *const names[] = {
		[REMOTE_FAILURE_REFUSED] = "refused", [REMOTE_FAILURE_FULL] = "full",
		[REMOTE_FAILURE_TIMEOUT] = "timeout", [REMOTE_FAILURE_UNREACHABLE] = "unreachable",
		[REMOTE_FAILURE_OTHER] = "other",
	};

	return names[failure];
}

static enum remote_failure failure_of(int err)
{
	switch (-err) {
	case EACCES:
	case EPERM:
	case EROFS:
		return REMOTE_FAILURE_REFUSED;
	case ENOSPC:
		return REMOTE_FAILURE_FULL;
	case ETIMEDOUT:
		return REMOTE_FAILURE_TIMEOUT;
	case ECONNREFUSED:
		return REMOTE_FAILURE_UNREACHABLE;
	default:
		return REMOTE_FAILURE_OTHER;
	}
}

/*
 * After an operation: the wall between the errors of remotes and their callers. What is_limited passes only from the
 * operation that may give it (`may`, 0: none): a put that says -ENOENT, for the bucket is gone, must not look like a file of
 * the cache that is, nor a get that says -ENOSPC like a full disk here. Whatever is not in the table of remote.h becomes -EIO, and
 * keeps its reason. Logs what failed, at debug level, but for `answer`.
 */
static int check_result(struct remote *r, const char *op, const char *key, int may, int answer,
			int err)
{
	if (err == 0 || err == answer)
		return err;
	log_debug("%s: %s %s: %s", r->name, op, key, strerror(abs(err)));
	if (err != -ECANCELED)
		atomic_fetch_add(&r->failures[failure_of(err)], 1);
	if (err == may || (!is_limited(err) && remote_errno_of(-err) == err))
		return err;
	remote_move_reason(r, err, -EIO);
	return -EIO;
}

int remote_put(struct remote *r, const char *key, const void *data, size_t len)
{
	int err = check_call(r, remote_key_valid(key));

	if (err == 0)
		err = r->ops->put(r, key, data, len);
	if (err == 0)
		atomic_fetch_add(&r->sent, len);
	return check_result(r, "put", key, -ENOSPC, 0, err);
}

int remote_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	int err = check_call(r, remote_key_valid(key));

	if (err == 0)
		err = r->ops->put_if_absent(r, key, data, len);
	if (err == 0)
		atomic_fetch_add(&r->sent, len);
	return check_result(r, "create", key, -ENOSPC, -EEXIST, err);
}

int remote_get(struct remote *r, const char *key, uint64_t offset, uint64_t len, struct buf *out)
{
	int err = check_call(r, remote_key_valid(key));
	size_t had = out->len;

	if (err == 0)
		err = r->ops->get(r, key, offset, len, out);
	if (err == 0)
		atomic_fetch_add(&r->received, out->len - had);
	return check_result(r, "get", key, 0, -ENOENT, err);
}

int remote_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	int err = check_call(r, remote_key_valid(key));

	return check_result(r, "size", key, 0, -ENOENT,
			    err < 0 ? err : r->ops->size(r, key, ret_size));
}

/* A listing of a caller, whose own result is no error of the remote. */
struct caller_list {
	remote_list_fn *fn;
	void *arg;
	int result;
};

static int call_back(void *arg, const char *key, uint64_t size)
{
	struct caller_list *l = arg;

	l->result = l->fn(l->arg, key, size);
	return l->result;
}

int remote_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct caller_list l = {.fn = fn, .arg = arg};
	int err = check_call(r, remote_prefix_valid(prefix));

	if (err == 0)
		err = r->ops->list(r, prefix, call_back, &l);
	return l.result ? l.result : check_result(r, "list", prefix, 0, 0, err);
}

int remote_delete(struct remote *r, const char *key)
{
	int err = check_call(r, remote_key_valid(key));

	return check_result(r, "delete", key, 0, 0, err < 0 ? err : r->ops->delete (r, key));
}

int remote_delete_batch(struct remote *r, const char *const *keys, size_t *count)
{
	int err = check_call(r, true);

	if (err == 0 && r->ops->delete_batch) {
		err = r->ops->delete_batch(r, keys, count);
	} else if (err == 0) {
		*count = 1;
		err = r->ops->delete (r, keys[0]);
	}
	return check_result(r, "delete", keys[0], 0, 0, err);
}

int remote_delete_many(struct remote *r, const char *const *keys, size_t count)
{
	int refused = 0;

	for (size_t i = 0; i < count; i++)
		if (!remote_key_valid(keys[i]))
			return check_result(r, "delete", keys[i], 0, 0, -EINVAL);
	for (size_t at = 0; at < count;) {
		size_t n = count - at;
		int err = remote_delete_batch(r, keys + at, &n);

		if (remote_may_retry(err) || err == -ECANCELED || err == -ENOMEM)
			return err;
		refused = refused ? refused : err;
		at += n;
	}
	return refused;
}

#define PROBE_SIZE 64
#define PROBE_KEY  32

/* A name and bytes that nobody else has. */
static int make_probe(uint8_t ret_bytes[PROBE_SIZE], char ret_key[PROBE_KEY])
{
	char id[17];
	int err = random_bytes(ret_bytes, PROBE_SIZE);

	if (err < 0)
		return err;
	hex_encode(ret_bytes, 8, id);
	snprintf(ret_key, PROBE_KEY, "epochfs.probe-%s", id);
	return 0;
}

/* Reads the probe back: 0, or -EIO where other bytes or none came. */
static int read_probe(struct remote *r, const char *key, const uint8_t bytes[PROBE_SIZE])
{
	struct buf cleanup_buf got = {0};
	int err = remote_get(r, key, 0, PROBE_SIZE + 1, &got);

	if (err == -ENOENT)
		return -EIO;
	if (err < 0)
		return err;
	return got.len == PROBE_SIZE && memcmp(got.data, bytes, PROBE_SIZE) == 0 ? 0 : -EIO;
}

/* Its versions are worth a try: where we may not, some bytes stay. */
static int delete_probe(struct remote *r, const char *key)
{
	int err = remote_delete(r, key);

	if (err == 0)
		(void)remote_erase_versions(r, key);
	return err;
}

int remote_check_writable(struct remote *r)
{
	uint8_t probe[PROBE_SIZE];
	char key[PROBE_KEY];
	int err, deleted;

	err = make_probe(probe, key);
	if (err == 0)
		err = remote_put(r, key, probe, sizeof(probe));
	if (err < 0)
		return err;
	err = read_probe(r, key, probe);
	deleted = delete_probe(r, key);
	return err < 0 ? err : deleted;
}

int remote_probe_create(struct remote *r, remote_create_fn *create, bool *ret_kept)
{
	uint8_t probe[PROBE_SIZE], other[PROBE_SIZE] = {0};
	char key[PROBE_KEY];
	int err, second, deleted;

	err = make_probe(probe, key);
	if (err == 0)
		err = create(r, key, probe, sizeof(probe));
	if (err < 0)
		return err;
	second = create(r, key, other, sizeof(other));
	err = second == 0 || second == -EEXIST ? 0 : second;
	if (second == -EEXIST)
		err = read_probe(r, key, probe);
	deleted = delete_probe(r, key);
	if (err == 0)
		err = deleted;
	if (err == 0)
		*ret_kept = second == -EEXIST;
	return err;
}

int remote_check_create(struct remote *r, enum remote_create *ret_create)
{
	int err = check_call(r, true);

	if (err == 0 && r->ops->check_create)
		err = r->ops->check_create(r, ret_create);
	else if (err == 0 && r->inner)
		err = remote_check_create(r->inner, ret_create);
	else if (err == 0)
		*ret_create = REMOTE_CREATE_ATOMIC;
	return check_result(r, "check", "create-if-absent", -ENOSPC, 0, err);
}

bool remote_keeps_versions(const struct remote *r)
{
	while (r->inner && !r->ops->keeps_versions)
		r = r->inner;
	return r->ops->keeps_versions && r->ops->keeps_versions(r);
}

const char *remote_redirects_to(const struct remote *r)
{
	while (r->inner && !r->ops->redirects_to)
		r = r->inner;
	return r->ops->redirects_to ? r->ops->redirects_to(r) : NULL;
}

bool remote_expiry(struct remote *r, struct remote_expiry *ret_expiry)
{
	while (r->inner && !r->ops->expiry)
		r = r->inner;
	return r->ops->expiry && r->ops->expiry(r, ret_expiry);
}

int remote_erase_versions(struct remote *r, const char *begin)
{
	int err = check_call(r, remote_key_valid(begin));

	if (err < 0 || !remote_keeps_versions(r))
		return err;
	while (r->inner && !r->ops->erase_versions)
		r = r->inner;
	return check_result(r, "erase", begin, 0, 0, r->ops->erase_versions(r, begin));
}

const char *remote_upload_check(const struct remote *r)
{
	while (r->inner && !r->ops->upload_check)
		r = r->inner;
	return r->ops->upload_check;
}

void remote_note_clock(struct remote *r, int64_t server_ns)
{
	atomic_store(&r->clock_ahead_ns, server_ns - clock_wall_ns());
}

bool remote_clock(const struct remote *r, int64_t *ret_ahead_ns)
{
	while (r->inner)
		r = r->inner;
	*ret_ahead_ns = atomic_load(&r->clock_ahead_ns);
	return *ret_ahead_ns != INT64_MIN;
}

int remote_sleep(struct remote *r, int64_t ns)
{
	int64_t deadline = clock_mono_ns() + ns;
	SCOPED_LOCK(&r->sleep_lock);

	while (!atomic_load(&r->cancelled))
		if (cond_wait_until(&r->wake, &r->sleep_lock, deadline) == -ETIMEDOUT)
			return 0;
	return -ECANCELED;
}

void remote_hold_off(struct remote *r, int64_t ns)
{
	int64_t until = clock_mono_ns() + (ns < HOLD_OFF_MAX ? ns : HOLD_OFF_MAX);
	int64_t had = atomic_load(&r->not_before_ns);

	while (ns > 0 && until > had)
		if (atomic_compare_exchange_weak(&r->not_before_ns, &had, until))
			return;
}

int64_t remote_held_off(const struct remote *r)
{
	int64_t now = clock_mono_ns(), until = now;

	for (; r; r = r->inner) {
		int64_t not_before = atomic_load(&r->not_before_ns);

		until = not_before > until ? not_before : until;
	}
	return until - now;
}

static void set_cancelled(struct remote *r, bool cancelled)
{
	for (; r; r = r->inner) {
		SCOPED_LOCK(&r->sleep_lock);

		atomic_store(&r->cancelled, cancelled);
		pthread_cond_broadcast(&r->wake);
	}
}

void remote_cancel(struct remote *r)
{
	set_cancelled(r, true);
}

void remote_resume(struct remote *r)
{
	set_cancelled(r, false);
}

bool remote_is_cancelled(const struct remote *r)
{
	return atomic_load(&r->cancelled);
}

void remote_get_state(struct remote *r, struct remote_state *ret_state)
{
	*ret_state = (struct remote_state){0};
	if (r->ops->get_state)
		r->ops->get_state(r, ret_state);
}

void remote_get_traffic(const struct remote *r, struct remote_traffic *ret_traffic)
{
	ret_traffic->sent = atomic_load(&r->sent);
	ret_traffic->received = atomic_load(&r->received);
	for (unsigned i = 0; i < REMOTE_FAILURES; i++)
		ret_traffic->failures[i] = atomic_load(&r->failures[i]);
}

/* ---- Keys to be deleted together. ---- */

int remote_keys_add(struct remote_keys *keys, const char *key)
{
	buf_put(&keys->text, key, strlen(key) + 1);
	keys->count++;
	return buf_error(&keys->text);
}

void remote_keys_free(struct remote_keys *keys)
{
	buf_free(&keys->text);
	keys->count = 0;
}

int remote_keys_delete(struct remote *r, const struct remote_keys *keys)
{
	cleanup_free const char **each = NULL;
	const char *key = (const char *)keys->text.data;

	if (buf_error(&keys->text) < 0)
		return -ENOMEM;
	if (!keys->count)
		return 0;
	each = calloc(keys->count, sizeof(*each));
	if (!each)
		return -ENOMEM;
	for (size_t i = 0; i < keys->count; i++, key += strlen(key) + 1)
		each[i] = key;
	return remote_delete_many(r, each, keys->count);
}
