/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree: rename and exchange. */
#include "lib/live/live_internal.h"
#include "lib/live/bodies.h"
#include "lib/live/events.h"
#include "lib/live/observer.h"

#include <errno.h>
#include <stdio.h>
#include "lib/meta/rules.h"

/* One end of a rename: a name, and what it leads to. */
struct end {
	uint64_t parent;
	const char *name;
	bool exists;
	bool sealed; /* before it was renamed, an epoch with its content began */
	struct state_name n;
	struct state_file f;
};

static int end_find_locked(struct volume *vol, struct end *e)
{
	int error = live_find_locked(vol, e->parent, e->name, &e->n, &e->f);

	e->exists = !error;
	return error;
}

/* Both ends. The second search may drop the lock, so the first is looked up once more. */
static int ends_find_locked(struct volume *vol, struct end *from, struct end *to)
{
	struct state_file dir;
	int error = end_find_locked(vol, from);

	if (!error)
		error = live_name_check(to->name);
	if (!error)
		error = live_dir_locked(vol, to->parent, &dir);
	if (error)
		return error;
	error = end_find_locked(vol, to);
	if (error && error != -ENOENT)
		return error;
	return state_name_lookup(vol->state, from->parent, from->name, &from->n, &from->f);
}

/* Whether a directory is `top` or lies below it. */
static int is_below_locked(struct volume *vol, uint64_t ino, uint64_t top, bool *ret_below)
{
	while (ino != top) {
		struct state_file dir;
		int error = live_dir_locked(vol, ino, &dir);

		if (error)
			return error;
		if (dir.parent == ino) {
			*ret_below = false;
			return 0;
		}
		ino = dir.parent;
	}
	*ret_below = true;
	return 0;
}

/* -EINVAL where a directory would move into itself, -ENAMETOOLONG where it would be too deep. */
static int may_move_locked(struct volume *vol, const struct end *moved, uint64_t into)
{
	uint64_t height = 0;
	bool below = false;
	int error;

	if (!S_ISDIR(moved->f.mode) || moved->parent == into)
		return 0;
	error = is_below_locked(vol, into, moved->f.ino, &below);
	if (!error && below)
		error = -EINVAL;
	if (!error)
		error = state_dir_height(vol->state, moved->f.ino, &height);
	return error ? error : live_depth_check_locked(vol, into, height);
}

/* Subdirectories change the link count of the directory that holds them. */
static int touch_both_locked(struct volume *vol, const struct end *from, int from_links,
			     const struct end *to, int to_links, int64_t now)
{
	int error;

	if (from->parent == to->parent)
		return live_touch_locked(vol, to->parent, from_links + to_links, now);
	error = live_touch_locked(vol, from->parent, from_links, now);
	return error ? error : live_touch_locked(vol, to->parent, to_links, now);
}

/* A file arrives in a directory. */
static int arrive_locked(struct volume *vol, uint64_t ino, uint64_t parent, int64_t now)
{
	struct state_file f;
	int error = state_file_get(vol->state, ino, &f);

	if (error)
		return error;
	if (S_ISDIR(f.mode))
		f.parent = parent;
	f.ctime_ns = now;
	return state_file_set(vol->state, &f);
}

/* ---- rename ---- */

static int may_replace_locked(struct volume *vol, const struct end *from, const struct end *to)
{
	bool from_dir = S_ISDIR(from->f.mode);

	if (!to->exists)
		return 0;
	if (from_dir != S_ISDIR(to->f.mode))
		return from_dir ? -ENOTDIR : -EISDIR;
	return from_dir ? state_dir_empty(vol->state, to->f.ino) : 0;
}

/*
 * What the new name led to goes. But where a writer who may yet be killed replaces committed
 * content, it stays, covered, so that the rename can be undone (contract 1.2.4): `covered` is
 * what the name is to remember.
 */
static int replace_locked(struct volume *vol, const struct end *from, const struct end *to,
			  int64_t now, uint64_t *ret_covered)
{
	bool fragile = body_is_fragile_new_locked(vol, &from->f);
	struct state_file old;
	int error = state_file_get(vol->state, to->f.ino, &old);

	if (error)
		return error;
	if (S_ISDIR(old.mode))
		return state_file_remove(vol->state, old.ino);
	if (fragile && to->n.covered)
		*ret_covered = to->n.covered;
	else
		error = live_uncover_locked(vol, &to->n, now);
	if (error)
		return error;
	if (fragile && old.closed && !*ret_covered) {
		*ret_covered = old.ino;
		if (old.nlink < 2)
			return 0;
		/* Who has another name of it sees one link less. */
		old.ctime_ns = now;
		return state_file_set(vol->state, &old);
	}
	return live_unref_locked(vol, &old, now);
}

