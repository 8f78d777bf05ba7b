/* SPDX-License-Identifier: Apache-2.0 */
/* What changed since the last epoch: the files whose content was closed (how many bytes, how often), and the names that were made. */
#ifndef EPOCHFS_EPOCHS_CHANGED_H
#define EPOCHFS_EPOCHS_CHANGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "lib/util/clock.h"
#include "lib/util/map.h"

/*
 * Tells where one save ends and the next begins (sealer_before.c). Private to lib/epochs; in memory only, guarded by the
 * volume's lock. Zero-initialise, free with changed_clear.
 */
struct changed_file {
	struct map_link link;			       /* by inode */
	struct changed_file *next_again, **link_again; /* of those that were closed twice or more */
	uint64_t ino, size;
	uint64_t count; /* how often it was closed, or replaced by another */
	uint64_t at;	/* the place of the last time in the order of all */
	uint64_t from;	/* the epoch that has first what the first one replaced; 0: nothing was */
	pid_t by;	/* the process that did it last; 0: not known */
	int64_t closed_ns; /* monotonic; the last close */
	int64_t made_ns; /* monotonic; when it was opened that is new; 0: it is not, or not known */
};

/* What is smaller than this part of a file is a mere note beside it. */
#define CHANGED_PART 256
/* How often a save may be tried again. */
#define CHANGED_TRIES 3
/* A new file is of the same save at least for so long. */
#define CHANGED_LULL_NS (100 * NS_PER_MS)
/* Beyond this many it is not known any more which. */
#define CHANGED_MAX 131072

struct changed {
	struct map files;
	struct changed_file *again;
	uint64_t bytes;		/* of all */
	uint64_t often;		/* of those that were closed more than CHANGED_TRIES times */
	uint64_t last_at;	/* the greatest that was given */
	uint64_t newest_from;	/* no file has a greater one */
	int64_t newest_made_ns; /* the same */
	bool overflow;		/* some are not in it: too many, or no memory for them */
};

void changed_clear(struct changed *c);
/* NULL: it is not known to have changed. */
const struct changed_file *changed_find(const struct changed *c, uint64_t ino);
/* The file is about to be added, by this process, for content that replaces what `epoch` has first (0: nothing), and was
 * opened then; of epochs and times the first ones given count. */
void changed_begins(struct changed *c, uint64_t ino, uint64_t epoch, pid_t by, int64_t opened_ns);
/* The file was closed now with so much in it. */
void changed_add(struct changed *c, uint64_t ino, uint64_t size, int64_t now_ns);
void changed_remove(struct changed *c, uint64_t ino);
/* Adds a copy of what was known of a file that is not there any more, as closed once. */
void changed_again(struct changed *c, const struct changed_file *f);
/* The file takes the place of another, whose content `epoch` has first. Where that has changed as well, it counts as closed
 * once more than that. */
void changed_replaces(struct changed *c, uint64_t ino, uint64_t replaced, uint64_t epoch);
/*
 * Whether some file but this one was closed exactly once more than that one: what begins a save is written before the rest of it. Where
 * both were saved together before, and it is no mere note, it may have been tried again since.
 */
bool changed_any_ahead(const struct changed *c, const struct changed_file *than, uint64_t but);
/* The first of the epochs that one save made, of which this is one. */
typedef uint64_t (*changed_save_fn)(void *arg, uint64_t epoch);
/*
 * Whether some file was closed as often as `count`, later than `at`, and had content of a later epoch than `from` before that, and of a later save.
 * An epoch that was sealed in the middle of a save has the file that was saved first, so that the next save's first file is
 * counted as if it belonged to the rest of that.
 */
bool changed_any_shifted(const struct changed *c, uint64_t count, uint64_t at, uint64_t from,
			 changed_save_fn save_of, void *arg);
/*
 * Whether some file but this one is new and was closed, and was made long after `closed_ns` and nearer to `now_ns` than to
 * that: what follows within a save is made at once, not when the next one begins. The first: after when.
 */
int64_t changed_made_after(int64_t closed_ns, int64_t now_ns);
bool changed_any_made(const struct changed *c, int64_t closed_ns, int64_t now_ns, uint64_t but);

/* Whether the function says so of one of them. */
bool changed_any(const struct changed *c, bool (*is)(void *arg, const struct changed_file *f),
		 void *arg);

/* ---- the names made in the live tree: what makes it dirty, what is temporary ---- */

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
	pid_t left_by;	    /* by this one; 0: it is not known */
	bool over;	    /* and an epoch has the half of that save: quiet does not wait for it */
	enum joins joins;   /* what the last epoch had begun (sealer_continues.c) */
	int64_t made_ns;    /* monotonic */
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
