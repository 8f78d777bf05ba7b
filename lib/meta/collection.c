/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection of a remote, and the lists of what is condemned. */
#include "lib/meta/collection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/format/names.h"
#include "lib/meta/lease.h"
#include "lib/meta/opening.h"
#include "lib/meta/records.h"
#include "lib/remote/remote.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/hash.h"
#include "lib/util/log.h"

/* Without a grace: one that condemns, one that deletes, and one more where an epoch was dropped meanwhile. */
#define PASSES_MAX 3
/* They wait for the remote: several at once, each with a tree in memory. */
#define READERS 8
/* An epoch that is incomplete while somebody writes is looked at so often, and so long apart. */
#define LOOKS_MAX 4
#define LOOK_NS	  NS_PER_S

struct collection {
	const struct gc *how;
	struct remote *remote;
	struct opening_message *message;
	struct gc_totals totals;

	/* Of one pass: */
	struct gc_list old, list; /* in force, and that follows */
	bool old_damaged;
	bool held; /* the lease: somebody may be writing */
	int64_t grace_ns;
	struct gc_records records;
	struct store_gc *gc;
};

static void pass_free(struct collection *c)
{
	store_gc_free(c->gc);
	gc_list_free(&c->old);
	gc_list_free(&c->list);
	gc_records_free(&c->records);
	c->gc = NULL;
	c->records = (struct gc_records){0};
}

/* ---- beside a writer ---- */

static int look_at_lease(struct collection *c)
{
	struct lease_info lease;
	int error = lease_look(c->remote, &lease);

	c->held = error == -EBADMSG || error == -EPROTONOSUPPORT || (!error && !lease.released);
	c->grace_ns = c->how->grace_ns;
	if (c->held && c->grace_ns < GC_WRITER_NS)
		c->grace_ns = GC_WRITER_NS;
	return error == -ENOENT || c->held ? 0 : error;
}

static void sleep_ns(int64_t ns)
{
	const struct timespec ts = clock_timespec(ns > 0 ? ns : 0);

	nanosleep(&ts, NULL);
}

/* ---- look and mark ---- */

static int look(struct collection *c)
{
	int error = gc_lists_look(c->remote, &c->old);

	c->old_damaged = error == -EBADMSG;
	/* What it had condemned is condemned again, from now on. */
	if (c->old_damaged)
		log_warn("%s: the list of garbage collection %" PRIu64
			 " is damaged; a new one takes its place",
			 remote_name(c->remote), c->old.generation);
	if (!error && c->old.generation >= INT64_MAX)
		return opening_fail(c->message, -EBADMSG,
				    "%s: the numbers of garbage collections are used up",
				    remote_name(c->remote));
	return error == -ENOENT || c->old_damaged ? 0 : error;
}

static int open_store(struct collection *c)
{
	const struct store_gc_terms terms = {
		.old = &c->old,
		.number = c->records.highest,
		.now_ns = clock_wall_ns(),
		.grace_ns = c->grace_ns,
		.keep_percent = c->how->keep_percent,
		.dry_run = c->how->dry_run,
		.readers = c->how->background ? 2 : 0,
		.progress = c->how->progress,
		.arg = c->how->arg,
	};

	return store_gc_new(c->remote, &terms, &c->gc);
}

static bool is_away(struct remote *remote)
{
	struct remote_state state;

	remote_get_state(remote, &state);
	return state.failing_since_ns;
}

static int refuse(struct collection *c, const char *what)
{
	char key[KEY_MAX];
	bool index = store_gc_damaged(c->gc, key);

	return opening_fail(
		c->message, -EBADMSG,
		"%s: %s%s%s%s: nothing was condemned or deleted; epochfs fsck says more, and an "
		"epoch that is lost can be dropped",
		remote_name(c->remote), what, index ? " (index object " : "", index ? key : "",
		index ? " is damaged)" : "");
}

