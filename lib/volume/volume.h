/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume, opened for a mount: the façade that fs/ uses. This header opens and closes it; beside it
 *   live.h     the live tree: names and attributes
 *   handle.h   open files of the live tree: reading, writing, close, kill
 *   content.h  closed content, read through the cache, for epochs and the live tree
 *   epochs.h   sealing, listing, tags, rollback, drop, waiting
 *   control.h  requests of the command, as JSON (status, commit, wait, ...)
 *   catalog.h  the same remote without a mount, for the command
 *
 * Threads: every function of these headers may be called from any thread. None holds the volume's
 * lock over a remote call, compression or a callback. Errors: 0 or -errno.
 */
#ifndef EPOCHFS_VOLUME_VOLUME_H
#define EPOCHFS_VOLUME_VOLUME_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/meta/options.h"

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
	/* Attributes or content of this file changed in the same way. */
	void (*file_changed)(void *arg, uint64_t ino);
	/* This epoch was dropped. */
	void (*epoch_dropped)(void *arg, uint64_t number);
};

/*
 * Whether the kernel has a node of this file (body: of a regular one) and may so open it at any moment. Called with the volume's lock: it takes no lock
 * but LOCK_FS_NODES, and calls nothing of the volume. Where it says yes, volume_node_gone is owed once the kernel has
 * forgotten the node, or volume_set_known.
 */
struct volume_known {
	void *arg;
	bool (*is_known)(void *arg, uint64_t ino, uint64_t body);
};

/*
 * Opens the remote and the local state, recovers what a crash left, adopts the newest epoch as the
 * live tree where the local state is new, and starts the threads (sealer, uploader, evictor). Unless it
 * is read-only it takes the volume's lease first, and may wait for that of a writer that is gone to
 * lapse (options.h: lease_ns, take_over, give_up). On
 * failure one line that says what, where and what to do is in `ret_message` (free it with free();
 * NULL if memory ran out), and the result is -errno: -ENOTUNIQ cache in use by another mount;
 * -EBUSY another writer has the volume; -EINTR gave up waiting for it;
 * -EPROTONOSUPPORT newer format; -EBADMSG not a volume or damaged; -EACCES not allowed by the
 * remote; -EHOSTUNREACH remote not reached; -ENOENT no such epoch; -EINVAL bad options.
 */
int volume_open(const struct volume_options *options, struct volume **ret_volume,
		char **ret_message);
/* The directory that holds the caches of all volumes, as the options and the environment say it: 0, -ENOMEM, or -EINVAL where they do not. */
int volume_cache_root(const struct volume_options *options, struct buf *out);
void volume_set_events(struct volume *vol, const struct volume_events *events);
void volume_set_known(struct volume *vol, const struct volume_known *known);
void volume_node_gone(struct volume *vol, uint64_t ino, uint64_t body);
/* A node went over to this body, which may have been replaced just before. While a handle of it is open. */
void volume_node_came(struct volume *vol, uint64_t ino, uint64_t body);

/*
 * Notes in the cache that it is mounted, as this device ("0:45", as in mountinfo; "" where that is not known) at this absolute path, and that
 * it is no more: then only the end of this process is to come, which the next mount waits for, while it refuses a cache
 * that is mounted. A note that cannot be written is logged at debug level.
 */
void volume_mounted(struct volume *vol, const char *device, const char *mountpoint);
void volume_unmounted(struct volume *vol);
/* Whether process `pid`, which serves the cache in the directory `cache` (volume_cache_path), has said that and only has to
 * end. For another process. */
bool volume_is_ending(const char *cache, pid_t pid);

/*
 * Before a close: seals what is pending (no seal where nothing changed), and with `drain` waits
 * until all epochs are durable; then, a little, until all is announced (announce.h). `interrupted` (may be NULL) is polled; true ends the wait with
 * -EINTR.
 */
int volume_finish(struct volume *vol, bool drain, bool (*interrupted)(void *), void *arg);
/* Stops the threads and closes all. Open handles must be gone. Unfinished uploads go on at the next
 * mount. */
void volume_close(struct volume *vol);

/* The volume's own identity and the remote's printable name. */
const char *volume_uuid(const struct volume *vol);
const char *volume_remote_name(const struct volume *vol);
/* The folder cache-dir/<uuid>, absolute: of the state, the objects and, by the command, the log. */
const char *volume_cache_path(const struct volume *vol);
bool volume_read_only(const struct volume *vol);
const struct volume_options *volume_options(const struct volume *vol);

struct volume_space {
	uint64_t block_size, blocks, free_blocks, available_blocks, files, free_files;
};
/* True figures for statfs: of the cache's file system, what can be evicted counted as free,
 * min_free as not available. */
int volume_statfs(struct volume *vol, struct volume_space *ret_space);

#endif
