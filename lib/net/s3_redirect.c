/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that a gateway redirects to another host.
 *
 * Hugging Face's gateway answers a GET with a 302 to where the bytes lie, by an address that is signed in itself. It is followed once, over https, with the range alone: no signature, token or key goes to that host. What it
 * may answer is an object's bytes; that it has none (404) is no word about the object, of which only the gateway knows. Amazon's own redirects (301, 307) want another signature: s3_refusal names their region. */
#include "lib/net/s3_request.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define ORIGIN_MAX 128

bool s3_sends_away(const struct s3_request *q, const struct http_answer *a)
{
	return a->status == 302 && *a->location &&
	       (!strcmp(q->method, "GET") || !strcmp(q->method, "HEAD"));
}

/* Scheme, host and port: all of the address that is not secret. */
static void origin_of(const char *location, char ret_origin[ORIGIN_MAX])
{
	const char *host = strstr(location, "://");
	size_t len = host ? (size_t)(host + 3 - location) + strcspn(host + 3, "/?#\\") : 0;
	const char *at = len ? memrchr(location, '@', len) : NULL;

	if (at)
		snprintf(ret_origin, ORIGIN_MAX, "an address with a user in it");
	else
		snprintf(ret_origin, ORIGIN_MAX, "%.*s", (int)len, location);
}

static const char *failure(int error)
{
	switch (error) {
	case -ECONNREFUSED:
		return "cannot be reached";
	case -ETIMEDOUT:
		return "does not answer";
	case -EACCES:
		return "has a certificate that is not trusted; if it is its own, name the authority with ?ca-file=PATH or AWS_CA_BUNDLE";
	default:
		return "failed";
	}
}

static int judge(struct s3 *s, const char *method, const char *origin, const struct http_answer *a)
{
	int error = http_errno_of(a->status);

	if (!error || a->status == 416)
		return 0;
	if (a->status >= 300 && a->status < 400)
		return remote_set_reason(
			&s->base, -EPERM,
			"%s is redirected to %s, which redirects once more: that is not followed",
			method, origin);
	return remote_set_reason(&s->base, error == -ENOENT ? -EIO : error,
				 "%s is redirected to %s, which answers %d", method, origin,
				 a->status);
}

/* The first place is kept, for people. */
static void note_place(struct s3 *s, const char *origin)
{
	char *none = NULL, *copy = atomic_load(&s->redirects_to) ? NULL : strdup(origin);

	if (copy && !atomic_compare_exchange_strong(&s->redirects_to, &none, copy))
		free(copy);
}

int s3_follow_away(struct s3 *s, const struct s3_request *q, struct http_answer *answer)
{
	struct http_answer cleanup_http_answer away = {0};
	struct http_headers cleanup_http_headers headers = {0};
	struct http_request h = {
		.method = q->method,
		.url = answer->location,
		.headers = &headers,
		.max_answer = q->max_answer,
		.out = q->out,
	};
	char origin[ORIGIN_MAX];
	int r;

	origin_of(answer->location, origin);
	if (strncasecmp(origin, "https://", 8) != 0)
		return remote_set_reason(
			&s->base, -EPERM,
			"%s is redirected to %s, which is not https: that is not followed",
			q->method, *origin ? origin : "no address");
	note_place(s, origin);
	r = q->range ? http_headers_add(&headers, "Range", q->range) : 0;
	if (r == 0)
		r = http_do(s->http, &h, &away);
	if (r == -ECANCELED || r == -ENOMEM || r == -EFBIG)
		return r;
	if (r < 0)
		return remote_set_reason(&s->base, r == -EINVAL ? -EPERM : r,
					 "%s is redirected to %s, which %s", q->method, origin,
					 failure(r));
	r = judge(s, q->method, origin, &away);
	if (r < 0)
		return r;
	http_answer_free(answer);
	*answer = away;
	/* Versions are the bucket's, and that host is not it. */
	answer->version_id[0] = '\0';
	away = (struct http_answer){0};
	return 0;
}
