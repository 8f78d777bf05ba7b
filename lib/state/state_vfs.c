/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How SQLite reaches its files: by its own VFS for databases of one process, but a write that finds
 * the disk full is done again with what the reserve gives up (reserve.h), and a file is removed from
 * the directory that was opened, not from one that was put in its place.
 *
 * A VFS of ours has the name of the state that it belongs to. An open file is SQLite's own object,
 * with room behind it for `struct extra`; of its methods xWrite is another and, for the journal,
 * those that must find what xWrite holds back. (sqlite.org/vfs.html, sqlite.org/c3ref/io_methods.html)
 *
 * For each page that a transaction changed SQLite appends two pieces to the journal: the head of a
 * frame, and the page (sqlite.org/fileformat2.html, "The Write-Ahead Log"). They are held back, and
 * written together with the page of the frame that commits. Before that only this connection reads
 * them, and nothing was promised that could be lost.
 */
#include "lib/state/state_db.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "lib/state/reserve.h"
#include "lib/util/buf.h"
#include "lib/util/clock.h"

/* What fails for ever is told so often. */
#define TELL_AGAIN_NS (60 * NS_PER_S)

/* Only this process uses the database (the cache's lock sees to it): SQLite's locks of it, a dozen a
 * transaction, need no system call then, and the index of the WAL no file. */
#define VFS_OF_ONE_PROCESS "unix-excl"

struct state_vfs {
	sqlite3_vfs vfs; /* what is registered; pAppData is this object */
	sqlite3_vfs *plain;
	struct reserve *reserve;
	int dirfd;
	char name[32];
	atomic_bool damaged;
	atomic_int told; /* the error that was told last */
	_Atomic int64_t told_ns;
};

/* Of the journal; the head says at this offset of how many pages the database is, where it commits. */
#define FRAME_HEAD_LEN	   24
#define FRAME_HEAD_COMMITS 4
#define HELD_MAX	   (256u << 10)
/* SQLite's own VFS writes at most 128 KiB less one byte, and loses what is more. */
#define PIECE_MAX (64u << 10)

struct extra {
	sqlite3_io_methods methods;
	const sqlite3_io_methods *plain;
	struct reserve *reserve;
	struct buf held;    /* what is to be written in front of `end` */
	sqlite3_int64 end;  /* of what was written or held last; -1: unknown */
	sqlite3_int64 lost; /* what was held, and could not be written, begins there; -1: nothing */
	bool commits;	    /* the frame of the last head */
};

/* SQLite aligns what it allocates for a file to 8 bytes. */
static size_t extra_offset(const sqlite3_vfs *plain)
{
	size_t align = _Alignof(struct extra);

	return ((size_t)plain->szOsFile + align - 1) / align * align;
}

static struct extra *extra_of(sqlite3_file *file)
{
	/* The methods are the first member. */
	return (struct extra *)(uintptr_t)file->pMethods;
}

static int write_file(sqlite3_file *file, const void *data, int len, sqlite3_int64 offset)
{
	const struct extra *x = extra_of(file);

	for (;;) {
		int rc;

		errno = 0;
		rc = x->plain->xWrite(file, data, len, offset);
		if (rc != SQLITE_FULL && !(rc == SQLITE_IOERR_WRITE && errno == EDQUOT))
			return rc;
		if (!reserve_give(x->reserve, (uint64_t)len))
			return SQLITE_FULL;
	}
}

/* ---- the journal ---- */

/*
 * What was taken for written may be lost now: until the transaction is rolled back, what follows is neither written nor read. A read fails by
 * an error that rolls back all of it: for a full disk SQLite would roll back the statement alone, which 3.40 may leave the journal with
 * wrong checksums, where pages were written twice (iReCksum in wal.c).
 */
static int write_held(sqlite3_file *file)
{
	struct extra *x = extra_of(file);
	size_t len = x->held.len, n;
	int rc = SQLITE_OK;

	buf_reset(&x->held);
	for (size_t at = 0; at < len && rc == SQLITE_OK; at += n) {
		n = len - at < PIECE_MAX ? len - at : PIECE_MAX;
		rc = write_file(file, x->held.data + at, (int)n,
				x->end - (sqlite3_int64)(len - at));
		if (rc != SQLITE_OK)
			x->lost = x->end - (sqlite3_int64)(len - at);
	}
	return rc;
}

/* Once it is rolled back, to a savepoint at least, the next frame, or the next journal, begins at or in front of what is lost. */
static bool is_behind_lost(struct extra *x, bool is_head, sqlite3_int64 offset)
{
	if ((is_head || !offset) && offset <= x->lost)
		x->lost = -1;
	return x->lost >= 0;
}

static int write_wal(sqlite3_file *file, const void *data, int len, sqlite3_int64 offset)
{
	static const uint8_t no_pages[4];
	struct extra *x = extra_of(file);
	bool is_head = len == FRAME_HEAD_LEN, is_held;
	int rc = SQLITE_OK;

	if (is_behind_lost(x, is_head, offset))
		return SQLITE_IOERR_WRITE;
	if (is_head)
		x->commits = memcmp((const char *)data + FRAME_HEAD_COMMITS, no_pages,
				    sizeof(no_pages)) != 0;
	is_held = offset == x->end && buf_reserve(&x->held, (size_t)len) == 0;
	if (is_held) {
		buf_put(&x->held, data, (size_t)len);
	} else {
		rc = write_held(file);
		if (rc == SQLITE_OK)
			rc = write_file(file, data, len, offset);
	}
	x->end = offset + len;
	if (is_held && ((x->commits && !is_head) || x->held.len > HELD_MAX))
		rc = write_held(file);
	return rc;
}

