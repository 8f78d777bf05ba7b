/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the HTTP engine share. */
#ifndef EPOCHFS_NET_HTTP_INTERNAL_H
#define EPOCHFS_NET_HTTP_INTERNAL_H

#include <curl/curl.h>
#include "lib/net/http.h"
#include "lib/net/http_pool.h"
#include "lib/net/http_proxy.h"
#include "lib/remote/rate.h"

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
