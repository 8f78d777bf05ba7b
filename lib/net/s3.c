/* SPDX-License-Identifier: Apache-2.0 */
/* The remotes `s3://BUCKET/PREFIX` and `gs://BUCKET/PREFIX`: objects of Amazon S3, of any server that
 * speaks its protocol, and of Google Cloud Storage through its XML API. s3_url.h has the URL,
 * credential_sources.h says where credentials come from. */
#include "lib/net/s3_request.h"

#include <errno.h>
#include <string.h>

#include "lib/net/open.h"
#include "lib/net/s3_xml.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

#define CONFLICTS_MAX	 6
#define CONFLICT_WAIT_NS (20 * NS_PER_MS)

static const struct s3_dialect amazon = {
	.scheme = &sigv4_amazon,
	.service = "s3",
	.absent_header = "If-None-Match",
	.absent_value = "*",
};

/* Google compares Content-MD5 with the body, and does not say that of the hash in the signature. */
static const struct s3_dialect google = {
	.scheme = &sigv4_google,
	.service = "storage",
	.absent_header = "x-goog-if-generation-match",
	.absent_value = "0",
	.send_md5 = true,
};

static struct s3 *s3_of(struct remote *r)
{
	return (struct s3 *)r;
}

/* ---- put */

static int put_object(struct s3 *s, const char *key, const void *data, size_t len,
		      struct http_answer *ret_answer)
{
	struct s3_request q = {.method = "PUT", .body = data, .body_len = len, .has_body = true};
	int err = s3_do_object(s, key, &q, ret_answer);

	if (err < 0)
		return err;
	return s3_answer_good(ret_answer) ? 0 : s3_refusal(s, ret_answer);
}

static int s3_put(struct remote *r, const char *key, const void *data, size_t len)
{
	struct http_answer cleanup_http_answer answer = {0};

	return put_object(s3_of(r), key, data, len, &answer);
}

/* With the condition, whatever it is worth here. While another's conditional put of the key is under
 * way Amazon says 409: nobody has won yet. */
static int create_native(struct remote *r, const char *key, const void *data, size_t len)
{
	struct s3_request q = {.method = "PUT",
			       .body = data,
			       .body_len = len,
			       .has_body = true,
			       .if_absent = true};

	for (unsigned i = 0;; i++) {
		struct http_answer cleanup_http_answer answer = {0};
		int err = s3_do_object(s3_of(r), key, &q, &answer);

		if (err < 0 || s3_answer_good(&answer))
			return err;
		if (answer.status == 412)
			return -EEXIST;
		if (i == CONFLICTS_MAX || !s3_answer_is(&answer, "ConditionalRequestConflict"))
			return s3_refusal(s3_of(r), &answer);
		err = remote_sleep(r, CONFLICT_WAIT_NS << i);
		if (err < 0)
			return err;
	}
}

/* Of those that race the last has won, for all who look once it is over. */
static int was_last(struct remote *r, const char *key, const void *data, size_t len)
{
	struct buf cleanup_buf got = {0};
	int err = remote_get(r, key, 0, (uint64_t)len + 1, &got);

	if (err < 0)
		return err == -ENOENT ? -EIO : err;
	return got.len == len && (len == 0 || memcmp(got.data, data, len) == 0) ? 0 : -EEXIST;
}

/* Of those that race the first has won, and the others take theirs back. 0, -EEXIST, or why the versions cannot be told. */
static int was_first(struct s3 *s, const char *key, const char *version)
{
	int err = s3_was_first(s, key, version);
	int undone = err == -EEXIST ? s3_delete_version(s, key, version) : 0;

	if (undone < 0)
		log_warn(
			"%s: %s was created by two at the same moment, and the second one's, which counts for nothing, cannot be taken back: %s",
			s->base.name, key, strerror(-undone));
	return err;
}

/* Where the server ignores the condition: looks, puts, and looks who else did. */
static int create_checked(struct remote *r, const char *key, const void *data, size_t len)
{
	struct http_answer cleanup_http_answer answer = {0};
	uint64_t size;
	int err = remote_size(r, key, &size);

	if (err == 0)
		return -EEXIST;
	if (err == -ENOENT)
		err = put_object(s3_of(r), key, data, len, &answer);
	if (err < 0)
		return err;
	err = s3_has_version(&answer) ? was_first(s3_of(r), key, answer.version_id) : -EOPNOTSUPP;
	/* Only where versions cannot be listed at all: two rules must not decide one race. After another error the layer that retries compares. */
	return err == -EOPNOTSUPP || err == -EACCES ? was_last(r, key, data, len) : err;
}

