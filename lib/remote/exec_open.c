/* SPDX-License-Identifier: Apache-2.0 */
/* Opening an exec: remote. */
#include <errno.h>
#include <string.h>
#include "lib/remote/exec.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"

#define DEFAULT_TOTAL_TIMEOUT (600 * NS_PER_S)

static void exec_free(struct exec *e)
{
	rate_destroy(&e->upload);
	rate_destroy(&e->download);
	pthread_cond_destroy(&e->freed);
	mutex_destroy(&e->lock);
	exec_words_free(e->words);
}

void exec_release(struct remote *r)
{
	exec_free((struct exec *)r);
}

static int exec_init(struct exec *e, const char *text, const struct remote_limits *limits)
{
	const char *slash;
	int error = exec_words_split(text + strlen("exec:"), &e->words, &e->word_count);

	if (error)
		return error;
	error = exec_words_find(e->words);
	if (error)
		return error;
	slash = strrchr(e->words[0], '/');
	e->program = slash + 1;
	e->connections = limits->connections ? limits->connections : REMOTE_CONNECTIONS;
	e->total_timeout_ns =
		limits->total_timeout_ns ? limits->total_timeout_ns : DEFAULT_TOTAL_TIMEOUT;
	return 0;
}

int remote_exec_open(const struct remote_url *url, const char *text,
		     const struct remote_limits *limits, struct remote **ret_remote)
{
	cleanup_free struct exec *e = calloc(1, sizeof(*e));
	int error;

	(void)url; /* a `?` is the program's own */
	if (!e)
		return -ENOMEM;
	if (cond_init_mono(&e->freed) < 0)
		return -ENOMEM;
	mutex_init(&e->lock, LOCK_REMOTE_EXEC);
	rate_init(&e->upload, limits->upload_rate);
	rate_init(&e->download, limits->download_rate);
	error = exec_init(e, text, limits);
	if (!error)
		error = remote_init(&e->base, &exec_ops, text, NULL);
	if (error) {
		exec_free(e);
		return error;
	}
	*ret_remote = &steal_ptr(e)->base;
	return 0;
}
