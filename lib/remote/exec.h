/* SPDX-License-Identifier: Apache-2.0 */
/* The remote that is a program, and what it must speak. Private to exec*.c; epochfs-remotes(7) says the same to users. */
#ifndef EPOCHFS_REMOTE_EXEC_H
#define EPOCHFS_REMOTE_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include "lib/remote/rate.h"
#include "lib/remote/remote.h"
#include "lib/remote/remote_ops.h"
#include "lib/util/lock.h"

/* What a program that is a remote writes to standard output, decoded (exec.h has the protocol). Pure. Private to exec*.c. */

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

/* A program and its arguments in one text: of an exec: remote, and of the mount's on-epoch. */

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

/*
 * `exec:PROGRAM ARGS`. exec.h says how the words part; no %XX is decoded. PROGRAM is a path
 * from / or a name that is looked for in PATH when the remote is opened.
 *
 * One run is one operation: the words, then a verb, then the verb's own words.
 *
 *   put KEY          stores standard input under KEY, replacing what is there
 *   get KEY          writes the object to standard output
 *   list PREFIX      writes a line "SIZE KEY" (bytes in decimal, one blank, the whole key) for each
 *                    object whose key begins with PREFIX, which is empty or ends with `/`; others
 *                    and what is not a key are skipped, so a program may list more
 *   delete KEY       removes the object; one that is not there is no error
 *   capabilities     optional: writes words, separated by blanks or newlines, of what it can besides;
 *                    asked once, before the first operation that needs to know. A program that
 *                    ends otherwise than with 0 can nothing besides. Unknown words are skipped
 *
 * What it may offer there:
 *   range            `get KEY OFFSET LENGTH` writes that part, less where the object ends before.
 *                    Without it each part is cut out of a whole `get`, which is read to the part's
 *                    end and no further
 *   size             `size KEY` writes the size in decimal. Without it, the KEY's folder is listed,
 *                    or the object read where KEY has none
 *   put-if-absent    `put-if-absent KEY` stores standard input unless KEY exists (exit code 8), of
 *                    racing writers one. It is tried before it is believed (remote_check_create).
 *                    Without it, or where the trial fails, REMOTE_CREATE_CHECKED
 *
 * Exit codes; those that epochfs has too mean the same:
 *   0  done           3  the store cannot be reached   7  it did not answer in time
 *   1  failed         4  not allowed                   8  exists already (put-if-absent)
 *   2  wrong usage    5  no such object (get, size)    9  no space, or over a quota (put, put-if-absent)
 * 3 and 7 and all that are not named are tried again, as 1 is; so is death by a signal.
 *
 * What it can rely on: keys are as remote.h says, so they need no quoting, never begin with `-` that
 * an option could (`--` parts them where the program wants it) and never leave a folder. Standard
 * input is a regular file that has its whole size from the start and cannot change, never a pipe:
 * also where epochfs is killed meanwhile, the program reads the whole object, and nobody takes a
 * part for it. It runs in a session of its own without a terminal, so it must not ask anything;
 * with no other descriptor open; and in the environment and folder of epochfs.
 *
 * What epochfs relies on: an object appears whole or not at all, however the program ends, and is
 * durable when it ends with 0. Nothing else is believed: output is bounded (REMOTE_GET_MAX), lines of
 * a list have at most REMOTE_KEY_MAX + 32 bytes, keys are checked. Of what it says on standard error
 * the last 2 KiB go to the log at debug level, and the last line into the reason of a failure.
 * A run that lasts longer than total_timeout_ns (10 min), or whose remote is cancelled, is ended with
 * all of its process group: SIGTERM, and SIGKILL half a second later. At its end what it left
 * running in its group is killed. At most `connections` (8) run at once.
 */

struct exec {
	struct remote base;
	char **words; /* the program's path, its arguments, NULL */
	size_t word_count;
	const char *program; /* its name, for messages */
	int64_t total_timeout_ns;
	unsigned connections;
	struct rate upload, download;
	struct mutex lock;    /* guards what follows; nothing else is locked under it */
	pthread_cond_t freed; /* a run has ended */
	unsigned running;
	bool asked; /* `can` is known */
	struct exec_abilities can;
	bool tried; /* `create` is known */
	enum remote_create create;
};

extern const struct remote_ops exec_ops; /* exec.c */
void exec_release(struct remote *r);	 /* exec.c */

/* Where output goes: bytes [skip, skip + want) to `out`, no more than `max`. */
struct exec_sink {
	struct buf *out; /* NULL: it is counted only */
	uint64_t skip;
	uint64_t want;
	uint64_t max;  /* more, of what is wanted, is -EFBIG */
	uint64_t seen; /* bytes that came */
	bool enough;   /* what is wanted has come: the run may be ended early */
};

/* What is run: at most four words, NULL after the last. */
struct exec_verb {
	const char *word[4];
	const void *input; /* NULL: /dev/null */
	size_t input_len;
	struct exec_sink *sink; /* NULL: output is thrown away */
};

/*
 * Runs it and waits for its end. Gives the exit code (0 also where the sink had enough), or -errno
 * where it was not to be run or had no exit code: -EIO (killed by a signal, no process to be had),
 * -ENOENT and -EACCES for the program itself, -ETIMEDOUT, -ECANCELED, -EFBIG, -ENOMEM; with a reason
 * (remote_set_reason). `ret_said` gets the last line of its standard error.
 */
#define EXEC_SAID_MAX 200
int exec_run(struct exec *e, const struct exec_verb *verb, char ret_said[EXEC_SAID_MAX]);

#endif
