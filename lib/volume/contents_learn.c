/* SPDX-License-Identifier: Apache-2.0 */
/* Where contents lie that are new in the remote, before somebody reads one. */
#include <string.h>

#include "lib/store/store.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"
#include "lib/volume/content_private.h"

static void ends(struct contents *all)
{
	SCOPED_LOCK(&all->lock);

	if (--all->fetches == 0)
		pthread_cond_broadcast(&all->idle);
}

static void *learn(void *arg)
{
	struct volume *vol = arg;
	int error = store_index_refresh(vol->store);

	if (error)
		log_debug("the index is not read ahead: %s", strerror(-error));
	ends(vol->contents);
	return NULL;
}

void contents_learn(struct volume *vol)
{
	struct contents *all = vol->contents;
	pthread_attr_t attr;
	pthread_t thread;

	mutex_lock(&all->lock);
	all->fetches++;
	mutex_unlock(&all->lock);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (thread_start(&thread, &attr, learn, vol))
		ends(all);
	pthread_attr_destroy(&attr);
}
