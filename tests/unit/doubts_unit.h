/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of saves told in words: of a tree that is a list of paths, and its epochs. */
#ifndef EPOCHFS_TESTS_DOUBTS_UNIT_H
#define EPOCHFS_TESTS_DOUBTS_UNIT_H

#include "lib/meta/partial_save.h"
#include "tests/unit/doubts_tree_unit.h"

/*
 * A history is words with blanks between them. A step that a rule looks at is the last thing that is said of it:
 *   w:PATH      saved whole, by O_TRUNC or as a new file        o:PATH, c:PATH   the same, opened and closed apart
 *   v:PATH      saved whole, by who was started after the writers were killed
 *   t:PATH      saved torn inside and closed (Ctrl-C)           p:PATH           found torn after a power loss
 *   k:PATH      a save whose writer was killed, so undone       e:PATH           a database left by a killed writer
 *   a:PATH      killed on a node of a set: other nodes may have saved files with it
 *   h:PATH      left half under a temporary name by a killed writer: it had been fsynced
 *   r:PATH      removed, or all that is below it                m:PATH:PATH      renamed, or all that is below it
 *   u:PATH      touched: its mtime is the newest
 *   +  -        sealed: complete, incomplete                    W                sealed by the word of somebody who knows
 *   ~           sealed: complete, and it continues the epoch before, which then is no longer
 *   !           sealed: nothing is in doubt, and it is incomplete for another reason
 *   b:N         rolled back to the Nth epoch: a new one         x                the next writer is another machine
 *   i           the next epoch is imported from a directory: what is not saved, removed or torn after this is unchanged
 *   n:K         so many doubts stand in the epoch that was sealed last
 *   d:PATH      one of them is of this path
 *//* ---- sealing ---- */

static uint64_t base_of(const struct world *w, const struct kill *k)
{
	for (uint64_t n = k->since - 1; n > 0; n--)
		if (w->complete[n])
			return n;
	return 0;
}

/* A save makes the directories that it needs, and a killed one leaves them. */
static bool parent_is_new(const struct world *w, const struct kill *k, uint64_t base)
{
	const char *slash = strrchr(k->path, '/');

	for (size_t i = 0; slash && i < w->epochs[base].file_count; i++)
		if (!strncmp(w->epochs[base].files[i].path, k->path, (size_t)(slash - k->path + 1)))
			return false;
	return slash && !k->gone;
}

static void tell_kill(struct world *w, struct doubts *d, const struct kill *k)
{
	const struct file *f = find(w, k->path);
	uint64_t again[16], together[16];
	struct doubts_kill kill = {
		.id = k->id,
		.kind = k->kind,
		.path = k->path,
		.why = "its writer was killed",
		.since = k->since,
		.base = base_of(w, k),
		.noted = k->noted,
		.ino_then = k->ino_then,
		.version_then = k->version_then,
		.parent_is_gone = k->gone,
		.ino_now = f ? f->ino : 0,
		.version_now = f ? f->version : 0,
		.judged = k->judged,
		.alone = k->alone,
		.companions = k->companions,
		.companion_count = k->companion_count,
		.again = again,
		.until = doubt_name_is_temporary(w->rules, k->path) ? 0 : k->until,
		.together = together,
	};

	kill.parent_is_new = !k->gone && (k->judged || parent_is_new(w, k, kill.base));
	for (size_t i = 0; i < k->again_count; i++)
		if (k->again_born[i] >= kill.since)
			again[kill.again_count++] = k->again[i];
		else if (k->again_born[i] == k->born_then)
			together[kill.together_count++] = k->again[i];
	unit_ok(doubts_add_kill(d, &kill));
}

static struct kill *kill_of(struct world *w, uint64_t id)
{
	for (size_t i = 0; i < w->now.kill_count; i++)
		if (w->now.kills[i].id == id)
			return &w->now.kills[i];
	ck_abort_msg("no kill %lu", (unsigned long)id);
}

