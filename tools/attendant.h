/* SPDX-License-Identifier: Apache-2.0 */
/* A thread beside the work of a command that a signal interrupts: it takes the signals, by the rule of lib/util/end_signals.h, and may show how the work goes. */
#ifndef EPOCHFS_TOOLS_ATTENDANT_H
#define EPOCHFS_TOOLS_ATTENDANT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "lib/util/end_signals.h"

struct attendant {
	void (*tick)(void *arg); /* ten times a second, in its thread; or NULL */
	void *arg;
	/* Private. */
	pthread_t thread;
	int signal_fd;
	struct end_request asked; /* the thread's */
	atomic_bool interrupted, ends;
};

/*
 * Blocks the signals in this thread, and starts its own; call it before there are others. The first signal only notes that the command is to tidy up and to end. While it
 * does, a person's second SIGINT ends the process at once, and any signal after END_SIGNALS_GRACE_NS. 0 or -errno.
 */
int attendant_start(struct attendant *a);
/* The signals stay blocked. */
void attendant_stop(struct attendant *a);
/* Whether a signal has come: an interrupted_fn, whose argument is the attendant. From any thread. */
bool attendant_interrupted(void *a);

#endif
