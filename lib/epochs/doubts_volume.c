/* SPDX-License-Identifier: Apache-2.0 */
/* The doubts of an open volume. */
#include "lib/epochs/doubts_volume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/format/record_doubt.h"
#include "lib/format/tree.h"
#include "lib/meta/doubts.h"
#include "lib/util/array.h"
#include "lib/util/clock.h"
#include "lib/util/log.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"

/* ---- judging ---- */

struct gathering {
	struct volume *vol;
	struct state *snapshot;
	struct doubts *doubts;
	uint64_t number;
	struct doubt_companion *files; /* of the doubt that is looked at */
	uint64_t *again, *together;
	size_t count, cap;
};

static int gather_file(void *arg, uint64_t ino, uint64_t value)
{
	struct gathering *g = arg;

	if (array_reserve((void **)&g->files, &g->cap, g->count, sizeof(*g->files)))
		return -ENOMEM;
	g->files[g->count++] = (struct doubt_companion){.ino = ino, .version = value};
	return 0;
}

static int path_of(struct state *s, uint64_t ino, struct buf *out, unsigned depth);

struct named {
	struct state *state;
	struct buf *out;
	unsigned depth;
	int error;
};

static int put_name(void *arg, const struct state_name *n, const char *name,
		    const struct state_file *f)
{
	struct named *named = arg;

	(void)f;
	named->error = n->parent == ROOT_INO
			       ? 0
			       : path_of(named->state, n->parent, named->out, named->depth + 1);
	buf_printf(named->out, "%s%s", named->out->len ? "/" : "", name);
	return 1;
}

/* -ENOENT where no name leads there any more. */
static int path_of(struct state *s, uint64_t ino, struct buf *out, unsigned depth)
{
	struct named named = {.state = s, .out = out, .depth = depth};
	int found;

	if (ino == ROOT_INO)
		return 0;
	if (depth > TREE_DEPTH_MAX)
		return -ENOENT;
	found = state_names_of(s, ino, put_name, &named);
	if (found == 1)
		return named.error;
	return found ? found : -ENOENT;
}

int doubts_path_of(struct state *s, uint64_t ino, struct buf *out)
{
	int error = path_of(s, ino, out, 0);

	return error ? error : buf_error(out);
}

uint64_t doubts_base_locked(struct volume *vol, const struct state_doubt *d, uint64_t number)
{
	uint64_t limit = d->since < number ? d->since : number, base = 0;
	const struct epoch_index *x;

	x = nodes_is_set(vol) ? nodes_index_locked(vol) : epochs_index_locked(vol);
	for (size_t i = x ? x->count : 0; !base && i-- > 0;)
		if (x->epochs[i].number < limit && epoch_brief_complete(&x->epochs[i]))
			base = x->epochs[i].number;
	return nodes_is_set(vol) && nodes_origin_locked(vol) > base ? nodes_origin_locked(vol)
								    : base;
}

static uint64_t base_of(struct volume *vol, const struct state_doubt *d, uint64_t number)
{
	SCOPED_LOCK(&vol->lock);
	return doubts_base_locked(vol, d, number);
}

/* Where a path leads. */
struct place {
	uint64_t parent; /* 0: the directory is not there */
	char name[NAME_MAX + 1];
	struct state_name entry;
	struct state_file file;
};

/* -ENOENT: then the place is told as far as it is there. */
static int look_up(struct state *s, const char *path, struct place *p)
{
	uint64_t dir = ROOT_INO;

	p->parent = 0;
	for (;;) {
		size_t len = strcspn(path, "/");
		int error;

		if (!len || len > NAME_MAX)
			return -ENOENT;
		memcpy(p->name, path, len);
		p->name[len] = '\0';
		if (!path[len])
			p->parent = dir;
		error = state_name_lookup(s, dir, p->name, &p->entry, &p->file);
		if (error || !path[len])
			return error;
		dir = p->entry.ino;
		path += len + 1;
	}
}

