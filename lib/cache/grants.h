/* SPDX-License-Identifier: Apache-2.0 */
/* The table of grants (grant.h has the states and who may do what). For lib/ alone; all of it with the volume's lock, but for
 * grants_new and grants_free. */
#ifndef EPOCHFS_CACHE_GRANTS_H
#define EPOCHFS_CACHE_GRANTS_H

#include "lib/cache/grant.h"
#include "lib/cache/context.h"

/* The holder of files of epochs, whose content never changes. No body has this id. */
#define GRANT_EPOCHS 0

/* What may be done to the inode of a version, on behalf of a holder. */
enum grant_use {
	GRANT_FREE,  /* anything */
	GRANT_OWN,   /* it must stay the holder's, whatever it is changed to */
	GRANT_OTHER, /* it must not change, nor be given to the kernel */
};

int grants_new(struct grants **ret_grants);
void grants_free(struct grants *g);
/* Versions below this one may have users that the table does not know: of the time before this process. Without it, none has. */
void grants_begin_locked(struct volume *vol, uint64_t next_version);

/* Takes the version's backing file for a node of the holder: 0, -EBUSY, -ENOMEM. Give it back with grant_release. */
int grant_take_locked(struct volume *vol, uint64_t version, uint64_t holder,
		      struct grant **ret_grant);
/* The same where a worker before this one took it and the kernel has it still: no test. */
int grant_take_again_locked(struct volume *vol, uint64_t version, uint64_t holder,
			    struct grant **ret_grant);
void grant_release_locked(struct grant *g);
/* The grant that this holder has of the version: NULL if none. */
struct grant *grant_find_locked(struct volume *vol, uint64_t version, uint64_t holder);
enum grant_use grant_use_locked(struct volume *vol, uint64_t version, uint64_t holder);
/*
 * The inode behind objects/<from> is, or will be in this moment, the one behind objects/<to>: a grant goes along, and one
 * of `to`, whose inode loses its name, is dropped. -EBUSY where another than `holder` has it: then it must not be done.
 */
int grant_move_locked(struct volume *vol, uint64_t from, uint64_t to, uint64_t holder);
/* objects/<version> goes. */
void grant_drop_locked(struct volume *vol, uint64_t version);
/* Whether the inode may lose its name to make room. */
bool grant_may_evict_locked(struct volume *vol, uint64_t version);
/* Looks which mappings are gone, of some, from this place of the table on: the place to go on at, 0 at its end. */
size_t grants_sweep_locked(struct volume *vol, size_t from);

#endif
