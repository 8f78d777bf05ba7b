/* SPDX-License-Identifier: Apache-2.0 */
/* The epoch's record: the small JSON object by which an epoch exists. */
#ifndef EPOCHFS_FORMAT_RECORD_H
#define EPOCHFS_FORMAT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/*
 * One JSON object (RFC 8259), indented, keys in the order below, one newline at its end:
 *
 *   "format"         1; a higher one is refused
 *   "epoch"          number, from 1
 *   "parent"         number of the epoch before it in this volume; absent for none
 *   "volume"         the volume's UUID
 *   "complete"       true, false or "unknown"
 *   "reason"         why it is not complete
 *   "doubts"         files that may not be whole (lib/meta/doubts.h): [ { "path", "kind", "why", "since": the epoch
 *                    that was open then, "at": when, "counts": true where the epoch is not complete because of it,
 *                    "alone": true where it has more companions than are named, or other nodes of a set may have saved
 *                    files with it, "companions": paths } ];
 *                    where there are many, not all. Of a path that is not UTF-8, "path_bytes" is
 *                    the hex of its bytes, and such companions are in "companions_bytes" so
 *   "newest"         a file of the unit that was changed last, of those with a step (lib/meta/doubts.h)
 *   "doubted"        true where it is not complete for its doubts alone
 *   "continues"      number of the epoch that this one completes
 *   "continues_from" number of the first of the epochs that this one completes, where that is an earlier one: each of them that
 *                    was sealed by itself is half of the same save
 *   "half"           number of the earlier epoch that a save with a step began with: this one continues it, or says nothing
 *                    of it and may have the same half
 *   "rule"           by which it is complete or not: "J2" (judge_rules.h)
 *   "saves"          what the rules of saves know then, for the next mount (saves_put_known)
 *   "renames"        names after whose rename a save went on, so that it is no sign (contract 1.3.2): hashes in hex, separated by spaces
 *   "restores"       number of the epoch whose tree a rollback brought back
 *   "trigger"        what sealed it, a name of record_trigger_name
 *   "step"           the training step, a number; "step_name": the name it was found in
 *   "message" "host" "run_id" "user"
 *   "opened" "sealed" "durable"   RFC 3339, UTC, nanoseconds
 *   "save_ns"        nanoseconds from the first change to the last close
 *   "files" "directories" "symlinks" "specials"     what the tree holds
 *   "added" "changed" "removed"   paths, against the parent
 *   "bytes" "bytes_new" "bytes_stored"  files' sizes; plain bytes not stored before; bytes uploaded
 *   "tree"           { "hash", "size", "chunks": [ { "hash", "length", "pack", "offset", "stored" } ] };
 *                    a record kept on this machine may lack the chunks, or all of it, as long as
 *                    they are not stored; one in the remote has them
 *   "packs"          ids of the packs that "tree.chunks[].pack" counts from 0
 *   "indexes"        keys of the index objects that this epoch added
 *   "generation" "nodes"   of a node set (lib/upload/nodes.h): the generation of its lease, and how many
 *                    nodes it has
 *   "part"           in what one node sealed (parts/, names.h), and nowhere else: { "node", "sequence",
 *                    "base": the epoch that its live tree began from, "after": the step before it, and
 *                    "count": how many without a step came since, itself included }; the last two only
 *                    where it has no step. Then "epoch" means nothing
 *   "parts"          in an epoch put together of parts: the same of each
 *   "missing"        names of nodes whose part never came
 *   "conflicts"      paths that several nodes wrote, each differently: what was kept under which name
 *   "db_type" "db_prefix" "path_type" "path_prefix" "node_names"   what a metadata writer records
 *
 * A key whose value is unknown or empty is left out; unknown keys are ignored, so that a later
 * program may add some. Where chunks lie (pack, offset, stored) is a hint: the index is right where
 * it says otherwise, and a chunk without a hint has no "pack". Bytes of a text that are not UTF-8
 * are written as U+FFFD, and a text longer than RECORD_TEXT_MAX bytes is cut.
 */
