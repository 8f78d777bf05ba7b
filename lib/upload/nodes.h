/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epochs of several nodes: N mounts of one volume, each of which writes its part. For lib/ alone.
 *
 * Objects, in the order in which they come to be. All but the nodes' own lease objects are immutable and
 * created only if absent; no node talks to another, and no machine's clock is compared with another's.
 *   lease/<g>            the node set: run, N. Made by the first of its nodes (lease_set.c). A generation
 *                        of the lease is one attempt of the run: where a node comes back, or leaves and comes,
 *                        or N changes, the next one begins, and the nodes that are still there go on in it
 *   lease/<g>-<node>     that a node takes part, which it renews
 *   lease/<g>.base       the epoch that all nodes of the attempt begin from: the newest complete one
 *   parts/<g>/<n>-<node> what a node sealed, an epoch's record with "part", put when its contents, tree
 *                        and index are in the remote: so it never names data that is not there
 *   epochs/<number>      the epoch put together of parts (nodes_decide.h), by whoever sees them
 *
 * A node seals as it would alone. Its epochs have local numbers from NODES_FIRST on, above all epochs of the volume;
 * they are the parts, and the uploader puts them as such. Which belong together nodes_decide.h says. What
 * is whole, any node puts together: it fetches the trees, merges and stores them, and creates the record under the number
 * after the highest that is there. So `latest` moves for all at once, and no number is used before.
 *
 * Why no part is in two epochs of the same kind, whoever races: epochs/ is a log. Who puts a record has read
 * all records up to the highest and found that none has these parts, and creates the next number only if it is
 * absent. A record that came meanwhile has that number: he gets -EEXIST, reads it, and decides again.
 *
 * Where a node dies
 *   before its part is put     the epoch waits: `log` and `status` say for whom. If it comes back, it puts the part (it
 *                              is in its cache) and the epoch is whole, unless a later attempt has a complete
 *                              one by then; else the epoch becomes one that is not complete, with
 *                              the missing names, once the nodes that are there have completed a later one
 *   after its part is put      any other node completes the epoch, at the latest after `refresh`
 *   between tree and record    likewise: what it stored is found there, or is garbage
 * and where all die, the next mount that writes to the volume does it when it starts.
 *
 * Parts are garbage once an epoch has them and a later one is complete; then they are deleted.
 *
 * The live tree is the node's own. When it is mounted it becomes that of lease/<g>.base, the same on all nodes:
 * they resume together. What the cache had sealed is uploaded nevertheless, and what it had not is sealed
 * first, into the attempt that it belongs to. A mount that lives on into the next attempt keeps its live tree,
 * unless that is untouched. Rolling back in place is refused: it would mix two courses of training.
 */
#ifndef EPOCHFS_UPLOAD_NODES_H
#define EPOCHFS_UPLOAD_NODES_H

#include <jansson.h>
#include "lib/epochs/node_state.h"
#include "lib/format/names.h"
#include "lib/meta/nodes_decide.h"
#include "lib/meta/opening.h"
#include "lib/meta/records.h"
#include "lib/util/lock.h"

/* ---- nodes.c: opening ---- */

/* Once the state is open: makes vol->nodes. A cache that holds work of the other kind (parts, or epochs of
 * one writer) is refused, -EBUSY, with a line for the user. */
int nodes_open(struct volume *vol, struct opening_message *m);
void nodes_close(struct volume *vol);
/* The last step of volume_open: the live tree becomes that of the base. */
int nodes_begin(struct volume *vol, struct opening_message *m);
/* From the follower's thread: goes on in the lease's generation, kicks the uploader. */
void nodes_pass(struct volume *vol);
/* "nodes" for `status`. */
int nodes_status(struct volume *vol, json_t *status);
/* The same of a remote without a mount: a list of what waits for parts. 0 or the remote's -errno. */
int nodes_waiting(struct remote *remote, json_t **ret_waiting);
/* ---- nodes_parts.c: parts in the remote ---- */

/* As upload_record_put, for a part. */
int nodes_part_put(struct remote *remote, struct epoch_record *record, struct buf *json);
/* ---- nodes_epoch.c: putting epochs together ---- */

/*
 * Looks at the parts, and makes what is whole or closed an epoch; deletes what is not needed. By the uploader's
 * thread, and before there is one by volume_open. 0 or the remote's -errno, -ESTALE: the lease is lost. One part's
 * damage is logged and stops nothing else.
 */
int nodes_complete(struct volume *vol, struct remote *remote, struct store *store);

/* ---- for nodes*.c alone ---- */

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

/* ---- nodes_parts.c ---- */

/* Lists the parts and nodes, reads those that are new. Only by the thread that completes. */
int nodes_look(struct node_set *n, struct remote *remote);
void nodes_known_free(struct node_set *n);
/* As nodes_decide.h wants them, in the order of `known`; free it. */
int nodes_list(struct node_set *n, struct nodes_part **ret_parts, size_t *ret_count);

/* Notes what the known parts began from. By the thread that completes. */
int nodes_note_bases(struct node_set *n);

/* ---- nodes_record.c: the record of an epoch that is put together ---- */

/* Everything but number, tree, and what the store adds. `missing` are names without a part. */
int nodes_record(struct volume *vol, const struct nodes_known *const *parts, size_t count,
		 const struct nodes_group *group, bool over, char **missing, size_t missing_count,
		 struct epoch_record *ret_record);
/* The names of the nodes of a generation that have no part in a group; free with nodes_names_free. */
int nodes_missing(struct node_set *n, const struct nodes_part *parts,
		  const struct nodes_group *group, char ***ret_names, size_t *ret_count);
void nodes_names_free(char **names, size_t count);

/* ---- nodes.c ---- */

/* What waits, for `status`. By the thread that completes. */
int nodes_publish(struct node_set *n, const struct nodes_part *parts,
		  const struct nodes_group *groups, size_t count);

#endif
