/* SPDX-License-Identifier: Apache-2.0 */
/* The layer that repeats what failed, as after a 503 or a lost connection. remote.h says what is repeated and why that is safe. */
#include "lib/remote/remote_ops.h"

#include <errno.h>
#include <string.h>
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

#define FIRST_WAIT_NS	 (100 * NS_PER_MS)
#define LONGEST_WAIT_NS	 (30 * NS_PER_S)
#define TELL_AFTER_NS	 (5 * NS_PER_S)
#define COMPARE_STEP	 (UINT64_C(4) << 20)
#define COMPARE_READINGS 4

struct retry {
	struct remote base;
	struct remote_retry_policy policy; /* never changed once made */
	struct mutex lock; /* guards what follows; nothing else is locked under it */
	struct remote_state state;
	bool told; /* the log has a line on the failures that go on now */
};

/* One call of a caller, with all its attempts. */
struct call {
	struct retry *rt;
	const char *what;
	const char *key;
	int64_t started_ns; /* monotonic */
	int64_t wait_ns;    /* before the next attempt */
	unsigned tries;
	bool uncertain; /* an attempt failed that may have been carried out */
};

static struct call call_of(struct remote *r, const char *what, const char *key)
{
	struct retry *rt = (struct retry *)r;

	return (struct call){
		.rt = rt,
		.what = what,
		.key = key,
		.started_ns = clock_mono_ns(),
		.wait_ns = rt->policy.first_wait_ns,
	};
}

/* What a person can put right. */
static bool is_refusal(int err)
{
	return err == -ENOSPC || err == -EACCES || err == -EPERM;
}

static bool is_repeated(const struct retry *rt, int err)
{
	return remote_may_retry(err) || (rt->policy.persist && is_refusal(err));
}

/* Failures that have lasted are worth a line, and their end another; those that a second attempt
 * puts right are not. */
static void note_failure(const struct call *c, int err)
{
	struct retry *rt = c->rt;
	int64_t now = clock_wall_ns();
	bool tell;

	mutex_lock(&rt->lock);
	if (rt->state.failures++ == 0)
		rt->state.failing_since_ns = now;
	rt->state.last_failure_ns = now;
	rt->state.last_error = err;
	tell = !rt->told && now - rt->state.failing_since_ns >= TELL_AFTER_NS;
	rt->told |= tell;
	mutex_unlock(&rt->lock);
	if (tell)
		log_warn("%s: %s %s: %s", rt->base.name, c->what, c->key, strerror(-err));
}

static void note_success(const struct call *c)
{
	struct retry *rt = c->rt;
	uint64_t failures;
	bool told;

	mutex_lock(&rt->lock);
	failures = rt->state.failures;
	told = rt->told;
	rt->told = false;
	rt->state.failures = 0;
	rt->state.failing_since_ns = 0;
	mutex_unlock(&rt->lock);
	if (told)
		log_info("%s: recovered after %llu failed attempt%s", rt->base.name,
			 (unsigned long long)failures, plural(failures));
}

/* Between a half and the whole of the wait. */
static int64_t jittered(int64_t wait_ns)
{
	uint64_t random = 0;

	/* Without random numbers all wait in full: slower, not wrong. */
	if (random_bytes(&random, sizeof(random)) < 0 || wait_ns < 2)
		return wait_ns;
	return wait_ns - (int64_t)(random % ((uint64_t)wait_ns / 2));
}

static void count_waiting(struct retry *rt, int change)
{
	SCOPED_LOCK(&rt->lock);

	rt->state.waiting += (unsigned)change;
	if (change > 0)
		rt->state.retries++;
}

/* Waits until the next attempt is due: 0, or the error that the call ends with. */
static int wait_turn(struct call *c, int err)
{
	const struct remote_retry_policy *p = &c->rt->policy;
	int64_t wait_ns = jittered(c->wait_ns);
	int64_t held_off_ns = remote_held_off(c->rt->base.inner);
	int r;

	if (p->max_tries && c->tries >= p->max_tries)
		return err;
	/* What the server asked for, and the jitter on top: the others return then, too. */
	if (held_off_ns > 0)
		wait_ns = held_off_ns + jittered(p->first_wait_ns);
	if (p->max_total_ns && clock_mono_ns() - c->started_ns + wait_ns >= p->max_total_ns)
		return err;
	c->wait_ns = clock_backoff(c->wait_ns, p->first_wait_ns, p->longest_wait_ns);
	count_waiting(c->rt, 1);
	r = remote_sleep(&c->rt->base, wait_ns);
	count_waiting(c->rt, -1);
	return r;
}

