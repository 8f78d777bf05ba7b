/* SPDX-License-Identifier: Apache-2.0 */
/* Other processes: who is waited for before the live tree goes back, and what comes of a save after that, as they go on. */
#include "lib/epochs/resume.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/cache/context.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"
#include "lib/live/bodies.h"
#include "lib/util/clock.h"
#include "lib/util/log.h"
#include "lib/util/process.h"

/* Whether a process has ended, that is waited for, is looked at often at first: so many times in as long as it took. */
#define LOOKS		32
#define LOOK_FIRST_NS	(30 * NS_PER_MS)
#define LOOK_LONGEST_NS NS_PER_S

/* The kernel knows in ticks of 10 ms when a process was started, and a close is taken in a moment later. */
#define START_NS (20 * NS_PER_MS)

/* A pid is not given again so soon. */
#define SEEN_LATELY_NS NS_PER_S

/* ---- who is waited for ---- */

bool resume_is_above(const struct resume_due *due, pid_t pid)
{
	for (unsigned i = 0; i < due->above_count; i++)
		if (due->above[i] == pid)
			return true;
	return false;
}

bool resume_is_of_unit(const struct volume *vol, const char *path, const char *of)
{
	struct doubt_unit unit = doubt_unit_of(vol->rules, path),
			  other = doubt_unit_of_kill(vol->rules, of);

	return doubt_unit_same(path, &unit, of, &other);
}

static bool is_due_unit(struct volume *vol, const char *path)
{
	const struct resume_due *due = &vol->resume->due;

	for (unsigned i = 0; i < due->count; i++)
		if (resume_is_of_unit(vol, path, due->files[i].path))
			return true;
	return due->all;
}

/* Somebody may be at work on the rest of that save, or on another: the whole tree goes back. */
static int writes_there(void *arg, struct body *b)
{
	cleanup_buf struct buf path = {0};
	struct volume *vol = arg;

	if (!b->writers || b->orphan || b->append_only || body_is_output_locked(vol, b))
		return 0;
	volume_path_locked(vol, b->ino, &path);
	return path.len && (b->staged || is_due_unit(vol, buf_str(&path)));
}

bool resume_is_empty(const struct resume_due *due)
{
	for (unsigned i = 0; i < due->count; i++)
		if (!due->files[i].empty)
			return false;
	return due->count && !due->all;
}

static bool has_ended(const struct resume_file *f)
{
	return process_started(f->by) != f->started || process_is_ending(f->by);
}

/* He reads by himself what he would save again, or others look at it while he is in no save any more. */
static bool is_out(const struct resume_due *due, const struct resume_reader *reader, pid_t pid)
{
	if (!reader || reader->quiet || reader->pid)
		return reader && (reader->quiet || reader->pid == pid);
	for (unsigned i = 0; i < due->count; i++)
		if (due->files[i].by == pid)
			return true;
	return false;
}

/* Whoever closed a torn file, or was refused, may save it again; 0: nobody. */
static pid_t who_saves_again_locked(struct volume *vol, const struct resume_reader *reader)
{
	const struct resume_due *due = &vol->resume->due;

	for (unsigned i = 0; i < due->count; i++) {
		const struct resume_file *f = &due->files[i];

		if (f->by && !f->empty && !is_out(due, reader, f->by) && !has_ended(f))
			return f->by;
	}
	return 0;
}

struct writers {
	const struct resume_due *due;
	const struct resume_reader *reader; /* NULL: nobody reads */
	uint64_t note;			    /* what is smaller is a mere note beside what changed */
	pid_t ended;			    /* the last one met; 0: none */
	pid_t lives;
};

/* A shell that starts a trainer, and writes what attempt it is. */
static bool is_note_from_above(const struct writers *w, const struct changed_file *f)
{
	return f->size < w->note && resume_is_above(w->due, f->by);
}

