/* SPDX-License-Identifier: Apache-2.0 */
/* The remote `memory:NAME`, objects in this process, shared by all that open the same name; and `none`, without any. */
#include "lib/remote/remote_ops.h"

#include <errno.h>
#include <string.h>
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

struct object {
	char *key;
	uint8_t *data;
	size_t len;
};

/* The objects of one name, sorted by key. */
struct memory_store {
	struct memory_store *next;
	unsigned users; /* guarded by stores_lock */
	char *name;
	struct mutex lock; /* guards what follows; nothing else is locked under it */
	struct object *objects;
	size_t count;
	size_t cap;
};

struct memory {
	struct remote base;
	struct memory_store *store;
};

/* The stores of this process: global, because sharing by name is what this kind is for. */
static struct mutex stores_lock = MUTEX_INITIALIZER(LOCK_REMOTE_MEMORY_ALL);
static struct memory_store *stores;

static struct memory_store *store_of(struct remote *r)
{
	return ((struct memory *)r)->store;
}

/* The index of the key, or of the first above it. */
static size_t position_locked(const struct memory_store *s, const char *key, bool *ret_found)
{
	size_t low = 0, high = s->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(s->objects[mid].key, key);

		if (order == 0) {
			*ret_found = true;
			return mid;
		}
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*ret_found = false;
	return low;
}

static int insert_locked(struct memory_store *s, size_t at, struct object *o)
{
	if (array_reserve((void **)&s->objects, &s->cap, s->count, sizeof(*s->objects)))
		return -ENOMEM;
	memmove(s->objects + at + 1, s->objects + at, (s->count - at) * sizeof(*s->objects));
	s->objects[at] = *o;
	s->count++;
	*o = (struct object){0};
	return 0;
}

static void object_free(struct object *o)
{
	free(o->key);
	free(o->data);
}

static int object_init(struct object *o, const char *key, const void *data, size_t len)
{
	o->key = strdup(key);
	o->data = malloc(len ? len : 1);
	o->len = len;
	if (!o->key || !o->data)
		return -ENOMEM;
	if (len)
		memcpy(o->data, data, len);
	return 0;
}

static int store_put(struct memory_store *s, const char *key, const void *data, size_t len,
		     bool replace)
{
	/* What this holds at the end is freed: the new object on failure, else the old one. */
	CLEANUP(object_free) struct object o = {0};
	int r = object_init(&o, key, data, len);
	bool found;
	size_t at;

	if (r < 0)
		return r;
	SCOPED_LOCK(&s->lock);
	at = position_locked(s, key, &found);
	if (!found)
		return insert_locked(s, at, &o);
	if (!replace)
		return -EEXIST;
	struct object old = s->objects[at];

	s->objects[at] = o;
	o = old;
	return 0;
}

static int memory_put(struct remote *r, const char *key, const void *data, size_t len)
{
	return store_put(store_of(r), key, data, len, true);
}

static int memory_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	return store_put(store_of(r), key, data, len, false);
}

static int memory_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		      struct buf *out)
{
	struct memory_store *s = store_of(r);
	const struct object *o;
	bool found;
	size_t at;

	SCOPED_LOCK(&s->lock);
	at = position_locked(s, key, &found);
	if (!found)
		return -ENOENT;
	o = &s->objects[at];
	if (offset >= o->len)
		return 0;
	if (len > o->len - offset)
		len = o->len - offset;
	if (len > REMOTE_GET_MAX)
		return -EFBIG;
	buf_put(out, o->data + offset, len);
	return buf_error(out);
}

static int memory_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	struct memory_store *s = store_of(r);
	bool found;
	size_t at;

	SCOPED_LOCK(&s->lock);
	at = position_locked(s, key, &found);
	if (!found)
		return -ENOENT;
	*ret_size = s->objects[at].len;
	return 0;
}

/* The first object below prefix whose key is above `last`; false where there is none. */
static bool next_object(struct memory_store *s, const char *prefix, char last[REMOTE_KEY_MAX + 1],
			uint64_t *ret_size)
{
	const struct object *o;
	bool found;
	size_t at;

	SCOPED_LOCK(&s->lock);
	at = position_locked(s, last, &found);
	if (found)
		at++;
	if (at == s->count)
		return false;
	o = &s->objects[at];
	if (strncmp(o->key, prefix, strlen(prefix)) != 0)
		return false;
	memcpy(last, o->key, strlen(o->key) + 1);
	*ret_size = o->len;
	return true;
}

