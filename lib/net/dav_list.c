/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes what a WebDAV server lists. */
#include "lib/net/dav.h"

#include <errno.h>
#include <expat.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/remote/remote_url.h"
#include "lib/util/cleanup.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"

#define NESTED_MAX 64
#define TEXT_MAX   DAV_HREF_MAX
#define DAV_SPACE  "DAV:|" /* with the separator that the parser puts after it */

const char dav_list_request[] =
	"<?xml version=\"1.0\" encoding=\"utf-8\"?>"
	"<D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:getcontentlength/>"
	"<D:getlastmodified/></D:prop></D:propfind>";

/* What an element says, where it stands where it should. */
enum element {
	OTHER,
	MULTISTATUS,
	RESPONSE,
	HREF,
	STATUS, /* of a response */
	PROPSTAT,
	PROPSTAT_STATUS,
	PROP,
	RESOURCETYPE,
	COLLECTION,
	LENGTH,
	MODIFIED,
};

static const struct {
	enum element parent;
	const char *name;
	enum element element;
} grammar[] = {
	{OTHER, "multistatus", MULTISTATUS},
	{MULTISTATUS, "response", RESPONSE},
	{RESPONSE, "href", HREF},
	{RESPONSE, "status", STATUS},
	{RESPONSE, "propstat", PROPSTAT},
	{PROPSTAT, "status", PROPSTAT_STATUS},
	{PROPSTAT, "prop", PROP},
	{PROP, "resourcetype", RESOURCETYPE},
	{RESOURCETYPE, "collection", COLLECTION},
	{PROP, "getcontentlength", LENGTH},
	{PROP, "getlastmodified", MODIFIED},
};

struct parsing {
	XML_Parser parser;
	dav_list_fn *fn;
	void *arg;
	int result;
	unsigned depth;
	enum element stack[NESTED_MAX];
	bool multistatus; /* the root is one */
	char text[TEXT_MAX];
	size_t text_len;
	bool text_long;
	struct dav_entry entry;	   /* of this response */
	struct dav_entry propstat; /* of this propstat, until its status is known */
	bool refused;		   /* the response has a status other than 2xx */
	bool propstat_refused;
};

static void stop(struct parsing *p, int result)
{
	if (p->result == 0)
		p->result = result;
	XML_StopParser(p->parser, XML_FALSE);
}

static enum element element_of(enum element parent, const char *name)
{
	if (strncmp(name, DAV_SPACE, strlen(DAV_SPACE)) != 0)
		return OTHER;
	for (size_t i = 0; i < sizeof(grammar) / sizeof(grammar[0]); i++)
		if (grammar[i].parent == parent &&
		    strcmp(grammar[i].name, name + strlen(DAV_SPACE)) == 0)
			return grammar[i].element;
	return OTHER;
}

static struct dav_entry no_entry(void)
{
	return (struct dav_entry){.size = DAV_NO_SIZE};
}

static void on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct parsing *p = arg;
	enum element element;

	(void)attributes;
	if (p->result != 0)
		return;
	if (p->depth == NESTED_MAX) {
		stop(p, -EBADMSG);
		return;
	}
	element = element_of(p->depth ? p->stack[p->depth - 1] : OTHER, name);
	if ((element == MULTISTATUS) != (p->depth == 0)) {
		/* Elsewhere the name means nothing; another root is no listing. */
		if (p->depth == 0) {
			stop(p, -EBADMSG);
			return;
		}
		element = OTHER;
	}
	p->multistatus |= element == MULTISTATUS;
	p->stack[p->depth++] = element;
	p->text_len = 0;
	p->text_long = false;
	if (element == RESPONSE) {
		p->entry = no_entry();
		p->refused = false;
	} else if (element == PROPSTAT) {
		p->propstat = no_entry();
		p->propstat_refused = false;
	} else if (element == COLLECTION) {
		p->propstat.collection = true;
	}
}

static void on_text(void *arg, const XML_Char *text, int len)
{
	struct parsing *p = arg;

	if ((size_t)len >= sizeof(p->text) - p->text_len) {
		p->text_long = true;
		return;
	}
	memcpy(p->text + p->text_len, text, (size_t)len);
	p->text_len += (size_t)len;
}

/* The text of the element that ends, without white space around it; "" where it was too long. */
static const char *text_of(struct parsing *p)
{
	char *text = p->text;

	if (p->text_long)
		p->text_len = 0;
	while (p->text_len > 0 && strchr(" \t\r\n", text[p->text_len - 1]))
		p->text_len--;
	text[p->text_len] = '\0';
	return text + strspn(text, " \t\r\n");
}

/* "HTTP/1.1 200 OK" */
static bool is_refusal(const char *status)
{
	const char *code = strchr(status, ' ');

	return !code || code[1] != '2';
}

static void end_propstat(struct parsing *p)
{
	if (p->propstat_refused)
		return;
	p->entry.collection |= p->propstat.collection;
	if (p->propstat.size != DAV_NO_SIZE)
		p->entry.size = p->propstat.size;
	if (p->propstat.modified[0])
		memcpy(p->entry.modified, p->propstat.modified, sizeof(p->entry.modified));
}

