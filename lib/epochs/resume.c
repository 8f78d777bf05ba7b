/* SPDX-License-Identifier: Apache-2.0 */
/* Going back by itself: when, and what is told of it. */
#include "lib/epochs/resume.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/cache/context.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/rollback.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"
#include "lib/format/tails.h"
#include "lib/live/bodies.h"
#include "lib/meta/listing.h"
#include "lib/meta/opening.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/process.h"

/* After it failed, until it is tried again. */
#define RETRY_FIRST_NS	 NS_PER_S
#define RETRY_LONGEST_NS (60 * NS_PER_S)
/* Who looks while the tree goes back for another reader; not for ever, as going back may ask the kernel, and that something of us. */
#define READER_WAITS_NS (5 * NS_PER_S)

static void file_free(struct resume_file *f)
{
	free(f->path);
	free(f->with);
}

static void due_free(struct resume_due *due)
{
	for (unsigned i = 0; i < due->count; i++)
		file_free(&due->files[i]);
	*due = (struct resume_due){0};
}

/* Else that is a matter of the driver. */
static bool resumes(const struct volume *vol)
{
	return vol->options.resume == RESUME_ALWAYS && !vol->driver;
}

int resume_new(struct volume *vol)
{
	vol->resume = calloc(1, sizeof(*vol->resume));
	return vol->resume ? 0 : -ENOMEM;
}

void resume_free(struct volume *vol)
{
	if (!vol->resume)
		return;
	due_free(&vol->resume->due);
	resume_rest_clear(&vol->resume->rest);
	free(vol->resume->why);
	free(steal_ptr(vol->resume));
}

/* ---- what makes it due ---- */

static struct resume_file *find_due(struct resume_due *due, const char *path)
{
	for (unsigned i = 0; i < due->count; i++)
		if (!strcmp(due->files[i].path, path))
			return &due->files[i];
	return NULL;
}

static void add_due_locked(struct volume *vol, const struct resume_file *file)
{
	struct resume_due *due = &vol->resume->due;
	struct resume_file *f = find_due(due, file->path);
	char *path = f ? f->path : NULL, *with = NULL;

	/* For what is empty nobody is waited for: the time of that says nothing of others. */
	if (!due->any || resume_is_empty(due))
		due->since_ns = file->before_ns ? file->before_ns : clock_mono_ns();
	due->any = true;
	if (!f && due->count < RESUME_PATHS_MAX)
		path = strdup(file->path);
	if (!path) {
		due->all = true;
		return;
	}
	if (!f)
		f = &due->files[due->count++];
	else if (f->by == file->by)
		with = f->with;
	else
		free(f->with);
	*f = *file;
	f->path = path;
	f->with = file->with ? strdup(file->with) : resume_saved_with_locked(vol, f);
	/* A seal may have come between. */
	if (!f->with)
		f->with = with;
	else
		free(with);
}

void resume_due_locked(struct volume *vol, const char *path, pid_t by, uint64_t undone_to,
		       int64_t at_ns)
{
	const struct resume_file f = {
		.path = (char *)(uintptr_t)path,
		.by = by,
		.started = process_started(by),
		.refused = by != 0,
		.undone_to = undone_to,
		.before_ns = at_ns,
	};

	if (!resumes(vol))
		return;
	resume_rest_forget(&vol->resume->rest, path);
	add_due_locked(vol, &f);
}

void resume_killed_locked(struct volume *vol, const char *path, pid_t pid, pid_t parent,
			  int64_t at_ns)
{
	struct resume_due *due = &vol->resume->due;
	struct resume_file *f;

	if (!resumes(vol))
		return;
	resume_due_locked(vol, path, 0, 0, at_ns);
	f = find_due(due, path);
	if (f)
		f->killed = pid;
	/* Those of who is in it already are, too: ranks have the same ones. */
	for (pid_t p = parent;
	     p > 1 && due->above_count < RESUME_ABOVE_MAX && !resume_is_above(due, p);
	     p = process_parent(p))
		due->above[due->above_count++] = p;
}

void resume_due_again_locked(struct volume *vol, const char *path)
{
	add_due_locked(vol, &(struct resume_file){.path = (char *)(uintptr_t)path});
	vol->resume->retry_ns = clock_mono_ns();
	sealer_wake_locked(vol);
}

