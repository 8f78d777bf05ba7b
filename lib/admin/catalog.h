/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume's remote without a mount, read by the command: epochs, trees, tags, restoring, verifying.
 * Nothing is written locally but what export restores; the index is kept in memory. One thread at a time.
 *
 * Errors of all functions, beside those named: -EHOSTUNREACH the remote did not answer for 15 s, -EACCES it does not allow it,
 * -EBADMSG what is stored is damaged or missing, -EPROTONOSUPPORT it was created by a newer version of epochfs, -ENOMEM. The records are read once, when
 * they are first asked for: what others put later is not seen.
 */
#ifndef EPOCHFS_ADMIN_CATALOG_H
#define EPOCHFS_ADMIN_CATALOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "lib/format/tree.h"
#include "lib/meta/collection.h"
#include "lib/remote/remote.h"
#include "lib/epochs/epochs.h"

struct catalog;

/* The message as volume_open's. `limits` NULL: the defaults. Never makes anything: -ENOENT also where the directory is missing or empty. */
int catalog_open(const char *url, const struct remote_limits *limits, struct catalog **ret_catalog,
		 char **ret_message);
void catalog_close(struct catalog *c);
const char *catalog_uuid(const struct catalog *c);

/* One collection of garbage (collection.h) in the remote behind `url`. */
int catalog_collect(const char *url, const struct gc *how, struct gc_totals *ret_totals,
		    char **ret_message);

/* Ascending. Damaged records are logged and left out. Non-zero stops and is returned. */
int catalog_each(struct catalog *c, int (*fn)(void *arg, const struct epoch_info *e), void *arg);
int catalog_get(struct catalog *c, uint64_t number,
		struct epoch_info *ret_info); /* -ENOENT, -EBADMSG */
/* The names that epochs_resolve takes; "current" is the newest epoch. The number of an epoch whose record is damaged is a name as well. */
int catalog_resolve(struct catalog *c, const char *name, uint64_t *ret_number);
int catalog_tree(struct catalog *c, uint64_t number, struct tree **ret_tree);
int catalog_tag_each(struct catalog *c, int (*fn)(void *arg, const char *name, uint64_t number),
		     void *arg);
int catalog_tag(struct catalog *c, const char *name, uint64_t number,
		bool replace);				/* -EEXIST, -EINVAL, -ENOENT */
int catalog_untag(struct catalog *c, const char *name); /* -ENOENT */

/*
 * Takes the volume's lease (lease.h) until catalog_release or catalog_close, as a mount that writes does: -EBUSY with a message
 * where there is one; waits for a holder that may be gone to lapse, and tells `waiting` (may be NULL) so, once. What
 * was read of epochs before is forgotten. The message as volume_open's.
 */
int catalog_hold(struct catalog *c, void (*waiting)(void *arg, const char *text), void *arg,
		 char **ret_message);
void catalog_release(struct catalog *c);
/* Drops an epoch, also one whose record is damaged; only while it is held. -ENOENT; -EBUSY: it is tagged, the newest, or the newest complete one
 * (unless its tree is damaged or gone); -ESTALE: another has taken the lease. */
int catalog_drop(struct catalog *c, uint64_t number);
/* Brings a dropped epoch back, with this tag, which keeps a policy from dropping it once more; only while it is held. 0, also where it is there already. -ENOENT: there never
 * was such an epoch; -ENODATA: its content is gone (upload.h); -EEXIST: the tag is another's; -EINVAL: it cannot be a tag; -ESTALE as above. */
int catalog_undrop(struct catalog *c, uint64_t number, const char *tag);
/* The name of that tag where nobody gives one: "undropped-41". */
#define UNDROP_TAG_MAX 32
void undrop_tag(uint64_t number, char ret_name[UNDROP_TAG_MAX]);
/* Why it was -ENODATA, in one line; appends. */
void undrop_refusal(uint64_t number, struct buf *out);

