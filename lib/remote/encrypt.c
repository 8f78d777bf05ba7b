/* SPDX-License-Identifier: Apache-2.0 */
/* The layer that encrypts. */
#include "lib/remote/encrypt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/remote/remote_ops.h"
#include "lib/util/log.h"

#define READ_TRIES 3

struct encrypting {
	struct remote base;
	struct encryption *encryption;
};

static const struct encryption *encryption_of(const struct remote *r)
{
	return ((const struct encrypting *)r)->encryption;
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

static int put_encrypted(struct remote *r, put_fn *put, const char *key, const void *data,
			 size_t len)
{
	cleanup_buf struct buf encrypted = {0};
	int error;

	if (is_open(key))
		return put(r->inner, key, data, len);
	error = encrypt_object(encryption_of(r), key, data, len, &encrypted);
	return error ? error : put(r->inner, key, encrypted.data, encrypted.len);
}

static int encrypt_put(struct remote *r, const char *key, const void *data, size_t len)
{
	return put_encrypted(r, remote_put, key, data, len);
}

static int encrypt_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	return put_encrypted(r, remote_put_if_absent, key, data, len);
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
	struct span s = {.first = offset / ENCRYPTED_SEGMENT,
			 .skip = offset % ENCRYPTED_SEGMENT,
			 .stored = REMOTE_TO_END,
			 .len = len};

	s.at = s.first * ENCRYPTED_STORED;
	if (len <= REMOTE_GET_MAX)
		s.stored = (s.skip + len + ENCRYPTED_SEGMENT - 1) / ENCRYPTED_SEGMENT *
			   ENCRYPTED_STORED;
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
	error = decrypt_segments(encryption_of(r), key, s->first, out->data + start, stored, &plain,
				 &ended, &damaged);
	if (error)
		return error;
	/* It came to an end without a last segment: it was cut. What begins behind the end is no fault. */
	damaged |= stored < s->stored && !ended && (stored || !s->first);
	if (damaged && !pack && plain)
		memset(out->data + start, 0, plain);
	plain = plain > s->skip ? plain - s->skip : 0;
	plain = plain > s->len ? s->len : plain;
	if (s->skip && plain)
		memmove(out->data + start, out->data + start + s->skip, plain);
	out->len = start + plain;
	*ret_damaged = damaged;
	return 0;
}

static int encrypt_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
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
		log_write(
			starts_with(key, "packs/") ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN,
			"%s: %s is not what was encrypted under this volume's key: damaged, or put "
			"there by somebody else",
			remote_name(r), key);
	return error;
}

static uint64_t plain_size(const char *key, uint64_t size)
{
	uint64_t plain = 0;

	if (is_open(key))
		return size;
	return encrypted_plain_len(size, &plain) ? plain : 0;
}

static int encrypt_size(struct remote *r, const char *key, uint64_t *ret_size)
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

static int encrypt_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct listing l = {.fn = fn, .arg = arg};

	return remote_list(r->inner, prefix, pass_plain_size, &l);
}

static int encrypt_delete(struct remote *r, const char *key)
{
	return remote_delete(r->inner, key);
}

static int encrypt_delete_batch(struct remote *r, const char *const *keys, size_t *count)
{
	return remote_delete_batch(r->inner, keys, count);
}

static void encrypt_get_state(struct remote *r, struct remote_state *ret_state)
{
	remote_get_state(r->inner, ret_state);
}

static void encrypt_release(struct remote *r)
{
	encryption_unref(((struct encrypting *)r)->encryption);
}

static const struct remote_ops encrypt_ops = {
	.put = encrypt_put,
	.put_if_absent = encrypt_put_if_absent,
	.get = encrypt_get,
	.size = encrypt_size,
	.list = encrypt_list,
	.delete = encrypt_delete,
	.delete_batch = encrypt_delete_batch,
	.release = encrypt_release,
	.get_state = encrypt_get_state,
};

int remote_encrypt_new(struct remote *inner, struct encryption *encryption,
		       struct remote **ret_remote)
{
	struct encrypting *l = calloc(1, sizeof(*l));
	int error;

	if (!l)
		return -ENOMEM;
	error = remote_init(&l->base, &encrypt_ops, inner->name, inner);
	if (error) {
		free(l);
		return error;
	}
	l->encryption = encryption_ref(encryption);
	*ret_remote = &l->base;
	return 0;
}

void remote_address_many(const struct remote *r, const struct hash_job *jobs, size_t count)
{
	hash_of_many(jobs, count);
	while (r && r->ops != &encrypt_ops)
		r = r->inner;
	for (size_t i = 0; r && i < count; i++)
		encryption_address(encryption_of(r), jobs[i].ret_hash);
}

void remote_address(const struct remote *r, const void *data, size_t len, struct hash *ret_address)
{
	const struct hash_job job = {data, len, ret_address};

	remote_address_many(r, &job, 1);
}
