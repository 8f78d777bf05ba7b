/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a remote: its objects, the volume, records, and the trees that they name. */
#include "lib/admin/catalog_fsck.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/admin/catalog_internal.h"
#include "lib/format/recipe.h"
#include "lib/format/tree.h"
#include "lib/meta/records.h"
#include "lib/meta/volume_key.h"
#include "lib/store/store.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"

/* Recipes wait for the remote: several at once. */
#define RECIPE_READERS 8

bool fsck_fatal(int error)
{
	return error == -ENOMEM || error == -ECANCELED || error == -ECONNREFUSED ||
	       error == -ETIMEDOUT;
}

void fsck_problem(struct fsck *f, const char *key, const char *where, const char *what)
{
	f->totals.problems++;
	if (f->how->problem)
		f->how->problem(f->how->arg, key, where, what);
}

void fsck_note(struct fsck *f, const char *key, const char *where, const char *what)
{
	f->totals.notes++;
	if (f->how->note)
		f->how->note(f->how->arg, key, where, what);
}

void fsck_unsure(struct fsck *f, const char *key, const char *where, const char *what)
{
	f->totals.unsure++;
	fsck_note(f, key, where, what);
}

static void show_progress(struct fsck *f, uint64_t objects, uint64_t bytes)
{
	f->progress.files = objects;
	f->progress.bytes = bytes;
	if (f->how->progress)
		f->how->progress(f->how->arg, &f->progress);
}

static void on_store_progress(void *arg, uint64_t objects, uint64_t bytes)
{
	show_progress(arg, objects, bytes);
}

/* ---- what is there ---- */

static int note_epoch(void *arg, const char *key, uint64_t size)
{
	struct fsck *f = arg;
	uint64_t number;
	int error;

	(void)size;
	if (epoch_key_parse(key, &number))
		return 0;
	error = array_reserve((void **)&f->epochs, &f->epoch_cap, f->epoch_count, sizeof(number));
	if (!error)
		f->epochs[f->epoch_count++] = number;
	return error;
}

static int note_key(struct fsck_keys *k, const char *key)
{
	int error = array_reserve((void **)&k->keys, &k->cap, k->count, sizeof(char *));

	if (error)
		return error;
	k->keys[k->count] = strdup(key);
	if (!k->keys[k->count])
		return -ENOMEM;
	k->count++;
	return 0;
}

static int note_object(void *arg, const char *key, uint64_t size)
{
	char name[TAG_NAME_MAX + 1];
	struct fsck *f = arg;
	uint64_t number, sequence;
	int taken = store_fsck_note(f->store, key, size);

	if (taken)
		return taken < 0 ? taken : 0;
	if (!tag_key_parse(key, name))
		return note_key(&f->tags, key);
	if (!gc_key_parse(key, &number))
		return note_key(&f->gc_lists, key);
	if (!summary_key_parse(key, &number))
		return note_key(&f->summaries, key);
	if (!part_key_parse(key, &number, &sequence, name))
		return note_key(&f->parts, key);
	if (!slot_key_parse(key, name))
		return note_key(&f->slots, key);
	if (!strcmp(key, KEY_VOLUME) || !epoch_key_parse(key, &number) ||
	    !lease_any_key_parse(key, &number))
		return 0;
	f->totals.foreign++;
	return 0;
}

