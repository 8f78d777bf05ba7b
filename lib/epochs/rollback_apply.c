/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making the live tree equal a tree, in three passes: match what is at the same path, remove what
 * is not in the tree, make what is missing or differs. Content is let go before any is taken, so
 * that a version may move from one file to another.
 */
#include "lib/epochs/rollback_passes.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/driver.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"
#include "lib/live/body.h"
#include "lib/meta/doubts.h"
#include "lib/util/clock.h"

/* A file with several names, and what of the tree it is. */
struct claim {
	uint64_t ino;
	uint32_t identity;
};

/* Followed by its name with NUL, padded to 8. */
struct removal {
	uint64_t parent, ino;
	uint32_t mode, name_room;
};

void notice_name(struct apply *a, uint64_t parent, const char *name)
{
	buf_put_u64(&a->notice->names, parent);
	buf_put(&a->notice->names, name, strlen(name) + 1);
}

void notice_file(struct apply *a, uint64_t ino)
{
	buf_put_u64(&a->notice->files, ino);
}

uint32_t mode_of_entry(const struct tree_entry *e)
{
	static const uint32_t type[] = {
		[TREE_DIR] = S_IFDIR,	[TREE_REGULAR] = S_IFREG, [TREE_SYMLINK] = S_IFLNK,
		[TREE_FIFO] = S_IFIFO,	[TREE_SOCKET] = S_IFSOCK, [TREE_CHAR] = S_IFCHR,
		[TREE_BLOCK] = S_IFBLK,
	};

	return type[e->type] | e->mode;
}

uint32_t rdev_of_entry(const struct tree_entry *e)
{
	return e->type == TREE_CHAR || e->type == TREE_BLOCK
		       ? (uint32_t)makedev(e->rdev_major, e->rdev_minor)
		       : 0;
}

/* ---- pass 1: what is at the same path ---- */

static int collect_name(void *arg, const struct state_name *n, const char *name,
			const struct state_file *f)
{
	struct buf *list = arg;
	struct live_name one = {.covered = n->covered};

	if (!f)
		return 0;
	one.file = *f;
	snprintf(one.name, sizeof(one.name), "%s", name);
	buf_put(list, &one, sizeof(one));
	return buf_error(list);
}

int list_live_names(struct apply *a, uint64_t dir, struct buf *out)
{
	return state_dir_list(a->vol->state, dir, 0, collect_name, out);
}

int note_removal(struct apply *a, uint64_t parent, const struct live_name *n)
{
	static const char padding[8];
	size_t len = strlen(n->name) + 1, room = (len + 7) & ~(size_t)7;
	struct removal r = {parent, n->file.ino, n->file.mode, (uint32_t)room};

	buf_put(&a->removed, &r, sizeof(r));
	buf_put(&a->removed, n->name, len);
	buf_put(&a->removed, padding, room - len);
	return buf_error(&a->removed);
}

static bool same_target(struct apply *a, const struct state_file *f, const struct tree_entry *e)
{
	cleanup_buf struct buf target = {0};

	return state_symlink_get(a->vol->state, f->ino, &target) == 0 &&
	       strcmp(buf_str(&target), e->u.target) == 0;
}

/* Can this live file become that entry without being rebuilt? */
static bool is_same_kind(struct apply *a, const struct state_file *f, const struct tree_entry *e)
{
	if ((f->mode & S_IFMT) != (mode_of_entry(e) & S_IFMT))
		return false;
	if (e->type == TREE_SYMLINK)
		return same_target(a, f, e);
	return e->type == TREE_REGULAR || f->rdev == rdev_of_entry(e);
}

/* One file cannot be two of the tree's, nor one of the tree's two files. */
static bool claim(struct apply *a, const struct state_file *f, uint32_t identity)
{
	const struct claim *claims = (const struct claim *)a->claims.data;
	struct claim mine = {f->ino, identity};

	if (a->ino[identity])
		return a->ino[identity] == f->ino;
	if (!S_ISDIR(f->mode) && f->nlink > 1) {
		for (size_t i = 0; i < a->claims.len / sizeof(*claims); i++)
			if (claims[i].ino == f->ino)
				return false;
		buf_put(&a->claims, &mine, sizeof(mine));
	}
	a->ino[identity] = f->ino;
	return true;
}

int uncover(struct apply *a, uint64_t dir, struct live_name *n)
{
	struct state_file over = n->file;
	int error;

	if (!n->covered)
		return 0;
	error = state_file_get(a->vol->state, n->covered, &n->file);
	if (error)
		return error == -ENOENT ? 0 : error;
	error = state_name_set(a->vol->state, dir, n->name, n->covered, 0);
	notice_name(a, dir, n->name);
	over.nlink = over.nlink ? over.nlink - 1 : 0;
	if (error)
		return error;
	return over.nlink ? state_file_set(a->vol->state, &over)
			  : body_file_unlinked_locked(a->vol, &over);
}

