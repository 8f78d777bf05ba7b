/* SPDX-License-Identifier: Apache-2.0 */
/* What lease*.c share. */
#ifndef EPOCHFS_META_LEASE_INTERNAL_H
#define EPOCHFS_META_LEASE_INTERNAL_H

#include "lib/format/lease.h"
#include "lib/meta/lease.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

struct lease {
	struct mutex lock; /* a leaf */
	struct lease_view view;
};

/* A node of a set, as its object says. */
struct lease_member {
	struct lease_info info;
	struct buf text;
	bool damaged;
};

/* What lies there, as it was read. */
struct seen {
	struct lease_info info; /* generation 0: there is no lease */
	struct buf text;	/* whose change says that it lives */
	bool damaged;
	struct lease_member *members; /* of a node set; owned */
	size_t member_count;
};
void seen_free(struct seen *s);
#define cleanup_seen CLEANUP(seen_free)

struct taking {
	struct remote *remote;
	const struct lease_terms *terms;
	struct seen seen;     /* now */
	bool join;	      /* it is our own run's, with a place for us */
	struct buf watched;   /* the text whose change is watched; empty: none yet */
	int64_t watched_ns;   /* monotonic: when it had been read */
	uint64_t watched_gen; /* its generation */
};

enum verdict { VERDICT_FREE, VERDICT_LIVES, VERDICT_WATCH, VERDICT_JOIN };

/* ---- lease_take.c ---- */

/* One object: -ENOENT, or an error of the remote; damage is told in `ret_seen`. */
int lease_read(struct remote *remote, const char *key, uint64_t generation, struct seen *ret_seen);
/* For remote_list: the highest generation, into a uint64_t. */
int lease_note_highest(void *arg, const char *key, uint64_t size);
/* Whether this holder, alone, is there still. */
enum verdict lease_judge_one(const struct taking *t, const struct lease_info *holder, bool damaged);

/* ---- lease_set.c ---- */

/* The key of the object that a holder renews. */
void lease_own_key(const struct lease_info *own, char *ret_key);
bool lease_same_set(const struct lease_info *a, const struct lease_info *b);
/* Reads the nodes of the generation that was seen, which is a set's. */
int lease_members_read(struct remote *remote, struct seen *s);
/* They have all left. */
bool lease_members_left(const struct seen *s);
/*
 * Of a set's lease that was seen. seen.info and seen.text become those of the node for which it is not free,
 * or whose object is to be watched.
 */
enum verdict lease_set_judge(struct taking *t);
/* Makes our object in the generation that `own` names: -EEXIST where the name is another's. */
int lease_set_enter(struct remote *remote, const struct lease_info *own);
/* A generation above ours is there, and it may be our own run's: then we go on in that. 0, -ESTALE
 * with `ret_winner`, or the remote's. */
int lease_set_follow(struct remote *remote, uint64_t generation, struct lease_info *own,
		     struct lease_info *ret_winner);

/* ---- Which process holds a lease, and whether it is still there. ---- */

/* Fills boot_id, pid, pid_started, pid_namespace and host with this process. What /proc does not tell is
 * made up, so that it equals nothing. 0 or -errno of the random source. */
int lease_process_self(struct lease_info *ret_self);

/* The same boot of the same host: its processes can be asked for, if their namespace is ours. */
bool lease_process_same_boot(const struct lease_info *holder, const struct lease_info *self);

enum lease_process {
	LEASE_PROCESS_UNKNOWN, /* of another host, boot, or namespace of pids */
	LEASE_PROCESS_THERE,
	LEASE_PROCESS_GONE, /* ended, and its number perhaps another's by now */
};
enum lease_process lease_process_of(const struct lease_info *holder, const struct lease_info *self);

#endif
