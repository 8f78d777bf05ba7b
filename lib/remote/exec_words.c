/* SPDX-License-Identifier: Apache-2.0 */
/* The words of an exec: remote. */
#include <errno.h>
#include <string.h>
#include "lib/remote/exec.h"
#include "lib/util/cleanup.h"

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