/* What has its name now: only closed content counts. Where its directory was not there yet, or is gone, the path tells. */
static int look_at_name(struct gathering *g, const struct state_doubt *d, struct doubts_kill *k)
{
	struct place p;
	struct state_file covered;
	int error = d->parent && !k->parent_is_gone
			    ? state_name_lookup(g->snapshot, d->parent, d->name, &p.entry, &p.file)
			    : look_up(g->snapshot, d->path, &p);

	if (error)
		return error == -ENOENT ? 0 : error;
	if (!p.file.closed && p.entry.covered) {
		error = state_file_get(g->snapshot, p.entry.covered, &covered);
		if (error)
			return error == -ENOENT ? 0 : error;
		p.file = covered;
	}
	if (!p.file.closed)
		return 0;
	k->ino_now = p.file.ino;
	k->version_now = p.file.closed;
	return 0;
}

/* It has another name now: a rename neither saves nor removes it. */
static int look_for_renamed(struct gathering *g, struct doubts_kill *k)
{
	struct state_file f;
	int error;

	if (k->ino_now || !k->ino_then)
		return 0;
	error = state_file_get(g->snapshot, k->ino_then, &f);
	if (error)
		return error == -ENOENT ? 0 : error;
	if (f.nlink && f.closed && f.closed == k->version_then) {
		k->ino_now = f.ino;
		k->version_now = f.closed;
	}
	return 0;
}

/* What was saved again after the kill, by which epoch had its content before. */
static int sort_files(struct gathering *g, struct doubts_kill *k)
{
	struct state_version v = {0};
	int error = k->version_then ? state_version_get(g->snapshot, k->version_then, &v) : 0;

	if (error && error != -ENOENT)
		return error;
	for (size_t i = 0; i < g->count; i++) {
		const struct doubt_companion *f = &g->files[i];

		if (f->ino == DOUBT_GOES_ON)
			k->until = f->version;
		else if (f->version >= k->since)
			g->again[k->again_count++] = f->ino;
		else if (f->version == DOUBT_IN_PART ||
			 (v.id && f->version == state_version_epoch(&v)))
			g->together[k->together_count++] = f->ino;
	}
	k->again = g->again;
	k->together = g->together;
	return 0;
}

static int gather_files(struct gathering *g, const struct state_doubt *d, struct doubts_kill *k)
{
	int error;

	g->count = 0;
	error = state_doubt_file_each(g->snapshot, d->id, gather_file, g);
	if (error)
		return error;
	if (d->judged) {
		k->companions = g->files;
		k->companion_count = g->count;
		return 0;
	}
	free(g->again);
	free(g->together);
	g->again = calloc(g->count + 1, sizeof(*g->again));
	g->together = calloc(g->count + 1, sizeof(*g->together));
	return g->again && g->together ? sort_files(g, k) : -ENOMEM;
}

/* What was judged has been found to be so. */
static int look_at_parent(struct gathering *g, const struct state_doubt *d, struct doubts_kill *k)
{
	struct state_file dir;
	int error = d->parent ? state_file_get(g->snapshot, d->parent, &dir) : -ENOENT;

	if (error)
		return error == -ENOENT ? 0 : error;
	k->parent_is_new = d->judged || dir.born > k->base;
	return 0;
}

static int gather(void *arg, const struct state_doubt *d)
{
	struct gathering *g = arg;
	cleanup_buf struct buf path = {0};
	struct doubts_kill k = {
		.id = d->id,
		.kind = (enum doubt_kind)d->kind,
		.noted = d->path,
		.why = d->why,
		.since = d->since,
		.at_ns = d->at_ns,
		.ino_then = d->ino,
		.version_then = d->version,
		.judged = d->judged,
		.alone = d->judged ? d->alone : nodes_is_part(g->number),
	};
	int error = d->parent ? path_of(g->snapshot, d->parent, &path, 0) : 0;

	if (error && error != -ENOENT)
		return error;
	k.parent_is_gone = error == -ENOENT;
	if (d->parent && !error) {
		buf_printf(&path, "%s%s", path.len ? "/" : "", d->name);
		k.path = buf_str(&path);
	} else {
		k.path = d->path;
		if (!k.parent_is_gone)
			k.ino_then = 0;
	}
	error = look_at_name(g, d, &k);
	if (!error)
		error = look_for_renamed(g, &k);
	if (!error)
		k.base = base_of(g->vol, d, g->number);
	if (!error && !k.parent_is_gone)
		error = look_at_parent(g, d, &k);
	if (!error)
		error = gather_files(g, d, &k);
	if (!error)
		error = buf_error(&path);
	return error ? error : doubts_add_kill(g->doubts, &k);
}

