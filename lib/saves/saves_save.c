/* SPDX-License-Identifier: Apache-2.0 */
/* What belongs to a save, and what breaks and mends it. */
#include "lib/saves/saves_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/array.h"

void set_changed(struct saves *s)
{
	if (!saves_dirty(s))
		s->dirty_ns = s->now_ns;
	s->changed = true;
}

/* What is saved in the root leaves the newest checkpoint the newest. */
static int set_newest(struct saves *s, const char *checkpoint)
{
	char *copy;

	if (!*checkpoint || !strcmp(s->newest, checkpoint))
		return 0;
	copy = strdup(checkpoint);
	if (!copy)
		return -ENOMEM;
	free(s->newest);
	s->newest = copy;
	return 0;
}

/* The text of a function of facts.h; until the next one with that buffer. NULL: no memory. */
static const char *text_of(struct buf *b, const char *text)
{
	return buf_error(b) == 0 ? text : NULL;
}

static const char *checkpoint_text(struct saves *s, const struct checkpoint_place *c)
{
	buf_reset(&s->text[0]);
	checkpoint_put(c, &s->text[0]);
	return text_of(&s->text[0], buf_str(&s->text[0]));
}

static const char *shape_name(struct saves *s, const char *path, const char *checkpoint)
{
	buf_reset(&s->text[1]);
	facts_shape_name(path, checkpoint, &s->text[1]);
	return text_of(&s->text[1], buf_str(&s->text[1]));
}

/* ---- a save and its names ---- */

static struct save *make_save(struct saves *s, const char *checkpoint)
{
	struct save *save = calloc(1, sizeof(*save));

	if (!save)
		return NULL;
	save->checkpoint = strdup(checkpoint);
	if (!save->checkpoint ||
	    map_add(&s->saves, &save->link, map_hash_text(0, checkpoint)) != 0) {
		free(save->checkpoint);
		free(save);
		return NULL;
	}
	save->next = s->newest_save;
	s->newest_save = save;
	return save;
}

static void link_name(struct save *save, struct name *n)
{
	if (n->save)
		return;
	n->save = save;
	n->next = save->names;
	n->at = &save->names;
	if (n->next)
		n->next->at = &n->next;
	save->names = n;
}

static void unlink_name(struct name *n)
{
	if (!n->save)
		return;
	*n->at = n->next;
	if (n->next)
		n->next->at = n->at;
	n->save = NULL;
	n->next = NULL;
	n->at = NULL;
	n->times = n->times_in_all = 0;
	n->gone = false;
}

void free_save(struct saves *s, struct save *save)
{
	struct save **at = &s->newest_save;

	for (struct name *n = save->names, *next; n; n = next) {
		next = n->next;
		unlink_name(n);
		tidy_name(s, n);
	}
	while (*at != save)
		at = &(*at)->next;
	*at = save->next;
	map_remove(&s->saves, &save->link);
	if (s->final_save == save)
		s->final_save = NULL;
	shape_free(&save->shape);
	shape_free(&save->gone);
	free(save->writer);
	free(save->checkpoint);
	free(save);
}

int add_writer(struct save *save, uint64_t process)
{
	for (size_t i = 0; i < save->writer_count; i++)
		if (save->writer[i] == process)
			return 0;
	if (array_reserve((void **)&save->writer, &save->writer_cap, save->writer_count,
			  sizeof(*save->writer)) != 0)
		return -ENOMEM;
	save->writer[save->writer_count++] = process;
	return 0;
}

void take_out(struct saves *s, struct name *n)
{
	struct save *save = n->save;
	const char *name;

	n->changed = false;
	set_fresh(s, n, false);
	if (!save)
		return;
	name = shape_name(s, n->path, save->checkpoint);
	if (n->times) {
		save->size -= n->size;
		save->file_count--;
		if (name)
			shape_take(&save->shape, name, n->times);
	}
	if (n->gone && name)
		shape_take(&save->gone, name, 1);
	unlink_name(n);
}

/* What was saved before belongs to the save before. */
static void begin_anew(struct save *save)
{
	for (struct name *n = save->names; n; n = n->next) {
		n->times = 0;
		n->gone = false;
	}
	shape_free(&save->shape);
	shape_free(&save->gone);
	save->size = save->file_count = save->writer_count = 0;
	save->broken = false;
}