static int read_wal(sqlite3_file *file, void *ret_data, int len, sqlite3_int64 offset)
{
	const struct extra *x = extra_of(file);

	if (write_held(file) != SQLITE_OK || (x->lost >= 0 && offset + len > x->lost))
		return SQLITE_IOERR_READ;
	return x->plain->xRead(file, ret_data, len, offset);
}

static int truncate_wal(sqlite3_file *file, sqlite3_int64 size)
{
	int rc = write_held(file);

	return rc == SQLITE_OK ? extra_of(file)->plain->xTruncate(file, size) : rc;
}

static int sync_wal(sqlite3_file *file, int flags)
{
	int rc = write_held(file);

	return rc == SQLITE_OK ? extra_of(file)->plain->xSync(file, flags) : rc;
}

static int size_of_wal(sqlite3_file *file, sqlite3_int64 *ret_size)
{
	int rc = write_held(file);

	return rc == SQLITE_OK ? extra_of(file)->plain->xFileSize(file, ret_size) : rc;
}

/* What is held has not committed. */
static int close_wal(sqlite3_file *file)
{
	buf_free(&extra_of(file)->held);
	return extra_of(file)->plain->xClose(file);
}

static void hold_back(struct extra *x)
{
	x->methods.xWrite = write_wal;
	x->methods.xRead = read_wal;
	x->methods.xTruncate = truncate_wal;
	x->methods.xSync = sync_wal;
	x->methods.xFileSize = size_of_wal;
	x->methods.xClose = close_wal;
}

/* ---- the VFS ---- */

static int open_file(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags,
		     int *ret_flags)
{
	struct state_vfs *v = vfs->pAppData;
	struct extra *x = (struct extra *)((char *)file + extra_offset(v->plain));
	int rc = v->plain->xOpen(v->plain, name, file, flags, ret_flags);

	if (rc != SQLITE_OK || !file->pMethods)
		return rc;
	*x = (struct extra){*file->pMethods, file->pMethods, v->reserve, .end = -1, .lost = -1};
	x->methods.xWrite = write_file;
	if (flags & SQLITE_OPEN_WAL)
		hold_back(x);
	file->pMethods = &x->methods;
	return SQLITE_OK;
}

/* SQLite keeps paths, by which the end of the last connection removes the journal. */
static int delete_file(sqlite3_vfs *vfs, const char *path, int sync)
{
	const struct state_vfs *v = vfs->pAppData;
	const char *name = strrchr(path, '/');

	if (unlinkat(v->dirfd, name ? name + 1 : path, 0) < 0)
		return errno == ENOENT ? SQLITE_IOERR_DELETE_NOENT : SQLITE_IOERR_DELETE;
	return sync && fsync(v->dirfd) < 0 ? SQLITE_IOERR_DIR_FSYNC : SQLITE_OK;
}

int state_vfs_new(struct reserve *reserve, int dirfd, struct state_vfs **ret_vfs)
{
	struct state_vfs *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->plain = sqlite3_vfs_find(VFS_OF_ONE_PROCESS);
	if (!v->plain) {
		free(v);
		return -ENOSYS;
	}
	snprintf(v->name, sizeof(v->name), "epochfs-%p", (void *)v);
	v->reserve = reserve;
	v->dirfd = dirfd;
	v->vfs = *v->plain;
	v->vfs.pNext = NULL;
	v->vfs.zName = v->name;
	v->vfs.pAppData = v;
	v->vfs.szOsFile = (int)(extra_offset(v->plain) + sizeof(struct extra));
	v->vfs.xOpen = open_file;
	v->vfs.xDelete = delete_file;
	if (sqlite3_vfs_register(&v->vfs, 0) != SQLITE_OK) {
		free(v);
		return -ENOMEM;
	}
	*ret_vfs = v;
	return 0;
}

void state_vfs_free(struct state_vfs *v)
{
	if (!v)
		return;
	sqlite3_vfs_unregister(&v->vfs);
	free(v);
}

const char *state_vfs_name(const struct state_vfs *v)
{
	return v ? v->name : VFS_OF_ONE_PROCESS;
}

bool state_vfs_damaged(const struct state_vfs *v)
{
	return atomic_load(&v->damaged);
}

static bool is_damage(int rc)
{
	return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB;
}

bool state_vfs_note(sqlite3 *db, int rc)
{
	sqlite3_vfs *vfs = NULL;
	struct state_vfs *v;
	int64_t now = clock_mono_ns();

	if (sqlite3_file_control(db, "main", SQLITE_FCNTL_VFS_POINTER, &vfs) != SQLITE_OK || !vfs)
		return true;
	if (vfs->xOpen != open_file)
		return false;
	v = vfs->pAppData;
	if (is_damage(rc))
		atomic_store(&v->damaged, true);
	if (atomic_exchange(&v->told, rc) == rc && now - v->told_ns < TELL_AGAIN_NS)
		return false;
	v->told_ns = now;
	return true;
}
