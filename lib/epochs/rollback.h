/* SPDX-License-Identifier: Apache-2.0 */
/* Making the live tree equal a tree. For lib/ alone. */
#ifndef EPOCHFS_EPOCHS_ROLLBACK_H
#define EPOCHFS_EPOCHS_ROLLBACK_H

#include "lib/epochs/resume.h"
#include "lib/format/record.h"
#include "lib/format/tree.h"
#include "lib/cache/context.h"

/*
 * What the kernel must be told afterwards, without the lock. Zero-initialise; rollback_notice_tell
 * tells and frees.
 */
struct rollback_notice {
	struct buf names; /* u64 parent, name with its NUL, and so on */
	struct buf files; /* u64 ino, and so on */
};
void rollback_notice_tell(struct volume *vol, struct rollback_notice *notice);

/*
 * With the lock held, in a transaction of the caller's: files that are the same stay what they are
 * (inode, open handles); names that the tree has not go; what is missing or differs is made. Where
 * several live files could be one of the tree, the one at the same path is.
 *
 * Content comes as versions: a version that nothing shows any more lives again (no byte is copied),
 * also where it is only a cached copy; else a new version names the recipe and is fetched when it is
 * read. -ESTALE where the tree names a local version that is gone: the epoch became durable
 * meanwhile, so load its tree again. After an error, which undoes the transaction, `notice` is empty.
 *
 * What is torn is marked as in that epoch, `number`, also in a file that stays the same: somebody may
 * have called it whole since, or there.
 *
 * ROLLBACK_KEEP_LOGS: logs (contract 1.2.5) stay as they are, and so do the directories that hold them, but for what carries a step or a
 * temporary name: that goes as a whole. A log that was removed comes back only with its directory.
 *
 * ROLLBACK_NEW_FILES: a file whose content differs is another one from then on, with an inode number of its own, as if it had been renamed there. Who has the old one open keeps that, and
 * whoever looks whether a name still leads to it (`tail -F`) goes over to the new one.
 */
enum rollback_how { ROLLBACK_ALL, ROLLBACK_KEEP_LOGS, ROLLBACK_NEW_FILES };
int rollback_apply_locked(struct volume *vol, uint64_t number, const struct tree *tree,
			  enum rollback_how how, struct rollback_notice *notice);

/*
 * What is in doubt in the tree of this epoch beside what its record says, where it is half of a save (partial_save.h): for
 * record_doubts_free. It may ask the remote for other trees. 0 or -errno. Without the lock.
 */
int rollback_half(struct volume *vol, uint64_t number, const struct tree *tree,
		  struct record_doubt **ret_doubts, size_t *ret_count);

/*
 * Seals what is pending; where the live tree then stands on an epoch that is not complete, rolls it back to the newest
 * one that is complete or of which it is not known, logs apart. ret_done as resume.h has it. 0 or -errno. Without the lock.
 */
int epochs_go_back(struct volume *vol, struct resumed *ret_done);

#endif
