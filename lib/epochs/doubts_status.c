/* SPDX-License-Identifier: Apache-2.0 */
/* What is in doubt now: for `status`, and for a mount that goes back by itself (resume.h). */
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/arrivals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "lib/format/record_doubt.h"
#include "lib/format/tails.h"
#include "lib/format/tree.h"
#include "lib/meta/nodes_decide.h"
#include "lib/util/clock.h"
#include "lib/epochs/seal.h"

/* ---- the live tree ---- */

struct surveying {
	struct volume *vol;
	struct state *state;
	struct doubts *doubts;
	struct buf path;
	unsigned depth;
	struct arrivals arrivals;
	uint64_t came;	      /* of what is looked at, as doubts_file.came */
	uint64_t tails_after; /* of content with a greater `born` the tail is looked at */
	/* Torn under temporary names, of that content: met in the first walk. */
	struct torn_temporaries torn;
	bool again; /* it is the second walk: the judge knows them */
};

static int survey_dir(struct surveying *s, uint64_t ino);

static const char *why_torn(const struct surveying *s, const char *name,
			    const struct state_version *v)
{
	cleanup_close int fd = -1;
	const char *why = "it is torn inside";

	if (v->torn || v->born <= s->tails_after)
		return v->torn ? why : NULL;
	if (!v->size)
		return tail_check(-1, 0, name, &why) > 0 ? why : NULL;
	if (!v->local_whole)
		return NULL;
	fd = object_open(s->vol, v->id, O_RDONLY);
	return fd >= 0 && tail_check(fd, v->size, name, &why) > 0 &&
			       object_is_still(s->vol, v->id, fd)
		       ? why
		       : NULL;
}

static int survey_file(struct surveying *s, const char *name, const struct state_file *f)
{
	struct state_version v;
	struct doubts_file file;
	int error;

	if (!f->closed || rules_log(s->vol->rules, name, NULL))
		return 0;
	error = state_version_get(s->state, f->closed, &v);
	if (error)
		return error == -ENOENT ? 0 : error;
	file = (struct doubts_file){
		.path = buf_str(&s->path),
		.ino = f->ino,
		.version = v.id,
		.born = state_version_epoch(&v),
		.came = s->came,
		.mtime_ns = f->mtime_ns,
		.torn = why_torn(s, name, &v),
	};
	/* As the seal does it (freeze.c): the save that it was for is half. */
	if (!s->again && file.born > s->tails_after)
		error = torn_temporaries_add(&s->torn, s->vol->rules, &file);
	return error ? error : doubts_add_file(s->doubts, &file);
}

static int survey_name(void *arg, const struct state_name *n, const char *name,
		       const struct state_file *f)
{
	struct surveying *s = arg;
	uint64_t came = s->came;
	size_t len = s->path.len;
	int error = 0;

	(void)n;
	if (f)
		s->came = arrivals_came(&s->arrivals, f->ino, came);
	buf_printf(&s->path, "%s%s", len ? "/" : "", name);
	if (f && S_ISDIR(f->mode) && s->depth < TREE_DEPTH_MAX) {
		s->depth++;
		error = survey_dir(s, f->ino);
		s->depth--;
	} else if (f && S_ISREG(f->mode)) {
		error = survey_file(s, name, f);
	}
	s->path.len = len;
	s->came = came;
	return error ? error : buf_error(&s->path);
}

static int survey_dir(struct surveying *s, uint64_t ino)
{
	return state_dir_list_sorted(s->state, ino, survey_name, s);
}

static int any_row(void *arg, const struct state_doubt *d)
{
	(void)arg;
	(void)d;
	return 1;
}