/* After an attempt: true when there is to be another; else *err is what the call gives. */
static bool again(struct call *c, int *err)
{
	int r;

	c->tries++;
	if (*err == 0 || *err == -ENOENT || *err == -EEXIST)
		note_success(c);
	else if (remote_may_retry(*err) || is_refusal(*err))
		note_failure(c, *err);
	if (!is_repeated(c->rt, *err))
		return false;
	c->uncertain |= remote_may_retry(*err);
	r = wait_turn(c, *err);
	if (r == 0)
		return true;
	*err = r;
	return false;
}

static int retry_put(struct remote *r, const char *key, const void *data, size_t len)
{
	struct call c = call_of(r, "put", key);
	int err;

	do
		err = remote_put(r->inner, key, data, len);
	while (again(&c, &err));
	return err;
}

static int retry_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		     struct buf *out)
{
	struct call c = call_of(r, "get", key);
	int err;

	do
		err = remote_get(r->inner, key, offset, len, out);
	while (again(&c, &err));
	return err;
}

static int retry_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	struct call c = call_of(r, "size", key);
	int err;

	do
		err = remote_size(r->inner, key, ret_size);
	while (again(&c, &err));
	return err;
}

static int retry_delete(struct remote *r, const char *key)
{
	struct call c = call_of(r, "delete", key);
	int err;

	do
		err = remote_delete(r->inner, key);
	while (again(&c, &err));
	return err;
}

static int retry_delete_batch(struct remote *r, const char *const *keys, size_t *count)
{
	struct call c = call_of(r, "delete", keys[0]);
	size_t given = *count;
	int err;

	do {
		*count = given;
		err = remote_delete_batch(r->inner, keys, count);
	} while (again(&c, &err));
	return err;
}

/* Compares bytes from `at` on. Other bytes count only when every reading brings others: one that
 * was damaged on its way must not make our own object another's. 0, -EEXIST or why that cannot be
 * told. */
static int compare_step(struct remote *r, const char *key, const uint8_t *data, uint64_t at,
			size_t len)
{
	struct buf cleanup_buf got = {0};

	for (unsigned reading = 0; reading < COMPARE_READINGS; reading++) {
		int err;

		buf_reset(&got);
		err = retry_get(r, key, at, len, &got);
		if (err < 0)
			return err;
		if (got.len == len && memcmp(got.data, data + at, len) == 0)
			return 0;
	}
	return -EEXIST;
}

/* Does the object hold exactly these bytes? 0, -EEXIST where not, or why that cannot be told. */
static int compare_object(struct remote *r, const char *key, const uint8_t *data, size_t len)
{
	uint64_t size = 0;
	int err = retry_size(r, key, &size);

	if (err == 0 && size != len)
		err = -EEXIST;
	for (uint64_t at = 0; err == 0 && at < len; at += COMPARE_STEP) {
		uint64_t left = len - at;

		err = compare_step(r, key, data, at, left < COMPARE_STEP ? left : COMPARE_STEP);
	}
	/* It went again: another's, or ours that somebody took away. Not ours to repeat. */
	return err == -ENOENT ? -EEXIST : err;
}

static int retry_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	struct call c = call_of(r, "create", key);
	int err;

	do
		err = remote_put_if_absent(r->inner, key, data, len);
	while (again(&c, &err));
	if (err == -EEXIST && c.uncertain)
		return compare_object(r, key, data, len);
	return err;
}

/* The probe takes a new name each time, so it may be repeated. */
static int retry_check_create(struct remote *r, enum remote_create *ret_create)
{
	struct call c = call_of(r, "check", "create-if-absent");
	int err;

	do
		err = remote_check_create(r->inner, ret_create);
	while (again(&c, &err));
	return err;
}