static int same_inline(struct apply *a, const struct state_version *v, const struct tree_entry *e)
{
	cleanup_buf struct buf data = {0};
	int error = v->state == VERSION_DURABLE && !v->has_recipe
			    ? state_inline_get(a->vol->state, v->id, &data)
			    : -ENOENT;

	if (error)
		return error == -ENOENT ? 0 : error;
	return data.len == e->size && memcmp(data.data, e->u.inline_data, data.len) == 0;
}

/* 1: the file's closed content is the entry's. */
static int same_content(struct apply *a, const struct state_file *f, const struct tree_entry *e)
{
	struct state_version v;
	int error = f->closed ? state_version_get(a->vol->state, f->closed, &v) : -ENOENT;

	if (error)
		return error == -ENOENT ? 0 : error;
	if (v.size != e->size)
		return 0;
	switch (e->content) {
	case TREE_EMPTY:
		return 1;
	case TREE_INLINE:
		return same_inline(a, &v, e);
	case TREE_RECIPE:
		return v.has_recipe && hash_equal(&v.recipe, &e->u.recipe);
	case TREE_LOCAL:
		return v.id == e->u.version;
	}
	return 0;
}

/*
 * 1: nothing keeps it from being the same file as before. Of one with several names, which the tree has as several files, it is the one that has its
 * content; with new_files that holds for each.
 */
static int stays_same(struct apply *a, const struct state_file *f, uint32_t id)
{
	struct tree_entry e;

	if (!S_ISREG(f->mode) || (!a->new_files && (f->nlink < 2 || tree_nlink(a->tree, id) > 1)))
		return 1;
	tree_get(a->tree, id, &e);
	return same_content(a, f, &e);
}

static int match_dir(struct apply *a, uint64_t dir, uint32_t entry);

/* The tree has no such name. */
static int leave_out(struct apply *a, uint64_t dir, uint32_t entry, struct live_name *n)
{
	if (is_kept_log(a, dir, n))
		return 0;
	if (a->keep_logs && S_ISDIR(n->file.mode))
		return keep_logs_in(a, dir, entry, n);
	return note_removal(a, dir, n);
}

static int match_name(struct apply *a, uint64_t dir, uint32_t entry, struct live_name *n)
{
	uint32_t child = tree_lookup(a->tree, entry, n->name, strlen(n->name));
	struct tree_entry e;
	int error = uncover(a, dir, n), stays;

	if (error)
		return error;
	if (child == TREE_NONE)
		return leave_out(a, dir, entry, n);
	tree_get(a->tree, child, &e);
	if (e.type == TREE_REGULAR && is_kept_log(a, dir, n) &&
	    claim(a, &n->file, tree_identity(a->tree, child))) {
		a->present[child] = a->finished[tree_identity(a->tree, child)] = true;
		return 0;
	}
	if (!is_same_kind(a, &n->file, &e))
		return note_removal(a, dir, n);
	stays = stays_same(a, &n->file, child);
	if (stays < 0)
		return stays;
	if (!stays || !claim(a, &n->file, tree_identity(a->tree, child)))
		return note_removal(a, dir, n);
	a->present[child] = true;
	return e.type == TREE_DIR ? match_dir(a, n->file.ino, child) : 0;
}

static int match_dir(struct apply *a, uint64_t dir, uint32_t entry)
{
	cleanup_buf struct buf list = {0};
	struct live_name *names;
	int error = list_live_names(a, dir, &list);

	names = (struct live_name *)list.data;
	for (size_t i = 0; !error && i < list.len / sizeof(*names); i++)
		error = match_name(a, dir, entry, &names[i]);
	return error ? error : buf_error(&a->claims);
}

/* ---- pass 2: what is not in the tree goes, and content that differs is let go ---- */

static int remove_one(struct apply *a, uint64_t parent, const char *name, uint64_t ino);

static int remove_below(struct apply *a, uint64_t dir)
{
	cleanup_buf struct buf list = {0};
	struct live_name *names;
	int error = list_live_names(a, dir, &list);

	names = (struct live_name *)list.data;
	for (size_t i = 0; !error && i < list.len / sizeof(*names); i++) {
		error = uncover(a, dir, &names[i]);
		if (!error)
			error = remove_one(a, dir, names[i].name, names[i].file.ino);
	}
	return error;
}

