/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local state of one volume: state.db, an SQLite database in WAL mode in cache-dir/<volume
 * uuid>/. All SQL of epochfs is behind this header.
 *
 * Entities
 *   file     an identity: inode number, type, mode, owner, times, xattrs, names (links). A regular
 *            file has
 *              `live`    the version that everyone who opens it sees (0: none yet)
 *              `closed`  the version that was last closed, which the next epoch takes (0: never
 *                        closed)
 *              `body`    the lineage of its content: stays while the file is changed in place,
 *                        changes when the content is replaced (O_TRUNC, rollback). (ino, body) is
 *                        what a kernel node stands for.
 *            live == closed unless the file is open for writing and new or changed since.
 *   version  content: an id, a size, a state; its bytes lie in objects/<id in 16 hex digits> while
 *            they are local. Immutable once closed. It was in the live tree, closed, during the
 *            epochs [born, died): `born` is the number of the first epoch that can hold it, `died`
 *            the first that cannot (0: still alive). So sealing costs no update: a version is
 *            needed locally while an epoch in [born, died) is not durable.
 *   epoch    number, state, record (its JSON), and the name of the local tree file trees/<number>.
 *
 * Durability: a commit survives the end of the daemon at once (it is in the WAL) and a power loss
 * after state_sync(). The WAL is moved into the database by a thread of the state's own.
 *
 * Locks: the main connection is used only with the volume's lock held; a snapshot or reader
 * (state_snapshot_begin, state_reader_take) is a connection of its own and belongs to one thread. All functions return 0 or
 * -errno (-ENOENT: no such row; -EUCLEAN: the database is damaged; -ENOSPC, -EIO from the disk).
 */
#ifndef EPOCHFS_STATE_STATE_H
#define EPOCHFS_STATE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "lib/util/buf.h"
#include "lib/util/hash.h"

struct reserve;
struct state;

#define ROOT_INO 1

/*
 * Opens or makes the database at `path`, which lies in the directory `cache_dirfd` (not kept; it is
 * fsynced), and beside it the reserve that its writes use where the disk is full. -EUCLEAN: not a state of epochfs, or damaged; -EPROTONOSUPPORT: of a newer version of epochfs.
 */
int state_open(int cache_dirfd, const char *path, struct state **ret_state);
/* The same for one that must be there: -EUCLEAN where it is missing or holds nothing. */
int state_open_existing(int cache_dirfd, const char *path, struct state **ret_state);
/*
 * Reads all of it and compares what its pages say of each other (a million chunks and 300,000 names, 90 MB, take
 * 0.15 s); `indexes`: and each index with its table, which takes twice as long. -EUCLEAN, and a line in the log, where it is damaged.
 */
int state_check(struct state *s, bool indexes);
/* Before it is opened, where a process that was killed left it: -EUCLEAN where the journal is damaged in the
 * middle. (state_journal.c) */
int state_check_journal(int cache_dirfd);
/* Whether a query has met damage since it was opened. Any thread. */
bool state_is_damaged(const struct state *s);
/*
 * What can still be read of a damaged one in the directory `dirfd`, which must stay open: only functions that
 * read may be used, and those give -EUCLEAN, or -ENOENT, for what cannot be. Tells nothing of it in the log.
 */
int state_open_damaged(int dirfd, struct state **ret_state);
/* Space that is kept for when the cache's disk is full (reserve.h); the state's own. */
struct reserve *state_reserve(struct state *s);
/* Rises with each row that is changed. */
uint64_t state_changes(struct state *s);
/* All snapshots must have ended. */
void state_close(struct state *s);
/* Makes all commits so far survive a power loss (fsync of the WAL). Needs no lock. */
int state_sync(struct state *s);

/* Transactions nest by counting; the outermost commits. A failed inner one makes the outermost roll
 * back. */
int state_begin(struct state *s);
/* Commits, or rolls back where `error` is not 0 (or an inner one failed): gives error, or that of
 * the commit. */
int state_end(struct state *s, int error);

/* Where a function appends to a `buf`, what it held before stays. */

/* Small values by name: volume uuid, boot id, next inode, last epoch number, ... */
int state_get_meta(struct state *s, const char *key, struct buf *out); /* -ENOENT */
int state_set_meta(struct state *s, const char *key, const char *value);
int state_get_meta_u64(struct state *s, const char *key, uint64_t *ret_value); /* -ENOENT */
int state_set_meta_u64(struct state *s, const char *key, uint64_t value);

/* ---- files and names ---- */

