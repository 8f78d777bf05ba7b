/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct volume: what the rooms of a mount share, each of which owns a part of it, and what they offer each other. For lib/ alone.
 *
 * The order of locks is in lib/util/lock.h.
 *
 * volume.lock guards the main connection of the state and everything that says so below. It is held
 * for microseconds: never over a remote call, compression, a copy of file data, a callback of
 * volume_events, or a wait. Functions that end in _locked are called with it held; all others
 * without it.
 */
#ifndef EPOCHFS_CACHE_CONTEXT_H
#define EPOCHFS_CACHE_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "lib/cache/content.h"
#include "lib/cache/counters.h"
#include "lib/cache/events.h"
#include "lib/format/volume_info.h"
#include "lib/meta/options.h"
#include "lib/remote/encrypt.h"
#include "lib/state/shutdown_mark.h"
#include "lib/state/state.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/mountinfo.h"

struct rules;	    /* lib/meta/rules.h */
struct bodies;	    /* body.h: the open bodies of the live tree */
struct grants;	    /* grant.h: backing files in the kernel's hands */
struct contents;    /* content.c: closed versions that somebody has open */
struct trees;	    /* trees.c: decoded trees of epochs, shared */
struct resume;	    /* resume.h: going back to the last whole epoch */
struct sealer;	    /* sealer.h: decides when an epoch is sealed, and seals */
struct holder;	    /* holder.h: the lease of the volume, where it is one that writes */
struct node_set;    /* nodes.h: what this volume does as one of several nodes */
struct follower;    /* follow.h: what is new in the remote of a read-only volume */
struct uploader;    /* upload.h: makes sealed epochs durable, in order */
struct evictor;	    /* evict.h: keeps cache_size and min_free */
struct driver;	    /* driver.h: epochs by the rules of lib/saves; NULL: by those of the sealer */
struct fact_log;    /* fact_log.h: what happened last; NULL: a mount that is read-only */
struct retention;   /* retention.h: drops what the option keep lets go; NULL without it */
struct collector;   /* upload.h: collects garbage in the remote; NULL without keep */
struct usage_cache; /* usage.h: what was last counted */
struct announcer;   /* announce.h: tells others of epochs; NULL: nobody is told */
struct torn;	    /* torn.h: bytes of killed writers */
struct store;	    /* lib/store/store.h; NULL with remote `none` */

struct volume {
	struct volume_options options;	      /* strings copied, owned by volume.c */
	struct encryption *encryption;	      /* of an encrypted volume; else NULL */
	const struct live_observer *observer; /* observer.h */
	const struct upload_ops *uploads;     /* uploads.h */
	struct rules *rules;		      /* what names mean; NULL: of an import */
	struct remote *plain;  /* without retries: the uploader puts its own over it */
	struct remote *remote; /* retries for as long as a reader should wait */
	bool local_only; /* remote `none`: epochs stay SEALED, which counts as done for waits */
	bool imports;	 /* of import.h: no live tree, and the local state is one of its own */
	char uuid[37];
	struct volume_info info; /* not of a local one */
	char *run_id, *node_name;
	char *cache_path; /* of cache_fd, absolute */
	int cache_fd;	  /* cache-dir/<uuid>/, with imports cache-dir/<uuid>/import/ */
	int lock_fd;	  /* the file `lock` in it, held by flock */
	enum last_shutdown last_shutdown;    /* how the last process left it (shutdown_mark.h) */
	bool noted;			     /* it says that this one runs */
	char device[MOUNTINFO_DEVICE_MAX];   /* of the mount; "": none, or not known */
	char mounted_at[MOUNTINFO_PATH_MAX]; /* the same, as mountinfo writes it */
	uint64_t
		recovered_doubt; /* the first that recovery noted; 0: none, or seen by the sealer */
	bool rebuilt;		 /* damaged/ there holds what is to be recovered (recovery.h) */
	int objects_fd; /* objects/: one file a version, named by its id in 16 hex digits */
	int trees_fd;	/* trees/: one file an epoch, named by its number in 20 digits */
	int torn_fd;	/* torn/ */
	struct marked_object *marked; /* reclaim.c: backing files to delete; guarded by lock */
	pthread_cond_t *marked_wake;  /* signalled at the first of them; NULL: nobody waits */
	/* Of the live tree: whether an open file shows the version, or that cannot be told. NULL: there is none. */
	bool (*uses_version_locked)(struct volume *vol, uint64_t version);
	uint64_t next_id; /* object_new_id */
	_Atomic int64_t
		disk_full_ns; /* disk_note: wall clock, when it was last; 0: not since somebody asked */
	atomic_bool has_root_blocks; /* what ext4 keeps for root was given to us (evict.c) */
	atomic_bool cache_gone;	     /* cache_errno has said so */
	atomic_bool cache_moved;     /* cache_look has */
	struct rwlock events_lock;   /* held for reading over each event: outside all other locks */
	struct volume_events events;
	struct volume_known known; /* guarded by lock */
	/* Closes wait for the remote until then (monotonic): 0 they do not, INT64_MAX always. At
	 * first what options.durable_close says. */
	_Atomic int64_t durable_until_ns;

