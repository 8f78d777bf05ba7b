/* SPDX-License-Identifier: Apache-2.0 */
/* Freezing: from a snapshot of the live tree to the tree of an epoch. */
#include "lib/epochs/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "lib/cache/trees.h"
#include "lib/format/tails.h"
#include "lib/format/xattrs.h"
#include "lib/meta/doubts.h"
#include "lib/state/reserve.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/arrivals.h"

/* So many files are looked at for what torn ones were saved together with. */
#define PARTS_MAX 16384

struct walk {
	struct volume *vol;
	struct seal_job *job;
	struct freeze_result *result;
	struct tree_writer *writer;
	struct doubts *doubts;
	struct buf path; /* of the entry that is being added */
	unsigned named;
	uint32_t depth; /* of the entry that is being added */
	struct arrivals arrivals;
	size_t parts_looked;
	uint64_t came;	     /* of what is being added, as doubts_file.came */
	struct buf counted;  /* uint64_t: new files with several names, counted once */
	struct tree *before; /* of the parent, once it is asked for; NULL where it is not here */
	bool before_asked;
	int64_t before_ns; /* the parent was sealed a second later; INT64_MIN: it is not known when */
	bool again; /* it is the second walk: the log has what is wrong, and the judge what is in `torn` */
	struct torn_temporaries torn; /* met in the first */
};

void freeze_result_free(struct freeze_result *r)
{
	buf_free(&r->tree);
	buf_free(&r->torn);
	buf_free(&r->whole);
	buf_free(&r->reason);
	doubts_free(r->doubts);
	r->doubts = NULL;
}

/* ---- logs ---- */

/* The epoch does not have it after all: the next one is to take it, grown or not. */
static void forget_taken(struct volume *vol, uint64_t ino)
{
	struct seal_last *last = &vol->sealer->last;
	SCOPED_LOCK(&vol->lock);

	for (unsigned i = 0; i < last->log_count; i++)
		if (last->logs[i].ino == ino)
			last->logs[i].size = UINT64_MAX;
}

static int copy_log(struct volume *vol, struct seal_log *log)
{
	cleanup_close int fd = -1;
	int error = 0;

	if (log->size) {
		fd = object_open(vol, log->version, O_RDWR | O_CREAT);
		do
			error = fd < 0 ? fd : io_clone(log->fd, fd, log->size);
		while (reserve_is_for(error) && reserve_give(state_reserve(vol->state), log->size));
	}
	close(steal_fd(&log->fd));
	if (!reserve_is_for(error))
		return error;
	/* A full disk ends when the epoch is in the remote: it must not fail for a log. */
	log_warn("inode %" PRIu64
		 ": no space for a copy of this open log: the epoch takes it as it "
		 "was last closed",
		 log->ino);
	object_remove(vol, log->version);
	log->version = 0;
	forget_taken(vol, log->ino);
	return 0;
}

static int copy_logs(struct volume *vol, struct seal_job *job)
{
	for (unsigned i = 0; i < job->log_count; i++) {
		int error = copy_log(vol, &job->logs[i]);
		SCOPED_LOCK(&vol->lock);

		job->logs[i].copied = true;
		pthread_cond_broadcast(&vol->changed);
		if (error)
			return error;
	}
	return 0;
}

static const struct seal_log *log_of(const struct seal_job *job, uint64_t ino)
{
	for (unsigned i = 0; i < job->log_count; i++)
		if (job->logs[i].ino == ino && job->logs[i].version)
			return &job->logs[i];
	return NULL;
}

/* ---- one entry ---- */

static int collect_xattr(void *arg, const char *name, const void *value, size_t len)
{
	return xattrs_set(arg, name, value, len);
}

static int entry_of_file(struct walk *w, const char *name, const struct state_file *f,
			 struct buf *xattrs, struct tree_entry *e)
{
	int error = state_xattr_list(w->job->snapshot, f->ino, collect_xattr, xattrs);

	if (error)
		return error;
	*e = (struct tree_entry){
		.depth = w->depth,
		.name = name,
		.name_len = strlen(name),
		.mode = f->mode & 07777,
		.uid = f->uid,
		.gid = f->gid,
		.mtime_ns = f->mtime_ns,
		.group = !S_ISDIR(f->mode) && f->nlink > 1 ? f->ino : 0,
		.xattrs = xattrs->len ? xattrs->data : NULL,
		.xattrs_len = xattrs->len,
	};
	return 0;
}