/* A name of the core is saved more often than in the saves before: the next save has begun. */
static bool is_once_more(const struct saves *s, const struct save *save, const char *name)
{
	uint64_t times = shape_times(&save->shape, name);
	struct core core;

	if (!times)
		return false;
	core = core_of(s, save);
	return core_times(&core, name) > 0 && times >= core_most(&core, name);
}

static int put_file(struct saves *s, struct save *save, const char *path, uint64_t process,
		    uint64_t size)
{
	const char *name = shape_name(s, path, save->checkpoint);
	struct name *n;

	if (!name)
		return -ENOMEM;
	if (is_once_more(s, save, name))
		begin_anew(save);
	n = make_name(s, path);
	if (!n)
		return -ENOMEM;
	if (shape_add(&save->shape, name, 1) != 0 || add_writer(save, process) != 0) {
		tidy_name(s, n);
		return -ENOMEM;
	}
	link_name(save, n);
	set_fresh(s, n, true);
	if (n->times)
		save->size -= n->size;
	else
		save->file_count++;
	if (n->gone)
		shape_take(&save->gone, name, 1);
	n->gone = n->changed = false;
	n->size = size;
	n->process = process;
	n->times++;
	n->times_in_all++;
	save->size += size;
	save->changed_ns = s->now_ns;
	return 0;
}

static bool begins_save(struct saves *s, const struct save *save, const char *path)
{
	const char *name = shape_name(s, path, save->checkpoint);
	struct core core = core_of(s, save);

	return name && core_begins(&core, name);
}

/*
 * What is pending, where a file of its checkpoint is saved: what it has already, no mere note, or what saves begin with says that the next save has
 * begun, and that one was all, unless somebody was killed in it.
 */
static enum verdict verdict_with(struct saves *s, const struct name *n, const char *path)
{
	if (!(n && n->times && !is_note(n)) && !begins_save(s, s->pending.save, path))
		return VERDICT_PART;
	return s->pending.save->broken ? VERDICT_NOT_WHOLE : VERDICT_WHOLE;
}

int put_newest(struct saves *s, const char *path)
{
	struct checkpoint_place c = facts_checkpoint(s->options.rules, path, true);
	const char *text = checkpoint_text(s, &c);

	return text ? set_newest(s, text) : -ENOMEM;
}

int add_saved(struct saves *s, const char *path, uint64_t process, uint64_t size)
{
	struct checkpoint_place c = facts_checkpoint(s->options.rules, path, false);
	const char *text = checkpoint_text(s, &c);
	const struct name *n = find_name(s, path);
	struct save *save;
	int error = 0;

	if (!text)
		return -ENOMEM;
	if (s->pending.epoch && checkpoint_is(&c, s->pending.save->checkpoint))
		error = decide(s, verdict_with(s, n, path));
	text = checkpoint_text(s, &c);
	if (!text)
		return -ENOMEM;
	save = find_save(s, &c);
	if (!save)
		save = make_save(s, text);
	if (!save || set_newest(s, text) != 0)
		return -ENOMEM;
	if (!saves_dirty(s))
		s->dirty_ns = s->now_ns;
	s->activity_ns = s->now_ns;
	if (put_file(s, save, path, process, size) != 0 || count_for_output(s, process, path) != 0)
		return -ENOMEM;
	return error;
}

int take_away(struct saves *s, const char *path, uint64_t process)
{
	struct checkpoint_place c = facts_checkpoint(s->options.rules, path, false);
	struct save *save = find_save(s, &c);
	struct name *n = find_name(s, path);
	const char *text, *name;
	struct core core;

	/* The next save has begun, and the one that has it was all. */
	if (s->pending.epoch && s->pending.save == save && n && n->times) {
		if (decide(s, VERDICT_WHOLE) != 0)
			return -ENOMEM;
		save = NULL;
	} else if (save && n) {
		take_out(s, n);
		tidy_name(s, n);
	}
	text = checkpoint_text(s, &c);
	name = text ? shape_name(s, path, text) : NULL;
	if (!name)
		return -ENOMEM;
	if (!is_newest(s, text) || !shapes_last_has(&s->shapes, text, name, path))
		return 0;
	if (!save)
		save = make_save(s, text);
	n = make_name(s, path);
	if (!save || !n || shape_add(&save->gone, name, 1) != 0 ||
	    (process && add_writer(save, process) != 0))
		return -ENOMEM;
	link_name(save, n);
	n->gone = true;
	save->changed_ns = s->now_ns;
	core = core_of(s, save);
	if (core_known(&core))
		set_changed(s);
	return 0;
}

