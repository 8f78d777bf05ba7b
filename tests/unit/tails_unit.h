/* SPDX-License-Identifier: Apache-2.0 */
/* What the check of tails says of bytes that a test makes. */
#ifndef EPOCHFS_TESTS_TAILS_UNIT_H
#define EPOCHFS_TESTS_TAILS_UNIT_H

#include <unistd.h>
#include "lib/format/tails.h"
#include "lib/util/buf.h"
#include "tests/unit/unit.h"

/* The bytes of a string, which may hold zeros, and their number. */
#define TEXT(t) t, sizeof(t) - 1

/* What tail_check says of these bytes: 0 or 1. */
static int check_bytes(const void *data, size_t len, const char *name)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *path = unit_path(dir, "file");
	cleanup_close int fd = open(path, O_RDWR | O_CREAT, 0600);
	const char *why = NULL;
	int result;

	ck_assert_int_ge(fd, 0);
	unit_ok(io_pwrite_full(fd, data, len, 0));
	result = tail_check(fd, len, name, &why);
	ck_assert_int_ge(result, 0);
	ck_assert((why != NULL) == (result == 1));
	return result;
}

#endif
