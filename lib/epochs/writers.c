/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/epochs/writers.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/util/process.h"

#define PID_BITS 32
/* Of those that are not watched. */
#define UNWATCHED (UINT64_C(0x7fffffff) << PID_BITS)

struct writers {
	/* Of those watched: pidfds, which become readable as the process ends. */
	struct pollfd hold[WRITERS_MAX];
	uint64_t number[WRITERS_MAX];
	nfds_t count;
	uint64_t ended; /* so many have, ever */
};

struct writers *writers_new(void)
{
	return calloc(1, sizeof(struct writers));
}

void writers_free(struct writers *w)
{
	for (nfds_t i = 0; w && i < w->count; i++)
		close(w->hold[i].fd);
	free(w);
}

static pid_t pid_of(uint64_t number)
{
	return (pid_t)(uint32_t)number;
}

uint64_t writers_number(struct writers *w, pid_t pid)
{
	uint64_t number;
	int hold;

	if (pid <= 0)
		return 0;
	for (nfds_t i = 0; i < w->count; i++)
		if (pid_of(w->number[i]) == pid)
			return w->number[i];
	/* A pid is used again only after its process has ended. */
	number = w->ended << PID_BITS | (uint32_t)pid;
	hold = w->count < WRITERS_MAX ? process_hold(pid) : -1;
	if (hold < 0)
		return UNWATCHED | (uint32_t)pid;
	w->hold[w->count] = (struct pollfd){.fd = hold, .events = POLLIN};
	w->number[w->count++] = number;
	return number;
}

uint64_t writers_ended(struct writers *w, bool *ret_known, unsigned *ret_status)
{
	uint64_t number;
	nfds_t i = 0;

	*ret_status = 0;
	if (!w->count || poll(w->hold, w->count, 0) <= 0)
		return 0;
	while (i < w->count && !w->hold[i].revents)
		i++;
	if (i == w->count)
		return 0;
	number = w->number[i];
	*ret_known = process_end_status(w->hold[i].fd, pid_of(number), ret_status);
	close(w->hold[i].fd);
	w->hold[i] = w->hold[--w->count];
	w->number[i] = w->number[w->count];
	w->ended++;
	return number;
}

bool writers_any(const struct writers *w)
{
	return w->count > 0;
}
