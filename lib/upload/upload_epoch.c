/* SPDX-License-Identifier: Apache-2.0 */
/* Making one sealed epoch durable. */
#include "lib/upload/upload_epoch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/cache/reclaim.h"
#include "lib/cache/trees.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/holder.h"
#include "lib/meta/records.h"
#include "lib/upload/nodes.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

/* Versions that are marked durable in one transaction; between them the lock is let go. */
#define SLICE 256

/* What became of one local version. */
struct stored_version {
	uint64_t version;
	struct hash recipe;
	uint64_t holes; /* bytes in its runs of zeros */
	bool is_inline;
	bool torn; /* marked so now: where the record says so, it was found after the seal (power.c) */
	void *data; /* TREE_INLINE: its bytes, owned */
	size_t len;
};

struct upload {
	struct volume *vol;
	struct store_batch *batch;
	struct early_upload *ahead;
	struct tree *tree; /* as it was sealed */
	struct stored_version *stored;
	size_t count, cap;
	uint64_t inline_bytes; /* of contents that the tree holds itself */
	uint64_t inline_new;   /* of them, those that no earlier tree held */
	bool all_whole;	       /* the record names nothing torn */
	uint64_t lost;	       /* files whose bytes are gone */
	char *first_lost;
};

static void upload_free(struct upload *u)
{
	for (size_t i = 0; i < u->count; i++)
		free(u->stored[i].data);
	free(u->stored);
	free(u->first_lost);
	tree_unref(u->tree);
	store_batch_free(u->batch);
}

static struct stored_version *add_stored(struct upload *u, uint64_t version)
{
	if (array_reserve((void **)&u->stored, &u->cap, u->count, sizeof(*u->stored)))
		return NULL;
	u->stored[u->count] = (struct stored_version){.version = version};
	return &u->stored[u->count++];
}

/* ---- contents ---- */

static int read_inline(int fd, uint64_t size, struct stored_version *s)
{
	s->data = malloc(size);
	if (!s->data)
		return -ENOMEM;
	s->is_inline = true;
	s->len = size;
	return io_pread_full(fd, s->data, size, 0);
}

/* 1, and it counts as stored, where an earlier epoch of this machine has made the version durable
 * since this one was sealed. */
static int known_durable(struct upload *u, uint64_t version)
{
	cleanup_buf struct buf inline_data = {0};
	struct stored_version *s;
	struct state_version row;
	int error;

	mutex_lock(&u->vol->lock);
	error = state_version_get(u->vol->state, version, &row);
	if (!error && row.state == VERSION_DURABLE && !row.has_recipe)
		error = state_inline_get(u->vol->state, version, &inline_data);
	mutex_unlock(&u->vol->lock);
	if (error)
		return error;
	if (row.state != VERSION_DURABLE)
		return 0;
	s = add_stored(u, version);
	if (!s)
		return -ENOMEM;
	s->torn = row.torn;
	if (row.has_recipe) {
		s->recipe = row.recipe;
		s->holes = row.holes;
		return 1;
	}
	s->is_inline = true;
	s->data = buf_steal(&inline_data, &s->len);
	u->inline_bytes += s->len;
	return 1;
}

static int store_bytes(struct upload *u, int fd, uint64_t size, struct stored_version *s)
{
	if (size > TREE_INLINE_MAX || u->inline_bytes + size > UPLOAD_INLINE_BYTES_MAX)
		return store_put_fd(u->batch, fd, size, &s->recipe, &s->holes);
	free(s->data);
	return read_inline(fd, size, s);
}

static bool is_torn(struct upload *u, uint64_t version)
{
	struct state_version row;

	SCOPED_LOCK(&u->vol->lock);
	return state_version_get(u->vol->state, version, &row) == 0 && row.torn;
}

static bool is_shorter(int fd, uint64_t size)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size < size;
}

/* Stores a local version's content. Where it fails as the bytes are gone from the cache, *ret_gone is true: that
 * only the local file tells, for what the remote answers says nothing of it. */