/* ---- output ---- */

static int count_name(struct handle *h, uint64_t hash)
{
	for (size_t i = 0; i < h->saved_count; i++) {
		if (h->saved[i] == hash) {
			h->output = true;
			return 0;
		}
	}
	if (h->saved_count == SAVED_NAMES_MAX)
		return 0;
	if (array_reserve((void **)&h->saved, &h->saved_cap, h->saved_count, sizeof(*h->saved)) !=
	    0)
		return -ENOMEM;
	h->saved[h->saved_count++] = hash;
	return 0;
}

int count_for_output(struct saves *s, uint64_t process, const char *path)
{
	uint64_t hash;

	buf_reset(&s->text[1]);
	facts_numberless(path, &s->text[1]);
	if (buf_error(&s->text[1]) != 0)
		return -ENOMEM;
	hash = map_hash_text(0, buf_str(&s->text[1]));
	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l)) {
		struct handle *h = map_item(l, struct handle, link);

		if (h->process != process || h->output ||
		    (h->path && facts_belongs_to(path, h->path)))
			continue;
		if (count_name(h, hash) != 0)
			return -ENOMEM;
	}
	return 0;
}

/* ---- broken saves ---- */

static void free_beside(struct broken *b)
{
	for (struct beside *f = b->beside, *next; f; f = next) {
		next = f->next;
		free(f);
	}
}

void free_broken(struct saves *s, struct broken *b)
{
	struct broken **at = &s->broken;

	while (*at && *at != b)
		at = &(*at)->next;
	if (*at)
		*at = b->next;
	free_beside(b);
	free(b->checkpoint);
	free(b->path);
	free(b->writer);
	free(b);
}

/* The one of the checkpoint that this one takes the place of: what was changed in place is there until that file is saved again. */
static struct broken *find_replaced(const struct saves *s, const struct checkpoint_place *c,
				    const char *path)
{
	for (struct broken *b = s->broken; b; b = b->next)
		if (!b->half && checkpoint_is(c, b->checkpoint) &&
		    (!b->in_place || !strcmp(b->path, path)))
			return b;
	return NULL;
}

/* The files that the save has beside that one. */
static int keep_beside(struct broken *b, const struct save *save)
{
	for (const struct name *n = save->names; n; n = n->next) {
		size_t size = strlen(n->path) + 1;
		struct beside *f;

		if (!n->times || !strcmp(n->path, b->path))
			continue;
		f = malloc(sizeof(*f) + size);
		if (!f)
			return -ENOMEM;
		memcpy(f->path, n->path, size);
		f->next = b->beside;
		b->beside = f;
	}
	return 0;
}

/* The processes that wrote it, those that have the file open, and the one that was killed, which is the last one. */
static int keep_writers(const struct saves *s, struct broken *b, const struct save *save)
{
	size_t count = save ? save->writer_count : 0, cap = count + 1;

	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l))
		cap++;
	b->writer = reallocarray(NULL, cap, sizeof(*b->writer));
	if (!b->writer)
		return -ENOMEM;
	if (count)
		memcpy(b->writer, save->writer, count * sizeof(*b->writer));
	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l)) {
		const struct handle *h = map_item(l, struct handle, link);

		if (h->path && !strcmp(h->path, b->path))
			b->writer[count++] = h->process;
	}
	b->writer[count] = b->process;
	b->writer_count = count + 1;
	return 0;
}

static int fill_broken(const struct saves *s, struct broken *b, const struct save *save,
		       const char *checkpoint, const char *path)
{
	const struct save *newest = find_save_of(s, s->newest);

	b->checkpoint = strdup(checkpoint);
	b->path = strdup(path);
	if (!b->checkpoint || !b->path || (save && keep_beside(b, save) != 0))
		return -ENOMEM;
	/* What a program keeps in the root is of the save of its newest checkpoint, too. */
	if (*path && !*checkpoint && newest && newest != save && keep_beside(b, newest) != 0)
		return -ENOMEM;
	return keep_writers(s, b, save);
}

