/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing open files. */
#include "lib/live/bodies.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include "lib/cache/evict.h"
#include "lib/live/cramped.h"
#include "lib/live/observer.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"

static bool shows_version(struct volume *vol, const struct body *b, uint64_t version)
{
	SCOPED_LOCK(&vol->lock);
	return !b->staged && b->version == version;
}

int body_content(struct volume *vol, struct body *b, struct content **ret_content)
{
	struct content *c = NULL, *extra = NULL;
	uint64_t version;
	int error;

	for (;;) {
		mutex_lock(&vol->lock);
		version = b->version;
		if (!b->staged && !b->content && c && content_version(c) == version)
			b->content = steal_ptr(c);
		extra = steal_ptr(c);
		c = !b->staged && b->content ? content_ref(b->content) : NULL;
		if (b->staged || c) {
			mutex_unlock(&vol->lock);
			content_put(extra);
			*ret_content = c;
			return 0;
		}
		mutex_unlock(&vol->lock);
		content_put(extra);
		error = content_get(vol, version, &c);
		/* An edit that ended in between leaves nobody who needs what was before it. */
		if (error && (error != -ENOENT || shows_version(vol, b, version)))
			return error == -ENOENT ? -EIO : error;
	}
}

/* Where to read from: the backing file of a staged body, counted, or its closed content. */
static int source_of(struct handle *h, struct backing **ret_backing, struct content **ret_content)
{
	struct body *b = h->body;
	int error;

	for (;;) {
		mutex_lock(&h->vol->lock);
		*ret_backing = b->staged ? backing_ref(b->backing) : NULL;
		mutex_unlock(&h->vol->lock);
		*ret_content = NULL;
		if (*ret_backing)
			return 0;
		error = body_content(h->vol, b, ret_content);
		if (error || *ret_content)
			return error;
	}
}

ssize_t handle_read(struct handle *h, void *data, size_t len, uint64_t offset,
		    interrupted_fn interrupted, void *arg)
{
	struct backing *backing;
	struct content *c;
	ssize_t n = source_of(h, &backing, &c);

	if (n)
		return n;
	if (backing)
		n = io_pread_some(backing->fd, data, len, offset);
	else
		n = content_read(c, data, len, offset, interrupted, arg);
	backing_put(backing);
	content_put(c);
	return n;
}

/* A splice may still read from what handle_read_fd gave out before; none takes this long. */
#define LENT_LIFE (60 * NS_PER_S)

/* The descriptor becomes the handle's (or its newest is the same): borrowed until the release. */
static int lend(struct handle *h, struct backing *backing, uint64_t version)
{
	struct lent *l = malloc(sizeof(*l)), *old = NULL, **p;
	int64_t now = clock_mono_ns();

	if (!l) {
		backing_put(backing);
		return -ENOMEM;
	}
	*l = (struct lent){.backing = backing, .version = version, .at_ns = now};
	mutex_lock(&h->vol->lock);
	l->next = h->lent;
	h->lent = l;
	/* The first may be in use; those behind it only if something came before them lately. */
	for (p = &l->next; *p; p = &(*p)->next) {
		if (now - l->at_ns > LENT_LIFE) {
			old = *p;
			*p = NULL;
			break;
		}
		l = *p;
	}
	mutex_unlock(&h->vol->lock);
	lent_free(old);
	return 0;
}

void lent_free(struct lent *l)
{
	while (l) {
		struct lent *next = l->next;

		backing_put(l->backing);
		free(l);
		l = next;
	}
}

/* The same descriptor as last time, where the body works on the same version. */
static int lent_fd(struct handle *h, uint64_t version)
{
	int fd = -1;

	mutex_lock(&h->vol->lock);
	if (h->lent && h->lent->version == version)
		fd = h->lent->backing->fd;
	mutex_unlock(&h->vol->lock);
	return fd;
}

/* A file that shows other content by now may be given this one back by a rollback, and be changed in that very inode. */
static bool is_shown(struct handle *h)
{
	SCOPED_LOCK(&h->vol->lock);
	return !h->body->orphan;
}

static int lend_content(struct handle *h, const struct content *c)
{
	struct backing *backing;
	int fd = lent_fd(h, content_version(c)), error;

	if (fd >= 0)
		return fd;
	fd = object_open(h->vol, content_version(c), O_RDONLY);
	if (fd < 0) /* an empty one may have no file: then handle_read answers */
		return fd == -ENOENT ? -EAGAIN : fd;
	backing = malloc(sizeof(*backing));
	if (!backing) {
		close(fd);
		return -ENOMEM;
	}
	atomic_init(&backing->refs, 1);
	backing->fd = fd;
	error = lend(h, backing, content_version(c));
	return error ? error : fd;
}

