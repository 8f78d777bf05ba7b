/* SPDX-License-Identifier: Apache-2.0 */
/* The handles of an HTTP engine: how many work at once, and who is next. Private to the engine. */
#ifndef EPOCHFS_NET_HTTP_POOL_H
#define EPOCHFS_NET_HTTP_POOL_H

#include <curl/curl.h>
#include <pthread.h>
#include "lib/remote/remote_ops.h"
#include "lib/util/lock.h"

/*
 * A slot is a curl handle with what it keeps between requests: its connection. Each has a multi
 * handle of its own, driven by the thread that has taken the slot, because only so a transfer can
 * be ended at any moment from outside.
 */
struct http_slot {
	CURL *easy;
	CURLM *multi;
	struct http_slot *next;
	unsigned halvings; /* of the pool when the slot was taken */
};

/* How a request ended, as far as it says how much the server bears. */
enum http_outcome {
	HTTP_WENT_WELL,
	HTTP_OVERLOADED, /* 429, 503, or out of time */
	HTTP_SAYS_NOTHING,
};

/*
 * At most `most` slots are taken at once. How many are allowed now adapts: whatever was under way
 * when the server was overloaded halves the number, once, but never below 1; as many successes in a
 * row as are allowed raise it by one.
 */
struct http_pool {
	CURLSH *share; /* names and TLS sessions, for all slots */
	struct mutex share_locks[CURL_LOCK_DATA_LAST];
	struct mutex lock; /* guards what follows; the share's locks are never taken under it */
	pthread_cond_t freed;
	unsigned most;
	unsigned allowed;
	unsigned taken;
	unsigned successes; /* since `allowed` was changed */
	unsigned halvings;
	struct http_slot *idle; /* last used first: its connection is the likeliest to be alive */
};

/* 0 or -ENOMEM; on failure there is nothing to free. */
int http_pool_init(struct http_pool *p, unsigned most);
/* No slot may be taken. */
void http_pool_destroy(struct http_pool *p);

/* Waits for a slot: 0, -ECANCELED soon after `owner` is cancelled, -ENOMEM. */
int http_pool_take(struct http_pool *p, struct remote *owner, struct http_slot **ret_slot);
void http_pool_give(struct http_pool *p, struct http_slot *slot, enum http_outcome outcome);

/* How many may be taken at once now. */
unsigned http_pool_allowed(struct http_pool *p);

#endif
