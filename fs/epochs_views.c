/* SPDX-License-Identifier: Apache-2.0 */
/* Views of .epochs: how many wait in each. */
#include "fs/epochs_views.h"

#include <errno.h>
#include <stdlib.h>
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

#define VIEWS_MAX 64

struct epochs_views {
	struct mutex lock;
	unsigned waiting[VIEWS_MAX]; /* guarded by lock */
};

int epochs_views_new(struct epochs_views **ret_views)
{
	struct epochs_views *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	mutex_init(&v->lock, LOCK_FS_EPOCH_VIEWS);
	*ret_views = v;
	return 0;
}

void epochs_views_free(struct epochs_views *v)
{
	if (!v)
		return;
	mutex_destroy(&v->lock);
	free(v);
}

uint32_t epochs_views_free_one(struct epochs_views *v)
{
	uint32_t view = 0;

	SCOPED_LOCK(&v->lock);
	while (view < VIEWS_MAX - 1 && v->waiting[view])
		view++;
	return view;
}

bool epochs_views_any_busy(struct epochs_views *v)
{
	SCOPED_LOCK(&v->lock);
	for (uint32_t view = 0; view < VIEWS_MAX; view++)
		if (v->waiting[view])
			return true;
	return false;
}

bool epochs_views_busy(struct epochs_views *v, uint32_t view)
{
	SCOPED_LOCK(&v->lock);
	return v->waiting[view];
}

uint32_t epochs_views_max(void)
{
	return VIEWS_MAX;
}

void epochs_views_wait_begin(struct epochs_views *v, uint32_t view)
{
	SCOPED_LOCK(&v->lock);
	v->waiting[view]++;
}

void epochs_views_wait_end(struct epochs_views *v, uint32_t view)
{
	SCOPED_LOCK(&v->lock);
	v->waiting[view]--;
}