/* ---- listing: an attempt may fail when half of it was passed on; then the next leaves that half out */

struct listing {
	remote_list_fn *fn;
	void *arg;
	int result;	  /* not 0: fn has ended it with this */
	struct buf seen;  /* the keys passed on, each with its NUL */
	const char **old; /* those of earlier attempts, sorted */
	size_t old_count;
};

static int compare_keys(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int pass_new(void *arg, const char *key, uint64_t size)
{
	struct listing *l = arg;
	int err;

	if (l->old_count &&
	    bsearch(&key, l->old, l->old_count, sizeof(*l->old), compare_keys) != NULL)
		return 0;
	buf_put(&l->seen, key, strlen(key) + 1);
	err = buf_error(&l->seen);
	if (err == 0)
		err = l->fn(l->arg, key, size);
	l->result = err;
	return err;
}

/* Makes what was seen so far old: `seen` starts over behind it, in a buffer of its own. */
static int grow_old(struct listing *l, struct buf *ret_kept)
{
	const char *at, *end;
	size_t count = 0;

	buf_put(ret_kept, l->seen.data, l->seen.len);
	buf_reset(&l->seen);
	free(l->old);
	l->old_count = 0;
	at = (const char *)ret_kept->data;
	end = at + ret_kept->len;
	for (const char *p = at; p < end; p += strlen(p) + 1)
		count++;
	l->old = calloc(count ? count : 1, sizeof(*l->old));
	if (!l->old || buf_error(ret_kept))
		return -ENOMEM;
	for (; at < end; at += strlen(at) + 1)
		l->old[l->old_count++] = at;
	qsort(l->old, l->old_count, sizeof(*l->old), compare_keys);
	return 0;
}

static int retry_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct call c = call_of(r, "list", prefix);
	struct listing l = {.fn = fn, .arg = arg};
	struct buf cleanup_buf kept = {0};
	int err;

	for (;;) {
		err = remote_list(r->inner, prefix, pass_new, &l);
		if (l.result) {
			err = l.result;
			note_success(&c);
			break;
		}
		if (!again(&c, &err))
			break;
		err = grow_old(&l, &kept);
		if (err < 0)
			break;
	}
	buf_free(&l.seen);
	free(l.old);
	return err;
}

static void retry_get_state(struct remote *r, struct remote_state *ret_state)
{
	struct retry *rt = (struct retry *)r;
	SCOPED_LOCK(&rt->lock);

	*ret_state = rt->state;
}

static void retry_release(struct remote *r)
{
	mutex_destroy(&((struct retry *)r)->lock);
}

static const struct remote_ops retry_ops = {
	.put = retry_put,
	.put_if_absent = retry_put_if_absent,
	.get = retry_get,
	.size = retry_size,
	.list = retry_list,
	.delete = retry_delete,
	.delete_batch = retry_delete_batch,
	.check_create = retry_check_create,
	.release = retry_release,
	.get_state = retry_get_state,
};

static struct remote_retry_policy with_defaults(const struct remote_retry_policy *policy)
{
	struct remote_retry_policy p = policy ? *policy : (struct remote_retry_policy){0};

	if (p.first_wait_ns <= 0)
		p.first_wait_ns = FIRST_WAIT_NS;
	if (p.longest_wait_ns <= 0)
		p.longest_wait_ns = LONGEST_WAIT_NS;
	if (p.first_wait_ns > p.longest_wait_ns)
		p.first_wait_ns = p.longest_wait_ns;
	return p;
}

int remote_retry_new(struct remote *inner, const struct remote_retry_policy *policy,
		     struct remote **ret_remote)
{
	struct retry *rt = calloc(1, sizeof(*rt));
	int r;

	if (!rt)
		return -ENOMEM;
	rt->policy = with_defaults(policy);
	mutex_init(&rt->lock, LOCK_REMOTE_RETRY);
	r = remote_init(&rt->base, &retry_ops, inner->name, inner);
	if (r < 0) {
		mutex_destroy(&rt->lock);
		free(rt);
		return r;
	}
	*ret_remote = &rt->base;
	return 0;
}
