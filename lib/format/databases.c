/* SPDX-License-Identifier: Apache-2.0 */
/* The databases of a directory: which checks there are to make. */
#include "lib/format/databases.h"

#include <errno.h>

#include "lib/util/buf.h"

/* A file of this name and the lock beside it are LMDB's, whatever the file says of itself; 64-bit and 32-bit environments, of
 * either byte order, have the magic number at different places. */
static int check_lmdb_name(const struct database_dir *dir)
{
	static const char name[] = "data.mdb";
	uint8_t head[20];
	uint64_t size;
	ssize_t got;
	int error = dir->find(dir->arg, name, &size);

	if (!error)
		error = dir->find(dir->arg, "lock.mdb", &size);
	if (error)
		return error == -ENOENT ? 0 : error;
	got = dir->read(dir->arg, name, head, sizeof(head), 0);
	if (got < 0)
		return got == -EBADMSG || got == -EIO ? 0 : (int)got;
	for (unsigned at = 12; at <= 16 && got == (ssize_t)sizeof(head); at += 4) {
		struct reader r = reader_of(head + at, 4);
		uint32_t magic = reader_u32(&r);

		if (magic == 0xbeefc0deu || magic == 0xdec0efbeu)
			return 0;
	}
	dir->problem(dir->arg, name, "torn: LMDB's first meta page is missing or damaged");
	return 0;
}

int database_check_dir(const struct database_dir *dir)
{
	int error = leveldb_check(dir);

	return error ? error : check_lmdb_name(dir);
}
