/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a volume knows of itself as one of several nodes, as far as sealing, listing and dropping ask. For lib/ alone; the protocol
 * and the words (part, attempt, base) are in upload/nodes.h, which makes vol->nodes as the volume opens and frees it as it closes.
 *
 * vol->nodes is NULL in a volume that is read-only or has no remote. A volume with one writer has it, too: then `set` is
 * false, and only what is known of epochs/ in the remote is kept. Functions named _locked are called with the volume's lock held.
 * Unless said otherwise they are for a volume that nodes_is_set says yes to. None of them does I/O.
 */
#ifndef EPOCHFS_EPOCHS_NODE_STATE_H
#define EPOCHFS_EPOCHS_NODE_STATE_H

#include <jansson.h>
#include "lib/cache/context.h"
#include "lib/epochs/seal.h"
#include "lib/meta/nodes_decide.h"
#include "lib/meta/records.h"
#include "lib/util/lock.h"

/* How many of our own parts are remembered, to be continued. */
#define NODES_PLACES 64

/* An epoch in the remote that was put together of parts. */
struct nodes_made {
	uint64_t number, generation;
	bool complete;
	struct record_part *parts; /* owned, with their texts */
	size_t count;
};

struct nodes_known;
struct nodes_member;

struct node_set {
	bool set; /* this volume is a node of a set; never changes */

	/* Guarded by the volume's lock. */
	uint64_t generation; /* of the lease: the attempt that parts are sealed into; 0: none yet */
	uint64_t base;	     /* the epoch that the live tree began from; 0: none */
	uint64_t origin;     /* the local number that stands for the base here */
	uint64_t shown;	     /* the newest epoch that has a part of ours; 0: none */
	uint64_t oldest;     /* local numbers below it have neither tree nor record */
	uint64_t put,
		looked; /* parts that are in the remote, and how many of them were there when parts were looked at last */
	bool begun;	/* the attempt was entered: epochs that come from now on are announced */
	bool has_after; /* a step was sealed in this generation: `after`, the last one */
	uint64_t after, count;	  /* count: parts without a step since then */
	struct epoch_index index; /* of our own parts: what the next may continue */
	struct nodes_place places[NODES_PLACES];
	uint64_t place_of[NODES_PLACES]; /* local numbers; a ring */
	size_t place_next;

	struct mutex
		lock; /* LOCK_NODES, a leaf, which may be taken under the volume's: guards the rest */
	uint64_t highest;	      /* number that is known in epochs/, tombstones too */
	uint64_t newest;	      /* with a record */
	uint64_t complete_generation; /* the highest of a complete epoch */
	struct nodes_made *made;      /* owned; each number once */
	size_t made_count, made_cap;
	struct buf bases; /* uint64_t each: what the parts in the remote began from */
	json_t *waiting;  /* for `status`; NULL: nothing was looked at yet */

	/* Of the thread that puts epochs together (the uploader's, or before it the one that opens): no lock. */
	struct nodes_known *known;
	size_t known_count, known_cap;
	struct nodes_member *members;
	size_t member_count, member_cap;
};

/* Whether this volume is a node of a set. Of any volume; any thread, any lock. */
bool nodes_is_set(const struct volume *vol);

/* ---- what the live tree stands on ---- */

/* The number of the epoch that `current` names: the newest that has a part of this node, else the base; 0: none. */
uint64_t nodes_current_locked(const struct volume *vol);
/*
 * Whether a node may need this epoch still, so that it must not be dropped: it is the base of our live tree, or of a part in the remote, of
 * whatever node. What a part has inherited from its base is told by the base's tree when the parts are put together. Of any volume:
 * false without a set.
 */
bool nodes_need_locked(const struct volume *vol, uint64_t number);
/* Whether epochs that are found from now on are news, to be announced: not those from before the attempt was entered. Of any volume:
 * false without a set. */
bool nodes_has_begun_locked(const struct volume *vol);
/* The local number that stands for the base: parts of ours have numbers above it. */
uint64_t nodes_origin_locked(const struct volume *vol);

/* ---- sealing parts: seal.c calls these three, in this order ---- */

/* As a seal begins: notes attempt and base in the job, for the attempt may change before it ends. Of any volume: does nothing without a set. */
void nodes_job_locked(struct volume *vol, struct seal_job *job);
/*
 * Once the tree is frozen and before the record is stored: fills in what makes the record a part's (node, sequence, base, generation, and its
 * place, see nodes_decide.h). A record that continues one of our last NODES_PLACES parts gets the place of that. The texts are the record's
 * to free. 0 or -ENOMEM.
 */
int nodes_place_locked(struct volume *vol, const struct seal_job *job, struct epoch_record *record);
/* Once the record is stored: what the next part may continue and counts from. Where memory runs out, the log says so and it is not continued. */
void nodes_sealed_locked(struct volume *vol, const struct epoch_record *record);

/* Of our own parts, by local numbers. Borrowed: until the lock is dropped. */
const struct epoch_index *nodes_index_locked(const struct volume *vol);
/* Whether the part that was sealed last in this attempt is of this step. */
bool nodes_has_step_locked(const struct volume *vol, uint64_t step);

/* ---- parts in the remote ---- */

/* A part of ours has been put: it is to be seen whether it makes an epoch whole. Wakes nobody. */
void nodes_put_locked(struct volume *vol);
/* Whether parts were put since the parts in the remote were looked at last. Until then nothing that waits for durability ends. Of any
 * volume: false without a set. */
bool nodes_unlooked_locked(const struct volume *vol);
/* {"part": sequence, "node": name, "step": number} of the part with this local number, for who asked to seal; "step" where one of the last
 * NODES_PLACES parts has it. The caller's; NULL: no memory. Takes the volume's lock. */
json_t *nodes_part_json(struct volume *vol, uint64_t number);

/* ---- epochs in the remote: any thread, without the volume's lock ---- */

/*
 * To be called of each record or tombstone of epochs/ that is found, as the volume opens and while it is open, in any order and any number of
 * times. `found` is copied. Of any volume: does nothing where vol->nodes is NULL. 0 or -ENOMEM; what was noted before that counts.
 */
int nodes_note_record(struct volume *vol, const struct record_found *found);
/* The highest number of these, tombstones too; 0: none. vol->nodes must be there. With any lock but its own. */
uint64_t nodes_highest(struct volume *vol);

/* nodes_note_record where there is no volume: of a remote alone (nodes_waiting in upload/nodes.h). `n` is zeroed but for its lock. 0 or -ENOMEM. */
int nodes_add_record(struct node_set *n, const struct record_found *found);
/* Frees n->made with all in it; n is not used afterwards. */
void nodes_made_free(struct node_set *n);
/* Frees what one of them holds, not the struct itself. */
void nodes_made_free_one(struct nodes_made *m);

#endif
