/* SPDX-License-Identifier: Apache-2.0 */
/* What is output, and who saves what beside it. */
#include "lib/live/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/live/bodies.h"
#include "lib/live/observer.h"
#include "lib/meta/rules.h"
#include "lib/saves/facts.h"
#include "lib/util/faultpoint.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/process.h"

/* So many names that a process saves are remembered, those that it saved last. */
#define SAVES 64

/* Times are the process's count of saves; 0: never. */
struct save {
	uint64_t name; /* output_shape, parts apart */
	uint64_t at;
	pid_t tid; /* the thread that did it last */
	uint64_t tid_at;
};

/* A process that has files open for writing. */
struct saver {
	struct map_link by_tgid; /* of struct bodies */
	pid_t tgid;
	struct handle *handles;
	uint64_t count; /* of its saves so far, while it had another file open */
	struct save saves[SAVES];
};

/* ---- names ---- */

uint64_t output_shape(const char *path, bool parts)
{
	cleanup_buf struct buf shape = {0};

	for (size_t i = 0; path[i];) {
		size_t digits = strspn(path + i, "0123456789");

		if (digits &&
		    !(parts && (rules_number_of_part(path, i) || rules_number_of_layer(path, i))))
			buf_put_u8(&shape, '#');
		else
			buf_put(&shape, path + i, digits ? digits : 1);
		i += digits ? digits : 1;
	}
	return buf_error(&shape) ? 0 : map_hash_text(1, buf_str(&shape));
}

static uint64_t shape_of_body_locked(struct volume *vol, const struct body *b)
{
	cleanup_buf struct buf path = {0};

	volume_path_locked(vol, b->ino, &path);
	return output_shape(buf_str(&path), false);
}

static int found_log(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	const struct volume *vol = arg;

	(void)n;
	(void)f;
	return rules_log(vol->rules, name, NULL) ? 1 : 0;
}

bool file_is_log_locked(struct volume *vol, uint64_t ino)
{
	return state_names_of(vol->state, ino, found_log, vol) == 1;
}

/* ---- what is output ---- */

bool body_is_output_locked(struct volume *vol, struct body *b)
{
	if (!b->is_output && b->writers && b->append_only &&
	    clock_mono_ns() - b->opened_ns > vol->options.patience_ns)
		b->is_output = true;
	return b->is_output;
}

/* Where other names lead to what it replaces, nobody could be told now that they lead elsewhere: its close does that. */
static int take_place_locked(struct volume *vol, const struct body *b, bool *ret_taken)
{
	struct state_file f;
	int error = state_file_get(vol->state, b->ino, &f);

	*ret_taken = !error && f.nlink == 1;
	if (error || !*ret_taken)
		return error;
	body_replaced_locked(vol, &f);
	f.live = b->version;
	f.body = b->id;
	return state_file_set(vol->state, &f);
}

/* It is as good as closed: what a kill before this run has left in doubt is settled. */
static int saved_anew_locked(struct volume *vol, const struct body *b)
{
	struct state_file f;
	int error = state_file_get(vol->state, b->ino, &f);

	return error ? error : vol->observer->saved_locked(vol, b->ino, f.closed, b->version);
}

static int mark_rows_locked(struct volume *vol, const struct body *b, bool *ret_taken)
{
	struct state_version v;
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = state_version_get(vol->state, b->version, &v);
	if (!error && v.fragile)
		error = saved_anew_locked(vol, b);
	if (!error && b->pending)
		error = take_place_locked(vol, b, ret_taken);
	if (!error) {
		v.output = true;
		v.fragile = false;
		if (*ret_taken)
			v.kind = VERSION_EDIT;
		error = state_version_set(vol->state, &v);
	}
	return state_end(vol->state, error);
}

int output_mark_locked(struct volume *vol, struct body *b, const char *why)
{
	cleanup_buf struct buf path = {0};
	bool taken = false;
	int error = b->staged ? mark_rows_locked(vol, b, &taken) : 0;

	volume_path_locked(vol, b->ino, &path);
	if (error) {
		log_warn("%s: that it is output could not be noted: %s", buf_str(&path),
			 strerror(-error));
		return error;
	}
	FAULT_POINT("output.marked");
	b->is_output = true;
	b->fragile = false;
	if (taken) {
		body_set_pending_locked(vol, b, false);
		body_orphan_others_locked(vol, b);
	}
	body_note_locked(b);
	log_info("%s: open for %lld s, %s: it counts as a log", buf_str(&path),
		 (long long)((clock_mono_ns() - b->opened_ns) / NS_PER_S), why);
	return 0;
}

