/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/waiting.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/remote/remote_url.h"
#include "lib/util/buf.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"

/* What takes less is no wait to a person. */
#define SILENCE_MS 2000

static void *say_later(void *arg)
{
	const struct waiting *w = arg;
	struct pollfd end = {.fd = w->ends[0], .events = POLLIN};
	cleanup_buf struct buf line = {0};
	char name[PATH_MAX];

	if (poll(&end, 1, SILENCE_MS))
		return NULL;
	remote_url_redact(w->remote, name, sizeof(name));
	printable_put(&line, name);
	fprintf(stderr, "epochfs: %s is not reached yet; it is tried again\n", buf_str(&line));
	return NULL;
}

void waiting_begin(struct waiting *w)
{
	if (pipe2(w->ends, O_CLOEXEC))
		return;
	w->started = thread_start(&w->thread, NULL, say_later, w) == 0;
	if (w->started)
		return;
	close(w->ends[0]);
	close(w->ends[1]);
}

void waiting_end(struct waiting *w)
{
	if (!w->started)
		return;
	close(w->ends[1]);
	pthread_join(w->thread, NULL);
	close(w->ends[0]);
}