/* The record of the epoch that the live tree stands on, where something was in doubt in it or is noted since: 1. */
static int look_for_doubts_locked(struct volume *vol, struct epoch_record *ret_before)
{
	struct state_epoch row = {0};
	int noted = state_doubt_each(vol->state, any_row, NULL), error;

	if (noted < 0)
		return noted;
	error = state_epoch_get(vol->state, vol->current_epoch, &row);
	if (!error && row.record)
		error = record_decode(row.record, strlen(row.record), ret_before);
	state_epoch_free(&row);
	if (error && error != -ENOENT)
		return error;
	return noted || ret_before->doubt_count;
}

bool doubts_any_locked(struct volume *vol)
{
	cleanup_record struct epoch_record before = {0};

	return look_for_doubts_locked(vol, &before) == 1;
}

enum survey {
	SURVEY_NOTED, /* nothing where nothing was noted since the last epoch, nor in doubt in it */
	SURVEY_MARKED,
	SURVEY_TAILS, /* also looks at the tails of what is new */
};

static int survey_once(struct surveying *s, uint64_t number, uint64_t parent,
		       struct doubts **ret_doubts)
{
	int error = doubts_of_snapshot(s->vol, s->state, number, parent, 0, ret_doubts);

	s->doubts = *ret_doubts;
	if (!error)
		error = doubts_add_torn_temporaries(s->vol, s->state, number, 0, &s->torn,
						    s->doubts);
	if (!error)
		error = survey_dir(s, ROOT_INO);
	return error ? error : doubts_find_gone(s->vol, s->state, s->doubts);
}

static void survey_end(struct surveying *s)
{
	state_snapshot_end(s->state);
	torn_temporaries_free(&s->torn);
	buf_free(&s->path);
}

/* What would be in doubt in an epoch that is sealed now. */
static int survey(struct volume *vol, enum survey how, struct epoch_record *r)
{
	cleanup_record struct epoch_record before = {0};
	cleanup_doubts struct doubts *doubts = NULL;
	struct surveying s = {.vol = vol, .tails_after = UINT64_MAX};
	uint64_t parent;
	int error;

	mutex_lock(&vol->lock);
	r->number = vol->next_epoch;
	/* What is sealed and not frozen yet, or could not be, is as new as what no epoch has. */
	parent = vol->current_epoch;
	if (how == SURVEY_TAILS)
		s.tails_after = parent;
	error = look_for_doubts_locked(vol, &before);
	if (error > 0 || (!error && how != SURVEY_NOTED))
		error = state_snapshot_begin(vol->state, &s.state);
	mutex_unlock(&vol->lock);
	if (!s.state)
		return error;
	arrivals_since(s.state, parent, &s.arrivals);
	error = survey_once(&s, r->number, parent, &doubts);
	if (!error && s.torn.count) {
		s.again = true;
		buf_reset(&s.path);
		doubts_free(steal_ptr(doubts));
		error = survey_once(&s, r->number, parent, &doubts);
	}
	survey_end(&s);
	if (!error)
		error = doubts_decide(doubts);
	return error ? error : doubts_to_record(doubts, &before, r);
}

void doubts_found_free(struct doubts_found *found)
{
	while (found->count)
		free(found->files[--found->count].path);
}

static int found_add(struct doubts_found *found, const struct record_doubt *d)
{
	char *path = found->count < DOUBTS_FOUND_MAX ? strdup(d->path) : NULL;

	if (!path)
		return found->count < DOUBTS_FOUND_MAX ? -ENOMEM : 0;
	found->files[found->count].path = path;
	found->files[found->count++].at_ns = d->at_ns;
	return 0;
}

int doubts_look(struct volume *vol, bool tails, struct doubts_found *ret_found, struct buf *why)
{
	cleanup_record struct epoch_record r = {0};
	int error = survey(vol, tails ? SURVEY_TAILS : SURVEY_MARKED, &r);

	*ret_found = (struct doubts_found){.alone = true};
	for (size_t i = 0; !error && i < r.doubt_count; i++) {
		const struct record_doubt *d = &r.doubts[i];
		enum doubt_kind kind = doubt_kind_parse(d->kind);

		if (!d->counts && doubt_unit_of(vol->rules, d->path).temporary)
			ret_found->temporary = true;
		if (!d->counts || kind == DOUBT_LEFT)
			continue;
		ret_found->alone &= kind == DOUBT_UNDONE && !d->companion_count;
		if (!ret_found->doubtful)
			buf_printf(why, "%s: %s", d->path, d->why);
		ret_found->doubtful = true;
		error = found_add(ret_found, d);
	}
	return error ? error : buf_error(why);
}