static int store_version(struct upload *u, const struct tree_entry *e, bool *ret_gone)
{
	struct stored_version *s = add_stored(u, e->u.version);
	int error;

	*ret_gone = false;
	if (!s)
		return -ENOMEM;
	s->torn = is_torn(u, e->u.version);
	for (;;) {
		cleanup_close int fd = object_open(u->vol, e->u.version, O_RDONLY);

		*ret_gone = fd == -ENOENT;
		if (fd < 0)
			return fd;
		error = store_bytes(u, fd, e->size, s);
		*ret_gone = error == -ENODATA && is_shorter(fd, e->size);
		/* An edit in place took the file over while it was read: the version has another. */
		if (object_is_still(u->vol, e->u.version, fd)) {
			if (!error && s->is_inline) {
				u->inline_bytes += s->len;
				u->inline_new += s->len;
			}
			return error;
		}
	}
}

/* 1, and it counts as stored, where that was done before the seal, and all of it is there. */
static int take_ahead(struct upload *u, uint64_t version)
{
	const struct early_upload_content *ahead = early_upload_find(u->ahead, version);
	struct stored_version *s;
	int error;

	if (!ahead)
		return 0;
	error = store_batch_keep(u->batch, &ahead->recipe);
	if (error)
		return store_batch_error(u->batch) ? error : 0;
	s = add_stored(u, version);
	if (!s)
		return -ENOMEM;
	s->torn = is_torn(u, version);
	s->recipe = ahead->recipe;
	s->holes = ahead->holes;
	return 1;
}

static int note_lost(struct upload *u, uint32_t id, int why)
{
	cleanup_buf struct buf path = {0};

	if (tree_path(u->tree, id, &path))
		return -ENOMEM;
	log_error("%s: its bytes are gone from the cache (%s); the epoch is stored without it",
		  buf_str(&path), strerror(-why));
	if (!u->lost++)
		u->first_lost = strdup(buf_str(&path));
	u->count--; /* what store_version had begun */
	free(u->stored[u->count].data);
	return 0;
}

/* Takes what is durable already; the numbers of the other entries are appended to `rest`. */
static int take_known(struct upload *u, struct buf *rest)
{
	for (uint32_t id = 0; id < tree_count(u->tree); id++) {
		struct tree_entry e;
		int known;

		tree_get(u->tree, id, &e);
		if (e.type != TREE_REGULAR || e.content != TREE_LOCAL ||
		    tree_identity(u->tree, id) != id)
			continue;
		known = known_durable(u, e.u.version);
		if (known < 0 && known != -ENOENT)
			return known;
		if (known != 1)
			buf_put(rest, &id, sizeof(id));
	}
	return buf_error(rest);
}

/* In the same order every time: after a crash the same packs come out. */
static int store_contents(struct upload *u)
{
	cleanup_buf struct buf rest = {0};
	int error = take_known(u, &rest);

	for (size_t at = 0; !error && at < rest.len; at += sizeof(uint32_t)) {
		struct tree_entry e;
		bool gone = false;
		uint32_t id;

		memcpy(&id, rest.data + at, sizeof(id));
		tree_get(u->tree, id, &e);
		error = take_ahead(u, e.u.version);
		if (!error)
			error = store_version(u, &e, &gone);
		if (error > 0)
			error = 0;
		if (gone)
			error = note_lost(u, id, error);
	}
	return error;
}

/* ---- the tree ---- */

static int compare_stored(const void *a, const void *b)
{
	const struct stored_version *x = a, *y = b;

	return x->version < y->version ? -1 : x->version > y->version;
}

static const struct stored_version *find_stored(const struct upload *u, uint64_t version)
{
	const struct stored_version wanted = {.version = version};

	return u->count ? bsearch(&wanted, u->stored, u->count, sizeof(wanted), compare_stored)
			: NULL;
}

/* 1: the entry as it is in the remote; 0: it is left out. */
static int final_entry(const struct upload *u, struct tree_entry *e)
{
	const struct stored_version *s;

	if (e->type != TREE_REGULAR || e->content != TREE_LOCAL)
		return 1;
	s = find_stored(u, e->u.version);
	if (!s)
		return 0;
	if (s->torn && !u->all_whole && !(e->flags & TREE_LOG))
		e->flags |= TREE_TORN;
	if (s->is_inline) {
		e->content = TREE_INLINE;
		e->u.inline_data = s->data;
	} else {
		e->content = TREE_RECIPE;
		e->u.recipe = s->recipe;
		e->holes = s->holes;
	}
	return 1;
}