static bool is_empty_still(struct volume *vol, const struct resume_file *f)
{
	cleanup_buf struct buf path = {0};
	struct state_version v;
	struct state_file file;

	if (state_file_get(vol->state, f->ino, &file) != 0 || !file.nlink ||
	    state_version_get(vol->state, file.closed, &v) != 0 || v.size)
		return false;
	volume_path_locked(vol, f->ino, &path);
	return path.len && !strcmp(buf_str(&path), f->path);
}

static void remove_due(struct resume_due *due, struct resume_file *f)
{
	file_free(f);
	*f = due->files[--due->count];
	if (!due->count && !due->all)
		*due = (struct resume_due){0};
}

void resume_forget_empty_locked(struct volume *vol)
{
	struct resume_due *due = &vol->resume->due;

	for (unsigned i = due->count; i-- > 0;)
		if (due->files[i].empty && !is_empty_still(vol, &due->files[i]))
			remove_due(due, &due->files[i]);
}

/* Whoever had closed it torn, or was refused, has saved it again. */
static void is_whole_locked(struct volume *vol, const char *path, uint64_t version)
{
	struct resume_due *due = &vol->resume->due;
	struct resume_file *f = find_due(due, path);

	if (!f || !f->by || f->undone_to == version)
		return;
	remove_due(due, f);
}

/* The closed content of a file, and the file's name. The last epoch may have it already, where the close itself seals; then it may be known to be torn. */
static bool to_look_at(struct volume *vol, uint64_t ino, struct state_version *ret_v,
		       char ret_name[256])
{
	struct state_file f;
	SCOPED_LOCK(&vol->lock);

	if (state_file_get(vol->state, ino, &f) != 0 || !f.closed || !f.nlink ||
	    state_version_get(vol->state, f.closed, ret_v) != 0)
		return false;
	first_name_locked(vol, ino, ret_name, NULL);
	return ret_name[0] && ret_v->born + 1 >= vol->next_epoch && ret_v->local_whole &&
	       !file_is_log_locked(vol, ino);
}

static void is_torn_locked(struct volume *vol, const char *path, const struct state_version *v,
			   pid_t by, int64_t at_ns)
{
	const struct resume_file *known = find_due(&vol->resume->due, path);
	bool empty = !v->size;
	const struct resume_file f = {
		.path = (char *)(uintptr_t)path,
		.by = by,
		.started = process_started(by),
		.refused = known && known->refused && known->by == by,
		.ino = v->ino,
		.made = !v->replaced && !doubt_unit_of(vol->rules, path).len,
		.empty = empty,
		.before_ns = at_ns,
	};

	/* Of another save, which was killed or torn: that one says more. For one that finds no place nothing is to be done. */
	if (empty && (!by || (known ? !known->empty : vol->resume->due.count == RESUME_PATHS_MAX)))
		return;
	if (!empty)
		resume_rest_forget(&vol->resume->rest, path);
	add_due_locked(vol, &f);
	vol->resume->due.tails = true;
}

static void tail_says(struct volume *vol, uint64_t ino, const struct state_version *v, bool torn,
		      pid_t by, int64_t at_ns)
{
	cleanup_buf struct buf path = {0};

	SCOPED_LOCK(&vol->lock);
	volume_path_locked(vol, ino, &path);
	if (!path.len)
		return;
	resume_forget_empty_locked(vol);
	if (torn)
		is_torn_locked(vol, buf_str(&path), v, by, at_ns);
	else
		is_whole_locked(vol, buf_str(&path), v->id);
}

/* Ctrl-C in the middle of a save closes the file in good order. */
static void look_at_tail(struct volume *vol, uint64_t ino, pid_t by, int64_t at_ns)
{
	struct state_version v;
	const char *why;
	char name[256];

	if (!to_look_at(vol, ino, &v, name))
		return;
	for (;;) {
		cleanup_close int fd = object_open(vol, v.id, O_RDONLY);
		bool torn =
			v.torn || ((fd >= 0 || !v.size) && tail_check(fd, v.size, name, &why) > 0);

		if (fd >= 0 && torn && !v.torn && !object_is_still(vol, v.id, fd))
			continue;
		tail_says(vol, ino, &v, torn, by, at_ns);
		return;
	}
}