/* Bytes that no earlier epoch had; of hard links, once. */
static void count_new(struct walk *w, const struct state_file *f, uint64_t size)
{
	const uint64_t *counted = (const uint64_t *)w->counted.data;

	if (f->nlink > 1) {
		for (size_t i = 0; i < w->counted.len / sizeof(*counted); i++)
			if (counted[i] == f->ino)
				return;
		buf_put(&w->counted, &f->ino, sizeof(f->ino));
	}
	w->result->bytes_new += size;
}

static void blame(struct walk *w, const char *why)
{
	const char *path = buf_str(&w->path);

	if (!w->again)
		log_warn("epoch %" PRIu64 ": %s: %s", w->job->number, path, why);
	reason_add(&w->result->reason, &w->named, path, why);
}

/* No earlier epoch has it. */
static bool is_new(const struct walk *w, const struct state_version *v)
{
	return v->born > w->job->parent;
}

static bool tail_is_torn(struct volume *vol, const char *name, const struct state_version *v,
			 const char **ret_why)
{
	if (!v->size)
		return tail_check(-1, 0, name, ret_why) > 0;
	for (;;) {
		cleanup_close int fd = object_open(vol, v->id, O_RDONLY);
		bool torn = fd >= 0 && tail_check(fd, v->size, name, ret_why) > 0;

		/* Not what an edit in place makes of the file at this moment. */
		if (fd < 0 || !torn || object_is_still(vol, v->id, fd))
			return torn;
	}
}

static int content_of_version(struct state *state, const struct state_version *v, struct buf *bytes,
			      struct tree_entry *e)
{
	int error;

	e->size = v->size;
	if (!v->size) {
		e->content = TREE_EMPTY;
		return 0;
	}
	e->content = TREE_LOCAL;
	e->u.version = v->id;
	if (v->state != VERSION_DURABLE)
		return 0;
	if (v->has_recipe) {
		e->content = TREE_RECIPE;
		e->u.recipe = v->recipe;
		e->holes = v->holes;
		return 0;
	}
	error = state_inline_get(state, v->id, bytes);
	if (error == -ENOENT)
		return 0;
	if (!error && (bytes->len != v->size || bytes->len > TREE_INLINE_MAX))
		return -EUCLEAN;
	e->content = TREE_INLINE;
	e->u.inline_data = bytes->data;
	return error;
}

/* The tree of the epoch before; NULL where it is not to be had. */
static const struct tree *tree_before(struct walk *w)
{
	if (!w->before_asked)
		trees_load(w->vol, w->job->parent, &w->before);
	w->before_asked = true;
	return w->before;
}

/* Whether the epoch before has the file as empty, under this name. */
static bool was_empty(struct walk *w, const struct tree *before)
{
	struct tree_entry e;
	uint32_t id;

	if (tree_resolve(before, buf_str(&w->path), &id) != 0)
		return false;
	tree_get(before, id, &e);
	return e.type == TREE_REGULAR && !e.size;
}

/* `now` is content of the version `id`, which was local in that epoch perhaps. */
static bool is_same_content(const struct tree_entry *e, const struct tree_entry *now, uint64_t id)
{
	if (e->type != TREE_REGULAR || e->size != now->size)
		return false;
	if (e->content == TREE_LOCAL)
		return e->u.version == id;
	if (e->content != now->content)
		return false;
	if (e->content == TREE_RECIPE)
		return hash_equal(&e->u.recipe, &now->u.recipe);
	return e->content == TREE_INLINE && !memcmp(e->u.inline_data, now->u.inline_data, e->size);
}

/* As it is now, not as in the snapshot: the tree of the epoch before may have been read after its upload, which says where content is. */
static int content_now(struct walk *w, const struct state_version *v, struct buf *bytes,
		       struct tree_entry *e)
{
	struct state_version now;
	int error;
	SCOPED_LOCK(&w->vol->lock);

	error = state_version_get(w->vol->state, v->id, &now);
	if (error == -ENOENT)
		return content_of_version(w->job->snapshot, v, bytes, e);
	return error ? error : content_of_version(w->vol->state, &now, bytes, e);
}

/* Whether the epoch before has this content under a name, any one, by which it is judged as by this. */
static bool was_named_so(struct walk *w, const struct tree *before, const struct state_version *v)
{
	cleanup_buf struct buf bytes = {0};
	struct tree_entry now = {0};

	/* Where it cannot be told, nothing is blamed. */
	if (content_now(w, v, &bytes, &now) < 0)
		return true;
	for (uint32_t id = 0; id < tree_count(before); id++) {
		struct tree_entry e;

		tree_get(before, id, &e);
		if (is_same_content(&e, &now, v->id) && tail_depends_on_name(e.name))
			return true;
	}
	return false;
}

