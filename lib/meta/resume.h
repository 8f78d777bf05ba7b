/* SPDX-License-Identifier: Apache-2.0 */
/* When the live tree goes back by itself after a broken save. */
#ifndef EPOCHFS_META_RESUME_H
#define EPOCHFS_META_RESUME_H

enum resume_when {
	RESUME_OFF,
	RESUME_KNOWN,  /* where a writer is known to have ended badly */
	RESUME_ALWAYS, /* also where nobody knows how it ended */
};

#endif