/* ---- when ---- */

static bool is_time_locked(struct volume *vol, const struct resume_reader *reader)
{
	const struct resume *r = vol->resume;

	return r->due.any && !r->running && (!r->error || r->retry_ns <= clock_mono_ns()) &&
	       vol->sealer && vol->sealer->runs && !vol->sealer->stops &&
	       !resume_waits_locked(vol, reader);
}

/* ---- going back ---- */

/* Somebody went back to what is in doubt, and nothing has changed since: his word counts. */
static bool is_wanted_so(struct volume *vol)
{
	cleanup_record struct epoch_record record = {0};
	struct state_epoch row = {0};
	int error;

	SCOPED_LOCK(&vol->lock);
	/* What is sealed, and not frozen yet, has changed since. */
	if (vol->sealer->pending.opens || new_names_any(&vol->sealer->pending.new_names) ||
	    vol->sealer->first)
		return false;
	error = state_epoch_get(vol->state, vol->current_epoch, &row);
	if (!error && row.record)
		error = record_decode(row.record, strlen(row.record), &record);
	state_epoch_free(&row);
	return !error && record.restores && record.complete != RECORD_COMPLETE;
}

static void note_done(struct volume *vol, const struct resumed *done, const char *why)
{
	const char *at = vol->options.mountpoint ? vol->options.mountpoint : "DIRECTORY";
	struct resume *r = vol->resume;
	bool told;

	mutex_lock(&vol->lock);
	told = !done->as && r->no_way && r->why && !strcmp(r->why, why);
	r->left = done->left;
	r->to = done->to;
	r->as = done->as;
	r->at_ns = clock_wall_ns();
	r->no_way = done->as ? 0 : done->left;
	free(r->why);
	r->why = strdup(why);
	mutex_unlock(&vol->lock);
	if (done->as)
		log_warn("%s: the live tree went back from epoch %" PRIu64 " to epoch %" PRIu64
			 ", as epoch %" PRIu64 "; to undo that: epochfs rollback %s %" PRIu64,
			 why, done->left, done->to, done->as, at, done->left);
	else if (!told)
		log_warn("%s, and there is no complete epoch to go back to: the live tree stays as "
			 "it is; remove what is half, or save it again",
			 why);
}

/* Made after the newest complete epoch. */
static bool is_new_locked(struct volume *vol, const struct state_file *f)
{
	const struct epoch_index *x = epochs_index_locked(vol);

	return f->born > (x ? epoch_index_whole(x) : 0);
}

bool resume_may_remove_locked(struct volume *vol, const struct state_file *f)
{
	return (resumes(vol) || vol->driver) && is_new_locked(vol, f);
}

/* The directory of a path, where it is newer than the newest complete epoch and empty. */
static bool find_empty(struct volume *vol, const char *path, uint64_t *ret_parent, char name[256])
{
	uint64_t dir = ROOT_INO;
	struct state_file f;
	struct state_name n;

	*ret_parent = 0;
	for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
		snprintf(name, 256, "%.*s", (int)(slash - path), path);
		*ret_parent = dir;
		if (state_name_lookup(vol->state, dir, name, &n, &f) != 0 || !S_ISDIR(f.mode))
			return false;
		dir = f.ino;
	}
	return *ret_parent && is_new_locked(vol, &f) && !state_dir_empty(vol->state, dir);
}

/* Who looks for the directory with the highest step must not find one that a killed save had just made. */
static void remove_empty(struct volume *vol, const char *path)
{
	struct doubt_unit unit = doubt_unit_of_kill(vol->rules, path);
	cleanup_free char *at = unit.len && !unit.file && !unit.temporary ? strdup(path) : NULL;
	char *slash;

	while (at && (slash = strrchr(at, '/')) && (size_t)(slash - at) >= unit.len) {
		uint64_t parent;
		char name[256];
		bool found;

		mutex_lock(&vol->lock);
		found = find_empty(vol, at, &parent, name);
		mutex_unlock(&vol->lock);
		if (!found || live_rmdir(vol, parent, name) != 0)
			return;
		volume_entry_changed(vol, parent, name);
		*slash = '\0';
		log_info("%s: a save that was killed had made this directory: it is removed", at);
	}
}