static void end_response(struct parsing *p)
{
	int r;

	if (p->refused || !p->entry.href[0])
		return;
	r = p->fn(p->arg, &p->entry);
	if (r != 0)
		stop(p, r);
}

static void on_end(void *arg, const XML_Char *name)
{
	struct parsing *p = arg;
	enum element element;
	const char *text;

	(void)name;
	/* A parser that was stopped still tells the end of an empty element. */
	if (p->result != 0)
		return;
	element = p->stack[--p->depth];
	text = text_of(p);
	if (element == HREF)
		strcpy(p->entry.href, text);
	else if (element == STATUS)
		p->refused = is_refusal(text);
	else if (element == PROPSTAT_STATUS)
		p->propstat_refused = is_refusal(text);
	else if (element == LENGTH && parse_u64(text, &p->propstat.size) < 0)
		p->propstat.size = DAV_NO_SIZE;
	else if (element == MODIFIED && strlen(text) < sizeof(p->propstat.modified))
		strcpy(p->propstat.modified, text);
	else if (element == PROPSTAT)
		end_propstat(p);
	else if (element == RESPONSE)
		end_response(p);
	p->text_len = 0;
	p->text_long = false;
}

/* A listing needs no document type, and without one there are no entities. */
static void on_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
		       const XML_Char *public_id, int has_internal_subset)
{
	(void)name;
	(void)system_id;
	(void)public_id;
	(void)has_internal_subset;
	stop(arg, -EBADMSG);
}

static int parse(struct parsing *p, const char *data, size_t len)
{
	/* expat counts in int; its bytes are given in pieces. */
	const size_t piece = 1U << 20;

	for (;;) {
		size_t n = len < piece ? len : piece;
		enum XML_Status s = XML_Parse(p->parser, data, (int)n, n == len);

		if (p->result != 0)
			return p->result;
		if (s != XML_STATUS_OK)
			return XML_GetErrorCode(p->parser) == XML_ERROR_NO_MEMORY ? -ENOMEM
										  : -EBADMSG;
		if (n == len)
			return p->multistatus ? 0 : -EBADMSG;
		data += n;
		len -= n;
	}
}

int dav_list_parse(const void *data, size_t len, dav_list_fn *fn, void *arg)
{
	cleanup_free struct parsing *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->fn = fn;
	p->arg = arg;
	p->parser = XML_ParserCreateNS(NULL, '|');
	if (!p->parser)
		return -ENOMEM;
	XML_SetUserData(p->parser, p);
	XML_SetElementHandler(p->parser, on_start, on_end);
	XML_SetCharacterDataHandler(p->parser, on_text);
	XML_SetStartDoctypeDeclHandler(p->parser, on_doctype);
	r = parse(p, data, len);
	XML_ParserFree(p->parser);
	return r;
}

/* Past the host of an absolute URL, or where the path begins; NULL: another host's, or no path. */
static const char *path_of(const char *authority, const char *href)
{
	const char *host = strstr(href, "://");
	size_t len;

	if (href[0] == '/' && href[1] != '/')
		return href;
	if (!host ||
	    (strncasecmp(href, "http://", 7) != 0 && strncasecmp(href, "https://", 8) != 0))
		return NULL;
	host += 3;
	len = strcspn(host, "/?#");
	if (len != strlen(authority) || strncasecmp(host, authority, len) != 0)
		return NULL;
	return host[len] == '/' ? host + len : NULL;
}

int dav_member_name(const struct dav_place *place, const char *href, char *ret_name)
{
	const char *path = path_of(place->authority, href);
	size_t above = strlen(place->path), len;
	cleanup_free char *decoded = NULL;

	/* An encoded slash is part of a name, and no name of ours has one. */
	if (!path || strcasestr(path, "%2f") || strpbrk(path, "?#"))
		return -ENOENT;
	if (remote_url_decode(path, &decoded) < 0 || strncmp(decoded, place->path, above) != 0)
		return -ENOENT;
	len = strlen(decoded + above);
	if (len > 0 && decoded[above + len - 1] == '/')
		len--;
	if (len == 0 || len >= DAV_HREF_MAX || memchr(decoded + above, '/', len))
		return -ENOENT;
	memcpy(ret_name, decoded + above, len);
	ret_name[len] = '\0';
	return 0;
}

/* ---- The WebDAV remote: what lies there (PROPFIND, RFC 4918, 9.1). ---- */

#define FOLDERS_MAX 1000000 /* of one listing: a server must not make it endless */

