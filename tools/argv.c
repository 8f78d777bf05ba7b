/* SPDX-License-Identifier: Apache-2.0 */
/* The words of the command line. */
#include "tools/argv.h"

#include <stdlib.h>
#include <string.h>

#include "lib/remote/remote_url.h"
#include "lib/util/cleanup.h"

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

char **argv_hide_secrets(int argc, char **argv)
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
