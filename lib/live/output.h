/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output: what a program writes beside its saves, valid at every length (contract 1.2.5). This is the one place that says what is. A
 * file is output that
 *   - has a log's name (rules_log), or
 *   - is held open with O_APPEND alone for longer than `patience`, or
 *   - has stayed open while the thread that opened it saved another name twice, or any thread of its process did and what it ends
 *     with are lines of text: LAMMPS' dump beside restart files, GROMACS' trajectory beside checkpoints; but not under a name of weights, nor
 *     where it replaces a committed file and is no text, or
 *   - has a name in the same directory that is as that of such a one, numbers aside: what the other ranks write, of which one saves, or
 *   - is text beside much larger saves of others (sealer_saved.c), or
 *   - only grew since it was closed last, which an epoch had or was followed by: asked where its writer was killed (CP2K's xyz, appended by seek).
 *
 * A save of a name is a close that committed other content, or a rename to it. Numbers do not count (lj.restart.50, then .100), but those
 * that count the parts of one save, or its layers, do. Nor does a name that is as the open file's own, numbers aside: these are parts of one
 * save (__0_0.distcp beside __0_1.distcp); nor that with an addition, which is the file's own journal (state.db-journal). Only the order of what
 * happens decides, and it is the same with passthrough, where opens and closes are all that is seen.
 *
 * Why the thread: who is amid writing a checkpoint's file saves nothing else meanwhile, but a thread beside him may, as one that
 * keeps a status file, or writes the other files. Taken for output, half of a checkpoint would replace the good one.
 *
 * Once it is, it stays so until its last close, and in the state, so that recovery goes by it, too.
 *
 * All of it with the volume's lock.
 */
#ifndef EPOCHFS_LIVE_OUTPUT_H
#define EPOCHFS_LIVE_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct body;
struct handle;
struct volume;

/* Whether the body is output, now. */
bool body_is_output_locked(struct volume *vol, struct body *b);
/* Whether a name of the file is that of a log. */
bool file_is_log_locked(struct volume *vol, uint64_t ino);

/*
 * It is output from now on, for this reason (for the log): a kill does not undo it any more, nor a crash. A replacement takes its place in the
 * live tree as it stands. Not in a transaction. 0, or -errno: then it is none.
 */
int output_mark_locked(struct volume *vol, struct body *b, const char *why);
/* Its last writer has closed it, and was killed: it is output where all that it was before is still there. Drops the lock while it reads. */
void output_look_grown_locked(struct volume *vol, struct body *b);
/* Its last writer has closed it: what comes next is judged anew. */
void output_ended_locked(struct volume *vol, struct body *b);

/* A handle that writes was opened, or is about to go (also one that was never opened so). Its body, tgid and tid are set. */
void output_opened_locked(struct handle *h);
void output_closed_locked(struct handle *h);
/* A thread (0: not known) of this process has saved this name, after the transaction. */
void output_saved_locked(struct volume *vol, uint64_t parent, const char *name, pid_t tgid,
			 pid_t tid);

/* This thread (0: not known) has renamed something to that. */
void output_renamed_locked(struct volume *vol, uint64_t parent, const char *name, pid_t tid);
/* Whether what ends the file are lines of text, and no file of a save has such a name. */
bool output_is_text(int fd, const char *name);

/* Pure: a hash of the path without its numbers. `parts`: those that count parts and layers of one save stay. */
uint64_t output_shape(const char *path, bool parts);

#endif
