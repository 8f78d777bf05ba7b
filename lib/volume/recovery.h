/* SPDX-License-Identifier: Apache-2.0 */
/* What recover.c (after a crash) and power.c (after a power loss) share. Private to them. */
#ifndef EPOCHFS_VOLUME_RECOVERY_H
#define EPOCHFS_VOLUME_RECOVERY_H

#include <sys/stat.h>

#include "lib/cache/context.h"
#include "lib/live/bodies.h"
#include "lib/meta/rules.h"

struct version_list {
	struct state_version *v;
	size_t count, cap;
};

/* Closed content that was found to be torn now. */
struct torn_version {
	uint64_t version;
	const char *why; /* static */
};

struct recovery {
	struct version_list staged, closed, lost;
	struct {
		uint64_t *id; /* ascending */
		size_t count, cap;
	} objects; /* backing files that rows speak of */
	struct torn_version *torn;
	size_t torn_count;
	uint64_t unfinished; /* the first epoch that began and was not frozen; 0: none */
	bool rebooted;	     /* the machine restarted since the state was used */
	bool settled;	     /* epochs were found to be durable */
	bool killed;	     /* something that is no log was lost or torn */
};
void recovery_free(struct recovery *r);
bool recovery_has_object(const struct recovery *r, uint64_t id);

/* The row of a staged version whose file is gone, or that leads nowhere. */
int recovery_forget_staged_locked(struct volume *vol, const struct state_version *v);

/* The handles of options.survivors. (revive.c) */
void survivors_revive_locked(struct volume *vol, struct recovery *r);
/* Whether the machine's boot id is another than the one that was remembered. */
int boot_changed_locked(struct volume *vol, bool *ret_changed);
int boot_remember_locked(struct volume *vol);
/*
 * Closed versions that only this machine has. After a reboot those that were never fsynced are
 * checked by their size and their format's tail; what fails is marked as torn. One whose bytes are
 * gone, in whole or in part, is filled with zeros to its size and marked.
 */
int check_closed_locked(struct volume *vol, struct recovery *r);
/*
 * After a reboot, before those are looked at: the last upload may have ended while the disk had not
 * got its end, nor the contents that it had read. What the remote has as our epoch is durable then,
 * as it is there; sealed once more from what is left here it would be another one. Asks the remote for one
 * record more than it has, and drops the lock while it asks: nobody else uses the volume yet. (power.c)
 */
int settle_epochs_locked(struct volume *vol, struct recovery *r);
/*
 * Epochs that are not durable and hold such content: their records say so from now on. After a
 * reboot one whose tree cannot be read is dropped. (power.c)
 */
int check_epochs_locked(struct volume *vol, struct recovery *r);
/* Whether some of the file's size was never written, whether it has a block or not. (power.c) */
bool recovery_finds_hole(int fd, const struct stat *st);
/* After a reboot: copies of what the remote has, too, may be cut off or hold zeros, where no fsync made
 * them safe. They count as fetched in part, so that each piece is compared with its hash when it is
 * read (content_private.h). */
int doubt_copies_locked(struct volume *vol);

/* ---- a damaged local state ---- */

/*
 * A damaged local state is moved aside and rebuilt from the remote; the work that only this machine
 * has comes back into the live tree as far as its rows can be read. Private to lib/volume.
 *
 * What was there goes to damaged/ in the cache directory: objects/, trees/, and last state.db with its
 * journal. While that is under way the folder is called damaged.moving/, so a crash in between is
 * finished by the next mount. The rest is done when the volume has adopted the newest epoch: files whose
 * current content was closed here, or was being written and survives a kill, and is not in the remote,
 * are copied to their paths, and the folder gets its lasting name, damaged-<UTC time>/. Until then each
 * mount does it (again). Copies of what the remote has are removed from it. All else stays there for
 * the user: content that no readable row names, that only epochs which were not uploaded hold, or that a
 * killed writer left.
 *
 * Lost are epochs that were not uploaded, as epochs, and the names, removals and attributes changed
 * since the newest that was.
 */

/* Before the state is opened: finishes a move that was cut off, and sees whether something is to be
 * recovered (vol->rebuilt). 0 or -errno. */
int rebuild_resume(struct volume *vol);
/* Moves what is there aside, and says why in the log: 0, vol->rebuilt is set and the folders are new and
 * empty; or -errno. The state must be closed. */
int rebuild_begin(struct volume *vol, const char *why);
/* Where vol->rebuilt is set, once the live tree is there and nothing serves it yet. What cannot be
 * recovered is told and no error. 0 or -errno. */
int rebuild_recover(struct volume *vol);

#endif
