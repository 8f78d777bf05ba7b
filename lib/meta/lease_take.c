/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the lease of a volume, and taking it. */
#include "lib/meta/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/remote/remote.h"
#include "lib/util/hash.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"

/* A holder that renews is looked at so often that nobody waits much longer than for its next renewal. */
#define POLLS_IN_TTL 40
#define POLL_MIN_NS  (50 * NS_PER_MS)
#define POLL_MAX_NS  (1 * NS_PER_S)
/* How often a wait asks whether to give up. */
#define NAP_NS (50 * NS_PER_MS)
/* Where create-if-absent is only checked: how long two that create at once may be apart. */
#define RACE_NS (2 * NS_PER_S)
/* Looks until one is not overtaken by others who take the lease meanwhile. */
#define LOOKS_MAX 16
/* Others were faster so often: with --take-over, or where a listing does not show what is there. */
#define TRIES_MAX 64
/* Before it counts as damaged. */
#define READS_MAX 2
/* What a holder that cannot be read is given. */
#define UNKNOWN_TTL_NS (60 * NS_PER_S)

void seen_free(struct seen *s)
{
	buf_free(&s->text);
	for (size_t i = 0; i < s->member_count; i++)
		buf_free(&s->members[i].text);
	free(s->members);
	s->members = NULL;
	s->member_count = 0;
}

/* ---- looking ---- */

int lease_note_highest(void *arg, const char *key, uint64_t size)
{
	uint64_t *highest = arg, generation;

	(void)size;
	if (lease_key_parse(key, &generation) == 0 && generation > *highest)
		*highest = generation;
	return 0;
}

int lease_read(struct remote *remote, const char *key, uint64_t generation, struct seen *ret_seen)
{
	int error = -EBADMSG;

	ret_seen->damaged = false;
	/* One that is being renewed may be cut, on a server that gives the new text at the old one's length
	 * (remote_put). */
	for (int i = 0; error == -EBADMSG && i < READS_MAX; i++) {
		buf_reset(&ret_seen->text);
		error = remote_get(remote, key, 0, LEASE_ENCODED_MAX + 1, &ret_seen->text);
		if (error)
			return error;
		error = lease_decode(ret_seen->text.data, ret_seen->text.len, &ret_seen->info);
	}
	if (error == -EBADMSG || (!error && ret_seen->info.generation != generation)) {
		ret_seen->damaged = true;
		ret_seen->info =
			(struct lease_info){.generation = generation, .ttl_ns = UNKNOWN_TTL_NS};
		return 0;
	}
	return error;
}

static int read_generation(struct remote *remote, uint64_t generation, struct seen *ret_seen)
{
	char key[KEY_MAX];
	int error;

	lease_key(generation, key);
	error = lease_read(remote, key, generation, ret_seen);
	return error || !ret_seen->info.nodes ? error : lease_members_read(remote, ret_seen);
}

static int look(struct remote *remote, struct seen *ret_seen)
{
	int error = -ENOENT;

	for (int i = 0; error == -ENOENT && i < LOOKS_MAX; i++) {
		uint64_t highest = 0;

		error = remote_list(remote, PREFIX_LEASE, lease_note_highest, &highest);
		if (error)
			return error;
		if (!highest) {
			buf_reset(&ret_seen->text);
			ret_seen->info = (struct lease_info){0};
			return 0;
		}
		/* Gone: others have taken it so often meanwhile that it was deleted as history. */
		error = read_generation(remote, highest, ret_seen);
	}
	return error == -ENOENT ? -EIO : error;
}

int lease_look(struct remote *remote, struct lease_info *ret_info)
{
	cleanup_seen struct seen seen = {0};
	int error = look(remote, &seen);

	if (error)
		return error;
	if (!seen.info.generation)
		return -ENOENT;
	*ret_info = seen.info;
	ret_info->released |= lease_members_left(&seen);
	return seen.damaged ? -EBADMSG : 0;
}

/* ---- taking ---- */

static void taking_free(struct taking *t)
{
	seen_free(&t->seen);
	buf_free(&t->watched);
}

