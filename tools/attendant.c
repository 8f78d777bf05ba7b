/* SPDX-License-Identifier: Apache-2.0 */
/* Taking signals beside the work of a command. */
#include "tools/attendant.h"

#include <poll.h>
#include <unistd.h>

#include "lib/util/thread.h"

#define TICK_MS 100

static void *attend(void *arg)
{
	struct attendant *a = arg;
	struct pollfd signalled = {.fd = a->signal_fd, .events = POLLIN};

	while (!atomic_load(&a->ends)) {
		poll(&signalled, 1, TICK_MS);
		end_signals_take(a->signal_fd, &a->asked);
		end_signals_leave(&a->asked, END_SIGNALS_GRACE_NS);
		if (a->asked.first)
			atomic_store(&a->interrupted, true);
		if (a->tick)
			a->tick(a->arg);
	}
	return NULL;
}

int attendant_start(struct attendant *a)
{
	int error;

	a->signal_fd = end_signals_open();
	if (a->signal_fd < 0)
		return a->signal_fd;
	error = thread_start(&a->thread, NULL, attend, a);
	if (error)
		close(a->signal_fd);
	return error;
}

void attendant_stop(struct attendant *a)
{
	atomic_store(&a->ends, true);
	pthread_join(a->thread, NULL);
	close(a->signal_fd);
}

bool attendant_interrupted(void *a)
{
	return atomic_load(&((struct attendant *)a)->interrupted);
}
