/* SPDX-License-Identifier: Apache-2.0 */
/* The names made in the live tree since the last epoch: what makes it dirty, what is temporary. */
#ifndef EPOCHFS_EPOCHS_NEW_NAMES_H
#define EPOCHFS_EPOCHS_NEW_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/map.h"

/*
 * A name that is made and removed again (a lock file, a file of a killed writer that was undone)
 * opens no epoch: the set knows which are still there. Private to lib/epochs; in memory only,
 * guarded by the volume's lock. Zero-initialise, free with new_names_clear.
 */
enum joins {
	JOINS_NOTHING,
	JOINS_CHAIN, /* of an epoch that the last one continues */
	JOINS_LAST,
};

struct new_name {
	struct map_link link;		 /* by file and name */
	struct new_name *next_temporary; /* of temporary names */
	uint64_t parent, ino;
	bool closed;	    /* its content was committed */
	bool temporary;	    /* its name is a temporary one */
	bool left;	    /* and its writer was killed */
	enum joins joins;   /* what the last epoch had begun (sealer_continues.c) */
	int64_t changed_ns; /* monotonic; last change of it or of what is in it */
	char name[];
};

/* Beyond this many, names are not kept one by one: the set is dirty until it is cleared. */
#define NEW_NAMES_MAX 131072

struct new_names {
	struct map names;
	struct new_name *temporaries;
	bool overflow; /* too many, or no memory for them */
};

void new_names_clear(struct new_names *set);
/* Something is there that was not there in the last epoch. */
bool new_names_any(const struct new_names *set);
/* By file and name; of a file that has this name in several directories by the directory, too, where
 * `parent` is not 0. NULL: none. */
struct new_name *new_names_find(const struct new_names *set, uint64_t parent, const char *name,
				uint64_t ino);
/* Adds a name; `now_ns` is when it changed last, also where it is there already. */
void new_names_add(struct new_names *set, uint64_t parent, const char *name, uint64_t ino,
		   bool temporary, int64_t now_ns);
/* Takes out one that new_names_find gave. */
void new_names_remove(struct new_names *set, struct new_name *n);

#endif