enum verdict lease_judge_one(const struct taking *t, const struct lease_info *holder, bool damaged)
{
	const struct lease_info *self = &t->terms->self;
	bool our_cache = t->terms->last_holder && !strcmp(t->terms->last_holder, holder->holder) &&
			 lease_process_same_boot(holder, self);

	if (damaged)
		return VERDICT_WATCH;
	if (holder->released)
		return VERDICT_FREE;
	switch (lease_process_of(holder, self)) {
	case LEASE_PROCESS_GONE:
		return VERDICT_FREE;
	case LEASE_PROCESS_THERE:
		/* Its cache would be locked: it is ending, or the cache is a copy of its own. */
		return our_cache ? VERDICT_WATCH : VERDICT_LIVES;
	case LEASE_PROCESS_UNKNOWN:
		break;
	}
	return our_cache ? VERDICT_FREE : VERDICT_WATCH;
}

static enum verdict judge(struct taking *t)
{
	if (!t->seen.info.generation)
		return VERDICT_FREE;
	if (t->seen.info.nodes)
		return lease_set_judge(t);
	return t->terms->take_over ? VERDICT_FREE
				   : lease_judge_one(t, &t->seen.info, t->seen.damaged);
}

static bool same_text(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && !memcmp(a->data, b->data, a->len);
}

/* -EINTR: not to wait any longer. */
static int nap(const struct lease_terms *terms, int64_t ns)
{
	int64_t until = clock_mono_ns() + ns;

	for (;;) {
		int64_t left = until - clock_mono_ns();
		struct timespec pause;

		if (terms->give_up && terms->give_up(terms->arg))
			return -EINTR;
		if (left <= 0)
			return 0;
		pause = clock_timespec(left < NAP_NS ? left : NAP_NS);
		nanosleep(&pause, NULL);
	}
}

static int64_t poll_ns(int64_t ttl_ns)
{
	int64_t ns = ttl_ns / POLLS_IN_TTL;

	return ns < POLL_MIN_NS ? POLL_MIN_NS : ns > POLL_MAX_NS ? POLL_MAX_NS : ns;
}

/* 0: it has lapsed; -EAGAIN: look again; -EBUSY: it has changed, so its holder lives; -EINTR. `asked_ns`: when
 * the reading of what is seen now was begun. */
static int watch(struct taking *t, int64_t asked_ns)
{
	const struct lease_info *holder = &t->seen.info;
	int error;

	if (t->watched_gen &&
	    (t->watched_gen != holder->generation || !same_text(&t->watched, &t->seen.text)))
		return -EBUSY;
	if (!t->watched_gen) {
		buf_put(&t->watched, t->seen.text.data, t->seen.text.len);
		if (buf_error(&t->watched))
			return -ENOMEM;
		t->watched_gen = holder->generation;
		t->watched_ns = clock_mono_ns();
		if (t->terms->waiting)
			t->terms->waiting(t->terms->arg, holder, holder->ttl_ns);
	} else if (asked_ns - t->watched_ns >= holder->ttl_ns) {
		return 0;
	}
	error = nap(t->terms, poll_ns(holder->ttl_ns));
	return error ? error : -EAGAIN;
}

/* Until the lease may be taken, as it is seen now: 0, or why it may not. */
static int wait_until_free(struct taking *t)
{
	int error = -EAGAIN;

	while (error == -EAGAIN) {
		int64_t asked_ns = clock_mono_ns();
		enum verdict verdict;

		error = look(t->remote, &t->seen);
		if (error)
			return error;
		verdict = judge(t);
		t->join = verdict == VERDICT_JOIN;
		switch (verdict) {
		case VERDICT_FREE:
		case VERDICT_JOIN:
			return 0;
		case VERDICT_LIVES:
			return -EBUSY;
		case VERDICT_WATCH:
			error = watch(t, asked_ns);
			break;
		}
	}
	return error;
}