/* Within its directory it stays the entry that it was, for who lists that meanwhile. */
static int move_name_locked(struct volume *vol, const struct end *from, const struct end *to,
			    uint64_t covered)
{
	int error;

	if (from->parent == to->parent && !to->exists)
		return state_name_change(vol->state, from->parent, from->name, to->name);
	error = state_name_remove(vol->state, from->parent, from->name);
	if (error)
		return error;
	return to->exists ? state_name_set(vol->state, to->parent, to->name, from->f.ino, covered)
			  : state_name_add(vol->state, to->parent, to->name, from->f.ino);
}

static int rename_locked(struct volume *vol, struct end *from, struct end *to,
			 uint64_t *ret_covered)
{
	int64_t now = live_now_ns();
	int links = S_ISDIR(from->f.mode) ? 1 : 0;
	int replaced = to->exists ? links : 0;
	int error = live_uncover_locked(vol, &from->n, now);

	if (!error && to->exists)
		error = replace_locked(vol, from, to, now, ret_covered);
	if (!error)
		error = move_name_locked(vol, from, to, *ret_covered);
	if (!error)
		error = arrive_locked(vol, from->f.ino, to->parent, now);
	return error ? error : touch_both_locked(vol, from, -links, to, links - replaced, now);
}

/* What it is renamed from was written before, and may be open still: what a copy of that was committed for began as it did. */
static int saved_by_rename_locked(struct volume *vol, const struct end *from, const struct end *to)
{
	const struct state_file *f = &from->f;
	uint64_t began = f->closed && f->closed < f->live ? f->closed : f->live;
	int error = to->exists ? vol->observer->saved_locked(vol, f->ino, to->f.closed, began) : 0;

	return error || !S_ISREG(f->mode) ? error
					  : vol->observer->renamed_locked(
						    vol, from->parent, from->name, to->name, began);
}

static bool is_temporary(struct volume *vol, const struct end *e)
{
	cleanup_buf struct buf path = {0};

	if (rules_want_path(vol->rules))
		volume_path_locked(vol, e->f.ino, &path);
	return rules_temporary(vol->rules, e->name, path.len ? buf_str(&path) : NULL);
}

/* An epoch has its content under the temporary name alone: it is saved with what comes after this rename. */
static bool is_saved_now(struct volume *vol, const struct end *from, const struct state_version *v)
{
	if (from->f.nlink != 1)
		return false;
	/* What was just made, and sealed before it was renamed. */
	return (from->sealed && v->born + 1 == vol->next_epoch && from->f.born == v->born) ||
	       is_temporary(vol, from);
}

/* New content takes the place of what the name led to. */
static int note_replaced_locked(struct volume *vol, const struct end *from, const struct end *to)
{
	uint64_t id = from->f.closed ? from->f.closed : from->f.live;
	struct state_version v, before;
	int error;

	if (!to->exists || !S_ISREG(from->f.mode) || !to->f.closed || !id)
		return 0;
	error = state_version_get(vol->state, id, &v);
	if (!error)
		error = state_version_get(vol->state, to->f.closed, &before);
	if (error)
		return error == -ENOENT ? 0 : error;
	if (v.saved || (v.born != vol->next_epoch && !is_saved_now(vol, from, &v)))
		return 0;
	if (v.born != vol->next_epoch)
		v.saved = vol->next_epoch;
	v.replaced = version_replaced_by_next(vol, &before);
	return state_version_set(vol->state, &v);
}

static enum activity what_it_is(const struct volume *vol, const struct end *to)
{
	return to->exists && to->f.born < vol->next_epoch ? ACTIVITY_REPLACE : ACTIVITY_RENAME;
}

