/* SPDX-License-Identifier: Apache-2.0 */
/* What the subcommands of epochfs share: the one line that tells an error, the table of subcommands, and what one does for another. */
#ifndef EPOCHFS_TOOLS_CLI_H
#define EPOCHFS_TOOLS_CLI_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include "lib/import/import.h"
#include "lib/util/mountinfo.h"
#include "tools/target.h"

/* ---- what each command ends with ---- */

/* The documented exit codes (epochfs(1)). */
enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_UNREACHABLE = 3, /* the remote cannot be reached */
	EXIT_DENIED = 4,      /* the remote does not allow it */
	EXIT_NOT_FOUND = 5,
	EXIT_DAMAGED = 6,
	EXIT_NOT_DURABLE = 7, /* not durable in time */
	EXIT_CONFLICT = 8,    /* in use or in conflict */
};

/* Of a negative errno. */
int exit_code_of(int error);

/* What the error of a remote's catalog (lib/admin/catalog.h) means to a person. */
const char *cli_reason(int error);

/* "epochfs: ..." in one line on stderr; gives `code` back. */
int cli_error(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for a mistake in the arguments, with where to read on; EXIT_USAGE. */
int cli_usage_error(const char *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

struct command_option {
	const char *name;  /* without the dashes; NULL ends a list */
	char letter;	   /* or 0 */
	const char *value; /* "TIME"; NULL: it takes none */
	const char *help;  /* one line, for --help and epochfs(1) */
};

struct command {
	const char *name;
	const char *arguments; /* "TARGET [EPOCH]"; several forms are lines */
	const char *summary;   /* one line */
	const struct command_option *options;
	const char *help; /* what --help adds below the options, with an example, or NULL */
	int (*run)(int argc, char **argv);
};

/* commands.c: all of them, and the options that every one takes. */
extern const struct command command_table[];
extern const size_t command_count;
extern const struct command_option common_command_options[];

/* To stdout: text that a stranger may have written, with what a terminal would obey as \xNN (text.h). */
void cli_put(const char *text);
/* To stdout, with a line's end; on a terminal all but ASCII is escaped. `flags` are jansson's. */
void cli_print_json(const json_t *value, size_t flags);
/* To stdout: a term, and the text beside it, folded, each line of which begins at this column. (help.c) */
void cli_print_row(const char *term, const char *text, size_t column);

/* Of this name, or NULL. */
const struct command *command_find(const char *name);
/* Prints its --help to stdout; of mount with the options of -o that people use, or with all. (help.c) */
void command_help(const struct command *c);
void mount_help_all(void);
/* The same of the program. */
void program_help(FILE *out);

/*
 * Reads the options of a subcommand, as its row in the table has them; each has its place in the list that is given here. Long options come as "--name VALUE" or "--name=VALUE", short ones as "-x VALUE"; "--" ends them; options and operands may mix.
 */
struct cli_place {
	const char *option; /* its name; NULL ends the list */
	bool *flag;	    /* of an option without a value; or */
	const char **value; /* the value, borrowed from argv */
};
/*
 * Fills `operands` (at most `max`). Knows --help by itself, and --passphrase-file and --key-file, which it puts into the environment for mount_options.h. Returns the number of operands, or -1 after an error or help was printed: then *ret_exit is the exit code.
 */
int cli_parse(const char *command, int argc, char **argv, const struct cli_place *places,
	      const char **operands, int max, int *ret_exit);

int command_mount(int argc, char **argv);
int command_umount(int argc, char **argv);
int command_status(int argc, char **argv);
int command_log(int argc, char **argv);
int command_latest(int argc, char **argv);
int command_show(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_diff(int argc, char **argv);
int command_commit(int argc, char **argv);
int command_wait(int argc, char **argv);
int command_restart(int argc, char **argv);
int command_rollback(int argc, char **argv);
int command_tag(int argc, char **argv);
int command_rm(int argc, char **argv);
int command_undrop(int argc, char **argv);
int command_prune(int argc, char **argv);
int command_run(int argc, char **argv);
int command_import(int argc, char **argv);
int command_watch(int argc, char **argv);
int command_export(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_cache(int argc, char **argv);
int command_fsck(int argc, char **argv);
int command_gc(int argc, char **argv);
int command_key(int argc, char **argv);
int command_check(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_debug(int argc, char **argv);
int command_config(int argc, char **argv);
int command_help_of(int argc, char **argv);
int command_version(int argc, char **argv);

/* ---- what one command does for another: dropping epochs (rm.c; prune) ---- */

/* Of a remote: takes the volume's lease, which may wait, until target_close; of a mount: nothing. Before the epochs are read.
 * EXIT_DONE, or the exit code after the line: EXIT_CONFLICT where a mount writes to it. */
int drop_begin(const struct target *t);
/* EXIT_DONE, or the exit code after a line; EXIT_CONFLICT where it is tagged, current, or the newest complete one. One that is
 * not there is EXIT_NOT_FOUND, or EXIT_DONE where it may be gone: something else drops, too. */
int drop_epoch_of(const struct target *t, uint64_t number, bool may_be_gone);
/* Of a mount: waits a little until the remote knows, and says where it does not yet. */
void drop_end(const struct target *t);

/* ---- collecting garbage (gc.c; prune --gc) ---- */

struct collect {
	const char *command;		   /* whose words these are, for messages */
	const char *grace, *rewrite_below; /* as given; NULL: the default */
	bool dry_run;
};

/* Checks the words: EXIT_DONE, or EXIT_USAGE after the line. */
int collect_check(const struct collect *c);
/*
 * Collects the garbage of a TARGET's remote, with a progress bar. With `ret_json` the result is that, the caller's; else it is printed as a table. EXIT_DONE, or the
 * exit code after the line.
 */
int collect_run(const struct collect *c, const char *target, json_t **ret_json);

/* ---- what import and watch check of their operands, and print of an epoch (import.c) ---- */

/*
 * DIRECTORY is one, REMOTE is no mount point and does not lie in it: EXIT_DONE, or the exit code after the line. Of a path from here
 * *remote becomes `path`, the same from /.
 */
int importing_check(const char *command, const char *directory, const char **remote,
		    char path[PATH_MAX]);
/* REMOTE alone: likewise. */
int importing_check_remote(const char *command, const char **remote, char path[PATH_MAX]);
/* The local state does not lie in the directory: likewise. */
int importing_check_cache(const char *command, const char *directory, const struct import *imp);
/* Nor the catalog (may be NULL), which each epoch changes: likewise. */
int importing_check_catalog(const char *command, const char *directory, const char *catalog);

/* The epoch in one line, or with `json` as one object (on one line where `compact`), on stdout. */
void importing_print(const struct import_result *r, const char *directory, bool json, bool compact);

/* ---- the processes that serve a mount, and their end (umount.c; run) ---- */

/* 0: none, or not known here (of a container that counts its processes by itself). */
struct ending {
	pid_t server, supervisor;
	const char *mount; /* as it was given to ending_find; the caller's */
	char device[MOUNTINFO_DEVICE_MAX];
	char cache[PATH_MAX]; /* the cache directory; "": not known */
};

/* Asks a mount that is there: EXIT_DONE, or the exit code after a line. */
int ending_find(const char *mount, struct ending *ret_ending);
bool ending_is_over(const struct ending *e);
/*
 * After the unmount the serving process writes its last state: waits for its end, so that the next mount finds the cache free. EXIT_DONE, or
 * after a line EXIT_FAILED where that takes longer than a minute, EXIT_CONFLICT where the mount is still there in another place or mount namespace.
 */
int ending_wait(const struct ending *e);

#endif
