/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of watching share. Private to watch*.c. */
#ifndef EPOCHFS_IMPORT_WATCH_INTERNAL_H
#define EPOCHFS_IMPORT_WATCH_INTERNAL_H

#include "lib/import/import_scan.h"
#include "lib/import/watch.h"
#include "lib/import/watch_pending.h"
#include "lib/util/io.h"

/* A directory that is watched: the path that leads to it, "" for the root. */
struct watch_dir {
	int wd;
	char *path; /* owned */
};

struct watch {
	int root_fd;
	char *path; /* that led to it; owned */
	struct rules *rules;
	struct watch_pending pending;
	int64_t poll_ns;	      /* with inotify: 0 */
	int64_t probed_ns, listed_ns; /* monotonic */
	const char *why;	      /* it polls; static */
	struct scan seen;	      /* the last listing */
	bool has_seen;

	int inotify_fd;		/* -1: it polls */
	bool runs;		/* what was there at the beginning is watched */
	struct watch_dir *dirs; /* by rising wd */
	size_t dir_count, dir_cap;
	/* A name that went and may come again elsewhere, as the next event. */
	uint32_t cookie;
	bool moved_directory;
	char *moved; /* owned; NULL: none */
};

enum io_writers watch_writers(struct watch *w, const char *path);
/* Lists all: files that are open for writing are noted, and whether anything is not as it was at the last listing. */
int watch_look_through(struct watch *w, int64_t now_ns);

/* Where it cannot be had, inotify_fd stays -1, and `why` is set. */
void watch_inotify_start(struct watch *w);
void watch_inotify_stop(struct watch *w);
/* Takes in all events that wait. */
int watch_inotify_read(struct watch *w);

#endif
