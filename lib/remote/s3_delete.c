/* SPDX-License-Identifier: Apache-2.0 */
/* Deleting objects of S3, one or up to 1,000 in a request (DeleteObjects).
 *
 * A request for many is asked to be quiet: its answer names what was not deleted. Amazon takes none
 * without Content-MD5 or a newer checksum; servers of others know the former alone. A server that
 * does not know the request, or answers in a way that we do not understand, gets the keys one by one,
 * from then on and until the remote is closed: what a single request says, counts. */
#include <errno.h>
#include <string.h>
#include "lib/remote/s3_request.h"
#include "lib/util/cleanup.h"
#include "lib/util/log.h"

int s3_delete(struct remote *r, const char *key)
{
	struct s3 *s = (struct s3 *)r;
	struct http_answer cleanup_http_answer answer = {0};
	struct s3_request q = {.method = "DELETE"};
	int err = s3_do_object(s, key, &q, &answer);

	if (err < 0 || s3_answer_good(&answer))
		return err;
	if (answer.status == 404 && !s3_answer_is(&answer, "NoSuchBucket"))
		return 0;
	return s3_refusal(s, &answer);
}

/* ---- many at once */

static void make_body(const struct s3 *s, const char *const *keys, size_t count, struct buf *out)
{
	buf_printf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
			"<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
			"<Quiet>true</Quiet>");
	for (size_t i = 0; i < count; i++) {
		buf_printf(out, "<Object><Key>");
		s3_xml_escape(out, s->place.prefix);
		s3_xml_escape(out, keys[i]);
		buf_printf(out, "</Key></Object>");
	}
	buf_printf(out, "</Delete>");
}

/* Of what was not deleted: the first, or the first that may be repeated. */
struct worst {
	struct s3_error e;
	int err;
};

static int note_failure(void *arg, const struct s3_error *e)
{
	struct worst *worst = arg;
	int err = s3_code_errno(e->code);

	if (!strcmp(e->code, "NoSuchKey"))
		return 0;
	if (worst->err == 0 || (remote_may_retry(err) && !remote_may_retry(worst->err))) {
		worst->e = *e;
		worst->err = err;
	}
	return 0;
}

/* Does the answer say that the server does not know such requests? */
static bool is_unknown(const struct http_answer *a)
{
	static const char *const codes[] = {"MethodNotAllowed", "NotImplemented", "MalformedXML",
					    "InvalidRequest"};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (s3_answer_is(a, codes[i]))
			return true;
	return a->status == 405 || a->status == 501;
}

/* -EOPNOTSUPP: it cannot be done so. */
static int delete_together(struct s3 *s, const char *const *keys, size_t count)
{
	struct http_answer cleanup_http_answer answer = {0};
	struct buf cleanup_buf url = {0}, body = {0};
	struct worst worst = {0};
	struct s3_request q = {
		.method = "POST",
		.has_body = true,
		.send_md5 = true,
		.repeatable = true,
		.content_type = "application/xml",
		.max_answer = S3_PAGE_MAX,
	};
	int err;

	s3_delete_url(&s->place, &url);
	make_body(s, keys, count, &body);
	if (buf_error(&url) < 0 || buf_error(&body) < 0)
		return -ENOMEM;
	q.url = buf_str(&url);
	q.body = body.data;
	q.body_len = body.len;
	err = s3_do(s, &q, &answer);
	if (err < 0)
		return err;
	if (is_unknown(&answer))
		return -EOPNOTSUPP;
	if (!s3_answer_good(&answer))
		return s3_refusal(s, &answer);
	err = s3_failures_decode(answer.body.data, answer.body.len, note_failure, &worst);
	if (err < 0)
		return err == -EBADMSG ? -EOPNOTSUPP : err;
	return worst.err ? s3_object_refusal(s, &worst.e) : 0;
}

/* How many of the first keys, of which there are `count`, may go together: no key twice. Ceph's gateway
 * (16.2) ends with a crash where one is. */
static size_t going_together(const char *const *keys, size_t count)
{
	size_t n = 1;

	for (; n < count && n < S3_DELETE_MAX; n++)
		for (size_t i = 0; i < n; i++)
			if (!strcmp(keys[i], keys[n]))
				return n;
	return n;
}

int s3_delete_batch(struct remote *r, const char *const *keys, size_t *count)
{
	struct s3 *s = (struct s3 *)r;
	size_t together = going_together(keys, *count);

	if (together > 1 && !atomic_load(&s->no_batch)) {
		int err = delete_together(s, keys, together);

		if (err != -EOPNOTSUPP) {
			*count = together;
			return err;
		}
		log_debug("%s: objects are deleted one by one: the server does not do it at once",
			  r->name);
		atomic_store(&s->no_batch, true);
	}
	*count = 1;
	return s3_delete(r, keys[0]);
}
