/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying an epoch that a mount shows, by reading its files. */
#include "lib/admin/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/format/databases.h"
#include "lib/format/tails.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"

#define READ_LEN ((size_t)1 << 20)

struct walk {
	const struct verify *how;
	struct catalog_progress progress;
	struct verify_totals totals;
	uint8_t *space;
	size_t root_len; /* of the path that all others begin with */
};

static void tell_progress(const struct walk *w)
{
	if (w->how->progress)
		w->how->progress(w->how->arg, &w->progress);
}

static void note_problem(struct walk *w, const FTSENT *at, const char *what, bool torn)
{
	const char *path = at->fts_path + w->root_len;

	path += *path == '/';
	verify_count(w->how, &w->totals, path, torn);
	w->how->problem(w->how->arg, path, what);
}

static void database_problem(struct walk *w, const char *path, const char *what)
{
	path += w->root_len;
	verify_count_database(w->how, &w->totals);
	w->how->problem(w->how->arg, path + (*path == '/'), what);
}

/* All of it: 0, or -errno of a read; -ENODATA where it ends before its size. */
static int read_whole(struct walk *w, int fd, uint64_t size)
{
	for (uint64_t at = 0; at < size;) {
		ssize_t got = io_pread_some(fd, w->space, READ_LEN, at);

		if (got <= 0)
			return got ? (int)got : -ENODATA;
		at += (uint64_t)got;
		w->progress.bytes += (uint64_t)got;
		tell_progress(w);
	}
	return 0;
}

static ssize_t read_descriptor(void *arg, void *data, size_t len, uint64_t offset)
{
	return io_pread_some(*(const int *)arg, data, len, offset);
}

static int check_tail(int fd, uint64_t size, const char *name, const char **ret_torn,
		      bool *ret_database)
{
	const struct tail_source in = {.read = read_descriptor, .arg = &fd};
	int result = tail_check_source(&in, size, name, ret_torn);

	*ret_database = !result;
	return result ? result : lmdb_check(&in, size, ret_torn);
}

static void verify_file(struct walk *w, const FTSENT *at)
{
	uint64_t size = (uint64_t)at->fts_statp->st_size;
	cleanup_close int fd = open(at->fts_accpath, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	const char *torn = NULL;
	bool database = false;
	char text[192];
	int error = fd < 0 ? -errno : read_whole(w, fd, size);

	if (!error)
		error = check_tail(fd, size, at->fts_name, &torn, &database);
	w->totals.files++;
	w->totals.bytes += size;
	w->progress.files++;
	if (!error)
		return;
	if (error > 0)
		snprintf(text, sizeof(text), "torn: %s", torn);
	else
		snprintf(text, sizeof(text), "it cannot be read: %s", strerror(-error));
	if (database && error > 0)
		database_problem(w, at->fts_path, text);
	else
		note_problem(w, at, text, error > 0);
}

/* ---- databases, which are more than one file ---- */

struct folder {
	struct walk *w;
	const FTSENT *at;
	int fd;
};

static int folder_find(void *arg, const char *name, uint64_t *ret_size)
{
	const struct folder *f = arg;
	struct stat st;

	if (fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

static ssize_t folder_read(void *arg, const char *name, void *data, size_t len, uint64_t offset)
{
	const struct folder *f = arg;
	cleanup_close int fd = openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : io_pread_some(fd, data, len, offset);
}

static void folder_problem(void *arg, const char *name, const char *what)
{
	const struct folder *f = arg;
	cleanup_buf struct buf path = {0};

	buf_printf(&path, "%s/%s", f->at->fts_path, name);
	database_problem(f->w, buf_str(&path), what);
}

static int verify_folder(struct walk *w, const FTSENT *at)
{
	cleanup_close int fd = open(at->fts_accpath, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct folder f = {.w = w, .at = at, .fd = fd};
	const struct database_dir dir = {
		.find = folder_find, .read = folder_read, .problem = folder_problem, .arg = &f};

	/* Where it cannot be opened, the walk says so. */
	return fd < 0 ? 0 : database_check_dir(&dir);
}

static bool is_unreadable(const FTSENT *at)
{
	return at->fts_info == FTS_DNR || at->fts_info == FTS_NS || at->fts_info == FTS_ERR;
}

static void verify_entry(struct walk *w, const FTSENT *at)
{
	int error;

	if (at->fts_info == FTS_F) {
		verify_file(w, at);
	} else if (at->fts_info == FTS_D) {
		error = verify_folder(w, at);
		if (error)
			note_problem(w, at, strerror(-error), false);
	}
	if (is_unreadable(at))
		note_problem(w, at, strerror(at->fts_errno), false);
}

static void plan_entry(struct walk *w, const FTSENT *at)
{
	if (at->fts_info != FTS_F)
		return;
	w->progress.files_total++;
	w->progress.bytes_total += (uint64_t)at->fts_statp->st_size;
}

static int each_entry(struct walk *w, const char *path,
		      void (*fn)(struct walk *w, const FTSENT *at))
{
	char *const roots[] = {(char *)(uintptr_t)path, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	const FTSENT *at;
	int error = 0;

	if (!fts)
		return -errno;
	while (!error && (errno = 0, at = fts_read(fts))) {
		if (at->fts_level == FTS_ROOTLEVEL && is_unreadable(at))
			error = -at->fts_errno;
		else
			fn(w, at);
	}
	if (!error)
		error = -errno;
	fts_close(fts);
	return error;
}

int verify_directory(const char *path, const struct verify *how, struct verify_totals *ret_totals)
{
	cleanup_free uint8_t *space = malloc(READ_LEN);
	struct walk w = {.how = how, .space = space, .root_len = strlen(path)};
	int error = space ? each_entry(&w, path, plan_entry) : -ENOMEM;

	if (!error)
		error = each_entry(&w, path, verify_entry);
	if (!error)
		*ret_totals = w.totals;
	return error;
}
