/* SPDX-License-Identifier: Apache-2.0 */
/* The layer that seals. */
#include "lib/remote/seal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/remote/remote_ops.h"
#include "lib/util/log.h"

#define READ_TRIES 3

struct sealing {
	struct remote base;
	struct seal *seal;
};

static const struct seal *seal_of(const struct remote *r)
{
	return ((const struct sealing *)r)->seal;
}

static bool starts_with(const char *key, const char *prefix)
{
	return strncmp(key, prefix, strlen(prefix)) == 0;
}

/* What is read before there is a key. */
static bool is_open(const char *key)
{
	return strcmp(key, "epochfs.json") == 0 || starts_with(key, "keys/") ||
	       starts_with(key, "epochfs.probe-");
}

/* ---- writing ---- */

typedef int put_fn(struct remote *r, const char *key, const void *data, size_t len);

static int put_sealed(struct remote *r, put_fn *put, const char *key, const void *data, size_t len)
{
	cleanup_buf struct buf sealed = {0};
	int error;

	if (is_open(key))
		return put(r->inner, key, data, len);
	error = seal_object(seal_of(r), key, data, len, &sealed);
	return error ? error : put(r->inner, key, sealed.data, sealed.len);
}

static int seal_put(struct remote *r, const char *key, const void *data, size_t len)
{
	return put_sealed(r, remote_put, key, data, len);
}

static int seal_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	return put_sealed(r, remote_put_if_absent, key, data, len);
}

/* ---- reading ---- */

/* Plain bytes [offset, offset + len), as the segments that hold them. */
struct span {
	uint64_t first;	 /* segment */
	uint64_t at;	 /* where it lies */
	uint64_t stored; /* bytes from there, or REMOTE_TO_END */
	uint64_t skip;	 /* plain bytes of it before the offset */
	uint64_t len;
};

static struct span span_of(uint64_t offset, uint64_t len)
{
	struct span s = {.first = offset / SEALED_SEGMENT,
			 .skip = offset % SEALED_SEGMENT,
			 .stored = REMOTE_TO_END,
			 .len = len};

	s.at = s.first * SEALED_STORED;
	if (len <= REMOTE_GET_MAX)
		s.stored = (s.skip + len + SEALED_SEGMENT - 1) / SEALED_SEGMENT * SEALED_STORED;
	return s;
}

/* One reading; what it appended to `out` is of no use after a failure. */
static int get_once(struct remote *r, const char *key, const struct span *s, struct buf *out,
		    bool *ret_damaged)
{
	bool ended = false, damaged = false, pack = starts_with(key, "packs/");
	size_t start = out->len, stored, plain;
	int error = remote_get(r->inner, key, s->at, s->stored, out);

	if (error)
		return error;
	stored = out->len - start;
	error = seal_open(seal_of(r), key, s->first, out->data + start, stored, &plain, &ended,
			  &damaged);
	if (error)
		return error;
	/* It came to an end without a last segment: it was cut. What begins behind the end is no fault. */
	damaged |= stored < s->stored && !ended && (stored || !s->first);
	if (damaged && !pack)
		memset(out->data + start, 0, plain);
	plain = plain > s->skip ? plain - s->skip : 0;
	plain = plain > s->len ? s->len : plain;
	if (s->skip && plain)
		memmove(out->data + start, out->data + start + s->skip, plain);
	out->len = start + plain;
	*ret_damaged = damaged;
	return 0;
}

static int seal_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		    struct buf *out)
{
	const struct span s = span_of(offset, len);
	size_t start = out->len;
	bool damaged = true;
	int error = 0;

	if (is_open(key) || !len)
		return remote_get(r->inner, key, offset, len, out);
	for (int tries = 0; !error && damaged && tries < READ_TRIES; tries++) {
		out->len = start;
		error = get_once(r, key, &s, out, &damaged);
	}
	if (error)
		out->len = start;
	else if (damaged) /* of a pack, its reader says what was lost */
		log_write(starts_with(key, "packs/") ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN,
			  "%s: %s is not what was sealed under this volume's key: damaged, or put "
			  "there by somebody else",
			  remote_name(r), key);
	return error;
}

static uint64_t plain_size(const char *key, uint64_t size)
{
	uint64_t plain = 0;

	if (is_open(key))
		return size;
	return sealed_plain_len(size, &plain) ? plain : 0;
}

static int seal_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	uint64_t size;
	int error = remote_size(r->inner, key, &size);

	if (!error)
		*ret_size = plain_size(key, size);
	return error;
}

/* ---- listing and the rest ---- */

struct listing {
	remote_list_fn *fn;
	void *arg;
};

static int pass_plain_size(void *arg, const char *key, uint64_t size)
{
	const struct listing *l = arg;

	return l->fn(l->arg, key, plain_size(key, size));
}

static int seal_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct listing l = {.fn = fn, .arg = arg};

	return remote_list(r->inner, prefix, pass_plain_size, &l);
}

static int seal_delete(struct remote *r, const char *key)
{
	return remote_delete(r->inner, key);
}

static int seal_delete_batch(struct remote *r, const char *const *keys, size_t *count)
{
	return remote_delete_batch(r->inner, keys, count);
}

static void seal_get_state(struct remote *r, struct remote_state *ret_state)
{
	remote_get_state(r->inner, ret_state);
}

static void seal_release(struct remote *r)
{
	seal_unref(((struct sealing *)r)->seal);
}

static const struct remote_ops seal_ops = {
	.put = seal_put,
	.put_if_absent = seal_put_if_absent,
	.get = seal_get,
	.size = seal_size,
	.list = seal_list,
	.delete = seal_delete,
	.delete_batch = seal_delete_batch,
	.release = seal_release,
	.get_state = seal_get_state,
};

int remote_seal_new(struct remote *inner, struct seal *seal, struct remote **ret_remote)
{
	struct sealing *l = calloc(1, sizeof(*l));
	int error;

	if (!l)
		return -ENOMEM;
	error = remote_init(&l->base, &seal_ops, inner->name, inner);
	if (error) {
		free(l);
		return error;
	}
	l->seal = seal_ref(seal);
	*ret_remote = &l->base;
	return 0;
}

void remote_address_many(const struct remote *r, const struct hash_job *jobs, size_t count)
{
	hash_of_many(jobs, count);
	while (r && r->ops != &seal_ops)
		r = r->inner;
	for (size_t i = 0; r && i < count; i++)
		seal_address(seal_of(r), jobs[i].ret_hash);
}

void remote_address(const struct remote *r, const void *data, size_t len, struct hash *ret_address)
{
	const struct hash_job job = {data, len, ret_address};

	remote_address_many(r, &job, 1);
}
