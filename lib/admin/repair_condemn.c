/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a remote: what was replaced is condemned, by the protocol of collection.h. */
#include "lib/admin/repair_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "lib/meta/gc_lists.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/hash.h"

struct condemning {
	struct repair *r;
	struct gc_list list; /* that follows */
	int64_t now_ns;
	uint64_t fresh;
};

/* Not twice: what was only seen, or is condemned already, changes its row. */
static int add(struct condemning *c, const struct hash *id, uint64_t index)
{
	struct gc_item item = {
		.id = *id, .index = index, .generation = c->list.generation, .since_ns = c->now_ns};

	for (size_t i = 0; i < c->list.count; i++) {
		struct gc_item *old = &c->list.items[i];

		if (old->index != index || !hash_equal(&old->id, id))
			continue;
		if (old->generation)
			return 0;
		*old = item;
		c->fresh++;
		return 0;
	}
	c->fresh++;
	return gc_list_add(&c->list, &item);
}

static void tell(struct repair *r, const char *key, const char *text, const char *why)
{
	cleanup_buf struct buf what = {0};

	buf_printf(&what, "%s; %s", text, why);
	repair_say(r, REPAIR_NOTE, key, "", buf_str(&what));
}

static int add_pack(void *arg, const struct hash *id, const char *key, const char *text,
		    bool wanted)
{
	struct condemning *c = arg;
	uint64_t before = c->fresh;
	int error;

	error = add(c, id, 0);
	if (error || c->fresh == before)
		return error;
	/* While an epoch names what is gone, a collection takes it off its list and does not delete it. */
	if (wanted)
		tell(c->r, key, text,
		     "condemned, so that no writer builds on it; it stays while an epoch names it");
	else
		tell(c->r, key, text,
		     "what epochs need of it lies elsewhere: condemned, epochfs gc deletes it");
	return error;
}

static int add_index(void *arg, const char *key, const char *text)
{
	struct condemning *c = arg;
	uint64_t number, before = c->fresh;
	struct hash id;
	int error = index_key_parse(key, &number, &id);

	if (!error)
		error = add(c, &id, number);
	if (!error && c->fresh > before)
		tell(c->r, key, text,
		     "the tables of packs say what it said: condemned, epochfs gc deletes it");
	return error;
}

static int collect(struct condemning *c)
{
	struct repair *r = c->r;
	const struct gc_list *old = &r->fsck.gc_list;
	int error = 0;

	for (size_t i = 0; i < old->count && !error && !r->list_damaged; i++)
		error = gc_list_add(&c->list, &old->items[i]);
	c->list.generation = r->generation + 1;
	if (!error)
		error = store_fsck_each_going(r->fsck.store, add_pack, c);
	if (!error)
		error = store_fsck_each_bad_index(r->fsck.store, add_index, c);
	return error;
}

static int publish(struct condemning *c)
{
	struct gc_list *l = &c->list;
	int error = uuid_make(l->run);

	l->condemning = l->generation;
	l->published_ns = c->now_ns;
	if (gethostname(l->host, sizeof(l->host) - 1))
		l->host[0] = '\0';
	if (!error)
		error = repair_confirm(c->r);
	if (!error)
		error = gc_lists_publish(c->r->remote, l);
	FAULT_POINT("repair.condemned");
	return error;
}

static void condemning_free(struct condemning *c)
{
	gc_list_free(&c->list);
}

int repair_condemn(struct repair *r)
{
	CLEANUP(condemning_free) struct condemning c = {.r = r, .now_ns = clock_wall_ns()};
	char key[KEY_MAX];
	int error = collect(&c);

	if (error || (!c.fresh && !r->list_damaged))
		return error;
	if (!r->how->dry_run)
		error = publish(&c);
	if (error == -EOPNOTSUPP) {
		repair_say(
			r, REPAIR_NOTE, PREFIX_GC, "",
			"the remote cannot create an object only if it is absent: nothing is condemned");
		return 0;
	}
	if (error)
		return error;
	r->totals.condemned += c.fresh;
	if (r->list_damaged) {
		gc_key(r->generation, key);
		repair_say(
			r, REPAIR_RESTORED, key, "",
			"a new list takes its place; what it had condemned is condemned again by epochfs gc");
	}
	return 0;
}
