/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One writer at a time: the lease of a volume, in its remote.
 *
 * The protocol. Objects lease/<generation> (format/lease.h); the one with the highest generation is
 * the lease, the others are history.
 *   take      look at the highest, g. Where there is none, or it is released or has lapsed, or the
 *             user says so: create g+1, only if it is absent. Who created it is the holder.
 *   renew     confirm; then write the own object again, with `renewed` one higher.
 *   confirm   list: where a generation above the own one is there, or the own object is gone or names
 *             another holder, the lease is lost, for good.
 *   release   write the own object again, with `released`. It stays, so that generations only rise.
 *   history   who has taken g deletes those up to g - LEASE_KEEP.
 *
 * A lease has lapsed when its object, byte for byte, has not changed during its ttl, measured by the
 * observer's own monotonic clock between the end of his first reading and the start of his last. No
 * time that one machine wrote is ever compared with a clock of another: `since` is for people.
 * Without waiting it counts as lapsed where its holder was a process of this boot of this host that
 * is gone (format/lease.h), or had the same cache directory, which is locked and so ours.
 *
 * Why at most one writer succeeds:
 *   - Create-if-absent gives each generation one creator. Two that take over at once both create
 *     g+1: one gets -EEXIST, looks again, and sees a live holder.
 *   - A look sees generation g unless it was deleted meanwhile, which takes LEASE_KEEP takings within
 *     that listing; so who takes over creates a generation above all that were complete when he
 *     looked. Should he be that slow, his own is below the highest, and his first confirm, which comes
 *     before his first write, says that it is lost.
 *   - The old holder learns of it at its next confirm: it confirms before each epoch, tag and drop.
 *     A renewal that was under way writes an old generation, which is not the highest: nobody reads it.
 *   - Between its confirm and its write a holder may sleep for as long as it likes (a stopped process, a
 *     machine that was suspended). Then another may hold the lease while the write lands. So the lease
 *     is no guard of data, it only keeps people apart: packs and index objects are named by their
 *     content; an epoch's record is created only if it is absent, and who finds its number taken stops;
 *     a drop looks whose epoch it is; a tag may then be the old writer's for once.
 *   - A holder whose remote is away goes on working, for however long. On return it confirms first: if
 *     nobody has taken over, it is the holder still, lapsed or not.
 * Where a remote's create-if-absent is only checked (REMOTE_CREATE_CHECKED), two that race within a
 * moment may both be told that they created it; so there who takes the lease waits for a moment and
 * reads it back: the one whose bytes are there has it. In a bucket that keeps versions that is the one whose version is the first (remote.h), however
 * late the others come: they take theirs back, and one that dies before it has only hides the winner's, who then finds at its next confirm that the lease is lost.
 * A renewal needs no condition (If-Match): the object of a generation has one writer, and who has lost it writes where nobody looks.
 */
#ifndef EPOCHFS_META_LEASE_H
#define EPOCHFS_META_LEASE_H

#include "lib/format/lease.h"
#include "lib/remote/remote.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

#define LEASE_KEEP 8
/* A holder renews this often within a ttl. */
#define LEASE_RENEWALS 4

struct lease;

struct lease_terms {
	/* Who takes it: host, node, mountpoint, boot_id, pid, pid_started, pid_namespace and ttl_ns count. */
	struct lease_info self;
	const char *last_holder; /* of whoever had our cache last, a UUID; NULL: none */
	bool take_over;		 /* also a live one, and without waiting */
	/* Called once, before a wait: who holds it, and how long it takes at most. May be NULL. */
	void (*waiting)(void *arg, const struct lease_info *holder, int64_t at_most_ns);
	bool (*give_up)(
		void *arg); /* polled while waiting: true ends it with -EINTR. May be NULL */
	void *arg;
};

/* The highest generation: 0; -ENOENT: there is none; -EBADMSG: it is damaged (its generation is set);
 * -EPROTONOSUPPORT; or the remote's. */
int lease_look(struct remote *remote, struct lease_info *ret_info);

/*
 * Takes the lease; waits for up to the ttl of the one that is there to see whether it lives. Blocks; no
 * locks. `ret_before` (generation 0: none) is who had it: on success before, on -EBUSY now.
 *   -EBUSY       it is held, and its holder is alive
 *   -EINTR       give_up
 *   -EOPNOTSUPP  the remote has no create-if-absent
 *   -EBADMSG     the generations are used up; -EPROTONOSUPPORT: of a newer version of epochfs
 *   else the remote's. After one that left it open whether the object was made, the object may stay:
 *   others see it lapse.
 */
int lease_take(struct remote *remote, const struct lease_terms *terms, struct lease **ret_lease,
	       struct lease_info *ret_before);
/* Frees; NULL is allowed. Does not release. */
void lease_free(struct lease *l);

/*
 * Any thread. 0; -ESTALE: it is lost (from then on without asking); or the remote's, and then nothing is
 * known. Where it was confirmed less than `max_age_ns` ago, confirm does not ask.
 */
int lease_confirm(struct lease *l, struct remote *remote, int64_t max_age_ns);
/* One thread at a time, as lease_release. */
int lease_renew(struct lease *l, struct remote *remote);
/* `pending`: epochs that are not uploaded, for who takes it next. */
int lease_release(struct lease *l, struct remote *remote, uint64_t pending);

struct lease_view {
	struct lease_info own;
	bool lost;
	struct lease_info winner; /* where lost; generation 0: not known */
	int64_t confirmed_ns;	  /* monotonic: when that was begun */
};
void lease_get(struct lease *l, struct lease_view *ret_view);

/* "held for writing by HOST (process 12, mounted at /mnt/ckpt) since TIME (its clock)"; appends. */
void lease_describe_held(const struct lease_info *l, struct buf *out);
/* "HOST (process 12, mounted at /mnt/ckpt)"; appends. */
void lease_describe(const struct lease_info *l, struct buf *out);

/* ---- for lease*.c and those that say so ---- */

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
