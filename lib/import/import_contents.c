/* SPDX-License-Identifier: Apache-2.0 */
/* Importing: the files' contents go into the store. */
#include "lib/import/import_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/format/tails.h"
#include "lib/upload/upload_epoch.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/log.h"

/* Attempts to read a file that changes meanwhile, in one round. */
#define FILE_TRIES 3
/* A record lists at most RECORD_LIST_MAX index objects. */
#define PARTS_MAX (RECORD_LIST_MAX / 4)

/* ---- the batch ---- */

static void show_batch(struct import *imp, struct store_batch *batch)
{
	struct store_stats done = {0};

	SCOPED_LOCK(&imp->lock);
	if (imp->batch)
		store_batch_progress(imp->batch, &done);
	imp->progress.stored += done.stored;
	imp->batch = batch;
	imp->plain_before = 0;
}

int import_part_begin(struct import_job *j)
{
	int error;

	if (j->batch)
		return 0;
	error = upload_gc_heed(j->imp->vol->remote, j->imp->vol->store);
	if (!error)
		error = store_batch_begin(j->imp->vol->store, j->record.number, &j->batch);
	j->store_failed = error != 0;
	if (error)
		return error;
	j->in_part = 0;
	show_batch(j->imp, j->batch);
	return 0;
}

int import_part_end(struct import_job *j)
{
	struct store_stats stats;
	int error;

	if (!j->batch)
		return 0;
	error = store_batch_flush(j->batch, &j->record, &stats);
	if (!error) {
		import_parts_remember(j);
		error = store_batch_finish(j->batch, &j->record, &stats);
	}
	j->store_failed = error != 0;
	show_batch(j->imp, NULL);
	store_batch_free(steal_ptr(j->batch));
	if (!error)
		FAULT_POINT("import.part");
	return error;
}

/* Many parts would make a long record: of large imports they are larger. */
static uint64_t part_len(const struct import_job *j, uint64_t total)
{
	return total / PARTS_MAX > j->part_len ? total / PARTS_MAX : j->part_len;
}

/* ---- one file ---- */

static int read_inline(struct import_job *j, struct scan_node *n, int fd)
{
	free(n->data);
	n->data = malloc(n->size);
	if (!n->data)
		return -ENOMEM;
	n->content = SCAN_INLINE;
	j->inline_bytes += n->size;
	return io_pread_full(fd, n->data, n->size, 0);
}

/* -ENODATA: the file is shorter by now. */
static int read_content(struct import_job *j, struct scan_node *n, int fd)
{
	int error;

	n->content = SCAN_EMPTY;
	if (!n->size)
		return 0;
	if (n->size <= TREE_INLINE_MAX && j->inline_bytes + n->size <= UPLOAD_INLINE_BYTES_MAX)
		return read_inline(j, n, fd);
	error = import_part_begin(j);
	if (error)
		return error;
	j->in_part += n->size;
	n->content = SCAN_RECIPE;
	error = store_put_fd(j->batch, fd, n->size, &n->recipe, &n->holes);
	/* What the remote or the local state says ends the import; else it is of this file. */
	j->store_failed = store_batch_error(j->batch) != 0;
	return j->store_failed ? store_batch_error(j->batch) : error;
}

static void check_tail(struct import_job *j, struct scan_node *n, int fd)
{
	n->torn = !n->log && tail_check(fd, n->size, scan_name(&j->scan, n), &n->why) > 0;
}

/* The file as it was is lost: another, or its next content, is there. */
static int superseded(struct import_job *j, size_t number)
{
	j->scan.moved = true;
	j->scan.nodes[number].left = true;
	return j->how->as_of_ns ? import_note_changing(j, number) : 0;
}

/* It is being written: the epoch has it as the one before, or not at all. */
static int take_former(struct import_job *j, size_t number)
{
	struct scan_node *n = &j->scan.nodes[number];
	cleanup_buf struct buf path = {0};
	struct tree_entry e;
	uint32_t id;

	n->left = true;
	if (!j->parent_tree)
		return 0;
	if (scan_path(&j->scan, number, &path))
		return -ENOMEM;
	if (tree_resolve(j->parent_tree, buf_str(&path), &id))
		return 0;
	tree_get(j->parent_tree, id, &e);
	if (e.type != TREE_REGULAR)
		return 0;
	n->former = id;
	n->left = false;
	return 0;
}

