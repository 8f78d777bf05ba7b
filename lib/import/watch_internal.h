/* SPDX-License-Identifier: Apache-2.0 */
/* Watching a directory: the pure decision when its checkpoint is whole (watch_pending.c), and the watch itself. Private to watch*.c. */
#ifndef EPOCHFS_IMPORT_WATCH_INTERNAL_H
#define EPOCHFS_IMPORT_WATCH_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/format/record.h"
#include "lib/import/import_scan.h"
#include "lib/import/import.h"
#include "lib/meta/rules.h"
#include "lib/meta/settle.h"
#include "lib/util/io.h"
#include "lib/util/map.h"

/* ---- what happened in the directory since its last epoch, and whether it is time for the next (contract 1.3) ---- */

/*
 * Pure: told of events by paths from the directory's root, without a leading '/', and of the time (monotonic), it knows no file system. What names mean is in
 * rules.h, the decision by quiet in settle.h. It differs from the sealer of a mount where less can be known: a file that was there before and is being written holds a
 * seal up as a new one does, for it may be in the course of being replaced; but for at most `patience` from its first change, for it may be a database.
 */
struct watch_file {
	struct map_link link; /* by path */
	bool made;	      /* its name was made since the last epoch */
	bool closed;	      /* its content was closed since, or moved in */
	bool writing;	      /* changed, and not closed since */
	bool fresh;	      /* that began since the last epoch */
	bool temporary;	      /* its name is one */
	bool log;
	int64_t first_ns, changed_ns; /* of writing; the last change of it or of what is in it */
	char path[];
};

struct watch_pending {
	const struct rules *rules; /* the caller's */
	int64_t settle_ns, patience_ns;
	bool last_files; /* what a framework writes last seals (rules.h) */
	struct map files;
	bool opens;  /* something that opens an epoch happened, beside names that were made */
	bool rides;  /* removals, logs: they ride in the next epoch */
	bool closed; /* something was closed or moved: with settle=0 that seals */
	int64_t activity_ns, opened_ns, content_ns; /* 0: never */
	enum record_trigger
		now; /* a rename or a marker seals at once; RECORD_TRIGGER_UNKNOWN: none does */
};

void watch_pending_free(struct watch_pending *p);

enum watch_made {
	WATCH_MADE_DIRECTORY,
	WATCH_MADE_OPEN,  /* a file whose content may still come */
	WATCH_MADE_WHOLE, /* a link, or a file that nobody writes */
};
/* A name was made. 0 or -ENOMEM, as all of these. */
int watch_note_made(struct watch_pending *p, const char *path, enum watch_made how, int64_t now_ns);
/* All that was found at this path, and below it, is noted: the order of a listing is none of time, so a marker seals only now. */
void watch_note_all_made(struct watch_pending *p, const char *path);
int watch_note_write(struct watch_pending *p, const char *path, int64_t now_ns);
int watch_note_close(struct watch_pending *p, const char *path, int64_t now_ns);
/* `from` NULL: it came from elsewhere. What was below goes with it. */
int watch_note_move(struct watch_pending *p, const char *from, const char *to, int64_t now_ns);
/* With all below. */
void watch_note_gone(struct watch_pending *p, const char *path, int64_t now_ns);
/* Something may have changed that nobody saw. */
void watch_note_unknown(struct watch_pending *p, int64_t now_ns);

/* Each file that is not a log, for who can find out whether somebody writes it; fn sets `writing`. */
void watch_each_file(struct watch_pending *p, void (*fn)(void *arg, struct watch_file *f),
		     void *arg);

/* As settle_decide (never IDLE while something seals at once). */
struct settle_answer watch_decide(const struct watch_pending *p, int64_t now_ns);
/* What would seal it: RECORD_TRIGGER_QUIET, _CLOSE, or what `now` says. */
enum record_trigger watch_trigger(const struct watch_pending *p);
/* Whether there is anything that no epoch has. */
bool watch_pending_any(const struct watch_pending *p);
/* An epoch takes all of it: what is still being written stays known, as something old. */
void watch_sealed(struct watch_pending *p);

/* ---- the watch ---- */

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