static int remove_one(struct apply *a, uint64_t parent, const char *name, uint64_t ino)
{
	struct volume *vol = a->vol;
	struct state_file f;
	int error = state_name_remove(vol->state, parent, name);

	if (!error)
		error = state_file_get(vol->state, ino, &f);
	if (error)
		return error;
	notice_name(a, parent, name);
	if (S_ISDIR(f.mode)) {
		error = remove_below(a, ino);
		return error ? error : state_file_remove(vol->state, ino);
	}
	f.nlink = f.nlink ? f.nlink - 1 : 0;
	f.ctime_ns = a->now_ns;
	return f.nlink ? state_file_set(vol->state, &f) : body_file_unlinked_locked(vol, &f);
}

static int remove_all(struct apply *a)
{
	for (size_t at = 0; at < a->removed.len;) {
		const struct removal *r = (const struct removal *)(a->removed.data + at);
		int error = remove_one(a, r->parent, (const char *)(r + 1), r->ino);

		if (error)
			return error;
		at += sizeof(*r) + r->name_room;
	}
	return 0;
}

/* The file has the entry's content already. */
static int keep_content(struct apply *a, const struct state_file *f, const struct tree_entry *e)
{
	struct state_version v;
	int error = state_version_get(a->vol->state, f->closed, &v);
	bool torn;

	if (error)
		return error;
	torn = is_torn_there(a, e, &v);
	if (v.torn == torn)
		return 0;
	v.torn = torn;
	return state_version_set(a->vol->state, &v);
}

/* Nothing is reclaimed here: what dies may be what another file takes. */
static int version_dies(struct apply *a, uint64_t version)
{
	struct state_version v;
	int error = version ? state_version_get(a->vol->state, version, &v) : -ENOENT;

	if (error || v.died)
		return error == -ENOENT ? 0 : error;
	v.died = a->vol->next_epoch;
	return state_version_set(a->vol->state, &v);
}

static int let_go(struct apply *a, uint32_t identity)
{
	struct tree_entry e;
	struct state_file f;
	int same, error;

	tree_get(a->tree, identity, &e);
	if (e.type != TREE_REGULAR || !a->ino[identity] || a->finished[identity])
		return 0;
	error = state_file_get(a->vol->state, a->ino[identity], &f);
	if (error)
		return error;
	same = same_content(a, &f, &e);
	if (same < 0)
		return same;
	error = same ? keep_content(a, &f, &e) : 0;
	if (!error)
		error = body_replacements_end_locked(a->vol, f.ino);
	if (error)
		return error;
	if (same && f.live == f.closed)
		return 0;
	body_replaced_locked(a->vol, &f);
	body_orphan_locked(a->vol, f.ino);
	f.body = object_new_id(a->vol);
	f.live = f.closed;
	a->let_go[identity] = true;
	notice_file(a, f.ino);
	if (!same) {
		error = version_dies(a, f.closed);
		f.live = f.closed = 0;
	}
	return error ? error : state_file_set(a->vol->state, &f);
}

/* These names lead to another node now; whoever has the old content open keeps its node, which tells that one's size. */
static void notice_let_go(struct apply *a)
{
	for (uint32_t id = 0; id < tree_count(a->tree); id++) {
		struct tree_entry e;

		if (!a->present[id] || !a->let_go[tree_identity(a->tree, id)])
			continue;
		tree_get(a->tree, id, &e);
		notice_name(a, a->ino[tree_identity(a->tree, tree_parent(a->tree, id))], e.name);
	}
}

/* ---- all of it ---- */

static int apply_passes(struct apply *a)
{
	struct tree_entry root;
	int error;

	a->ino[0] = ROOT_INO;
	a->present[0] = true;
	error = match_dir(a, ROOT_INO, 0);
	for (uint32_t id = 0; !error && id < tree_count(a->tree); id++)
		if (tree_identity(a->tree, id) == id)
			error = let_go(a, id);
	if (!error)
		error = remove_all(a);
	if (error)
		return error;
	notice_let_go(a);
	tree_get(a->tree, 0, &root);
	error = make_file(a, 0, &root, ROOT_INO);
	if (!error)
		error = make_dir(a, 0);
	if (!error)
		error = buf_error(&a->notice->names);
	return error ? error : buf_error(&a->notice->files);
}

int rollback_apply_locked(struct volume *vol, uint64_t number, const struct tree *tree,
			  enum rollback_how how, struct rollback_notice *notice)
{
	uint32_t count = tree_count(tree);
	struct apply a = {
		.vol = vol,
		.number = number,
		.tree = tree,
		.notice = notice,
		.now_ns = clock_wall_ns(),
		.ino = calloc(count, sizeof(*a.ino)),
		.present = calloc(count, sizeof(*a.present)),
		.let_go = calloc(count, sizeof(*a.let_go)),
		.finished = calloc(count, sizeof(*a.finished)),
		.keep_logs = how == ROLLBACK_KEEP_LOGS,
		.new_files = how == ROLLBACK_NEW_FILES,
		.more_links = calloc(count, sizeof(*a.more_links)),
	};
	int error = a.ino && a.present && a.let_go && a.finished && a.more_links ? 0 : -ENOMEM;