static bool same_look(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && clock_ns(a->st_mtim) == clock_ns(b->st_mtim) &&
	       clock_ns(a->st_ctim) == clock_ns(b->st_ctim);
}

enum look { LOOK_READ, LOOK_GONE, LOOK_WRITTEN, LOOK_LATER };

/* Opens the file and decides what to do with it. */
static int look_at(struct import_job *j, int dir_fd, const struct scan_node *n, int *ret_fd,
		   struct stat *ret_st, enum io_writers *ret_writers, enum look *ret_look)
{
	cleanup_close int fd = openat(dir_fd, scan_name(&j->scan, n),
				      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 && errno != ENOENT && errno != ELOOP && errno != ENXIO && errno != ESTALE)
		return -errno;
	if (fd >= 0 && fstat(fd, ret_st) < 0)
		return -errno;
	*ret_look = LOOK_GONE;
	if (fd < 0 || !S_ISREG(ret_st->st_mode) || ret_st->st_ino != n->ino ||
	    ret_st->st_dev != n->dev)
		return 0;
	*ret_writers = io_writers(fd);
	*ret_look = LOOK_READ;
	if (j->how->as_of_ns && !n->log) {
		if (*ret_writers == IO_WRITERS_SOME)
			*ret_look = LOOK_WRITTEN;
		else if (clock_ns(ret_st->st_ctim) > j->how->as_of_ns)
			*ret_look = LOOK_LATER;
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* 1: it changed meanwhile; 0, or -errno. */
static int read_once(struct import_job *j, size_t number, int fd, const struct stat *before,
		     enum io_writers writers)
{
	struct scan_node *n = &j->scan.nodes[number];
	struct stat after;
	int error;

	scan_node_stat(n, before);
	error = read_content(j, n, fd);
	if (error == -ENODATA)
		return 1;
	if (error)
		return error;
	if (fstat(fd, &after) < 0)
		return -errno;
	if (n->log ? after.st_size < before->st_size : !same_look(before, &after))
		return 1;
	check_tail(j, n, fd);
	import_known_remember(j, n, writers);
	j->files_read++;
	j->bytes_read += n->size;
	return 0;
}

static int read_file(struct import_job *j, size_t number, int dir_fd)
{
	struct scan_node *n = &j->scan.nodes[number];
	uint64_t inlined = j->inline_bytes;
	int result = 1;

	for (int i = 0; result == 1 && i < FILE_TRIES; i++) {
		cleanup_close int fd = -1;
		enum io_writers writers;
		enum look look;
		struct stat before;
		int error = look_at(j, dir_fd, n, &fd, &before, &writers, &look);

		if (error)
			return error;
		j->inline_bytes = inlined;
		if (look == LOOK_WRITTEN)
			return take_former(j, number);
		if (look != LOOK_READ)
			return superseded(j, number);
		result = read_once(j, number, fd, &before, writers);
	}
	if (result != 1)
		return result;
	n->changes = true;
	n->torn = !n->log;
	n->why = IMPORT_WHY_CHANGED;
	return import_note_changing(j, number);
}

/* ---- all ---- */

/* The directory that was opened last. */
struct place {
	uint32_t directory;
	int fd;
};

static void place_close(struct place *p)
{
	if (p->fd >= 0)
		close(p->fd);
}

/* -ENOENT and the like: it is not there any more. */
static int place_go(struct import_job *j, uint32_t directory, struct place *p)
{
	uint32_t way[TREE_DEPTH_MAX + 1];
	size_t depth = 0;
	cleanup_close int fd = -1;

	if (p->fd >= 0 && p->directory == directory)
		return 0;
	for (uint32_t id = directory; id; id = j->scan.nodes[id].parent)
		way[depth++] = id;
	fd = fcntl(j->root_fd, F_DUPFD_CLOEXEC, 3);
	while (fd >= 0 && depth) {
		const struct scan_node *n = &j->scan.nodes[way[--depth]];
		int below = openat(fd, scan_name(&j->scan, n),
				   O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		int error = errno;

		close(fd);
		fd = below;
		errno = error;
	}
	if (fd < 0)
		return -errno;
	place_close(p);
	*p = (struct place){directory, steal_fd(&fd)};
	return 0;
}

static int read_at(struct import_job *j, size_t number, struct place *p)
{
	int error = place_go(j, j->scan.nodes[number].parent, p);

	if (error == -ENOENT || error == -ENOTDIR || error == -ELOOP)
		return superseded(j, number);
	return error ? error : read_file(j, number, p->fd);
}

/* What is empty may be in the making. */
static bool is_wanted(const struct import_job *j, const struct scan_node *n)
{
	return S_ISREG(n->mode) && (n->content == SCAN_UNREAD ||
				    (n->content == SCAN_EMPTY && (n->log || j->how->as_of_ns)));
}

static void plan(struct import_job *j)
{
	struct import *imp = j->imp;
	uint64_t files = 0, unread = 0, bytes = 0;

	for (size_t i = 0; i < j->scan.count; i++) {
		const struct scan_node *n = &j->scan.nodes[i];

		if (!S_ISREG(n->mode) || (n->group && n->group != i))
			continue;
		files++;
		unread += n->content == SCAN_UNREAD;
		bytes += n->content == SCAN_UNREAD ? n->size : 0;
	}
	j->part_len = part_len(j, bytes);
	SCOPED_LOCK(&imp->lock);
	imp->progress = (struct import_progress){.files = files - unread,
						 .files_total = files,
						 .bytes_total = bytes,
						 .stored = imp->progress.stored};
}

static void advance(struct import *imp, uint64_t bytes)
{
	struct store_stats done = {0};

	SCOPED_LOCK(&imp->lock);
	if (imp->batch)
		store_batch_progress(imp->batch, &done);
	imp->plain_before = done.plain;
	imp->progress.files++;
	imp->progress.bytes += bytes;
}

static int read_one(struct import_job *j, size_t number, struct place *p)
{
	bool unread = j->scan.nodes[number].content == SCAN_UNREAD;
	uint64_t size = j->scan.nodes[number].size;
	int error = import_stops(j) ? -ECANCELED : read_at(j, number, p);

	if (error && !j->store_failed)
		return import_fail_at(j, number, error);
	if (!error && j->in_part >= j->part_len)
		error = import_part_end(j);
	if (!error && unread)
		advance(j->imp, size);
	return error;
}

/* Of an empty file nothing is read. What the epoch before has so stays as it was judged, perhaps by word. */
static int judge_empty(struct import_job *j, size_t number)
{
	struct scan_node *n = &j->scan.nodes[number];
	cleanup_buf struct buf path = {0};
	struct tree_entry before;
	uint32_t id;

	if (n->log || n->left || !S_ISREG(n->mode) || n->content != SCAN_EMPTY)
		return 0;
	if (scan_path(&j->scan, number, &path))
		return -ENOMEM;
	n->torn = tail_check(-1, 0, scan_name(&j->scan, n), &n->why) > 0;
	if (!n->torn || !j->parent_tree || tree_resolve(j->parent_tree, buf_str(&path), &id))
		return 0;
	tree_get(j->parent_tree, id, &before);
	if (before.type == TREE_REGULAR && before.content == TREE_EMPTY)
		n->torn = before.flags & TREE_TORN;
	return 0;
}

/* Of a file with several names, the first that can be had is read. */
int import_contents(struct import_job *j)
{
	CLEANUP(place_close) struct place p = {.fd = -1};
	cleanup_free bool *read = calloc(j->scan.count + 1, sizeof(*read)); /* by group */

	if (!read)
		return -ENOMEM;
	plan(j);
	for (size_t i = 0; i < j->scan.count; i++) {
		struct scan_node *n = &j->scan.nodes[i];
		int error = 0;

		if (is_wanted(j, n) && !read[n->group])
			error = read_one(j, i, &p);
		if (!error)
			error = judge_empty(j, i);
		if (error)
			return error;
		if (n->group && !n->left)
			read[n->group] = true;
	}
	return 0;
}

int import_open_content(void *arg, const struct hash *recipe, uint64_t size)
{
	CLEANUP(place_close) struct place p = {.fd = -1};
	struct import_job *j = arg;
	int fd = -1;

	for (size_t i = 0; i < j->scan.count && fd < 0; i++) {
		const struct scan_node *n = &j->scan.nodes[i];

		if (!S_ISREG(n->mode) || n->content != SCAN_RECIPE || n->size != size ||
		    !hash_equal(&n->recipe, recipe) || place_go(j, n->parent, &p))
			continue;
		fd = openat(p.fd, scan_name(&j->scan, n),
			    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	}
	return fd < 0 ? -ENOENT : fd;
}
