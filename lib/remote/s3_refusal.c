/* SPDX-License-Identifier: Apache-2.0 */
/* What S3 says when it says no: the errno, and a line for people. */
#include <errno.h>
#include <string.h>
#include "lib/remote/s3_request.h"

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