/* A file of a save that may not be over. */
static bool may_go_on(void *arg, const struct changed_file *f)
{
	struct writers *w = arg;

	if (!f->by || f->by == w->ended || is_out(w->due, w->reader, f->by) ||
	    is_note_from_above(w, f))
		return false;
	*(process_is_ending(f->by) ? &w->ended : &w->lives) = f->by;
	return w->lives;
}

/* Then the sealer's thread looks again. */
static bool waits_for_locked(struct volume *vol, const struct resume_reader *reader)
{
	const struct pending *p = &vol->sealer->pending;
	int64_t now = clock_mono_ns(), since = vol->resume->due.since_ns,
		until = p->activity_ns + vol->options.settle_ns,
		latest = since + vol->options.patience_ns, pause = (now - since) / LOOKS;
	struct writers w = {
		.due = &vol->resume->due,
		.reader = reader,
		.note = p->changed.bytes / CHANGED_PART,
		.lives = who_saves_again_locked(vol, reader),
	};

	until = w.lives ? INT64_MAX : until < latest ? until : latest;
	if (!w.lives && now < until)
		changed_any(&p->changed, may_go_on, &w);
	vol->resume->waits_for = w.lives;
	vol->resume->waits_until_ns = until;
	if (!w.lives)
		return false;
	if (pause < LOOK_FIRST_NS)
		pause = LOOK_FIRST_NS;
	vol->resume->retry_ns = now + (pause < LOOK_LONGEST_NS ? pause : LOOK_LONGEST_NS);
	sealer_wake_locked(vol);
	return true;
}

static bool waits_for_reader_locked(struct volume *vol, const struct resume_reader *reader)
{
	if (reader || !resume_is_empty(&vol->resume->due))
		return false;
	vol->resume->waits_for = 0;
	return true;
}

bool resume_waits_locked(struct volume *vol, const struct resume_reader *reader)
{
	return waits_for_reader_locked(vol, reader) ||
	       bodies_each_writing_locked(vol, writes_there, vol) || waits_for_locked(vol, reader);
}

/* ---- whoever looks meanwhile ---- */

static const struct resume_file *find_of_locked(struct volume *vol, uint64_t ino)
{
	const struct resume_due *due = &vol->resume->due;
	cleanup_buf struct buf path = {0};

	volume_path_locked(vol, ino, &path);
	for (unsigned i = 0; path.len && i < due->count; i++)
		if (!strcmp(due->files[i].path, buf_str(&path)))
			return &due->files[i];
	return NULL;
}

static bool may_be_saved_again(const struct resume_due *due)
{
	for (unsigned i = 0; i < due->count; i++)
		if (due->files[i].by)
			return true;
	return false;
}

bool resume_is_reader_locked(struct volume *vol, uint64_t ino, int flags)
{
	return (flags & O_ACCMODE) != O_WRONLY && !(flags & O_TRUNC) &&
	       !file_is_log_locked(vol, ino);
}

/* Nobody who lives was refused a write, and makes room, or has made an empty file, to write it by another open. */
static bool is_left(const struct resume_due *due)
{
	for (unsigned i = 0; i < due->count; i++) {
		const struct resume_file *f = &due->files[i];

		if (f->by && (f->refused || f->empty) && (f->made || !has_ended(f)))
			return false;
	}
	return !due->all;
}

/* Who is none of those that may save again. */
static bool other_reads_locked(struct volume *vol, const struct resume_file *f, int flags,
			       pid_t pid, struct resume_reader *ret_reader)
{
	const struct resume_due *due = &vol->resume->due;
	int64_t now = clock_mono_ns();

	if (f && f->empty && (flags & O_ACCMODE) != O_RDONLY)
		return false;
	if (!ret_reader->quiet && !is_left(due))
		return false;
	return (f && (ret_reader->quiet || f->empty)) ||
	       process_started_ns(pid) + START_NS > clock_wall_ns() - (now - due->since_ns);
}

