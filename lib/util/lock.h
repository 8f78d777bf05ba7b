/* SPDX-License-Identifier: Apache-2.0 */
/* Locks that know their place in the order of all locks, and that order. */
#ifndef EPOCHFS_UTIL_LOCK_H
#define EPOCHFS_UTIL_LOCK_H

#include <pthread.h>
#include <stdint.h>

/*
 * The order of all locks, from the outermost to the innermost: the list is the order.
 *
 * A thread that holds locks takes only one that stands below all of them. Two of the same rank are
 * never held together, unless it says so. Where a lock is declared, it says what it guards.
 * The builds for tests check all of it, see below.
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
	LOCK(METRICS)                                                                              \
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

/*
 * pthread's mutexes, read-write locks and waits, with a rank from that list. Where LOCK_CHECKS is
 * defined (DEBUG=1, and every build with a sanitizer) each thread knows which locks it holds and
 * where it took them, and ends the process, with a line that names both locks and both places, when
 *   - a lock is taken that does not stand below all that the thread holds (which finds every
 *     possible deadlock of two orders, also when it did not come to one), or is held by it already;
 *   - a lock is given back that the thread does not hold;
 *   - a thread waits on a condition while it holds a lock besides the one that it waits with;
 *   - lock_none_held says so.
 * Elsewhere they are pthread's own and cost what these cost. As these, they fail only by a mistake of
 * the program, so nothing is returned; glibc's cannot fail to be made.
 */
struct mutex {
	pthread_mutex_t own;
#ifdef LOCK_CHECKS
	enum lock_rank rank;
#endif
};

struct rwlock {
	pthread_rwlock_t own;
#ifdef LOCK_CHECKS
	enum lock_rank rank;
#endif
};

#ifdef LOCK_CHECKS
#define MUTEX_INITIALIZER(lock_rank)                                                               \
	{                                                                                          \
		.own = PTHREAD_MUTEX_INITIALIZER, .rank = (lock_rank)                              \
	}

/* In lock.c: what the thread holds. `lock` is the struct's address. */
void lock_check_take(const void *lock, enum lock_rank rank, const char *file, int line);
void lock_check_drop(const void *lock, enum lock_rank rank, const char *file, int line);
void lock_check_wait(const void *lock, enum lock_rank rank, const char *file, int line);
void lock_check_none(enum lock_rank below, const char *what, const char *file, int line);
#else
#define MUTEX_INITIALIZER(lock_rank)                                                               \
	{                                                                                          \
		.own = PTHREAD_MUTEX_INITIALIZER                                                   \
	}
#define lock_check_take(lock, rank, file, line) ((void)0)
#define lock_check_drop(lock, rank, file, line) ((void)0)
#define lock_check_wait(lock, rank, file, line) ((void)0)
#define lock_check_none(below, what, file, line)                                                   \
	((void)(below), (void)(what), (void)(file), (void)(line))
#endif

static inline void mutex_init(struct mutex *m, enum lock_rank rank)
{
	pthread_mutex_init(&m->own, NULL);
#ifdef LOCK_CHECKS
	m->rank = rank;
#else
	(void)rank;
#endif
}

static inline void mutex_destroy(struct mutex *m)
{
	pthread_mutex_destroy(&m->own);
}

#define mutex_lock(m)	mutex_lock_at((m), __FILE__, __LINE__)
#define mutex_unlock(m) mutex_unlock_at((m), __FILE__, __LINE__)
/* Waits with the mutex held; the condition is any of pthread's. */
#define cond_wait(cond, m) cond_wait_at((cond), (m), __FILE__, __LINE__)

static inline void mutex_lock_at(struct mutex *m, const char *file, int line)
{
	(void)file, (void)line;
	lock_check_take(m, m->rank, file, line);
	pthread_mutex_lock(&m->own);
}

static inline void mutex_unlock_at(struct mutex *m, const char *file, int line)
{
	(void)file, (void)line;
	lock_check_drop(m, m->rank, file, line);
	pthread_mutex_unlock(&m->own);
}

static inline void cond_wait_at(pthread_cond_t *cond, struct mutex *m, const char *file, int line)
{
	(void)file, (void)line;
	lock_check_wait(m, m->rank, file, line);
	pthread_cond_wait(cond, &m->own);
}

/* cond_wait with other locks held: only for a thread that takes none of those. */
static inline void cond_wait_under(pthread_cond_t *cond, struct mutex *m)
{
	pthread_cond_wait(cond, &m->own);
}

static inline void rwlock_init(struct rwlock *l, enum lock_rank rank)
{
	pthread_rwlock_init(&l->own, NULL);
#ifdef LOCK_CHECKS
	l->rank = rank;
#else
	(void)rank;
#endif
}

static inline void rwlock_destroy(struct rwlock *l)
{
	pthread_rwlock_destroy(&l->own);
}

#define rwlock_read(l)	 rwlock_read_at((l), __FILE__, __LINE__)
#define rwlock_write(l)	 rwlock_write_at((l), __FILE__, __LINE__)
#define rwlock_unlock(l) rwlock_unlock_at((l), __FILE__, __LINE__)

static inline void rwlock_read_at(struct rwlock *l, const char *file, int line)
{
	(void)file, (void)line;
	lock_check_take(l, l->rank, file, line);
	pthread_rwlock_rdlock(&l->own);
}

static inline void rwlock_write_at(struct rwlock *l, const char *file, int line)
{
	(void)file, (void)line;
	lock_check_take(l, l->rank, file, line);
	pthread_rwlock_wrlock(&l->own);
}

static inline void rwlock_unlock_at(struct rwlock *l, const char *file, int line)
{
	(void)file, (void)line;
	lock_check_drop(l, l->rank, file, line);
	pthread_rwlock_unlock(&l->own);
}

/* The thread holds no lock but those from the rank `below` on: said where something is about to be
 * done that takes long. `what` names it for the line ("put to the remote"). */
#define lock_none_held(below, what) lock_check_none((below), (what), __FILE__, __LINE__)

#endif
