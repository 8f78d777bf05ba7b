/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an XML answer, element by element, with libexpat. */
#include "lib/net/xml.h"

#include <errno.h>
#include <expat.h>
#include <string.h>
#include "lib/util/buf.h"

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