static int rename_one(struct volume *vol, struct end *from, struct end *to, pid_t by)
{
	uint64_t covered = 0;
	int error = may_move_locked(vol, from, to->parent);

	if (!error)
		error = may_replace_locked(vol, from, to);
	if (!error)
		error = live_begin_locked(vol);
	if (error)
		return error;
	/* Before the content that it had may go. */
	error = saved_by_rename_locked(vol, from, to);
	if (!error)
		error = vol->observer->moves_locked(vol, &from->f, from->parent, from->name,
						    to->parent, to->name);
	if (!error)
		error = note_replaced_locked(vol, from, to);
	if (!error)
		error = rename_locked(vol, from, to, &covered);
	error = state_end(vol->state, error);
	if (error)
		return error;
	event_renamed_locked(vol, from->parent, from->name, to->parent, to->name, &from->f,
			     to->exists, by);
	if (to->exists && !covered)
		vol->observer->note_locked(vol, ACTIVITY_REMOVE, to->parent, NULL, to->name,
					   to->f.ino);
	output_renamed_locked(vol, to->parent, to->name, by);
	vol->observer->note_locked(vol, what_it_is(vol, to), to->parent, from->name, to->name,
				   from->f.ino);
	return 0;
}

/* ---- exchange ---- */

static int exchange_locked(struct volume *vol, struct end *from, struct end *to)
{
	int64_t now = live_now_ns();
	int links = (S_ISDIR(to->f.mode) ? 1 : 0) - (S_ISDIR(from->f.mode) ? 1 : 0);
	int error = saved_by_rename_locked(vol, from, to);

	if (!error)
		error = vol->observer->moves_locked(vol, &from->f, from->parent, from->name,
						    to->parent, to->name);
	if (!error)
		error = vol->observer->moves_locked(vol, &to->f, to->parent, to->name, from->parent,
						    from->name);
	if (!error)
		error = state_name_set(vol->state, from->parent, from->name, to->f.ino, 0);
	if (!error)
		error = state_name_set(vol->state, to->parent, to->name, from->f.ino, 0);
	if (!error)
		error = live_uncover_locked(vol, &from->n, now);
	if (!error)
		error = live_uncover_locked(vol, &to->n, now);
	if (!error)
		error = arrive_locked(vol, from->f.ino, to->parent, now);
	if (!error)
		error = arrive_locked(vol, to->f.ino, from->parent, now);
	return error ? error : touch_both_locked(vol, from, links, to, -links, now);
}

/* What is told last is what takes the place of the other: it may seal. */
static int exchange(struct volume *vol, struct end *from, struct end *to, pid_t by)
{
	int error = may_move_locked(vol, from, to->parent);

	if (!error)
		error = may_move_locked(vol, to, from->parent);
	if (!error)
		error = live_begin_locked(vol);
	if (error)
		return error;
	error = state_end(vol->state, exchange_locked(vol, from, to));
	if (error)
		return error;
	event_exchanged_locked(vol, from->parent, from->name, to->parent, to->name, &to->f, by);
	output_renamed_locked(vol, to->parent, to->name, by);
	vol->observer->note_locked(vol, what_it_is(vol, from), from->parent, to->name, from->name,
				   to->f.ino);
	vol->observer->note_locked(vol, what_it_is(vol, to), to->parent, from->name, to->name,
				   from->f.ino);
	return 0;
}

int live_rename(struct volume *vol, uint64_t parent, const char *name, uint64_t new_parent,
		const char *new_name, unsigned flags, const struct live_caller *who)
{
	struct end from = {.parent = parent, .name = name};
	struct end to = {.parent = new_parent, .name = new_name};
	uint64_t epoch;
	bool back = false;
	int error;

	if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE) ||
	    flags == (RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	if (vol->options.read_only)
		return -EROFS;
	SCOPED_LOCK(&vol->lock);
	epoch = vol->next_epoch;
	if (flags & RENAME_EXCHANGE)
		back = vol->observer->before_exchange_locked(vol, parent, name, new_parent,
							     new_name);
	else
		vol->observer->before_rename_locked(vol, parent, name, new_parent, new_name);
	if (flags & RENAME_EXCHANGE)
		event_before_exchanged_locked(vol, parent, name, new_parent, new_name);
	else
		event_before_renamed_locked(vol, parent, name, new_parent, new_name);
	from.sealed = vol->next_epoch != epoch;
	error = ends_find_locked(vol, &from, &to);
	if (error)
		return error;
	if (flags & RENAME_NOREPLACE && to.exists)
		return -EEXIST;
	/* rename(2): two names of one file stay as they are. */
	if (to.exists && to.f.ino == from.f.ino)
		return 0;
	if (!(flags & RENAME_EXCHANGE))
		return rename_one(vol, &from, &to, who ? who->pid : 0);
	if (!to.exists)
		return -ENOENT;
	return back ? exchange(vol, &to, &from, who ? who->pid : 0)
		    : exchange(vol, &from, &to, who ? who->pid : 0);
}