/* Whether the save, without the file, has left something: others, or the directory alone that it made. */
static bool has_left(const struct saves *s, const struct broken *b, const struct save *save)
{
	const struct name *directory = find_name(s, b->checkpoint);

	return b->in_place || b->beside || (save && save->gone.count) ||
	       (directory && directory->made && !(save && save->file_count));
}

int break_save(struct saves *s, const struct handle *h, const struct save_event *e)
{
	struct checkpoint_place c;
	const char *text, *final;
	struct save *save;
	struct broken *b, *before;

	buf_reset(&s->text[1]);
	facts_stands_for(e->path, &s->text[1]);
	final = text_of(&s->text[1], buf_str(&s->text[1]));
	if (!final)
		return -ENOMEM;
	c = facts_checkpoint(s->options.rules, final, false);
	text = checkpoint_text(s, &c);
	save = find_save(s, &c);
	b = calloc(1, sizeof(*b));
	if (!text || !b || fill_broken(s, b, save, text, final) != 0) {
		if (b)
			free_broken(s, b);
		return -ENOMEM;
	}
	b->process = h->process;
	b->writer[b->writer_count - 1] = h->process;
	b->how = e->facts & (SAVE_IS_KILLED | SAVE_IS_REFUSED | SAVE_IS_TORN);
	b->in_place = e->kind == SAVE_CLOSED && !facts_in_temporary(s->options.rules, e->path);
	if (!has_left(s, b, save)) {
		free_broken(s, b);
		return 0;
	}
	before = find_replaced(s, &c, final);
	if (before)
		free_broken(s, before);
	b->next = s->broken;
	s->broken = b;
	if (save)
		save->broken = true;
	set_changed(s);
	s->activity_ns = s->now_ns;
	return set_newest(s, text);
}

static int add_half(struct saves *s, const char *checkpoint, const struct save *save)
{
	struct broken *b = calloc(1, sizeof(*b)), *before;

	if (!b || fill_broken(s, b, save, checkpoint, "") != 0) {
		if (b)
			free_broken(s, b);
		return -ENOMEM;
	}
	b->half = true;
	b->writer_count = save ? save->writer_count : 0;
	before = (struct broken *)(uintptr_t)half_of(s, checkpoint);
	if (before)
		free_broken(s, before);
	b->next = s->broken;
	s->broken = b;
	return 0;
}

int keep_half(struct saves *s, const struct save *save)
{
	return add_half(s, save->checkpoint, save);
}

int note_half(struct saves *s, const char *checkpoint)
{
	return half_of(s, checkpoint) ? 0 : add_half(s, checkpoint, NULL);
}

int note_broken(struct saves *s, const char *path, bool torn)
{
	struct checkpoint_place c = facts_checkpoint(s->options.rules, path, false);
	const char *text = checkpoint_text(s, &c);
	struct broken *b = text ? calloc(1, sizeof(*b)) : NULL;

	if (!b || fill_broken(s, b, NULL, text, path) != 0) {
		if (b)
			free_broken(s, b);
		return -ENOMEM;
	}
	b->how = torn ? SAVE_IS_TORN : SAVE_IS_KILLED;
	b->in_place = true;
	b->writer_count = 0;
	b->next = s->broken;
	s->broken = b;
	return set_newest(s, b->checkpoint);
}

/* Whether that ends it: the killed file is saved again, or all that the save left is saved again or gone. */
static bool is_mended_by(struct broken *b, const char *path, bool saved)
{
	struct beside **at = &b->beside, *f;

	if (!strcmp(path, b->path)) {
		b->in_place = false;
		return saved || !b->beside;
	}
	while (*at && strcmp((*at)->path, path) != 0)
		at = &(*at)->next;
	f = *at;
	if (!f)
		return false;
	*at = f->next;
	free(f);
	return !b->beside && !b->in_place;
}

bool mend(struct saves *s, const char *path, bool saved)
{
	bool any = false;

	for (struct broken *b = s->broken, *next; b; b = next) {
		next = b->next;
		if (!is_mended_by(b, path, saved))
			continue;
		free_broken(s, b);
		any = true;
	}
	return any;
}
