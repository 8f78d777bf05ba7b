/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and tokens that expire: kept, and fetched again in time. */
#include "lib/net/credentials.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

#define RENEW_BEFORE_NS	 (300 * NS_PER_S)
#define AGAIN_AFTER_NS	 (60 * NS_PER_S)
#define REFUSED_AFTER_NS (5 * NS_PER_S)

struct credentials_cache {
	credentials_fetch_fn *fetch;
	void *arg;
	struct mutex lock; /* guards what follows; not held while fetching */
	pthread_cond_t fetched;
	bool fetching;
	unsigned failures; /* fetches that failed */
	int last_failure;
	bool have;
	struct credentials now;
	int64_t told_ns;    /* when they end, as they say; 0: they do not */
	int64_t renew_ns;   /* wall clock; INT64_MAX: never */
	int64_t refused_ns; /* monotonic, of the last fetch for a refusal; 0: none */
};

void secret_free(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

void credentials_free(struct credentials *c)
{
	secret_free(c->key);
	secret_free(c->secret);
	secret_free(c->token);
	*c = (struct credentials){0};
}

static int copy_text(const char *from, char **ret_to)
{
	if (from && !(*ret_to = strdup(from)))
		return -ENOMEM;
	return 0;
}

int credentials_copy(const struct credentials *from, struct credentials *ret_to)
{
	struct credentials cleanup_credentials to = {.expires_ns = from->expires_ns,
						     .fixed = from->fixed};

	if (copy_text(from->key, &to.key) < 0 || copy_text(from->secret, &to.secret) < 0 ||
	    copy_text(from->token, &to.token) < 0)
		return -ENOMEM;
	*ret_to = to;
	to = (struct credentials){0};
	return 0;
}

int credentials_cache_new(credentials_fetch_fn *fetch, void *arg,
			  struct credentials_cache **ret_cache)
{
	struct credentials_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->fetch = fetch;
	c->arg = arg;
	if (pthread_cond_init(&c->fetched, NULL) != 0) {
		free(c);
		return -ENOMEM;
	}
	mutex_init(&c->lock, LOCK_REMOTE_CREDENTIALS);
	*ret_cache = c;
	return 0;
}

void credentials_cache_free(struct credentials_cache *cache)
{
	if (!cache)
		return;
	credentials_free(&cache->now);
	pthread_cond_destroy(&cache->fetched);
	mutex_destroy(&cache->lock);
	free(cache);
}

/* Takes over what was fetched. What seems to have expired already (a wrong clock here, or an old
 * answer there) is used for a while: the server is the one to say no. */
static void keep_locked(struct credentials_cache *c, struct credentials *fetched)
{
	int64_t now = clock_wall_ns(), life;

	credentials_free(&c->now);
	c->now = *fetched;
	*fetched = (struct credentials){0};
	c->have = true;
	c->told_ns = c->now.expires_ns;
	c->renew_ns = INT64_MAX;
	if (!c->now.expires_ns)
		return;
	if (c->now.expires_ns < now + AGAIN_AFTER_NS)
		c->now.expires_ns = now + AGAIN_AFTER_NS;
	life = c->now.expires_ns - now;
	c->renew_ns = c->now.expires_ns - (life / 2 < RENEW_BEFORE_NS ? life / 2 : RENEW_BEFORE_NS);
}

/* Lets this thread fetch, without the lock, while `fetching` keeps the others from it. */
static int fetch_locked(struct credentials_cache *c)
{
	struct credentials cleanup_credentials fetched = {0};
	int r;

	c->fetching = true;
	mutex_unlock(&c->lock);
	r = c->fetch(c->arg, &fetched);
	mutex_lock(&c->lock);
	c->fetching = false;
	if (r == 0) {
		keep_locked(c, &fetched);
	} else {
		c->failures++;
		c->last_failure = r;
	}
	pthread_cond_broadcast(&c->fetched);
	return r;
}

static bool expired_locked(const struct credentials_cache *c)
{
	return !c->have || (c->now.expires_ns && c->now.expires_ns <= clock_wall_ns());
}

int credentials_get(struct credentials_cache *cache, struct credentials *ret_credentials)
{
	unsigned failures;
	int r = 0;
	SCOPED_LOCK(&cache->lock);

	failures = cache->failures;
	while (cache->fetching && expired_locked(cache) && failures == cache->failures)
		cond_wait(&cache->fetched, &cache->lock);
	/* What failed for the one who fetched while we waited would fail for us. */
	if (failures != cache->failures && expired_locked(cache))
		return cache->last_failure;
	if (!cache->fetching && (expired_locked(cache) || cache->renew_ns <= clock_wall_ns()))
		r = fetch_locked(cache);
	if (r < 0 && expired_locked(cache))
		return r;
	if (r < 0) {
		log_warn("fetching new credentials: %s; the old ones are still good", strerror(-r));
		cache->renew_ns = clock_wall_ns() + AGAIN_AFTER_NS;
	}
	return credentials_copy(&cache->now, ret_credentials);
}

bool credentials_expiry(struct credentials_cache *cache, int64_t *ret_at_ns, bool *ret_renewed)
{
	SCOPED_LOCK(&cache->lock);

	*ret_at_ns = cache->told_ns;
	*ret_renewed = !cache->now.fixed;
	return cache->told_ns != 0;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

void credentials_refused(struct credentials_cache *cache, const struct credentials *used)
{
	int64_t now = clock_mono_ns();
	SCOPED_LOCK(&cache->lock);

	if (!cache->have || !same_text(cache->now.key, used->key) ||
	    !same_text(cache->now.secret, used->secret) ||
	    !same_text(cache->now.token, used->token))
		return;
	if (cache->refused_ns && now - cache->refused_ns < REFUSED_AFTER_NS)
		return;
	cache->refused_ns = now;
	cache->have = false;
}
