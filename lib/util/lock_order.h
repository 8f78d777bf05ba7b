/* SPDX-License-Identifier: Apache-2.0 */
/* The order of all locks, from the outermost to the innermost: the list is the order. */
#ifndef EPOCHFS_UTIL_LOCK_ORDER_H
#define EPOCHFS_UTIL_LOCK_ORDER_H

/*
 * A thread that holds locks takes only one that stands below all of them. Two of the same rank are
 * never held together, unless it says so. Where a lock is declared, it says what it guards.
 * lock.h checks all of it in the builds for tests.
 *
 * No lock at all is held over a call of the remote, a compression, or a wait on the condition of
 * another lock (but cond_wait_under); inside a remote its own locks, those from LOCK_REMOTE_FIRST on, may be.
 *
 * LOCK(name)
 */
#define LOCK_ORDER(LOCK)                                                                           \
	/* a volume's calls of the mount: held for reading over each, so outside of all of its */  \
	LOCK(VOLUME_EVENTS)                                                                        \
	/* the face: taken without a call of the volume under them */                              \
	LOCK(FS_LOOP)                                                                              \
	LOCK(FS_CONTROL)                                                                           \
	LOCK(FS_FILES)                                                                             \
	LOCK(FS_USERS)                                                                             \
	LOCK(FS_EPOCH_NAMES)                                                                       \
	LOCK(FS_EPOCH_VIEWS)                                                                       \
	LOCK(TOOL_IMPORT)                                                                          \
	LOCK(TOOL_WARM)                                                                            \
	/* one job at a time */                                                                    \
	LOCK(SEALER_FINISHING)                                                                     \
	/* the live tree and the state */                                                          \
	LOCK(VOLUME)                                                                               \
	LOCK(CONTENTS)                                                                             \
	LOCK(FETCH)                                                                                \
	LOCK(CONTENT_IO)                                                                           \
	LOCK(TREES)                                                                                \
	/* the face's nodes: the volume asks for them (volume_set_known) */                        \
	LOCK(FS_NODES)                                                                             \
	/* leaves of the volume: each guards the fields of one part */                             \
	LOCK(UPLOADER)                                                                             \
	LOCK(UPLOAD_PROGRESS)                                                                      \
	LOCK(AHEAD)                                                                                \
	LOCK(EVICTOR)                                                                              \
	LOCK(RESERVE)                                                                              \
	LOCK(HOLDER)                                                                               \
	LOCK(LEASE)                                                                                \
	LOCK(NODES)                                                                                \
	LOCK(FOLLOWER)                                                                             \
	LOCK(RETAINER)                                                                             \
	LOCK(ANNOUNCER)                                                                            \
	LOCK(USAGE)                                                                                \
	LOCK(IMPORT)                                                                               \
	LOCK(CHECKPOINTER)                                                                         \
	LOCK(STATE_IDLE)                                                                           \
	/* without a mount */                                                                      \
	LOCK(CHECK_RACE)                                                                           \
	LOCK(EXPORT)                                                                               \
	LOCK(VERIFY)                                                                               \
	LOCK(GC_MARK)                                                                              \
	/* the store */                                                                            \
	LOCK(STORE_FSCK)                                                                           \
	LOCK(STORE_GC)                                                                             \
	/* a leaf of the volume: a collection tells of its progress under its own locks */         \
	LOCK(COLLECTOR)                                                                            \
	LOCK(STORE_KEEP)                                                                           \
	LOCK(STORE_BATCH)                                                                          \
	LOCK(STORE_PACKER)                                                                         \
	LOCK(STORE)                                                                                \
	LOCK(STORE_POOL)                                                                           \
	LOCK(STORE_TRUST)                                                                          \
	LOCK(MEMORY_INDEX)                                                                         \
	/* remotes */                                                                              \
	LOCK(REMOTE_RETRY)                                                                         \
	LOCK(REMOTE_CREDENTIALS)                                                                   \
	LOCK(REMOTE_DAV)                                                                           \
	LOCK(REMOTE_SFTP)                                                                          \
	LOCK(REMOTE_EXEC)                                                                          \
	LOCK(REMOTE_FILE_TREE)                                                                     \
	LOCK(REMOTE_MEMORY_ALL)                                                                    \
	LOCK(REMOTE_MEMORY)                                                                        \
	LOCK(HTTP_POOL)                                                                            \
	/* curl's, one for each kind of what slots share: it may take one inside another */        \
	LOCK(HTTP_SHARE)                                                                           \
	LOCK(REMOTE_RATE)                                                                          \
	LOCK(REMOTE_SLEEP)                                                                         \
	LOCK(REMOTE_REASON)                                                                        \
	/* what a test locks for itself */                                                         \
	LOCK(TEST)

enum lock_rank {
#define LOCK_RANK_(name) LOCK_##name,
	LOCK_ORDER(LOCK_RANK_)
#undef LOCK_RANK_
		LOCK_RANKS,
	LOCK_REMOTE_FIRST = LOCK_REMOTE_RETRY,
};

#endif