void doubts_look_at_temporaries(struct volume *vol)
{
	cleanup_buf struct buf why = {0};
	struct doubts_found found;
	bool due;

	mutex_lock(&vol->lock);
	due = vol->sealer &&
	      (vol->sealer->pending.rewritten ||
	       (vol->sealer->pending.temporary && vol->sealer->pending.new_names.temporaries));
	if (vol->sealer)
		vol->sealer->pending.temporary = vol->sealer->pending.rewritten = false;
	mutex_unlock(&vol->lock);
	if (!due)
		return;
	/* Where it cannot be told now, the seal finds what is torn. */
	doubts_look(vol, true, &found, &why);
	doubts_found_free(&found);
}

/* ---- what was found ---- */

/* Who watches a drain asks many times a second, and the state changes all the while: looking takes no more than this part of
 * a processor. */
#define SURVEY_SHARE 10

static int64_t thread_cpu_ns(void)
{
	struct timespec ts;

	return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) < 0 ? 0
							       : ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static json_t *list_of(const struct epoch_record *r)
{
	json_t *list = NULL, *o;
	size_t i;

	if (!r->doubt_count || record_doubts_json(r->doubts, r->doubt_count, &list) != 0)
		return NULL;
	json_array_foreach(list, i, o)
	{
		const struct record_doubt *d = &r->doubts[i];
		const char *settled_by = doubt_settled_by(doubt_kind_parse(d->kind),
							  d->companion_count > 0, d->alone);

		if (nodes_is_part(d->since)) {
			json_object_del(o, "since");
			json_object_set_new(o, "since_part",
					    json_integer((json_int_t)(d->since - NODES_FIRST)));
		}
		json_object_set_new(o, "settled_by", json_string(settled_by));
	}
	return list;
}

/* Whether what was found last time is what would be found now, or is young for what it has cost. */
static bool survey_holds_locked(struct volume *vol)
{
	const struct doubts_survey *s = &vol->survey;

	return s->at_ns && (s->changes == state_changes(vol->state) ||
			    clock_mono_ns() - s->at_ns < SURVEY_SHARE * s->cost_ns);
}

static void survey_keep(struct volume *vol, uint64_t changes, int64_t cost_ns, json_t *list)
{
	struct doubts_survey *s = &vol->survey;
	SCOPED_LOCK(&vol->lock);

	json_decref(s->list);
	*s = (struct doubts_survey){
		.changes = changes,
		.at_ns = clock_mono_ns(),
		.cost_ns = cost_ns,
		.list = json_deep_copy(list),
	};
}

void doubts_survey_free(struct volume *vol)
{
	json_decref(vol->survey.list);
	vol->survey.list = NULL;
}

json_t *doubts_status(struct volume *vol)
{
	cleanup_record struct epoch_record r = {0};
	int64_t began_ns = thread_cpu_ns();
	uint64_t changes;
	json_t *list = NULL;
	bool holds;

	if (vol->options.read_only)
		return NULL;
	mutex_lock(&vol->lock);
	holds = survey_holds_locked(vol);
	if (holds)
		list = json_deep_copy(vol->survey.list);
	changes = state_changes(vol->state);
	mutex_unlock(&vol->lock);
	if (holds || survey(vol, SURVEY_NOTED, &r) != 0)
		return list;
	list = list_of(&r);
	survey_keep(vol, changes, thread_cpu_ns() - began_ns, list);
	return list;
}
