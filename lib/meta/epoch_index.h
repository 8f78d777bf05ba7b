/* SPDX-License-Identifier: Apache-2.0 */
/* The epochs of a volume in memory, as far as names, `latest` and listings need them. */
#ifndef EPOCHFS_META_EPOCH_INDEX_H
#define EPOCHFS_META_EPOCH_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/format/record.h"
#include "lib/state/state.h"

/* Pure, no locks. Zero-initialise, free with epoch_index_free. */
struct epoch_brief {
	uint64_t number;
	int64_t sealed_ns;
	uint64_t continues, half;  /* as in the record */
	uint64_t continues_from;   /* likewise; 0 where it is not below `continues` */
	uint64_t parent, restores; /* likewise */
	uint64_t step, bytes_new;
	bool has_step;
	bool complete; /* the record says so */
	bool unknown;  /* it does not say */
	bool superseded;
	enum record_trigger trigger;
};

struct epoch_index {
	struct epoch_brief *epochs; /* ascending, without dropped ones */
	size_t count, cap;
};

void epoch_index_free(struct epoch_index *x);
/* Adds or replaces an epoch, and marks what it continues: 0 or -ENOMEM. superseded: as its row says. */
int epoch_index_add(struct epoch_index *x, const struct epoch_record *record, bool superseded);
void epoch_index_remove(struct epoch_index *x, uint64_t number);
/* Epoch `by`, which is not in the index where it was dropped, continued this one (0: none): it and what has its half are marked, and
 * those in the same save from `from` on (0: as in the record). */
void epoch_index_supersede(struct epoch_index *x, uint64_t number, uint64_t from, uint64_t by);
/* The epoch whose half of a save this one may have, too, as its record says; itself where it says none. */
uint64_t epoch_index_same_half(const struct epoch_index *x, uint64_t number);
/*
 * The half that `continued` is found to be, where another continues it: the epoch that its save began with. Itself where it only says
 * nothing of that save, and is continued for something else.
 */
uint64_t epoch_index_half_of(const struct epoch_index *x, uint64_t continued);
/* Whether e is, or has, the half that `continued` is found to be as `by` continues it; `half`: epoch_index_half_of that. */
bool epoch_brief_is_half(const struct epoch_brief *e, uint64_t continued, uint64_t half,
			 uint64_t by);
/* Whether e lies in the save that `by` completes, as by->continues_from says. */
bool epoch_brief_is_in_save(const struct epoch_brief *e, const struct epoch_brief *by);
/* NULL where there is none; until the next change. */
const struct epoch_brief *epoch_index_find(const struct epoch_index *x, uint64_t number);
/* The first one with a greater number: NULL where there is none. */
const struct epoch_brief *epoch_index_after(const struct epoch_index *x, uint64_t number);
bool epoch_brief_complete(const struct epoch_brief *e);
/* Numbers; 0 where there is none. */
uint64_t epoch_index_newest(const struct epoch_index *x);
uint64_t epoch_index_latest(const struct epoch_index *x); /* the newest complete one */
/* The newest that is complete, or of which it is not known. */
uint64_t epoch_index_whole(const struct epoch_index *x);
/* The newest complete one with this step. */
uint64_t epoch_index_complete_of_step(const struct epoch_index *x, uint64_t step);

/*
 * "42", "000042", "step=500", "latest", "@2h" (the newest at least that old at now_ns): the number
 * of an epoch that is there, else -ENOENT; -EINVAL where text cannot be an epoch's name; -EAGAIN
 * where it is neither of these, but may be a tag or "current", which the caller knows.
 */
int epoch_index_resolve(const struct epoch_index *x, const char *text, int64_t now_ns,
			uint64_t *ret_number);

/* One epoch for listings. */
struct epoch_info {
	uint64_t number;
	enum epoch_state state;
	struct epoch_record record; /* its own copy: epoch_info_free */
	bool complete;		    /* record says true and no later one continues it */
	bool superseded;
	char *error; /* or NULL */
};
void epoch_info_free(struct epoch_info *e);

#endif
