/* SPDX-License-Identifier: Apache-2.0 */
/* One request to S3 or GCS, signed.
 *
 * The signature is Amazon's version 4, or Google's of the same make, with the hash of the body in it:
 * so a server refuses a body that was damaged on its way, also without TLS. SHA-256 is preferred to
 * "UNSIGNED-PAYLOAD" with Content-MD5 because it takes less: 1.6 against 0.75 GB/s where the
 * processor has instructions for it (0.5 where not). */
#include "lib/remote/s3_request.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

#define MD5_SIZE   16
#define MD5_BASE64 25 /* with its NUL */

/* What of a request stays the same when it is made again. */
struct digests {
	char hash[HASH_HEX];
	char md5[MD5_BASE64]; /* "": none is sent */
};

static int make_digests(struct s3 *s, const struct s3_request *q, struct digests *d)
{
	uint8_t md5[EVP_MAX_MD_SIZE];
	struct hash hash;

	hash_of(q->body, q->body_len, &hash);
	hash_to_hex(&hash, d->hash);
	d->md5[0] = '\0';
	if (!q->has_body || !(s->dialect->send_md5 || q->send_md5))
		return 0;
	if (!EVP_Digest(q->body, q->body_len, md5, NULL, EVP_md5(), NULL))
		return remote_set_reason(
			&s->base, -EOPNOTSUPP,
			"OpenSSL of this host gives no MD5, which the server wants");
	EVP_EncodeBlock((unsigned char *)d->md5, md5, MD5_SIZE);
	return 0;
}

static int add_headers(const struct s3 *s, const struct s3_request *q, const struct digests *d,
		       struct http_headers *headers)
{
	int r = 0;

	if (*d->md5)
		r = http_headers_add(headers, "Content-MD5", d->md5);
	if (r == 0 && q->has_body)
		r = http_headers_add(headers, "Content-Type",
				     q->content_type ? q->content_type
						     : "application/octet-stream");
	if (r == 0 && q->if_absent)
		r = http_headers_add(headers, s->dialect->absent_header, s->dialect->absent_value);
	if (r == 0 && q->range)
		r = http_headers_add(headers, "Range", q->range);
	return r;
}

static bool has_control(const char *text)
{
	for (; text && *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return true;
	return false;
}

static int send_one(struct s3 *s, const struct s3_request *q, const struct digests *d,
		    const struct credentials *c, struct http_answer *ret_answer)
{
	struct http_headers cleanup_http_headers headers = {0};
	struct sigv4 signer = {
		.scheme = s->dialect->scheme,
		.key = c->key,
		.secret = c->secret,
		.token = c->token,
		.region = s->place.region,
		.service = s->dialect->service,
		.method = q->method,
		.payload_hash = d->hash,
		.skew_ns = atomic_load(&s->skew_ns),
	};
	struct http_request h = {
		.method = q->method,
		.url = q->url,
		.headers = &headers,
		.body = q->body,
		.body_len = q->body_len,
		.has_body = q->has_body,
		.repeatable = q->repeatable,
		.max_answer = q->max_answer,
		.out = q->out,
		.bearer = c->key ? NULL : c->token,
		.sign = c->key ? sigv4_sign : NULL,
		.sign_arg = &signer,
	};
	int r = add_headers(s, q, d, &headers);

	if (r < 0)
		return r;
	if (has_control(c->key) || has_control(c->token))
		return remote_set_reason(&s->base, -EACCES,
					 "the credentials hold a control character");
	r = http_do(s->http, &h, ret_answer);
	if (r == -EACCES)
		remote_set_reason(&s->base, r,
				  "the server's certificate is not trusted; if it is its own, name "
				  "the authority with ?ca-file=PATH or AWS_CA_BUNDLE");
	return r;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The server does not take these credentials (any more): are there others? */
static bool has_other(struct s3 *s, const struct credentials *used)
{
	struct credentials cleanup_credentials other = {0};

	credentials_refused(s->credentials, used);
	return credentials_get(s->credentials, &other) == 0 &&
	       !(same_text(other.key, used->key) && same_text(other.secret, used->secret) &&
		 same_text(other.token, used->token));
}

static bool refuses_credentials(const struct http_answer *answer)
{
	static const char *const codes[] = {"ExpiredToken",	    "ExpiredTokenException",
					    "TokenRefreshRequired", "InvalidToken",
					    "InvalidAccessKeyId",   "SignatureDoesNotMatch"};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (s3_answer_is(answer, codes[i]))
			return true;
	/* The answer to a HEAD has no text, and may mean the same. */
	return answer->status == 401 ||
	       (!answer->body.len && (answer->status == 400 || answer->status == 403));
}

/* Takes the server's clock. False where it said no time, or we went by its clock already. */
static bool take_clock(struct s3 *s, const struct http_answer *answer)
{
	long long none = 0, skew_ns = answer->date_ns - clock_wall_ns();

	if (!s3_answer_is(answer, "RequestTimeTooSkewed") || !answer->date_ns)
		return false;
	if (!atomic_compare_exchange_strong(&s->skew_ns, &none, skew_ns))
		return false;
	log_warn("%s: its clock is %lld s %s that of this host, which should be set; going by its "
		 "clock",
		 s->base.name, (skew_ns < 0 ? -skew_ns : skew_ns) / NS_PER_S,
		 skew_ns < 0 ? "behind" : "ahead of");
	return true;
}

int s3_do(struct s3 *s, const struct s3_request *q, struct http_answer *ret_answer)
{
	struct digests d;
	int r = make_digests(s, q, &d);

	for (unsigned tries = 1; r == 0; tries++) {
		struct http_answer cleanup_http_answer answer = {0};
		struct credentials cleanup_credentials c = {0};

		r = credentials_get(s->credentials, &c);
		if (r == 0)
			r = send_one(s, q, &d, &c, &answer);
		if (r < 0)
			break;
		/* Once for the clock and once for the keys. */
		if (tries < 3 &&
		    (take_clock(s, &answer) || (refuses_credentials(&answer) && has_other(s, &c))))
			continue;
		*ret_answer = answer;
		answer = (struct http_answer){0};
		break;
	}
	return r;
}

int s3_do_object(struct s3 *s, const char *key, struct s3_request *q,
		 struct http_answer *ret_answer)
{
	struct buf cleanup_buf url = {0};
	int r;

	s3_object_url(&s->place, key, &url);
	r = buf_error(&url);
	q->url = buf_str(&url);
	if (r == 0)
		r = s3_do(s, q, ret_answer);
	q->url = NULL;
	return r;
}

bool s3_answer_good(const struct http_answer *answer)
{
	return answer->status >= 200 && answer->status < 300;
}
