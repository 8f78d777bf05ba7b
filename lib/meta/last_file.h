/* SPDX-License-Identifier: Apache-2.0 */
/* The last files of the frameworks: which name says that a checkpoint is whole. Pure. */
#ifndef EPOCHFS_META_LAST_FILE_H
#define EPOCHFS_META_LAST_FILE_H

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