#define RECORD_ENCODED_MAX (1u << 20)
#define RECORD_TEXT_MAX	   (16u << 10)
#define RECORD_LIST_MAX	   4096

enum record_complete {
	RECORD_UNKNOWN,
	RECORD_INCOMPLETE,
	RECORD_COMPLETE,
};

enum record_trigger {
	RECORD_TRIGGER_UNKNOWN, /* also any name that this program does not know */
	RECORD_TRIGGER_COMMIT,
	RECORD_TRIGGER_MKDIR, /* mkdir .epochs/NAME */
	RECORD_TRIGGER_SYNC,  /* sync .epochs */
	RECORD_TRIGGER_WAIT,
	RECORD_TRIGGER_RENAME,
	RECORD_TRIGGER_MARKER,
	RECORD_TRIGGER_QUIET,
	RECORD_TRIGGER_CLOSE,  /* settle=0 */
	RECORD_TRIGGER_KILLED, /* a writer died */
	RECORD_TRIGGER_UMOUNT,
	RECORD_TRIGGER_ROLLBACK,
	RECORD_TRIGGER_RECOVERY, /* the first mount after a crash */
	RECORD_TRIGGER_IMPORT,
	RECORD_TRIGGER_NEXT, /* the next save began */
	RECORD_TRIGGER_COUNT,
};

/* The names are those above in lower case: "unknown", "commit", "mkdir", ... */
const char *record_trigger_name(enum record_trigger trigger);
enum record_trigger record_trigger_parse(const char *name);
/* Whether somebody's word, or the program's end, says that the save was over. */
bool record_trigger_by_hand(enum record_trigger trigger);
/* Sealed by the sealer's own decision, not because somebody asked. */
bool record_trigger_automatic(enum record_trigger trigger);

#define RECORD_NO_PACK UINT32_MAX

struct record_chunk {
	struct hash hash;
	uint32_t length;     /* plain */
	uint32_t pack;	     /* counts in `packs`, or RECORD_NO_PACK */
	uint32_t offset;     /* of the frame in the pack */
	uint32_t stored_len; /* of the frame */
};

/* What one node of a set sealed. */
struct record_part {
	char *node;	   /* a valid name (names.h) */
	uint64_t sequence; /* rises with each part of that node */
	uint64_t base;	   /* 0: none */
	bool has_after;
	uint64_t after, count; /* count 0: it has a step */
};

/* A file that may not be whole. */
struct record_doubt {
	char *path, *why; /* of malloc */
	char *kind;
	uint64_t since; /* 0: not known */
	int64_t at_ns;	/* 0: not known */
	bool counts;
	bool alone; /* it has more companions than these, or other nodes of a set may have saved files with it */
	char **companions;
	size_t companion_count;
};

/* Zero-initialise, free with record_free or mark `cleanup_record`. Strings are of malloc; NULL is
 * absent. Numbers are at most INT64_MAX; times are nanoseconds since 1970, 0 is absent. */
struct epoch_record {
	uint64_t number;
	uint64_t parent; /* 0: none */
	char volume[37];
	enum record_complete complete;
	char *reason;
	struct record_doubt *doubts;
	size_t doubt_count;
	char *newest;		 /* NULL: none */
	bool doubted;		 /* not complete for its doubts alone */
	uint64_t continues;	 /* 0: none */
	uint64_t continues_from; /* 0: `continues` */
	uint64_t half;		 /* 0: none */
	char *renames;		 /* NULL: none is known */
	char *rule, *saves;	 /* NULL: likewise */
	uint64_t restores;	 /* 0: none */
	enum record_trigger trigger;
	bool has_step;
	uint64_t step;
	char *step_name;
	char *message;
	char *host;
	char *run_id;
	char *user;
	int64_t opened_ns;
	int64_t sealed_ns;
	int64_t durable_ns;
	uint64_t save_ns;
	uint64_t files;
	uint64_t directories;
	uint64_t symlinks;
	uint64_t specials;
	uint64_t added;
	uint64_t changed;
	uint64_t removed;
	uint64_t bytes;
	uint64_t bytes_new;
	uint64_t bytes_stored;
	struct hash tree_hash; /* SHA-256 of the tree's bytes */
	uint64_t tree_size;
	struct record_chunk *chunks; /* the tree's, in order */
	size_t chunk_count;
	struct hash *packs;
	size_t pack_count;
	char **indexes;
	size_t index_count;
	uint64_t generation, nodes; /* 0: none */
	struct record_part part;    /* node NULL: an epoch */
	struct record_part *parts;
	size_t part_count;
	char **missing;
	size_t missing_count;
	char **conflicts;
	size_t conflict_count;
	char *db_type;
	char *db_prefix;
	char *path_type;
	char *path_prefix;
	char **node_names;
	size_t node_count;
};