static int s3_check_create(struct remote *r, enum remote_create *ret_create)
{
	struct s3 *s = s3_of(r);
	int known = atomic_load(&s->create);
	bool kept = false;
	int err = 0;

	/* Two threads may both probe at first: they find the same. */
	if (!known) {
		err = remote_probe_create(r, create_native, &kept);
		/* A server may say that it does not know the condition. */
		if (err == -EOPNOTSUPP)
			err = 0;
		known = 1 + (int)(kept ? REMOTE_CREATE_ATOMIC : REMOTE_CREATE_CHECKED);
	}
	if (err < 0)
		return err;
	atomic_store(&s->create, known);
	*ret_create = (enum remote_create)(known - 1);
	return 0;
}

static int s3_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	enum remote_create create;
	int err = s3_check_create(r, &create);

	if (err < 0)
		return err;
	return create == REMOTE_CREATE_ATOMIC ? create_native(r, key, data, len)
					      : create_checked(r, key, data, len);
}

/* ---- get */

/* Does the answer hold what was asked for? `got` bytes came. */
static int check_range(struct s3 *s, const struct http_answer *a, uint64_t offset, uint64_t len,
		       uint64_t got)
{
	unsigned long long first = 0, last = 0;

	if (a->status == 206 && sscanf(a->content_range, "bytes %llu-%llu", &first, &last) == 2 &&
	    first == offset && last >= first && last - first + 1 == got && got <= len)
		return 0;
	/* The whole object answers a range from its beginning. */
	if (a->status == 200 && offset == 0 && got <= len)
		return 0;
	return remote_set_reason(&s->base, -EIO,
				 "the server answered with other bytes than asked "
				 "for: it must know ranges");
}

/* Bytes that are there: len is not 0. */
static int get_range(struct s3 *s, const char *key, uint64_t offset, uint64_t len, struct buf *out)
{
	struct http_answer cleanup_http_answer answer = {0};
	struct s3_request q = {.method = "GET", .out = out, .max_answer = REMOTE_GET_MAX};
	size_t before = out->len;
	char range[64];
	int err;

	if (len > UINT64_MAX - offset)
		snprintf(range, sizeof(range), "bytes=%llu-", (unsigned long long)offset);
	else
		snprintf(range, sizeof(range), "bytes=%llu-%llu", (unsigned long long)offset,
			 (unsigned long long)(offset + len - 1));
	if (offset != 0 || len != REMOTE_TO_END)
		q.range = range;
	err = s3_do_object(s, key, &q, &answer);
	if (err < 0)
		return err;
	if (answer.status == 416)
		return 0;
	if (!s3_answer_good(&answer))
		return s3_refusal(s, &answer);
	err = check_range(s, &answer, offset, len, out->len - before);
	if (err < 0)
		out->len = before;
	return err;
}

static int s3_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	struct http_answer cleanup_http_answer answer = {0};
	struct s3_request q = {.method = "HEAD"};
	int err = s3_do_object(s3_of(r), key, &q, &answer);

	if (err < 0)
		return err;
	if (!s3_answer_good(&answer))
		return s3_refusal(s3_of(r), &answer);
	if (answer.length == UINT64_MAX)
		return remote_set_reason(r, -EIO, "the server does not tell an object's size");
	*ret_size = answer.length;
	return 0;
}

static int s3_get(struct remote *r, const char *key, uint64_t offset, uint64_t len, struct buf *out)
{
	uint64_t size;

	/* No range can say "nothing", or a byte above what S3 counts to. */
	if (len == 0 || offset > INT64_MAX)
		return s3_size(r, key, &size);
	return get_range(s3_of(r), key, offset, len, out);
}

/* ---- list */

/* Gives the objects of a page to the caller. */
static int tell_page(const struct s3 *s, const struct s3_page *page, remote_list_fn *fn, void *arg)
{
	size_t prefix = strlen(s->place.prefix);

	for (size_t i = 0; i < page->count; i++) {
		const char *key = page->objects[i].key;
		int r;

		if (strncmp(key, s->place.prefix, prefix) != 0 || !remote_key_valid(key + prefix))
			continue;
		r = fn(arg, key + prefix, page->objects[i].size);
		if (r)
			return r;
	}
	return 0;
}

static int get_page(struct s3 *s, const char *prefix, const char *token, struct s3_page *ret_page)
{
	struct http_answer cleanup_http_answer answer = {0};
	struct buf cleanup_buf url = {0};
	struct s3_request q = {.method = "GET", .max_answer = S3_PAGE_MAX};
	int r;

	s3_list_url(&s->place, prefix, token, &url);
	r = buf_error(&url);
	q.url = buf_str(&url);
	if (r == 0)
		r = s3_do(s, &q, &answer);
	if (r < 0)
		return r;
	if (!s3_answer_good(&answer))
		return s3_refusal(s, &answer);
	r = s3_page_decode(answer.body.data, answer.body.len, ret_page);
	/* The same token again would go on for ever. */
	if (r == 0 && token && ret_page->next && !strcmp(token, ret_page->next)) {
		s3_page_free(ret_page);
		r = -EBADMSG;
	}
	if (r == -EBADMSG)
		return remote_set_reason(&s->base, -EIO,
					 "the server's answer is no list of objects; check the "
					 "endpoint");
	return r;
}

