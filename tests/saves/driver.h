/* SPDX-License-Identifier: Apache-2.0 */
/* A driver of lib/saves that makes no epochs, but says which it would make. */
#ifndef EPOCHFS_TESTS_DRIVER_H
#define EPOCHFS_TESTS_DRIVER_H

#include "lib/saves/saves.h"

/*
 * Decisions are lines:
 *
 *	seal N RULE RULE VERDICT[: REASON]     epoch N is made now, by the first rule; what it is, by the second
 *	decided N VERDICT                      epoch N was pending
 *	back N                                 the live tree becomes what epoch N was
 */
struct driver {
	struct saves *saves;
	struct saves_options options;
	struct rules *rules;
	int64_t now_ns;
	uint64_t epochs, whole; /* how many there are; the newest whole one, or 0 */
	struct buf out;		/* decisions, which the caller takes */
};

/* Zero-initialise; again: nothing is known any more. 0 or -ENOMEM. `o`: the rules in it are the built-in ones, and a marker of this name; NULL: none. */
int driver_begin(struct driver *d, struct saves_options o, const char *marker);
void driver_end(struct driver *d);
/* The event is about to happen; it happened. 0, or what saves_apply says. */
int driver_before(struct driver *d, const struct save_event *e);
int driver_tell(struct driver *d, const struct save_event *e);

/* Another mount: of what was there it knows what the one before had put down, and whether the live tree is that of an epoch that was pending. */
int driver_remount(struct driver *d, bool pending);

#endif
