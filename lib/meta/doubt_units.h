/* SPDX-License-Identifier: Apache-2.0 */
/* Units of a tree: which files belong together by the step in their names. Pure: no I/O, no locks. */
#ifndef EPOCHFS_META_DOUBT_UNITS_H
#define EPOCHFS_META_DOUBT_UNITS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/meta/rules.h"

/*
 * The unit of a path is the part of it that carries its step, by the rules of `step=` (rules.h), else the root. Where a
 * directory above it carries the same step, that is the unit: checkpoint-500/global_step500. Files of one directory whose
 * own names carry the same step are one unit: model.ckpt-20.index and model.ckpt-20.meta. So are the directories in one
 * directory that do, as each node's of caffe2: trainer:0.20/ and trainer:1.20/. What lies under a temporary name belongs to
 * that name.
 */
struct doubt_unit {
	size_t len; /* of the beginning of the path that it is; 0: the root */
	bool temporary;
	bool file; /* the path itself: with others of its directory and step */
	uint64_t step;
};

struct doubt_unit doubt_unit_of(const struct rules *r, const char *path);
/* Of a file whose writer was killed: it may be another where the name itself is temporary. */
struct doubt_unit doubt_unit_of_kill(const struct rules *r, const char *path);
/*
 * Of a file that is saved again under the same name: a mere number in that is no step, but counts the parts of a save, as in
 * consolidated.00.pth and consolidated.01.pth. So it is of the unit that its directory is.
 */
struct doubt_unit doubt_unit_of_again(const struct rules *r, const char *path);
/* Whether it may be one of those parts. */
bool doubt_may_be_part(const struct rules *r, const char *path);
/* Whether two names, or paths, are the same but for their numbers. */
bool doubt_same_shape(const char *a, const char *b);
/* Whether the one is the name, or the path, that a later save has in place of the other: they are the same but for their numbers, and these
 * count no parts of one save. */
bool doubt_is_of_another_save(const char *a, const char *b);
/*
 * The same of two names that carry the same step, as where that is the epoch: checkpoint_1_500.pt and checkpoint_1_1000.pt, or ep1-ba20.pt and ep1-ba40.pt.
 * A number whose word does not tell may as well count parts, where it is small, or near to the other.
 */
bool doubt_is_next_in_step(const char *a, const char *b);
/* Whether the names of two files of one directory are the same but for their numbers. */
bool doubt_same_shape_beside(const char *a, const char *b);
bool doubt_unit_same(const char *a, const struct doubt_unit *ua, const char *b,
		     const struct doubt_unit *ub);
/* Whether `around` is a directory that the other unit is in. */
bool doubt_unit_is_around(const char *a, const struct doubt_unit *around, const char *b,
			  const struct doubt_unit *ub);

/* Of the directory that the last name in the first `len` bytes is in, with its '/'. */
size_t doubt_directory_len(const char *path, size_t len);

/* ---- temporary names of files ---- */

/* Whether the last name is temporary, and none above it. */
bool doubt_name_is_temporary(const struct rules *r, const char *path);
/*
 * The names, in the same directory, of the file that this temporary name may be that of: model.pt of .model.pt.tmp4711, and
 * .model.pt; model.npz of model.tmp.npz, and model. How many; 0: it tells none, or is not temporary itself.
 */
#define DOUBT_FINAL_NAMES 4
unsigned doubt_final_names(const struct rules *r, const char *path,
			   char ret_names[DOUBT_FINAL_NAMES][NAME_MAX + 1]);
/*
 * Where the final name in a temporary one ends, at a separator from which on it is temporary: dir/model.pt of
 * dir/model.pt.tmp.4711. 0: it tells none.
 */
size_t doubt_stem_len(const struct rules *r, const char *path);
/*
 * Where the final name in a temporary one begins, after a separator up to which it is temporary: model.pt of
 * dir/tmp-model.pt. The path's length: it tells none.
 */
size_t doubt_tail_at(const struct rules *r, const char *path);
/* What may be between a final name and what makes it temporary. */
bool doubt_is_separator(char c);

#endif