static ssize_t lend_staged(struct handle *h, struct backing *backing, size_t len, uint64_t offset,
			   int *ret_fd)
{
	int fd = backing->fd, error;
	struct stat st;

	if (fstat(fd, &st) < 0) {
		error = -errno;
		backing_put(backing);
		return error;
	}
	if (lent_fd(h, 0) == fd) {
		backing_put(backing);
	} else {
		error = lend(h, backing, 0);
		if (error)
			return error;
	}
	*ret_fd = fd;
	if ((uint64_t)st.st_size <= offset)
		return 0;
	return len < (uint64_t)st.st_size - offset ? (ssize_t)len
						   : (ssize_t)((uint64_t)st.st_size - offset);
}

ssize_t handle_read_fd(struct handle *h, size_t len, uint64_t offset, int *ret_fd)
{
	struct backing *backing;
	struct content *c;
	uint64_t size;
	int fd, error = source_of(h, &backing, &c);

	if (error)
		return error;
	if (backing)
		return lend_staged(h, backing, len, offset, ret_fd);
	size = content_size(c);
	len = offset >= size ? 0 : len < size - offset ? len : (size_t)(size - offset);
	/* What is not whole may be dropped again before the caller has read it. */
	fd = content_whole(c) && is_shown(h) ? lend_content(h, c) : -EAGAIN;
	content_put(c);
	if (fd < 0)
		return fd;
	*ret_fd = fd;
	return (ssize_t)len;
}

/* ---- writing ---- */

/* Where the edit has begun, which is nearly always, this takes the lock once, and nothing of the write takes it again. */
static int begin_write(struct handle *h, uint64_t keep, interrupted_fn interrupted, void *arg,
		       int *ret_fd)
{
	struct volume *vol = h->vol;
	struct body *b = h->body;
	int error;

	if (!h->writes)
		return -EBADF;
	mutex_lock(&vol->lock);
	if (b->staged && !b->preparing) {
		error = body_open_write_locked(b);
	} else {
		mutex_unlock(&vol->lock);
		error = edit_begin(vol, b, keep, interrupted, arg);
		mutex_lock(&vol->lock);
	}
	if (!error) {
		/* Closed by one descriptor, written by another: unless its opener has none any more. */
		if (b->closing_ns && !h->held && !h->ended)
			body_set_closing_locked(vol, b, 0, b->releasing);
		h->closed = h->held || h->ended;
		b->changes++;
		*ret_fd = b->write_fd;
		error = b->write_fd < 0 ? -EBADF : 0;
	}
	mutex_unlock(&vol->lock);
	if (!error)
		FAULT_POINT("write.ready");
	return error;
}

int handle_begin_write(struct handle *h, interrupted_fn interrupted, void *arg, int *ret_fd)
{
	return begin_write(h, UINT64_MAX, interrupted, arg, ret_fd);
}

static ssize_t write_once(int fd, const void *data, size_t len, uint64_t offset)
{
	ssize_t n;
	int error;

	if (offset != UINT64_MAX) {
		error = io_pwrite_full(fd, data, len, offset);
		return error ? error : (ssize_t)len;
	}
	/* The flag of this one write, so that appends of several processes do not overlap. */
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};

	do
		n = pwritev2(fd, &iov, 1, 0, RWF_APPEND);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* Who appends (UINT64_MAX) writes below nothing. */
static void note_lowest(struct body *b, uint64_t offset)
{
	uint64_t lowest = atomic_load_explicit(&b->lowest, memory_order_relaxed);

	while (offset < lowest && !atomic_compare_exchange_weak(&b->lowest, &lowest, offset))
		;
}

ssize_t handle_write_to(struct handle *h, int fd, const void *data, size_t len, uint64_t offset,
			interrupted_fn interrupted, void *arg)
{
	ssize_t n;
	int error;

	note_lowest(h->body, offset);
	n = write_once(fd, data, len, offset);
	if (n == -ENOSPC || n == -EDQUOT) {
		error = volume_reserve(h->vol, len, interrupted, arg);
		n = error ? error : write_once(fd, data, len, offset);
	}
	FAULT_POINT("write.done");
	return n;
}

ssize_t handle_write(struct handle *h, const void *data, size_t len, uint64_t offset,
		     interrupted_fn interrupted, void *arg)
{
	int fd, error = begin_write(h, UINT64_MAX, interrupted, arg, &fd);

	return error ? error : handle_write_to(h, fd, data, len, offset, interrupted, arg);
}