static int compare_numbers(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Epochs first: what they need was there before them, whatever is put meanwhile. */
static int list_all(struct fsck *f)
{
	int error = remote_list(f->remote, PREFIX_EPOCHS, note_epoch, f);

	if (!error)
		error = remote_list(f->remote, "", note_object, f);
	if (!error && f->epoch_count)
		qsort(f->epochs, f->epoch_count, sizeof(*f->epochs), compare_numbers);
	f->trees = calloc(f->epoch_count + 1, sizeof(*f->trees));
	f->parents = calloc(f->epoch_count + 1, sizeof(*f->parents));
	return error || (f->trees && f->parents) ? error : -ENOMEM;
}

/* ---- the volume's own object ---- */

static int check_volume(struct fsck *f, struct opening_message *m)
{
	struct opening_message own = {0};
	struct store_fsck_totals t;
	int error = contact_read(f->remote, &f->info, &own);

	store_fsck_get_totals(f->store, &t);
	f->has_info = !error;
	if (error == -ENOENT && !f->epoch_count && !t.packs && !t.index_objects) {
		error = contact_check_empty(f->remote, "name the remote of a mount", m);
		if (!error)
			error = opening_fail(m, -ENOENT,
					     "%s holds no volume: name the remote of a mount",
					     remote_name(f->remote));
	} else if (error == -ENOENT || error == -EBADMSG) {
		fsck_problem(f, KEY_VOLUME, "", error == -ENOENT ? "is missing" : "is damaged");
		error = 0;
	} else if (error) {
		opening_fail(m, error, "%s", own.text ? own.text : strerror(-error));
	}
	free(own.text);
	return error;
}

/* ---- records ---- */

const char *fsck_wrong(int error, char text[STORE_FSCK_TEXT])
{
	if (error == -EBADMSG)
		return "is damaged";
	if (error == -EPROTONOSUPPORT)
		return "is of a newer version of epochfs";
	snprintf(text, STORE_FSCK_TEXT, "cannot be read: %s", strerror(-error));
	return text;
}

static int note_head(struct fsck *f, const struct epoch_record *record)
{
	if (record->chunk_count)
		buf_put(&f->heads, &record->chunks[0].hash, sizeof(struct hash));
	return buf_error(&f->heads);
}

/* The tombstone of a dropped epoch, whose tree may be there still: most keep the record, which tells it. */
static int check_tombstone(struct fsck *f, uint64_t number)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_free char *text = NULL;
	int error = records_dropped(f->remote, number, &record, &text);

	if (fsck_fatal(error))
		return error;
	f->dropped |= error || !record.chunk_count;
	return error ? 0 : note_head(f, &record);
}

static int check_record(struct fsck *f, uint64_t number, size_t i)
{
	cleanup_record struct epoch_record record = {0};
	char key[KEY_MAX], where[64], text[STORE_FSCK_TEXT];
	int error = records_get(f->remote, number, &record, NULL);

	if (error == -ENOENT)
		return check_tombstone(f, number);
	if (fsck_fatal(error))
		return error;
	f->totals.epochs++;
	epoch_key(number, key);
	snprintf(where, sizeof(where), "epoch %" PRIu64, number);
	if (error) {
		fsck_problem(f, key, where, fsck_wrong(error, text));
		return 0;
	}
	f->trees[i] = record.tree_hash;
	f->parents[i] = record.parent;
	error = note_head(f, &record);
	if (error)
		return error;
	if (f->has_info && strcmp(record.volume, f->info.uuid) != 0)
		fsck_problem(f, key, where, "belongs to another volume");
	return fsck_tree(f, &record);
}

int fsck_records(struct fsck *f)
{
	uint64_t before = f->progress.files;
	int error = 0;

	for (size_t i = 0; i < f->epoch_count && !error; i++) {
		error = check_record(f, f->epochs[i], i);
		show_progress(f, before + i + 1, f->progress.bytes);
	}
	return error;
}

/* ---- all ---- */

static void free_keys(struct fsck_keys *k)
{
	for (size_t i = 0; i < k->count; i++)
		free(k->keys[i]);
	free(k->keys);
}

static void forget_hits(struct fsck *f)
{
	for (size_t i = 0; i < f->hit_count; i++) {
		free(f->hits[i].path);
		free(f->hits[i].key);
	}
	free(f->hits);
	free(f->recipes);
	hash_index_free(&f->recipes_by_hash);
	hash_index_free(&f->hits_by_id);
	f->hits = NULL;
	f->recipes = NULL;
	f->hit_count = f->hit_cap = f->recipe_count = f->recipe_cap = 0;
	f->recipes_by_hash = f->hits_by_id = (struct hash_index){0};
}

int fsck_records_again(struct fsck *f)
{
	forget_hits(f);
	buf_reset(&f->moving);
	buf_reset(&f->heads);
	f->totals = (struct catalog_fsck_totals){.foreign = f->totals.foreign};
	store_fsck_forget_needs(f->store);
	return fsck_records(f);
}

