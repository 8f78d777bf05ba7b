/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of restoring share: a volume, a directory to restore into, what is in it afterwards. */
#ifndef EPOCHFS_TESTS_EXPORT_UNIT_H
#define EPOCHFS_TESTS_EXPORT_UNIT_H

#include <dirent.h>
#include <sys/stat.h>

#include "tests/unit/catalog_unit.h"

static struct made made;
static char *target;
static int to;
static uint64_t failed;

__attribute__((unused)) static void setup(void)
{
	made_start(&made);
	target = unit_dir();
	to = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(to, 0);
}

__attribute__((unused)) static void teardown(void)
{
	close(to);
	free(target);
	made_stop(&made);
}

__attribute__((unused)) static const struct epoch_record whole = {.complete = RECORD_COMPLETE};

/* ---- short forms ---- */

__attribute__((unused)) static int restore_from(const char *url, uint64_t number,
						struct catalog_export how)
{
	struct catalog *c = catalog_at(url);
	int error;

	if (!how.path)
		how.path = "";
	how.to_fd = to;
	failed = 99;
	error = catalog_export(c, number, &how, &failed);
	catalog_close(c);
	return error;
}

__attribute__((unused)) static int restore_epoch(uint64_t number, struct catalog_export how)
{
	return restore_from("memory:t", number, how);
}

__attribute__((unused)) static struct stat stat_of(const char *path)
{
	struct stat st;

	ck_assert_msg(fstatat(to, path, &st, AT_SYMLINK_NOFOLLOW) == 0, "%s: %s", path,
		      strerror(errno));
	return st;
}

__attribute__((unused)) static bool is_there(const char *path)
{
	struct stat st;

	return fstatat(to, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

__attribute__((unused)) static void holds(const char *path, const void *data, size_t len)
{
	cleanup_buf struct buf found = {0};

	unit_ok(io_read_file(to, path, (size_t)1 << 30, &found));
	unit_same_bytes(found.data, found.len, data, len);
}

__attribute__((unused)) static void holds_text(const char *path, const char *text)
{
	holds(path, text, strlen(text));
}

__attribute__((unused)) static void put_text(const char *path, const char *text)
{
	unit_ok(io_replace_file(to, path, text, strlen(text)));
}

/* Names in a directory, without "." and ".."; none may be left over from restoring. */
__attribute__((unused)) static int count_names(const char *path)
{
	int fd = openat(to, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
	cleanup_closedir DIR *d = fdopendir(fd);
	struct dirent *e;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		ck_assert_msg(strncmp(e->d_name, ".epochfs-export-", 16) != 0, "%s is left over",
			      e->d_name);
		count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	}
	return count;
}

/* model/{a,b}, top: two contents in packs, one in the tree. */
#define BIG (300 * KIB)
static uint8_t *a_bytes, *b_bytes;

__attribute__((unused)) static uint64_t make_three(void)
{
	a_bytes = random_content(BIG, 1);
	b_bytes = random_content(BIG + 777, 2);
	made_begin(&made);
	made_dir(&made, 1, "model");
	made_add(&made, 2, "a", made_content(&made, a_bytes, BIG));
	made_add(&made, 2, "b", made_content(&made, b_bytes, BIG + 777));
	made_add(&made, 1, "top", made_inline("small"));
	return made_end(&made, whole);
}

__attribute__((unused)) static void free_three(void)
{
	free(a_bytes);
	free(b_bytes);
}

__attribute__((unused)) static struct tree_entry link_to(const char *text)
{
	return (struct tree_entry){.type = TREE_SYMLINK,
				   .mode = 0777,
				   .mtime_ns = 9000000007,
				   .size = strlen(text),
				   .u.target = text};
}

#endif