struct state_file {
	uint64_t ino;
	uint32_t mode; /* with the type */
	uint32_t uid, gid;
	uint32_t rdev;
	uint32_t nlink;
	uint64_t size; /* of closed content; directories 4096, symlinks the target's length */
	int64_t mtime_ns, ctime_ns, atime_ns;
	uint64_t live, closed, body;
	uint64_t born;	 /* number of the first epoch that can hold this file */
	uint64_t parent; /* of a directory: its parent (the root: itself); else 0 */
};

/* Gives the file a fresh inode number (never used before in this state) and stores it. */
int state_file_new(struct state *s, struct state_file *f, uint64_t *ret_ino);
int state_file_get(struct state *s, uint64_t ino, struct state_file *ret_file);
int state_file_set(struct state *s, const struct state_file *f);
/* Removes the file with its xattrs and link target; its versions stay for the caller to reclaim. */
int state_file_remove(struct state *s, uint64_t ino);
/* Files without a name (nlink 0), which wait for their last close: what recovery removes. Looks at
 * every file. */
typedef int (*state_file_fn)(void *arg, const struct state_file *f);
int state_file_each_unlinked(struct state *s, state_file_fn fn, void *arg);
int state_symlink_get(struct state *s, uint64_t ino, struct buf *out);
int state_symlink_set(struct state *s, uint64_t ino, const void *target, size_t len);
uint64_t state_file_count(struct state *s);

struct state_name {
	uint64_t id; /* the cookie of readdir: rises with each name that is made, and stays where a
		      * name changes within its directory */
	uint64_t parent;
	uint64_t ino;
	uint64_t covered; /* a committed file that this name hid by a rename of one that is still
			     open and new; 0: none */
};

int state_name_get(struct state *s, uint64_t parent, const char *name, struct state_name *ret_name);
/* The name and the file in one search: -ENOENT where either is missing. */
int state_name_lookup(struct state *s, uint64_t parent, const char *name,
		      struct state_name *ret_name, struct state_file *ret_file);
/* -EEXIST where the name is there; that spoils no transaction. */
int state_name_add(struct state *s, uint64_t parent, const char *name, uint64_t ino);
/* Points an existing name elsewhere (and sets covered). Keeps its id. */
int state_name_set(struct state *s, uint64_t parent, const char *name, uint64_t ino,
		   uint64_t covered);
/* Gives it another name in the same directory, where that is free: it keeps its id and covers nothing. */
int state_name_change(struct state *s, uint64_t parent, const char *name, const char *new_name);
int state_name_remove(struct state *s, uint64_t parent, const char *name);
/* 0 or -ENOTEMPTY. */
int state_dir_empty(struct state *s, uint64_t ino);
/* How many directories lead to it (the root: 0), and how many levels of directories lie below it. */
int state_dir_depth(struct state *s, uint64_t ino, uint64_t *ret_depth);
int state_dir_height(struct state *s, uint64_t ino, uint64_t *ret_height);
/*
 * Calls fn for the names of a directory with id < before (0: for all), the newest first, joined with
 * their files (NULL for one that is missing: never in a sound state). A non-zero result of fn stops
 * and is returned. fn must not change names.
 */
typedef int (*state_name_fn)(void *arg, const struct state_name *n, const char *name,
			     const struct state_file *f);
int state_dir_list(struct state *s, uint64_t parent, uint64_t before, state_name_fn fn, void *arg);
/* The same in bytewise order of names: what a tree wants. */
int state_dir_list_sorted(struct state *s, uint64_t parent, state_name_fn fn, void *arg);
/* All names of a file (hard links); path_of in live.h makes paths of them. */
int state_names_of(struct state *s, uint64_t ino, state_name_fn fn, void *arg);
/* Every name with covered == ino or pointing to ino is found by index: used by undo. */
int state_name_covering(struct state *s, uint64_t covered, uint64_t *ret_parent,
			struct buf *ret_name);

int state_xattr_get(struct state *s, uint64_t ino, const char *name,
		    struct buf *out); /* -ENODATA */
int state_xattr_set(struct state *s, uint64_t ino, const char *name, const void *v, size_t len);
int state_xattr_remove(struct state *s, uint64_t ino, const char *name); /* -ENODATA */
typedef int (*state_xattr_fn)(void *arg, const char *name, const void *value, size_t len);
int state_xattr_list(struct state *s, uint64_t ino, state_xattr_fn fn, void *arg);

/* ---- versions ---- */

enum version_state {
	VERSION_STAGED,	 /* open for writing, or was when the daemon ended */
	VERSION_CLOSED,	 /* committed; its bytes are only here: never evicted */
	VERSION_DURABLE, /* its recipe (or inline bytes) is known and all of it is in the remote:
			  * may be evicted */
};