static int propfind(struct dav *d, struct http *h, const char *path, const char *depth,
		    size_t max_answer, dav_list_fn *fn, void *arg)
{
	struct http_headers cleanup_http_headers headers = {0};
	struct http_answer cleanup_http_answer a = {0};
	struct buf cleanup_buf text = {0};
	struct http_request q = {
		.method = "PROPFIND",
		.headers = &headers,
		.body = dav_list_request,
		.body_len = strlen(dav_list_request),
		.has_body = true,
		.max_answer = max_answer,
		.out = &text,
	};
	int r = http_headers_add(&headers, "Depth", depth);

	if (r == 0)
		r = http_headers_add(&headers, "Content-Type", "application/xml; charset=utf-8");
	if (r == 0)
		r = dav_do_at(d, h, path, &q, &a);
	r = dav_result(d, r, q.method, &a);
	if (r < 0)
		return r;
	if (a.status != 207)
		return remote_set_reason(
			&d->base, -EPERM,
			"PROPFIND: the server answers %d, not 207: is WebDAV enabled "
			"for this URL?",
			a.status);
	r = dav_list_parse(text.data, text.len, fn, arg);
	if (r == -EBADMSG)
		return remote_set_reason(&d->base, -EIO,
					 "PROPFIND: the server's list is malformed");
	return r;
}

/* ---- one resource */

static int take_first(void *arg, const struct dav_entry *entry)
{
	*(struct dav_entry *)arg = *entry;
	return 1;
}

int dav_stat_at(struct dav *d, struct http *h, const char *path, struct dav_entry *ret_entry)
{
	cleanup_free struct dav_entry *entry = calloc(1, sizeof(*entry));
	int r;

	if (!entry)
		return -ENOMEM;
	r = propfind(d, h, path, "0", 1U << 20, take_first, entry);
	if (r < 0)
		return r;
	if (r == 0)
		return remote_set_reason(&d->base, -EIO, "PROPFIND: the server's list is empty");
	*ret_entry = *entry;
	return 0;
}

int dav_stat(struct dav *d, struct http *h, const char *key, struct dav_entry *ret_entry)
{
	cleanup_free char *path = dav_path(d, key);

	return path ? dav_stat_at(d, h, path, ret_entry) : -ENOMEM;
}

/* ---- a collection */

struct members {
	struct dav_place place;
	dav_member_fn *fn;
	void *arg;
	char name[DAV_HREF_MAX];
};

static int take_member(void *arg, const struct dav_entry *entry)
{
	struct members *m = arg;

	if (dav_member_name(&m->place, entry->href, m->name) < 0)
		return 0;
	return m->fn(m->arg, m->name, entry);
}

int dav_members(struct dav *d, const char *folder, dav_member_fn *fn, void *arg)
{
	cleanup_free struct members *m = calloc(1, sizeof(*m));
	cleanup_free char *path = dav_path(d, folder);
	cleanup_free char *decoded = NULL;

	if (!m || !path || text_print(&decoded, "%s/%s", d->url.path_decoded, folder) < 0)
		return -ENOMEM;
	m->place = (struct dav_place){.authority = d->url.authority, .path = decoded};
	m->fn = fn;
	m->arg = arg;
	return propfind(d, d->http, path, "1", DAV_LIST_MAX, take_member, m);
}

/* ---- all below a prefix */

struct walk {
	struct dav *d;
	remote_list_fn *fn;
	void *arg;
	const char *folder; /* which is read now */
	struct buf todo;    /* folders, each with its NUL */
	size_t folders;
	int result; /* of fn, where it ended the listing */
};

static int walk_member(void *arg, const char *name, const struct dav_entry *entry)
{
	struct walk *w = arg;
	char key[2 * REMOTE_KEY_MAX];
	int n = snprintf(key, sizeof(key), "%s%s", w->folder, name);

	if (n < 0 || (size_t)n > REMOTE_KEY_MAX || !remote_key_valid(key))
		return 0;
	if (entry->collection) {
		if (++w->folders > FOLDERS_MAX)
			return remote_set_reason(&w->d->base, -EIO,
						 "the server lists no end of folders");
		buf_put(&w->todo, key, (size_t)n);
		buf_put(&w->todo, "/", 2);
		return buf_error(&w->todo);
	}
	if (entry->size == DAV_NO_SIZE)
		return remote_set_reason(&w->d->base, -EIO,
					 "the server does not say how long %s is", key);
	w->result = w->fn(w->arg, key, entry->size);
	return w->result ? 1 : 0;
}

int dav_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct walk w = {.d = dav_of(r), .fn = fn, .arg = arg};
	int err = 0;

	buf_put(&w.todo, prefix, strlen(prefix) + 1);
	err = buf_error(&w.todo);
	/* The last first: what is to be done stays as small as the tree is deep. */
	while (err == 0 && w.todo.len > 0) {
		char folder[REMOTE_KEY_MAX + 2];
		size_t at = w.todo.len - 1;

		while (at > 0 && w.todo.data[at - 1])
			at--;
		memcpy(folder, w.todo.data + at, w.todo.len - at);
		w.todo.len = at;
		w.folder = folder;
		err = dav_members(w.d, folder, walk_member, &w);
		if (err == -ENOENT)
			err = 0;
	}
	buf_free(&w.todo);
	return w.result ? w.result : err;
}
