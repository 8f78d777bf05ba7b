/* SPDX-License-Identifier: Apache-2.0 */
/* What S3 and STS answer in XML. */
#include "lib/net/s3_xml.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <string.h>
#include "lib/remote/remote_url.h"
#include "lib/util/buf.h"
#include "lib/util/parse.h"

/* ---- an answer, element by element, with libexpat ---- */

struct walk {
	XML_Parser parser;
	xml_fn *fn;
	void *arg;
	char path[XML_PATH_MAX];
	unsigned depth;
	bool collecting; /* between a start and the next tag */
	struct buf text;
	int result;
};

static void stop(struct walk *w, int result)
{
	if (w->result == 0)
		w->result = result;
	XML_StopParser(w->parser, XML_FALSE);
}

static void XMLCALL start_element(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct walk *w = arg;
	const char *colon = strrchr(name, ':');
	size_t used = strlen(w->path), len;

	(void)attributes;
	name = colon ? colon + 1 : name;
	len = strlen(name);
	if (w->depth == XML_DEPTH || used + len + 2 > sizeof(w->path)) {
		stop(w, -EBADMSG);
		return;
	}
	if (w->depth++)
		w->path[used++] = '/';
	memcpy(w->path + used, name, len + 1);
	buf_reset(&w->text);
	w->collecting = true;
}

static void XMLCALL end_element(void *arg, const XML_Char *name)
{
	struct walk *w = arg;
	char *slash;
	int r;

	(void)name;
	/* A parser that was stopped may still tell of an empty element's end. */
	if (w->result)
		return;
	r = buf_error(&w->text);
	if (r == 0)
		r = w->fn(w->arg, w->path, buf_str(&w->text));
	if (r) {
		stop(w, r);
		return;
	}
	slash = strrchr(w->path, '/');
	if (slash)
		*slash = '\0';
	else
		w->path[0] = '\0';
	w->depth--;
	buf_reset(&w->text);
	w->collecting = false;
}

static void XMLCALL characters(void *arg, const XML_Char *text, int len)
{
	struct walk *w = arg;

	if (!w->collecting)
		return;
	if (w->text.len + (size_t)len > XML_TEXT_MAX)
		stop(w, -EBADMSG);
	else
		buf_put(&w->text, text, (size_t)len);
}

static void XMLCALL doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
			    const XML_Char *public_id, int has_internal_subset)
{
	(void)name, (void)system_id, (void)public_id, (void)has_internal_subset;
	stop(arg, -EBADMSG);
}

int xml_each(const void *data, size_t len, xml_fn *fn, void *arg)
{
	struct walk w = {.fn = fn, .arg = arg};
	enum XML_Status status;

	if (len > XML_MAX)
		return -EBADMSG;
	w.parser = XML_ParserCreate(NULL);
	if (!w.parser)
		return -ENOMEM;
	XML_SetUserData(w.parser, &w);
	XML_SetElementHandler(w.parser, start_element, end_element);
	XML_SetCharacterDataHandler(w.parser, characters);
	XML_SetStartDoctypeDeclHandler(w.parser, doctype);
	status = XML_Parse(w.parser, data, (int)len, 1);
	if (w.result == 0 && status != XML_STATUS_OK)
		w.result = XML_GetErrorCode(w.parser) == XML_ERROR_NO_MEMORY ? -ENOMEM : -EBADMSG;
	XML_ParserFree(w.parser);
	buf_free(&w.text);
	return w.result;
}

bool xml_path_ends(const char *path, const char *end)
{
	size_t len = strlen(path), end_len = strlen(end);

	if (len < end_len || strcmp(path + len - end_len, end) != 0)
		return false;
	return len == end_len || path[len - end_len - 1] == '/';
}

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

struct versions {
	s3_version_fn *fn;
	void *arg;
	struct buf key, id; /* of the one that is being read */
};

static void versions_free(struct versions *v)
{
	buf_free(&v->key);
	buf_free(&v->id);
}

static int end_version(struct versions *v, bool deleted)
{
	struct s3_version version = {
		.key = buf_str(&v->key), .id = buf_str(&v->id), .deleted = deleted};
	int r;

	if (buf_error(&v->key) < 0 || buf_error(&v->id) < 0)
		return -ENOMEM;
	r = v->key.len && v->id.len ? v->fn(v->arg, &version) : -EBADMSG;
	buf_reset(&v->key);
	buf_reset(&v->id);
	return r;
}

static int keep_text(struct buf *place, const char *text)
{
	buf_reset(place);
	buf_put(place, text, strlen(text));
	return buf_error(place);
}

static int versions_element(void *arg, const char *path, const char *text)
{
	static const char root[] = "ListVersionsResult";
	struct versions *v = arg;

	if (strncmp(path, root, strlen(root)) != 0)
		return -EBADMSG;
	path += strlen(root);
	if (!strcmp(path, "/Version/Key") || !strcmp(path, "/DeleteMarker/Key"))
		return keep_text(&v->key, text);
	if (!strcmp(path, "/Version/VersionId") || !strcmp(path, "/DeleteMarker/VersionId"))
		return keep_text(&v->id, text);
	if (!strcmp(path, "/Version") || !strcmp(path, "/DeleteMarker"))
		return end_version(v, path[1] == 'D');
	return 0;
}

int s3_versions_decode(const void *data, size_t len, s3_version_fn *fn, void *arg)
{
	CLEANUP(versions_free) struct versions v = {.fn = fn, .arg = arg};

	return len > S3_PAGE_MAX ? -EBADMSG : xml_each(data, len, versions_element, &v);
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