/* Records first: what they name was put before them, and so is listed after them. */
static int mark(struct collection *c)
{
	cleanup_buf struct buf why = {0};
	int error = gc_records_list(c->remote, &c->records);

	if (!error)
		error = open_store(c);
	if (!error)
		error = store_gc_read(c->gc);
	if (!error)
		error = gc_mark(c->remote, c->gc, &c->records, c->how->background ? 1 : READERS,
				c->how->progress, c->how->arg, &why);
	if (error == -EBADMSG && !is_away(c->remote))
		return refuse(c, buf_str(&why));
	if (error)
		return error == -EBADMSG ? -ETIMEDOUT : error;
	error = store_gc_plan(c->gc);
	if (error == -EIO && !is_away(c->remote))
		return refuse(c, "a chunk that an epoch needs is damaged wherever it lies");
	return error;
}

/* ---- delete and publish ---- */

static int confirm(void *arg)
{
	struct collection *c = arg;
	uint64_t highest;
	int error = c->how->confirm ? c->how->confirm(c->how->arg) : 0;

	if (!error)
		error = gc_lists_highest(c->remote, &highest);
	if (error)
		return error;
	return highest == c->old.generation ? 0 : -EEXIST;
}

static int make_list(struct collection *c, bool *ret_news)
{
	struct gc_list *l = &c->list;
	bool news, condemned;
	int error;

	l->generation = c->old.generation + 1;
	error = store_gc_list(c->gc, l->generation, l, &news, &condemned);
	if (error)
		return error;
	l->condemning = condemned || c->old_damaged ? l->generation : c->old.condemning;
	l->published_ns = clock_wall_ns();
	if (gethostname(l->host, sizeof(l->host) - 1))
		l->host[0] = '\0';
	*ret_news = news || c->old_damaged;
	return uuid_make(l->run);
}

static int publish(struct collection *c)
{
	bool news = false;
	int error = make_list(c, &news);

	c->totals.generation = c->old.generation;
	if (error || !news || c->how->dry_run)
		return error;
	if (c->how->confirm)
		error = c->how->confirm(c->how->arg);
	if (!error)
		error = gc_lists_publish(c->remote, &c->list);
	FAULT_POINT("gc.published");
	if (!error)
		c->totals.generation = c->list.generation;
	return error;
}

static int collect(struct collection *c)
{
	int error = 0;

	if (!c->how->dry_run) {
		if (c->how->confirm)
			error = c->how->confirm(c->how->arg);
		if (!error)
			error = store_gc_write(c->gc, c->old.generation + 1);
		if (error == -EIO && !is_away(c->remote))
			return refuse(c, "what was written cannot be read back");
		FAULT_POINT("gc.written");
		if (!error)
			error = store_gc_delete(c->gc, confirm, c);
	}
	if (!error)
		error = publish(c);
	if (error == -EEXIST)
		return opening_fail(
			c->message, error,
			"%s: another garbage collection is at work there; try again later",
			remote_name(c->remote));
	if (error == -EOPNOTSUPP)
		return opening_fail(
			c->message, error,
			"%s cannot create an object only if it is absent, which garbage collection "
			"needs: see epochfs check",
			remote_name(c->remote));
	return error;
}

/* ---- other leftovers ---- */

struct leftovers {
	struct collection *c;
	uint64_t highest, last; /* lease; summary that was added last */
	struct remote_keys keys;
};

static int note_lease(void *arg, const char *key, uint64_t size)
{
	struct leftovers *l = arg;
	uint64_t generation;

	(void)size;
	if (lease_key_parse(key, &generation) == 0 && generation > l->highest)
		l->highest = generation;
	return 0;
}

static int note_old_lease(void *arg, const char *key, uint64_t size)
{
	struct leftovers *l = arg;
	uint64_t generation;

	(void)size;
	if (lease_key_parse(key, &generation) || generation + LEASE_KEEP >= l->highest)
		return 0;
	return remote_keys_add(&l->keys, key);
}

