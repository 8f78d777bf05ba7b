/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that somebody may end. */
#ifndef EPOCHFS_UTIL_INTERRUPTED_H
#define EPOCHFS_UTIL_INTERRUPTED_H

#include <stdbool.h>

/* Polled while an operation waits (remote fetch, full cache); true ends it with -EINTR. May be NULL. */
typedef bool (*interrupted_fn)(void *arg);

#endif
