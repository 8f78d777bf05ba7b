/* SPDX-License-Identifier: Apache-2.0 */
/* What happened in an ordinary directory since its last epoch. */
#include "lib/import/watch_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/meta/rules.h"
#include "lib/util/cleanup.h"
#include "lib/util/text.h"

/* ---- the table ---- */

static struct watch_file *file_of(const struct map_link *l)
{
	return map_item(l, struct watch_file, link);
}

/* All of them, in no order: the first after NULL, NULL after the last. */
static struct watch_file *next_file(const struct watch_pending *p, const struct watch_file *f)
{
	const struct map_link *l = map_next(&p->files, f ? &f->link : NULL);

	return l ? file_of(l) : NULL;
}

static struct watch_file *find(const struct watch_pending *p, const char *path)
{
	for (struct map_link *l = map_find(&p->files, map_hash_text(0, path)); l;
	     l = map_find_next(l))
		if (strcmp(file_of(l)->path, path) == 0)
			return file_of(l);
	return NULL;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static struct watch_file *add(struct watch_pending *p, const char *path)
{
	struct watch_file *f = find(p, path);
	size_t len = strlen(path);

	if (f)
		return f;
	f = calloc(1, sizeof(*f) + len + 1);
	if (!f || map_add(&p->files, &f->link, map_hash_text(0, path)) != 0) {
		free(f);
		return NULL;
	}
	memcpy(f->path, path, len + 1);
	f->temporary = rules_temporary(p->rules, name_of(path), path);
	f->log = rules_log(p->rules, name_of(path), path);
	return f;
}

/* Keeps those for which `keep` says so; the others are freed. */
static void filter(struct watch_pending *p, bool (*keep)(struct watch_file *f, const char *path),
		   const char *path)
{
	for (struct watch_file *f = next_file(p, NULL), *next; f; f = next) {
		next = next_file(p, f);
		if (keep(f, path))
			continue;
		map_remove(&p->files, &f->link);
		free(f);
	}
}

static bool nothing(struct watch_file *f, const char *path)
{
	(void)f;
	(void)path;
	return false;
}

void watch_pending_free(struct watch_pending *p)
{
	filter(p, nothing, NULL);
	map_free(&p->files);
}

void watch_each_file(struct watch_pending *p, void (*fn)(void *arg, struct watch_file *f),
		     void *arg)
{
	for (struct watch_file *f = next_file(p, NULL); f; f = next_file(p, f))
		if (!f->log)
			fn(arg, f);
}

/* Is it `directory` itself, or does it lie in it? */
static bool lies_in(const char *path, const char *directory)
{
	size_t len = strlen(directory);

	return !strncmp(path, directory, len) && (!path[len] || path[len] == '/');
}

static bool lies_elsewhere(struct watch_file *f, const char *path)
{
	return !lies_in(f->path, path);
}

/* ---- events ---- */

static void active(struct watch_pending *p, int64_t now_ns)
{
	p->activity_ns = now_ns;
	if (!p->opened_ns)
		p->opened_ns = now_ns;
}

/* Temporary directories above it are still being worked on. */
static void touch_above(struct watch_pending *p, const char *path, int64_t now_ns)
{
	char *above = strdup(path), *slash;

	while (above && (slash = strrchr(above, '/'))) {
		struct watch_file *f;

		*slash = '\0';
		f = find(p, above);
		if (f && f->temporary)
			f->changed_ns = now_ns;
	}
	free(above);
}

static bool others_are_written(const struct watch_pending *p, const char *path)
{
	for (const struct watch_file *f = next_file(p, NULL); f; f = next_file(p, f))
		if (f->writing && f->fresh && !f->log && strcmp(f->path, path) != 0)
			return true;
	return false;
}

static bool same_directory(const char *a, const char *b)
{
	size_t len = (size_t)(name_of(a) - a);

	return len == (size_t)(name_of(b) - b) && !strncmp(a, b, len);
}

/* Another temporary name beside it: more renames will follow. */
static bool others_are_temporary(const struct watch_pending *p, const char *path)
{
	for (const struct watch_file *f = next_file(p, NULL); f; f = next_file(p, f))
		if (f->temporary && f->made && same_directory(f->path, path))
			return true;
	return false;
}

static bool inside_temporary(const struct watch_pending *p, const char *path)
{
	char *above = strdup(path), *slash;
	bool inside = !above;

	while (!inside && (slash = strrchr(above, '/'))) {
		*slash = '\0';
		inside = rules_temporary(p->rules, name_of(above), NULL);
	}
	free(above);
	return inside;
}

/* ---- the last files of frameworks (rules.h), as seal_at_last_file of a mount has them ---- */

/* A file alone, which is written again and again, is no checkpoint. */
static bool others_are_new(const struct watch_pending *p, const char *path)
{
	for (const struct watch_file *f = next_file(p, NULL); f; f = next_file(p, f))
		if (f->closed && !f->log && strcmp(f->path, path) != 0)
			return true;
	return false;
}

static bool has_new_partner(const struct watch_pending *p, const char *path, enum last_file kind)
{
	int directory = (int)(name_of(path) - path);

	for (const char *const *name = last_file_partners(kind); *name; name++) {
		cleanup_free char *partner = NULL;
		const struct watch_file *f;

		if (text_print(&partner, "%.*s%s", directory, path, *name) < 0)
			return false;
		f = find(p, partner);
		if (f && f->closed)
			return true;
	}
	return false;
}

static bool directory_has_step(const struct watch_pending *p, const char *path)
{
	cleanup_free char *directory = strdup(path);
	struct step_place place;

	if (!directory || name_of(path) == path)
		return !directory;
	directory[name_of(path) - path - 1] = '\0';
	return rules_step(p->rules, directory, &place);
}

static bool is_last(const struct watch_pending *p, const char *path, bool renamed)
{
	enum last_file kind = last_file_kind(name_of(path));

	switch (kind) {
	case LAST_FILE_ANY:
		return others_are_new(p, path);
	case LAST_FILE_RENAMED:
		return renamed;
	case LAST_FILE_DEEPSPEED:
		return !renamed && others_are_new(p, path) && !directory_has_step(p, path);
	case LAST_FILE_STATE:
	case LAST_FILE_RNG:
		return !renamed && has_new_partner(p, path, kind);
	case LAST_FILE_NONE:
		break;
	}
	return false;
}

static bool says_whole(const struct watch_pending *p, const char *path, bool renamed)
{
	return p->last_files && is_last(p, path, renamed) &&
	       !rules_temporary(p->rules, name_of(path), path) && !inside_temporary(p, path) &&
	       !others_are_temporary(p, path);
}

/* Contract 1.3.2: the marker, by its option or by what a framework writes last. */
static void seal_at_marker(struct watch_pending *p, const char *path, bool renamed)
{
	if ((rules_marker(p->rules, name_of(path), path) || says_whole(p, path, renamed)) &&
	    !others_are_written(p, path))
		p->now = RECORD_TRIGGER_MARKER;
}

/* `mv last.ckpt prev.ckpt` makes room for the save that begins now. */
static bool is_backup(const char *from, const char *to)
{
	return from && last_file_kind(name_of(from)) == LAST_FILE_RENAMED &&
	       last_file_kind(name_of(to)) == LAST_FILE_RENAMED;
}

/* ---- what happened to one path ---- */

int watch_note_made(struct watch_pending *p, const char *path, enum watch_made how, int64_t now_ns)
{
	struct watch_file *f = add(p, path);

	if (!f)
		return -ENOMEM;
	touch_above(p, path, now_ns);
	f->changed_ns = now_ns;
	if (f->log) {
		p->rides = true;
		return 0;
	}
	f->made = true;
	if (how == WATCH_MADE_OPEN && !f->writing) {
		f->writing = f->fresh = true;
		f->first_ns = now_ns;
	}
	active(p, now_ns);
	if (how == WATCH_MADE_WHOLE)
		f->closed = p->closed = true;
	return 0;
}

void watch_note_all_made(struct watch_pending *p, const char *path)
{
	for (const struct watch_file *f = next_file(p, NULL); f; f = next_file(p, f))
		if (f->closed && !f->writing && lies_in(f->path, path))
			seal_at_marker(p, f->path, false);
}

int watch_note_write(struct watch_pending *p, const char *path, int64_t now_ns)
{
	struct watch_file *f = add(p, path);

	if (!f)
		return -ENOMEM;
	touch_above(p, path, now_ns);
	f->changed_ns = now_ns;
	if (f->log) {
		p->rides = true;
		return 0;
	}
	if (!f->writing) {
		f->writing = f->fresh = true;
		f->first_ns = now_ns;
	}
	if (!p->opened_ns)
		p->opened_ns = now_ns;
	return 0;
}

/* The file, or something in the directory, got its content since the last epoch. */
static bool has_news(const struct watch_pending *p, const char *path)
{
	for (const struct watch_file *f = next_file(p, NULL); f; f = next_file(p, f))
		if (lies_in(f->path, path) && (f->made || f->closed))
			return true;
	return false;
}

int watch_note_close(struct watch_pending *p, const char *path, int64_t now_ns)
{
	struct watch_file *f = add(p, path);

	if (!f)
		return -ENOMEM;
	touch_above(p, path, now_ns);
	f->writing = false;
	f->changed_ns = now_ns;
	if (f->log) {
		p->rides = true;
		return 0;
	}
	f->closed = p->closed = true;
	p->opens |= !f->made;
	p->content_ns = now_ns;
	active(p, now_ns);
	seal_at_marker(p, path, false);
	return 0;
}

/* What is known below `from` is known below `to` from now on. */
static int rename_known(struct watch_pending *p, const char *from, const char *to)
{
	struct map_link *moved = NULL;
	int error = 0;

	for (struct watch_file *f = next_file(p, NULL), *next; f; f = next) {
		next = next_file(p, f);
		if (!lies_in(f->path, from))
			continue;
		map_remove(&p->files, &f->link);
		f->link.next = moved;
		moved = &f->link;
	}
	while (moved) {
		struct watch_file *f = file_of(moved), *n = NULL;
		cleanup_free char *path = NULL;

		moved = moved->next;
		if (text_print(&path, "%s%s", to, f->path + strlen(from)) >= 0)
			n = add(p, path);
		if (n) {
			n->made = f->made;
			n->closed = f->closed;
			n->writing = f->writing;
			n->fresh = f->fresh;
			n->first_ns = f->first_ns;
			n->changed_ns = f->changed_ns;
		} else {
			error = -ENOMEM;
		}
		free(f);
	}
	return error;
}

/* Contract 1.3.2: a temporary name that became final. */
static void seal_at_rename(struct watch_pending *p, const char *from, const char *to)
{
	if (rules_temporary(p->rules, name_of(from), from) &&
	    !rules_temporary(p->rules, name_of(to), to) && !inside_temporary(p, to) &&
	    !others_are_written(p, to) && !others_are_temporary(p, to))
		p->now = RECORD_TRIGGER_RENAME;
}

int watch_note_move(struct watch_pending *p, const char *from, const char *to, int64_t now_ns)
{
	bool news = from && has_news(p, from);
	struct watch_file *f;
	int error;

	filter(p, lies_elsewhere, to);
	error = from ? rename_known(p, from, to) : 0;
	f = error ? NULL : add(p, to);
	if (!f)
		return -ENOMEM;
	touch_above(p, to, now_ns);
	if (from)
		touch_above(p, from, now_ns);
	f->changed_ns = now_ns;
	if (f->log && (!from || rules_log(p->rules, name_of(from), from))) {
		p->rides = true;
		return 0;
	}
	f->made = p->opens = p->closed = true;
	f->closed |= !from;
	active(p, now_ns);
	seal_at_marker(p, to, !is_backup(from, to));
	if (news)
		seal_at_rename(p, from, to);
	return 0;
}

void watch_note_gone(struct watch_pending *p, const char *path, int64_t now_ns)
{
	bool log = rules_log(p->rules, name_of(path), path);

	filter(p, lies_elsewhere, path);
	touch_above(p, path, now_ns);
	p->rides = true;
	if (!log)
		p->activity_ns = now_ns;
}

void watch_note_unknown(struct watch_pending *p, int64_t now_ns)
{
	p->opens = p->closed = true;
	active(p, now_ns);
}

/* ---- deciding ---- */

static bool is_dirty(const struct watch_pending *p)
{
	bool made = false;

	for (const struct watch_file *f = next_file(p, NULL); f && !made; f = next_file(p, f))
		made |= f->made;
	if (!p->opens && !made)
		return false;
	/* With settle=0 a close seals; names that are only made wait for one. */
	return p->settle_ns > 0 || p->closed;
}

static void add_writer(const struct watch_pending *p, const struct watch_file *f, int64_t now_ns,
		       struct settle_view *view, struct settle_writer *writers)
{
	writers[view->writer_count++] = (struct settle_writer){
		.fresh = f->fresh,
		/* What was there before, and is written for so long, is a database. */
		.in_place = !f->made && now_ns - f->first_ns > p->patience_ns,
		.changed_ns = f->changed_ns,
	};
}

struct settle_answer watch_decide(const struct watch_pending *p, int64_t now_ns)
{
	cleanup_free struct settle_writer *writers = calloc(p->files.count + 1, sizeof(*writers));
	cleanup_free struct settle_temporary *temporaries =
		calloc(p->files.count + 1, sizeof(*temporaries));
	struct settle_view view = {
		.now_ns = now_ns,
		.dirty = is_dirty(p),
		.activity_ns = p->activity_ns,
		.writers = writers,
		.temporaries = temporaries,
		.settle_ns = p->settle_ns,
		.patience_ns = p->patience_ns,
	};