/* What doubts_judged_locked does. */
static void keep(struct world *w, const struct doubt *doubt)
{
	struct kill *k;

	if (doubt->kind == DOUBT_TORN || doubt->postponed)
		return;
	k = kill_of(w, doubt->id);
	if (!doubt->stands || doubt->kind == DOUBT_LEFT) {
		*k = w->now.kills[--w->now.kill_count];
		return;
	}
	k->judged = true;
	snprintf(k->noted, sizeof(k->noted), "%s", doubt->noted ? doubt->noted : doubt->path);
	k->alone = doubt->alone;
	k->companion_count = 0;
	for (size_t i = 0; i < doubt->companion_count; i++) {
		k->companions[k->companion_count] = doubt->companions[i];
		snprintf(k->companion_paths[k->companion_count++], 64, "%s",
			 doubt->companions[i].path);
	}
}

/* What doubts_find_gone does. */
static void tell_what_is_gone(struct world *w, struct doubts *d)
{
	for (uint64_t base = 0; (base = doubts_next_base(d, base));)
		for (size_t i = 0; i < w->epochs[base].file_count; i++)
			if (!find(w, w->epochs[base].files[i].path))
				doubts_add_gone(d, base, w->epochs[base].files[i].path);
}

/* What doubts_tell_record does. */
static void tell_record(const struct world *w, struct doubts *d, uint64_t number)
{
	if (w->newest[number][0])
		unit_ok(doubts_set_before(d, w->newest[number]));
	for (size_t i = 0; i < w->part_count[number]; i++)
		unit_ok(doubts_set_part(d, w->parts[number][i][0], w->parts[number][i][1]));
}

static void record_part(struct world *w, const struct doubt *doubt)
{
	char(*part)[64] = w->parts[w->last][w->part_count[w->last]];

	if (doubt->kind != DOUBT_TORN || !doubt->companion_count)
		return;
	ck_assert_uint_lt(w->part_count[w->last]++, 4);
	snprintf(part[0], sizeof(part[0]), "%s", doubt->path);
	snprintf(part[1], sizeof(part[1]), "%s", doubt->companions[0].path);
}

/* What freezing finds in the state. */
static const char *part_beside(const struct world *w, const struct file *f)
{
	for (size_t i = 0; f->torn && f->replaced && i < w->now.file_count; i++) {
		const struct file *other = &w->now.files[i];

		if (other != f && other->replaced == f->replaced &&
		    doubt_same_shape_beside(other->path, f->path))
			return other->path;
	}
	return NULL;
}

static bool seal(struct world *w, uint64_t restores)
{
	cleanup_doubts struct doubts *d = NULL;
	const struct doubt *list;
	size_t count;

	unit_ok(doubts_new(w->rules, restores ? UINT64_MAX : w->last, &d));
	tell_record(w, d, restores ? restores : w->last);
	for (size_t i = 0; i < w->now.kill_count; i++)
		tell_kill(w, d, &w->now.kills[i]);
	for (size_t i = 0; i < w->now.file_count; i++) {
		const struct file *f = &w->now.files[i];

		unit_ok(doubts_add_file(
			d, &(const struct doubts_file){
				   .path = f->path,
				   .ino = f->ino,
				   .version = f->version,
				   .born = f->born,
				   .came = !restores && f->came_after == w->last ? f->came : 0,
				   .mtime_ns = (int64_t)(f->touched ? f->touched : f->opened),
				   .torn = f->torn ? "torn" : NULL,
				   .part_beside = part_beside(w, f)}));
	}
	tell_what_is_gone(w, d);
	unit_ok(doubts_decide(d));
	list = doubts_list(d, &count);
	w->standing_count = 0;
	w->last++;
	for (size_t i = 0; i < count; i++) {
		if (list[i].stands)
			snprintf(w->standing[w->standing_count++], 64, "%s", list[i].path);
		keep(w, &list[i]);
		record_part(w, &list[i]);
	}
	w->epochs[w->last] = w->now;
	if (doubts_newest(d))
		snprintf(w->newest[w->last], 64, "%s", doubts_newest(d));
	return w->complete[w->last] = doubts_counting(d) == 0;
}