static int final_tree(struct upload *u, struct buf *out)
{
	cleanup_tree_writer struct tree_writer *w = NULL;
	int error = tree_writer_new(out, 0, &w);

	if (u->count)
		qsort(u->stored, u->count, sizeof(*u->stored), compare_stored);
	for (uint32_t id = 0; !error && id < tree_count(u->tree); id++) {
		struct tree_entry e;

		tree_get(u->tree, id, &e);
		if (final_entry(u, &e))
			error = tree_writer_add(w, &e);
	}
	return error ? error : tree_writer_finish(w);
}

/* The content with this recipe as it lies here: a descriptor, or -errno. For upload_epoch.h. */
static int open_local(void *arg, const struct hash *recipe, uint64_t size)
{
	const struct upload *u = arg;
	struct state_version v;
	int error;

	for (size_t i = 0; i < u->count; i++)
		if (!u->stored[i].is_inline && hash_equal(&u->stored[i].recipe, recipe))
			return object_open(u->vol, u->stored[i].version, O_RDONLY);
	mutex_lock(&u->vol->lock);
	error = state_version_by_recipe(u->vol->state, recipe, size, &v);
	mutex_unlock(&u->vol->lock);
	return error ? error : object_open(u->vol, v.id, O_RDONLY);
}

/* ---- what was stored before the seal ---- */

static int count_ahead(const struct upload *u, struct epoch_record *record)
{
	int error = 0;

	for (size_t i = 0; i < u->count && !error; i++)
		error = early_upload_count(u->ahead, u->stored[i].version, record);
	return error;
}

static void forget_ahead(const struct upload *u)
{
	for (size_t i = 0; i < u->count; i++)
		early_upload_forget(u->ahead, u->stored[i].version);
}

/* ---- durable ---- */

static int mark_version_locked(struct volume *vol, const struct stored_version *s)
{
	struct state_version row;
	int error = state_version_get(vol->state, s->version, &row);

	if (error == -ENOENT)
		return 0;
	if (error || row.state == VERSION_DURABLE)
		return error;
	row.state = VERSION_DURABLE;
	row.has_recipe = !s->is_inline;
	row.recipe = s->recipe;
	row.holes = s->holes;
	error = state_version_set(vol->state, &row);
	if (!error && s->is_inline)
		error = state_inline_set(vol->state, s->version, s->data, s->len);
	return error;
}

static int mark_versions(struct upload *u)
{
	struct volume *vol = u->vol;
	int error = 0;

	for (size_t i = 0; !error && i < u->count; i += SLICE) {
		mutex_lock(&vol->lock);
		error = state_begin(vol->state);
		if (!error) {
			for (size_t k = i; !error && k < u->count && k < i + SLICE; k++)
				error = mark_version_locked(vol, &u->stored[k]);
			error = state_end(vol->state, error);
		}
		mutex_unlock(&vol->lock);
	}
	return error;
}

/* The record and the tree as they were sealed. */
static int load_sealed(struct upload *u, uint64_t number, struct epoch_record *ret_record)
{
	struct state_epoch row = {0};
	int error;

	mutex_lock(&u->vol->lock);
	error = state_epoch_get(u->vol->state, number, &row);
	if (!error && row.state == EPOCH_DROPPED)
		error = -ENOENT;
	if (!error) {
		row.state = EPOCH_UPLOADING;
		error = state_epoch_set(u->vol->state, &row);
	}
	mutex_unlock(&u->vol->lock);
	if (!error)
		error = row.record ? record_decode(row.record, strlen(row.record), ret_record)
				   : -EBADMSG;
	state_epoch_free(&row);
	if (error)
		return error;
	u->all_whole = doubts_none_torn(ret_record);
	return trees_load(u->vol, number, &u->tree);
}

/* Bytes of all files whose content is of this kind. */
static uint64_t bytes_of(const struct tree *t, enum tree_content kind)
{
	uint64_t bytes = 0;

	for (uint32_t id = 0; id < tree_count(t); id++) {
		struct tree_entry e;

		tree_get(t, id, &e);
		if (e.type == TREE_REGULAR && e.content == kind && tree_identity(t, id) == id)
			bytes += e.size;
	}
	return bytes;
}

