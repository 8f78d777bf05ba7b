/* SPDX-License-Identifier: Apache-2.0 */
/* What this volume is as one of several nodes (nodes.h), as far as sealing, listing and dropping ask. For lib/ alone. */
#ifndef EPOCHFS_EPOCHS_NODE_STATE_H
#define EPOCHFS_EPOCHS_NODE_STATE_H

#include <jansson.h>
#include "lib/meta/nodes_decide.h"
#include "lib/meta/records.h"
#include "lib/util/lock.h"
#include "lib/cache/context.h"
#include "lib/epochs/seal.h"

/* How many of our own parts are remembered, to be continued. */
#define NODES_PLACES 64

/* An epoch that was put together of parts. */
struct nodes_made {
	uint64_t number, generation;
	bool complete;
	struct record_part *parts; /* owned */
	size_t count;
};

struct nodes_known;
struct nodes_member;

struct node_set {
	bool set;

	/* Guarded by the volume's lock. */
	uint64_t generation; /* that parts are sealed into; 0: none yet */
	uint64_t base;	     /* epoch that the live tree began from; 0: none */
	uint64_t origin;     /* the local number that stands for it */
	uint64_t shown;	     /* the newest epoch that has a part of ours; 0: none */
	uint64_t oldest;     /* local numbers below it have neither tree nor record */
	uint64_t put,
		looked; /* parts that are in the remote, and of them those that were looked at since */
	bool begun;	/* what comes from now on is news, and announced */
	bool has_after; /* the step that was sealed last in this generation */
	uint64_t after, count;
	struct epoch_index index; /* of our own parts: what the next may continue */
	struct nodes_place places[NODES_PLACES];
	uint64_t place_of[NODES_PLACES]; /* local numbers; a ring */
	size_t place_next;

	struct mutex lock; /* a leaf: guards the rest */
	uint64_t highest;  /* number that is known in epochs/, tombstones too */
	uint64_t newest;   /* with a record */
	uint64_t complete_generation;
	struct nodes_made *made;
	size_t made_count, made_cap;
	struct buf bases; /* uint64_t each: what the parts in the remote began from */
	json_t *waiting;  /* for `status`; NULL: nothing was looked at yet */

	/* Of the thread that completes. */
	struct nodes_known *known;
	size_t known_count, known_cap;
	struct nodes_member *members;
	size_t member_count, member_cap;
};

/* Whether this volume is a node of a set. Any thread, any lock. */
bool nodes_is_set(const struct volume *vol);

/* ---- what the live tree stands on ---- */

/* The epoch that `current` names: the newest that has a part of this node, else the base. With the lock. */
uint64_t nodes_current_locked(const struct volume *vol);
/*
 * Whether a node of this set may need the epoch still: its live tree began from it, which tells in each epoch that is put together what its part has inherited. With the
 * volume's lock.
 */
bool nodes_need_locked(const struct volume *vol, uint64_t number);
/* Whether epochs that come from now on are news. With the lock. */
bool nodes_has_begun_locked(const struct volume *vol);
/* ---- parts: sealing them, and which are in the remote ---- */

/* A part is in the remote: it is to be seen whether it makes an epoch whole. With the lock. */
void nodes_put_locked(struct volume *vol);
/* Whether that was not looked at yet. With the lock. */
bool nodes_unlooked_locked(const struct volume *vol);
/* Whether a part of this step was the last that was sealed. With the lock. */
bool nodes_has_step_locked(const struct volume *vol, uint64_t step);
/* For who asked to seal: { "part", "node", "step" }. */
json_t *nodes_part_json(struct volume *vol, uint64_t number);

/* When it begins. */
void nodes_job_locked(struct volume *vol, struct seal_job *job);
/* When it is frozen, before it is stored: place, generation, base. */
int nodes_place_locked(struct volume *vol, const struct seal_job *job, struct epoch_record *record);
/* Once it is stored. */
void nodes_sealed_locked(struct volume *vol, const struct epoch_record *record);

/* Of our own parts: what the next may continue. With the lock. */
const struct epoch_index *nodes_index_locked(const struct volume *vol);
/* The local number that stands for the epoch which the live tree began from. */
uint64_t nodes_origin_locked(const struct volume *vol);

/* ---- epochs that are put together ---- */

/* Of each record that the volume learns of, while it is open or opens; any thread, without the lock. */
int nodes_note_record(struct volume *vol, const struct record_found *found);

/* The highest number of these. Any thread, any lock. */
uint64_t nodes_highest(struct volume *vol);

/* The same before there is a volume to ask: of a remote alone. */
int nodes_add_record(struct node_set *n, const struct record_found *found);
void nodes_made_free(struct node_set *n);
void nodes_made_free_one(struct nodes_made *m);

#endif
