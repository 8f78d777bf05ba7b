/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How SQLite reaches its files: by its own VFS for databases of one process, but a write that finds
 * the disk full is done again with what the reserve gives up (reserve.h), and a file is removed from
 * the directory that was opened, not from one that was put in its place.
 *
 * A VFS of ours has the name of the state that it belongs to. An open file is SQLite's own object,
 * with room behind it for `struct extra`; of its methods only xWrite is another. (sqlite.org/vfs.html,
 * sqlite.org/c3ref/io_methods.html)
 */
#include "lib/state/state_db.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "lib/state/reserve.h"
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

struct extra {
	sqlite3_io_methods methods;
	const sqlite3_io_methods *plain;
	struct reserve *reserve;
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

static int open_file(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags,
		     int *ret_flags)
{
	struct state_vfs *v = vfs->pAppData;
	struct extra *x = (struct extra *)((char *)file + extra_offset(v->plain));
	int rc = v->plain->xOpen(v->plain, name, file, flags, ret_flags);

	if (rc != SQLITE_OK || !file->pMethods)
		return rc;
	*x = (struct extra){*file->pMethods, file->pMethods, v->reserve};
	x->methods.xWrite = write_file;
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
