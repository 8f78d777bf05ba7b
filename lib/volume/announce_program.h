/* SPDX-License-Identifier: Apache-2.0 */
/* The program that is told of epochs. Private to announce*.c. */
#ifndef EPOCHFS_VOLUME_ANNOUNCE_PROGRAM_H
#define EPOCHFS_VOLUME_ANNOUNCE_PROGRAM_H

#include <stdatomic.h>
#include <stdint.h>
#include "lib/util/buf.h"

struct announce_program;

/* `command` as exec_words.h says: 0, -EINVAL (no such words, or a relative path), -ENOENT, -EACCES
 * (no such program, or it may not be run), -ENOMEM. */
int announce_program_new(const char *command, int64_t timeout_ns,
			 struct announce_program **ret_program);
void announce_program_free(struct announce_program *p);

/*
 * Runs it once, with `text` and a newline as its standard input, a regular file; in a session of its
 * own, in the environment of the mount. What it prints on standard output is thrown away; the end of
 * its standard error goes to the log at debug level, the last line into `why` where it fails.
 *
 * 0 where it exited with 0. -ETIMEDOUT: it was ended with all of its group after the time-out;
 * -ECANCELED: so it was because `stops` became true; -EIO: another exit code, or killed; -ENOENT,
 * -EACCES, -ENOMEM. Why is appended, one line.
 */
int announce_program_run(struct announce_program *p, const char *text, const atomic_bool *stops,
			 struct buf *why);

#endif