	if (!error)
		error = doubts_none_torn_locked(vol, number, &a.all_whole);
	if (!error)
		error = apply_passes(&a);
	free(a.ino);
	free(a.present);
	free(a.let_go);
	free(a.finished);
	free(a.more_links);
	buf_free(&a.claims);
	buf_free(&a.removed);
	if (error) {
		/* The transaction is undone; and what memory did not suffice for may be cut off. */
		buf_free(&notice->names);
		buf_free(&notice->files);
	}
	return error;
}

void rollback_notice_tell(struct volume *vol, struct rollback_notice *notice)
{
	struct reader r = reader_of(notice->names.data, notice->names.len);

	while (reader_left(&r)) {
		uint64_t parent = reader_u64(&r);
		const char *name = (const char *)r.p;

		reader_skip(&r, strlen(name) + 1);
		volume_entry_changed(vol, parent, name);
	}
	r = reader_of(notice->files.data, notice->files.len);
	while (reader_left(&r))
		volume_file_changed(vol, reader_u64(&r));
	buf_free(&notice->names);
	buf_free(&notice->files);
}

/* ---- Rollback by itself: logs stay, and the directories that hold them. ---- */

/* Held open with O_APPEND for longer than patience. */
static bool is_open_log(struct apply *a, const struct state_file *f)
{
	struct body *b = body_of_file_locked(a->vol, f);

	return b && b->writers &&
	       (b->is_output ||
		(b->append_only && clock_mono_ns() - b->opened_ns > a->vol->options.patience_ns));
}

static bool stays_by_rule(struct apply *a, uint64_t dir, const char *name)
{
	cleanup_buf struct buf path = {0};

	return a->vol->driver && sealer_path_locked(a->vol, dir, name, &path) == 0 &&
	       driver_path_stays_locked(a->vol, buf_str(&path));
}

bool is_kept_log(struct apply *a, uint64_t dir, const struct live_name *n)
{
	return a->keep_logs && S_ISREG(n->file.mode) &&
	       (stays_by_rule(a, dir, n->name) ||
		sealer_rule_locked(a->vol, rules_log, dir, n->name) || is_open_log(a, &n->file));
}

/* What belongs to one save goes as a whole. */
static bool is_of_a_save(struct apply *a, uint64_t parent, const char *name)
{
	const struct rules *rules = a->vol->rules;
	cleanup_buf struct buf path = {0};

	return sealer_path_locked(a->vol, parent, name, &path) != 0 ||
	       doubt_unit_of(rules, buf_str(&path)).len != 0;
}

/* 1: a log in it stays, so it does. */
static int keep_in(struct apply *a, uint64_t parent, const struct live_name *dir);

static int keep_name(struct apply *a, uint64_t dir, struct live_name *n, uint32_t *ret_subdirs)
{
	int kept, error = uncover(a, dir, n);

	if (error)
		return error;
	if (is_kept_log(a, dir, n))
		return 1;
	kept = S_ISDIR(n->file.mode) ? keep_in(a, dir, n) : 0;
	*ret_subdirs += kept == 1;
	return kept ? kept : note_removal(a, dir, n);
}

static int keep_in(struct apply *a, uint64_t parent, const struct live_name *dir)
{
	cleanup_buf struct buf list = {0};
	size_t removed = a->removed.len;
	struct state_file f = dir->file;
	struct live_name *names;
	uint32_t subdirs = 0;
	bool any = false;
	int kept, error;

	if (is_of_a_save(a, parent, dir->name))
		return 0;
	error = list_live_names(a, f.ino, &list);
	names = (struct live_name *)list.data;
	for (size_t i = 0; !error && i < list.len / sizeof(*names); i++) {
		kept = keep_name(a, f.ino, &names[i], &subdirs);
		any |= kept == 1;
		error = kept < 0 ? kept : 0;
	}
	if (error)
		return error;
	if (!any) {
		a->removed.len = removed; /* it goes with what is in it */
		return 0;
	}
	f.nlink = 2 + subdirs;
	error = state_file_set(a->vol->state, &f);
	return error ? error : 1;
}

int keep_logs_in(struct apply *a, uint64_t parent, uint32_t entry, struct live_name *n)
{
	int kept = keep_in(a, parent, n);

	if (kept == 1)
		a->more_links[entry]++;
	return kept > 0 ? 0 : kept < 0 ? kept : note_removal(a, parent, n);
}
