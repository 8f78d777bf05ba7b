/* SPDX-License-Identifier: Apache-2.0 */
/* malloc in a daemon of many threads: what is freed goes back to the system. */
#ifndef EPOCHFS_UTIL_MEMORY_H
#define EPOCHFS_UTIL_MEMORY_H

/*
 * For the whole process, before its threads start. glibc gives every thread an arena of its own,
 * and each keeps what it once had; and it learns to take larger and larger blocks from there. After
 * this there are few arenas, and large blocks are mapped, so that freeing them frees them. Does
 * nothing with another malloc.
 */
void memory_set_up(void);
/* After a job that took a lot: gives back what is free in all arenas. Takes milliseconds where it is
 * much; any thread. */
void memory_give_back(void);

#endif