static void remove_all_empty(struct volume *vol, const struct resume_due *due)
{
	for (unsigned i = 0; i < due->count; i++)
		if (!due->files[i].empty)
			remove_empty(vol, due->files[i].path);
}

struct more {
	const struct resume_due *due;
	uint64_t least;
};

static bool is_more(void *arg, const struct changed_file *f)
{
	const struct more *more = arg;

	for (unsigned i = 0; f->by && f->size >= more->least && i < more->due->count; i++)
		if (more->due->files[i].killed == f->by)
			return true;
	return false;
}

/* Whoever was killed in the first file of a new directory had saved something else before, which may be of the same save: no mere note. */
static bool has_saved_more(struct volume *vol, const struct resume_due *due)
{
	struct more more = {.due = due};
	SCOPED_LOCK(&vol->lock);

	more.least = vol->sealer->tree_bytes / CHANGED_PART + 1;
	return changed_any(&vol->sealer->pending.changed, is_more, &more);
}

static int look(struct volume *vol, bool tails, struct doubts_found *found, struct buf *why)
{
	int error;

	buf_reset(why);
	doubts_found_free(found);
	error = doubts_look(vol, tails, found, why);
	mutex_lock(&vol->lock);
	vol->resume->postponed = found->temporary;
	mutex_unlock(&vol->lock);
	return error;
}

/* Also of what no close had told, others may go on with the save. */
static void add_found_locked(struct volume *vol, const struct doubts_found *found)
{
	int64_t now = clock_mono_ns(), wall = clock_wall_ns();
	struct resume_due also = {0};

	for (unsigned i = 0; i < found->count && also.count < RESUME_PATHS_MAX; i++) {
		int64_t at = found->files[i].at_ns;

		also.files[also.count++] = (struct resume_file){
			.path = found->files[i].path,
			.before_ns = at && at < wall ? now - (wall - at) : now,
		};
	}
	resume_rest_begin_locked(vol, &also);
}

/* 0 also where nothing is in doubt: then done->left is 0. */
static int go_back(struct volume *vol, const struct resume_due *due, bool tails,
		   struct resumed *done)
{
	CLEANUP(doubts_found_free) struct doubts_found found = {0};
	cleanup_buf struct buf why = {0};
	int error = bodies_finish_closes(vol);
	bool left; /* by the killed save: an empty directory alone */

	*done = (struct resumed){0};
	if (!error)
		error = look(vol, tails, &found, &why);
	left = !error && found.alone && !has_saved_more(vol, due);
	if (!error && (!found.doubtful || left))
		remove_all_empty(vol, due);
	if (!error && found.doubtful && left)
		error = look(vol, tails, &found, &why);
	if (error || !found.doubtful || is_wanted_so(vol))
		return error;
	FAULT_POINT("resume.begin");
	mutex_lock(&vol->lock);
	resume_rest_begin_locked(vol, due);
	add_found_locked(vol, &found);
	mutex_unlock(&vol->lock);
	error = epochs_go_back(vol, done);
	if (!error && done->left)
		note_done(vol, done, buf_str(&why));
	FAULT_POINT("resume.end");
	return error;
}

/* It is due still. */
static void try_again_locked(struct volume *vol, const struct resume_due *due, int error)
{
	struct resume *r = vol->resume;

	for (unsigned i = 0; i < due->count; i++)
		if (!find_due(&r->due, due->files[i].path))
			add_due_locked(vol, &due->files[i]);
	r->due.any = true;
	r->due.all |= due->all;
	r->due.tails |= due->tails;
	r->error = error;
	r->pause_ns = clock_backoff(r->pause_ns, RETRY_FIRST_NS, RETRY_LONGEST_NS);
	r->retry_ns = clock_mono_ns() + r->pause_ns;
	if (vol->sealer)
		sealer_wake_locked(vol);
}