/* Whether what he reads says that he does not go on with the save of this file of his. */
static bool gives_up(struct volume *vol, const struct resume_file *his, uint64_t ino)
{
	cleanup_buf struct buf path = {0};
	struct state_file f;

	if (his->empty || state_file_get(vol->state, ino, &f) != 0)
		return false;
	volume_path_locked(vol, ino, &path);
	return !his->refused ||
	       (S_ISREG(f.mode) && resume_is_of_unit(vol, buf_str(&path), his->path));
}

static bool he_goes_on(const struct resume_due *due, pid_t pid)
{
	for (unsigned i = 0; i < due->count; i++)
		if (due->files[i].by == pid && due->files[i].goes_on && !has_ended(&due->files[i]))
			return true;
	return false;
}

bool resume_reads_locked(struct volume *vol, uint64_t ino, int flags, pid_t tid,
			 struct resume_reader *ret_reader)
{
	const struct resume_due *due = &vol->resume->due;
	const struct resume_file *f;
	bool his = false, goes_on;
	pid_t pid;

	if (!due->any)
		return false;
	resume_forget_empty_locked(vol);
	if (!may_be_saved_again(due) || !resume_is_reader_locked(vol, ino, flags))
		return false;
	pid = process_of(tid);
	if (!pid)
		return false;
	f = find_of_locked(vol, ino);
	*ret_reader = (struct resume_reader){
		.quiet = clock_mono_ns() - vol->sealer->pending.activity_ns >=
			 vol->options.settle_ns,
	};
	goes_on = !ret_reader->quiet && he_goes_on(due, pid);
	for (unsigned i = 0; i < due->count && !ret_reader->pid; i++) {
		const struct resume_file *at = &due->files[i];

		if (at->by != pid || has_ended(at))
			continue;
		his = true;
		if ((flags & O_ACCMODE) == O_RDONLY &&
		    (at == f || (!goes_on && gives_up(vol, at, ino))))
			ret_reader->pid = pid;
	}
	if (ret_reader->pid || (his && (goes_on || !ret_reader->quiet)))
		return ret_reader->pid;
	return other_reads_locked(vol, f, flags, pid, ret_reader);
}

void resume_begins_anew(struct resume_due *due, pid_t pid)
{
	for (unsigned i = 0; i < due->count; i++)
		due->files[i].anew = pid && due->files[i].by == pid && !due->files[i].goes_on;
}

/* ---- what comes after the tree went back ---- */

static void forget(struct resume_rest *rest, unsigned i)
{
	free(rest->files[i].path);
	free(rest->files[i].with);
	rest->files[i] = rest->files[--rest->count];
}

