/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a remote: an epoch's tree, and the contents that it names. */
#include "lib/admin/catalog_fsck.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/recipe.h"
#include "lib/format/tree.h"
#include "lib/store/store.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"

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