/* The tree of an epoch, as a rollback or another machine makes it: other files, other versions, the record's doubts. */
static void load(struct world *w, uint64_t number, uint64_t born)
{
	w->now = w->epochs[number];
	for (size_t i = 0; i < w->now.file_count; i++) {
		struct file *f = &w->now.files[i];

		f->opened = f->version > f->opened ? f->version : f->opened; /* its mtime stays */
		f->ino = ++w->inos;
		f->version = ++w->versions;
		f->born = born;
		f->replaced = 0;
	}
	for (size_t i = 0; i < w->now.kill_count; i++) {
		struct kill *k = &w->now.kills[i];
		const struct file *f = find(w, k->path);

		if (!k->judged) {
			w->now.kills[i--] = w->now.kills[--w->now.kill_count];
			continue;
		}
		k->id = ++w->versions;
		k->ino_then = f ? f->ino : 0;
		k->version_then = f ? f->version : 0;
		for (size_t c = 0; c < k->companion_count; c++) {
			f = find(w, k->companion_paths[c]);
			k->companions[c] = (struct doubt_companion){f ? f->ino : UINT64_MAX,
								    f ? f->version : 0, NULL};
		}
	}
}

/* ---- half a save ---- */

static const struct file *find_in(const struct tree *t, const char *path)
{
	for (size_t i = 0; t && i < t->file_count; i++)
		if (!strcmp(t->files[i].path, path))
			return &t->files[i];
	return NULL;
}

/* What rollback_half finds. */
static void find_half(const struct world *w, uint64_t number, struct partial_save *half)
{
	const struct tree *tree = &w->epochs[number], *before = NULL, *rest = tree;

	for (uint64_t n = 1; n < number; n++)
		before = w->complete[n] ? &w->epochs[n] : before;
	for (uint64_t n = number; w->continued_by[n]; n = w->continued_by[n])
		rest = &w->epochs[w->continued_by[n]];
	for (size_t i = 0; i < tree->file_count; i++) {
		const struct file *f = &tree->files[i], *old = find_in(before, f->path);

		if (!old || old->content != f->content)
			unit_ok(partial_save_add_changed(half, f->path, (int64_t)f->opened));
	}
	for (size_t i = 0; i < rest->file_count; i++)
		if (!find_in(tree, rest->files[i].path))
			unit_ok(partial_save_add_rest(half, rest->files[i].path,
						      (int64_t)rest->files[i].opened));
}

/* What doubts_add_locked does. */
static void add_half(struct world *w, const struct record_doubt *d)
{
	struct kill *k = &w->now.kills[w->now.kill_count++];
	const struct file *f = find(w, d->path);

	*k = (struct kill){.kind = DOUBT_UNDONE,
			   .id = ++w->versions,
			   .since = d->since,
			   .judged = true,
			   .ino_then = f ? f->ino : 0,
			   .version_then = f ? f->version : 0};
	snprintf(k->path, sizeof(k->path), "%s", d->path);
	memmove(k->noted, k->path, sizeof(k->noted));
	for (size_t i = 0; i < d->companion_count; i++) {
		f = find(w, d->companions[i]);
		k->companions[k->companion_count] =
			(struct doubt_companion){f->ino, f->version, NULL};
		snprintf(k->companion_paths[k->companion_count++], 64, "%s", d->companions[i]);
	}
}

static void take_half(struct world *w, uint64_t number)
{
	cleanup_partial_save struct partial_save *half = NULL;
	struct record_doubt *list;
	size_t count;

	unit_ok(partial_save_new(w->rules, &half));
	find_half(w, number, half);
	unit_ok(partial_save_doubts(half, number, &list, &count));
	for (size_t i = 0; i < count; i++)
		add_half(w, &list[i]);
	record_doubts_free(list, count);
}

