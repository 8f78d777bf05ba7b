/* SPDX-License-Identifier: Apache-2.0 */
/* The FUSE face: mounts an open volume and serves it. All that tools/ needs of fs/. */
#ifndef EPOCHFS_FS_MOUNT_H
#define EPOCHFS_FS_MOUNT_H

#include <stdbool.h>
#include "lib/volume/volume.h"

struct fs_mount;

/* -o passthrough=: whether the kernel may read and write backing files itself. */
enum fs_passthrough {
	FS_PASSTHROUGH_AUTO, /* where the kernel can; says once in the log where it cannot */
	FS_PASSTHROUGH_ON,   /* the mount fails where the kernel cannot */
	FS_PASSTHROUGH_OFF,
};

/*
 * What a worker has of the mount that it serves under a supervisor, so that the next one can go on: the socket to the supervisor, a
 * table that both know (made by the supervisor), and, but in the first worker, the connection to the kernel. The
 * descriptors stay open with it. fs_handover_free after fs_unmount. -EPROTONOSUPPORT: the table is of
 * another release of epochfs.
 */
struct fs_handover;
int fs_handover_new(int socket, int table_fd, int fuse_fd, struct fs_handover **ret_handover);
void fs_handover_free(struct fs_handover *handover);
/* For volume_open, before fs_mount: what was open in the worker before, and torn in this mount. It must outlive the volume. */
void fs_handover_survivors(struct fs_handover *handover, struct volume_options *o);

struct fs_options {
	struct fs_handover *handover; /* NULL: no supervisor; borrowed */
	enum fs_passthrough passthrough;
	int64_t grace_ns; /* from a signal that ends the mount: so long uploads, and processes that used it, are waited for */
	bool allow_other; /* other users may use the mount, as modes and owners permit */
	bool noexec;	  /* no program is run from it */
	bool suid,
		dev; /* setuid, setgid and file capabilities, and device nodes, mean something there: root's to say */
};

#define FS_GRACE_NS ((int64_t)25 * 1000000000) /* unless the options say otherwise */

/*
 * Mounts the volume and shakes hands with the kernel. From then on requests queue up; fs_serve
 * answers them. A read-only volume is mounted without the kernel's read-only flag (the command
 * writes its requests into .epochs/.control); all changes fail with EROFS.
 * No thread is started, but the volume's events come here from now on. On failure -errno, with one
 * line in `ret_message` (free with free(); NULL if memory ran out).
 */
/* With a handover that has a connection it mounts nothing, but goes on with that. Where the kernel cannot send requests again (before Linux 6.9)
 * it says in the log that there is no supervision, and mounts without. */
int fs_mount(struct volume *vol, const char *mountpoint, const struct fs_options *options,
	     struct fs_mount **ret_mount, char **ret_message);

/*
 * Serves until the mount is gone: by umount(8), by SIGTERM, SIGINT or SIGHUP, which it takes for itself from then on, or at the end
 * of the run that mounted it (users.h). While a run holds the mount a signal waits for its end, and one that does not come from the
 * supervisor, where that lives, is ignored. Then what is pending is sealed; for up to the grace from the signal on it is uploaded, and
 * processes that have used the mount may use it again; and it is unmounted as soon as nobody has anything open in it, however long that takes:
 * a mount point is never uncovered under a writer. What hurries (lib/util/end_signals.h) ends the grace. Then all that is closed is sealed, and uploaded
 * within the grace. The signals stay blocked in the calling thread, so that no further one disturbs the end; end_signals_block() must be called
 * before fs_mount, so that none ends the process and leaves a dead mount.
 *
 * `ready` (may be NULL) is called once, when requests are answered; false: nobody wants the mount any more, it ends.
 *
 * 0: all files are closed; fs_unmount and volume_close follow. -EBUSY: the connection was aborted while files were written, as if
 * the machine had died: call neither, end the process; the next mount recovers them.
 */
/* -ERESTART: fs_restart was asked for, and nothing is left to answer: end the process by FS_EXIT_RESTART at once; the mount is still
 * there, for the next worker. */
#define FS_EXIT_RESTART 75
int fs_serve(struct fs_mount *m, bool (*ready)(void *arg), void *arg);

/* Unmounts what is still mounted (after fs_mount without fs_serve) and frees. */
void fs_unmount(struct fs_mount *m);

#endif
