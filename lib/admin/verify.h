/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an epoch whole: is every byte of it there and right, and is no file in it torn inside? */
#ifndef EPOCHFS_ADMIN_VERIFY_H
#define EPOCHFS_ADMIN_VERIFY_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/admin/catalog.h"

/* What a file that its format's tail calls torn means for the epoch. */
enum verify_torn {
	VERIFY_DAMAGED, /* as damage does */
	VERIFY_OLDER,	/* nothing: it is of a unit that no epoch is incomplete for (doubts.h) */
	VERIFY_SETTLED, /* nothing: the epoch is complete, by the word of somebody who knows (`commit --whole`) */
};

struct verify {
	bool deep; /* a database that is not whole is damage: no seal has looked at it, so the epoch may be complete */
	/* One call a damaged file, one at a time, from any thread: its path in the epoch, and what is wrong. Of a database that is a
	 * directory, the file is the one that says what is not so. */
	void (*problem)(void *arg, const char *path, const char *what);
	/* Asked of a file that is torn, by its path; any thread, one at a time. NULL: VERIFY_DAMAGED. */
	enum verify_torn (*torn)(void *arg, const char *path);
	/* The same; may be NULL. Counts regular files. */
	void (*progress)(void *arg, const struct catalog_progress *p);
	void *arg;
};

struct verify_totals {
	uint64_t files, bytes;	 /* regular files, and what they hold */
	uint64_t damaged;	 /* of the files, but those that follow */
	uint64_t older, settled; /* torn, and VERIFY_OLDER or VERIFY_SETTLED: problems were told */
	uint64_t databases;	 /* not whole, without `deep`: problems were told */
};

/* For those who verify: counts a file that is damaged or, where `torn`, what that means; a file of a database that is not whole. */
void verify_count(const struct verify *how, struct verify_totals *totals, const char *path,
		  bool torn);
void verify_count_database(const struct verify *how, struct verify_totals *totals);

/*
 * Reads all contents of an epoch from the remote, every chunk checked against its hash, and checks the tails of well-known
 * formats (tails.h), but of logs, and databases (databases.h), of which `torn` is not asked. Hard links are one file. Nothing is written; memory is the store's and 132 KiB a thread, and what databases.h
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