static int s3_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct s3 *s = s3_of(r);
	cleanup_free char *token = NULL;
	int err = 0;

	do {
		struct s3_page cleanup_s3_page page = {0};

		if (atomic_load(&r->cancelled))
			return -ECANCELED;
		err = get_page(s, prefix, token, &page);
		if (err == 0)
			err = tell_page(s, &page, fn, arg);
		free(token);
		token = steal_ptr(page.next);
	} while (err == 0 && token);
	return err;
}

static bool s3_keeps_versions(const struct remote *r)
{
	return atomic_load(&((const struct s3 *)r)->versions);
}

/* ---- opening */

static void free_parts(struct s3 *s)
{
	credentials_cache_free(s->credentials);
	aws_source_free(s->aws);
	gs_source_free(s->gs);
	http_free(s->http);
	free(atomic_load(&s->redirects_to));
	s3_place_free(&s->place);
}

static void s3_release(struct remote *r)
{
	free_parts(s3_of(r));
}

static const char *s3_redirects_to(const struct remote *r)
{
	return atomic_load(&((const struct s3 *)r)->redirects_to);
}

static bool s3_expiry(struct remote *r, struct remote_expiry *ret_expiry)
{
	return credentials_expiry(s3_of(r)->credentials, &ret_expiry->at_ns, &ret_expiry->renewed);
}

static const struct remote_ops s3_ops = {
	.put = s3_put,
	.put_if_absent = s3_put_if_absent,
	.get = s3_get,
	.size = s3_size,
	.list = s3_list,
	.delete = s3_delete,
	.delete_batch = s3_delete_batch,
	.keeps_versions = s3_keeps_versions,
	.redirects_to = s3_redirects_to,
	.expiry = s3_expiry,
	.erase_versions = s3_erase_versions,
	.upload_check = "each upload carries its hash; the server refuses a damaged one",
	.check_create = s3_check_create,
	.release = s3_release,
};

static int find_place(struct s3 *s, const struct remote_url *url)
{
	struct aws_files cleanup_aws_files files = {0};
	cleanup_free char *path = NULL;
	int r = strcmp(url->scheme, "gs") != 0 ? aws_files_read(&files, &path) : 0;

	/* Fetching the credentials will say which file cannot be read. */
	return r == -ENOMEM ? r : s3_place_resolve(url, &files, &s->place);
}

static int make_parts(struct s3 *s, const struct remote_url *url,
		      const struct remote_limits *limits)
{
	struct http_config config = {.limits = *limits};
	int r = find_place(s, url);

	if (r < 0)
		return r;
	s->dialect = s->place.is_gs ? &google : &amazon;
	/* Google's learnt DeleteObjects in 2026 only, and was never tried. */
	atomic_init(&s->no_batch, s->place.is_gs);
	config.ca_file = s->place.ca_file;
	r = http_new(&s->base, &config, &s->http);
	if (r == -EINVAL)
		return remote_open_reason(r, "%s holds no certificate in PEM form", config.ca_file);
	if (r == 0 && s->place.is_gs)
		r = gs_source_new(&s->base, &s->gs);
	else if (r == 0)
		r = aws_source_new(&s->base, &s->place, &s->aws);
	if (r == 0 && s->place.is_gs)
		r = credentials_cache_new(gs_source_fetch, s->gs, &s->credentials);
	else if (r == 0)
		r = credentials_cache_new(aws_source_fetch, s->aws, &s->credentials);
	return r;
}

int remote_s3_open(const struct remote_url *url, const char *text,
		   const struct remote_limits *limits, struct remote **ret_remote)
{
	struct s3 *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	r = make_parts(s, url, limits);
	if (r == 0)
		r = remote_init(&s->base, &s3_ops, text, NULL);
	if (r < 0) {
		free_parts(s);
		free(s);
		return r;
	}
	*ret_remote = &s->base;
	return 0;
}

/* Deleting objects of S3, one or up to 1,000 in a request (DeleteObjects).
 *
 * A request for many is asked to be quiet: its answer names what was not deleted. Amazon takes none
 * without Content-MD5 or a newer checksum; servers of others know the former alone. A server that
 * does not know the request, or answers in a way that we do not understand, gets the keys one by one,
 * from then on and until the remote is closed: what a single request says, counts. */

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
