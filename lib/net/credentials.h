/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and tokens that expire: kept, and fetched again in time. Private to lib/net. */
#ifndef EPOCHFS_NET_CREDENTIALS_H
#define EPOCHFS_NET_CREDENTIALS_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/util/cleanup.h"

/* Zero-initialise; credentials_free wipes them. */
struct credentials {
	char *key;	    /* the access key's name; NULL: a token alone */
	char *secret;	    /* NULL: a token alone */
	char *token;	    /* of a session, or a bearer's; NULL: none */
	int64_t expires_ns; /* wall clock; 0: never, as far as is known */
	bool fixed;	    /* fetching again gives the same: they stand in the environment */
};

void credentials_free(struct credentials *c);
#define cleanup_credentials CLEANUP(credentials_free)
/* 0 or -ENOMEM. */
int credentials_copy(const struct credentials *from, struct credentials *ret_to);
/* Overwrites a string with zeros and frees it; NULL is allowed. */
void secret_free(char *text);
static inline void cleanup_secret_fn(char **text)
{
	secret_free(*text);
}
#define cleanup_secret CLEANUP(cleanup_secret_fn)

/* Fetches credentials from where they come; called without a lock, by one thread at a time. */
typedef int credentials_fetch_fn(void *arg, struct credentials *ret_credentials);

/*
 * A cache of one set of credentials, for any number of threads. They are fetched at the first use;
 * again from five minutes before they expire (half their life, where that is shorter), by one of
 * those who ask while the others go on with the old ones; and once they have expired, all wait for the
 * one that fetches. While old ones are valid, a failed fetch fails nobody, and is repeated after at
 * most a minute.
 */
struct credentials_cache;

/* `arg` is borrowed. 0 or -ENOMEM. */
int credentials_cache_new(credentials_fetch_fn *fetch, void *arg,
			  struct credentials_cache **ret_cache);
void credentials_cache_free(struct credentials_cache *cache);

/* A copy of the credentials: 0, -ENOMEM, or why they could not be fetched. */
int credentials_get(struct credentials_cache *cache, struct credentials *ret_credentials);
/* When those that were fetched last end, as they say themselves, and whether others follow by themselves. False: none were fetched, or they do not say. */
bool credentials_expiry(struct credentials_cache *cache, int64_t *ret_at_ns, bool *ret_renewed);
/* The server did not take these: unless others are there already, the next get fetches. At most one
 * such fetch in five seconds, so that a wrong key does not load who gives it. */
void credentials_refused(struct credentials_cache *cache, const struct credentials *used);

#endif
