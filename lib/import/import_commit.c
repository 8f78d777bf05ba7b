/* SPDX-License-Identifier: Apache-2.0 */
/* Importing: from the contents to the epoch. */
#include "lib/import/import_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/epochs/announce.h"
#include "lib/epochs/holder.h"
#include "lib/epochs/record_fill.h"
#include "lib/epochs/seal.h"
#include "lib/format/names.h"
#include "lib/format/tree_diff.h"
#include "lib/meta/records.h"
#include "lib/upload/upload_epoch.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/log.h"

/* ---- was the epoch before sealed too early? ---- */

/* Directories that an epoch made, by their paths. */
struct made {
	char **paths;
	size_t count, cap;
};

static void made_free(struct made *m)
{
	for (size_t i = 0; i < m->count; i++)
		free(m->paths[i]);
	free(m->paths);
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int note_made(const struct tree_change *c, void *arg)
{
	struct made *m = arg;

	if (c->kind != TREE_ADDED || c->new_entry->type != TREE_DIR)
		return 0;
	if (array_reserve((void **)&m->paths, &m->cap, m->count, sizeof(*m->paths)))
		return -ENOMEM;
	m->paths[m->count] = strdup(c->path);
	return m->paths[m->count++] ? 0 : -ENOMEM;
}

/* 1: a name was added below one of them. */
static int is_below(const struct tree_change *c, void *arg)
{
	const struct made *m = arg;
	cleanup_free char *path = NULL;
	char *slash;

	if (c->kind != TREE_ADDED || !m->count)
		return 0;
	path = strdup(c->path);
	if (!path)
		return -ENOMEM;
	while ((slash = strrchr(path, '/'))) {
		*slash = '\0';
		if (bsearch(&path, m->paths, m->count, sizeof(*m->paths), compare_paths))
			return 1;
	}
	return 0;
}

int import_load(struct import_job *j, uint64_t number, struct epoch_record *ret_record,
		struct tree **ret_tree)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_buf struct buf data = {0};
	int error = records_get(j->imp->vol->remote, number, &record, NULL);
	size_t len;
	void *bytes;

	if (!error && ret_tree)
		error = store_get_tree(j->imp->vol->store, &record, &data);
	if (!error && ret_tree) {
		bytes = buf_steal(&data, &len);
		error = tree_decode(bytes, len, 0, ret_tree);
		if (error)
			free(bytes);
	}
	if (!error && ret_record) {
		*ret_record = record;
		record = (struct epoch_record){0};
	}
	return error;
}

/* Whether a name came below a directory that was made since the epoch `before` (0: none). 1, 0 or -errno. */
static int adds_below(struct import_job *j, uint64_t before, struct tree *tree)
{
	CLEANUP(made_free) struct made made = {0};
	cleanup_tree struct tree *old = NULL;
	int error;

	/* Of the volume's first epoch, all directories are its own. */
	error = before ? import_load(j, before, NULL, &old) : tree_empty_like(tree, &old);
	if (!error)
		error = tree_diff(old, j->parent_tree, note_made, &made);
	if (error)
		return error;
	if (made.count)
		qsort(made.paths, made.count, sizeof(*made.paths), compare_paths);
	return tree_diff(j->parent_tree, tree, is_below, &made);
}

/* The epoch before the first of those that continue one another up to the parent. */
static int before_chain(struct import_job *j, uint64_t *ret_before)
{
	uint64_t continues = j->parent.continues, before = j->parent.parent;

	while (continues) {
		cleanup_record struct epoch_record r = {0};
		int error = import_load(j, continues, &r, NULL);

		if (error)
			return error;
		before = r.parent;
		/* A damaged record may name itself. */
		continues = r.continues < r.number ? r.continues : 0;
	}
	*ret_before = before;
	return 0;
}

/* The epoch that this one continues: record->continues (contract 1.3). */
static int import_continues(struct import_job *j, struct tree *tree)
{
	const struct epoch_record *parent = &j->parent;
	struct epoch_record *r = &j->record;
	bool both = parent->has_step && r->has_step, chain = false;
	uint64_t before;
	int found;

	if (!parent->number || !j->parent_tree || !record_trigger_automatic(parent->trigger))
		return 0;
	found = adds_below(j, parent->parent, tree);
	if (!found && parent->continues) {
		chain = true;
		found = before_chain(j, &before);
		if (!found)
			found = adds_below(j, before, tree);
	}
	/* What was dropped since tells nothing. */
	if (found == 1 && record_continues(both, parent->step == r->step, chain))
		r->continues = parent->number;
	return found == -ENOMEM || found == -ECANCELED ? found : 0;
}