void fsck_free(struct fsck *f)
{
	pool_free(f->pool);
	store_fsck_free(f->store);
	remote_close(f->remote);
	forget_hits(f);
	free_keys(&f->tags);
	free_keys(&f->gc_lists);
	free_keys(&f->summaries);
	free_keys(&f->parts);
	free_keys(&f->slots);
	gc_list_free(&f->gc_list);
	buf_free(&f->moving);
	buf_free(&f->missing);
	buf_free(&f->heads);
	free(f->trees);
	free(f->parents);
	free(f->epochs);
}

void fsck_add_totals(struct fsck *f)
{
	struct store_fsck_totals t;

	store_fsck_get_totals(f->store, &t);
	f->totals.packs = t.packs_there;
	f->totals.index_objects = t.index_objects;
	f->totals.chunks = t.chunks;
	f->totals.bytes_stored = t.bytes;
	f->totals.orphans = t.orphans;
}

int fsck_read(struct fsck *f)
{
	uint64_t objects, bytes;

	store_fsck_size(f->store, f->how->read_data, &objects, &bytes);
	f->progress.files_total = objects + f->epoch_count;
	f->progress.bytes_total = bytes;
	return store_fsck_read(f->store, f->how->read_data, on_store_progress, f);
}

static int check_all(struct fsck *f)
{
	int error = fsck_read(f);

	if (!error)
		error = fsck_records(f);
	if (!error)
		error = fsck_meta(f);
	if (error)
		return error;
	fsck_report(f);
	fsck_add_totals(f);
	return 0;
}

/* Without epochfs.json nothing that is encrypted can be opened; of a plain volume all can be looked at. */
static int unlock(struct fsck *f, struct opening_message *m)
{
	struct volume_info info;
	int error = contact_read(f->remote, &info, m);

	if (!error)
		return catalog_unlock(&f->remote, &info, f->how->limits, m);
	if (volume_key_given(f->how->limits) && error == -ENOENT)
		return opening_fail(m, error, "%s has no %s, without which no key opens it",
				    remote_name(f->remote), KEY_VOLUME);
	if (volume_key_given(f->how->limits) || (error != -ENOENT && error != -EBADMSG))
		return error;
	free(m->text);
	m->text = NULL;
	return 0;
}

int fsck_open(struct fsck *f, struct opening_message *m)
{
	int error = pool_new(RECIPE_READERS, POOL_ORDINARY, &f->pool);

	if (!error)
		error = store_fsck_new(f->remote, &f->store);
	if (!error)
		error = list_all(f);
	return error ? contact_fail(f->remote, error, m) : check_volume(f, m);
}

int catalog_fsck(const char *url, const struct catalog_fsck *how,
		 struct catalog_fsck_totals *ret_totals, char **ret_message)
{
	CLEANUP(fsck_free) struct fsck f = {.how = how};
	struct opening_message m = {0};
	int error = catalog_connect_any(url, how->limits, &f.remote, &m);

	if (!error)
		error = unlock(&f, &m);
	if (!error)
		error = fsck_open(&f, &m);
	if (!error) {
		error = check_all(&f);
		if (error)
			error = contact_fail(f.remote, error, &m);
	}
	if (error) {
		*ret_message = m.text;
		return error;
	}
	free(m.text);
	*ret_totals = f.totals;
	return 0;
}

/* ---- Verifying a remote: an epoch's tree, and the contents that it names. ---- */

/* Segments; a longer one may be more than one chunk. */
#define LONG_RECIPE (CHUNK_PLAIN_MAX / 64)

#define TEXT_TREE	"its tree is damaged or missing"
#define TEXT_TREE_BAD	"its tree is not well formed"
#define TEXT_NO_INDEX	"a chunk that no index object names"
#define TEXT_RECIPE_BAD "its recipe is not well formed"
#define TEXT_SIZE	"its recipe has another size"
#define TEXT_LOST_INDEX "is missing"

/* ---- contents ---- */

static void add_culprit(struct fsck_recipe *r, size_t pack)
{
	if (pack == STORE_FSCK_NONE) {
		r->unnamed_chunk = true;
		return;
	}
	for (unsigned i = 0; i < r->culprit_count; i++)
		if (r->culprits[i] == pack)
			return;
	if (r->culprit_count < CULPRITS_MAX)
		r->culprits[r->culprit_count++] = pack;
}