int doubts_record_of(struct volume *vol, uint64_t number, struct epoch_record *ret_record)
{
	struct state_epoch row = {0};
	int error;

	mutex_lock(&vol->lock);
	error = state_epoch_get(vol->state, number, &row);
	mutex_unlock(&vol->lock);
	if (!error && row.record)
		error = record_decode(row.record, strlen(row.record), ret_record);
	state_epoch_free(&row);
	return error == -ENOENT ? 0 : error;
}

int doubts_tell_before(struct volume *vol, uint64_t number, struct doubts *d)
{
	cleanup_record struct epoch_record record = {0};
	/* It may have been frozen after the snapshot. */
	int error = doubts_record_of(vol, number, &record);

	if (error && error != -ENOMEM) {
		log_warn("epoch %" PRIu64 ": its record cannot be read: %s", number,
			 strerror(-error));
		return 0;
	}
	return error ? error : doubts_tell_record(d, &record);
}

int doubts_of_snapshot(struct volume *vol, struct state *snapshot, uint64_t number, uint64_t parent,
		       uint64_t restores, struct doubts **ret_doubts)
{
	cleanup_doubts struct doubts *d = NULL;
	struct gathering g = {.vol = vol, .snapshot = snapshot, .number = number};
	int error = doubts_new(vol->rules, restores ? UINT64_MAX : parent, &d);

	if (error)
		return error;
	g.doubts = d;
	error = doubts_tell_before(vol, restores ? restores : parent, d);
	if (!error)
		error = state_doubt_each(snapshot, gather, &g);
	free(g.files);
	free(g.again);
	free(g.together);
	if (!error)
		*ret_doubts = steal_ptr(d);
	return error;
}

struct covering {
	const struct torn_temporary *torn;
	struct state_doubt *row;
};

/* Its writer was killed, too, or it is noted already. */
static int covers(void *arg, const struct state_doubt *d)
{
	const struct covering *c = arg;

	return d->id == c->torn->version ||
	       (d->parent == c->row->parent && !strcmp(d->name, c->row->name) && !d->judged);
}

/* Where that was since the snapshot, it is judged by the row at hand all the same. */
static int note_torn(struct volume *vol, const struct covering *c)
{
	int result;
	SCOPED_LOCK(&vol->lock);

	result = state_doubt_each(vol->state, covers, (void *)(uintptr_t)c);
	if (result)
		return result < 0 ? result : 0;
	vol->doubts = DOUBTS_SOME;
	if (c->row->since == vol->next_epoch)
		c->row->since = doubts_since_locked(vol, c->row);
	result = state_begin(vol->state);
	if (!result)
		result = state_end(vol->state, state_doubt_add_given(vol->state, c->row));
	if (!result)
		doubts_torn_locked(vol, c->row);
	return result;
}

static int add_torn_temporary(struct volume *vol, struct state *snapshot, uint64_t number,
			      uint64_t continues, const struct torn_temporary *t, struct doubts *d)
{
	struct gathering g = {.vol = vol, .snapshot = snapshot, .number = number, .doubts = d};
	struct state_doubt row = {
		.id = t->version,
		.kind = DOUBT_UNDONE,
		.path = t->path,
		.ino = t->ino,
		.version = t->version,
		.since = continues ? continues : number,
		.at_ns = clock_wall_ns(),
		.why = (char *)(uintptr_t)t->why,
	};
	struct covering c = {t, &row};
	struct place p;
	int error = look_up(snapshot, t->path, &p);

	if (error)
		return error;
	row.parent = p.parent;
	snprintf(row.name, sizeof(row.name), "%s", p.name);
	error = state_doubt_each(snapshot, covers, &c);
	if (error)
		return error < 0 ? error : 0;
	error = note_torn(vol, &c);
	if (!error)
		error = gather(&g, &row);
	free(g.files);
	free(g.again);
	free(g.together);
	return error;
}

