/* SPDX-License-Identifier: Apache-2.0 */
/* LevelDB's manifest: which tables and which log a database is made of. Pure decoding. */
#ifndef EPOCHFS_FORMAT_LEVELDB_H
#define EPOCHFS_FORMAT_LEVELDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"

/*
 * databases.h has the format of the file; a record is a row of
 *
 *   1 text                              the comparator's name
 *   2 varint                            the number of the first log that counts
 *   3 varint                            the next number of a file
 *   4 varint                            the last sequence number
 *   5 level text                        where compaction of that level stands
 *   6 level varint                      a table that is no longer of that level
 *   7 level varint varint text text     a table of that level: number, size, least and greatest key
 *   9 varint                            the log before
 *
 * with texts as a varint length and the bytes, and levels 0 to 6. Zero-initialise, add the bytes from the file's begin on in any
 * portions, end, then look; leveldb_manifest_free at last. Not thread-safe.
 */
struct leveldb_table;

struct leveldb_manifest {
	uint64_t log_number; /* 0: none */

	/* Private. */
	struct buf block,
		record; /* what is not decoded yet: less than a block, and a record's parts */
	struct leveldb_table *tables;
	size_t count, slots;
	bool in_record, has_log, has_next, has_sequence;
	const char *torn;
};

void leveldb_manifest_free(struct leveldb_manifest *m);
/* 0; -EPROTONOSUPPORT: a record says what LevelDB's do not, or more than the limits of databases.h; -ENOMEM. */
int leveldb_manifest_add(struct leveldb_manifest *m, const void *data, size_t len);
/* The same, and what is wrong with the manifest, static text, or NULL. */
int leveldb_manifest_end(struct leveldb_manifest *m, const char **ret_torn);
/* Calls for each live table, in no order, until it gives an error, which it returns. */
int leveldb_manifest_each(const struct leveldb_manifest *m,
			  int (*fn)(void *arg, uint64_t number, uint64_t size), void *arg);

#endif