bool fsck_readable(const struct fsck_recipe *r)
{
	return !r->unreadable && !r->unnamed_chunk && !r->culprit_count;
}

static void check_segments(struct fsck *f, struct fsck_recipe *r, const struct recipe *recipe)
{
	for (size_t i = 0; i < recipe->count; i++) {
		const struct recipe_segment *seg = &recipe->segments[i];
		size_t pack;

		if (seg->zero)
			continue;
		if (!store_fsck_find(f->store, &seg->hash, (uint32_t)seg->length, &pack))
			add_culprit(r, pack);
		r->moves |= !store_fsck_settled(f->store, &seg->hash);
	}
	/* The parts of a long one are not looked at one by one. */
	r->moves |= recipe->count > LONG_RECIPE;
	r->size = recipe->size;
}

struct recipe_round {
	struct fsck *f;
	struct fsck_recipe *recipes;
};

static int check_recipe(void *arg, size_t i)
{
	const struct recipe_round *round = arg;
	struct fsck_recipe *r = &round->recipes[i];
	struct store *store = store_fsck_store(round->f->store);
	cleanup_recipe struct recipe recipe = {0};
	size_t pack;
	int error;

	r->moves = !store_fsck_settled(round->f->store, &r->hash);
	if (!store_fsck_find(round->f->store, &r->hash, 0, &pack)) {
		add_culprit(r, pack);
		return 0;
	}
	error = store_get_recipe(store, &r->hash, &recipe, NULL);
	if (fsck_fatal(error))
		return error;
	if (error)
		r->unreadable = true;
	else
		check_segments(round->f, r, &recipe);
	/* The pack of the recipe itself, where it came damaged. */
	if (error && pack != STORE_FSCK_NONE)
		add_culprit(r, pack);
	return 0;
}

static int note_recipe(struct fsck *f, const struct hash *hash, uint64_t size)
{
	struct fsck_recipe r = {.hash = *hash, .claimed = size};
	uint32_t i = hash_index_find(&f->recipes_by_hash, f->recipes, sizeof(r), hash);
	int error;

	if (i != HASH_INDEX_NONE)
		return 0;
	error = array_reserve((void **)&f->recipes, &f->recipe_cap, f->recipe_count, sizeof(r));
	if (error)
		return error;
	f->recipes[f->recipe_count] = r;
	error = hash_index_add(&f->recipes_by_hash, f->recipes, sizeof(r),
			       (uint32_t)f->recipe_count);
	if (!error)
		f->recipe_count++;
	return error;
}

/* ---- what a tree names ---- */

struct tree_walk {
	struct fsck *f;
	const struct epoch_record *record;
	const struct buf *data;
};

/* The first pass: counts files and notes their recipes. */
static int note_entry(const struct tree_walk *walk, const struct tree_entry *e, const char *path)
{
	(void)path;
	if (e->type == TREE_REGULAR)
		walk->f->totals.files++;
	return e->content == TREE_RECIPE ? note_recipe(walk->f, &e->u.recipe, e->size) : 0;
}

/* Where an index object that the record names is gone, that is why; else the record is named. */
static int hit_unnamed(const struct tree_walk *walk, const char *path)
{
	const struct epoch_record *record = walk->record;
	char key[KEY_MAX];

	for (size_t i = 0; i < record->index_count; i++)
		if (!store_fsck_has_index(walk->f->store, record->indexes[i]))
			return fsck_hit(walk->f, record->number, path, STORE_FSCK_NONE,
					record->indexes[i], TEXT_LOST_INDEX);
	epoch_key(record->number, key);
	return fsck_hit(walk->f, record->number, path, STORE_FSCK_NONE, key, TEXT_NO_INDEX);
}

