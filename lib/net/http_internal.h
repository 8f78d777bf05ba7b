/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the HTTP engine share. */
#ifndef EPOCHFS_NET_HTTP_INTERNAL_H
#define EPOCHFS_NET_HTTP_INTERNAL_H

#include <curl/curl.h>
#include <pthread.h>
#include <stdbool.h>
#include "lib/net/http.h"
#include "lib/remote/rate.h"
#include "lib/remote/remote_ops.h"
#include "lib/util/lock.h"

/* The handles of an HTTP engine: how many work at once, and who is next. Private to the engine. */

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

/* The proxy that the environment names, for requests by https. Private to the HTTP engine. */

/*
 * The first of https_proxy, HTTPS_PROXY, all_proxy and ALL_PROXY that is there and not empty, as curl
 * looks for them: [http://][USER:PASSWORD@]HOST:PORT, or https, socks4, socks4a, socks5 and socks5h in
 * place of http; without a port, curl's 1080. The hosts of no_proxy or NO_PROXY (by commas, domains with all
 * below them, `*`) are reached without it.
 *
 * Only https goes through a proxy, in a tunnel (CONNECT): the proxy learns the server's name and port,
 * and nothing of requests, which are inside TLS. Plain http never does: there the proxy would read
 * the credentials; the services that give keys to machines and containers are plain http, too.
 */
struct http_proxy {
	char *url;	      /* without user and password; NULL: none */
	char *userpwd;	      /* "user:password", %-encoded; NULL: none */
	const char *variable; /* of the environment; static */
	bool bad; /* what the variable says is no URL; never shown: a password may be in it */
};

/* Reads the environment. 0 or -ENOMEM; free with http_proxy_free. */
int http_proxy_init(struct http_proxy *p);
void http_proxy_free(struct http_proxy *p);

/* True where a request of this URL goes through it, unless no_proxy has its host. */
bool http_proxy_serves(const struct http_proxy *p, const char *url);
/* Sets it, or none, on a handle that is to ask for `url`. */
CURLcode http_proxy_set(const struct http_proxy *p, const char *url, CURL *easy);

struct http {
	struct remote *owner;	   /* borrowed */
	struct http_config config; /* never changed; its strings are owned */
	struct http_proxy proxy;   /* likewise */
	struct http_pool pool;
	struct rate up, down;
	/* What takes a body whole may need long until it answers: something between that passes it
	 * on slowly. How often the stall time is doubled then: once more each time that it was too
	 * short, once less when an answer came without it. */
	atomic_uint doublings;
};

/* One attempt at a request on one URL: what curl's callbacks need. */
struct http_transfer {
	struct http *http;
	const struct http_request *q;
	const char *url;		    /* the request's, or where it was redirected */
	const struct http_headers *headers; /* the request's, signed where it says so; or NULL */
	struct http_answer *answer;
	struct curl_slist first_header; /* one of our own, before the caller's */
	size_t out_start;		/* length of q->out before the answer */
	size_t body_at;			/* of our body, what was handed to curl */
	size_t header_bytes;
	uint64_t moved;	   /* bytes of bodies and headers, both ways */
	int64_t waited_ns; /* for the rates */
	int64_t retry_after_ns;
	unsigned doublings; /* of the engine when the transfer began */
	unsigned sendings;  /* how often curl began to send the request */
	bool half_told;	    /* half_sent was called */
	bool body_began;
	bool cut;	 /* the text of an error was long: the rest is not read */
	int error;	 /* why a callback of ours ended the transfer */
	const char *why; /* the same for people; NULL: nothing to say */
	char reason[CURL_ERROR_SIZE];
};

/* http_transfer.c: takes in one line of an answer's head, not NUL-terminated: fills the answer and
 * retry_after_ns. A status line starts over. */
void http_header_line(struct http_transfer *t, const char *line, size_t len);

/* http_transfer.c: sets the callbacks on a handle that is otherwise ready. */
CURLcode http_transfer_set(struct http_transfer *t, CURL *easy);
/* Runs it to its end: 0 where an answer came whole, else as http_do. */
int http_transfer_run(struct http_transfer *t, struct http_slot *slot);

#endif
