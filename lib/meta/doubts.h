/* SPDX-License-Identifier: Apache-2.0 */
/* Doubts: which files of a tree may not be whole, and whether its epoch is complete all the same. Pure: no I/O, no locks. */
#ifndef EPOCHFS_META_DOUBTS_H
#define EPOCHFS_META_DOUBTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/meta/doubt_units.h"
#include "lib/meta/rules.h"
#include "lib/util/buf.h"

/*
 * Contract 1.3: complete says that whoever resumes from an epoch finds a whole checkpoint. Doubt belongs to
 * files. It arises
 *   - for a file that is torn inside (DOUBT_TORN): its tail says so, it was not written out before a power loss,
 *     a write to it was refused and no later one covered that, or its writer was killed and it was not undone;
 *     the mark is on the content, so it lasts as long as the content does;
 *   - for a file that was undone because its writer was killed or refused, or that is left half or torn under a temporary name
 *     (DOUBT_UNDONE), where it has
 *     companions: other files of its unit, logs apart, whose content is newer than the newest complete epoch from
 *     before the kill; or where something is gone: the tree of that epoch has files of its unit that are not there any
 *     more, or it has a whole unit that is gone and whose step is above that of the newest unit left; or where the save made
 *     the directory of its unit, which holds no file but logs: who looks for the newest step finds that one. Without companions,
 *     and with nothing gone or left, the tree is as it was before that save, and nothing is in doubt. Of a node of a set nobody
 *     but the other nodes knows that: it is in doubt without companions, too (alone);
 *   - in the same way, for one epoch, for a file that was being replaced or made as that was sealed (doubts_volume.h);
 *   - for one epoch, for a file that its killed writer left as it was and whose format endures that, as a
 *     database or what is only appended to (DOUBT_LEFT).
 *
 * A process that was started after the kill of a file of the root saves nothing of that save: what it makes, as a restarted trainer its
 * settings, is no companion, unless that was saved together with the killed file before. In a directory with a step all is of one save.
 *
 * A doubt is settled when the file is saved again whole (also where it is renamed then: model.new to model.pt) or removed: by new
 * content, or in place where nothing of what was there before is left (lib/live/commit.c), or where that is a database;
 * that of an undone file also when each companion was saved again so or removed, or what was gone is there again; and by a
 * rollback, after which the doubts are those of the epoch that it restores, and those of a tree that is half of a save (partial_save.h).
 * That of a file that was not there before, in a save whose names carry no step, also when a process that was started later saves a new file
 * in its place, the same but for its numbers (doubts_volume.h).
 *
 * Units are those of doubt_units.h. A torn file that is a part of a save by its number is of the unit of its directory, as one whose
 * writer was killed is; its companion is a part beside it, which says so in later epochs, and settles nothing. Under a temporary name nothing counts until it is renamed; then its doubts move along.
 *
 * But a killed writer's file that has a temporary name itself, below no temporary directory, belongs to the unit that it
 * was to be part of: the save of which it is the last file, say, is half. Its companions are what was begun before the
 * kill, or by who lived then and goes on (doubts_kill.until). That doubt is settled, too, when the file of its final name, where the temporary one tells that, is saved by who
 * began after the kill (model.pt of .model.pt.tmp4711), or when the same temporary name is saved again and renamed to a
 * final one (doubts_volume.h); removing what is left under the temporary name alone settles nothing. One that is alone, and that no
 * file will have to be saved again for, since it was not there before and neither is that of its final name, is settled by any
 * file beside it, of its unit, that is saved by who began after the kill.
 *
 * An epoch is complete when no doubt of the root stands, nor one of its newest unit, the one that was changed last, or of
 * a unit around that. What gets its final name, or another step, by a rename is changed by that. As long as no unit is
 * changed, the newest stays the newest, also where it is moved: times of files, which anybody sets, decide as little as
 * possible. Where a unit that lies around others, as a job's directory, was changed last, the newest of those is it.
 * Beside what is new and torn a lower step that is new, too, is not: nobody knows which was closed last.
 * Other doubts are told, and cost nothing.
 */
enum doubt_kind {
	DOUBT_TORN,
	DOUBT_UNDONE,
	DOUBT_LEFT,
};

/* "torn", "undone", "left"; parse gives DOUBT_TORN for what it does not know. */
const char *doubt_kind_name(enum doubt_kind kind);
enum doubt_kind doubt_kind_parse(const char *name);
/* What settles it, as half a sentence for people. `companions`: whether it has some; else it is alone, or something is gone. */
const char *doubt_settled_by(enum doubt_kind kind, bool companions, bool alone);

/* ---- judging a tree ---- */

/* So many companions of a doubt are kept, and so many doubts are told by name. A doubt that has more is not settled by them. */
#define DOUBT_COMPANIONS_MAX 4096
#define DOUBTS_NAMED_MAX     256

/* A regular file of the tree, by one of its names. Logs are left out by the caller. */
struct doubts_file {
	const char *path;
	uint64_t ino, version; /* versions rise; 0 where they are not known (import) */
	uint64_t born;	       /* the epoch that has its content first */
	/* Of one that a rename has brought to its unit since `after`: the version that was to be made next then; else 0. */
	uint64_t came;
	int64_t mtime_ns;
	const char *torn; /* why its content is torn; NULL: it is not */
	/*
	 * Of one that is torn and was saved again, under the same name: a file beside it, the same but for the number, that was saved
	 * again as well, where both had content of one save before. Then the numbers count the parts of a save. NULL: there is none.
	 */
	const char *part_beside;
};