/* One at a time. Drops the lock. */
static int go_back_locked(struct volume *vol, bool tails, struct resumed *done)
{
	struct resume_due due = vol->resume->due;
	int error;

	vol->resume->running = true;
	vol->resume->due = (struct resume_due){0};
	mutex_unlock(&vol->lock);
	error = go_back(vol, &due, tails || due.tails, done);
	mutex_lock(&vol->lock);
	vol->resume->running = false;
	vol->resume->retry_ns = 0;
	vol->resume->error = 0;
	if (!error)
		vol->resume->pause_ns = 0;
	else if (resumes(vol))
		try_again_locked(vol, &due, error);
	due_free(&due);
	pthread_cond_broadcast(&vol->changed);
	return error;
}

static int go_back_in_time_locked(struct volume *vol, const struct resume_reader *reader)
{
	struct resumed done;
	int error = 0;

	while (!error && is_time_locked(vol, reader))
		error = go_back_locked(vol, false, &done);
	return error;
}

static void tell_failed(int error)
{
	if (error)
		log_error(
			"after a killed or torn save the live tree could not go back, and this is "
			"tried again: %s",
			strerror(-error));
}

void resume_after_close(struct volume *vol, uint64_t ino, pid_t by, int64_t at_ns)
{
	int error;

	if (!resumes(vol) || vol->options.read_only || nodes_is_set(vol))
		return;
	look_at_tail(vol, ino, by, at_ns);
	mutex_lock(&vol->lock);
	error = go_back_in_time_locked(vol, NULL);
	mutex_unlock(&vol->lock);
	tell_failed(error);
}

static bool goes_back_for_locked(const struct volume *vol)
{
	return vol->resume->running && vol->resume->for_reader;
}

bool resume_before_reading(struct volume *vol, uint64_t ino, int flags, pid_t tid)
{
	struct resume_reader reader;

	if (!resumes(vol) || vol->options.read_only || nodes_is_set(vol))
		return false;
	SCOPED_LOCK(&vol->lock);
	return (goes_back_for_locked(vol) && resume_is_reader_locked(vol, ino, flags)) ||
	       (resume_reads_locked(vol, ino, flags, tid, &reader) && is_time_locked(vol, &reader));
}

static int go_back_for_locked(struct volume *vol, const struct resume_reader *reader)
{
	int error;

	resume_begins_anew(&vol->resume->due, reader->pid);
	vol->resume->for_reader = true;
	error = go_back_in_time_locked(vol, reader);
	vol->resume->for_reader = false;
	resume_begins_anew(&vol->resume->due, 0);
	return error;
}

bool resume_for_reader(struct volume *vol, uint64_t ino, int flags, pid_t tid)
{
	int64_t until = clock_mono_ns() + READER_WAITS_NS;
	struct resume_reader reader;
	bool waited, begins;
	int error = 0;

	mutex_lock(&vol->lock);
	waited = goes_back_for_locked(vol);
	while (goes_back_for_locked(vol) && clock_mono_ns() < until)
		cond_wait_until(&vol->changed, &vol->lock, until);
	waited = waited && !goes_back_for_locked(vol);
	begins = resume_reads_locked(vol, ino, flags, tid, &reader) && is_time_locked(vol, &reader);
	if (begins)
		error = go_back_for_locked(vol, &reader);
	mutex_unlock(&vol->lock);
	tell_failed(error);
	return waited || begins;
}

static void all_due_locked(struct volume *vol)
{
	struct resume *r = vol->resume;

	if (!r->due.any || resume_is_empty(&r->due))
		r->due.since_ns = clock_mono_ns();
	r->due.any = r->due.all = r->due.tails = true;
	r->retry_ns = clock_mono_ns();
	sealer_wake_locked(vol);
}

void resume_renamed_locked(struct volume *vol)
{
	const struct resume *r = vol->resume;

	if (resumes(vol) && r->postponed)
		all_due_locked(vol);
}

void resume_sealed_in_doubt_locked(struct volume *vol)
{
	/* While it goes back it seals what was there. */
	if (resumes(vol) && !vol->resume->running && !nodes_is_set(vol))
		all_due_locked(vol);
}

