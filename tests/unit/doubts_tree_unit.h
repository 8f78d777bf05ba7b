/* SPDX-License-Identifier: Apache-2.0 */
/* A tree that is a list of paths, and its killed writers: what is saved, removed, renamed and killed in it. */
#ifndef EPOCHFS_TESTS_DOUBTS_TREE_UNIT_H
#define EPOCHFS_TESTS_DOUBTS_TREE_UNIT_H

#include <string.h>
#include "lib/meta/doubts.h"
#include "tests/unit/unit.h"

#define FILES_MAX  64
#define KILLS_MAX  16
#define EPOCHS_MAX 24

struct file {
	char path[64];
	uint64_t ino, version, born, opened, content, touched;
	uint64_t replaced;	   /* the epoch that had first what it was saved over */
	uint64_t came, came_after; /* by a rename, in the epoch after this one */
	bool torn;
};

struct kill {
	char path[64];
	char noted[64]; /* the same, when it was killed or judged */
	enum doubt_kind kind;
	uint64_t id, since, ino_then, version_then, born_then, until;
	bool gone, judged, alone;
	struct doubt_companion companions[16];
	char companion_paths[16][64];
	size_t companion_count;
	uint64_t again[16], again_born[16];
	size_t again_count;
};

struct tree {
	struct file files[FILES_MAX];
	size_t file_count;
	struct kill kills[KILLS_MAX];
	size_t kill_count;
};

struct world {
	struct rules *rules;
	struct tree now;
	struct tree epochs[EPOCHS_MAX];
	bool complete[EPOCHS_MAX],
		half[EPOCHS_MAX]; /* not complete, though nothing in it is in doubt */
	uint64_t continued_by[EPOCHS_MAX];
	char newest[EPOCHS_MAX][64];	  /* what the records say */
	char parts[EPOCHS_MAX][4][2][64]; /* likewise: torn ones, and what is beside them */
	size_t part_count[EPOCHS_MAX];
	uint64_t last, inos, versions;
	char standing[32][64];
	size_t standing_count;
};

static bool is_below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return !strncmp(path, top, len) && (!path[len] || path[len] == '/');
}

static struct file *find(struct world *w, const char *path)
{
	for (size_t i = 0; i < w->now.file_count; i++)
		if (!strcmp(w->now.files[i].path, path))
			return &w->now.files[i];
	return NULL;
}

/* What state_doubt_file_add notes: it had changed before the kill, and is saved again, by who began after that. */
static void note_again(struct world *w, uint64_t ino, const struct file *old, uint64_t begun)
{
	for (size_t i = 0; i < w->now.kill_count; i++) {
		struct kill *k = &w->now.kills[i];

		if (k->judged || k->kind != DOUBT_UNDONE || begun < k->id)
			continue;
		k->again[k->again_count] = ino;
		k->again_born[k->again_count++] = old->born;
	}
}

static struct file *add(struct world *w, const char *path)
{
	struct file *f = &w->now.files[w->now.file_count++];

	ck_assert_uint_le(w->now.file_count, FILES_MAX);
	*f = (struct file){.ino = ++w->inos};
	snprintf(f->path, sizeof(f->path), "%s", path);
	return f;
}

static void save(struct world *w, const char *path, uint64_t version, bool torn)
{
	struct file *f = find(w, path);

	if (f)
		note_again(w, f->ino, f, version);
	if (f && f->born <= w->last)
		f->replaced = f->born;
	if (!f)
		f = add(w, path);
	f->version = f->opened = f->content = version;
	f->touched = 0;
	f->born = w->last + 1;
	f->torn = torn;
}

/* What doubts_goes_on_locked notes. */
static void goes_on(struct world *w)
{
	for (size_t i = 0; i < w->now.kill_count; i++)
		w->now.kills[i].until = w->versions;
}

static void drop(struct world *w, size_t i)
{
	memmove(&w->now.files[i], &w->now.files[i + 1],
		(--w->now.file_count - i) * sizeof(w->now.files[0]));
}

static void remove_below(struct world *w, const char *top)
{
	for (size_t i = w->now.file_count; i-- > 0;)
		if (is_below(w->now.files[i].path, top))
			drop(w, i);
	for (size_t i = 0; i < w->now.kill_count; i++) {
		struct kill *k = &w->now.kills[i];

		if (!strcmp(k->path, top) || !is_below(k->path, top))
			continue;
		k->gone = true;
		memmove(k->path, k->noted, sizeof(k->path));
	}
}

static void move_path(char path[64], const char *from, const char *to)
{
	char moved[160];

	snprintf(moved, sizeof(moved), "%s%s", to, path + strlen(from));
	snprintf(path, 64, "%.63s", moved);
}

/* What doubts_renamed_locked does. */
static void settle_renamed(struct world *w, const char *from, const char *to, uint64_t begun)
{
	if (doubt_name_is_temporary(w->rules, from) && doubt_name_is_temporary(w->rules, to))
		return;
	for (size_t i = w->now.kill_count; i-- > 0;)
		if (w->now.kills[i].kind == DOUBT_UNDONE && begun > w->now.kills[i].id &&
		    !strcmp(w->now.kills[i].path, from))
			w->now.kills[i] = w->now.kills[--w->now.kill_count];
}

/* What arrivals_note_locked notes. */
static void note_arrival(struct world *w, const char *from, const char *to, bool directory)
{
	struct doubt_unit old = doubt_unit_of(w->rules, from), new = doubt_unit_of(w->rules, to);

	if (new.temporary || (!new.len && !(directory && old.temporary)) ||
	    (!old.temporary && old.len && old.step == new.step))
		return;
	for (size_t i = 0; i < w->now.file_count; i++) {
		struct file *f = &w->now.files[i];

		if (!is_below(f->path, from))
			continue;
		f->came = w->versions + 1;
		f->came_after = w->last;
	}
}

static void rename_below(struct world *w, const char *from, const char *to)
{
	struct file *f = find(w, from), *over = find(w, to);

	note_arrival(w, from, to, !f);

	if (f)
		settle_renamed(w, from, to, f->opened);

	if (f && over) {
		note_again(w, f->ino, over, f->opened);
		drop(w, (size_t)(over - w->now.files));
	}
	for (size_t i = 0; i < w->now.file_count; i++)
		if (is_below(w->now.files[i].path, from))
			move_path(w->now.files[i].path, from, to);
	for (size_t i = 0; i < w->now.kill_count; i++)
		if (strcmp(w->now.kills[i].path, from) != 0 && is_below(w->now.kills[i].path, from))
			move_path(w->now.kills[i].path, from, to);
}

static struct kill *kill_writer(struct world *w, const char *path, enum doubt_kind kind)
{
	struct kill *k = &w->now.kills[w->now.kill_count++];
	const struct file *f = find(w, path);

	*k = (struct kill){.kind = kind,
			   .id = ++w->versions,
			   .since = w->last + 1,
			   .ino_then = f ? f->ino : 0,
			   .version_then = f ? f->version : 0,
			   .born_then = f ? f->born : 0};
	snprintf(k->path, sizeof(k->path), "%s", path);
	snprintf(k->noted, sizeof(k->noted), "%s", path);
	return k;
}

#endif
