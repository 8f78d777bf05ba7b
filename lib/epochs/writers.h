/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that write to a volume: a number for each, and how it ended. */
#ifndef EPOCHFS_EPOCHS_WRITERS_H
#define EPOCHFS_EPOCHS_WRITERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* So many living ones are watched. Of more it is never known that they ended. */
#define WRITERS_MAX 256

/* Not thread-safe. */
struct writers;

/* NULL: no memory. */
struct writers *writers_new(void);
void writers_free(struct writers *w); /* NULL is allowed */

/*
 * The number of a process that lives: its pid, and above 32 bits how many had that before. It is watched from then on. Of pid 0, which is no process of
 * this namespace, it is 0.
 */
uint64_t writers_number(struct writers *w, pid_t pid);

/* One of those watched that has ended since, which is watched no more: its number. `ret_known`: *ret_status is how, as a shell says it. 0: none has. */
uint64_t writers_ended(struct writers *w, bool *ret_known, unsigned *ret_status);
/* Whether any is watched. */
bool writers_any(const struct writers *w);

#endif
