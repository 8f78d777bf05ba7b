/* SPDX-License-Identifier: Apache-2.0 */
/* Scope cleanup: a variable marked with one of these frees what it holds when it goes out of scope.
 */
#ifndef EPOCHFS_UTIL_CLEANUP_H
#define EPOCHFS_UTIL_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "lib/util/lock.h"

#define CLEANUP(fn) __attribute__((cleanup(fn)))

static inline void cleanup_free_fn(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close_fn(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_fclose_fn(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void cleanup_closedir_fn(DIR **d)
{
	if (*d)
		closedir(*d);
}

static inline void cleanup_unlock_fn(struct mutex **m)
{
	if (*m)
		mutex_unlock(*m);
}

/* `cleanup_free char *s = NULL;` frees s at the end of the scope; likewise a descriptor (-1: none),
 * FILE, DIR. */
#define cleanup_free	 CLEANUP(cleanup_free_fn)
#define cleanup_close	 CLEANUP(cleanup_close_fn)
#define cleanup_fclose	 CLEANUP(cleanup_fclose_fn)
#define cleanup_closedir CLEANUP(cleanup_closedir_fn)

/* Locks the mutex until the end of the scope. */
#define LOCK_CONCAT_(a, b) a##b
#define LOCK_NAME_(line)   LOCK_CONCAT_(scope_lock_, line)
#define SCOPED_LOCK(m)                                                                             \
	CLEANUP(cleanup_unlock_fn)                                                                 \
	__attribute__((unused)) struct mutex *LOCK_NAME_(__LINE__) = (mutex_lock(m), (m))

/* Takes a resource out of its variable, so that the scope's end leaves it alone. */
#define steal_ptr(p)                                                                               \
	({                                                                                         \
		__typeof__(p) stolen_ = (p);                                                       \
		(p) = NULL;                                                                        \
		stolen_;                                                                           \
	})
static inline int steal_fd(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

#endif
