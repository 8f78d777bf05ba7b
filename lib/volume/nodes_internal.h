/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes*.c share. */
#ifndef EPOCHFS_VOLUME_NODES_INTERNAL_H
#define EPOCHFS_VOLUME_NODES_INTERNAL_H

#include "lib/format/names.h"
#include "lib/meta/nodes_decide.h"
#include "lib/util/lock.h"
#include "lib/volume/nodes.h"

/* How many of our own parts are remembered, to be continued. */
#define NODES_PLACES 64

/* An epoch that was put together of parts. */
struct nodes_made {
	uint64_t number, generation;
	bool complete;
	struct record_part *parts; /* owned */
	size_t count;
};

/* A part in the remote. */
struct nodes_known {
	uint64_t generation, sequence;
	struct epoch_record record; /* empty: it is damaged */
	bool listed;		    /* in the listing under way */
};

/* A node of a generation, as the lease's objects say. */
struct nodes_member {
	uint64_t generation;
	char node[NODE_NAME_MAX + 1];
};

struct nodes {
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

/* ---- nodes_parts.c ---- */

/* Lists the parts and nodes, reads those that are new. Only by the thread that completes. */
int nodes_look(struct nodes *n, struct remote *remote);
void nodes_known_free(struct nodes *n);
int nodes_add_record(struct nodes *n, const struct record_found *found);
/* As nodes_decide.h wants them, in the order of `known`; free it. */
int nodes_list(struct nodes *n, struct nodes_part **ret_parts, size_t *ret_count);
void nodes_made_free(struct nodes *n);

/* Notes what the known parts began from. By the thread that completes. */
int nodes_note_bases(struct nodes *n);

/* ---- nodes_record.c: the record of an epoch that is put together ---- */

/* Everything but number, tree, and what the store adds. `missing` are names without a part. */
int nodes_record(struct volume *vol, const struct nodes_known *const *parts, size_t count,
		 const struct nodes_group *group, bool over, char **missing, size_t missing_count,
		 struct epoch_record *ret_record);
/* The names of the nodes of a generation that have no part in a group; free with nodes_names_free. */
int nodes_missing(struct nodes *n, const struct nodes_part *parts, const struct nodes_group *group,
		  char ***ret_names, size_t *ret_count);
void nodes_names_free(char **names, size_t count);

/* ---- nodes_status.c ---- */

/* What waits, for `status`. By the thread that completes. */
int nodes_publish(struct nodes *n, const struct nodes_part *parts, const struct nodes_group *groups,
		  size_t count);

#endif