static int memory_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	char key[REMOTE_KEY_MAX + 1];
	uint64_t size = 0;
	int err = 0;

	memcpy(key, prefix, strlen(prefix) + 1);
	while (err == 0 && next_object(store_of(r), prefix, key, &size))
		err = fn(arg, key, size);
	return err;
}

static int memory_delete(struct remote *r, const char *key)
{
	CLEANUP(object_free) struct object old = {0};
	struct memory_store *s = store_of(r);
	bool found;
	size_t at;

	SCOPED_LOCK(&s->lock);
	at = position_locked(s, key, &found);
	if (!found)
		return 0;
	old = s->objects[at];
	s->count--;
	memmove(s->objects + at, s->objects + at + 1, (s->count - at) * sizeof(*s->objects));
	return 0;
}

static void store_free(struct memory_store *s)
{
	for (size_t i = 0; i < s->count; i++)
		object_free(&s->objects[i]);
	free(s->objects);
	free(s->name);
	mutex_destroy(&s->lock);
	free(s);
}

static void store_leave(struct memory_store *s)
{
	SCOPED_LOCK(&stores_lock);

	if (--s->users > 0)
		return;
	for (struct memory_store **p = &stores; *p; p = &(*p)->next) {
		if (*p == s) {
			*p = s->next;
			break;
		}
	}
	store_free(s);
}

/* The store of this name, made where it is not there; NULL: no memory. */
static struct memory_store *store_join(const char *name)
{
	struct memory_store *s;
	SCOPED_LOCK(&stores_lock);

	for (s = stores; s; s = s->next) {
		if (strcmp(s->name, name) == 0) {
			s->users++;
			return s;
		}
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->name = strdup(name);
	if (!s->name) {
		free(s);
		return NULL;
	}
	mutex_init(&s->lock, LOCK_REMOTE_MEMORY);
	s->users = 1;
	s->next = stores;
	stores = s;
	return s;
}

static void memory_release(struct remote *r)
{
	store_leave(store_of(r));
}

static const struct remote_ops memory_ops = {
	.put = memory_put,
	.put_if_absent = memory_put_if_absent,
	.get = memory_get,
	.size = memory_size,
	.list = memory_list,
	.delete = memory_delete,
	.upload_check = "nothing is on its way",
	.release = memory_release,
};

int remote_memory_open(const struct remote_url *url, const char *text,
		       const struct remote_limits *limits, struct remote **ret_remote)
{
	cleanup_free struct memory *m = NULL;
	int err;

	(void)limits;
	if (url->query)
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->store = store_join(url->rest);
	if (!m->store)
		return -ENOMEM;
	err = remote_init(&m->base, &memory_ops, text, NULL);
	if (err < 0) {
		store_leave(m->store);
		return err;
	}
	*ret_remote = &steal_ptr(m)->base;
	return 0;
}

/* ---- the remote none: always empty, takes no writes ---- */

static int none_put(struct remote *r, const char *key, const void *data, size_t len)
{
	(void)r, (void)key, (void)data, (void)len;
	return -EROFS;
}

static int none_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		    struct buf *out)
{
	(void)r, (void)key, (void)offset, (void)len, (void)out;
	return -ENOENT;
}

static int none_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	(void)r, (void)key, (void)ret_size;
	return -ENOENT;
}

static int none_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	(void)r, (void)prefix, (void)fn, (void)arg;
	return 0;
}

static int none_delete(struct remote *r, const char *key)
{
	(void)r, (void)key;
	return -EROFS;
}

static int none_check_create(struct remote *r, enum remote_create *ret_create)
{
	(void)r, (void)ret_create;
	return -EROFS;
}

static const struct remote_ops none_ops = {
	.put = none_put,
	.put_if_absent = none_put,
	.get = none_get,
	.size = none_size,
	.list = none_list,
	.delete = none_delete,
	.check_create = none_check_create,
};

int remote_none_open(const struct remote_url *url, const char *text,
		     const struct remote_limits *limits, struct remote **ret_remote)
{
	cleanup_free struct remote *r = NULL;
	int err;

	(void)limits;
	if (url->rest[0] || url->query)
		return -EINVAL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	err = remote_init(r, &none_ops, text, NULL);
	if (err < 0)
		return err;
	r->is_none = true;
	*ret_remote = steal_ptr(r);
	return 0;
}
