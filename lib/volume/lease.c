/* SPDX-License-Identifier: Apache-2.0 */
/* One writer at a time: the lease of a volume, in its remote. */
#include "lib/volume/lease.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/remote/remote_keys.h"
#include "lib/util/cleanup.h"
#include "lib/util/hash.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"
#include "lib/volume/lease_process.h"

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
/* What a holder that cannot be read is given. */
#define UNKNOWN_TTL_NS (60 * NS_PER_S)

struct lease {
	pthread_mutex_t lock; /* a leaf */
	struct lease_view view;
};

/* What lies there, as it was read. */
struct seen {
	struct lease_info info; /* generation 0: there is no lease */
	struct buf text;
	bool damaged;
};

static void seen_free(struct seen *s)
{
	buf_free(&s->text);
}
#define cleanup_seen CLEANUP(seen_free)

/* ---- looking ---- */

static int note_highest(void *arg, const char *key, uint64_t size)
{
	uint64_t *highest = arg, generation;

	(void)size;
	if (lease_key_parse(key, &generation) == 0 && generation > *highest)
		*highest = generation;
	return 0;
}

/* The object of one generation: -ENOENT, or an error of the remote; damage is told in `ret_seen`. */
static int read_generation(struct remote *remote, uint64_t generation, struct seen *ret_seen)
{
	char key[KEY_MAX];
	int error;

	lease_key(generation, key);
	buf_reset(&ret_seen->text);
	ret_seen->damaged = false;
	error = remote_get(remote, key, 0, LEASE_ENCODED_MAX + 1, &ret_seen->text);
	if (error)
		return error;
	error = lease_decode(ret_seen->text.data, ret_seen->text.len, &ret_seen->info);
	if (error == -EBADMSG || (!error && ret_seen->info.generation != generation)) {
		ret_seen->damaged = true;
		ret_seen->info =
			(struct lease_info){.generation = generation, .ttl_ns = UNKNOWN_TTL_NS};
		return 0;
	}
	return error;
}

