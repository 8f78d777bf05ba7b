/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grants: backing files that the kernel reads and writes by itself (passthrough).
 *
 * A backing file is the inode behind objects/<version>. It is granted to one holder at a time: a
 * lineage of the live tree (the id of its body), or the epochs together (GRANT_EPOCHS). A holder
 * has it for as long as a node of the kernel has the file registered, and after that for as long as
 * a mapping of it is left. All rules about who may touch such an inode follow from its state:
 *
 *   FREE   only the daemon has it
 *   OPEN   the kernel has it for nodes of the holder, with files open
 *   LEFT   the last of these files is closed, but a mapping may be left: only a test by a lease tells
 *
 *            | FREE    | own OPEN or LEFT       | another's OPEN | another's LEFT
 *   ---------+---------+------------------------+----------------+-------------------------------
 *   take     | OPEN    | OPEN                   | -EBUSY         | OPEN where the test finds none,
 *            |         |                        |                | else -EBUSY
 *   release  |         | the last one: LEFT     |                |
 *   use      | FREE    | OWN (LEFT and no       | OTHER          | OTHER, or FREE where the test
 *            |         | mapping: FREE)         |                | finds none
 *   move     | nothing | goes along             | -EBUSY         | -EBUSY
 *   drop     | nothing | ends with its last release; the inode has no name, nobody can get at it
 *   evict    | yes     | only LEFT where the test finds no mapping
 *
 * So each change of content in place asks first (edit.c): an inode that is OWN stays the lineage's
 * and is changed itself, after its old bytes went aside; one that is OTHER is never changed; one that
 * is FREE may be treated either way. A lineage that is refused a grant reads and writes through the
 * daemon. The kernel's own rule, one backing file for a node until its last release, follows: while
 * a node has a grant, the inode behind its body's version is the granted one.
 *
 * The table is of this process. What an earlier one granted, and a mapping or a file that did not come back (survivors.h)
 * has still, is not in it: a version that is older than this process and has no grant is FREE only where the test
 * finds nobody; else it is another's LEFT, since whose it is cannot be told. After a reboot nobody is left.
 *
 * Where the test cannot tell, a mapping counts as left.
 */
#ifndef EPOCHFS_CACHE_GRANT_H
#define EPOCHFS_CACHE_GRANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grant;
struct grants;
struct volume;

/* The node that had the backing file registered has no file open any more, and gave it back to the kernel. NULL is
 * allowed. Without the lock. */
void grant_release(struct volume *vol, struct grant *g);

/* ---- the table of grants: for lib/ alone; with the volume's lock, but for grants_new and grants_free ---- */

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
