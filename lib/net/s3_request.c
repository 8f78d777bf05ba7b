/* SPDX-License-Identifier: Apache-2.0 */
/* One request to S3 or GCS, signed.
 *
 * The signature is Amazon's version 4, or Google's of the same make, with the hash of the body in it:
 * so a server refuses a body that was damaged on its way, also without TLS. SHA-256 is preferred to
 * "UNSIGNED-PAYLOAD" with Content-MD5 because it takes less: 1.6 against 0.75 GB/s where the
 * processor has instructions for it (0.5 where not). */
#include "lib/net/s3_request.h"

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
	return r == 0 && s3_sends_away(q, ret_answer) ? s3_follow_away(s, q, ret_answer) : r;
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

bool s3_has_version(const struct http_answer *answer)
{
	return *answer->version_id && strcmp(answer->version_id, "null") != 0;
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
		/* Cloudflare's R2 says one of a PUT, and keeps none. */
		if (s3_has_version(&answer) && strcmp(q->method, "PUT") != 0)
			atomic_store(&s->versions, true);
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

/* ---- What S3 says when it says no: the errno, and a line for people. ---- */

/* The reason NULL: the error's general advice is good enough. */
static const struct refusal {
	const char *code;
	int err;
	const char *reason; /* of the bucket */
} refusals[] = {
	{"NoSuchKey", -ENOENT, NULL},
	/* No answer about an object: somebody may make the bucket again. */
	{"NoSuchBucket", -EIO,
	 "does not exist; create it, or check its name, the endpoint and the region"},
	{"AccessDenied", -EACCES,
	 "access is denied; check the keys, and that they may do s3:ListBucket, s3:GetObject, "
	 "s3:PutObject and s3:DeleteObject there"},
	{"SignatureDoesNotMatch", -EACCES,
	 "the server does not take our signature; check the secret access key"},
	{"InvalidAccessKeyId", -EACCES,
	 "the server does not know the access key ID; check it, and the endpoint"},
	{"ExpiredToken", -EACCES, "the session token has expired; get new credentials"},
	{"ExpiredTokenException", -EACCES, "the session token has expired; get new credentials"},
	{"TokenRefreshRequired", -EACCES, "the session token has expired; get new credentials"},
	{"InvalidToken", -EACCES, "the session token is wrong; get new credentials"},
	{"RequestTimeTooSkewed", -EACCES,
	 "the clocks of this host and of the server differ too much; set the clock"},
	{"QuotaExceeded", -ENOSPC, "a quota is reached; raise it, or drop epochs"},
	{"XMinioAdminBucketQuotaExceeded", -ENOSPC, "a quota is reached; raise it, or drop epochs"},
	{"XMinioStorageFull", -ENOSPC, NULL},
	{"StorageFull", -ENOSPC, NULL},
	{"InsufficientCapacity", -ENOSPC, NULL},
	{"EntityTooLarge", -EFBIG, NULL},
	{"InvalidBucketName", -EINVAL, "the server lets no bucket have this name"},
	{"KeyTooLongError", -EINVAL, "the prefix in the URL is too long"},
	{"BadDigest", -EIO, "what was uploaded arrived damaged, and was refused"},
	{"XAmzContentSHA256Mismatch", -EIO, "what was uploaded arrived damaged, and was refused"},
	{"SlowDown", -EIO, "the server asks for fewer requests"},
	{"NotImplemented", -EOPNOTSUPP, NULL},
};

bool s3_answer_is(const struct http_answer *answer, const char *code)
{
	struct s3_error e;

	if (answer->status < 300 || !answer->body.len)
		return false;
	s3_error_decode(answer->body.data, answer->body.len, &e);
	return !strcmp(e.code, code);
}

/* The bucket is elsewhere: -EINVAL with where, or 0. */
static int check_region(struct s3 *s, const struct http_answer *answer, const struct s3_error *e)
{
	bool redirected = answer->status == 301 || answer->status == 307;

	if (*e->region && strcmp(e->region, s->place.region) != 0)
		return remote_set_reason(&s->base, -EINVAL,
					 "the bucket %s is in region %s, not %s: add region=%s to "
					 "the URL, or set AWS_REGION",
					 s->place.bucket, e->region, s->place.region, e->region);
	if (redirected && *e->endpoint)
		return remote_set_reason(&s->base, -EINVAL,
					 "the bucket %s is at %s: set its region, or "
					 "endpoint=, in the URL",
					 s->place.bucket, e->endpoint);
	if (redirected)
		return remote_set_reason(&s->base, -EINVAL,
					 "the bucket %s is in another region than %s: set region= "
					 "in the URL",
					 s->place.bucket, s->place.region);
	return 0;
}

/* The line of the table for a code; NULL: there is none. */
static const struct refusal *find_refusal(const char *code)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		if (!strcmp(refusals[i].code, code))
			return &refusals[i];
	return NULL;
}

static int tell_refusal(struct s3 *s, const struct refusal *refusal)
{
	if (!refusal->reason)
		return refusal->err;
	return remote_set_reason(&s->base, refusal->err, "bucket %s: %s", s->place.bucket,
				 refusal->reason);
}

int s3_code_errno(const char *code)
{
	const struct refusal *refusal = find_refusal(code);

	return refusal ? refusal->err : -EIO;
}

int s3_object_refusal(struct s3 *s, const struct s3_error *e)
{
	const struct refusal *refusal = find_refusal(e->code);

	if (refusal)
		return tell_refusal(s, refusal);
	return remote_set_reason(&s->base, -EIO, "the server answered %s %s", e->code, e->message);
}

int s3_refusal(struct s3 *s, const struct http_answer *answer)
{
	const struct refusal *refusal;
	struct s3_error e;
	int err;

	s3_error_decode(answer->body.data, answer->body.len, &e);
	err = check_region(s, answer, &e);
	if (err < 0)
		return err;
	refusal = find_refusal(e.code);
	if (refusal)
		return tell_refusal(s, refusal);
	err = http_errno_of(answer->status);
	/* A 404 with a text that is not S3's comes from something before it, and says nothing of an object. */
	if (err == 0 || (err == -ENOENT && answer->body.len))
		err = -EIO;
	/* A HEAD has no text; the errno says all there is to say. */
	if (!*e.code && !answer->body.len)
		return err;
	return remote_set_reason(&s->base, err, "the server answered %d %s %s%s", answer->status,
				 *e.code ? e.code : "without an error of S3", e.message,
				 *e.code ? "" : "; check the endpoint");
}