enum version_kind {
	VERSION_NEW,	 /* first content of a new file */
	VERSION_REPLACE, /* pending replacement by O_TRUNC of committed content */
	VERSION_EDIT,  /* changed in place: took over the backing file of the version it follows */
	VERSION_CACHE, /* only a local copy of what an epoch in the remote holds; of no file */
};

struct state_version {
	uint64_t id;
	uint64_t ino; /* 0 for VERSION_CACHE */
	uint64_t body;
	enum version_state state;
	enum version_kind kind;
	uint64_t size;
	uint64_t born, died;
	/* an epoch that has these bytes, where an earlier version had them: nothing was saved; the first, or the one that a rollback restored.
	 * Or later than `born`: the first that has it where it took the place of another file, which epochs have under another name. 0: `born` */
	uint64_t saved;
	/* the epoch that has first what this took the place of, in the same file; of several in one epoch, the first, and what
	 * a killed try of the same save has left counts as one of them; 0: nothing was */
	uint64_t replaced;
	bool fragile; /* a killed writer undoes it: replaced by O_TRUNC, or new, write-only, no
			 O_APPEND, never fsynced */
	bool output; /* staged, and valid at every length (lib/live/output.h): a kill neither undoes nor tears it */
	bool fsynced; /* as it was closed; of a staged version, as its last close that counted promised it */
	bool rests_on_fsync; /* it began with bytes that an fsync had made safe, and has them still */
	bool torn;	     /* closed, but its format's tail says that it is cut off */
	bool lost; /* torn, as a power loss, or a disk without room, took what was not written out */
	bool has_recipe;
	struct hash recipe; /* VERSION_DURABLE with size > inline: the recipe's hash */
	/* so many bytes of `size` are in the recipe's runs of zeros; of a staged version, so many of `flushed_size` had no block then */
	uint64_t holes;
	/* what close() promised: size and ctime of the backing file at the last FLUSH that counted;
	 * 0: none */
	uint64_t flushed_size;
	int64_t flushed_ctime_ns;
	/* bytes of the backing file that are there: 0 = no backing file, size = whole (empty
	 * versions need none) */
	uint64_t local_bytes;
	bool local_whole;
	/* wall clock of the last open, by which eviction takes the smallest; of a staged version the last close that counted */
	int64_t used_ns;
};

/* The epoch that has these bytes first, in their place. */
static inline uint64_t state_version_epoch(const struct state_version *v)
{
	return v->saved ? v->saved : v->born;
}

/* The same, but a rollback puts them there anew. */
static inline uint64_t state_version_placed(const struct state_version *v)
{
	return v->saved > v->born ? v->saved : v->born;
}

/* Gives a fresh id (never reused) and stores it. */
int state_version_new(struct state *s, struct state_version *v, uint64_t *ret_id);
/* The id that the next one gets: all that there are have lower ones. */
uint64_t state_version_next(const struct state *s);
int state_version_get(struct state *s, uint64_t id, struct state_version *ret_version);
int state_version_set(struct state *s, const struct state_version *v);
int state_version_remove(struct state *s, uint64_t id);
/* A durable version with this recipe and size (a hostile tree may claim another), local ones first:
 * -ENOENT. */
int state_version_by_recipe(struct state *s, const struct hash *recipe, uint64_t size,
			    struct state_version *ret_version);
typedef int (*state_version_fn)(void *arg, const struct state_version *v);
/* Staged versions, and those closed but never made durable: what recovery looks at. */
int state_version_each_unsafe(struct state *s, state_version_fn fn, void *arg);
/* Notes what a version took the place of. */
int state_version_replaces(struct state *s, uint64_t id, uint64_t epoch);
/* Live versions that took the place of what epochs `from` to `to` have first, and that an epoch after `after` and before `before` has first;
 * at most `limit`. */
int state_version_each_replacing(struct state *s, uint64_t from, uint64_t to, uint64_t after,
				 uint64_t before, size_t limit, state_version_fn fn, void *arg);
/* Versions with died != 0, or of kind CACHE without local bytes: candidates for burial, oldest
 * first, at most `limit`. */
int state_version_each_dead(struct state *s, size_t limit, state_version_fn fn, void *arg);
/* Durable versions with local bytes, least recently used first. */
int state_version_each_evictable(struct state *s, state_version_fn fn, void *arg);
/* Sum of local_bytes of all versions, and of those that are not durable. */
int state_version_totals(struct state *s, uint64_t *ret_local, uint64_t *ret_dirty);
/* Also true where the database cannot tell: what does not exist is removed from the disk. */
bool state_version_exists(struct state *s, uint64_t id);
/* Content of at most 4096 bytes kept in the database for durable versions of adopted trees:
 * -ENOENT. */
