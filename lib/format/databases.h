/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of databases that training code keeps checkpoints in: is a LevelDB or an LMDB whole? */
#ifndef EPOCHFS_FORMAT_DATABASES_H
#define EPOCHFS_FORMAT_DATABASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "lib/format/tails.h"
#include "lib/util/buf.h"

/*
 * What verify looks at beside the tails of tails.h: the meta data of two databases, by which one that was
 * cut off, or of which files are missing, is told from a whole one.
 *
 * LevelDB is a directory (doc/impl.md, doc/log_format.md and db/version_edit.cc of its source):
 *   CURRENT      "MANIFEST-<digits>" and a newline: the manifest that counts. A directory without it is not looked at
 *   MANIFEST-n   blocks of 32 KiB, of records: checksum u32 (CRC-32C of type and data, rotated right by 15, plus 0xa282ead8), length
 *                u16, type u8 (1 whole, 2 first, 3 middle, 4 last part of one; 0 and length 0: nothing more in the block), data. Fewer
 *                than 7 bytes at the end of a block are none. What the data says, as tags with values, is below
 *   n.ldb, .sst  tables. The manifest says which are live and how long each is; they end in the 8 bytes 57 fb 80 8b 24 75 47 db
 *   n.log        what is in no table yet. The manifest says which one is the first that counts; it may end anywhere
 * A record with a right checksum that says what LevelDB never does is another database's that began as LevelDB (RocksDB): then
 * nothing more is said of that directory.
 *
 * LMDB (version 0.9 for 64-bit little-endian machines; its lmdb.h and mdb.c) is one file: data.mdb in a directory, or any name. It
 * is known by the magic number of its first page, and data.mdb also by the lock.mdb beside it.
 *   page         number u64, padding u16, flags u16 (1 branch, 2 leaf, 4 overflow, 8 meta), lower u16, upper u16, content
 *   pages 0, 1   meta: magic u32 0xbeefc0de, version u32 (1), address u64, map size u64, two databases (of free pages, and the
 *                main one) of 48 bytes, last page u64, transaction u64. The one of the greater transaction counts
 *   database     u32 (of the first: the page size), flags u16, depth u16, pages u64 of three kinds, entries u64, root u64 (~0: none)
 * All pages up to the last one must be in the file, but for free ones: LMDB never writes a page that is freed in the transaction
 * that took it, so a sound file may be shorter by such pages. They must be in the list of free pages.
 *
 * Sealing does not ask these: a database that is open while an epoch is sealed is an everyday thing (a replay buffer, a metadata
 * store that lives as long as the run), what is in the epoch then is what was closed, and no word of `complete=false` would be true
 * of the checkpoint beside it. Whoever wants to open the database from the epoch asks verify; what it
 * finds is damage to `verify --deep` only, for an epoch that is complete is to pass the other one.
 *
 * All bytes are untrusted: what is read is bounded by the sizes of the files, and by the limits here.
 */
#define LEVELDB_RECORD_MAX (64u << 20) /* of a manifest; longer ones are not looked at */
#define LEVELDB_TABLES_MAX (1u << 20)  /* numbers that a manifest may name */
#define LMDB_FREE_MAX	   (1u << 26)  /* pages that may be missing at the end of a file */

/* A directory of an epoch. Names are those of regular files in it, without a slash. */
struct database_dir {
	/* Its size, or -ENOENT where there is no regular file of that name, or another -errno. */
	int (*find)(void *arg, const char *name, uint64_t *ret_size);
	/* Up to len bytes at offset, fewer only at the end: the count, or -errno. -EBADMSG and -EIO, damage that is told elsewhere,
	 * end the check of that file. */
	ssize_t (*read)(void *arg, const char *name, void *data, size_t len, uint64_t offset);
	/* A file is wrong, and why: at most one call a name. */
	void (*problem)(void *arg, const char *name, const char *what);
	void *arg;
};

/* Checks the databases that lie in the directory, if any: 0, also where problems were told, or -errno, which ends it. */
int database_check_dir(const struct database_dir *dir);

/* LevelDB alone, as above. */
int leveldb_check(const struct database_dir *dir);

/* Is it LMDB's file, and torn? As tail_check_source: 0, also where it is none; 1 and why; or -errno. */
int lmdb_check(const struct tail_source *in, uint64_t size, const char **ret_why);

#endif
