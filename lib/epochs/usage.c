/* SPDX-License-Identifier: Apache-2.0 */
/* What a volume's epochs hold and take. */
#include "lib/epochs/usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cache/store_index.h"
#include "lib/cache/trees.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/seal.h"
#include "lib/format/names.h"
#include "lib/format/pack.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"

/* Counting takes at most this part of a thread's time, however often it is asked for. */
#define REST_FACTOR 20

struct usage_cache {
	struct mutex lock; /* a leaf: guards the rest */
	bool valid;
	struct buf epochs; /* their numbers, as counted */
	struct usage usage;
	int64_t ended_ns, took_ns; /* monotonic */
};

int usage_cache_new(struct usage_cache **ret_cache)
{
	struct usage_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	mutex_init(&c->lock, LOCK_USAGE);
	*ret_cache = c;
	return 0;
}

void usage_cache_free(struct usage_cache *c)
{
	if (!c)
		return;
	buf_free(&c->epochs);
	mutex_destroy(&c->lock);
	free(c);
}

/* ---- JSON ---- */

static void set_number(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key,
			    json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

json_t *usage_json(const struct usage *u)
{
	json_t *all = json_object(), *live = json_object(), *retained = json_object();
	json_t *packs = json_object();

	if (u->live_epoch) {
		set_number(live, "epoch", u->live_epoch);
		set_number(live, "bytes", u->live_bytes);
	}
	set_number(retained, "epochs", u->epochs);
	set_number(retained, "bytes", u->bytes);
	if (u->live_counted)
		set_number(live, "bytes_stored", u->live_stored);
	if (u->counted)
		set_number(retained, "bytes_stored", u->stored);
	if (u->counted_ns)
		json_object_set_new(retained, "counted_ns", json_integer(u->counted_ns));
	json_object_set_new(all, "live", live);
	json_object_set_new(all, "retained", retained);
	if (u->listed) {
		set_number(packs, "count", u->packs);
		set_number(packs, "bytes", u->pack_bytes);
		set_number(packs, "bytes_unused", u->pack_unused);
	}
	if (json_object_set_new(all, "packs", packs) < 0) {
		json_decref(all);
		return NULL;
	}
	if (!u->listed)
		json_object_del(all, "packs");
	return all;
}

void usage_add(struct usage *u, const struct epoch_record *record, const struct store_usage *set)
{
	if (!u->epochs++) {
		u->live_epoch = record->number;
		u->live_bytes = record->bytes;
		u->live_stored = set ? store_usage_bytes(set) : 0;
		u->live_counted = set != NULL;
	}
	u->bytes += record->bytes;
}

/* ---- packs ---- */

static int add_pack(void *arg, const char *key, uint64_t size)
{
	struct usage *u = arg;
	struct hash id;

	if (pack_key_parse(key, &id) == 0) {
		u->packs++;
		u->pack_bytes += size;
	}
	return 0;
}

int usage_list_packs(struct remote *remote, struct usage *u)
{
	struct usage now = *u;
	uint64_t used;
	int error = remote_list(remote, PREFIX_PACKS, add_pack, &now);

	if (error)
		return error;
	used = now.stored + now.packs * (PACK_HEADER_LEN + PACK_FOOTER_LEN);
	now.pack_unused = now.pack_bytes > used ? now.pack_bytes - used : 0;
	now.listed = true;
	*u = now;
	return 0;
}

/* ---- an open volume ---- */

static int collect_durable(struct volume *vol, struct buf *out)
{
	const struct epoch_index *x;
	uint64_t pending = UINT64_MAX;
	int error = 0;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	if (!x)
		return -EIO;
	if (!vol->local_only)
		error = state_epoch_first_pending(vol->state, &pending);
	if (error && error != -ENOENT)
		return error;
	for (size_t i = 0; i < x->count && x->epochs[i].number < pending; i++)
		buf_put(out, &x->epochs[i].number, sizeof(uint64_t));
	return buf_error(out);
}

static bool recall(struct usage_cache *c, const struct buf *epochs, struct usage *ret_usage)
{
	int64_t rests_ns;
	bool same;

	SCOPED_LOCK(&c->lock);
	rests_ns = clock_mono_ns() - c->ended_ns;
	same = c->valid && c->epochs.len == epochs->len &&
	       (!epochs->len || !memcmp(c->epochs.data, epochs->data, epochs->len));
	if (!c->valid || (!same && rests_ns >= REST_FACTOR * c->took_ns))
		return false;
	*ret_usage = c->usage;
	return true;
}

static void remember(struct usage_cache *c, const struct buf *epochs, const struct usage *u,
		     int64_t began_ns)
{
	SCOPED_LOCK(&c->lock);
	buf_reset(&c->epochs);
	buf_put(&c->epochs, epochs->data, epochs->len);
	c->valid = buf_error(&c->epochs) == 0;
	c->usage = *u;
	c->usage.listed = false;
	c->ended_ns = clock_mono_ns();
	c->took_ns = c->ended_ns - began_ns;
}

/* Adds an epoch's chunks to what is counted; set NULL: only its record's figures. */
static int add_epoch(struct volume *vol, uint64_t number, bool read, struct store_usage *set,
		     struct usage *u)
{
	cleanup_tree struct tree *tree = NULL;
	struct epoch_info info = {0};
	int error = epochs_get(vol, number, &info);

	/* Dropped meanwhile. */
	if (error)
		return error == -ENOENT ? 0 : error;
	if (set)
		error = read ? trees_fetch(vol, number, &info.record, &tree)
			     : trees_load(vol, number, &tree);
	if (error == -ENOENT || (error == -EBADMSG && !read))
		error = -ENODATA;
	if (set && !error)
		error = store_usage_add(set, &info.record, tree);
	usage_add(u, &info.record, error ? NULL : set);
	epoch_info_free(&info);
	return error;
}

/* The newest first: what it takes is what is counted by then. */
static int count(struct volume *vol, const struct buf *epochs, bool read, struct store_usage *set,
		 interrupted_fn interrupted, void *arg, struct usage *u)
{
	bool whole = set != NULL;
	int error = 0;

	for (size_t at = epochs->len; !error && at > 0; at -= sizeof(uint64_t)) {
		uint64_t number;

		memcpy(&number, epochs->data + at - sizeof(number), sizeof(number));
		if (interrupted && interrupted(arg))
			return -EINTR;
		error = add_epoch(vol, number, read, whole ? set : NULL, u);
		if (error == -ENODATA && !read) {
			whole = false;
			error = 0;
		}
	}
	u->counted = whole;
	u->stored = whole ? store_usage_bytes(set) : 0;
	if (whole)
		u->counted_ns = clock_wall_ns();
	return error;
}

int volume_usage(struct volume *vol, bool read, interrupted_fn interrupted, void *arg,
		 struct usage *ret_usage)
{
	const struct store_index index = volume_store_index(vol);
	cleanup_buf struct buf epochs = {0};
	struct store_usage *set = NULL;
	int64_t began_ns = clock_mono_ns();
	struct usage u = {0};
	int error = collect_durable(vol, &epochs);

	if (!error && !read && recall(vol->usage, &epochs, ret_usage))
		return 0;
	if (!error && vol->store)
		error = store_usage_new(&index, read ? vol->store : NULL, &set);
	if (!error)
		error = count(vol, &epochs, read, set, interrupted, arg, &u);
	store_usage_free(set);
	if (!error && read && vol->store)
		error = usage_list_packs(vol->remote, &u);
	if (error)
		return error;
	remember(vol->usage, &epochs, &u, began_ns);
	*ret_usage = u;
	return 0;
}