/* After so much the tree gets a pack of its own. */
#define TREE_APART (UINT64_C(64) << 20)

/* ---- the epoch before ---- */

static int collect_number(void *arg, const char *key, uint64_t size)
{
	struct buf *numbers = arg;
	uint64_t number;

	(void)size;
	if (epoch_key_parse(key, &number) == 0)
		buf_put(numbers, &number, sizeof(number));
	return buf_error(numbers);
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return x < y ? -1 : x > y;
}

/* A tree that cannot be had is no reason not to import: then everything counts as added. */
static void load_tree(struct import_job *j, const struct epoch_record *record,
		      struct tree **ret_tree)
{
	cleanup_buf struct buf data = {0};
	size_t len;
	void *bytes;
	int error = store_get_tree(j->imp->vol->store, record, &data);

	if (!error) {
		bytes = buf_steal(&data, &len);
		error = tree_decode(bytes, len, 0, ret_tree);
		if (error)
			free(bytes);
	}
	if (error)
		log_warn("the tree of epoch %" PRIu64 " cannot be read: %s", record->number,
			 strerror(-error));
}

int import_find_parent(struct import_job *j)
{
	struct remote *remote = j->imp->vol->remote;
	cleanup_buf struct buf numbers = {0};
	int error = remote_list(remote, PREFIX_EPOCHS, collect_number, &numbers);
	size_t left = numbers.len / sizeof(uint64_t);
	uint64_t number = 0;

	if (error)
		return error;
	if (left)
		qsort(numbers.data, left, sizeof(number), compare_numbers);
	j->record.number = 1;
	for (bool first = true; left; first = false) {
		memcpy(&number, numbers.data + --left * sizeof(number), sizeof(number));
		if (first)
			j->record.number = number + 1;
		error = records_get(remote, number, &j->parent, NULL);
		/* -ENOENT: it was dropped; -EBADMSG: it is nobody's parent. */
		if (!error || (error != -ENOENT && error != -EBADMSG))
			break;
	}
	if (error && error != -ENOENT && error != -EBADMSG)
		return error;
	if (j->parent.number)
		load_tree(j, &j->parent, &j->parent_tree);
	return 0;
}

/* ---- the tree ---- */

static enum tree_type type_of(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return TREE_DIR;
	case S_IFREG:
		return TREE_REGULAR;
	case S_IFLNK:
		return TREE_SYMLINK;
	case S_IFIFO:
		return TREE_FIFO;
	case S_IFSOCK:
		return TREE_SOCKET;
	case S_IFCHR:
		return TREE_CHAR;
	default:
		return TREE_BLOCK;
	}
}

static void set_content(const struct scan_node *n, struct tree_entry *e)
{
	e->size = n->size;
	e->flags = (uint8_t)((n->log ? TREE_LOG : 0) | (n->torn ? TREE_TORN : 0));
	switch (n->content) {
	case SCAN_INLINE:
		e->content = TREE_INLINE;
		e->u.inline_data = n->data;
		break;
	case SCAN_RECIPE:
		e->content = TREE_RECIPE;
		e->u.recipe = n->recipe;
		e->holes = n->holes;
		break;
	default:
		e->content = TREE_EMPTY;
		e->size = 0;
	}
}

/* What lies under this name in the epoch before. */
static bool in_parent(const struct import_job *j, size_t number, struct tree_entry *ret_entry)
{
	cleanup_buf struct buf path = {0};
	uint32_t id;

	if (!j->parent_tree || scan_path(&j->scan, number, &path) ||
	    tree_resolve(j->parent_tree, buf_str(&path), &id))
		return false;
	tree_get(j->parent_tree, id, ret_entry);
	return true;
}

