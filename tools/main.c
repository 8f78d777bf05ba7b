/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs: the command. Finds the subcommand and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/remote/remote_url.h"
#include "lib/util/cleanup.h"
#include "lib/util/log.h"
#include "tools/cli.h"
#include "tools/suggest.h"

/* The word is shortened, or cut where it would become longer: it has no more room than it had. */
static void hide(char *word)
{
	size_t len = strlen(word), room = 4 * len + 4;
	cleanup_free char *shown = strstr(word, "://") ? malloc(room) : NULL;
	size_t shown_len;

	if (!shown)
		return;
	remote_url_redact(word, shown, room);
	if (strcmp(shown, word) == 0)
		return;
	shown_len = strnlen(shown, len);
	explicit_bzero(word, len);
	memcpy(word, shown, shown_len);
}

/*
 * Gives a copy of the words, which is never freed, and hides the secrets of URLs in the original, as
 * remote_url_redact does, so that they show there for no more than a moment. Once, before there are
 * threads or other processes. NULL: no memory, and nothing is hidden.
 */
static char **argv_hide_secrets(int argc, char **argv)
{
	static char **copy;

	copy = calloc((size_t)argc + 1, sizeof(*copy));
	for (int i = 0; copy && i < argc; i++) {
		copy[i] = strdup(argv[i]);
		if (!copy[i])
			return NULL;
	}
	for (int i = 0; copy && i < argc; i++)
		hide(argv[i]);
	return copy;
}

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
	if (!strcmp(name, "--version") || !strcmp(name, "-V"))
		name = "version";
	c = command_find(name);
	if (!c)
		return cli_error(EXIT_USAGE, "unknown command '%s'%s; see `epochfs --help`", name,
				 suggest_command(name));
	/* What a command has to say is its one line; only a mount keeps a log. One that may wait for a lease says so. */
	if (c->run != command_mount)
		log_set_level(c->run == command_import || c->run == command_watch
				      ? LOG_LEVEL_WARN
				      : LOG_LEVEL_ERROR);
	return c->run(argc - 1, argv + 1);
}
