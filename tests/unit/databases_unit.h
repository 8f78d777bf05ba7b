/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of databases share: a directory in memory, and what is said of it. */
#ifndef EPOCHFS_TESTS_DATABASES_UNIT_H
#define EPOCHFS_TESTS_DATABASES_UNIT_H

#include <stdbool.h>
#include "lib/format/databases.h"
#include "lib/util/buf.h"
#include "tests/unit/unit.h"

#define FILES_MAX 8

struct folder {
	struct {
		const char *name;
		struct buf data;
	} file[FILES_MAX];
	unsigned count;
	char told[256]; /* "NAME: WHAT", of the last */
	unsigned problems;
	int read_error;
};

__attribute__((unused)) static struct buf *add_file(struct folder *f, const char *name)
{
	ck_assert_uint_lt(f->count, FILES_MAX);
	f->file[f->count].name = name;
	return &f->file[f->count++].data;
}

__attribute__((unused)) static void free_folder(struct folder *f)
{
	for (unsigned i = 0; i < f->count; i++)
		buf_free(&f->file[i].data);
}
#define cleanup_folder CLEANUP(free_folder)

__attribute__((unused)) static const struct buf *find_buf(struct folder *f, const char *name)
{
	for (unsigned i = 0; i < f->count; i++)
		if (strcmp(f->file[i].name, name) == 0)
			return &f->file[i].data;
	return NULL;
}

__attribute__((unused)) static int folder_find(void *arg, const char *name, uint64_t *ret_size)
{
	const struct buf *b = find_buf(arg, name);

	if (b)
		*ret_size = b->len;
	return b ? 0 : -ENOENT;
}

__attribute__((unused)) static ssize_t read_buf(const struct buf *b, void *data, size_t len,
						uint64_t offset)
{
	if (offset >= b->len)
		return 0;
	if (len > b->len - offset)
		len = (size_t)(b->len - offset);
	memcpy(data, b->data + offset, len);
	return (ssize_t)len;
}

__attribute__((unused)) static ssize_t folder_read(void *arg, const char *name, void *data,
						   size_t len, uint64_t offset)
{
	struct folder *f = arg;

	return f->read_error ? f->read_error : read_buf(find_buf(f, name), data, len, offset);
}

__attribute__((unused)) static void folder_problem(void *arg, const char *name, const char *what)
{
	struct folder *f = arg;

	snprintf(f->told, sizeof(f->told), "%s: %s", name, what);
	f->problems++;
}

/* How many problems. */
__attribute__((unused)) static unsigned check_folder(struct folder *f)
{
	const struct database_dir dir = {
		.find = folder_find, .read = folder_read, .problem = folder_problem, .arg = f};

	f->problems = 0;
	f->told[0] = '\0';
	unit_ok(database_check_dir(&dir));
	return f->problems;
}

__attribute__((unused)) static void expect(struct folder *f, const char *told)
{
	check_folder(f);
	ck_assert_str_eq(f->told, told);
}

#endif
