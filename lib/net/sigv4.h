/* SPDX-License-Identifier: Apache-2.0 */
/* Signs HTTP requests: AWS Signature Version 4 as S3 wants it, and Google's of the same make. Private to
 * lib/net.
 *
 * The algorithm is that of "Authenticating Requests (AWS Signature Version 4)" in the Amazon S3 API
 * Reference and of "Signatures" in the documentation of Cloud Storage. libcurl signs, too, but not
 * the same in all of its versions: 7.74 not at all, 8.x not with CURLOPT_PATH_AS_IS, and in between
 * the queries of continued lists otherwise. */
#ifndef EPOCHFS_NET_SIGV4_H
#define EPOCHFS_NET_SIGV4_H

#include <stdint.h>
#include "lib/net/http.h"
#include "lib/util/buf.h"

/* In what Amazon's and Google's differ. */
struct sigv4_scheme {
	const char *name;	/* begins the algorithm's name and, before the secret, the key */
	const char *terminator; /* ends the scope */
	const char *date_header, *hash_header, *token_header;
};
extern const struct sigv4_scheme sigv4_amazon; /* AWS4-HMAC-SHA256 */
extern const struct sigv4_scheme sigv4_google; /* GOOG4-HMAC-SHA256, with an HMAC key */

/* Who signs what. Everything is borrowed. */
struct sigv4 {
	const struct sigv4_scheme *scheme;
	const char *key, *secret;
	const char *token; /* of a session; NULL: none */
	const char *region, *service;
	const char *method;
	const char *payload_hash; /* SHA-256 of the body in hex, or "UNSIGNED-PAYLOAD" */
	int64_t skew_ns;	  /* the server's clock less ours */
};

/*
 * Adds Host, the date, the payload's hash, the session's token and Authorization to the headers of a
 * request to `url`; what is in them before is signed as well. The path and the query of the URL are
 * signed in canonical form, whatever form they have there: percent-encoded once, the query's
 * parameters in order. `arg` is a struct sigv4: this is http_request.sign. 0, -ENOMEM, -ENOTSUP
 * without SHA-256 in libcrypto, -EINVAL for no URL, for more than 32 headers or parameters, and where
 * the key or the token holds a control character.
 */
int sigv4_sign(void *arg, const char *url, struct http_headers *headers);

/* ---- its steps, which depend on their arguments alone ---- */

/* The same at `at`, in seconds since 1970; skew_ns does not count. */
int sigv4_sign_at(const struct sigv4 *s, int64_t at, const char *url, struct http_headers *headers);
/* Appends the value of the header Authorization for these headers and no others. */
int sigv4_authorization(const struct sigv4 *s, int64_t at, const char *url,
			const struct http_headers *headers, struct buf *out);
/* Appends the canonical request, and to `names` those of the signed headers. It holds the token. */
int sigv4_canonical_request(const struct sigv4 *s, const char *url,
			    const struct http_headers *headers, struct buf *out, struct buf *names);

#endif
