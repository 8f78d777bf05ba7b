/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount can be told: the options that a volume obeys. Parsing of -o and EPOCHFS_* is in
 * tools/. */
#ifndef EPOCHFS_META_OPTIONS_H
#define EPOCHFS_META_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/meta/resume.h"
#include "lib/remote/remote.h"

#define GLOBS_MAX 64

struct survivor;
struct stale_retry_record;
struct torn_record;

/* Bounds of lease_ns and refresh_ns. */
#define LEASE_MIN_NS   INT64_C(1000000000)
#define LEASE_MAX_NS   INT64_C(3600000000000)
#define REFRESH_MIN_NS INT64_C(100000000)
/* Of nodes, where it is not 0; and what the names of node and run may take with their NUL then. */
#define NODES_MIN     2
#define NODES_MAX     1024
#define NODE_TEXT_MAX 64
#define RUN_TEXT_MAX  256
/* Of on_epoch_timeout_ns. */
#define ON_EPOCH_TIMEOUT_MIN_NS INT64_C(100000000)

/* Shell patterns (fnmatch) for the last component of a path, or for the whole path where they hold
 * a '/'. */
struct globs {
	const char *pattern[GLOBS_MAX]; /* borrowed */
	unsigned count;
};

struct volume_options {
	const char *remote;	     /* URL or path; "none": local only */
	const char *cache_dir;	     /* NULL: volume_cache_root says where */
	struct remote_limits limits; /* transfers at once, their rates and times */
	bool read_only;
	uint64_t at_epoch;	   /* with read_only: the root shows this epoch; 0: the live tree */
	uint64_t cache_size;	   /* bytes that clean and dirty content may take; 0: no limit but
				      min_free */
	unsigned min_free_percent; /* of the cache's file system that stays free; default 10 */
	int64_t settle_ns;	   /* 5 s; 0: the last close seals */
	int64_t patience_ns;	   /* 60 s */
	uint64_t upload_ahead; /* closed contents of so many bytes go to the remote before they are
				      sealed (early_upload.h); 0: none; default 32 MiB */
	bool full_wait;	       /* full=wait (default) or full=error */
	bool durable_close;    /* durability=remote: each close waits until its epoch is durable */
	struct globs temporary, marker,
		log;	    /* added to the built-in ones (those of marker: rules.h) */
	bool no_last_files; /* the last files of frameworks (rules.h) seal nothing: marker=none */
	const char *step_regex; /* POSIX extended, first group is the number; NULL: the built-in
				   patterns */
	const char *node;	/* name of this node; NULL: the host's name */
	unsigned
		nodes; /* how many nodes write to the volume together (nodes.h); 0: this one alone */
	const char *
		run_id; /* NULL: EPOCHFS_RUN_ID, SLURM_JOB_ID, ... or made up once a volume state */
	const char *message;
	const char
		*db_type; /* what checkpoints are kept in, for metadata: "lmdb"; NULL: not said */
	/* Who is notified of epochs (announce.h); not by a read-only volume. */
	const char *on_epoch;	     /* a program and its arguments (exec.h); NULL: none */
	int64_t on_epoch_timeout_ns; /* it is ended when it has run for so long: 60 s */
	const char *catalog_db;	     /* an SQLite database, a path from /; NULL: none */
	/* The rules of lib/saves decide when an epoch is sealed and what it is (-o rules=2); not those of several nodes. */
	bool by_saves;
	enum resume_when resume;
	const char *
		keep; /* which epochs stay (retention_policy.h); NULL: all. Not of a read-only volume */
	bool gc_off;		/* with keep: garbage collection is left to the command */
	int64_t gc_grace_ns;	/* what garbage collection leaves dropped epochs: 24 h */
	int64_t lease_ns;	/* how long a lease lives that is not renewed: 60 s; 1 s to 1 h */
	bool take_over;		/* take the lease from a writer that is alive */
	int64_t refresh_ns;	/* how often a read-only volume looks for what is new: 10 s */
	const char *mountpoint; /* told to others who want to write; NULL: none */
	const char *
		told; /* for people: what was given, and where, as the text of a JSON object; NULL: not known */
	/* Asked while volume_open waits for another writer's lease to lapse: true ends the wait with
	 * -EINTR. NULL: it is waited for. */
	bool (*give_up)(void *arg);
	void *give_up_arg;
	unsigned threads; /* of the upload and fetch pipelines; 0: one a core, at most 8 */
	/* Handles of a process that served this volume before and died (survivors.h); borrowed until
	 * volume_open returns. NULL: none did. */
	struct survivor *survivors;
	size_t survivors_count;
	/* Where that and this process keep what they told the kernel last (survivors.h), for as long as the volume
	 * is open; NULL: nowhere. */
	struct stale_retry_record *stale_retry_records;
	size_t stale_retry_records_count;
	struct torn_record *torn_record; /* the same of .epochs/torn (torn.h) */
};

/* Whether this can be the name of a node of a set: 1 to 63 bytes of [A-Za-z0-9._-], the first a letter or a digit. */
bool options_node_name_valid(const char *name);

/* All defaults; the strings are static. */
void volume_options_init(struct volume_options *o);
/* Everything copied, globs too: 0 or -ENOMEM. Free with options_free. */
int options_copy(const struct volume_options *from, struct volume_options *ret_options);
void options_free(struct volume_options *o);

#endif
