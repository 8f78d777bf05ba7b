/* SPDX-License-Identifier: Apache-2.0 */
/* The one HTTP engine of all remotes that speak it: requests over libcurl, with pooled handles and
 * connections, limits, time-outs and cancelling. Private to lib/net. */
#ifndef EPOCHFS_NET_HTTP_H
#define EPOCHFS_NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/remote/remote_ops.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

/*
 * An engine belongs to one remote. It holds a pool of curl handles, each with its kept connection;
 * a request takes one, waits where all are in use, and blocks until its answer is whole. Any number
 * of threads may call. https goes through the proxy that the environment names (http_internal.h); the
 * environment is read when the engine is made.
 */
struct http;

/* How all requests of an engine behave; zero is the default of each. */
struct http_config {
	struct remote_limits limits; /* connections, rates, times (remote.h) */
	const char *ca_file;	     /* PEM, trusted in place of the system's; NULL: those */
	const char *ca_dir;	     /* hashed folder, trusted beside them; NULL: none */
	const char *client_cert;     /* PEM file, also an X.509 proxy; NULL: none */
	const char *client_key;	     /* PEM file; NULL: in client_cert */
	bool http1;		     /* never HTTP/2 */
	bool insecure;		     /* takes any server certificate: only where the user asks */
};

/* `owner` is the remote whose cancelling ends requests early; borrowed, it outlives the engine.
 * The strings are copied. 0, -ENOMEM, -EINVAL for a file that is missing or no certificate. */
int http_new(struct remote *owner, const struct http_config *config, struct http **ret_http);
void http_free(struct http *h);

/* Header lines of a request: zero-initialise, free with http_headers_free. */
struct http_headers {
	struct curl_slist *list;
};
/* Adds "name: value"; 0, -ENOMEM, -EINVAL where a control character is in it. Wiped when freed. */
int http_headers_add(struct http_headers *hs, const char *name, const char *value);
void http_headers_free(struct http_headers *hs);
#define cleanup_http_headers CLEANUP(http_headers_free)

struct http_request {
	const char *method; /* GET, HEAD, PUT, POST, DELETE, PROPFIND, MKCOL, MOVE, ... */
	const char *url;    /* whole, with path and query encoded as they go on the wire */
	const struct http_headers *headers; /* NULL: none */
	const void *body; /* borrowed; sent with its length, again after a redirect */
	size_t body_len;
	bool has_body;	   /* a body is sent, also an empty one */
	bool repeatable;   /* a POST that may be carried out twice without another result */
	size_t max_answer; /* bytes of an answer's body that are kept, more is -EFBIG; 0: 64 KiB */
	struct buf *out;   /* the body of a 2xx answer is appended here; on failure as it was.
				NULL: to http_answer.body */
	const char *userpwd; /* "user:password" for Basic; NULL: none */
	const char *bearer;  /* token; NULL: none */
	/* Called before each attempt, as there is one for each redirect: adds what signs it to a copy
	 * of the headers. An error of it is that of the request. NULL: not signed. */
	int (*sign)(void *arg, const char *url, struct http_headers *headers);
	void *sign_arg;
	/* "Expect: 100-continue" with any body that is not empty. Otherwise only from 1 MiB on; never where the headers
	 * hold an "Expect" with the value "". */
	bool expect_continue;
	/* Called when the first half of the body is on its way and nothing of the second; NULL: not.
	 * May make requests, on another engine. Not called where there is no body. */
	void (*half_sent)(void *arg);
	void *half_sent_arg;
};

#define HTTP_LOCK_TOKEN_MAX 256

struct http_answer {
	int status;	 /* 200, 404, ...; the last one after redirects */
	struct buf body; /* of every other answer (cut at 64 KiB), and of 2xx without `out` */
	uint64_t length; /* of the Content-Length header, also for HEAD; UINT64_MAX: none */
	bool redirected; /* the answer is about another URL of that server than was asked for */
	char etag[128];	 /* as sent, with its quotes; "" : none or too long */
	char content_range[64]; /* "bytes 0-9/100"; "": none */
	char location[4096];	/* signed ones are long; "" : none */
	char allow[256];	/* the methods of an answer to OPTIONS; "" */
	char dav[64];		/* the DAV header */
	char server[64];
	char lock_token[HTTP_LOCK_TOKEN_MAX]; /* of an answer to LOCK, with its <>; "" */
	char version_id[1025];		      /* x-amz-version-id; "" */
	int64_t date_ns;		      /* wall clock of the server, from Date; 0: none */
};
void http_answer_free(struct http_answer *a);
#define cleanup_http_answer CLEANUP(http_answer_free)

/*
 * Makes one request. 0 where an answer came whole, whatever its status: the caller maps it
 * (http_errno_of). Else what the wire did: -ECONNREFUSED (nobody there, name not found),
 * -ETIMEDOUT (not connected in time, stalled below the lowest rate, or out of time), -EIO (cut
 * off, a body shorter than its length, heads without end), -EACCES (TLS: a certificate was refused; a
 * proxy would not connect us), -EINVAL (no URL, of the server or of the proxy),
 * -ECANCELED, -EFBIG, -ENOMEM; the owner then has the reason in words (remote_set_reason). Whether the server carried the request out is then unknown.
 * An answer with Retry-After (429, 503) makes the retry layer wait at least so long (at most five
 * minutes, remote_hold_off).
 *
 * What a body has beyond its length is dropped with its connection. A redirect (301, 302, 307, 308)
 * is followed, five times, with the same method and body, where it leads to the same scheme, host
 * and port; any other is an answer for the caller, with its `location`. curl repeats a request where
 * a kept connection proves dead; only one that may be repeated blindly: GET, HEAD, OPTIONS,
 * PROPFIND, PUT and DELETE without a header "If-..." or "x-goog-if-...", and what says that it is `repeatable`. Anything else is -EIO then, as if the
 * answer were lost.
 */
int http_do(struct http *h, const struct http_request *q, struct http_answer *ret_answer);

/* The errno of remote.h for a status: 0 for 2xx; 401, 403, 407 -EACCES; 404, 410 -ENOENT; 409, 412
 * -EEXIST is for the caller to say: here -EIO; 413 -EFBIG; 423, 429, 5xx -EIO, 507 -ENOSPC; 501
 * -EOPNOTSUPP; others -EIO. */
int http_errno_of(int status);

#endif
