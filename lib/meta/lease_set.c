/* SPDX-License-Identifier: Apache-2.0 */
/* The lease of a node set: one generation, and an object for each of its nodes. */
#include "lib/meta/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"

void lease_own_key(const struct lease_info *own, char *ret_key)
{
	if (own->nodes)
		lease_node_key(own->generation, own->node, ret_key);
	else
		lease_key(own->generation, ret_key);
}

bool lease_same_set(const struct lease_info *a, const struct lease_info *b)
{
	return a->nodes && a->nodes == b->nodes && !strcmp(a->run, b->run);
}

/* ---- reading ---- */

struct member_walk {
	struct remote *remote;
	struct seen *seen;
};

static int read_member(void *arg, const char *key, uint64_t size)
{
	struct member_walk *w = arg;
	struct seen *s = w->seen, one = {0};
	char node[NODE_NAME_MAX + 1];
	struct lease_member *grown;
	uint64_t generation;
	int error;

	(void)size;
	if (lease_node_key_parse(key, &generation, node) || generation != s->info.generation ||
	    s->member_count >= LEASE_NODES_MAX)
		return 0;
	error = lease_read(w->remote, key, generation, &one);
	if (error) {
		seen_free(&one);
		return error == -ENOENT ? 0 : error;
	}
	grown = reallocarray(s->members, s->member_count + 1, sizeof(*grown));
	if (!grown) {
		seen_free(&one);
		return -ENOMEM;
	}
	s->members = grown;
	/* The name is that of the key, whatever the object says. */
	snprintf(one.info.node, sizeof(one.info.node), "%s", node);
	one.damaged |= !one.damaged && !lease_same_set(&one.info, &s->info);
	grown[s->member_count++] =
		(struct lease_member){.info = one.info, .text = one.text, .damaged = one.damaged};
	buf_put(&s->text, one.text.data, one.text.len);
	return buf_error(&s->text);
}

int lease_members_read(struct remote *remote, struct seen *s)
{
	struct member_walk w = {remote, s};

	for (size_t i = 0; i < s->member_count; i++)
		buf_free(&s->members[i].text);
	s->member_count = 0;
	return remote_list(remote, PREFIX_LEASE, read_member, &w);
}

bool lease_members_left(const struct seen *s)
{
	for (size_t i = 0; i < s->member_count; i++)
		if (s->members[i].damaged || !s->members[i].info.released)
			return false;
	return s->member_count > 0;
}

/* ---- judging ---- */

static const struct lease_member *find_member(const struct seen *s, const char *node)
{
	for (size_t i = 0; i < s->member_count; i++)
		if (!strcmp(s->members[i].info.node, node))
			return &s->members[i];
	return NULL;
}

/* What is told of, and watched, is this node. */
static int point_to(struct seen *s, const struct lease_member *m, bool its_text)
{
	s->info = m->info;
	s->damaged = m->damaged;
	if (!its_text)
		return 0;
	buf_reset(&s->text);
	buf_put(&s->text, m->text.data, m->text.len);
	return buf_error(&s->text);
}

static enum verdict judge_all(struct taking *t)
{
	const struct lease_member *watched = NULL;
	struct seen *s = &t->seen;

	if (!s->member_count)
		return lease_judge_one(t, &s->info, s->damaged);
	for (size_t i = 0; i < s->member_count; i++) {
		const struct lease_member *m = &s->members[i];
		enum verdict v = lease_judge_one(t, &m->info, m->damaged);

		if (v == VERDICT_LIVES) {
			point_to(s, m, false);
			return v;
		}
		if (v == VERDICT_WATCH && !watched)
			watched = m;
	}
	if (!watched)
		return VERDICT_FREE;
	point_to(s, watched, false);
	return VERDICT_WATCH;
}

enum verdict lease_set_judge(struct taking *t)
{
	const struct lease_info *self = &t->terms->self;
	struct seen *s = &t->seen;
	bool ours = lease_same_set(self, &s->info);
	const struct lease_member *me = ours ? find_member(s, self->node) : NULL;

	if (ours && !me && s->member_count < s->info.nodes && !lease_members_left(s))
		return VERDICT_JOIN;
	if (t->terms->take_over)
		return VERDICT_FREE;
	if (me) {
		enum verdict v = lease_judge_one(t, &me->info, me->damaged);

		/* Without memory it is watched with the others, and lives. */
		point_to(s, me, true);
		return v;
	}
	return judge_all(t);
}

/* ---- entering ---- */

int lease_set_enter(struct remote *remote, const struct lease_info *own)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	int error = lease_encode(own, &text);

	if (error)
		return error;
	lease_own_key(own, key);
	return remote_put_if_absent(remote, key, text.data, text.len);
}

/* On -EEXIST: whether it is ours, by another thread or by a put whose answer was lost. */
static int take_own(struct remote *remote, const struct lease_info *own,
		    struct lease_info *ret_winner)
{
	cleanup_seen struct seen there = {0};
	char key[KEY_MAX];
	int error;

	lease_own_key(own, key);
	error = lease_read(remote, key, own->generation, &there);
	if (error)
		return error == -ENOENT ? -EIO : error;
	if (!there.damaged && !strcmp(there.info.holder, own->holder))
		return 0;
	*ret_winner = there.info;
	return -ESTALE;
}

int lease_set_follow(struct remote *remote, uint64_t generation, struct lease_info *own,
		     struct lease_info *ret_winner)
{
	cleanup_seen struct seen seen = {0};
	struct lease_info next = *own;
	char key[KEY_MAX];
	int error;

	lease_key(generation, key);
	error = lease_read(remote, key, generation, &seen);
	if (error)
		return error;
	*ret_winner = seen.damaged ? (struct lease_info){0} : seen.info;
	if (seen.damaged || !lease_same_set(own, &seen.info))
		return -ESTALE;
	error = lease_members_read(remote, &seen);
	if (error)
		return error;
	if (!find_member(&seen, own->node) && seen.member_count >= own->nodes)
		return -ESTALE;
	next.generation = generation;
	error = lease_set_enter(remote, &next);
	if (error == -EEXIST)
		error = take_own(remote, &next, ret_winner);
	if (!error)
		*own = next;
	return error;
}
