/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a mount: -o name=value over EPOCHFS_NAME=value over the defaults. */
#ifndef EPOCHFS_TOOLS_MOUNT_OPTIONS_H
#define EPOCHFS_TOOLS_MOUNT_OPTIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/mount.h"
#include "lib/util/buf.h"
#include "lib/meta/options.h"

struct mount_options {
	struct volume_options volume;
	struct fs_options fs;
	const char *log_file; /* NULL: in the cache directory */
	const char *metrics;  /* where they are given out (metrics/address.h); NULL: nowhere */
	bool nodes_auto;      /* nodes=auto: as the environment says (node_names.h) */
	bool supervise;	      /* another process starts this one again when it dies (supervise.h) */
	bool nonempty;	      /* mount over a directory that holds something */
	json_t *configured;   /* {NAME: as in given} of the configuration files; NULL: none */
	json_t *given; /* for people: {NAME: {"value": V, "from": where it stood}}; NULL: none yet */
	char *text;    /* what the values point into; mount_options_free */
};

void mount_options_init(struct mount_options *o);
void mount_options_free(struct mount_options *o);
/* From the configuration files, for this remote (NULL: none), and then from the environment: EXIT_DONE, or the exit code after a message. */
int mount_options_defaults(struct mount_options *o, const char *remote);
/* From the environment alone: for who has `configured` in his arguments. Likewise. */
int mount_options_environment(struct mount_options *o);
/* What of `configured` counts still, as a list for mount_options_parse before all that was given; "": nothing. As mount_options_keep. */
const char *mount_options_configured(struct mount_options *o);
/* What every contact with a remote obeys, also a command's on its URL: as mount_options_defaults, of these options
 * only. Its texts are the environment's and the configuration's. */
int mount_options_limits(const char *remote, struct remote_limits *ret_limits);
/* Appends NAME, or NAME=VALUE, as an element of such a list. */
void mount_options_put(struct buf *list, const char *name, const char *value);
/* Of this name, also with `-` for `_`; NULL: there is none. `len` bytes of it count. */
const struct option_row *mount_option_find(const char *name, size_t len);
/* One "-o a=b,c,d" (a comma inside a value is written "\,"). Likewise. */
int mount_options_parse(struct mount_options *o, const char *list);
/* Nodes, run and name of the node, where the options want several nodes and leave that to the environment
 * (node_names.h). After the others. Likewise. */
int mount_options_nodes(struct mount_options *o);
/* Sets the option nodes: NULL, or what a right value looks like. */
const char *mount_options_set_nodes(struct mount_options *o, const char *value);
/* A copy that lives as long as the options; NULL: no memory. */
char *mount_options_keep(struct mount_options *o, const char *text);
/* `given` becomes the volume's `told` (lib/meta/options.h). */
void mount_options_tell(struct mount_options *o);
/* What must fit together. Likewise. */
int mount_options_check(const struct mount_options *o);

/*
 * ---- The table of mount options (mount_option_table.c): the parser obeys it, and `--help`, completions and the lists of epochfs(1)
 * come from it. ----
 */

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
	const char *help; /* one line for --help and epochfs(1); NULL where `value` is */
	/* The value that counts where none is given, for both; NULL: there is none, or `help` says it. */
	const char *by_default;
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
	bool hidden;	  /* the value is no stranger's business: epochfs debug leaves it out */
	bool percent;
	bool is_bool; /* of a choice */
};

extern const struct option_row mount_option_table[];
extern const size_t mount_option_count;

/* Sets the option; as `set`. */
const char *mount_option_set(const struct option_row *row, struct mount_options *o,
			     const char *value);

#endif