/* ---- what only grew ---- */

#define COMPARE_BYTES (256 << 10)

/* Whether the first `size` bytes are the same in both. */
static bool begins_alike(int a, int b, uint64_t size)
{
	cleanup_free uint8_t *buffer = malloc(2 * (size_t)COMPARE_BYTES);

	for (uint64_t at = 0; buffer && at < size;) {
		size_t len = size - at < COMPARE_BYTES ? (size_t)(size - at) : COMPARE_BYTES;

		if (io_pread_some(a, buffer, len, at) != (ssize_t)len ||
		    io_pread_some(b, buffer + COMPARE_BYTES, len, at) != (ssize_t)len ||
		    memcmp(buffer, buffer + COMPARE_BYTES, len) != 0)
			return false;
		at += len;
	}
	return buffer != NULL;
}

/* The closed content that a killed writer went on with, where an epoch had that or what was before it. */
static bool find_before_locked(struct volume *vol, const struct body *b,
			       struct state_version *ret_before)
{
	struct state_file f;

	return state_file_get(vol->state, b->ino, &f) == 0 && f.closed && f.body == b->id &&
	       state_version_get(vol->state, f.closed, ret_before) == 0 && ret_before->size &&
	       !ret_before->torn &&
	       (state_version_placed(ret_before) < vol->next_epoch || ret_before->replaced);
}

static bool may_have_grown_locked(const struct body *b)
{
	return b->killed && !b->closed_well && b->staged && !b->discarded && !b->orphan &&
	       !b->writers && !b->fragile && !b->pending && !b->half && !b->cramped &&
	       b->refused_from >= b->refused_to;
}

void output_look_grown_locked(struct volume *vol, struct body *b)
{
	struct state_version before;
	struct backing *backing;
	bool grew;
	int fd;

	if (!may_have_grown_locked(b) || body_is_output_locked(vol, b) ||
	    !find_before_locked(vol, b, &before))
		return;
	grew = b->base && !b->passed && atomic_load(&b->lowest) >= before.size;
	fd = grew || !before.local_whole ? -1 : object_open(vol, before.id, O_RDONLY);
	if (fd >= 0) {
		backing = backing_ref(b->backing);
		mutex_unlock(&vol->lock);
		grew = begins_alike(fd, backing->fd, before.size);
		close(fd);
		backing_put(backing);
		mutex_lock(&vol->lock);
	}
	if (grew && may_have_grown_locked(b))
		b->is_output = true;
}

void output_ended_locked(struct volume *vol, struct body *b)
{
	if (b->is_output)
		b->is_output = file_is_log_locked(vol, b->ino);
}

/* ---- who has what open ---- */

static struct saver *saver_find(const struct volume *vol, pid_t tgid)
{
	struct map_link *l = map_find(&vol->bodies->savers, map_hash((uint64_t)tgid));

	for (; l; l = map_find_next(l))
		if (map_item(l, struct saver, by_tgid)->tgid == tgid)
			return map_item(l, struct saver, by_tgid);
	return NULL;
}

static struct saver *saver_add(struct volume *vol, pid_t tgid)
{
	struct saver *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->tgid = tgid;
	if (map_add(&vol->bodies->savers, &s->by_tgid, map_hash((uint64_t)tgid))) {
		free(s);
		return NULL;
	}
	return s;
}

void output_opened_locked(struct handle *h)
{
	struct saver *s = h->tgid ? saver_find(h->vol, h->tgid) : NULL;

	if (!s && h->tgid)
		s = saver_add(h->vol, h->tgid);
	/* Without memory it is an ordinary file. */
	if (!s)
		return;
	h->saver = s;
	h->opened_at = s->count;
	h->saver_next = s->handles;
	h->saver_prev = &s->handles;
	if (h->saver_next)
		h->saver_next->saver_prev = &h->saver_next;
	s->handles = h;
}

void output_closed_locked(struct handle *h)
{
	struct saver *s = steal_ptr(h->saver);

	if (!s)
		return;
	*h->saver_prev = h->saver_next;
	if (h->saver_next)
		h->saver_next->saver_prev = h->saver_prev;
	if (s->handles)
		return;
	map_remove(&h->vol->bodies->savers, &s->by_tgid);
	free(s);
}

/* ---- what is saved beside it ---- */

/* When this name was saved before, and when by this thread. From now on this save is remembered. */
static struct save save_note(struct saver *s, uint64_t name, pid_t tid)
{
	struct save *save = s->saves, before;

