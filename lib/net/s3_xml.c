/* SPDX-License-Identifier: Apache-2.0 */
/* What S3 and STS answer in XML. */
#include "lib/net/s3_xml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "lib/remote/remote_url.h"
#include "lib/net/xml.h"
#include "lib/util/parse.h"

#define OBJECTS_MAX 1000

static void object_free(struct s3_object *o)
{
	free(o->key);
	*o = (struct s3_object){0};
}

void s3_page_free(struct s3_page *page)
{
	for (size_t i = 0; i < page->count; i++)
		object_free(&page->objects[i]);
	free(page->objects);
	free(page->next);
	*page = (struct s3_page){0};
}

struct decoding {
	struct s3_page page;
	struct s3_object object; /* the one that is being read */
	bool sized;
	bool truncated;
	bool encoded;
};

static void decoding_free(struct decoding *d)
{
	s3_page_free(&d->page);
	object_free(&d->object);
}

static int keep(char **place, const char *text)
{
	free(*place);
	*place = strdup(text);
	return *place ? 0 : -ENOMEM;
}

static int set_size(struct decoding *d, const char *text)
{
	d->sized = parse_u64(text, &d->object.size) == 0;
	return d->sized ? 0 : -EBADMSG;
}

static int end_object(struct decoding *d)
{
	if (!d->object.key || !d->object.key[0] || !d->sized || d->page.count == OBJECTS_MAX)
		return -EBADMSG;
	if (!d->page.objects) {
		d->page.objects = calloc(OBJECTS_MAX, sizeof(*d->page.objects));
		if (!d->page.objects)
			return -ENOMEM;
	}
	d->page.objects[d->page.count++] = d->object;
	d->object = (struct s3_object){0};
	d->sized = false;
	return 0;
}

static int page_element(void *arg, const char *path, const char *text)
{
	static const char root[] = "ListBucketResult";
	struct decoding *d = arg;
	const char *name;

	if (strncmp(path, root, strlen(root)) != 0)
		return -EBADMSG;
	name = path + strlen(root);
	if (!strcmp(name, "/Contents/Key"))
		return keep(&d->object.key, text);
	if (!strcmp(name, "/Contents/Size"))
		return set_size(d, text);
	if (!strcmp(name, "/Contents"))
		return end_object(d);
	if (!strcmp(name, "/NextContinuationToken"))
		return keep(&d->page.next, text);
	if (!strcmp(name, "/IsTruncated"))
		d->truncated = !strcmp(text, "true");
	if (!strcmp(name, "/EncodingType"))
		d->encoded = !strcmp(text, "url");
	return 0;
}

/* Keys in the form of a URL's query, where `+` is a space too. */
static int decode_keys(struct s3_page *page)
{
	for (size_t i = 0; i < page->count; i++) {
		char *key = page->objects[i].key, *plain = NULL;
		int r;

		for (char *plus = strchr(key, '+'); plus; plus = strchr(plus, '+'))
			*plus = ' ';
		r = remote_url_decode(key, &plain);
		if (r < 0)
			return r == -EINVAL ? -EBADMSG : r;
		free(key);
		page->objects[i].key = plain;
	}
	return 0;
}

int s3_page_decode(const void *data, size_t len, struct s3_page *ret_page)
{
	CLEANUP(decoding_free) struct decoding d = {0};
	int r = len > S3_PAGE_MAX ? -EBADMSG : xml_each(data, len, page_element, &d);

	if (r == 0 && d.truncated && (!d.page.next || !d.page.next[0]))
		r = -EBADMSG;
	if (r == 0 && d.encoded)
		r = decode_keys(&d.page);
	if (r < 0)
		return r;
	if (!d.truncated) {
		free(d.page.next);
		d.page.next = NULL;
	}
	*ret_page = d.page;
	d.page = (struct s3_page){0};
	return 0;
}

static int error_element(void *arg, const char *path, const char *text)
{
	struct s3_error *e = arg;

	if (xml_path_ends(path, "Error/Code"))
		snprintf(e->code, sizeof(e->code), "%s", text);
	else if (xml_path_ends(path, "Error/Message"))
		snprintf(e->message, sizeof(e->message), "%s", text);
	else if (xml_path_ends(path, "Error/Region"))
		snprintf(e->region, sizeof(e->region), "%s", text);
	else if (xml_path_ends(path, "Error/Endpoint"))
		snprintf(e->endpoint, sizeof(e->endpoint), "%s", text);
	return 0;
}

void s3_error_decode(const void *data, size_t len, struct s3_error *ret_error)
{
	struct s3_error e = {0};

	*ret_error = (struct s3_error){0};
	if (len && xml_each(data, len, error_element, &e) == 0)
		*ret_error = e;
}

struct failures {
	s3_failure_fn *fn;
	void *arg;
	struct s3_error e; /* the one that is being read */
	bool has_key;
	unsigned count;
};

static int end_failure(struct failures *f)
{
	struct s3_error e = f->e;

	if (!f->has_key || !e.code[0] || ++f->count > S3_DELETE_MAX)
		return -EBADMSG;
	f->e = (struct s3_error){0};
	f->has_key = false;
	return f->fn(f->arg, &e);
}

static int failures_element(void *arg, const char *path, const char *text)
{
	static const char root[] = "DeleteResult";
	struct failures *f = arg;
	const char *name;

	if (strncmp(path, root, strlen(root)) != 0)
		return -EBADMSG;
	name = path + strlen(root);
	if (name[0] && name[0] != '/')
		return -EBADMSG;
	if (!strcmp(name, "/Error"))
		return end_failure(f);
	if (!strcmp(name, "/Error/Key"))
		f->has_key = text[0] != '\0';
	else if (!strcmp(name, "/Error/Code"))
		snprintf(f->e.code, sizeof(f->e.code), "%s", text);
	else if (!strcmp(name, "/Error/Message"))
		snprintf(f->e.message, sizeof(f->e.message), "%s", text);
	return 0;
}

int s3_failures_decode(const void *data, size_t len, s3_failure_fn *fn, void *arg)
{
	struct failures f = {.fn = fn, .arg = arg};

	return len > S3_PAGE_MAX ? -EBADMSG : xml_each(data, len, failures_element, &f);
}

void s3_xml_escape(struct buf *out, const char *text)
{
	while (*text) {
		size_t plain = strcspn(text, "&<>\"'");

		buf_put(out, text, plain);
		text += plain;
		if (*text)
			buf_printf(out, "&#%d;", *text++);
	}
}