static void roll_back(struct world *w, uint64_t number)
{
	load(w, number, w->last + 1);
	if (w->half[number])
		take_half(w, number);
	seal(w, number);
	w->complete[w->last] &= w->complete[number];
}

/* ---- words ---- */

static void by_word(struct world *w)
{
	for (size_t i = 0; i < w->now.file_count; i++)
		w->now.files[i].torn = false;
	w->now.kill_count = 0;
}

static bool stands(const struct world *w, const char *path)
{
	for (size_t i = 0; i < w->standing_count; i++)
		if (!strcmp(w->standing[i], path))
			return true;
	return false;
}

static void do_file_word(struct world *w, const char *word, char *path)
{
	char *to = strchr(path, ':');

	if (to)
		*to++ = '\0';
	switch (*word) {
	case 'w':
		save(w, path, ++w->versions, false);
		goes_on(w);
		break;
	case 'v':
		save(w, path, ++w->versions, false);
		break;
	case 't':
		save(w, path, ++w->versions, true);
		break;
	case 'o':
		add(w, "(open)")->opened = ++w->versions;
		break;
	case 'c':
		save(w, path, find(w, "(open)")->opened, false);
		drop(w, (size_t)(find(w, "(open)") - w->now.files));
		break;
	case 'u':
		find(w, path)->touched = ++w->versions;
		break;
	case 'p':
		find(w, path)->torn = true;
		break;
	case 'k':
		kill_writer(w, path, DOUBT_UNDONE);
		break;
	case 'a':
		kill_writer(w, path, DOUBT_UNDONE)->alone = true;
		break;
	case 'e':
		save(w, path, ++w->versions, false);
		kill_writer(w, path, DOUBT_LEFT);
		break;
	case 'h':
		save(w, path, ++w->versions, true);
		kill_writer(w, path, DOUBT_UNDONE);
		break;
	case 'r':
		remove_below(w, path);
		break;
	case 'm':
		rename_below(w, path, to);
		break;
	default:
		ck_abort_msg("%s", word);
	}
}

static void do_word(struct world *w, const char *name, char *word)
{
	switch (*word) {
	case '+':
	case '-':
		ck_assert_msg(seal(w, 0) == (*word == '+'), "%s: epoch %lu", name,
			      (unsigned long)w->last);
		break;
	case '~':
		ck_assert_msg(seal(w, 0), "%s: epoch %lu", name, (unsigned long)w->last);
		w->complete[w->last - 1] = false;
		w->half[w->last - 1] = true;
		w->continued_by[w->last - 1] = w->last;
		break;
	case '!':
		ck_assert_msg(seal(w, 0), "%s: epoch %lu", name, (unsigned long)w->last);
		w->complete[w->last] = false;
		w->half[w->last] = true;
		break;
	case 'W':
		by_word(w);
		ck_assert_msg(seal(w, 0), "%s: by word", name);
		break;
	case 'b':
		roll_back(w, strtoull(word + 2, NULL, 10));
		ck_assert_msg(w->complete[w->last] == w->complete[strtoull(word + 2, NULL, 10)],
			      "%s: %s", name, word);
		break;
	case 'x':
		load(w, w->last, 1);
		break;
	case 'i':
		/* What import_doubts_file does: a new inode each, and what is unchanged is as old as the epoch before. */
		load(w, w->last, w->last);
		break;
	case 'n':
		ck_assert_msg(w->standing_count == strtoull(word + 2, NULL, 10),
			      "%s: %zu stand in epoch %lu", name, w->standing_count,
			      (unsigned long)w->last);
		break;
	case 'd':
		ck_assert_msg(stands(w, word + 2), "%s: %s", name, word);
		break;
	default:
		do_file_word(w, word, word + 2);
	}
}

#endif
