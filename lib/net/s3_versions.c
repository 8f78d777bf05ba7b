/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets that keep versions: who created an object, and objects of which nothing is to stay. */
#include "lib/net/s3_request.h"

#include <errno.h>
#include <string.h>

#include "lib/util/cleanup.h"

/* A server whose lists always have something more. */
#define ERASE_ROUNDS 16

static int list_versions(struct s3 *s, const char *begin, s3_version_fn *fn, void *arg)
{
	struct http_answer cleanup_http_answer answer = {0};
	struct buf cleanup_buf url = {0};
	struct s3_request q = {.method = "GET", .max_answer = S3_PAGE_MAX};
	int err;

	s3_versions_url(&s->place, begin, &url);
	err = buf_error(&url);
	q.url = buf_str(&url);
	if (err == 0)
		err = s3_do(s, &q, &answer);
	if (err < 0)
		return err;
	if (!s3_answer_good(&answer))
		return s3_refusal(s, &answer);
	err = s3_versions_decode(answer.body.data, answer.body.len, fn, arg);
	return err == -EBADMSG ? remote_set_reason(&s->base, -EIO,
						   "the server's answer is no list of versions")
			       : err;
}

/* ---- who was first */

struct search {
	const char *prefix, *key, *version;
	bool found; /* ours */
	bool older; /* and one before it, which was not deleted since */
	bool over;
};

static bool is_of(const struct s3_version *v, const char *prefix, const char *key)
{
	size_t len = strlen(prefix);

	return !strncmp(v->key, prefix, len) && !strcmp(v->key + len, key);
}

static int look_at(void *arg, const struct s3_version *v)
{
	struct search *f = arg;

	if (f->over || !is_of(v, f->prefix, f->key))
		return 0;
	if (f->found) {
		f->older = !v->deleted;
		f->over = true;
	}
	f->found |= !strcmp(v->id, f->version);
	return 0;
}

int s3_was_first(struct s3 *s, const char *key, const char *version)
{
	struct search f = {.prefix = s->place.prefix, .key = key, .version = version};
	int err = list_versions(s, key, look_at, &f);

	if (err < 0)
		return err;
	if (!f.found)
		return remote_set_reason(&s->base, -EIO,
					 "a version that was put is not in the list of versions");
	return f.older ? -EEXIST : 0;
}

/* ---- nothing is to stay */

int s3_delete_version(struct s3 *s, const char *key, const char *version)
{
	struct http_answer cleanup_http_answer answer = {0};
	struct buf cleanup_buf url = {0};
	struct s3_request q = {.method = "DELETE"};
	int err;

	s3_version_url(&s->place, key, version, &url);
	err = buf_error(&url);
	q.url = buf_str(&url);
	if (err == 0)
		err = s3_do(s, &q, &answer);
	if (err < 0 || s3_answer_good(&answer) || s3_answer_is(&answer, "NoSuchVersion"))
		return err;
	return s3_refusal(s, &answer);
}

struct doomed {
	struct s3 *s;
	bool markers;	 /* those of deletions, or all other versions */
	struct buf text; /* key and version of each, with their NULs */
	size_t count;
};

static void doomed_free(struct doomed *d)
{
	buf_free(&d->text);
}

static int doom(void *arg, const struct s3_version *v)
{
	struct doomed *d = arg;
	size_t prefix = strlen(d->s->place.prefix);

	if (v->deleted != d->markers || strncmp(v->key, d->s->place.prefix, prefix) != 0)
		return 0;
	buf_put(&d->text, v->key + prefix, strlen(v->key + prefix) + 1);
	buf_put(&d->text, v->id, strlen(v->id) + 1);
	d->count++;
	return buf_error(&d->text);
}

/* What can be deleted is; the first error is kept. */
static int delete_all(struct s3 *s, const struct doomed *d)
{
	const char *key = (const char *)d->text.data, *version;
	int first = 0;

	for (size_t i = 0; i < d->count; i++, key = version + strlen(version) + 1) {
		int err;

		version = key + strlen(key) + 1;
		err = s3_delete_version(s, key, version);
		first = first ? first : err;
		if (err == -ECANCELED)
			break;
	}
	return first;
}

static int erase(struct s3 *s, const char *begin, bool markers)
{
	for (unsigned i = 0; i < ERASE_ROUNDS; i++) {
		CLEANUP(doomed_free) struct doomed d = {.s = s, .markers = markers};
		int err = list_versions(s, begin, doom, &d);

		if (err == 0)
			err = delete_all(s, &d);
		if (err < 0 || !d.count)
			return err;
	}
	return remote_set_reason(&s->base, -EIO, "deleted versions are listed again and again");
}

int s3_erase_versions(struct remote *r, const char *begin)
{
	struct s3 *s = (struct s3 *)r;
	int err = erase(s, begin, false);

	/* Without its marker a version that must stay would be there again. */
	return err < 0 ? err : erase(s, begin, true);
}
