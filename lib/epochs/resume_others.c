/* SPDX-License-Identifier: Apache-2.0 */
/* What comes of a save after the live tree went back: other processes may not know of it, and go on. */
#include "lib/epochs/resume.h"

#include <stdlib.h>
#include <string.h>
#include "lib/cache/context.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/util/clock.h"
#include "lib/util/log.h"
#include "lib/util/process.h"
#include "lib/live/bodies.h"

/* A pid is not given again so soon. */
#define SEEN_LATELY_NS NS_PER_S

void resume_rest_clear(struct resume_rest *rest)
{
	for (unsigned i = 0; i < rest->count; i++)
		free(rest->files[i].path);
	*rest = (struct resume_rest){0};
}

static void forget(struct resume_rest *rest, unsigned i)
{
	free(rest->files[i].path);
	rest->files[i] = rest->files[--rest->count];
}

void resume_rest_forget(struct resume_rest *rest, const char *path)
{
	for (unsigned i = rest->count; i-- > 0;)
		if (!strcmp(rest->files[i].path, path))
			forget(rest, i);
}

static bool is_known(const struct resume_rest *rest, const char *path)
{
	for (unsigned i = 0; i < rest->count; i++)
		if (!strcmp(rest->files[i].path, path))
			return true;
	return false;
}

void resume_rest_begin_locked(struct volume *vol, const struct resume_due *due)
{
	struct resume_rest *rest = &vol->resume->rest;

	for (unsigned i = 0; i < due->count && rest->count < RESUME_PATHS_MAX; i++) {
		const char *path = due->files[i].path;
		/* The time is that of the first going back: whoever saves on and on is let alone in the end. */
		char *copy = is_known(rest, path) ? NULL : strdup(path);

		if (copy)
			rest->files[rest->count++] = (struct resume_taken){
				.path = copy,
				.before_ns = due->files[i].before_ns,
				.until_ns = clock_mono_ns() + vol->options.patience_ns,
			};
	}
}

static void doubt_again_locked(struct volume *vol, const char *path)
{
	int error = doubts_again_locked(vol, path, "the rest of its save came later");

	if (error)
		log_warn("%s: its save is half, and that could not be noted: %s", path,
			 strerror(-error));
	resume_due_again_locked(vol, path);
}

static void forget_old(struct resume_rest *rest)
{
	int64_t now = clock_mono_ns();

	for (unsigned i = rest->count; i-- > 0;)
		if (rest->files[i].until_ns <= now)
			forget(rest, i);
}

static struct resume_saver *find_saver(struct resume_rest *rest, pid_t pid)
{
	for (unsigned i = 0; i < RESUME_SAVERS_MAX; i++)
		if (rest->savers[i].pid == pid)
			return &rest->savers[i];
	return NULL;
}

/* NULL: it is not known who it is. */
static const struct resume_saver *note_saver(struct resume_rest *rest, pid_t by)
{
	struct resume_saver *s = by > 0 ? find_saver(rest, by) : NULL;
	int64_t now = clock_mono_ns();
	uint64_t started;

	if (s && now - s->seen_ns < SEEN_LATELY_NS)
		return s;
	started = process_started(by);
	if (!started)
		return NULL;
	if (!s || s->started != started) {
		if (!s)
			s = &rest->savers[rest->next_saver++ % RESUME_SAVERS_MAX];
		*s = (struct resume_saver){.pid = by, .started = started, .first_ns = now};
	}
	s->seen_ns = now;
	return s;
}

void resume_saved_locked(struct volume *vol, uint64_t ino, pid_t by)
{
	struct resume_rest *rest = &vol->resume->rest;
	cleanup_buf struct buf path = {0};
	const struct resume_saver *s;

	if (!vol->options.resume || file_is_log_locked(vol, ino))
		return;
	s = note_saver(rest, by);
	if (!rest->count)
		return;
	volume_path_locked(vol, ino, &path);
	resume_rest_forget(rest, buf_str(&path));
	forget_old(rest);
	for (unsigned i = 0; s && path.len && i < rest->count; i++)
		if (s->first_ns < rest->files[i].before_ns &&
		    resume_is_of_unit(vol, buf_str(&path), rest->files[i].path))
			doubt_again_locked(vol, rest->files[i].path);
}
