/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an epoch whole: is every byte of it there and right, and is no file in it torn inside? */
#ifndef EPOCHFS_VOLUME_VERIFY_H
#define EPOCHFS_VOLUME_VERIFY_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/volume/catalog.h"

struct verify {
	/* One call a damaged file, one at a time, from any thread: its path in the epoch, and what is wrong. Of a database that is a
	 * directory, the file is the one that says what is not so. */
	void (*problem)(void *arg, const char *path, const char *what);
	/* Whether this file, which is torn, is of a unit that no epoch is incomplete for (doubts.h); any thread, one at a time. NULL: none is. */
	bool (*older)(void *arg, const char *path);
	/* The same; may be NULL. Counts regular files. */
	void (*progress)(void *arg, const struct catalog_progress *p);
	void *arg;
};

struct verify_totals {
	uint64_t files, bytes; /* regular files, and what they hold */
	uint64_t damaged;      /* of the files, but those that follow */
	uint64_t older;	       /* torn, and of an older unit: problems were told */
};

/*
 * Reads all contents of an epoch from the remote, every chunk checked against its hash, and checks the tails of well-known
 * formats (tails.h), but of logs, and databases (databases.h). Hard links are one file. Nothing is written; memory is the store's and 132 KiB a thread, and what databases.h
 * allows for a database's manifest. 0 also with damaged files. -ENOENT: no such
 * epoch; -EBADMSG: its record or tree is damaged; the other errors of catalog.h, which end it: then no totals.
 */
int catalog_verify(struct catalog *c, uint64_t number, const struct verify *how,
		   struct verify_totals *ret_totals);

/*
 * The same for what lies below a directory, an epoch's on a mount that has no remote: what cannot be read is damaged, and tails and databases are checked, of
 * logs too; there are no hashes to check. Hard links are several files. -errno where the directory itself cannot be read, -ENOMEM.
 */
int verify_directory(const char *path, const struct verify *how, struct verify_totals *ret_totals);

#endif