static int64_t sealed_before_ns(const struct seal_job *job)
{
	struct epoch_record record;
	struct state_epoch row;
	int64_t ns = INT64_MIN;

	if (state_epoch_get(job->snapshot, job->parent, &row) < 0)
		return ns;
	if (row.record && record_decode(row.record, strlen(row.record), &record) == 0) {
		/* The times of files come from a clock that ticks more slowly. */
		if (record.sealed_ns > 0)
			ns = record.sealed_ns - NS_PER_S;
		record_free(&record);
	}
	state_epoch_free(&row);
	return ns;
}

static bool is_here(const struct state_version *v)
{
	return v->state != VERSION_DURABLE || v->local_whole;
}

/* Of content that an epoch has: a name may say only now that it must not be empty, or what it is. A rename changes the file's
 * ctime, so that no other file has to be read. */
static bool became_torn(struct walk *w, const char *name, const struct state_file *f,
			const struct state_version *v, const char **ret_why)
{
	const struct tree *before;
	const char *why = NULL;

	if (v->size && (!tail_depends_on_name(name) || f->ctime_ns < w->before_ns || !is_here(v)))
		return false;
	if (!tail_is_torn(w->vol, name, v, &why))
		return false;
	before = tree_before(w);
	if (!before || (v->size ? was_named_so(w, before, v) : was_empty(w, before)))
		return false;
	*ret_why = why;
	return true;
}

/* Why the content is torn inside; NULL: it is not. What is not all here was looked at when it was new. */
static const char *why_torn(struct walk *w, const char *name, const struct state_file *f,
			    const struct state_version *v)
{
	const char *why = "not all of it was written out when its machine or its writer ended";

	if (w->job->whole) {
		if (v->torn)
			buf_put(&w->result->whole, &v->id, sizeof(v->id));
		return NULL;
	}
	if (v->torn) {
		bool here = is_here(v) || !v->size;
		/* The mark says that it is torn, not why. */
		bool torn = here && tail_is_torn(w->vol, name, v, &why);

		/* That its writer was killed, the driver knows, and when that is over. */
		return w->job->rule && here && !torn && !v->lost ? NULL : why;
	}
	/* A restored tree is judged as it was when it was sealed. */
	if (w->job->restores)
		return NULL;
	if (!is_new(w, v) ? !became_torn(w, name, f, v, &why)
			  : !is_here(v) || !tail_is_torn(w->vol, name, v, &why))
		return NULL;
	buf_put(&w->result->torn, &v->id, sizeof(v->id));
	return why;
}

struct part_search {
	struct walk *w;
	uint64_t ino;
	struct buf beside;
};

static int look_for_part(void *arg, const struct state_version *v)
{
	struct part_search *s = arg;
	int error;

	s->w->parts_looked++;
	if (v->ino == s->ino)
		return 0;
	buf_reset(&s->beside);
	error = doubts_path_of(s->w->job->snapshot, v->ino, &s->beside);
	if (error)
		return error == -ENOENT ? 0 : error;
	return doubt_same_shape_beside(buf_str(&s->w->path), buf_str(&s->beside));
}

/* As doubts_file.part_beside: one epoch has first what both replaced. */
static int find_part_beside(struct walk *w, const struct state_version *v, struct buf *ret_path)
{
	struct part_search search = {.w = w, .ino = v->ino};
	int found = 0;

	if (v->replaced && w->parts_looked < PARTS_MAX &&
	    doubt_may_be_part(w->vol->rules, buf_str(&w->path)))
		found = state_version_each_replacing(w->job->snapshot, v->replaced, v->replaced, 0,
						     INT64_MAX, PARTS_MAX, look_for_part, &search);
	if (found == 1)
		*ret_path = search.beside;
	else
		buf_free(&search.beside);
	return found < 0 ? found : 0;
}