int state_inline_get(struct state *s, uint64_t version, struct buf *out);
int state_inline_set(struct state *s, uint64_t version, const void *data, size_t len);

/* ---- epochs and tags ---- */

enum epoch_state {
	EPOCH_SEALED, /* frozen here; waits for its upload */
	EPOCH_UPLOADING,
	EPOCH_DURABLE, /* its record is in the remote */
	EPOCH_FAILED,  /* the last try failed (error says why); it is tried again */
	EPOCH_DROPPED, /* tombstone: the number is never used again */
};

struct state_epoch {
	uint64_t number;
	enum epoch_state state;
	char *record; /* JSON (lib/format/record.h), owned: state_epoch_free; NULL for a tombstone
			 that the remote knows, and for a SEALED epoch that is not frozen yet
			 (sealer.h): skip it */
	char *error;  /* owned; why it failed, or NULL */
	bool remote_delete_pending; /* dropped here, the remote does not know yet */
	bool superseded;	    /* a later epoch continues this one: it is no longer complete */
};

void state_epoch_free(struct state_epoch *e);
int state_epoch_get(struct state *s, uint64_t number, struct state_epoch *ret_epoch);
int state_epoch_set(struct state *s, const struct state_epoch *e);
typedef int (*state_epoch_fn)(void *arg, const struct state_epoch *e);
/* Ascending; tombstones too. */
int state_epoch_each(struct state *s, state_epoch_fn fn, void *arg);
/* Those from `first` on, before `end`. */
int state_epoch_each_between(struct state *s, uint64_t first, uint64_t end, state_epoch_fn fn,
			     void *arg);
/* Those with remote_delete_pending. It costs nothing where there are none, however many epochs there are. */
int state_epoch_each_delete(struct state *s, state_epoch_fn fn, void *arg);
/* How many epochs are neither durable nor dropped, the smallest number of them (0: none), and how many drops the
 * remote does not know. */
int state_epoch_count_waiting(struct state *s, uint64_t *ret_pending, uint64_t *ret_oldest,
			      uint64_t *ret_deletes);
/* The smallest number that is SEALED (and frozen), UPLOADING or FAILED: -ENOENT when all is durable. */
int state_epoch_first_pending(struct state *s, uint64_t *ret_number);
/*
 * Epochs from `next` on that began and have no record (sealer.h) never were: their rows go, and what
 * was born or died later than `next` was so at `next`. After a crash only: it reads all versions.
 */
int state_epochs_rewind(struct state *s, uint64_t next);
/*
 * For a cache that leaves numbers from `first` on (nodes.h): rows of epochs with such numbers go, and what was born so was
 * born in epoch 1. Nothing may be pending.
 */
int state_forget_numbers(struct state *s, uint64_t first);
/* Whether an epoch that is not durable and not dropped has a number in [born, died) (died 0: no
 * end). */
bool state_epoch_pending_in(struct state *s, uint64_t born, uint64_t died);

int state_tag_get(struct state *s, const char *name, uint64_t *ret_number);
int state_tag_set(struct state *s, const char *name, uint64_t number);
int state_tag_remove(struct state *s, const char *name); /* -ENOENT */
typedef int (*state_tag_fn)(void *arg, const char *name, uint64_t number);
int state_tag_each(struct state *s, state_tag_fn fn, void *arg);
/* Tag changes that the remote has not seen: marked by tag_set and tag_remove, cleared by
 * state_tag_synced. number 0: removed. */
int state_tag_each_unsynced(struct state *s, state_tag_fn fn, void *arg);
int state_tag_synced(struct state *s, const char *name, uint64_t number);

/* ---- what is to be announced (announce.h): a queue for each sink ---- */

/* Appends; ids rise within what waits. */
int state_announcement_add(struct state *s, unsigned sink, const char *text);
/* The oldest: -ENOENT. Free the text. */
int state_announcement_first(struct state *s, unsigned sink, uint64_t *ret_id, char **ret_text);
int state_announcement_remove(struct state *s, unsigned sink, uint64_t id);
/* All of a sink. */
int state_announcements_clear(struct state *s, unsigned sink);
int state_announcements_count(struct state *s, unsigned sink, uint64_t *ret_count);

/* ---- files whose writers were killed (doubts.h says what the columns mean) ---- */

