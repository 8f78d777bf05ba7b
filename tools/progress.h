/* SPDX-License-Identifier: Apache-2.0 */
/* A progress bar on a terminal, plain lines elsewhere; nothing for what takes less than a second. */
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

#endif
