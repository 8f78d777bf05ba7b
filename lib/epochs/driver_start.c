/* SPDX-License-Identifier: Apache-2.0 */
/* What the mount before knew, what it left, and what happened until the rules could be told. */
#include "lib/epochs/driver_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/epochs/epochs.h"
#include "lib/epochs/record_fill.h"
#include "lib/live/bodies.h"
#include "lib/meta/doubts.h"
#include "lib/saves/judge_rules.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

void driver_keep_event(struct driver *d, const struct save_event *e)
{
	save_event_print(&d->before, e);
	buf_put_u8(&d->before, '\n');
}

/* From this number on handles are made up for what the mount before left. */
#define LOST_HANDLE (UINT64_MAX / 2)
/* Whoever wrote then: how he ended nobody knows. */
#define LOST_PROCESS (UINT64_C(1) << 62)

/* A file that was written, as two events. */
static void keep_written(struct driver *d, const char *path, unsigned how,
			 const struct save_event *end)
{
	struct save_event e = {.kind = SAVE_OPENED,
			       .at_ns = driver_now_ns(),
			       .process = LOST_PROCESS,
			       .handle = LOST_HANDLE + d->lost++,
			       .path = path,
			       .facts = how};

	driver_keep_event(d, &e);
	e = *end;
	e.at_ns = driver_now_ns();
	e.handle = LOST_HANDLE + d->lost - 1;
	e.path = path;
	driver_keep_event(d, &e);
}

/* Recovery found that the writer of this file was killed: afterwards its end is told with the file. */
void driver_doubt_locked(struct volume *vol, const struct body *b, bool undone, const char *why)
{
	const struct save_event end = {.kind = undone ? SAVE_UNDONE : SAVE_CLOSED,
				       .facts = SAVE_IS_KILLED};
	cleanup_buf struct buf path = {0};

	(void)why;
	if (driver_is_started(vol))
		return;
	volume_path_locked(vol, b->ino, &path);
	if (path.len && !buf_error(&path))
		keep_written(vol->driver, buf_str(&path),
			     b->pending ? SAVE_IS_REPLACE : SAVE_IS_NEW, &end);
}

/* What has changed since the last epoch, below a directory. */
struct left {
	struct volume *vol;
	uint64_t dir;
};

static int keep_left(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	const struct left *left = arg;
	struct volume *vol = left->vol;
	struct save_event e = {.kind = SAVE_MADE, .process = LOST_PROCESS};
	struct left below = {vol, f ? f->ino : 0};
	cleanup_buf struct buf path = {0};
	struct state_version v = {0};

	(void)n;
	if (!f)
		return 0;
	volume_path_locked(vol, left->dir, &path);
	buf_printf(&path, "%s%s", path.len ? "/" : "", name);
	if (buf_error(&path))
		return -ENOMEM;
	if (S_ISDIR(f->mode)) {
		e.at_ns = driver_now_ns();
		e.path = buf_str(&path);
		if (f->born >= vol->next_epoch)
			driver_keep_event(vol->driver, &e);
		return state_dir_list(vol->state, f->ino, 0, keep_left, &below);
	}
	if (!f->closed || state_version_get(vol->state, f->closed, &v) != 0 ||
	    v.born < vol->next_epoch)
		return 0;
	e = (struct save_event){.kind = SAVE_CLOSED, .size = v.size};
	keep_written(vol->driver, buf_str(&path),
		     f->born < vol->next_epoch ? SAVE_IS_REPLACE : SAVE_IS_NEW, &e);
	return 0;
}

/* Tells what was kept; the paths are of the buffer. */
static int tell_kept_locked(struct volume *vol, struct buf *kept)
{
	cleanup_free char *text = strdup(buf_str(kept));
	struct save_event e;
	char *rest = NULL;

	if (!text || buf_error(kept))
		return -ENOMEM;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (save_event_parse(line, &e) == 0)
			driver_apply_locked(vol, &e);
	return 0;
}

void driver_tell_lost_ended_locked(struct volume *vol)
{
	const struct save_event ended = {.kind = SAVE_ENDED,
					 .at_ns = driver_now_ns(),
					 .process = LOST_PROCESS,
					 .facts = SAVE_IS_UNKNOWN};

	vol->driver->lost_lives = false;
	driver_apply_locked(vol, &ended);
}

/* What the mount before left that is in no epoch. */
static int tell_left_locked(struct volume *vol)
{
	struct driver *d = vol->driver;
	struct buf found = d->before;
	const struct pending *p = &vol->sealer->pending;
	struct left left = {vol, ROOT_INO};
	int error = 0;

	d->before = (struct buf){0};
	if (p->opens || p->rides)
		error = state_dir_list(vol->state, ROOT_INO, 0, keep_left, &left);
	if (!error)
		error = tell_kept_locked(vol, &d->before);
	buf_free(&d->before);
	d->before = found;
	/* Something was removed, say. */
	if (p->opens && !saves_dirty(d->saves))
		saves_found_changed(d->saves);
	return error;
}

