/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes*.c share. */
#ifndef EPOCHFS_UPLOAD_NODES_INTERNAL_H
#define EPOCHFS_UPLOAD_NODES_INTERNAL_H

#include "lib/format/names.h"
#include "lib/meta/nodes_decide.h"
#include "lib/upload/nodes.h"
#include "lib/util/lock.h"

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

/* ---- nodes_status.c ---- */

/* What waits, for `status`. By the thread that completes. */
int nodes_publish(struct node_set *n, const struct nodes_part *parts,
		  const struct nodes_group *groups, size_t count);

#endif