int torn_temporaries_add(struct torn_temporaries *list, const struct rules *rules,
			 const struct doubts_file *f)
{
	struct torn_temporary *t;

	if (!f->torn || !doubt_name_is_temporary(rules, f->path))
		return 0;
	if (array_reserve((void **)&list->v, &list->cap, list->count, sizeof(*list->v)))
		return -ENOMEM;
	t = &list->v[list->count];
	*t = (struct torn_temporary){strdup(f->path), f->ino, f->version, f->torn};
	list->count += t->path != NULL;
	return t->path ? 0 : -ENOMEM;
}

void torn_temporaries_free(struct torn_temporaries *list)
{
	while (list->count)
		free(list->v[--list->count].path);
	free(list->v);
	*list = (struct torn_temporaries){0};
}

int doubts_add_torn_temporaries(struct volume *vol, struct state *snapshot, uint64_t number,
				uint64_t continues, const struct torn_temporaries *list,
				struct doubts *d)
{
	int error = 0;

	for (size_t i = 0; !error && i < list->count; i++)
		error = add_torn_temporary(vol, snapshot, number, continues, &list->v[i], d);
	return error;
}

/* ---- what is gone since the epoch before a kill ---- */

/* Whether the snapshot has closed content, or something else than a file, at this path. */
static int is_there(struct state *s, const char *path, bool *ret_there)
{
	struct place p;
	int error = look_up(s, path, &p);

	*ret_there = !error && (!S_ISREG(p.file.mode) || p.file.closed || p.entry.covered);
	return error == -ENOENT ? 0 : error;
}

static int look_for_gone(struct volume *vol, struct state *snapshot, const struct tree *tree,
			 uint64_t base, struct doubts *d)
{
	int error = 0;

	for (uint32_t id = 0; !error && id < tree_count(tree); id++) {
		cleanup_buf struct buf path = {0};
		struct tree_entry e;
		bool there;

		tree_get(tree, id, &e);
		if (e.type != TREE_REGULAR || e.flags & TREE_LOG ||
		    rules_log(vol->rules, e.name, NULL))
			continue;
		error = tree_path(tree, id, &path);
		if (!error)
			error = is_there(snapshot, buf_str(&path), &there);
		if (!error && !there)
			doubts_add_gone(d, base, buf_str(&path));
	}
	return error;
}

int doubts_find_gone(struct volume *vol, struct state *snapshot, struct doubts *d)
{
	uint64_t base = 0;

	while ((base = doubts_next_base(d, base))) {
		cleanup_tree struct tree *tree = NULL;
		int error = epochs_tree(vol, base, &tree);

		if (error == -ENOMEM)
			return error;
		if (error) {
			log_warn("epoch %" PRIu64 ": what is gone since cannot be told yet: %s",
				 base, strerror(-error));
			/* Asked again at the next seal; nobody is to rely on this one. */
			doubts_gone_unknown(d, base);
			continue;
		}
		error = look_for_gone(vol, snapshot, tree, base, d);
		if (error)
			return error;
	}
	return 0;
}

static int keep_companions_locked(struct volume *vol, const struct doubt *d)
{
	int error = state_doubt_judge(vol->state, d->id, d->noted ? d->noted : d->path, d->alone);

	for (size_t i = 0; !error && i < d->companion_count; i++)
		error = state_doubt_file_add(vol->state, d->id, d->companions[i].ino,
					     d->companions[i].version);
	/* Somebody was killed there once more, or a rollback settled it. */
	return error == -ENOENT ? 0 : error;
}

int doubts_judged_locked(struct volume *vol, const struct doubts *d)
{
	size_t count;
	const struct doubt *list = doubts_list(d, &count);
	int error = 0;

	for (size_t i = 0; !error && i < count; i++) {
		if (list[i].kind == DOUBT_TORN || list[i].postponed)
			continue;
		/* What its writer left as it was is in doubt for this epoch only. */
		if (!list[i].stands || list[i].kind == DOUBT_LEFT)
			error = state_doubt_remove(vol->state, list[i].id);
		else
			error = keep_companions_locked(vol, &list[i]);
	}
	vol->doubts = DOUBTS_UNKNOWN;
	return error;
}

struct clearing {
	struct volume *vol;
	uint64_t number;
};

static int clear_one(void *arg, const struct state_doubt *d)
{
	const struct clearing *c = arg;

	return d->since <= c->number ? state_doubt_remove(c->vol->state, d->id) : 0;
}

