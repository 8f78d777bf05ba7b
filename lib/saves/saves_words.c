/* SPDX-License-Identifier: Apache-2.0 */
/* The words that the rules of saves are made of: predicates of what is known. */
#include "lib/saves/saves_internal.h"

#include <string.h>

/* ---- saves ---- */

struct core core_of(const struct saves *s, const struct save *save)
{
	return shapes_core(&s->shapes, save->checkpoint, &save->shape, &save->gone);
}

bool is_full(const struct saves *s, const struct save *save)
{
	struct core core = core_of(s, save);

	return core_known(&core) && core_within(&core, &save->shape);
}

bool is_part(const struct saves *s, const struct save *save)
{
	struct core core = core_of(s, save);

	return core_known(&core) && !core_within(&core, &save->shape);
}

bool is_note(const struct name *n)
{
	return facts_note(n->size, n->save->size);
}

bool only_moves(const struct saves *s, const struct save_event *e)
{
	const struct name *n = find_name(s, e->path);

	return !(n && (n->times || n->changed)) && !(e->facts & SAVE_IS_OVER) &&
	       !facts_in_temporary(s->options.rules, e->path);
}

bool is_newest(const struct saves *s, const char *checkpoint)
{
	return !*checkpoint || !strcmp(checkpoint, s->newest);
}

/* ---- processes ---- */

const uint64_t *one_that_lives(const struct saves *s, const uint64_t *processes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (processes[i] != NOBODY && !find_ended(s, processes[i]))
			return &processes[i];
	return NULL;
}

bool ended_badly(const struct saves *s, const uint64_t *processes, size_t count, bool known)
{
	bool badly = false;

	for (size_t i = 0; i < count; i++) {
		const struct ended *e = find_ended(s, processes[i]);

		if (!e)
			return false;
		badly |= e->badly || (e->unknown && !known);
	}
	return badly;
}

static bool names_process(const uint64_t *processes, size_t count, uint64_t process)
{
	for (size_t i = 0; i < count; i++)
		if (processes[i] == process)
			return true;
	return false;
}

/* It closed something that is cut off, and that is there. */
static bool names_torn(const struct saves *s, uint64_t process)
{
	for (struct map_link *l = s->torn_count ? map_next(&s->names, NULL) : NULL; l;
	     l = map_next(&s->names, l)) {
		const struct name *n = map_item(l, struct name, link);

		if (n->torn && n->process == process)
			return true;
	}
	return false;
}

bool is_process_named(const struct saves *s, uint64_t process)
{
	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l))
		if (map_item(l, struct handle, link)->process == process)
			return true;
	for (const struct save *save = s->newest_save; save; save = save->next)
		if (names_process(save->writer, save->writer_count, process))
			return true;
	for (const struct broken *b = s->broken; b; b = b->next)
		if (names_process(b->writer, b->writer_count, process))
			return true;
	return names_torn(s, process);
}

/* ---- what is open ---- */

bool saves_path_is_output(const struct saves *s, const char *path)
{
	const struct name *n = find_name(s, path);

	if ((n && n->output) || facts_log(s->options.rules, path))
		return true;
	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l)) {
		const struct handle *h = map_item(l, struct handle, link);

		if (h->output && h->path && !strcmp(h->path, path))
			return true;
	}
	return false;
}

bool saves_path_stays(const struct saves *s, const char *path)
{
	const struct name *n = find_name(s, path);

	return (n && n->grows) || saves_path_is_output(s, path);
}

bool is_output(const struct saves *s, const struct handle *h)
{
	const struct name *n = h->path ? find_name(s, h->path) : NULL;

	return h->output || (n && n->output) || (h->path && facts_log(s->options.rules, h->path));
}

bool saves_handle_is_output(const struct saves *s, uint64_t handle)
{
	const struct handle *h = find_handle(s, handle);

	return h && is_output(s, h);
}

bool is_fresh(const struct saves *s, const struct handle *h)
{
	return h->seals == s->seals && h->how != SAVE_IS_EDIT && !is_output(s, h);
}

bool is_written(const struct saves *s)
{
	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l))
		if (!is_output(s, map_item(l, struct handle, link)))
			return true;
	return false;
}

/* ---- unfinished ---- */

/* The end of the patience with something: of those in (after, until] the first. NEVER where there is none. */
static int64_t first_end(const struct saves *s, int64_t after, int64_t until, const char *but)
{
	int64_t patience = s->options.patience_ns, first = NEVER;

	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l)) {
		const struct handle *h = map_item(l, struct handle, link);
		int64_t end = h->opened_ns + patience;

		if (end > after && end <= until && end < first && is_fresh(s, h))
			first = end;
	}
	for (const struct name *n = s->temporaries; n; n = n->next_temporary) {
		int64_t end = n->temporary_ns + patience;

		if (end > after && end <= until && end < first && !(but && !strcmp(n->path, but)))
			first = end;
	}
	return first;
}

bool is_unfinished(const struct saves *s, int64_t now_ns, const char *but)
{
	return first_end(s, now_ns, NEVER, but) != NEVER;
}

int64_t patience_end(const struct saves *s)
{
	return first_end(s, s->now_ns, NEVER, NULL);
}

bool is_overdue(const struct saves *s)
{
	return saves_dirty(s) && first_end(s, s->dirty_ns - 1, s->now_ns, NULL) != NEVER;
}

/* ---- what is broken ---- */

const struct broken *half_of(const struct saves *s, const char *checkpoint)
{
	const struct broken *b = s->broken;

	while (b && !(b->half && !strcmp(b->checkpoint, checkpoint)))
		b = b->next;
	return b;
}

bool lived_at_kill(const struct saves *s, const char *path, uint64_t process)
{
	for (const struct broken *b = s->broken; b; b = b->next)
		if (b->in_place && process && !strcmp(b->path, path) &&
		    names_process(b->writer, b->writer_count, process))
			return true;
	return false;
}

bool any_full(const struct saves *s)
{
	for (const struct save *save = s->newest_save; save; save = save->next)
		if (!save->broken && is_full(s, save))
			return true;
	return false;
}

bool is_void(const struct saves *s, const struct broken *b)
{
	if (!b->half && saves_path_is_output(s, b->path))
		return true;
	for (const struct save *save = s->newest_save; save; save = save->next)
		if (!save->broken && facts_same_kind(save->checkpoint, b->checkpoint) &&
		    is_full(s, save))
			return true;
	return false;
}