	if (p->now != RECORD_TRIGGER_UNKNOWN)
		return (struct settle_answer){.verdict = SETTLE_SEAL};
	if (!writers || !temporaries)
		return (struct settle_answer){.verdict = SETTLE_WAIT, .until_ns = now_ns + 1};
	for (const struct watch_file *f = next_file(p, NULL); f; f = next_file(p, f)) {
		if (f->writing && !f->log)
			add_writer(p, f, now_ns, &view, writers);
		if (f->temporary && f->made)
			temporaries[view.temporary_count++] =
				(struct settle_temporary){f->changed_ns};
	}
	return settle_decide(&view);
}

enum record_trigger watch_trigger(const struct watch_pending *p)
{
	if (p->now != RECORD_TRIGGER_UNKNOWN)
		return p->now;
	return p->settle_ns ? RECORD_TRIGGER_QUIET : RECORD_TRIGGER_CLOSE;
}

static bool is_still_written(struct watch_file *f, const char *path)
{
	(void)path;
	f->made = f->closed = f->fresh = false;
	return f->writing;
}

void watch_sealed(struct watch_pending *p)
{
	filter(p, is_still_written, NULL);
	p->opens = p->rides = p->closed = false;
	p->opened_ns = p->content_ns = 0;
	p->now = RECORD_TRIGGER_UNKNOWN;
}

bool watch_pending_any(const struct watch_pending *p)
{
	bool any = p->opens || p->rides;

	for (const struct watch_file *f = next_file(p, NULL); f && !any; f = next_file(p, f))
		any |= f->made || f->closed || f->fresh;
	return any;
}
