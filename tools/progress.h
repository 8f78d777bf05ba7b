/* SPDX-License-Identifier: Apache-2.0 */
/* A progress bar on a terminal, plain lines elsewhere; nothing for what takes less than a second. And waiting behind one until epochs are durable, with the exit code of that. */
#ifndef EPOCHFS_TOOLS_PROGRESS_H
#define EPOCHFS_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* On stderr. Zero-initialise with a label; calls from one thread at a time. */
struct progress {
	const char *label; /* "uploading", "restoring"; static */
	bool counts; /* done and total are no bytes: the text behind the bar says what they are */
	int64_t started_ns, shown_ns;
	bool visible;
};

/* `done` of `total` bytes (total 0: unknown), and a short text behind it ("2 epochs left") or NULL. */
void progress_update(struct progress *p, uint64_t done, uint64_t total, const char *detail);
/* Ends the bar's line if one was shown. */
void progress_end(struct progress *p);

/* ---- Waiting until a mount's epochs are durable, with a progress bar. ---- */

/*
 * Waits until all that is sealed is durable; timeout_ns < 0: for ever. On a terminal a progress bar; else a line now and then.
 * EXIT_DONE; EXIT_NOT_DURABLE with a line that says what is left and why; EXIT_FAILED.
 */
int drain_with_progress(const char *mount, int64_t timeout_ns);
/* The same, with an end that may come nearer meanwhile: the time that is left is asked for again and again. */
int drain_within(const char *mount, int64_t (*left_ns)(void *arg), void *arg);
/* The same as the first for one epoch and all before it. */
int drain_epoch_with_progress(const char *mount, uint64_t number, int64_t timeout_ns);
/*
 * Waits, for 10 s and for no remote that fails, until a mount has dropped what its policy lets go, and the remote knows of tags
 * and drops. Where it does not, a line on stderr says so: it goes on by itself.
 */
void drain_changes(const char *mount);

#endif