	for (struct save *i = s->saves; i < s->saves + SAVES && save->name != name; i++)
		if (i->name == name || i->at < save->at)
			save = i;
	before = save->name == name ? *save : (struct save){0};
	if (before.tid != tid)
		before.tid_at = 0;
	s->count++;
	*save = (struct save){name, s->count, tid, s->count};
	return before;
}

bool output_is_text(int fd, const char *name)
{
	static const char *const no_logs[] = {".json", ".yaml", ".yml", ".toml", ".index", NULL};
	char text[4096];
	struct stat st;
	off_t from;
	ssize_t n;

	for (const char *const *e = no_logs; *e; e++)
		if (strlen(name) > strlen(*e) && !strcasecmp(name + strlen(name) - strlen(*e), *e))
			return false;
	if (rules_weights(name) || fstat(fd, &st) < 0)
		return false;
	/* What is left of a checkpoint's first bytes may be anything. */
	from = st.st_size > (off_t)sizeof(text) ? st.st_size - (off_t)sizeof(text) : 0;
	n = pread(fd, text, sizeof(text), from);
	for (ssize_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < ' ' && !memchr("\t\n\r\b\033", text[i], 5))
			return false;
	return n > 0 && memchr(text, '\n', (size_t)n);
}

/*
 * Not valid at every length, whoever writes it: what has a name of weights. Of what replaces a committed file, half must not take that
 * one's place, unless it is text.
 */
static bool may_be_output_locked(struct volume *vol, const struct body *b, bool only_text)
{
	char name[256];

	if (b->is_output || b->orphan || b->discarded)
		return false;
	first_name_locked(vol, b->ino, name, NULL);
	if (!name[0] || rules_weights(name))
		return false;
	return (!only_text && !b->pending) || (b->staged && output_is_text(b->fd, name));
}

/* It has been open since before both saves: that of now, and the one before it. */
static bool outlasts_locked(struct volume *vol, const struct handle *h, const struct save *before,
			    const char *saved, pid_t tid)
{
	bool here = h->tid && h->tid == tid && before->tid_at > h->opened_at;
	cleanup_buf struct buf path = {0};

	if (before->at <= h->opened_at || !may_be_output_locked(vol, h->body, !here))
		return false;
	volume_path_locked(vol, h->body->ino, &path);
	return !buf_error(&path) && !facts_belongs_to(saved, buf_str(&path));
}

/* What the other ranks of a program write: each has a file of its own, and only one rank saves. */
struct alike {
	struct volume *vol;
	uint64_t ino, parent, shape;
	const char *why;
};

static int mark_alike(void *arg, struct body *b)
{
	const struct alike *a = arg;
	uint64_t parent;
	char name[256];

	if (!b->writers || b->is_output || b->ino == a->ino)
		return 0;
	first_name_locked(a->vol, b->ino, name, &parent);
	if (parent == a->parent && shape_of_body_locked(a->vol, b) == a->shape &&
	    may_be_output_locked(a->vol, b, false))
		output_mark_locked(a->vol, b, a->why);
	return 0;
}

static void mark_all_alike_locked(struct volume *vol, struct body *b, const char *why)
{
	struct alike a = {.vol = vol, .ino = b->ino, .why = why};
	char name[256];

	first_name_locked(vol, b->ino, name, &a.parent);
	a.shape = shape_of_body_locked(vol, b);
	if (!b->is_output)
		output_mark_locked(vol, b, why);
	map_hold(&vol->bodies->by_id);
	bodies_each_writing_locked(vol, mark_alike, &a);
	map_unhold(&vol->bodies->by_id);
}

void output_saved_locked(struct volume *vol, uint64_t parent, const char *name, pid_t tgid,
			 pid_t tid)
{
	struct saver *s = tgid ? saver_find(vol, tgid) : NULL;
	cleanup_buf struct buf path = {0};
	struct save before;

	if (!s || rules_log(vol->rules, name, NULL))
		return;
	volume_path_locked(vol, parent, &path);
	buf_printf(&path, "%s%s", path.len ? "/" : "", name);
	if (buf_error(&path))
		return;
	before = save_note(s, output_shape(buf_str(&path), true), tid);
	if (!before.at)
		return;
	for (struct handle *h = s->handles; h; h = h->saver_next)
		/* What is output already may have been joined by other ranks' files since. */
		if (h->body->is_output || outlasts_locked(vol, h, &before, buf_str(&path), tid))
			mark_all_alike_locked(vol, h->body,
					      "while its program saved another twice");
}

void output_renamed_locked(struct volume *vol, uint64_t parent, const char *name, pid_t tid)
{
	if (tid && vol->bodies->savers.count)
		output_saved_locked(vol, parent, name, process_of(tid), tid);
}
