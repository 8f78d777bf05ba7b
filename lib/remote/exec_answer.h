/* SPDX-License-Identifier: Apache-2.0 */
/* What a program that is a remote writes to standard output, decoded (exec.h has the protocol). Pure. Private to exec*.c. */
#ifndef EPOCHFS_REMOTE_EXEC_ANSWER_H
#define EPOCHFS_REMOTE_EXEC_ANSWER_H

#include <stdbool.h>
#include "lib/remote/remote.h"

/* What a verb can do besides its plain form. */
struct exec_abilities {
	bool range, size, put_if_absent;
};

/* All change the text: they cut it into words and lines. */

/* The answer to `capabilities`; without memory none. */
struct exec_abilities exec_abilities_parse(struct buf *text);
/* The answer to `list`: calls fn for each object below the prefix. 0, what fn returned, -EPROTO where these are no lines, -ENOMEM. */
int exec_list_parse(struct buf *text, const char *prefix, remote_list_fn *fn, void *arg);
/* The answer to `size`: 0, -EPROTO where it is no number, -ENOMEM. */
int exec_size_parse(struct buf *text, uint64_t *ret_size);

#endif