static int look(struct remote *remote, struct seen *ret_seen)
{
	int error = -ENOENT;

	for (int i = 0; error == -ENOENT && i < LOOKS_MAX; i++) {
		uint64_t highest = 0;

		error = remote_list(remote, PREFIX_LEASE, note_highest, &highest);
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
	return seen.damaged ? -EBADMSG : 0;
}

/* ---- taking ---- */

struct taking {
	struct remote *remote;
	const struct lease_terms *terms;
	struct seen seen;     /* now */
	struct buf watched;   /* the text whose change is watched; empty: none yet */
	int64_t watched_ns;   /* monotonic: when it had been read */
	uint64_t watched_gen; /* its generation */
};

static void taking_free(struct taking *t)
{
	seen_free(&t->seen);
	buf_free(&t->watched);
}

enum verdict { VERDICT_FREE, VERDICT_LIVES, VERDICT_WATCH };

static enum verdict judge(const struct taking *t)
{
	const struct lease_info *holder = &t->seen.info, *self = &t->terms->self;
	bool our_cache = t->terms->last_holder && !strcmp(t->terms->last_holder, holder->holder) &&
			 lease_process_same_boot(holder, self);

	if (!holder->generation || holder->released || t->terms->take_over)
		return VERDICT_FREE;
	if (t->seen.damaged)
		return VERDICT_WATCH;
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

		error = look(t->remote, &t->seen);
		if (error)
			return error;
		switch (judge(t)) {
		case VERDICT_FREE:
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

/* Creates the generation above the one that was seen: -EEXIST where another was faster. */
static int create_next(struct taking *t, enum remote_create create, struct lease_info *ret_own)
{
	struct lease_info own = t->terms->self;
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	int error;

	own.generation = t->seen.info.generation + 1;
	own.since_ns = clock_wall_ns();
	own.renewed = own.pending = 0;
	own.released = false;
	if (own.generation > INT64_MAX)
		return -EBADMSG;
	error = uuid_make(own.holder);
	if (!error)
		error = lease_encode(&own, &text);
	if (error)
		return error;
	lease_key(own.generation, key);
	error = remote_put_if_absent(t->remote, key, text.data, text.len);
	if (!error)
		error = settle_race(t, &own, create);
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
	if (lease_key_parse(key, &generation) || generation > h->last)
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
	pthread_mutex_init(&l->lock, NULL);
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

	if (!error && create == REMOTE_CREATE_NONE)
		error = -EOPNOTSUPP;
	if (error)
		return error;
	error = -EEXIST;
	for (int i = 0; error == -EEXIST && i < TRIES_MAX; i++) {
		/* Who was faster is looked at anew. */
		error = i ? nap(terms, POLL_MIN_NS) : 0;
		if (!error)
			error = wait_until_free(&t);
		if (!error)
			error = create_next(&t, create, &own);
	}
	if (error == -EEXIST)
		error = -EBUSY;
	if (!error || error == -EBUSY)
		*ret_before = t.seen.info;
	if (!error)
		error = lease_new(&own, ret_lease);
	if (!error)
		forget_history(remote, own.generation);
	return error;
}

void lease_free(struct lease *l)
{
	if (!l)
		return;
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* ---- holding ---- */

void lease_get(struct lease *l, struct lease_view *ret_view)
{
	SCOPED_LOCK(&l->lock);
	*ret_view = l->view;
}

static int lose(struct lease *l, const struct lease_info *winner)
{
	SCOPED_LOCK(&l->lock);
	if (!l->view.lost) {
		l->view.lost = true;
		l->view.winner = winner ? *winner : (struct lease_info){0};
	}
	return -ESTALE;
}

/* A higher generation is there; who it is is worth a look, no more. */
static int lose_to(struct lease *l, struct remote *remote, uint64_t generation)
{
	cleanup_seen struct seen winner = {0};
	int error = read_generation(remote, generation, &winner);

	return lose(l, error || winner.damaged ? NULL : &winner.info);
}

int lease_confirm(struct lease *l, struct remote *remote, int64_t max_age_ns)
{
	cleanup_seen struct seen seen = {0};
	int64_t asked_ns = clock_mono_ns();
	uint64_t highest = 0;
	struct lease_view view;
	int error;

	lease_get(l, &view);
	if (view.lost)
		return -ESTALE;
	if (asked_ns - view.confirmed_ns < max_age_ns)
		return 0;
	error = remote_list(remote, PREFIX_LEASE, note_highest, &highest);
	if (error)
		return error;
	if (highest > view.own.generation)
		return lose_to(l, remote, highest);
	error = read_generation(remote, view.own.generation, &seen);
	if (error == -ENOENT)
		return lose(l, NULL);
	if (error)
		return error;
	if (seen.damaged || strcmp(seen.info.holder, view.own.holder) != 0)
		return lose(l, seen.damaged ? NULL : &seen.info);
	SCOPED_LOCK(&l->lock);
	l->view.confirmed_ns = asked_ns;
	return 0;
}

/* Writes the own object as `next`. */
static int write_own(struct lease *l, struct remote *remote, const struct lease_info *next)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	int error = lease_confirm(l, remote, 0);

	if (!error)
		error = lease_encode(next, &text);
	if (error)
		return error;
	lease_key(next->generation, key);
	error = remote_put(remote, key, text.data, text.len);
	if (error)
		return error;
	SCOPED_LOCK(&l->lock);
	l->view.own = *next;
	return 0;
}

int lease_renew(struct lease *l, struct remote *remote)
{
	struct lease_view view;

	lease_get(l, &view);
	view.own.renewed++;
	return write_own(l, remote, &view.own);
}

int lease_release(struct lease *l, struct remote *remote, uint64_t pending)
{
	struct lease_view view;

	lease_get(l, &view);
	view.own.released = true;
	view.own.pending = pending;
	return write_own(l, remote, &view.own);
}

void lease_describe(const struct lease_info *l, struct buf *out)
{
	if (!l->generation || !l->holder[0]) {
		buf_printf(out, "an unknown host");
		return;
	}
	buf_printf(out, "%s (process %llu", l->host, (unsigned long long)l->pid);
	if (l->mountpoint[0])
		buf_printf(out, ", mounted at %s", l->mountpoint);
	buf_printf(out, ")");
}

void lease_describe_held(const struct lease_info *l, struct buf *out)
{
	char since[FORMAT_MAX];

	buf_printf(out, "held for writing by ");
	lease_describe(l, out);
	if (!l->holder[0])
		return;
	/* Whole seconds are what people read. */
	format_time(l->since_ns / NS_PER_S * NS_PER_S, since);
	buf_printf(out, " since %s (its clock)", since);
}