/*
 * What recovery found, and that nobody is left who wrote it. Where it was the process alone that ended (survivors.h), that is so once those have ended
 * who have files open.
 */
static int tell_found_locked(struct volume *vol)
{
	struct driver *d = vol->driver;
	int error = tell_kept_locked(vol, &d->before);

	d->lost_lives = vol->options.survivors != NULL;
	if (!error && !d->lost_lives)
		driver_tell_lost_ended_locked(vol);
	buf_free(&d->before);
	return error;
}

/* Nothing of one that is not there, or is damaged, which the index tells. */
static int record_of_locked(struct volume *vol, uint64_t number, struct epoch_record *ret_record)
{
	struct state_epoch row;
	int error = state_epoch_get(vol->state, number, &row);

	if (error)
		return error == -ENOENT ? 0 : error;
	if (row.record)
		error = record_decode(row.record, strlen(row.record), ret_record);
	state_epoch_free(&row);
	return error == -ENOMEM ? error : 0;
}

/* "EPOCH\n", and what was known before that one was sealed. */
#define KNOWN_KEY "saves"

void driver_keep_known_locked(struct volume *vol)
{
	struct buf *kept = &vol->driver->kept, text = {0};
	int error;

	buf_printf(&text, "%" PRIu64 "\n", vol->next_epoch);
	saves_put_known(vol->driver->saves, &text);
	if (!buf_error(&text) && text.len == kept->len &&
	    !memcmp(text.data, kept->data, text.len)) {
		buf_free(&text);
		return;
	}
	buf_free(kept);
	*kept = text;
	error = buf_error(kept) ? -ENOMEM : state_set_meta(vol->state, KNOWN_KEY, buf_str(kept));
	if (error)
		log_warn("what is known of a broken save may not outlast this mount: %s",
			 strerror(-error));
}

/* What was put down since the last epoch; NULL: nothing. */
static const char *kept_since_locked(struct volume *vol, struct buf *text)
{
	char *rest = NULL;

	if (state_get_meta(vol->state, KNOWN_KEY, text) != 0 || buf_error(text) ||
	    /* Of one that had begun and was not frozen it is greater. */
	    strtoull(buf_str(text), &rest, 10) < vol->next_epoch || *rest != '\n')
		return NULL;
	return rest + 1;
}

/* Of what is malformed nothing is known: a record is an enemy's until it is checked. */
static int warn_malformed(int error)
{
	if (error != -EINVAL)
		return error;
	log_warn(
		"what is known of the saves before this mount is malformed in part, and that is left out");
	return 0;
}

/* An epoch of several nodes, or of an earlier version, names what it is not whole for. */
static int take_doubts_locked(struct volume *vol, const struct epoch_record *r)
{
	int error = 0;

	for (size_t i = 0; !error && r->complete == RECORD_INCOMPLETE && i < r->doubt_count; i++)
		if (r->doubts[i].counts)
			error = saves_found_broken(vol->driver->saves, r->doubts[i].path,
						   doubt_kind_parse(r->doubts[i].kind) ==
							   DOUBT_TORN);
	return error;
}

/* What the mount before knew and left: what was put down since the newest epoch is of the time after that was changed. */
static int take_over_locked(struct volume *vol)
{
	const struct epoch_index *x = epochs_index_locked(vol);
	cleanup_record struct epoch_record newest = {0};
	uint64_t number = x ? epoch_index_newest(x) : 0;
	struct saves *saves = vol->driver->saves;
	cleanup_buf struct buf text = {0};
	const char *kept = kept_since_locked(vol, &text), *known;
	int error = number ? record_of_locked(vol, number, &newest) : 0;

	known = kept ? kept : newest.saves;
	if (!error && known)
		error = warn_malformed(saves_take_known(saves, known));
	if (!error && known && !kept)
		error = warn_malformed(saves_take_broken(saves, known));
	if (!error && !known)
		error = take_doubts_locked(vol, &newest);
	if (!error)
		error = tell_left_locked(vol);
	if (!error && kept)
		error = warn_malformed(saves_take_broken(saves, kept));
	return error ? error : tell_found_locked(vol);
}

/* The live tree is half where its epoch was pending, and nobody is left who would go on. */
static int look_at_current_locked(struct volume *vol)
{
	cleanup_record struct epoch_record current = {0};
	const struct judge_rule *rule;
	int error = vol->current_epoch ? record_of_locked(vol, vol->current_epoch, &current) : 0;

	rule = !error && current.rule ? judge_rule_of(current.rule) : NULL;
	if (!rule || rule->verdict != VERDICT_PENDING || vol->driver->lost_lives)
		return error;
	return saves_found_pending(vol->driver->saves);
}

int driver_start(struct volume *vol)
{
	const struct saves_options o = {
		.rules = vol->rules,
		.no_last_files = vol->options.no_last_files,
		.settle_ns = vol->options.settle_ns,
		.patience_ns = vol->options.patience_ns,
		.resume = vol->options.resume,
	};
	struct driver *d = vol->driver;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = saves_new(&o, &d->saves);
	if (!error)
		error = take_over_locked(vol);
	return error ? error : look_at_current_locked(vol);
}