void resume_rest_clear(struct resume_rest *rest)
{
	while (rest->count)
		forget(rest, rest->count - 1);
	*rest = (struct resume_rest){0};
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

struct with {
	struct volume *vol;
	const struct resume_file *of;
	uint64_t size; /* of the largest yet; what is smaller is a mere note beside what changed */
	char *path;    /* owned */
};

static bool is_with(void *arg, const struct changed_file *f)
{
	cleanup_buf struct buf path = {0};
	struct with *with = arg;

	if (f->by != with->of->by || f->size <= with->size)
		return false;
	volume_path_locked(with->vol, f->ino, &path);
	if (!path.len || !strcmp(buf_str(&path), with->of->path) ||
	    !resume_is_of_unit(with->vol, buf_str(&path), with->of->path))
		return false;
	free(with->path);
	with->path = strdup(buf_str(&path));
	with->size = f->size;
	return false;
}

/* He had renamed it into place, which sealed, and that save goes on. */
static char *renamed_with_locked(struct volume *vol, const struct resume_file *f)
{
	const struct seal_last *last = &vol->sealer->last;
	const struct pending *p = &vol->sealer->pending;
	cleanup_buf struct buf path = {0};

	if (last->trigger != RECORD_TRIGGER_RENAME || last->certain || !last->renamed ||
	    last->by != f->by || p->continues != last->number || p->continues_chain)
		return NULL;
	volume_path_locked(vol, last->renamed, &path);
	return path.len && strcmp(buf_str(&path), f->path) != 0 &&
			       resume_is_of_unit(vol, buf_str(&path), f->path)
		       ? strdup(buf_str(&path))
		       : NULL;
}

char *resume_saved_with_locked(struct volume *vol, const struct resume_file *f)
{
	struct with with = {.vol = vol, .of = f};

	if (!f->by || !vol->sealer)
		return NULL;
	with.size = vol->sealer->pending.changed.bytes / CHANGED_PART;
	changed_any(&vol->sealer->pending.changed, is_with, &with);
	return with.path ? with.path : renamed_with_locked(vol, f);
}

void resume_rest_begin_locked(struct volume *vol, const struct resume_due *due)
{
	struct resume_rest *rest = &vol->resume->rest;

	for (unsigned i = 0; i < rest->count; i++)
		rest->files[i].again = rest->files[i].with_again = false;
	for (unsigned i = 0; i < due->count && rest->count < RESUME_PATHS_MAX; i++) {
		const char *path = due->files[i].path;
		/* The time is that of the first going back: whoever saves on and on is let alone in the end. */
		char *copy = is_known(rest, path) ? NULL : strdup(path);

		if (copy)
			rest->files[rest->count++] = (struct resume_taken){
				.path = copy,
				.before_ns = due->files[i].before_ns,
				.by = due->files[i].by,
				.started = due->files[i].started,
				.anew = due->files[i].anew,
				.with = due->files[i].with ? strdup(due->files[i].with) : NULL,
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

static bool is_his(const struct resume_taken *t, const struct resume_saver *s)
{
	return t->by == s->pid && t->started == s->started;
}

static bool begins_anew(const struct resume_taken *t, const struct resume_saver *s)
{
	return t->anew && is_his(t, s);
}

/*
 * Whether the save of a file that was taken back may be half still, as this one is saved. Who had closed it torn may save it alone, as what he had
 * saved with it was good: that is not there any more. The tree may go back between the two.
 */
static bool is_half(struct volume *vol, struct resume_taken *t, const char *path,
		    const struct resume_saver *s)
{
	bool again = !strcmp(t->path, path);

	if (!s || !t->with || t->anew || !is_his(t, s))
		return !again;
	if (again && !t->with_again)
		doubt_again_locked(vol, t->with);
	t->again = t->again || again;
	t->with_again = t->with_again || !strcmp(t->with, path);
	return !t->again || !t->with_again;
}

/* Whoever had closed a file torn has begun that save again. */
static void note_goes_on_locked(struct volume *vol, const char *path, pid_t by)
{
	struct resume_due *due = &vol->resume->due;

	for (unsigned i = 0; by && i < due->count; i++)
		if (due->files[i].by == by && !due->files[i].empty && due->files[i].with &&
		    !strcmp(due->files[i].with, path))
			due->files[i].goes_on = true;
}

void resume_saved_locked(struct volume *vol, uint64_t ino, pid_t by)
{
	struct resume_rest *rest = &vol->resume->rest;
	cleanup_buf struct buf path = {0};
	const struct resume_saver *s;

	if (!vol->options.resume || file_is_log_locked(vol, ino))
		return;
	s = note_saver(rest, by);
	if (!rest->count && !vol->resume->due.count)
		return;
	volume_path_locked(vol, ino, &path);
	note_goes_on_locked(vol, buf_str(&path), by);
	forget_old(rest);
	for (unsigned i = rest->count; i-- > 0;) {
		struct resume_taken *t = &rest->files[i];

		if (!is_half(vol, t, buf_str(&path), s))
			forget(rest, i);
		else if (s && path.len && !t->again && s->first_ns < t->before_ns &&
			 !begins_anew(t, s) && resume_is_of_unit(vol, buf_str(&path), t->path))
			doubt_again_locked(vol, t->path);
	}
}