/* The second: what is wrong with the contents. */
static int judge_entry(const struct tree_walk *walk, const struct tree_entry *e, const char *path)
{
	uint64_t number = walk->record->number;
	struct fsck *f = walk->f;
	const struct fsck_recipe *r;
	char key[KEY_MAX];
	int error = 0;

	if (e->content != TREE_RECIPE)
		return 0;
	r = &f->recipes[hash_index_find(&f->recipes_by_hash, f->recipes, sizeof(*f->recipes),
					&e->u.recipe)];
	if (!fsck_readable(r) && f->content && f->content(f->hook_arg, &r->hash, e->size))
		return 0;
	epoch_key(number, key);
	for (unsigned i = 0; i < r->culprit_count && !error; i++)
		error = fsck_hit(f, number, path, r->culprits[i], NULL, NULL);
	if (!error && r->unnamed_chunk)
		error = hit_unnamed(walk, path);
	if (!error && r->unreadable && !r->culprit_count)
		error = fsck_hit(f, number, path, STORE_FSCK_NONE, key, TEXT_RECIPE_BAD);
	if (!error && fsck_readable(r) && r->size != e->size)
		error = fsck_hit(f, number, path, STORE_FSCK_NONE, key, TEXT_SIZE);
	return error;
}

typedef int (*entry_fn)(const struct tree_walk *walk, const struct tree_entry *e, const char *path);

static int walk_tree(const struct tree_walk *walk, entry_fn fn)
{
	cleanup_tree_reader struct tree_reader *reader = NULL;
	struct tree_entry e;
	int got, error = tree_reader_new(walk->data->data, walk->data->len, 0, &reader);

	if (error)
		return error;
	while ((got = tree_reader_next(reader, &e)) > 0) {
		error = fn(walk, &e, tree_reader_path(reader));
		if (error)
			return error;
	}
	return got;
}

/* ---- the tree ---- */

/* Blames the packs of those chunks that cannot be had; else the one pack that holds them all, else
 * the record. */
static int blame_tree(struct fsck *f, const struct epoch_record *record)
{
	size_t pack = STORE_FSCK_NONE, blamed = 0;
	char key[KEY_MAX];
	int error = 0;

	for (size_t i = 0; i < record->chunk_count && !error; i++) {
		const struct record_chunk *c = &record->chunks[i];

		if (store_fsck_find(f->store, &c->hash, c->length, &pack) ||
		    pack == STORE_FSCK_NONE)
			continue;
		error = fsck_hit(f, record->number, "", pack, NULL, NULL);
		blamed++;
	}
	if (error || blamed)
		return error;
	epoch_key(record->number, key);
	if (record->pack_count != 1)
		pack = STORE_FSCK_NONE;
	return fsck_hit(f, record->number, "", pack, key, TEXT_TREE);
}

static int need_tree(struct fsck *f, const struct epoch_record *record)
{
	bool settled = true;
	size_t pack;

	for (size_t i = 0; i < record->chunk_count; i++) {
		const struct record_chunk *c = &record->chunks[i];

		(void)store_fsck_find(f->store, &c->hash, c->length, &pack);
		settled &= store_fsck_settled(f->store, &c->hash);
	}
	if (!settled)
		buf_put(&f->moving, &record->number, sizeof(record->number));
	return buf_error(&f->moving);
}

int fsck_tree(struct fsck *f, const struct epoch_record *record)
{
	cleanup_buf struct buf data = {0};
	struct tree_walk walk = {f, record, &data};
	struct recipe_round round = {.f = f};
	size_t first = f->recipe_count;
	char key[KEY_MAX];
	int error = store_get_tree(store_fsck_store(f->store), record, &data);

	if (need_tree(f, record))
		return -ENOMEM;
	if (fsck_fatal(error))
		return error;
	if (error && f->tree)
		error = f->tree(f->hook_arg, record, &data);
	if (error)
		return blame_tree(f, record);
	error = walk_tree(&walk, note_entry);
	if (error == -EBADMSG || error == -EPROTONOSUPPORT) {
		epoch_key(record->number, key);
		return fsck_hit(f, record->number, "", STORE_FSCK_NONE, key, TEXT_TREE_BAD);
	}
	if (error)
		return error;
	round.recipes = f->recipes + first;
	error = pool_run(f->pool, f->recipe_count - first, check_recipe, &round);
	return error ? error : walk_tree(&walk, judge_entry);
}
