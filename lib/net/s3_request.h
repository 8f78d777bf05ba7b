/* SPDX-License-Identifier: Apache-2.0 */
/* One request to S3 or GCS: signed, repeated where only the signature was at fault, its error told
 * apart. Private to lib/net. */
#ifndef EPOCHFS_NET_S3_REQUEST_H
#define EPOCHFS_NET_S3_REQUEST_H

#include "lib/net/credential_sources.h"
#include "lib/net/credentials.h"
#include "lib/net/http.h"
#include "lib/remote/remote_ops.h"
#include "lib/net/s3_url.h"
#include "lib/net/s3_xml.h"
#include "lib/net/sigv4.h"

/* In what Amazon's and Google's differ. */
struct s3_dialect {
	const struct sigv4_scheme *scheme;
	const char *service;			  /* as it is signed */
	const char *absent_header, *absent_value; /* only if there is no such object */
	bool send_md5; /* nothing says that the hash in the signature is compared with the body */
};

/* The remote of both kinds. */
struct s3 {
	struct remote base;
	const struct s3_dialect *dialect;
	struct s3_place place;
	struct http *http;
	struct aws_source *aws; /* one of the two */
	struct gs_source *gs;
	struct credentials_cache *credentials;
	atomic_llong skew_ns; /* the server's clock less ours, where it once refused ours; else 0 */
	atomic_bool no_batch; /* objects are deleted one by one: the server knows no other way */
	atomic_int create;    /* 1 + enum remote_create once it is known; 0: not yet */
	atomic_bool versions; /* an answer has named a version: the bucket keeps them */
	_Atomic(char *)
		redirects_to; /* scheme and host that reads were redirected to; NULL: none */
};

struct s3_request {
	const char *method;
	const char *url;
	const void *body;
	size_t body_len;
	bool has_body;
	bool send_md5;	 /* the server wants one with this body, whatever the dialect */
	bool repeatable; /* http.h */
	bool if_absent;
	const char *content_type; /* of the body; NULL: bytes */
	const char *range;	  /* NULL: none */
	struct buf *out;
	size_t max_answer;
};

/*
 * Makes it. 0 where an answer came, whatever its status; else an error of remote.h with its reason
 * told. A request that was refused because of its credentials is made once more where there are
 * others now; one refused because of its time, once more by the server's clock, which is kept from
 * then on: a wrong clock of this host costs one request and a line in the log.
 */
int s3_do(struct s3 *s, const struct s3_request *q, struct http_answer *ret_answer);

/* The same for the object `key`, whose URL it puts into the request. */
int s3_do_object(struct s3 *s, const char *key, struct s3_request *q,
		 struct http_answer *ret_answer);
/* Any of 2xx. */
bool s3_answer_good(const struct http_answer *answer);

/* The error of remote.h for an answer that is no success, with its reason told. */
int s3_refusal(struct s3 *s, const struct http_answer *answer);
/* The error of remote.h for an error's code; -EIO for one that we do not know. */
int s3_code_errno(const char *code);
/* The same, with its reason told, for what an answer says of one object of several. */
int s3_object_refusal(struct s3 *s, const struct s3_error *e);
/* True for an answer of this error code, e.g. "NoSuchKey". */
bool s3_answer_is(const struct http_answer *answer, const char *code);

/* Whether it names a version that the bucket keeps; where versioning was suspended that is "null". */
bool s3_has_version(const struct http_answer *answer);

/* ---- s3_redirect.c */

/* Whether the answer to a GET or HEAD is that its bytes lie on another host (http_do follows within one). */
bool s3_sends_away(const struct s3_request *q, const struct http_answer *a);
/* Asks there, without credentials: `answer` becomes what that host answers, where it is good; else an error of remote.h that names the host, its reason told. */
int s3_follow_away(struct s3 *s, const struct s3_request *q, struct http_answer *answer);

/* ---- s3_versions.c: buckets that keep versions */

/*
 * Of the object that we have just put as this version: was there no other one since the object was last deleted? 0; -EEXIST: one was there before, so another has created it; or why that
 * cannot be told. Trusted is that the server lists the versions of a key in one order, the newest first, in which each is that was put before the list was asked for.
 */
int s3_was_first(struct s3 *s, const char *key, const char *version);
/* Removes this version, for good. */
int s3_delete_version(struct s3 *s, const char *key, const char *version);
/* remote_erase_versions */
int s3_erase_versions(struct remote *r, const char *begin);

/* s3.c: the operations of remote_ops.h */
int s3_delete(struct remote *r, const char *key);
int s3_delete_batch(struct remote *r, const char *const *keys, size_t *count);

#endif
