/* SPDX-License-Identifier: Apache-2.0 */
/* What the subcommands of epochfs share: the one line that tells an error, and the table of subcommands. */
#ifndef EPOCHFS_TOOLS_CLI_H
#define EPOCHFS_TOOLS_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

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

/* Of this name, or NULL. */
const struct command *command_find(const char *name);
/* Prints its --help to stdout. (help.c) */
void command_help(const struct command *c);
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
int command_help_of(int argc, char **argv);
int command_version(int argc, char **argv);

#endif