void import_entry(const struct import_job *j, size_t number, struct tree_entry *ret_entry)
{
	const struct scan_node *n = &j->scan.nodes[number];
	struct tree_entry e = {0};

	if (n->former != TREE_NONE) {
		tree_get(j->parent_tree, n->former, &e);
		/* Of a directory that is read, its numbers are of another listing. */
		e.group = j->how->remove ? n->group : 0;
		*ret_entry = e;
		return;
	}
	e.type = type_of(n->mode);
	e.mode = n->mode & 07777;
	e.uid = n->uid;
	e.gid = n->gid;
	e.mtime_ns = n->mtime_ns;
	e.group = n->group;
	e.xattrs = n->xattrs_len ? j->scan.extra.data + n->xattrs : NULL;
	e.xattrs_len = n->xattrs_len;
	if (e.type == TREE_CHAR || e.type == TREE_BLOCK) {
		e.rdev_major = n->rdev_major;
		e.rdev_minor = n->rdev_minor;
	} else if (e.type == TREE_SYMLINK) {
		e.size = n->size;
		e.u.target = (const char *)j->scan.extra.data + n->target;
	} else if (e.type == TREE_REGULAR) {
		set_content(n, &e);
	}
	*ret_entry = e;
}

static int add_entry(struct import_job *j, size_t number, struct tree_writer *w)
{
	const struct scan_node *n = &j->scan.nodes[number];
	struct tree_entry e;
	int error;

	import_entry(j, number, &e);
	error = import_doubts_file(j, number, &e);
	e.depth = n->depth;
	e.name = scan_name(&j->scan, n);
	e.name_len = strlen(e.name);
	return error ? error : tree_writer_add(w, &e);
}

/* What came after the moment that is asked for, and what lies in what is left out, is left out. */
static void leave_later(struct import_job *j)
{
	struct scan *s = &j->scan;
	struct tree_entry before;

	for (size_t i = 1; i < s->count; i++)
		if (s->nodes[s->nodes[i].parent].left)
			s->nodes[i].left = true;
	if (!j->how->as_of_ns)
		return;
	/* A directory with something in it is none that came later and is empty for us. */
	for (size_t i = s->count; i-- > 1;) {
		struct scan_node *n = &s->nodes[i];
		if (n->left)
			continue;
		if (!S_ISREG(n->mode) && !n->holds && n->ctime_ns > j->how->as_of_ns &&
		    !in_parent(j, i, &before))
			n->left = true;
		else if (n->parent)
			s->nodes[n->parent].holds = true;
	}
}

static int make_tree(struct import_job *j, struct buf *out)
{
	cleanup_tree_writer struct tree_writer *w = NULL;
	int error = tree_writer_new(out, 0, &w);

	leave_later(j);
	if (!error)
		error = import_doubts_begin(j);
	for (size_t i = 0; !error && i < j->scan.count; i++)
		if (!j->scan.nodes[i].left)
			error = add_entry(j, i, w);
	if (!error)
		error = import_doubts_gone(j);
	if (!error)
		error = doubts_decide(j->doubts);
	return error ? error : tree_writer_finish(w);
}

/* ---- the epoch ---- */

static int announce(struct import_job *j, const char *json)
{
	struct state_epoch row = {.number = j->record.number,
				  .state = EPOCH_DURABLE,
				  .record = (char *)(uintptr_t)json};
	struct volume *vol = j->imp->vol;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_begin(vol->state);
	if (error)
		return error;
	error = announce_locked(vol, ANNOUNCE_SEALED, &row);
	if (!error)
		error = announce_locked(vol, ANNOUNCE_DURABLE, &row);
	return state_end(vol->state, error);
}

static int describe(struct import_job *j, struct tree *tree)
{
	struct epoch_record *r = &j->record;
	struct record_source from = {
		.vol = j->imp->vol,
		.rules = j->imp->rules,
		.before = j->parent_tree,
		.tree = tree,
		.message = j->how->message,
		.has_step = j->how->has_step,
		.step = j->how->step,
	};
	uint64_t inline_new;
	int error = record_fill(&from, r, &inline_new);

	if (error)
		return error;
	r->bytes_new += inline_new;
	r->parent = j->parent.number;
	r->trigger = j->how->trigger;
	r->sealed_ns = j->how->as_of_ns ? j->how->as_of_ns : j->began_ns;
	r->opened_ns = j->how->opened_ns ? j->how->opened_ns : r->sealed_ns;
	r->save_ns = j->how->save_ns;
	r->complete = RECORD_COMPLETE;
	reason_end(&j->reason, j->named);
	error = import_doubts_end(j);
	if (!error && j->reason.len) {
		r->complete = RECORD_INCOMPLETE;
		error = record_set_text(&r->reason, buf_str(&j->reason));
	}
	return error ? error : import_continues(j, tree);
}