/* Tells the judge of a file; whether it is torn. */
static int judge_file(struct walk *w, const char *name, const struct state_file *f,
		      const struct state_version *v, bool *ret_torn)
{
	cleanup_buf struct buf beside = {0};
	struct doubts_file file = {
		.path = buf_str(&w->path),
		.ino = f->ino,
		.version = v->id,
		.born = state_version_epoch(v),
		.came = w->came,
		.mtime_ns = f->mtime_ns,
		.torn = why_torn(w, name, f, v),
	};
	int error = file.torn ? find_part_beside(w, v, &beside) : 0;

	if (error)
		return error;
	*ret_torn = file.torn != NULL;
	if (beside.len)
		file.part_beside = buf_str(&beside);
	if (file.torn && is_new(w, v) && !w->again)
		log_warn("epoch %" PRIu64 ": %s: %s", w->job->number, file.path, file.torn);
	/* The save that it was for is half: those that it is judged with have to be known before the other files are. */
	if (is_new(w, v) && !w->again && !w->job->restores)
		error = torn_temporaries_add(&w->torn, w->vol->rules, &file);
	return error ? error : doubts_add_file(w->doubts, &file);
}

/* Whether an epoch before has found it torn, or somebody said that it is whole. */
static int look_at_mark(struct volume *vol, struct state_version *v)
{
	struct state_version now;
	int error;
	SCOPED_LOCK(&vol->lock);

	error = state_version_get(vol->state, v->id, &now);
	if (!error)
		v->torn = now.torn;
	return error == -ENOENT ? 0 : error;
}

/* 1: not in this epoch. */
static int content_of_file(struct walk *w, const char *name, const struct state_file *f,
			   struct buf *bytes, struct tree_entry *e)
{
	const struct seal_log *log = log_of(w->job, f->ino);
	struct state_version v;
	bool torn = false;
	int error;

	e->type = TREE_REGULAR;
	if (log) {
		e->flags |= TREE_LOG;
		e->size = log->size;
		e->mtime_ns = log->mtime_ns;
		e->content = log->size ? TREE_LOCAL : TREE_EMPTY;
		e->u.version = log->version;
		count_new(w, f, log->size);
		return 0;
	}
	if (!f->closed)
		return 1;
	error = state_version_get(w->job->snapshot, f->closed, &v);
	if (!error && w->job->early && !w->job->restores && !is_new(w, &v))
		error = look_at_mark(w->vol, &v);
	if (error == -ENOENT) {
		blame(w, "its content is lost from the local state");
		return 1;
	}
	if (error)
		return error;
	if (is_new(w, &v))
		count_new(w, f, v.size);
	if (rules_log(w->vol->rules, name, NULL))
		e->flags |= TREE_LOG;
	else
		error = judge_file(w, name, f, &v, &torn);
	if (torn)
		e->flags |= TREE_TORN;
	return error ? error : content_of_version(w->job->snapshot, &v, bytes, e);
}

static int target_of_symlink(struct walk *w, const struct state_file *f, struct buf *bytes,
			     struct tree_entry *e)
{
	int error = state_symlink_get(w->job->snapshot, f->ino, bytes);

	e->type = TREE_SYMLINK;
	e->size = bytes->len;
	e->u.target = buf_str(bytes);
	return error;
}

/* Fills in what is of its type; 1: it is not in this epoch. */
static int body_of_entry(struct walk *w, const char *name, const struct state_file *f,
			 struct buf *bytes, struct tree_entry *e)
{
	e->rdev_major = major(f->rdev);
	e->rdev_minor = minor(f->rdev);
	switch (f->mode & S_IFMT) {
	case S_IFREG:
		e->rdev_major = e->rdev_minor = 0;
		return content_of_file(w, name, f, bytes, e);
	case S_IFLNK:
		e->rdev_major = e->rdev_minor = 0;
		return target_of_symlink(w, f, bytes, e);
	case S_IFDIR:
		e->type = TREE_DIR;
		break;
	case S_IFIFO:
		e->type = TREE_FIFO;
		break;
	case S_IFSOCK:
		e->type = TREE_SOCKET;
		break;
	case S_IFCHR:
		e->type = TREE_CHAR;
		return 0;
	case S_IFBLK:
		e->type = TREE_BLOCK;
		return 0;
	default:
		return -EUCLEAN;
	}
	e->rdev_major = e->rdev_minor = 0;
	return 0;
}

static int add_entry(struct walk *w, const char *name, const struct state_file *f)
{
	cleanup_buf struct buf xattrs = {0}, bytes = {0};
	struct tree_entry e;
	int error = entry_of_file(w, name, f, &xattrs, &e);

	if (!error)
		error = body_of_entry(w, name, f, &bytes, &e);
	if (error)
		return error;
	if (w->depth > TREE_DEPTH_MAX) {
		blame(w, "it lies too deep");
		return 1;
	}
	return tree_writer_add(w->writer, &e);
}

