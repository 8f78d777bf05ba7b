/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs: the command. Finds the subcommand and runs it. */
#include <stdio.h>
#include <string.h>

#include "lib/util/log.h"
#include "tools/argv.h"
#include "tools/cli.h"

int main(int argc, char **argv)
{
	const struct command *c;
	const char *name;

	argv = argv_hide_secrets(argc, argv);
	if (!argv)
		return cli_error(EXIT_FAILED, "out of memory");
	name = argc > 1 ? argv[1] : "";
	if (argc < 2) {
		program_help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h"))
		name = "help";
	if (!strcmp(name, "--version"))
		name = "version";
	c = command_find(name);
	if (!c)
		return cli_error(EXIT_USAGE, "unknown command '%s'; see `epochfs --help`", name);
	/* What a command has to say is its one line; only a mount keeps a log. One that may wait for a lease says so. */
	if (c->run != command_mount)
		log_set_level(c->run == command_import || c->run == command_watch
				      ? LOG_LEVEL_WARN
				      : LOG_LEVEL_ERROR);
	return c->run(argc - 1, argv + 1);
}
