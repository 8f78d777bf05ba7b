/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that were told ESTALE by an open. The kernel looks the name up again and opens once more;
 * a second ESTALE would reach the program. */
#include "lib/volume/bodies.h"

#include <errno.h>

/* The second open follows at once; what is older is of an open that never came back. */
#define TOLD_LIFE (10 * NS_PER_S)

int told_add_locked(struct volume *vol, const struct told *what)
{
	struct told *t = malloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	*t = *what;
	t->at_ns = clock_mono_ns();
	t->next = vol->bodies->told;
	vol->bodies->told = t;
	return 0;
}

struct told *told_find_locked(struct volume *vol, pid_t tid)
{
	struct told *t = vol->bodies->told;

	while (t && t->tid != tid)
		t = t->next;
	return t;
}

bool told_take_locked(struct volume *vol, uint64_t ino, pid_t tid)
{
	int64_t now = clock_mono_ns();
	struct told **p = &vol->bodies->told, *t;
	bool found = false;

	while ((t = *p)) {
		bool mine = t->ino == ino && t->tid == tid, old = now - t->at_ns > TOLD_LIFE;

		if (!mine && !old) {
			p = &t->next;
			continue;
		}
		found |= mine && !old;
		*p = t->next;
		free(t);
	}
	return found;
}

void told_free(struct volume *vol)
{
	struct told *t;

	while ((t = vol->bodies->told)) {
		vol->bodies->told = t->next;
		free(t);
	}
}
