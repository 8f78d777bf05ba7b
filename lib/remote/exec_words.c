/* SPDX-License-Identifier: Apache-2.0 */
/* A program and its arguments in one text. */
#include "lib/remote/exec_words.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/text.h"

#define WORDS_MAX 128

void exec_words_free(char **words)
{
	for (size_t i = 0; words && words[i]; i++)
		free(words[i]);
	free(words);
}

static void cleanup_words_fn(char ***words)
{
	exec_words_free(*words);
}

/* One word from *text on, which moves behind it: 0, or -EINVAL for an open quote. */
static int take_word(const char **text, struct buf *word)
{
	bool quoted = false;
	const char *p = *text;

	for (; *p && (quoted || !strchr(" \t", *p)); p++) {
		if (*p == '\'') {
			quoted = !quoted;
			continue;
		}
		if (*p == '\\' && !quoted && !*++p)
			return -EINVAL;
		if ((unsigned char)*p < ' ' && *p != '\t')
			return -EINVAL;
		buf_put_u8(word, (uint8_t)*p);
	}
	*text = p;
	return quoted ? -EINVAL : 0;
}

int exec_words_split(const char *text, char ***ret_words, size_t *ret_count)
{
	CLEANUP(cleanup_words_fn) char **words = calloc(WORDS_MAX + 1, sizeof(*words));
	size_t count = 0;

	if (!words)
		return -ENOMEM;
	for (text += strspn(text, " \t"); *text; text += strspn(text, " \t")) {
		struct buf cleanup_buf word = {0};
		int error;

		if (count == WORDS_MAX)
			return -EINVAL;
		error = take_word(&text, &word);
		if (!error)
			error = buf_error(&word);
		if (error)
			return error;
		words[count] = strdup(buf_str(&word));
		if (!words[count++])
			return -ENOMEM;
	}
	if (!count || !*words[0])
		return -EINVAL;
	*ret_words = steal_ptr(words);
	*ret_count = count;
	return 0;
}

int exec_words_find(char **words)
{
	const char *path = getenv("PATH");
	int error = -ENOENT;

	if (strchr(words[0], '/')) {
		if (words[0][0] != '/')
			return -EINVAL;
		return access(words[0], X_OK) == 0 ? 0 : errno == EACCES ? -EACCES : -ENOENT;
	}
	for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin"; *p; p += *p == ':') {
		size_t len = strcspn(p, ":");
		cleanup_free char *full = NULL;

		/* An empty or relative one would mean wherever we stand. */
		if (*p == '/' && text_print(&full, "%.*s/%s", (int)len, p, words[0]) < 0)
			return -ENOMEM;
		if (full && access(full, X_OK) == 0) {
			free(words[0]);
			words[0] = steal_ptr(full);
			return 0;
		}
		if (full && errno == EACCES)
			error = -EACCES;
		p += len;
	}
	return error;
}
