/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Garbage collection of a remote: by the command, and by a mount (upload.h).
 *
 * What is live: all records that are there (tombstones are none), their trees, the recipes of these on all levels, and
 * the chunks of those. Packs in which nothing is live, and index objects that are superseded, are first condemned, by a list in the remote (format/gc_list.h), and
 * deleted by a later collection once the grace has passed since. lib/store/gc.h says which packs are condemned or
 * rewritten. Nothing is condemned or deleted unless all of it could be read.
 *
 * The protocol. A collection
 *   look      reads the list in force, generation g;
 *   mark      lists the records (of nodes' parts, nodes.h, then of epochs), then the index objects, then the packs, in this order, and marks what is live;
 *   write     puts new packs and index objects for what is live in packs that go;
 *   delete    deletes what the list has condemned the grace ago and is still not live, having looked before
 *             each request that g is the highest generation still;
 *   publish   creates gc/<g+1>, only if it is absent: what stays condemned, and what is condemned now. Who finds it
 *             taken ends: another collection is at work.
 * A writer, for each epoch
 *   heed      reads the list in force before it begins: what is condemned there is not built on, and the packs that it
 *             makes carry the number of the generation in a frame, so that their ids are none that was condemned before;
 *   keep      puts packs and index, then reads the list again: where something has been condemned that it has not heeded,
 *             it looks for each chunk of the epoch, those of unchanged files and of its own new packs too, and stores again what
 *             lies in packs that are condemned or gone; until there is nothing new;
 *   record    creates the record;
 *   again     keeps once more. Only then is the epoch durable, and may local copies go.
 * No lease is taken: a collection changes nothing that a writer relies on but what the writer looks at. And it must run beside a
 * mount that holds the lease for weeks. (A mount that collects does it for as long as it has the lease.)
 *
 * Why no epoch that is there loses a chunk. Let an epoch's record R name chunk c, and pack P with it be deleted by a collection that
 * did not see R: its mark was before R was created. P was condemned by a list that was published before that mark, so the
 * writer, when it keeps once more after R, reads that list or a later one. Later ones carry P until it is gone. So the writer has found P condemned, or
 * gone, and has stored c elsewhere, from P, or from its own copy, which stays until then. An un-condemned P (below) was seen by a mark
 * as the home of a live chunk, and is condemned again, by a later list, before it can go. This holds for any grace, even none; what the grace is for:
 *   - Between `keep` and `record` an epoch is not yet guarded, and with a grace longer than that moment it is never even for a moment incomplete
 *     (and when its writer dies there, nothing is missing). An upload that takes longer than the grace is no matter: it looks at the end.
 *   - Packs of an upload under way are in no index object. They are condemned when they were seen so for the
 *     grace. With a shorter one than an upload takes, the upload still ends well, but stores them twice.
 *   - Who has an epoch open that is dropped can read it for as long.
 * Where somebody holds the lease, no grace is below GC_WRITER_NS; a collection that is to have none waits for so long between its passes. And one that finds an epoch incomplete then
 * looks again before it says so: its writer may be about to complete it.
 * Two marks may see different records. A chunk that lies in a condemned pack alone and that a new record names makes that pack its home:
 * it is taken off the list. Each live chunk's home is a pack that is not condemned wherever there is one.
 *
 * Readers. An epoch's record names hashes, and packs only as a hint. A reader whose index leads to a pack that is gone reads the
 * index objects that are new, then all of them, and goes on; new index objects are put before old ones are condemned, and their numbers
 * are higher. An index object that is listed and gone is listed again. So a reader never fails for a collection, also with no grace.
 *
 * Killed anywhere. Packs that were put and not named are `unnamed`, and condemned later; those that were named are homes, so what
 * they replace goes next time. What was condemned and not deleted stays in the list, what was deleted is not found and leaves it. History is removed last.
 *
 * Clocks. The list has the time at which each thing was condemned, by the clock of who did it; another host's clock decides that
 * the grace has passed. One that is ahead by d makes the grace shorter by d, one behind longer; a time in the future counts as now. The argument above needs no
 * clock, so a wrong one costs at most what the grace is for.
 *
 * Where a remote's create-if-absent is only checked (REMOTE_CREATE_CHECKED), two collections that publish within a moment may both
 * succeed, and one list be lost: what it condemned is condemned next time. A writer that had read just this one may miss what the other condemned; so there, run one at a time.
 */
#ifndef EPOCHFS_META_COLLECTION_H
#define EPOCHFS_META_COLLECTION_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/format/gc_list.h"
#include "lib/remote/remote.h"
#include "lib/store/gc.h"
#include "lib/util/buf.h"

#define GC_GRACE_NS (INT64_C(24) * 3600 * 1000000000)
/* The least between condemning and deleting where somebody holds the lease: far above what lies between a writer's last look and his record. */
#define GC_WRITER_NS	(INT64_C(2) * 1000000000)
#define GC_KEEP_PERCENT 50

struct gc {
	const struct remote_limits *limits; /* NULL: the defaults */
	int64_t grace_ns;
	unsigned keep_percent; /* a pack with less of it live is rewritten; 0: none is */
	bool dry_run;	       /* nothing is written or deleted */
	bool background;       /* with few connections; one pass, whatever the grace */
	/* Asked before each change: anything but 0 ends it. May be NULL. */
	int (*confirm)(void *arg);
	/* A phase, and how far it is; any thread, one at a time, who may take their time. May be NULL. */
	void (*progress)(void *arg, const char *phase, uint64_t done, uint64_t total);
	void *arg;
};

struct gc_totals {
	struct store_gc_totals
		store; /* `before` of the first pass, `after` by what was written and deleted */
	struct store_gc_count after;
	uint64_t epochs;     /* that are there */
	uint64_t others;     /* old leases, lists and summaries that were deleted */
	uint64_t generation; /* of the list in force; 0: there is none */
	bool keeps_versions; /* what was deleted stays there, out of sight (remote_keeps_versions) */
};

/*
 * One collection; without a grace, a second pass deletes what the first condemned (and waits before it, as said above). 0, or -errno and a line that says what, where and what to do (the caller's to free; NULL: no memory):
 *   -EBADMSG     something live is damaged or missing, and nothing more was condemned or deleted
 *   -EEXIST      another collection is at work
 *   -EOPNOTSUPP  the remote cannot create an object only if it is absent
 *   else the error of the remote.
 */
int gc_collect(struct remote *remote, const struct gc *how, struct gc_totals *ret_totals,
	       char **ret_message);

/* ---- what epochs need of a remote, and the lists of what is condemned (gc_mark.c) ---- */

/* The records that name trees, as they were listed: those of epochs, and those of nodes' parts (nodes.h). */
struct gc_records {
	struct remote_keys parts;
	struct buf
		numbers; /* uint64_t each, ascending: all that are listed, then those that are no tombstones */
	uint64_t highest; /* of all, 0: none */
	uint64_t live;	  /* epochs that are there */
};
void gc_records_free(struct gc_records *r);
bool gc_records_has(const struct gc_records *r, uint64_t number);

/* Before anything else of a pass. The remote's errors. */
int gc_records_list(struct remote *remote, struct gc_records *ret_records);
/*
 * Marks all that they need; so many threads, each with a tree in memory. -EBADMSG: something is damaged or missing, and `why` says what; or the remote's.
 * The records that turn out to be tombstones are left out of `r` from then on.
 */
int gc_mark(struct remote *remote, struct store_gc *g, struct gc_records *r, unsigned readers,
	    void (*progress)(void *arg, const char *phase, uint64_t done, uint64_t total),
	    void *arg, struct buf *why);

/* The lists of garbage collections in a remote (format/gc_list.h): for collections and for writers. */

/* Older lists are history; so many generations stay. */
#define GC_LISTS_KEEP 8

/* The highest generation, 0: there is none. The remote's errors. */
int gc_lists_highest(struct remote *remote, uint64_t *ret_generation);
/* The list in force: -ENOENT: there is none; -EBADMSG: it is damaged, and its generation is set; -EPROTONOSUPPORT; or the remote's. */
int gc_lists_look(struct remote *remote, struct gc_list *ret_list);
/* Makes this the list in force. -EEXIST: another one has come before it; -EOPNOTSUPP: the remote has no create-if-absent; or the remote's. */
int gc_lists_publish(struct remote *remote, struct gc_list *list);
/* Removes history. */
int gc_lists_tidy(struct remote *remote, uint64_t highest);

#endif