/* A summary that still has an epoch which was dropped: a copy, and not a true one. */
static int note_summary(void *arg, uint64_t number, const char *text)
{
	uint64_t last = (number + SUMMARY_EVERY - 1) / SUMMARY_EVERY * SUMMARY_EVERY;
	struct leftovers *l = arg;
	char key[KEY_MAX];

	(void)text;
	/* One that came after the records were listed is none of ours. */
	if (gc_records_has(&l->c->records, number) || number > l->c->records.highest ||
	    last == l->last)
		return 0;
	l->last = last;
	summary_key(last, key);
	return remote_keys_add(&l->keys, key);
}

static int tidy(struct collection *c)
{
	struct leftovers l = {.c = c};
	int error = remote_list(c->remote, PREFIX_LEASE, note_lease, &l);

	if (!error)
		error = remote_list(c->remote, PREFIX_LEASE, note_old_lease, &l);
	if (!error)
		error = summary_each(c->remote, 0, note_summary, &l);
	if (!error && !c->how->dry_run)
		error = remote_keys_delete(c->remote, &l.keys);
	if (!error)
		c->totals.others += l.keys.count;
	remote_keys_free(&l.keys);
	FAULT_POINT("gc.tidied");
	if (!error && !c->how->dry_run)
		error = gc_lists_tidy(c->remote, c->totals.generation);
	return error;
}

/* ---- all ---- */