static int put_record(struct import_job *j, const struct buf *tree)
{
	struct volume *vol = j->imp->vol;
	struct upload_gc gc = {
		.vol = vol,
		.remote = vol->remote,
		.store = vol->store,
		.record = &j->record,
		.tree = tree,
		.local = import_open_content,
		.arg = j,
	};
	cleanup_buf struct buf json = {0};
	int error = upload_gc_keep(&gc, false);

	if (!error)
		error = holder_confirm(vol, vol->remote, 0);
	if (!error)
		error = upload_record_put(vol->remote, &j->record, &json);
	FAULT_POINT("import.record");
	if (!error)
		error = upload_gc_keep(&gc, true);
	if (error)
		return error;
	error = announce(j, buf_str(&json));
	if (error)
		log_warn("epoch %" PRIu64 " could not be announced: %s", j->record.number,
			 strerror(-error));
	error = records_summarize(vol->remote, j->record.number);
	if (error)
		log_warn("the summary of epochs up to %" PRIu64 " was not written: %s",
			 j->record.number, strerror(-error));
	return 0;
}

static bool equals_parent(const struct import_job *j, const struct buf *tree)
{
	struct hash hash;

	remote_address(j->imp->vol->remote, tree->data, tree->len, &hash);
	return j->parent.number && j->parent.tree_size == tree->len &&
	       hash_equal(&hash, &j->parent.tree_hash);
}

int import_commit(struct import_job *j, bool *ret_unchanged)
{
	cleanup_buf struct buf data = {0};
	cleanup_tree struct tree *tree = NULL;
	size_t len;
	void *bytes;
	int error = make_tree(j, &data);

	if (error)
		return error;
	if (equals_parent(j, &data)) {
		*ret_unchanged = true;
		return 0;
	}
	/* So that a try that ends here need not put the contents of the last pack once more. */
	if (j->in_part >= TREE_APART)
		error = import_part_end(j);
	if (!error)
		error = import_part_begin(j);
	if (!error)
		error = store_put_tree(j->batch, data.data, data.len, &j->record);
	if (!error)
		error = import_part_end(j);
	if (error)
		return error;
	FAULT_POINT("import.index");
	bytes = buf_steal(&data, &len);
	error = tree_decode(bytes, len, 0, &tree);
	if (error) {
		free(bytes);
		return error;
	}
	error = describe(j, tree);
	if (!error) /* the tree keeps these bytes */
		error = put_record(j, &(const struct buf){.data = bytes, .len = len});
	*ret_unchanged = false;
	return error;
}

/* ---- Importing without a directory: the newest epoch again, without one path. ---- */

static int find(struct import_job *j, uint32_t *ret_id)
{
	const char *path = j->how->remove;

	if (!j->parent.number)
		return opening_fail(j->message, -ENOENT,
				    "%s: there is no epoch to remove '%s' from",
				    remote_name(j->imp->vol->remote), path);
	if (!j->parent_tree)
		return opening_fail(j->message, -EIO,
				    "the tree of epoch %" PRIu64
				    " cannot be read; nothing was removed",
				    j->parent.number);
	if (tree_resolve(j->parent_tree, path, ret_id))
		return opening_fail(j->message, -ENOENT, "epoch %" PRIu64 " has no path '%s'",
				    j->parent.number, path);
	if (*ret_id == 0)
		return opening_fail(j->message, -EINVAL, "'%s' names all of the epoch", path);
	return 0;
}

/* What lies below goes with it. */
static void leave_below(struct scan *s, uint32_t removed)
{
	s->nodes[removed].left = true;
	for (size_t i = removed + 1; i < s->count; i++)
		if (s->nodes[s->nodes[i].parent].left)
			s->nodes[i].left = true;
}

/* A file that has one name left is in no group of names: a listing has one encoding. */
static int set_groups(struct scan *s, const struct tree *tree)
{
	cleanup_free uint32_t *names = calloc(s->count, sizeof(*names)); /* by the first name */

	if (!names)
		return -ENOMEM;
	for (uint32_t id = 0; id < s->count; id++)
		if (!s->nodes[id].left)
			names[tree_identity(tree, id)]++;
	for (uint32_t id = 0; id < s->count; id++)
		if (names[tree_identity(tree, id)] > 1)
			s->nodes[id].group = tree_identity(tree, id) + 1;
	return 0;
}

int import_take_parent(struct import_job *j)
{
	uint32_t removed;
	int error = find(j, &removed);

	if (!error)
		error = scan_of_tree(j->parent_tree, &j->scan);
	if (error)
		return error;
	leave_below(&j->scan, removed);
	return set_groups(&j->scan, j->parent_tree);
}
