/* SPDX-License-Identifier: Apache-2.0 */
/* A line on stderr where a remote lets a command wait: it is tried, nothing hangs. */
#ifndef EPOCHFS_TOOLS_WAITING_H
#define EPOCHFS_TOOLS_WAITING_H

#include <pthread.h>
#include <stdbool.h>

struct waiting {
	const char *remote; /* as given */
	/* Private. */
	pthread_t thread;
	int ends[2];
	bool started;
};

/* Around the wait, in one thread. Where no thread can be started, nothing is said. */
void waiting_begin(struct waiting *w);
void waiting_end(struct waiting *w);

#endif
