/* SPDX-License-Identifier: Apache-2.0 */
/* What announce*.c share. Private to them. */
#ifndef EPOCHFS_EPOCHS_ANNOUNCE_INTERNAL_H
#define EPOCHFS_EPOCHS_ANNOUNCE_INTERNAL_H

#include <stdatomic.h>
#include <stdint.h>
#include "lib/epochs/announce.h"
#include "lib/util/buf.h"

/* The numbers are those of the queues in the state. */
enum {
	SINK_PROGRAM,
	SINK_DB,
	SINK_COUNT,
};

/* The JSON text (announce.h); free it. */
int announce_text(const struct volume *vol, enum announce_event event,
		  const struct state_epoch *row, char **ret_text);
/* There is something new in a queue. */
void announcer_kick_locked(struct volume *vol);

/* ---- The table of epochs in an SQLite database. Private to announce*.c. ---- */

/*
 * Table `checkpoints`, one row an epoch, key (volume, epoch): several volumes and runs may share one
 * database. It is opened for each write and made where it is not there; its journal stays as it is
 * (WAL, where somebody set it: a database on a network file system must not have it), and a writer
 * waits 2 s for another. Columns that it has besides are left alone.
 *
 *   volume, epoch               the volume's UUID, the number
 *   step, step_name, message, reason, parent, continues, restores, trigger (as `sealed_by`),
 *   run_id, host, user (as `user_name`), save_ns, files, bytes, bytes_new, bytes_stored
 *                               as in the record (record.h); NULL where it has none
 *   complete                    1, 0, NULL: unknown. An epoch that another continues gets 0
 *   durable, dropped            1 or 0
 *   db_type, db_prefix, path_type, path_prefix, node_names
 *                               as the record has them; else path_type `epochfs`, path_prefix
 *                               MOUNTPOINT/.epochs/NUMBER, node_names [host], the rest NULL.
 *                               node_names is a JSON array
 *   remote, mountpoint          where it can be had
 *   opened_at, sealed_at, durable_at, dropped_at   RFC 3339, UTC
 *   tree_hash                   in hex; once it is durable
 *
 * A row that is durable is not taken back by one that is not: of two writers that had the same
 * number, it is that of the one whose epoch is in the remote.
 */

/* Writes an announcement (announce.h). 0, or -errno and why, one line, appended. */
int announce_db_write(const char *path, const char *text, struct buf *why);

/* ---- The program that is notified of epochs. Private to announce*.c. ---- */

struct announce_program;

/* `command` as exec.h says: 0, -EINVAL (no such words, or a relative path), -ENOENT, -EACCES
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
