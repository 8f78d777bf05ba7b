/* SPDX-License-Identifier: Apache-2.0 */
/* What names mean: temporary names, markers, logs, the training step in a name, and what frameworks write last. */
#ifndef EPOCHFS_META_RULES_H
#define EPOCHFS_META_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/meta/options.h"

/*
 * Pure functions of the options and of names. The names that the frameworks
 * use are built in, the options' globs come on top:
 *   temporary   _checkpoint, tmp-*, *.tmp*, *_temp, *.orbax-checkpoint-tmp*
 *   marker      none
 *   log         *.log, *.jsonl, *.csv, *.out, *.err, log.txt, *[-_.]log.txt, log.lammps, stdout*, stderr*, *.wandb, events.out.tfevents.*
 * A glob is an fnmatch(3) pattern; '*' matches a leading dot, too. One that holds a '/' is matched
 * against the path from the root without a leading '/', and there '*' does not match '/'.
 *
 * Immutable once made: any number of threads may use the same rules.
 */
struct rules;

/* Keeps pointers to the globs' strings, which must stay. 0, -ENOMEM, or -EINVAL where the step
 * regex does not compile or has no group. */
int rules_new(const struct volume_options *options, struct rules **ret_rules);
void rules_free(struct rules *r); /* NULL is allowed */

/* True where a glob holds a '/': then the functions below want the path, else it may be NULL. */
bool rules_want_path(const struct rules *r);
bool rules_temporary(const struct rules *r, const char *name, const char *path);
bool rules_marker(const struct rules *r, const char *name, const char *path);
bool rules_log(const struct rules *r, const char *name, const char *path);

/*
 * The step label of an epoch is voted for by the paths that changed in it. With the step regex
 * (POSIX extended) the last match in a path counts, and its first group is the number. Without it,
 * every component of a path is looked at for a number that stands for one of these, best first:
 *   5  ...step, steps       epoch=3-step=400, global_step12, step-7; or before it, rl_model_1000_steps.zip
 *   4  checkpoint, ckpt, iter, iteration      checkpoint-500, model.ckpt-20.index, iter_0000100
 *   3  a directory that is nothing but a number      00012/
 *   2  epoch, ep            epoch=3
 *   1  the end of a name, or the number before a well-known ending      model.7, model_12.pt
 * A number of a part ("-00001-of-00004", rank_0.pt, shard-3.bin) is none, and one after a number, as in 1.13, unless that numbers a
 * node (trainer:0.7, worker3.7). Within a path the best
 * kind wins, then the last one; among paths the best kind, then the step that most paths have,
 * then the greatest. doubts_newest_to_record corrects it.
 */
#define STEP_CANDIDATES_MAX 256

/* In the order above; by the step regex it is the last. */
enum step_kind {
	STEP_KIND_NONE,
	STEP_KIND_TAIL,
	STEP_KIND_EPOCH,
	STEP_KIND_DIRECTORY,
	STEP_KIND_CHECKPOINT,
	STEP_KIND_STEP,
	STEP_KIND_REGEX,
};

struct step_candidate {
	int kind;
	uint64_t step;
	uint64_t votes;
	char *name; /* the component it was found in; owned */
};

/* Zero-initialise; free with step_votes_free. Of more than STEP_CANDIDATES_MAX different steps, the
 * rest is not counted. */
struct step_votes {
	struct step_candidate candidate[STEP_CANDIDATES_MAX];
	unsigned count;
};

/* Counts the path of something that is no directory, from the root. Logs are left out by the
 * caller. 0 or -ENOMEM. */
int step_votes_add(struct step_votes *v, const struct rules *r, const char *path);
/* The winner, or NULL where no path had a step; lives as long as the votes. */
const struct step_candidate *step_votes_winner(const struct step_votes *v);
void step_votes_free(struct step_votes *v);

/* The component [begin, end) of a path that its step is found in. */
struct step_place {
	size_t begin, end;
	uint64_t step;
	enum step_kind kind;
};

/* By the same rules, for one path: false where it has no step. A directory above the component that carries the same
 * step is taken in its place, the topmost one (not with the step regex). */
bool rules_step(const struct rules *r, const char *path, struct step_place *ret_place);
/* Whether the step regex says what a step is, and nothing else does. */
bool rules_step_is_given(const struct rules *r);
/* What the number in [from, to) of the component [0, len) stands for, by the built-in rules. `directory`: something is below it. */
enum step_kind rules_number_kind(const char *component, size_t len, size_t from, size_t to,
				 bool directory);
/* Whether the name ends as those of files with weights do: .pt, .safetensors, .bin, .distcp and the like. */
bool rules_weights(const char *name);
/* Whether the number that begins at `from` counts parts of one save: rank_0, -00001-of-00004. */
bool rules_number_of_part(const char *path, size_t from);
/* Whether the number that begins there says how far the training was, or how good: it is another in each save (batch500, val_loss=0.523). */
bool rules_number_of_progress(const char *path, size_t from);
/* Whether the number that begins there counts what a model is made of: layer12, stage2. */
bool rules_number_of_layer(const char *path, size_t from);

/* The last files of the frameworks: which name says that a checkpoint is whole. Pure. */

/*
 * What each framework writes last, from its source. `marker=none` turns all of it off.
 *
 *   Megatron-LM   megatron/training/checkpointing.py, save_checkpoint: latest_checkpointed_iteration.txt, by rank 0, after a barrier that all ranks
 *                 have saved.
 *   DeepSpeed     runtime/engine.py, save_checkpoint: `latest`, beside the directory of the tag. No barrier comes before it, so another rank's file
 *                 may follow: then the next epoch continues this one (settle.h). Inside a directory that carries a step it is not the
 *                 last: the Trainer and Lightning call DeepSpeed for a part of theirs.
 *   TensorFlow    python/training/checkpoint_management.py, update_checkpoint_state_internal: `checkpoint`, by rename of a temporary name.
 *   PyTorch       distributed/checkpoint/filesystem.py, FileSystemWriter.finish: `.metadata`, written in place until 2.1, then by rename of `.metadata.tmp`.
 *   Keras         callbacks/backup_and_restore.py: training_metadata.json. A model in one file, *.keras or *.weights.h5, by its rename.
 *   Lightning     fabric/utilities/cloud_io.py, _atomic_save: one file, *.ckpt, moved from $TMPDIR: a rename where that is on the mount. (From another file
 *                 system it is copied to its final name, and quiet seals.)
 *   Trainer       transformers, trainer.py, _save_checkpoint. Up to 4.35 trainer_state.json and then rng_state.pth; from 4.36 on
 *                 (_save_rng_state) rng_state.pth and then trainer_state.json. So the second of the two, both new since the last epoch, is the
 *                 last. Several processes write rng_state_<N>.pth each, in no order: there trainer_state.json is it, once process 0 has
 *                 written its own. With save_only_model there is none of them, and quiet seals.
 */
enum last_file {
	LAST_FILE_NONE,
	LAST_FILE_ANY,	     /* closed or renamed into place */
	LAST_FILE_RENAMED,   /* renamed into place: one file is the checkpoint */
	LAST_FILE_DEEPSPEED, /* closed, in a directory without a step */
	LAST_FILE_STATE,     /* closed, after the state of random numbers */
	LAST_FILE_RNG,	     /* closed, after the Trainer's state */
};

enum last_file last_file_kind(const char *name);
/* The names of which one must be new in the same directory, for LAST_FILE_STATE and LAST_FILE_RNG; NULL after the last. */
const char *const *last_file_partners(enum last_file kind);

#endif
