/* SPDX-License-Identifier: Apache-2.0 */
/* The table of mount options: what the parser obeys, and what the help prints. */
#ifndef EPOCHFS_TOOLS_MOUNT_TABLE_H
#define EPOCHFS_TOOLS_MOUNT_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "tools/mount_options.h"

/* What a value looks like, and the type of the member of struct mount_options that takes it. */
enum option_kind {
	OPTION_IGNORED, /* what fstab and mount(8) pass, and a mount always does or need not know */
	OPTION_SET,	/* bool; no value, sets it */
	OPTION_CLEARED, /* bool; no value, clears it */
	OPTION_SWITCH,	/* bool; on or off, none is on */
	OPTION_CHOICE, /* one of `choices`: of a bool the first is false; of an unsigned or enum its number */
	OPTION_DURATION, /* int64_t, nanoseconds, from `least` to `most` */
	OPTION_SIZE,	 /* uint64_t, bytes */
	OPTION_COUNT,	 /* unsigned, from `least` to `most`; a `%` may follow where `percent` */
	OPTION_NUMBER,	 /* uint64_t, from `least` */
	OPTION_TEXT,	 /* const char *, not empty where `least` is 1 */
	OPTION_PATH,	 /* const char *, absolute */
	OPTION_GLOB,	 /* struct globs, one more */
	OPTION_SPECIAL,	 /* `set` knows */
};

struct option_row {
	const char *name;
	const char *
		value; /* in the help: "TIME", "on|off"; "" takes none; NULL: the help leaves the option out */
	const char *expected; /* what a right value looks like, for the error */
	/* Sets the option from its text ("" where none was given): NULL, or what a right value looks
	 * like. The value lives as long as the options. */
	const char *(*set)(struct mount_options *o, const char *value);
	const char *const *choices; /* ends with NULL */
	size_t offset;		    /* of the member */
	int64_t least, most;	    /* most 0: no limit */
	enum option_kind kind;
	bool environment; /* EPOCHFS_NAME sets it too */
	bool limit;	  /* every contact with a remote obeys it: mount_options_limits */
	bool percent;
	bool is_bool; /* of a choice */
};

extern const struct option_row mount_option_table[];
extern const size_t mount_option_count;

/* Sets the option; as `set`. */
const char *mount_option_set(const struct option_row *row, struct mount_options *o,
			     const char *value);
/* All of them, in lines of at most 100 columns that begin with two spaces. */
void mount_option_help(FILE *out);

#endif