static void add_count(struct store_gc_count *sum, const struct store_gc_count *c)
{
	sum->packs += c->packs;
	sum->indexes += c->indexes;
	sum->bytes += c->bytes;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static void add_totals(struct collection *c, bool first)
{
	struct store_gc_totals now, *sum = &c->totals.store;
	const struct store_gc_count *before = &sum->before, *written = &sum->written,
				    *deleted = &sum->deleted;

	store_gc_get_totals(c->gc, &now);
	if (first) {
		*sum = now;
	} else {
		add_count(&sum->condemned, &now.condemned);
		add_count(&sum->deleted, &now.deleted);
		add_count(&sum->rewritten, &now.rewritten);
		add_count(&sum->written, &now.written);
		sum->waiting = now.waiting;
		sum->unnamed = now.unnamed;
		sum->live_bytes = now.live_bytes;
		sum->next_ns = now.next_ns;
	}
	c->totals.epochs = c->records.live;
	c->totals.after = (struct store_gc_count){
		less(before->packs + written->packs, deleted->packs),
		less(before->indexes + written->indexes, deleted->indexes),
		less(before->bytes + written->bytes, deleted->bytes),
	};
}

/* 1: look once more, since a writer may be about to complete what is incomplete. */
static int look_and_mark(struct collection *c, bool last)
{
	struct opening_message *told = c->message, own = {0};
	int error = look_at_lease(c);

	if (!error)
		error = look(c);
	c->message = c->held && !last ? &own : told;
	if (!error)
		error = mark(c);
	c->message = told;
	if (error == -EBADMSG && c->held && !last) {
		pass_free(c);
		error = 1;
	}
	free(own.text);
	return error;
}

static int pass(struct collection *c, bool first)
{
	int error = 1;

	for (int i = 1; error == 1 && i <= LOOKS_MAX; i++) {
		error = look_and_mark(c, i == LOOKS_MAX);
		if (error == 1)
			sleep_ns(LOOK_NS);
	}
	if (!error)
		error = collect(c);
	if (!error && first)
		error = tidy(c);
	if (!error)
		add_totals(c, first);
	return error;
}

static int run(struct collection *c)
{
	bool again = true;
	int error = 0;

	for (int i = 0; i < PASSES_MAX && again && !error; i++) {
		error = pass(c, i == 0);
		again = !c->how->grace_ns && !c->how->dry_run && c->totals.store.next_ns;
		pass_free(c);
		if (again && !error && i + 1 < PASSES_MAX)
			sleep_ns(c->totals.store.next_ns - clock_wall_ns());
	}
	return error;
}

int gc_collect(struct remote *remote, const struct gc *how, struct gc_totals *ret_totals,
	       char **ret_message)
{
	struct opening_message m = {0};
	struct collection c = {.how = how, .remote = remote, .message = &m};
	int error = run(&c);

	if (error) {
		/* A line for what has none. */
		error = error == -ECANCELED || error == -ESTALE ? error
								: contact_fail(remote, error, &m);
		*ret_message = m.text;
		return error;
	}
	free(m.text);
	c.totals.keeps_versions = remote_keeps_versions(remote);
	*ret_totals = c.totals;
	return 0;
}

/* ---- The lists of garbage collections in a remote. ---- */

/* Looks until one is not overtaken by others who publish meanwhile. */
#define PUBLISHED_LOOKS_MAX 16
/* One that came damaged is read again: the damage may be of the way here. */
#define READ_TRIES 3

static int note_highest(void *arg, const char *key, uint64_t size)
{
	uint64_t *highest = arg, generation;

	(void)size;
	if (gc_key_parse(key, &generation) == 0 && generation > *highest)
		*highest = generation;
	return 0;
}

int gc_lists_highest(struct remote *remote, uint64_t *ret_generation)
{
	uint64_t highest = 0;
	int error = remote_list(remote, PREFIX_GC, note_highest, &highest);

	if (!error)
		*ret_generation = highest;
	return error;
}

static int read_list(struct remote *remote, uint64_t generation, struct gc_list *ret_list)
{
	char key[KEY_MAX];
	int error = -EBADMSG;

	gc_key(generation, key);
	for (int tries = 0; error == -EBADMSG && tries < READ_TRIES; tries++) {
		cleanup_buf struct buf text = {0};

		error = remote_get(remote, key, 0, GC_LIST_ENCODED_MAX + 1, &text);
		if (!error)
			error = gc_list_decode(text.data, text.len, ret_list);
		if (!error && ret_list->generation != generation) {
			gc_list_free(ret_list);
			error = -EBADMSG;
		}
	}
	if (error == -EBADMSG)
		ret_list->generation = generation;
	return error;
}

int gc_lists_look(struct remote *remote, struct gc_list *ret_list)
{
	int error = -ENOENT;

	for (int i = 0; error == -ENOENT && i < PUBLISHED_LOOKS_MAX; i++) {
		uint64_t highest;

		error = gc_lists_highest(remote, &highest);
		if (!error && !highest)
			return -ENOENT;
		/* Gone: so many others came meanwhile that it was removed as history. */
		if (!error)
			error = read_list(remote, highest, ret_list);
	}
	return error == -ENOENT ? -EIO : error;
}

int gc_lists_publish(struct remote *remote, struct gc_list *list)
{
	cleanup_buf struct buf text = {0};
	uint64_t highest;
	char key[KEY_MAX];
	int error = gc_list_encode(list, &text);

	if (error)
		return error;
	gc_key(list->generation, key);
	error = remote_put_if_absent(remote, key, text.data, text.len);
	if (!error)
		error = gc_lists_highest(remote, &highest);
	/* So slow that the number had become history: nobody reads it. */
	if (!error && highest != list->generation)
		error = -EEXIST;
	return error;
}

struct tidying {
	uint64_t below;
	struct remote_keys keys;
};

static int note_old(void *arg, const char *key, uint64_t size)
{
	struct tidying *t = arg;
	uint64_t generation;

	(void)size;
	if (gc_key_parse(key, &generation) || generation >= t->below)
		return 0;
	return remote_keys_add(&t->keys, key);
}

int gc_lists_tidy(struct remote *remote, uint64_t highest)
{
	struct tidying t = {.below = highest > GC_LISTS_KEEP ? highest - GC_LISTS_KEEP : 0};
	int error = t.below ? remote_list(remote, PREFIX_GC, note_old, &t) : 0;

	if (!error)
		error = remote_keys_delete(remote, &t.keys);
	remote_keys_free(&t.keys);
	return error;
}
