/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of several nodes: parts in the remote, and which of them epochs have. */
#include "lib/upload/nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/util/array.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/log.h"

/* ---- putting ---- */

static int read_part(struct remote *remote, uint64_t generation, uint64_t sequence,
		     const char *node, struct epoch_record *ret_record, struct buf *text)
{
	char key[KEY_MAX];
	int error;

	part_key(generation, sequence, node, key);
	error = remote_get(remote, key, 0, RECORD_ENCODED_MAX + 1, text);
	if (!error)
		error = record_decode(text->data, text->len, ret_record);
	if (error)
		return error;
	if (ret_record->part.node && !strcmp(ret_record->part.node, node) &&
	    ret_record->part.sequence == sequence && ret_record->generation == generation)
		return 0;
	record_free(ret_record);
	return -EBADMSG;
}

/* On -EEXIST: what is there, if we put it ourselves before a crash. */
static int take_own_part(struct remote *remote, struct epoch_record *record, struct buf *json)
{
	struct epoch_record there;
	int error;

	buf_reset(json);
	error = read_part(remote, record->generation, record->part.sequence, record->part.node,
			  &there, json);
	if (error)
		return error == -EBADMSG || error == -ENOENT ? -EEXIST : error;
	if (!records_same_epoch(&there, record) ||
	    !hash_equal(&there.tree_hash, &record->tree_hash)) {
		log_error("part %" PRIu64 " of attempt %" PRIu64
			  " is there already, and another: node %s is mounted twice",
			  record->part.sequence, record->generation, record->part.node);
		record_free(&there);
		return -EEXIST;
	}
	record_free(record);
	*record = there;
	return 0;
}

int nodes_part_put(struct remote *remote, struct epoch_record *record, struct buf *json)
{
	char key[KEY_MAX];
	int error;

	FAULT_POINT("nodes.part");
	record->durable_ns = clock_wall_ns();
	error = record_encode(record, json);
	if (error)
		return error;
	part_key(record->generation, record->part.sequence, record->part.node, key);
	error = remote_put_if_absent(remote, key, json->data, json->len);
	FAULT_POINT("nodes.put");
	return error == -EEXIST ? take_own_part(remote, record, json) : error;
}

/* ---- what epochs have ---- */

static uint64_t merged_in(const struct node_set *n, const struct epoch_record *part)
{
	uint64_t newest = 0;

	for (size_t i = 0; i < n->made_count; i++) {
		const struct nodes_made *m = &n->made[i];

		if (m->generation != part->generation || m->number < newest)
			continue;
		for (size_t k = 0; k < m->count; k++)
			if (m->parts[k].sequence == part->part.sequence &&
			    !strcmp(m->parts[k].node, part->part.node))
				newest = m->number;
	}
	return newest;
}

/* Epochs of generations that have no parts in the remote any more are not asked for again. */
static void forget_made(struct node_set *n)
{
	size_t kept = 0;

	SCOPED_LOCK(&n->lock);
	for (size_t i = 0; i < n->made_count; i++) {
		bool needed = false;

		for (size_t k = 0; !needed && k < n->known_count; k++)
			needed = n->known[k].generation == n->made[i].generation;
		if (needed)
			n->made[kept++] = n->made[i];
		else
			nodes_made_free_one(&n->made[i]);
	}
	n->made_count = kept;
}

/* ---- what is there ---- */

struct look {
	struct node_set *n;
	struct remote *remote;
};

void nodes_known_free(struct node_set *n)
{
	for (size_t i = 0; i < n->known_count; i++)
		record_free(&n->known[i].record);
	free(n->known);
	free(n->members);
}

static struct nodes_known *add_known(struct node_set *n, uint64_t generation, uint64_t sequence)
{
	if (array_reserve((void **)&n->known, &n->known_cap, n->known_count, sizeof(*n->known)))
		return NULL;
	n->known[n->known_count] =
		(struct nodes_known){.generation = generation, .sequence = sequence};
	return &n->known[n->known_count++];
}

/* What is damaged has no name in its record: such a part is read again each time. */
static struct nodes_known *find_known(struct node_set *n, uint64_t generation, uint64_t sequence,
				      const char *node)
{
	for (size_t i = 0; i < n->known_count; i++) {
		struct nodes_known *k = &n->known[i];

		if (k->generation == generation && k->sequence == sequence && k->record.part.node &&
		    !strcmp(k->record.part.node, node))
			return k;
	}
	return NULL;
}

static int note_part(void *arg, const char *key, uint64_t size)
{
	struct look *look = arg;
	cleanup_buf struct buf text = {0};
	uint64_t generation, sequence;
	char node[NODE_NAME_MAX + 1];
	struct nodes_known *known;
	int error;

	(void)size;
	if (part_key_parse(key, &generation, &sequence, node))
		return 0;
	known = find_known(look->n, generation, sequence, node);
	if (known) {
		known->listed = true;
		return 0;
	}
	known = add_known(look->n, generation, sequence);
	if (!known)
		return -ENOMEM;
	error = read_part(look->remote, generation, sequence, node, &known->record, &text);
	known->listed = !error;
	if (error == -EBADMSG)
		log_error("%s in the remote is damaged; it is left out", key);
	return error == -ENOENT || error == -EBADMSG ? 0 : error;
}

static int note_member(void *arg, const char *key, uint64_t size)
{
	struct node_set *n = arg;
	struct nodes_member member;

	(void)size;
	if (lease_node_key_parse(key, &member.generation, member.node))
		return 0;
	if (array_reserve((void **)&n->members, &n->member_cap, n->member_count,
			  sizeof(*n->members)))
		return -ENOMEM;
	n->members[n->member_count++] = member;
	return 0;
}

int nodes_look(struct node_set *n, struct remote *remote)
{
	struct look look = {n, remote};
	size_t kept = 0;
	int error;

	for (size_t i = 0; i < n->known_count; i++)
		n->known[i].listed = false;
	error = remote_list(remote, PREFIX_PARTS, note_part, &look);
	if (error)
		return error;
	for (size_t i = 0; i < n->known_count; i++) {
		if (n->known[i].listed)
			n->known[kept++] = n->known[i];
		else
			record_free(&n->known[i].record);
	}
	n->known_count = kept;
	forget_made(n);
	n->member_count = 0;
	return kept ? remote_list(remote, PREFIX_LEASE, note_member, n) : 0;
}

int nodes_list(struct node_set *n, struct nodes_part **ret_parts, size_t *ret_count)
{
	struct nodes_part *parts = calloc(n->known_count + 1, sizeof(*parts));

	if (!parts)
		return -ENOMEM;
	SCOPED_LOCK(&n->lock);
	for (size_t i = 0; i < n->known_count; i++) {
		const struct epoch_record *r = &n->known[i].record;

		parts[i] = (struct nodes_part){
			.place = {.generation = r->generation,
				  .has_step = r->has_step,
				  .step = r->step,
				  .has_after = r->part.has_after,
				  .after = r->part.after,
				  .count = r->part.count},
			.node = r->part.node,
			.sequence = r->part.sequence,
			.nodes = r->nodes,
			.merged = merged_in(n, r),
			.sealed_ns = r->sealed_ns,
		};
	}
	*ret_parts = parts;
	*ret_count = n->known_count;
	return 0;
}

int nodes_note_bases(struct node_set *n)
{
	SCOPED_LOCK(&n->lock);
	buf_reset(&n->bases);
	for (size_t i = 0; i < n->known_count; i++) {
		uint64_t base = n->known[i].record.part.base;

		buf_put(&n->bases, &base, sizeof(base));
	}
	return buf_error(&n->bases);
}
