/* SPDX-License-Identifier: Apache-2.0 */
/* The table of epochs in an SQLite database. Private to announce*.c. */
#ifndef EPOCHFS_VOLUME_ANNOUNCE_DB_H
#define EPOCHFS_VOLUME_ANNOUNCE_DB_H

#include "lib/util/buf.h"

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

#endif