static bool is_refusal(ssize_t result)
{
	return result == -ENOSPC || result == -EDQUOT || result == -EIO;
}

static void note_refused_locked(struct body *b, uint64_t from, uint64_t to)
{
	bool none = b->refused_from >= b->refused_to;

	b->refused_from = none || from < b->refused_from ? from : b->refused_from;
	b->refused_to = none || to > b->refused_to ? to : b->refused_to;
}

/* Rewritten, from either end. */
static void note_covered_locked(struct body *b, uint64_t from, uint64_t to)
{
	if (from <= b->refused_from && to > b->refused_from)
		b->refused_from = to;
	else if (from > b->refused_from && from < b->refused_to && to >= b->refused_to)
		b->refused_to = from;
}

void handle_note_write(struct handle *h, uint64_t offset, size_t len, ssize_t result)
{
	struct body *b = h->body;
	struct stat st;

	if (result > 0)
		note_lowest(b, offset);
	/* Nearly always, and not worth the lock. */
	if (!is_refusal(result) && !atomic_load(&b->was_refused) && !atomic_load(&b->is_followed))
		return;
	SCOPED_LOCK(&h->vol->lock);
	if (is_refusal(result))
		atomic_store(&b->was_refused, true);
	if (offset == UINT64_MAX) /* appended: it ends there now */
		offset = b->fd < 0 || fstat(b->fd, &st) < 0
				 ? 0
				 : (uint64_t)st.st_size - (result > 0 ? (uint64_t)result : 0);
	if (is_refusal(result)) {
		note_refused_locked(b, offset, offset + len);
		b->refused_error = (int)result;
		b->redone = 0;
	} else if (result > 0) {
		spans_add(&b->written, offset, offset + (uint64_t)result);
		if (offset <= b->redone && offset + (uint64_t)result > b->redone)
			b->redone = offset + (uint64_t)result;
		if (b->refused_from < b->refused_to)
			note_covered_locked(b, offset, offset + (uint64_t)result);
	}
	body_note_locked(b);
}

void body_note_truncated_locked(struct body *b, uint64_t size)
{
	/*
	 * The kernel cuts what a direct write that was refused had made longer, and a program may cut the file to where it got: neither
	 * writes what was refused. Who appends takes back a part of a record so. And all of it may have been written since, and be smaller.
	 */
	if (size <= b->redone || (b->append_only && size <= b->refused_from))
		b->refused_to = 0;
	if (size < b->kept_size)
		b->kept_size = size;
	note_lowest(b, size);
	if (!size) {
		b->cramped = false;
		b->emptied_ns = clock_wall_ns();
	}
	body_note_locked(b);
}

/* A log that an epoch takes as it stands is cut once that has its copy. */
static int truncate_body(struct volume *vol, struct body *b, int fd, uint64_t size)
{
	int error;

	mutex_lock(&vol->lock);
	if (!b->is_output && !b->append_only) {
		mutex_unlock(&vol->lock);
		return io_truncate(fd, size);
	}
	vol->observer->await_log_locked(vol, b->ino);
	error = io_truncate(fd, size);
	mutex_unlock(&vol->lock);
	return error;
}

int handle_truncate(struct handle *h, uint64_t size, interrupted_fn interrupted, void *arg)
{
	struct body *b = h->body;
	int fd, error = begin_write(h, size, interrupted, arg, &fd);

	/* It makes room. */
	cramped_look(h->vol);
	if (!error)
		error = truncate_body(h->vol, b, fd, size);
	if (error)
		return error;
	SCOPED_LOCK(&h->vol->lock);
	body_note_truncated_locked(b, size);
	return 0;
}

/* ---- holes ---- */

static int seek_fd(int fd, uint64_t offset, int whence, uint64_t *ret_offset)
{
	off_t at = lseek(fd, (off_t)offset, whence);

	if (at < 0)
		return -errno;
	*ret_offset = (uint64_t)at;
	return 0;
}

int handle_lseek(struct handle *h, uint64_t offset, int whence, interrupted_fn interrupted,
		 void *arg, uint64_t *ret_offset)
{
	struct backing *backing;
	struct content *c;
	int error;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	error = source_of(h, &backing, &c);
	if (error)
		return error;
	error = backing ? seek_fd(backing->fd, offset, whence, ret_offset)
			: content_seek(c, offset, whence, interrupted, arg, ret_offset);
	backing_put(backing);
	content_put(c);
	return error;
}

/* ---- preallocation ---- */

/* A file in more parts is not looked at to its end. */
#define EXTENTS_MAX 1000

