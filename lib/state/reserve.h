/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Space on the cache's disk that is kept for when that is full: the file `reserve` in the cache
 * directory, whose blocks are allocated. Removing, renaming, rolling back, sealing and uploading
 * write a little themselves (the journal of the local state, the tree of an epoch), and they are
 * what ends the shortage. When such a write finds no space, a part of the file is given up and the
 * write is done again. What makes something new is refused until the reserve is whole again
 * (volume_reserve, volume_room_for_names).
 *
 * Another user of the disk may take what was given up before we do; then more is given up, as long
 * as there is some.
 */
#ifndef EPOCHFS_STATE_RESERVE_H
#define EPOCHFS_STATE_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

struct reserve;

/* Opens the file, or makes it, as large as the disk has space for now. 0 or -errno. */
int reserve_open(int cache_dirfd, struct reserve **ret_reserve);
/* The file stays. NULL is allowed. */
void reserve_close(struct reserve *r);
/* Gives up at least `bytes` of it, for a write that found the disk full: false where nothing is
 * left, and the write fails. Any thread, any lock held. */
bool reserve_give(struct reserve *r, uint64_t bytes);
/* Takes back what was given up, where there is space. Any thread, without the volume's lock. */
void reserve_refill(struct reserve *r);
/* When any was wanted last, by the wall clock: then the disk was full. 0: not since this was last asked. Any thread, any lock held. */
int64_t reserve_wanted_ns(struct reserve *r);
/* Bytes that it lacks: 0, it is whole. */
uint64_t reserve_missing(const struct reserve *r);
/* Is this the error of a write to a full disk? */
bool reserve_is_for(int error);

#endif