/* Two that race may both have created it: the one whose bytes stay has. */
static int settle_race(struct taking *t, const struct lease_info *own, enum remote_create create)
{
	cleanup_seen struct seen now = {0};
	int error;

	if (create == REMOTE_CREATE_ATOMIC)
		return 0;
	error = nap(t->terms, RACE_NS);
	if (!error)
		error = read_generation(t->remote, own->generation, &now);
	if (error)
		return error == -ENOENT ? -EEXIST : error;
	return !now.damaged && !strcmp(now.info.holder, own->holder) ? 0 : -EEXIST;
}

static int create_generation(struct taking *t, enum remote_create create,
			     const struct lease_info *own)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	int error = lease_encode(own, &text);

	if (error)
		return error;
	lease_key(own->generation, key);
	error = remote_put_if_absent(t->remote, key, text.data, text.len);
	return error ? error : settle_race(t, own, create);
}

/* Creates the generation above the one that was seen, or enters that: -EEXIST where another was faster. */
static int create_next(struct taking *t, enum remote_create create, struct lease_info *ret_own)
{
	struct lease_info own = t->terms->self;
	int error;

	own.generation = t->seen.info.generation + !t->join;
	own.since_ns = clock_wall_ns();
	own.renewed = own.pending = 0;
	own.released = false;
	if (own.generation > INT64_MAX)
		return -EBADMSG;
	error = uuid_make(own.holder);
	if (!error && !t->join)
		error = create_generation(t, create, &own);
	if (!error && own.nodes)
		error = lease_set_enter(t->remote, &own);
	if (!error)
		*ret_own = own;
	return error;
}

struct history {
	uint64_t last;
	struct remote_keys old;
};

static int collect_old(void *arg, const char *key, uint64_t size)
{
	struct history *h = arg;
	uint64_t generation;

	(void)size;
	if (lease_any_key_parse(key, &generation) || generation > h->last)
		return 0;
	return remote_keys_add(&h->old, key);
}

static void forget_history(struct remote *remote, uint64_t own)
{
	struct history h = {.last = own > LEASE_KEEP ? own - LEASE_KEEP : 0};
	int error = h.last ? remote_list(remote, PREFIX_LEASE, collect_old, &h) : 0;

	if (!error)
		error = remote_keys_delete(remote, &h.old);
	remote_keys_free(&h.old);
	if (error)
		log_debug("old leases were not deleted: %s", strerror(-error));
}

static int lease_new(const struct lease_info *own, struct lease **ret_lease)
{
	struct lease *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	mutex_init(&l->lock, LOCK_LEASE);
	l->view.own = *own;
	l->view.confirmed_ns = clock_mono_ns();
	*ret_lease = l;
	return 0;
}

int lease_take(struct remote *remote, const struct lease_terms *terms, struct lease **ret_lease,
	       struct lease_info *ret_before)
{
	CLEANUP(taking_free) struct taking t = {.remote = remote, .terms = terms};
	enum remote_create create = REMOTE_CREATE_ATOMIC;
	struct lease_info own;
	int error = remote_check_create(remote, &create);

	if (!error &&
	    (create == REMOTE_CREATE_NONE || (terms->self.nodes && create != REMOTE_CREATE_ATOMIC)))
		error = -EOPNOTSUPP;
	if (error)
		return error;
	error = -EEXIST;
	for (int i = 0; error == -EEXIST && i < TRIES_MAX; i++) {
		/* Who was faster is looked at again. */
		error = i ? nap(terms, POLL_MIN_NS) : 0;
		if (!error)
			error = wait_until_free(&t);
		if (!error)
			error = create_next(&t, create, &own);
	}
	if (error == -EEXIST)
		error = -EBUSY;
	if (!error || error == -EBUSY) {
		*ret_before = !error && t.join ? (struct lease_info){0} : t.seen.info;
		/* A set has ended in order once each of its nodes has: its first object never says so. */
		ret_before->released |= lease_members_left(&t.seen);
	}
	if (!error)
		error = lease_new(&own, ret_lease);
	if (!error)
		forget_history(remote, own.generation);
	return error;
}