/*
 * Who writes to the volume, as the lease's object says (format/lease.h): {"state": "held", "generation",
 * "host", "node", "mountpoint", "pid", "since_ns", "renewed", "ttl_ns"}, or the state "free" or "damaged".
 * A holder that is gone without giving it back is "held" too: only watching tells. Read again each time.
 */
int catalog_lease(struct catalog *c, json_t **ret_lease);

/*
 * Epochs of several nodes that wait for parts: a list of { "step", or "after_step" and "count"; "attempt", "have", "missing": names of
 * nodes; "never_came": how many more; "since_ns" }. Read again each time.
 */
int catalog_waiting(struct catalog *c, json_t **ret_waiting);

struct catalog_progress {
	uint64_t files, files_total, bytes, bytes_total;
};

/*
 * What the epochs hold, and with `read`, which reads every tree and recipe, what they take: JSON as usage_json (usage.h) makes it. `progress` (may be NULL) counts
 * epochs as files.
 */
int catalog_usage(struct catalog *c, bool read,
		  void (*progress)(void *arg, const struct catalog_progress *p), void *arg,
		  json_t **ret_usage);

/*
 * Restores what lies at `path` in an epoch ("" or "/": all) into the directory `to_fd`: a file or directory under its own
 * name's last component, the root's content directly. Content, modes, owners (by root), times in ns, xattrs (also of symlinks; those that
 * the file system or the user cannot have are left out), hard links, holes. Each file is written under a temporary name, checked, and renamed. What lends rights is left out,
 * for the remote may be untrusted: setuid and setgid of files, device nodes, xattrs but user.*; `privileged` restores it, where the
 * caller is root. No symlink is followed. `to_fd` itself gets the root's attributes where it was empty.
 * Directories that are there are used; `force` replaces files that are there (never a directory by a file); without it -EEXIST; one that has the epoch's content already is read here instead of fetched, and kept. `threads` 0: one a core.
 * `progress` may be NULL; it is called from any thread, one at a time; it counts regular files. `ret_failed` counts entries that could not be restored, each logged with
 * its path and why (below a directory that could not be made, or once the remote is away, only the first); then the result is that of the first. -ENOENT with none failed: no such epoch or path.
 */
struct catalog_export {
	const char *path;
	int to_fd;
	unsigned threads;
	bool force;
	bool privileged;
	uint64_t *
		left_out; /* gets how many entries came without something that `privileged` restores; may be NULL */
	void (*progress)(void *arg, const struct catalog_progress *p);
	void *arg;
};
int catalog_export(struct catalog *c, uint64_t number, const struct catalog_export *how,
		   uint64_t *ret_failed);

/*
 * Verifies the remote: epochfs.json, records, trees, recipes, index objects, pack tables, that every chunk an epoch names lies in a pack that is there; with
 * read_data every chunk is read and hashed. Works on a volume whose parts are damaged.
 * `problem` gets one line each: what is damaged or missing, which epoch and path it hits ("" where none), the object's key.
 */
struct catalog_fsck {
	const struct remote_limits *limits; /* NULL: the defaults */
	bool read_data;
	void (*problem)(void *arg, const char *key, const char *epoch_and_path, const char *what);
	/* The same of what is damaged without any loss; may be NULL. */
	void (*note)(void *arg, const char *key, const char *epoch_and_path, const char *what);
	void (*progress)(void *arg, const struct catalog_progress *p);
	void *arg;
};
struct catalog_fsck_totals {
	uint64_t epochs, files, packs, index_objects, chunks, bytes_stored;
	uint64_t foreign;   /* objects that are not ours: reported, no damage */
	uint64_t orphans;   /* packs and index objects that no epoch needs: no damage */
	uint64_t condemned; /* that garbage collection has condemned: likewise */
	uint64_t problems;
	uint64_t notes;	 /* damaged, but a mere copy, or needed by no epoch: no damage */
	uint64_t unsure; /* of the notes: what may be missing, or not there yet */
};
/* 0 also with problems; -errno where the remote cannot be read at all. */
int catalog_fsck(const char *url, const struct catalog_fsck *how,
		 struct catalog_fsck_totals *ret_totals, char **ret_message);

#endif
