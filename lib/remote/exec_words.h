/* SPDX-License-Identifier: Apache-2.0 */
/* A program and its arguments in one text: of an exec: remote, and of the mount's on-epoch. */
#ifndef EPOCHFS_REMOTE_EXEC_WORDS_H
#define EPOCHFS_REMOTE_EXEC_WORDS_H

#include <stddef.h>

/*
 * Blanks part the words; between '...' they do not, and `\` before a character takes that as it is,
 * outside of quotes. No shell sees them and nothing is expanded; whoever wants a shell names one
 * (sh -c '...' name).
 *
 * Gives a NULL-terminated list, and how many. 0, -EINVAL (no word, an open quote, a control
 * character), -ENOMEM. Free with exec_words_free (NULL is allowed).
 */
int exec_words_split(const char *text, char ***ret_words, size_t *ret_count);
void exec_words_free(char **words);

/* Makes the first word the path of the program, so that it is the same one from whatever folder and
 * PATH it runs later: a path from / stays, a name is looked for in PATH. 0, -EINVAL for a relative
 * path, -ENOENT, -EACCES where it may not be run, -ENOMEM. */
int exec_words_find(char **words);

#endif