int64_t resume_retry_locked(struct volume *vol)
{
	struct resume *r = vol->resume;
	int error;

	if (!r->retry_ns || r->running)
		return INT64_MAX;
	if (clock_mono_ns() < r->retry_ns)
		return r->retry_ns;
	/* Where somebody writes, the last close does it. */
	r->retry_ns = 0;
	error = go_back_in_time_locked(vol, NULL);
	tell_failed(error);
	return r->retry_ns ? r->retry_ns : INT64_MAX;
}

int resume_now(struct volume *vol, struct resumed *ret_done)
{
	int error;

	*ret_done = (struct resumed){0};
	if (vol->options.read_only || nodes_is_set(vol))
		return 0;
	mutex_lock(&vol->lock);
	while (vol->resume->running)
		cond_wait(&vol->changed, &vol->lock);
	error = go_back_locked(vol, true, ret_done);
	/* It was done when the volume was opened, say. */
	if (!error && !ret_done->left && vol->resume->as && vol->current_epoch == vol->resume->as)
		*ret_done = (struct resumed){vol->resume->left, vol->resume->to, vol->resume->as};
	mutex_unlock(&vol->lock);
	return error;
}

static int note_due(void *arg, const struct state_doubt *d)
{
	if (d->kind == DOUBT_UNDONE && !d->judged)
		add_due_locked(arg, &(struct resume_file){.path = d->path});
	return 0;
}

static int writes(void *arg, struct body *b)
{
	(void)arg;
	return b->writers && !b->orphan;
}

/* Where files are open still (survivors.h), it is as if the volume had been open all the time. */
int resume_at_open(struct volume *vol, struct opening_message *m)
{
	struct resumed done;
	bool survived;
	int error;

	if (!resumes(vol) || vol->options.read_only)
		return 0;
	mutex_lock(&vol->lock);
	survived = bodies_each_writing_locked(vol, writes, vol) != 0;
	/* Of which files, the worker that ended knew. */
	if (survived)
		vol->resume->due.any = vol->resume->due.all = doubts_any_locked(vol);
	error = survived ? go_back_in_time_locked(vol, NULL)
			 : state_doubt_each(vol->state, note_due, vol);
	mutex_unlock(&vol->lock);
	if (!survived && !error)
		error = resume_now(vol, &done);
	if (!error)
		return 0;
	return opening_fail(m, error,
			    "the last save is in doubt, and the live tree cannot go back to the "
			    "newest complete epoch: %s; without -o resume it is mounted as it is",
			    strerror(-error));
}

json_t *resume_status(struct volume *vol)
{
	const char *at = vol->options.mountpoint ? vol->options.mountpoint : "DIRECTORY";
	const struct resume *r = vol->resume;
	json_t *o = NULL;

	SCOPED_LOCK(&vol->lock);
	if (r->error)
		return json_pack("{s:o}", "error",
				 json_sprintf("%s: it is tried again", strerror(-r->error)));
	if (!r->at_ns)
		return NULL;
	o = json_pack("{s:I, s:o}", "at_ns", (json_int_t)r->at_ns, "why",
		      listing_string(r->why ? r->why : ""));
	if (!o || r->no_way)
		return o;
	json_object_set_new(o, "left", json_integer((json_int_t)r->left));
	json_object_set_new(o, "to", json_integer((json_int_t)r->to));
	json_object_set_new(o, "epoch", json_integer((json_int_t)r->as));
	json_object_set_new(o, "to_undo",
			    json_sprintf("epochfs rollback %s %" PRIu64, at, r->left));
	return o;
}

json_t *resume_waits_status(struct volume *vol)
{
	const struct resume *r = vol->resume;
	int64_t left;
	json_t *o;
	SCOPED_LOCK(&vol->lock);

	/* When it was looked last, it was so. */
	if (!r->due.any || !r->waits_for || process_is_ending(r->waits_for) ||
	    (!r->due.tails && !doubts_any_locked(vol)))
		return NULL;
	o = json_pack("{s:I}", "for_pid", (json_int_t)r->waits_for);
	left = r->waits_until_ns - clock_mono_ns();
	if (r->waits_until_ns < INT64_MAX)
		json_object_set_new(o, "at_most_ns", json_integer(left > 0 ? left : 0));
	return o;
}
