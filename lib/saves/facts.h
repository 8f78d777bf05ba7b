/* SPDX-License-Identifier: Apache-2.0 */
/* What names say about saves: each word as one function without effects. */
#ifndef EPOCHFS_SAVES_FACTS_H
#define EPOCHFS_SAVES_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/meta/rules.h"
#include "lib/util/buf.h"

/*
 * Paths are from the root, without a '/' before them. What a volume's options add to names of temporary files and logs counts, too:
 * that is what `rules` are for. Any number of threads may call these.
 */

/*
 * temporary: a name that a file or directory has until it is whole. Those of rules.h, and *.incomplete, *-tmp, *_tmp, *.partial, *.part.
 */
bool facts_temporary(const struct rules *r, const char *path);
/* The same of any part of the path. */
bool facts_in_temporary(const struct rules *r, const char *path);
/*
 * Appends the path that the temporary names in it are for, as far as they tell: of tmp-NAME, .NAME.tmp* and NAME.tmp*, NAME_temp, NAME-tmp,
 * NAME_tmp, NAME.incomplete, NAME.partial, NAME.part and NAME.orbax-checkpoint-tmp* it is NAME.
 */
void facts_stands_for(const char *path, struct buf *out);

/* log: the name of a file that is valid at every length. */
bool facts_log(const struct rules *r, const char *path);

/*
 * marker: a name which says that the save is over, by the option. last file: what a framework writes last, where it is not alone in its
 * checkpoint. Those of rules.h that are a file beside others, and Orbax's commit_success.txt.
 */
bool facts_marker(const struct rules *r, const char *path);
bool facts_last_file(const char *path);

/* note: a file so much smaller than its save that it says nothing of when that is over: below a 256th. */
bool facts_note(uint64_t size, uint64_t save_size);

/*
 * checkpoint: the directory of a path that carries a step, the first one, with what is above it. Else the root, "": a number in the name of a
 * file may be a step, or that of a project or of an old copy, and what has it is saved beside others.
 *
 * A step is the last number of a name that stands behind a word for it (rules.h; also ba, batch) or before "steps", else the last one at its
 * end or before an ending, or a name that is nothing but a number (12, 0.005), which is a step in the first two parts of a path only: below
 * that it is a part of something (the chunks of an array). A number that counts parts or layers is none. Where the volume has a step regex, that
 * alone says what a step is.
 */
struct checkpoint_place {
	const char *path;
	size_t len; /* so many bytes of it */
};

/* `directory`: the path is that of a directory, which may be the checkpoint itself. Without memory for a regex it is the root. */
struct checkpoint_place facts_checkpoint(const struct rules *r, const char *path, bool directory);
/* Appends it as text, as above. */
void checkpoint_put(const struct checkpoint_place *c, struct buf *out);
/* Whether that is its text. */
bool checkpoint_is(const struct checkpoint_place *c, const char *text);
/* As map_hash_text(0, its text). */
uint64_t checkpoint_hash(const struct checkpoint_place *c);

/* kind: the text of a checkpoint, numbers aside. Whether two are of one. */
bool facts_same_kind(const char *one, const char *other);
/* Whether a path is the other one, numbers aside, or that with an addition: state.db-journal, model.gguf.aria2. It says nothing of that file then. */
bool facts_belongs_to(const char *path, const char *to);
/* Appends the text with each number as '#'. */
void facts_numberless(const char *text, struct buf *out);
/* Appends the name that a file has in the shape of its save: its path below the checkpoint, numbers aside. */
void facts_shape_name(const char *path, const char *checkpoint, struct buf *out);

#endif
