/* SPDX-License-Identifier: Apache-2.0 */
/* What saves have: shapes, and what the saves of a kind have in common. */
#ifndef EPOCHFS_SAVES_SHAPE_H
#define EPOCHFS_SAVES_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"

/*
 * shape: the names of a save (facts_shape_name), with how often each stands. Of more names than SHAPE_NAMES_MAX the rest is not
 * known: a save whose names change each time has no use of them. Zero-initialised it is empty; free with shape_free. Not thread-safe.
 */
#define SHAPE_NAMES_MAX 4096

struct shape_name {
	char *text;
	uint64_t times; /* at least 1 */
};

struct shape {
	struct shape_name *name; /* in the order of their bytes */
	size_t count, cap;
	uint64_t first; /* the hash of the name that was added first; 0: none was */
	uint64_t *
		file; /* of what saves have in common: the files of this one, the hashes of their paths in order */
	size_t file_count, file_cap;
};

/* So many times more: 0, or -ENOMEM with nothing changed. */
int shape_add(struct shape *s, const char *name, uint64_t times);
/* A file of the save, by its path. Likewise. */
int shape_add_file(struct shape *s, const char *path);
/* So many times less; none is left where it had no more. */
void shape_take(struct shape *s, const char *name, uint64_t times);
uint64_t shape_times(const struct shape *s, const char *name);
/* Whether they have a name in common. */
bool shape_shares(const struct shape *a, const struct shape *b);
void shape_free(struct shape *s);

/*
 * core: what two saves both have, as often as the one that has it less often. Of one save, both are that one; of none, NULL.
 */
struct core {
	const struct shape *older, *newer;
};

bool core_known(const struct core *c);
uint64_t core_times(const struct core *c, const char *name);
/* How often the save that has the name more often has it. */
uint64_t core_most(const struct core *c, const char *name);
/* Whether both saves began with this name. */
bool core_begins(const struct core *c, const char *name);
/* Whether the shape has each name of the core as often. */
bool core_within(const struct core *c, const struct shape *s);
/* Appends what of the core the shape has not, or less often: "optimizer.bin, rng.pth". */
void core_put_lacking(const struct core *c, const struct shape *s, struct buf *out);

/*
 * The shapes of whole saves, by their kind: all that matter to a core. One of which two newer ones of its kind have each name matters no more.
 * Zero-initialised there are none; free with shapes_free. Not thread-safe.
 */
#define SHAPES_OF_KIND_MAX 64
#define SHAPE_KINDS_MAX	   256

struct shapes_of_kind {
	char *kind;	     /* the text of a checkpoint of it */
	struct shape *shape; /* the oldest first */
	size_t count, cap;
};

struct shapes {
	struct shapes_of_kind *kind; /* what was added to last stands last */
	size_t count, cap;
};

/* Takes the shape over: 0, or -ENOMEM, where the caller has it still. */
int shapes_add(struct shapes *all, const char *checkpoint, struct shape *s);
/* Whether the last save of the kind that has this name (facts_shape_name) has it by this file. */
bool shapes_last_has(const struct shapes *all, const char *checkpoint, const char *name,
		     const char *path);
/* The core for a save with these names, from which those are gone: of the last two shapes of its kind that have one of the names; where none has, one of
 * those that are gone. */
struct core shapes_core(const struct shapes *all, const char *checkpoint, const struct shape *saved,
			const struct shape *gone);
void shapes_free(struct shapes *all);

#endif
