/* SPDX-License-Identifier: Apache-2.0 */
/* Fault points: named places where a test lets the process die as by kill -9. */
#include "lib/util/faultpoint.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

atomic_int fault_points;

/* What was asked for; written once, before fault_points says 2. */
static char *wanted;
static atomic_long remaining;

__attribute__((weak)) const char *fault_variable(void)
{
	return NULL;
}

void fault_disarm_children(void)
{
	if (fault_variable())
		unsetenv(fault_variable());
}

static void look(void)
{
	const char *variable = fault_variable(), *text = variable ? getenv(variable) : NULL;
	char *colon;

	if (text && *text)
		wanted = strdup(text);
	if (wanted) {
		colon = strchr(wanted, ':');
		atomic_store(&remaining, colon ? strtol(colon + 1, NULL, 10) : 1);
		if (colon)
			*colon = '\0';
	}
	atomic_store(&fault_points, wanted ? 2 : 1);
}

void fault_point_reached(const char *name)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look);
	if (!wanted || strcmp(name, wanted) != 0)
		return;
	if (atomic_fetch_sub(&remaining, 1) != 1)
		return;
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}