struct doubt_companion {
	uint64_t ino, version;
	char *path; /* owned */
};

/* A file whose writer was killed, as it was noted, and what has become of it. Strings are copied. */
struct doubts_kill {
	uint64_t id; /* of the order of versions: what was begun after the kill has a greater one */
	enum doubt_kind kind; /* UNDONE or LEFT */
	const char *path;     /* where it is now; of one that is not there, where it would be */
	const char *noted;    /* where it was then; NULL: there */
	const char *why;
	uint64_t since; /* the epoch that was open */
	int64_t at_ns;
	uint64_t base;			 /* the newest complete epoch before it; 0: none */
	uint64_t ino_then, version_then; /* what had its name when that was over; 0: nothing */
	bool parent_is_gone; /* the directory that it was in: then `path` tells what has its name */
	bool parent_is_new;  /* it is there, and the epoch `base` has not got it */
	uint64_t ino_now,
		version_now; /* what has its name, or itself where it was renamed; 0: nothing */
	bool alone; /* it is in doubt without companions, too: other nodes of a set may have them */
	/*
	 * The last version that a process saved which lived at the kill, and goes on with the same save, as other ranks do; 0: there is
	 * none. Of one with a temporary name, and of one in the root.
	 */
	uint64_t until;
	/* Of one that an earlier epoch has judged: its companions, which stand while they have this content. */
	bool judged;
	const struct doubt_companion *companions;
	size_t companion_count;
	/*
	 * Of one that none has judged: files that had content of the killed save, so born since then, and were saved again after the
	 * kill. What an earlier save left is no companion that is done again, but what goes with the killed file.
	 */
	const uint64_t *again;
	size_t again_count;
	/* Likewise: files that had content of the save that the killed file's is of, and were saved again after the kill; and what had
	 * content of the killed save, and was changed in part since, or not at all. */
	const uint64_t *together;
	size_t together_count;
};

/* One that stands, or one of a kill that was settled. */
struct doubt {
	enum doubt_kind kind;
	uint64_t id; /* of the kill; 0: torn */
	char *path, *why;
	char *noted; /* its path as it was killed, where its directory was moved from there, and no step was in that; else NULL */
	uint64_t since;
	int64_t at_ns;
	struct doubt_companion *companions;
	size_t companion_count, companion_cap;
	bool stands;
	bool counts; /* the epoch is not complete because of it */
	bool gone; /* it stands because of what is gone since, or of a directory that it left empty */
	bool alone; /* it stands though it has no companions, which other nodes may have */
	bool postponed; /* it stands, but is to be judged when its temporary name has become a final one */
};

struct doubts;

/*
 * `after`: content with a greater `born` is new, and so is what came to its unit since; the newest of that says which unit
 * was changed last. Where nothing of a unit is new it is the one that was so before, if that is still there, else `born`
 * decides, then mtime. UINT64_MAX: nothing is new (a restored tree). `rules` must stay.
 */
int doubts_new(const struct rules *rules, uint64_t after, struct doubts **ret_doubts);
void doubts_free(struct doubts *d); /* NULL is allowed */
#define cleanup_doubts CLEANUP(doubts_free_at)
void doubts_free_at(struct doubts **d);

/* Before all: a file of the unit that was the newest in the epoch before, or in the one that is restored. Copied. 0 or -ENOMEM. */
int doubts_set_before(struct doubts *d, const char *newest);
/* Likewise: this file was torn in that epoch, and a part beside the other one. It is so for as long as it has that content. */
int doubts_set_part(struct doubts *d, const char *path, const char *beside);
/* First all kills, then all files, then what is gone; then the decision. 0 or -ENOMEM. */
int doubts_add_kill(struct doubts *d, const struct doubts_kill *kill);
int doubts_add_file(struct doubts *d, const struct doubts_file *file);
/* The least epoch above `after` that is the base of a kill for which it matters what is gone since; 0: none. */
uint64_t doubts_next_base(const struct doubts *d, uint64_t after);
/* A file, no log, that the tree of this base has, and this one has not. */
void doubts_add_gone(struct doubts *d, uint64_t base, const char *path);
/* The tree of this base cannot be had now: the doubts that ask for it stand. */
void doubts_gone_unknown(struct doubts *d, uint64_t base);
int doubts_decide(struct doubts *d);

/* After the decision: those of kills in their order, then torn files in that of the tree. Of torn ones at most
 * DOUBTS_NAMED_MAX, those that count first. */
const struct doubt *doubts_list(const struct doubts *d, size_t *ret_count);
/* How many stand and count, named or not. */
size_t doubts_counting(const struct doubts *d);
/* The path of a file of the unit that was changed last, or NULL where no path carries a step. */
const char *doubts_newest(const struct doubts *d);

/* ---- why an epoch is not complete: "NAME: why", of the first few files ---- */

/* So many files are named. */
#define REASON_NAMED_MAX 4

/* Adds one; `named` counts all of them, from 0. */
void reason_add(struct buf *reason, unsigned *named, const char *name, const char *why);
/* After the last: how many more there are. */
void reason_end(struct buf *reason, unsigned named);

#endif
