/* SPDX-License-Identifier: Apache-2.0 */
/* The table that outlives a worker: making, mapping, and its free rows. */
#include "fs/table.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/util/array.h"
#include "lib/util/cleanup.h"

#define MAGIC UINT64_C(0x6570667374626c31) /* "epfstbl1" */
#define PAGE  ((size_t)4096)

static size_t round_up(size_t n)
{
	return (n + PAGE - 1) & ~(PAGE - 1);
}

static size_t nodes_offset(void)
{
	return round_up(sizeof(struct table_start));
}

static size_t files_offset(void)
{
	return nodes_offset() + round_up(TABLE_NODES * sizeof(struct table_node));
}

static size_t whole_size(void)
{
	return files_offset() + round_up(TABLE_FILES * sizeof(struct table_file));
}

int table_make(void)
{
	cleanup_close int fd = memfd_create("epochfs-table", MFD_CLOEXEC);
	struct table_start start = {.magic = MAGIC, .version = TABLE_VERSION};

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)whole_size()) < 0)
		return -errno;
	if (pwrite(fd, &start, sizeof(start), 0) != (ssize_t)sizeof(start))
		return errno ? -errno : -EIO;
	return steal_fd(&fd);
}

int table_open(int fd, struct table *ret_table)
{
	size_t size = whole_size();
	struct stat st;
	char *map;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)sizeof(struct table_start))
		return -EPROTONOSUPPORT;
	/* Mapped beyond its end, of another version, it is not touched there. */
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	*ret_table = (struct table){
		.start = (struct table_start *)map,
		.nodes = (struct table_node *)(map + nodes_offset()),
		.files = (struct table_file *)(map + files_offset()),
		.size = size,
	};
	if (ret_table->start->magic == MAGIC && ret_table->start->version == TABLE_VERSION &&
	    st.st_size == (off_t)size)
		return 0;
	table_close(ret_table);
	return -EPROTONOSUPPORT;
}

void table_close(struct table *t)
{
	if (t->start)
		munmap(t->start, t->size);
	*t = (struct table){0};
}

int table_row_take(struct table_rows *rows, uint32_t *ret_row)
{
	if (rows->count) {
		*ret_row = rows->free[--rows->count];
		return 0;
	}
	if (rows->used == rows->max)
		return -ENFILE;
	*ret_row = rows->used++;
	return 0;
}

void table_row_give(struct table_rows *rows, uint32_t row)
{
	if (array_reserve((void **)&rows->free, &rows->cap, rows->count, sizeof(*rows->free)) == 0)
		rows->free[rows->count++] = row;
}

void table_rows_free(struct table_rows *rows)
{
	free(rows->free);
	*rows = (struct table_rows){0};
}

struct table_file *table_file_opened_by(const struct table *t, uint64_t unique)
{
	for (uint32_t i = 0; unique && i < t->start->files; i++) {
		struct table_file *f = &t->files[i];

		if (f->fh && f->unique == unique && !f->abandoned)
			return f;
	}
	return NULL;
}
