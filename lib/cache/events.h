/* SPDX-License-Identifier: Apache-2.0 */
/* What a volume tells the mount, and asks of it. */
#ifndef EPOCHFS_CACHE_EVENTS_H
#define EPOCHFS_CACHE_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

struct volume;

/*
 * What the volume tells the mount. Called without the volume's lock, from any thread; may block on
 * the kernel. Any member may be NULL. Once volume_set_events returns, none of the earlier ones is being
 * called any more.
 */
struct volume_events {
	void *arg;
	/* The name in this directory now leads elsewhere, though no request of the kernel said so
	 * (rollback, undo). */
	void (*entry_changed)(void *arg, uint64_t parent, const char *name);
	/* Attributes of this file changed in the same way. Other content that it has now is of another body, to which entry_changed leads: who
	 * has opened the one before keeps that. */
	void (*file_changed)(void *arg, uint64_t ino);
	/* This epoch was dropped. */
	void (*epoch_dropped)(void *arg, uint64_t number);
};
void volume_set_events(struct volume *vol, const struct volume_events *events);

/*
 * Whether the kernel has a node of this file (body: of a regular one) and may so open it at any moment. Called with the volume's lock: it takes no lock
 * but LOCK_FS_NODES, and calls nothing of the volume. Where it says yes, volume_node_gone is owed once the kernel has
 * forgotten the node, or volume_set_known.
 */
struct volume_known {
	void *arg;
	bool (*is_known)(void *arg, uint64_t ino, uint64_t body);
};
void volume_set_known(struct volume *vol, const struct volume_known *known);
void volume_node_gone(struct volume *vol, uint64_t ino, uint64_t body);
/* A node went over to this body, which may have been replaced just before. While a handle of it is open. */
void volume_node_came(struct volume *vol, uint64_t ino, uint64_t body);

/* Tell the mount. Without the lock; for lib/ alone. */
void volume_entry_changed(struct volume *vol, uint64_t parent, const char *name);
void volume_file_changed(struct volume *vol, uint64_t ino);
void volume_epoch_dropped(struct volume *vol, uint64_t number);

#endif