	struct counters counters;

	struct mutex lock;
	pthread_cond_t changed; /* with lock, cond_init_mono: an epoch changed state, a body closed,
				   space came free */
	struct state *state;	/* main connection: with lock held */
	uint64_t next_epoch;	/* number that the next seal takes; guarded by lock; also meta
				   "next_epoch" */
	enum {
		DOUBTS_UNKNOWN,
		DOUBTS_SOME,
		DOUBTS_NONE
	} doubts; /* kills that no seal has judged (doubts_volume.h); guarded by lock */
	struct doubts_survey {
		uint64_t changes;    /* state_changes when it was made */
		int64_t at_ns;	     /* monotonic; 0: there is none */
		int64_t cost_ns;     /* processor time */
		struct json_t *list; /* NULL: nothing is in doubt */
	} survey;		     /* what doubts_status found last; guarded by lock */
	uint64_t current_epoch; /* what the live tree stands on; guarded by lock; meta "current" */

	struct resume *resume; /* resume.h */
	struct bodies *bodies;
	struct grants *grants;
	struct cramped *cramped; /* cramped.h; NULL: nobody writes */
	struct contents *contents;
	struct trees *trees;
	struct fact_log *facts;
	struct driver *driver;
	struct sealer *sealer;
	struct holder *holder;
	struct node_set *nodes; /* nodes.h; NULL: read-only, or without a remote */
	struct follower *follower;
	struct buf tombstones; /* follow.h: those that were read while this was opened */
	struct uploader *uploader;
	struct evictor *evictor;
	struct torn *torn;
	struct announcer *announcer;
	struct retention *retention;
	struct collector *collector;
	struct usage_cache *usage;
	struct store *store;
};

/* "0000000000000012" in objects/. */
#define OBJECT_NAME_MAX 17
void object_name(uint64_t version, char ret_name[OBJECT_NAME_MAX]);
/* The name by which an inode is kept while one version takes it over from another (edit.c). */
#define OBJECT_TAKEN_MAX 38
void object_taken_name(uint64_t from, uint64_t to, char ret_name[OBJECT_TAKEN_MAX]);
/* Whether it is such a name, and whose. */
bool object_is_taken_name(const char *name, uint64_t *ret_from, uint64_t *ret_to);
/* A fresh id for a lineage of content, or a temporary name: never used before, in this mount or an earlier one. Any lock. */
uint64_t object_new_id(struct volume *vol);
/* Opens (or with O_CREAT makes) the backing file of a version: the descriptor or -errno. */
int object_open(struct volume *vol, uint64_t version, int flags);
/*
 * Whether `fd` is still the file that holds the version's bytes. An edit in place may take the file
 * of a closed version over, and the version gets a clone before anything is written (edit.c): who
 * reads a version by a descriptor of its own, without a content (content.h), asks this when he has
 * read all; if it is not so, what he read may be of the edit, and he opens and reads again.
 */
bool object_is_still(struct volume *vol, uint64_t version, int fd);
/*
 * What st_blocks says of closed content, in blocks of 512 bytes: what its backing file takes while
 * all of it is there, so that a sparse file is one for du, cp and tar; else what its bytes take but
 * for the runs of zeros of its recipe, or where the version is not known, what `size` bytes take.
 */
uint64_t version_blocks_locked(struct volume *vol, uint64_t version, uint64_t size);
/* Removes it; a missing one is no error. */
int object_remove(struct volume *vol, uint64_t version);

/* The path of a file from the root, by its first name, for messages; "" for one without a name. Appends. With the lock. */
void volume_path_locked(struct volume *vol, uint64_t ino, struct buf *out);

#endif