struct state_doubt {
	uint64_t id;
	unsigned kind;
	uint64_t parent; /* the directory that it was in; 0: not known */
	char name[256];
	char *path; /* from the root, when it was noted; owned: state_doubt_free */
	uint64_t ino, version, since;
	int64_t at_ns;
	bool judged;
	bool alone; /* judged without companions, which other nodes of a set may have */
	char *why;  /* owned */
};
void state_doubt_free(struct state_doubt *d);
/* In place of one of the same parent and name that is not judged yet. Gives it an id. */
int state_doubt_add(struct state *s, const struct state_doubt *d, uint64_t *ret_id);
/* The same, by the id that it has: that of a version. -EEXIST where there is one of that id. */
int state_doubt_add_given(struct state *s, const struct state_doubt *d);
/* As state_doubt_add, and one of the same parent and name stays. */
int state_doubt_add_beside(struct state *s, const struct state_doubt *d, uint64_t *ret_id);
/* A doubt and its files go. */
int state_doubt_remove(struct state *s, uint64_t id);
int state_doubts_clear(struct state *s);
/* The save that was killed began with this epoch. */
int state_doubt_since(struct state *s, uint64_t id, uint64_t since);
/* It is judged, `alone` or not, and has this path from now on; its files are forgotten. -ENOENT. */
int state_doubt_judge(struct state *s, uint64_t id, const char *path, bool alone);
/* Whether there is one; true where that cannot be told. */
bool state_doubt_any(struct state *s);
/* Ascending by id. */
typedef int (*state_doubt_fn)(void *arg, const struct state_doubt *d);
int state_doubt_each(struct state *s, state_doubt_fn fn, void *arg);
/* Of a judged one, `value` is the version of a companion; else the `born` that the content of a file had which was
 * saved again. Of two for one file the greater counts. */
int state_doubt_file_add(struct state *s, uint64_t doubt, uint64_t ino, uint64_t value);
/* The content of a file has another version, with the same bytes: nothing was saved. */
int state_doubts_same_content(struct state *s, uint64_t ino, uint64_t from, uint64_t to);
typedef int (*state_doubt_file_fn)(void *arg, uint64_t ino, uint64_t value);
int state_doubt_file_each(struct state *s, uint64_t doubt, state_doubt_file_fn fn, void *arg);

/* ---- files of ordinary directories that were imported (import_known.c) ---- */

struct state_imported {
	uint64_t dev, ino;
	uint64_t size;
	int64_t mtime_ns, ctime_ns;
	struct hash recipe; /* of its content when it was as above */
	bool torn;
	int64_t seen_ns; /* wall clock of the last import that met it */
};

int state_imported_get(struct state *s, uint64_t dev, uint64_t ino,
		       struct state_imported *ret_file); /* -ENOENT */
int state_imported_set(struct state *s, const struct state_imported *file);
/* Forgets what was last seen before this time. */
int state_imported_forget(struct state *s, int64_t before_ns);

/* ---- what the store keeps here: where chunks lie, and recipes ---- */

struct state_chunk {
	struct hash pack; /* the pack's id */
	uint64_t offset;
	uint32_t stored_len; /* of the frame */
	uint32_t plain_len;
};

int state_chunk_get(struct state *s, const struct hash *hash, struct state_chunk *ret_chunk);
int state_chunk_put(struct state *s, const struct hash *hash, const struct state_chunk *c);
/* Removes what lies in a pack (found missing or damaged). */
int state_chunk_forget_pack(struct state *s, const struct hash *pack);
bool state_index_loaded(struct state *s, const char *index_key);
int state_index_mark_loaded(struct state *s, const char *index_key);
/* Encoded recipes by hash; a cache, may be emptied at any time. */
int state_recipe_get(struct state *s, const struct hash *hash, struct buf *out);
int state_recipe_put(struct state *s, const struct hash *hash, const void *data, size_t len);

/* ---- a consistent view beside the main connection ---- */

/*
 * Begins a read-only snapshot of what is committed now, on a connection of its own. Call with the
 * volume's lock held, then use it without. Every reading function above works on the `struct state`
 * that it gives; end with state_snapshot_end.
 */
int state_snapshot_begin(struct state *s, struct state **ret_snapshot);
void state_snapshot_end(struct state *snapshot);

/*
 * A connection that only reads, without the volume's lock: each call sees what is committed at that
 * moment. It belongs to one thread until it is given back.
 */
int state_reader_take(struct state *s, struct state **ret_reader);
void state_reader_give(struct state *reader);

#endif
