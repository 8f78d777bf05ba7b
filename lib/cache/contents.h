/* SPDX-License-Identifier: Apache-2.0 */
/* All closed content of a volume, for what changes backing files below it (content.c has the code). Private to
 * lib/; reading one is in content.h. */
#ifndef EPOCHFS_CACHE_CONTENTS_H
#define EPOCHFS_CACHE_CONTENTS_H

#include "lib/util/io.h"
#include "lib/cache/context.h"

int contents_new(struct contents **ret_contents);
/* Waits until no fetch is under way. */
void contents_drain(struct contents *c);
/*
 * The remote has contents that are new here: where they lie is read in the background, so that the first read
 * of one of them is two requests, one after the other: its recipe, and its bytes. Where it fails, readers
 * read it themselves.
 */
void contents_learn(struct volume *vol);
/* All references must be gone. NULL is allowed. */
void contents_free(struct contents *c);

/* Bytes in backing files that no row counts yet; may be negative. Any thread. */
int64_t contents_unaccounted(struct volume *vol);
/* Between the two nothing is dropped from the backing file to make room: who reads it by a descriptor
 * of its own, after content_fetch, needs that. */
void content_pin(struct content *c);
void content_unpin(struct content *c);

/* Whether somebody has this version open: it is not reclaimed, not evicted. */
bool content_in_use_locked(struct volume *vol, uint64_t version);
/* References to it that there are. */
unsigned content_users_locked(struct volume *vol, uint64_t version);
/* Whether anybody besides the content itself has its backing file open or mapped: false where no content of the version is open,
 * or it has no descriptor. */
bool content_users_of_file_locked(struct volume *vol, uint64_t version, enum io_users *ret_users);
/*
 * objects/<version> is another file with the same bytes now, of which `fd` (taken over) is a descriptor: who has it open goes over
 * to that one. When it returns nobody reads the old one. Without the lock.
 */
void content_rebind(struct volume *vol, uint64_t version, int fd);
/* The live file takes the backing file over, and the version's bytes are no longer local: who comes
 * later gets a new object. With the lock. */
void content_detach_locked(struct volume *vol, uint64_t version);

/*
 * Whether the file at `fd`, which nobody changes meanwhile, holds the same bytes as a closed version: 1; 0: other ones, or what this machine
 * knows without the remote does not tell; -errno. A version whose bytes are not local is known by the hashes in its recipe. Of what was written
 * anew some pages are read; of what is the same, all: of both, but for what both have as a hole. May move the file offset. Without any lock.
 */
int content_same(struct volume *vol, uint64_t version, int fd);

#endif