int doubts_clear_locked(struct volume *vol, uint64_t number)
{
	struct clearing c = {vol, number};

	vol->doubts = DOUBTS_UNKNOWN;
	return state_doubt_each(vol->state, clear_one, &c);
}

/* ---- taking over those of an epoch ---- */

static int take_companions_locked(struct volume *vol, const struct record_doubt *from, uint64_t id)
{
	int error = 0;

	for (size_t i = 0; !error && i < from->companion_count; i++) {
		struct place p;

		error = look_up(vol->state, from->companions[i], &p);
		if (!error && p.file.closed)
			error = state_doubt_file_add(vol->state, id, p.file.ino, p.file.closed);
		else if (error == -ENOENT)
			error = 0;
	}
	return error;
}

/* What has the path now. A row has a name, also where the path alone counts. */
static int set_place_locked(struct volume *vol, struct state_doubt *d)
{
	struct place p;
	int error = look_up(vol->state, d->path, &p);

	if (error && error != -ENOENT)
		return error;
	if (!error && p.file.closed) {
		d->ino = p.file.ino;
		d->version = p.file.closed;
	}
	d->parent = p.parent;
	snprintf(d->name, sizeof(d->name), "%s", p.parent ? p.name : "-");
	return 0;
}

static int take_over_one_locked(struct volume *vol, const struct record_doubt *from)
{
	struct state_doubt d = {
		.kind = DOUBT_UNDONE,
		.path = from->path,
		.since = from->since,
		.at_ns = from->at_ns,
		.judged = true,
		.alone = from->alone,
		.why = from->why ? from->why : (char *)(uintptr_t) "its writer was killed",
	};
	uint64_t id;
	int error = set_place_locked(vol, &d);

	if (!error)
		error = state_doubt_add(vol->state, &d, &id);
	return error ? error : take_companions_locked(vol, from, id);
}

int doubts_add_locked(struct volume *vol, const struct record_doubt *list, size_t count)
{
	int error = 0;

	for (size_t i = 0; !error && i < count; i++)
		if (doubt_kind_parse(list[i].kind) == DOUBT_UNDONE)
			error = take_over_one_locked(vol, &list[i]);
	vol->doubts = DOUBTS_UNKNOWN;
	return error;
}

int doubts_again_locked(struct volume *vol, const char *path, const char *why)
{
	struct state_doubt d = {
		.kind = DOUBT_UNDONE,
		.path = (char *)(uintptr_t)path,
		.since = vol->next_epoch,
		.at_ns = clock_wall_ns(),
		.why = (char *)(uintptr_t)why,
	};
	uint64_t id;
	int error = set_place_locked(vol, &d);

	if (!error)
		error = state_begin(vol->state);
	if (!error)
		error = state_end(vol->state, state_doubt_add(vol->state, &d, &id));
	vol->doubts = DOUBTS_SOME;
	return error;
}

int doubts_take_over_locked(struct volume *vol, const struct epoch_record *record)
{
	int error = state_doubts_clear(vol->state);

	return error ? error : doubts_add_locked(vol, record->doubts, record->doubt_count);
}

int doubts_of_epoch_locked(struct volume *vol, uint64_t number)
{
	cleanup_record struct epoch_record record = {0};
	struct state_epoch row;
	int error = state_epoch_get(vol->state, number, &row);

	if (error)
		return error == -ENOENT ? state_doubts_clear(vol->state) : error;
	error = row.record ? record_decode(row.record, strlen(row.record), &record) : 0;
	state_epoch_free(&row);
	return error ? error : doubts_take_over_locked(vol, &record);
}

bool doubts_none_torn(const struct epoch_record *record)
{
	for (size_t i = 0; i < record->doubt_count; i++)
		if (doubt_kind_parse(record->doubts[i].kind) == DOUBT_TORN)
			return false;
	return true;
}

int doubts_none_torn_locked(struct volume *vol, uint64_t number, bool *ret_none)
{
	cleanup_record struct epoch_record record = {0};
	struct state_epoch row = {0};
	int error = state_epoch_get(vol->state, number, &row);
	bool known = !error && row.record;

	if (known)
		error = record_decode(row.record, strlen(row.record), &record);
	state_epoch_free(&row);
	if (error && error != -ENOENT)
		return error;
	*ret_none = known && doubts_none_torn(&record);
	return 0;
}