/* ---- the walk ---- */

static int walk_dir(struct walk *w, uint64_t ino);

static int walk_name(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	struct walk *w = arg;
	struct state_file covered;
	uint64_t came = w->came;
	size_t len = w->path.len;
	int error;

	if (!f)
		return 0;
	/* A rename put an open file over a committed one: until it is closed, that one counts. */
	if (n->covered && !f->closed && !log_of(w->job, f->ino)) {
		error = state_file_get(w->job->snapshot, n->covered, &covered);
		if (error && error != -ENOENT)
			return error;
		if (!error)
			f = &covered;
	}
	w->came = arrivals_came(&w->arrivals, f->ino, came);
	buf_printf(&w->path, "%s%s", len ? "/" : "", name);
	error = buf_error(&w->path);
	if (!error)
		error = add_entry(w, name, f);
	if (!error && S_ISDIR(f->mode)) {
		w->depth++;
		error = walk_dir(w, f->ino);
		w->depth--;
	}
	w->path.len = len;
	w->came = came;
	return error == 1 ? 0 : error;
}

static int walk_dir(struct walk *w, uint64_t ino)
{
	return state_dir_list_sorted(w->job->snapshot, ino, walk_name, w);
}

static int walk_all(struct walk *w)
{
	struct state_file root;
	int error = state_file_get(w->job->snapshot, ROOT_INO, &root);

	if (error)
		return error;
	error = add_entry(w, "", &root);
	w->depth = 1;
	if (!error)
		error = walk_dir(w, ROOT_INO);
	return error ? error : tree_writer_finish(w->writer);
}

static int judge_begin(struct volume *vol, const struct seal_job *job, struct doubts **ret_doubts)
{
	/* By the word of somebody who knows, nothing is in doubt; and a driver judges, but for what this finds to be torn. */
	if (job->whole || job->rule) {
		int error = doubts_new(vol->rules, job->parent, ret_doubts);

		return error ? error : doubts_tell_before(vol, job->parent, *ret_doubts);
	}
	return doubts_of_snapshot(vol, job->snapshot, job->number, job->parent, job->restores,
				  ret_doubts);
}

static int judge_end(struct walk *w)
{
	struct freeze_result *r = w->result;
	int error = doubts_find_gone(w->vol, w->job->snapshot, w->doubts);

	if (!error)
		error = doubts_decide(w->doubts);
	reason_end(&r->reason, w->named);
	if (!error)
		error = buf_error(&r->reason);
	if (!error)
		error = buf_error(&r->torn);
	return error ? error : buf_error(&r->whole);
}

static int walk_once(struct walk *w)
{
	cleanup_tree_writer struct tree_writer *writer = NULL;
	int error = tree_writer_new(&w->result->tree, TREE_ALLOW_LOCAL, &writer);

	if (!error)
		error = judge_begin(w->vol, w->job, &w->result->doubts);
	w->writer = writer;
	w->doubts = w->result->doubts;
	if (!error && !w->job->rule)
		error = doubts_add_torn_temporaries(w->vol, w->job->snapshot, w->job->number,
						    w->job->pending.continues, &w->torn, w->doubts);
	if (!error)
		error = walk_all(w);
	buf_free(&w->counted);
	buf_free(&w->path);
	return error ? error : judge_end(w);
}

/* The same once more, now that it is known what is torn under a temporary name. */
static int walk_again(struct walk *w)
{
	freeze_result_free(w->result);
	*w->result = (struct freeze_result){0};
	w->named = 0;
	w->depth = 0;
	w->parts_looked = 0;
	w->came = 0;
	w->again = true;
	return walk_once(w);
}

int freeze(struct volume *vol, struct seal_job *job, struct freeze_result *ret_result)
{
	cleanup_freeze struct freeze_result result = {0};
	struct walk w = {
		.vol = vol,
		.job = job,
		.result = &result,
		.before_ns = sealed_before_ns(job),
	};
	int error = copy_logs(vol, job);

	if (error)
		return error;
	if (!job->restores)
		arrivals_since(job->snapshot, job->parent, &w.arrivals);
	error = walk_once(&w);
	if (!error && w.torn.count)
		error = walk_again(&w);
	tree_unref(w.before);
	torn_temporaries_free(&w.torn);
	if (error)
		return error;
	*ret_result = result;
	result = (struct freeze_result){0};
	return 0;
}
