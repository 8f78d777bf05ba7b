/* SPDX-License-Identifier: Apache-2.0 */
/* Open files, and their rows in the table that outlives the worker. */
#include "fs/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fs/epochs_dir.h"
#include "fs/handover.h"
#include "fs/loop.h"
#include "fs/passthrough.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

#define ROW_BITS 18
#define ROW_MASK ((UINT64_C(1) << ROW_BITS) - 1)
_Static_assert(TABLE_FILES == 1u << ROW_BITS, "a row's number fits");

struct files {
	struct mutex lock;
	struct file **by_row; /* TABLE_FILES, sparse; each read without the lock */
	/* All below is guarded by lock. */
	struct file *all;
	struct table_rows rows;
	uint64_t opened;
};

static struct file nobodys = {.kind = FILE_DEAD};

int files_new(const struct fs_handover *handover, struct files **ret_files)
{
	struct files *files = calloc(1, sizeof(*files));

	if (!files)
		return -ENOMEM;
	files->by_row = mmap(NULL, TABLE_FILES * sizeof(struct file *), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (files->by_row == MAP_FAILED) {
		free(files);
		return -ENOMEM;
	}
	mutex_init(&files->lock, LOCK_FS_FILES);
	files->rows.max = TABLE_FILES;
	files->opened = handover ? handover->table.start->last_open : 0;
	*ret_files = files;
	return 0;
}

void files_free(struct files *files)
{
	if (!files)
		return;
	munmap(files->by_row, TABLE_FILES * sizeof(struct file *));
	table_rows_free(&files->rows);
	mutex_destroy(&files->lock);
	free(files);
}

static struct table_file *row_of(const struct fs_mount *m, const struct file *f)
{
	return m->handover ? &m->handover->table.files[f->fh & ROW_MASK] : NULL;
}

static void list_locked(struct files *files, struct file *f)
{
	f->next = files->all;
	if (f->next)
		f->next->prev = f;
	files->all = f;
	__atomic_store_n(&files->by_row[f->fh & ROW_MASK], f, __ATOMIC_RELEASE);
}

static int number_locked(const struct fs_mount *m, struct file *f)
{
	struct files *files = m->files;
	uint32_t row;
	int r = table_row_take(&files->rows, &row);

	if (r < 0)
		return r;
	f->fh = ++files->opened << ROW_BITS | row;
	if (m->handover) {
		m->handover->table.start->last_open = files->opened;
		if (files->rows.used > m->handover->table.start->files)
			m->handover->table.start->files = files->rows.used;
	}
	return 0;
}

struct file *file_new(struct fs_mount *m, enum file_kind kind, struct node *n)
{
	struct file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->kind = kind;
	f->node = n;
	if (kind == FILE_TORN)
		f->fd = -1;
	SCOPED_LOCK(&m->files->lock);
	if (number_locked(m, f) < 0) {
		free(f);
		return NULL;
	}
	nodes_pin(m->nodes, n);
	list_locked(m->files, f);
	return f;
}

static void unlist(struct fs_mount *m, struct file *f)
{
	SCOPED_LOCK(&m->files->lock);
	if (f->prev)
		f->prev->next = f->next;
	else
		m->files->all = f->next;
	if (f->next)
		f->next->prev = f->prev;
	__atomic_store_n(&m->files->by_row[f->fh & ROW_MASK], NULL, __ATOMIC_RELEASE);
}

static void give_row(struct fs_mount *m, const struct file *f)
{
	SCOPED_LOCK(&m->files->lock);
	if (m->handover)
		table_publish(&row_of(m, f)->fh, 0);
	table_row_give(&m->files->rows, (uint32_t)(f->fh & ROW_MASK));
}

static void drop_content(struct file *f)
{
	switch (f->kind) {
	case FILE_LIVE:
		if (f->handle)
			handle_release(f->handle, f->passthrough);
		break;
	case FILE_EPOCH:
		if (f->content)
			content_put(f->content);
		break;
	case FILE_TORN:
		cleanup_close_fn(&f->fd);
		break;
	case FILE_CONTROL:
		control_free(f->control);
		break;
	case FILE_DEAD:
		break;
	}
}

/* The row goes last: a worker that dies before has the close sent again to the next one. */
void file_release(struct fs_mount *m, struct file *f)
{
	if (f == &nobodys)
		return;
	unlist(m, f);
	drop_content(f);
	if (f->counted)
		passthrough_close(m, f);
	give_row(m, f);
	if (f->node)
		nodes_unpin(m->nodes, f->node);
	free(f);
}

struct file *file_of(fuse_req_t req, const struct fuse_file_info *fi)
{
	struct files *files = fs_of(req)->files;
	struct file *f = __atomic_load_n(&files->by_row[fi->fh & ROW_MASK], __ATOMIC_ACQUIRE);

	return f && f->fh == fi->fh ? f : &nobodys;
}

int file_wake(struct fs_mount *m, struct file *f)
{
	struct content *content = NULL;
	int fd = -1, r;

	if (f->kind == FILE_DEAD)
		return -EIO;
	if (!__atomic_load_n(&f->asleep, __ATOMIC_ACQUIRE))
		return 0;
	r = f->kind == FILE_EPOCH ? epoch_file_content(m, f->node, &content)
				  : torn_file_fd(m, f->node, &fd);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	mutex_lock(&m->files->lock);
	if (f->asleep && f->kind == FILE_EPOCH)
		f->content = steal_ptr(content);
	else if (f->asleep)
		f->fd = steal_fd(&fd);
	__atomic_store_n(&f->asleep, false, __ATOMIC_RELEASE);
	mutex_unlock(&m->files->lock);
	if (content)
		content_put(content);
	cleanup_close_fn(&fd);
	return 0;
}

/* ---- rows ---- */

struct table_file *file_publish(struct fs_mount *m, struct file *f)
{
	struct table_file *row = row_of(m, f);

	if (!row || row->fh == f->fh)
		return row;
	row->node = f->node->id;
	/* Who answered for the file that had the row before may still look (file_answered). */
	__atomic_store_n(&row->unique, loop_request_unique(), __ATOMIC_RELAXED);
	row->kind = (uint8_t)f->kind;
	row->passthrough = f->passthrough;
	row->counted = f->counted;
	row->abandoned = false;
	row->hold = 0;
	if (f->kind == FILE_LIVE)
		handle_keep_record(f->handle, &row->handle);
	table_publish(&row->fh, f->fh);
	return row;
}

/* It may be another file's row by now, whose request has another number. */
void file_answered(struct table_file *row)
{
	uint64_t unique = loop_request_unique();

	if (row)
		__atomic_compare_exchange_n(&row->unique, &unique, 0, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED);
}

void file_note_hold(struct fs_mount *m, const struct file *f, int hold)
{
	struct table_file *row = row_of(m, f);

	if (row)
		row->hold = (uint8_t)hold;
}

struct file *file_claim(struct fs_mount *m)
{
	const struct table_file *row;
	struct file *f;

	if (!m->handover || !loop_request_resent())
		return NULL;
	row = table_file_opened_by(&m->handover->table, loop_request_unique());
	f = row ? m->files->by_row[row->fh & ROW_MASK] : NULL;
	if (f && f->kind == FILE_DEAD) {
		file_release(m, f);
		return NULL;
	}
	return f;
}

/* ---- files that come back ---- */

static int revive_one(struct fs_mount *m, struct table_file *row, struct handle *handle)
{
	struct file *f = calloc(1, sizeof(*f));
	struct node *n = nodes_find(m->nodes, row->node);

	if (!f)
		return -ENOMEM;
	f->fh = row->fh;
	f->kind = row->kind;
	f->node = n;
	f->passthrough = row->passthrough;
	f->counted = row->counted && n;
	if (f->kind == FILE_LIVE)
		f->handle = handle;
	if (f->kind == FILE_TORN)
		f->fd = -1;
	f->asleep = f->kind == FILE_EPOCH || f->kind == FILE_TORN;
	if (f->kind == FILE_CONTROL && row->hold && n)
		f->control = control_revive(m, row->hold);
	/* What else was asked of .control is lost with its answer. */
	if (!n || (f->kind == FILE_CONTROL && !f->control) || f->kind == FILE_DEAD ||
	    (f->kind == FILE_LIVE && !handle))
		f->kind = FILE_DEAD;
	if (!n && handle)
		handle_release(handle, f->passthrough);
	if (n)
		nodes_pin(m->nodes, n);
	if (f->counted)
		nodes_io_revive(m->nodes, n);
	SCOPED_LOCK(&m->files->lock);
	list_locked(m->files, f);
	return 0;
}

static int grant_again(struct fs_mount *m, struct file *f, struct grant **ret_grant)
{
	int r;

	if (f->kind == FILE_LIVE)
		return handle_grant_again(f->handle, ret_grant);
	r = f->kind == FILE_EPOCH ? file_wake(m, f) : 0;
	if (r < 0 || f->kind != FILE_EPOCH || !f->content)
		return r;
	return content_grant_again(f->content, ret_grant);
}

/* The kernel reads and writes the backing files of these by itself: the volume must know that (lib/cache/grant.h). */
static void grant_all_again(struct fs_mount *m)
{
	for (struct file *f = m->files->all; f; f = f->next) {
		int r;

		if (!f->passthrough || !f->counted || f->node->grant)
			continue;
		r = grant_again(m, f, &f->node->grant);
		if (r < 0)
			log_warn("inode %llu of the kernel is open, but its backing file is not "
				 "there as it was: %s",
				 (unsigned long long)f->node->id, strerror(-r));
	}
}

int files_revive(struct fs_mount *m)
{
	struct files *files = m->files;
	size_t next = 0;
	int r = 0;

	if (!m->handover)
		return 0;
	files->rows.used = m->handover->table.start->files;
	for (uint32_t i = 0; r == 0 && i < files->rows.used; i++) {
		struct table_file *row = &m->handover->table.files[i];
		struct handle *handle = NULL;

		if (row->fh && row->abandoned)
			table_publish(&row->fh, 0);
		if (!row->fh) {
			table_row_give(&files->rows, i);
			continue;
		}
		if (next < m->handover->survivors_count &&
		    m->handover->survivors[next].record == &row->handle)
			handle = m->handover->survivors[next++].ret_handle;
		r = revive_one(m, row, handle);
	}
	if (r == 0)
		grant_all_again(m);
	return r;
}

/* ---- all of them ---- */

bool files_written(struct fs_mount *m)
{
	SCOPED_LOCK(&m->files->lock);
	for (const struct file *f = m->files->all; f; f = f->next) {
		if (f->kind == FILE_LIVE && handle_writes(f->handle))
			return true;
	}
	return false;
}

void files_release_all(struct fs_mount *m)
{
	while (m->files->all)
		file_release(m, m->files->all);
}