/* How many bytes of [offset, end) are data. What is preallocated and not written is none. False: it cannot be told. */
static bool data_between(struct handle *h, uint64_t offset, uint64_t end,
			 interrupted_fn interrupted, void *arg, uint64_t *ret_bytes)
{
	*ret_bytes = 0;
	for (unsigned i = 0; offset < end; i++) {
		uint64_t data, hole;
		int error = handle_lseek(h, offset, SEEK_DATA, interrupted, arg, &data);

		if (error == -ENXIO || (!error && data >= end))
			return true;
		if (!error)
			error = handle_lseek(h, data, SEEK_HOLE, interrupted, arg, &hole);
		if (error || hole <= data || i == EXTENTS_MAX)
			return false;
		*ret_bytes += (hole < end ? hole : end) - data;
		offset = hole;
	}
	return true;
}

/* What the disk keeps for the file and is not written. */
static uint64_t preallocated(struct handle *h, interrupted_fn interrupted, void *arg)
{
	uint64_t data, allocated = 0;
	struct stat st;

	mutex_lock(&h->vol->lock);
	if (h->body->staged && fstat(h->body->fd, &st) == 0)
		allocated = (uint64_t)st.st_blocks * 512;
	mutex_unlock(&h->vol->lock);
	if (!allocated || !data_between(h, 0, INT64_MAX, interrupted, arg, &data))
		return 0;
	return allocated > data ? allocated - data : 0;
}

int handle_reserve(struct handle *h, int mode, uint64_t offset, uint64_t len,
		   interrupted_fn interrupted, void *arg)
{
	uint64_t missing = len, data = 0, kept;

	if (mode & FALLOC_FL_PUNCH_HOLE)
		return volume_reserve(h->vol, 0, interrupted, arg);
	/* Else it counts as if nothing were there. */
	if (data_between(h, offset, offset + len, interrupted, arg, &data))
		missing -= data;
	kept = missing ? preallocated(h, interrupted, arg) : 0;
	return volume_reserve(h->vol, missing > kept ? missing - kept : 0, interrupted, arg);
}

int handle_fallocate(struct handle *h, int mode, uint64_t offset, uint64_t len,
		     interrupted_fn interrupted, void *arg)
{
	int fd, error = begin_write(h, UINT64_MAX, interrupted, arg, &fd);

	if (error)
		return error;
	note_lowest(h->body, offset);
	error = fallocate(fd, mode, (off_t)offset, (off_t)len) < 0 ? -errno : 0;
	/* What seemed to be kept for this range may be elsewhere in the file. */
	if (error == -ENOSPC || error == -EDQUOT) {
		error = volume_reserve(h->vol, len, interrupted, arg);
		if (!error && fallocate(fd, mode, (off_t)offset, (off_t)len) < 0)
			error = -errno;
	}
	return error;
}

/* ---- fsync ---- */

static int sync_rows_locked(struct volume *vol, struct body *b, const struct stat *st)
{
	struct state_version v;
	int error = state_version_get(vol->state, b->version, &v);

	if (error)
		return error == -ENOENT ? 0 : error;
	b->synced_size = (uint64_t)st->st_size;
	b->synced_ctime_ns = stat_ctime(st);
	if (b->staged) {
		/* A replacement stays fragile until it is closed. */
		if (!v.fragile || v.kind != VERSION_NEW)
			return 0;
		v.fragile = b->fragile = false;
	} else {
		if (v.fsynced)
			return 0;
		v.fsynced = true;
	}
	return state_version_set(vol->state, &v);
}

int handle_fsync(struct handle *h, bool data_only)
{
	struct volume *vol = h->vol;
	struct body *b = h->body;
	cleanup_close int own = -1;
	struct backing *backing;
	struct stat st = {0};
	int fd, error = 0;
	bool first;

	mutex_lock(&vol->lock);
	first = !b->synced_ctime_ns; /* of this version: its file's name is not safe yet */
	backing = b->staged ? backing_ref(b->backing) : NULL;
	if (!backing)
		own = object_open(vol, b->version, O_RDONLY);
	mutex_unlock(&vol->lock);
	fd = backing ? backing->fd : own;
	if (fd < 0) /* not local: the remote has it */
		return fd == -ENOENT ? state_sync(vol->state) : fd;
	if (fstat(fd, &st) < 0 || (data_only ? fdatasync(fd) : fsync(fd)) < 0 ||
	    (first && fsync(vol->objects_fd) < 0))
		error = -errno;
	FAULT_POINT("fsync.data");
	if (!error && !vol->options.read_only) {
		SCOPED_LOCK(&vol->lock);
		error = sync_rows_locked(vol, b, &st);
	}
	backing_put(backing);
	return error ? error : state_sync(vol->state);
}