void record_free(struct epoch_record *r);
#define cleanup_record CLEANUP(record_free)
void record_doubts_free(struct record_doubt *doubts, size_t count);
/*
 * So many bytes of encoded text a doubt takes at most, with the companions that it has, and a companion. So much all doubts of
 * a record may take: it has room for as much else.
 */
#define RECORD_DOUBTS_SIZE_MAX (RECORD_ENCODED_MAX / 2)
size_t record_doubt_size(const struct record_doubt *d);
size_t record_companion_size(const char *path);
/* There is no room for the last one: it goes. */
void record_doubt_drop_last(struct epoch_record *r);
/* The copy is to be freed also where memory ended. */
int record_doubt_copy(const struct record_doubt *d, struct record_doubt *ret_copy);
/* A deep copy: 0 or -ENOMEM. */
int record_copy(const struct epoch_record *r, struct epoch_record *ret_copy);

/* Appends the JSON text to `out`: 0, -EINVAL where a field breaks a rule above, -EFBIG where the
 * text would be longer than RECORD_ENCODED_MAX, -ENOMEM. */
int record_encode(const struct epoch_record *r, struct buf *out);
/* 0, -EBADMSG (not a record, or one with a wrong field), -EPROTONOSUPPORT (newer format), -ENOMEM.
 */
int record_decode(const void *data, size_t len, struct epoch_record *ret_record);

/* ---- the tombstone, which stays under an epoch's key when the epoch is dropped ---- */

/*
 * A JSON object under the key of the epoch's record (names.h):
 *
 *   { "format": 1, "epoch": N, "dropped": TIME, "continues": N, "continues_from": N, "record": TEXT }
 *
 * "continues" and "continues_from", which may be missing, are as in the record that was there: the epochs that this one continued are
 * half of a save all the same. Older tombstones have the second in the record alone.
 * "record", which may be missing, is the text of the record that was there, so that the epoch can be brought back while the garbage
 * collection has not deleted what it names. So a tombstone that has one is longer than the record, and who remembers
 * the sizes of objects sees that the record is gone.
 *
 * It keeps the number taken, on every machine, so that create-if-absent refuses it for ever.
 * record_decode refuses a tombstone (-EBADMSG), and tombstone_decode a record.
 */

struct tombstone {
	uint64_t number;
	int64_t dropped_ns;		    /* wall clock */
	uint64_t continues, continues_from; /* 0: none, as in the record */
};

/* Appends the text: 0, -EINVAL, -ENOMEM, or -EFBIG where the record is too long. `record`: NUL-terminated, or NULL. */
int tombstone_encode(const struct tombstone *t, const char *record, struct buf *out);
/* 0; -EBADMSG where these bytes are no tombstone, -EPROTONOSUPPORT for a newer format. */
int tombstone_decode(const void *data, size_t len, struct tombstone *ret_tombstone);
/* The same, and the record, which is the caller's to decode and to free: NULL where there is none. What the epoch continued is also
 * told where the record alone says that. */
int tombstone_decode_record(const void *data, size_t len, struct tombstone *ret_tombstone,
			    char **ret_record);

#endif
