/* SPDX-License-Identifier: Apache-2.0 */
/* The handles of an HTTP engine. */
#include "lib/net/http_pool.h"

#include <errno.h>
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

#define LOOK_NS	  (50 * NS_PER_MS) /* between looks whether the owner is cancelled */
#define KEPT_EACH 2L		   /* idle connections of a slot: to a server and one more host */

static void share_lock(CURL *easy, curl_lock_data data, curl_lock_access access, void *arg)
{
	struct http_pool *p = arg;

	(void)easy;
	(void)access;
	mutex_lock(&p->share_locks[data]);
}

static void share_unlock(CURL *easy, curl_lock_data data, void *arg)
{
	struct http_pool *p = arg;

	(void)easy;
	mutex_unlock(&p->share_locks[data]);
}

static int share_new(struct http_pool *p)
{
	CURLSH *share = curl_share_init();

	if (!share)
		return -ENOMEM;
	if (curl_share_setopt(share, CURLSHOPT_LOCKFUNC, share_lock) != CURLSHE_OK ||
	    curl_share_setopt(share, CURLSHOPT_UNLOCKFUNC, share_unlock) != CURLSHE_OK ||
	    curl_share_setopt(share, CURLSHOPT_USERDATA, p) != CURLSHE_OK ||
	    curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS) != CURLSHE_OK ||
	    curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) != CURLSHE_OK) {
		curl_share_cleanup(share);
		return -ENOMEM;
	}
	p->share = share;
	return 0;
}

int http_pool_init(struct http_pool *p, unsigned most)
{
	*p = (struct http_pool){.most = most, .allowed = most};
	if (cond_init_mono(&p->freed) < 0)
		return -ENOMEM;
	mutex_init(&p->lock, LOCK_HTTP_POOL);
	for (int i = 0; i < CURL_LOCK_DATA_LAST; i++)
		mutex_init(&p->share_locks[i], LOCK_HTTP_SHARE);
	if (share_new(p) == 0)
		return 0;
	http_pool_destroy(p);
	return -ENOMEM;
}

static void slot_free(struct http_slot *slot)
{
	if (slot->easy)
		curl_easy_cleanup(slot->easy);
	if (slot->multi)
		curl_multi_cleanup(slot->multi);
	free(slot);
}

void http_pool_destroy(struct http_pool *p)
{
	while (p->idle) {
		struct http_slot *slot = p->idle;

		p->idle = slot->next;
		slot_free(slot);
	}
	if (p->share)
		curl_share_cleanup(p->share);
	for (int i = 0; i < CURL_LOCK_DATA_LAST; i++)
		mutex_destroy(&p->share_locks[i]);
	pthread_cond_destroy(&p->freed);
	mutex_destroy(&p->lock);
}

static struct http_slot *slot_new(struct http_pool *p)
{
	struct http_slot *slot = calloc(1, sizeof(*slot));

	if (!slot)
		return NULL;
	slot->easy = curl_easy_init();
	slot->multi = curl_multi_init();
	if (slot->easy && slot->multi &&
	    curl_multi_setopt(slot->multi, CURLMOPT_MAXCONNECTS, KEPT_EACH) == CURLM_OK &&
	    curl_easy_setopt(slot->easy, CURLOPT_SHARE, p->share) == CURLE_OK)
		return slot;
	slot_free(slot);
	return NULL;
}

/* Waits until another may work, and counts it: 0 or -ECANCELED. *ret_slot is NULL where none is
 * idle. */
static int claim(struct http_pool *p, struct remote *owner, struct http_slot **ret_slot)
{
	SCOPED_LOCK(&p->lock);

	while (p->taken >= p->allowed) {
		if (atomic_load(&owner->cancelled))
			return -ECANCELED;
		cond_wait_until(&p->freed, &p->lock, clock_mono_ns() + LOOK_NS);
	}
	p->taken++;
	*ret_slot = p->idle;
	if (p->idle) {
		p->idle = p->idle->next;
		(*ret_slot)->halvings = p->halvings;
	}
	return 0;
}

int http_pool_take(struct http_pool *p, struct remote *owner, struct http_slot **ret_slot)
{
	struct http_slot *slot = NULL;
	int r = claim(p, owner, &slot);

	if (r < 0)
		return r;
	if (!slot) {
		slot = slot_new(p);
		SCOPED_LOCK(&p->lock);
		if (!slot) {
			p->taken--;
			pthread_cond_signal(&p->freed);
			return -ENOMEM;
		}
		slot->halvings = p->halvings;
	}
	*ret_slot = slot;
	return 0;
}

static void adapt_locked(struct http_pool *p, const struct http_slot *slot,
			 enum http_outcome outcome)
{
	if (outcome == HTTP_OVERLOADED && slot->halvings == p->halvings) {
		p->allowed = p->allowed > 1 ? p->allowed / 2 : 1;
		p->successes = 0;
		p->halvings++;
	} else if (outcome == HTTP_WENT_WELL && p->allowed < p->most &&
		   ++p->successes >= p->allowed) {
		p->allowed++;
		p->successes = 0;
	}
}

void http_pool_give(struct http_pool *p, struct http_slot *slot, enum http_outcome outcome)
{
	SCOPED_LOCK(&p->lock);

	adapt_locked(p, slot, outcome);
	slot->next = p->idle;
	p->idle = slot;
	p->taken--;
	pthread_cond_broadcast(&p->freed);
}

unsigned http_pool_allowed(struct http_pool *p)
{
	SCOPED_LOCK(&p->lock);

	return p->allowed;
}