static void show(struct upload_progress *p, uint64_t epoch, uint64_t total,
		 struct store_batch *batch)
{
	mutex_lock(&p->lock);
	p->epoch = epoch;
	p->total = total;
	p->batch = batch;
	mutex_unlock(&p->lock);
}

static int put_all(struct upload *u, struct upload_gc *gc, struct epoch_record *record,
		   struct buf *tree, struct buf *json)
{
	struct remote *remote = gc->remote;
	struct store_stats stats;
	int error = store_contents(u);

	FAULT_POINT("upload.contents");
	if (!error)
		error = final_tree(u, tree);
	if (!error)
		error = store_put_tree(u->batch, tree->data, tree->len, record);
	if (!error)
		error = count_ahead(u, record);
	if (!error)
		error = store_batch_flush(u->batch, record, &stats);
	if (!error)
		error = upload_record_remember(u->vol, record);
	if (!error)
		error = store_batch_finish(u->batch, record, &stats);
	if (!error)
		counters_add_stored(&u->vol->counters, stats.plain, stats.fresh, stats.stored);
	FAULT_POINT("upload.index");
	/* What the remote tells as done must not be news to this machine after a power loss. */
	if (!error)
		error = state_sync(u->vol->state);
	if (!error)
		error = upload_gc_keep(gc, false);
	if (error)
		return error;
	record->bytes_new += u->inline_new;
	if (u->lost) {
		free(record->reason);
		text_print(&record->reason, "%" PRIu64 " file%s lost from the cache, first %s",
			   u->lost, plural(u->lost), u->first_lost ? u->first_lost : "?");
		record->complete = RECORD_INCOMPLETE;
		record->doubted = false;
		record->files -= u->lost < record->files ? u->lost : record->files;
	}
	error = holder_confirm(u->vol, remote, 0);
	if (!error)
		error = record->part.node ? nodes_part_put(remote, record, json)
					  : upload_record_put(remote, record, json);
	FAULT_POINT("upload.record");
	return error ? error : upload_gc_keep(gc, true);
}

static int upload_sealed(struct upload *u, struct remote *remote, struct store *store,
			 struct epoch_record *record)
{
	cleanup_buf struct buf tree = {0}, json = {0};
	struct upload_gc gc = {
		.vol = u->vol,
		.remote = remote,
		.store = store,
		.record = record,
		.tree = &tree,
		.local = open_local,
		.arg = u,
	};
	uint64_t number = record->number;
	size_t len;
	void *data;
	int error = put_all(u, &gc, record, &tree, &json);

	if (error)
		return error;
	data = buf_steal(&tree, &len);
	error = trees_store(u->vol, number, data, len, 0, NULL);
	if (!error)
		error = mark_versions(u);
	FAULT_POINT("upload.versions");
	if (!error)
		error = upload_record_durable(u->vol, number, buf_str(&json));
	if (!error)
		forget_ahead(u);
	/* After a power loss the contents that were never fsynced may be gone here: then the remote's count. */
	return error ? error : state_sync(u->vol->state);
}

int upload_epoch(struct volume *vol, struct remote *remote, struct store *store, uint64_t number,
		 struct early_upload *ahead, struct upload_progress *progress)
{
	cleanup_record struct epoch_record record = {0};
	struct upload u = {.vol = vol, .ahead = ahead};
	int error = load_sealed(&u, number, &record);

	if (!error)
		error = upload_gc_heed(remote, store);
	if (!error)
		error = store_batch_begin(store, number, &u.batch);
	if (!error) {
		u.inline_bytes = bytes_of(u.tree, TREE_INLINE);
		show(progress, number, bytes_of(u.tree, TREE_LOCAL), u.batch);
		error = upload_sealed(&u, remote, store, &record);
		show(progress, 0, 0, NULL);
	}
	upload_free(&u);
	if (error)
		return error;
	versions_reclaim(vol);
	if (nodes_is_part(number))
		return 0;
	/* A copy for faster starts: without it the records are read one by one. */
	error = records_summarize(remote, number);
	if (error)
		log_warn("the summary of epochs up to %" PRIu64 " was not written: %s", number,
			 strerror(-error));
	return 0;
}
