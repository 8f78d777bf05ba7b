/* SPDX-License-Identifier: Apache-2.0 */
/* The URLs of remotes, taken apart. */
#include "lib/remote/remote_url.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include "lib/util/cleanup.h"

#define SCHEME_CHARS "abcdefghijklmnopqrstuvwxyz0123456789"

void remote_url_free(struct remote_url *url)
{
	free(url->scheme);
	free(url->rest);
	free(url->query);
	*url = (struct remote_url){0};
}

/* Splits what follows the scheme at its first `?`. */
static int split_query(const char *text, struct remote_url *url)
{
	size_t len = strcspn(text, "?");

	url->rest = strndup(text, len);
	if (!url->rest)
		return -ENOMEM;
	if (!text[len])
		return 0;
	url->query = strdup(text + len + 1);
	return url->query ? 0 : -ENOMEM;
}

static int parse_plain(const char *text, struct remote_url *url)
{
	url->plain = true;
	url->scheme = strdup("file");
	url->rest = strdup(text);
	return url->scheme && url->rest ? 0 : -ENOMEM;
}

static int parse_scheme(const char *text, struct remote_url *url)
{
	size_t len = strspn(text, SCHEME_CHARS);
	char after = text[len];

	if (!len || (after && !strchr(":+?", after)))
		return -EINVAL;
	url->layered = after == '+';
	url->scheme = strndup(text, len);
	if (!url->scheme)
		return -ENOMEM;
	return split_query(text + len + (after == ':' || after == '+'), url);
}

int remote_url_parse(const char *text, struct remote_url *ret_url)
{
	struct remote_url cleanup_remote_url url = {0};
	int r = text[0] == '/' ? parse_plain(text, &url) : parse_scheme(text, &url);

	if (r < 0)
		return r;
	*ret_url = url;
	url = (struct remote_url){0};
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int remote_url_decode(const char *text, char **ret_text)
{
	cleanup_free char *out = malloc(strlen(text) + 1);
	char *o = out;

	if (!out)
		return -ENOMEM;
	for (const char *p = text; *p; p++) {
		int high, low;

		if (*p != '%') {
			*o++ = *p;
			continue;
		}
		high = hex_digit(p[1]);
		low = high < 0 ? -1 : hex_digit(p[2]);
		if (low < 0 || (high == 0 && low == 0))
			return -EINVAL;
		*o++ = (char)(high << 4 | low);
		p += 2;
	}
	*o = '\0';
	*ret_text = steal_ptr(out);
	return 0;
}

static int one_param(const char *raw, remote_url_param_fn *fn, void *arg)
{
	cleanup_free char *name = NULL;
	cleanup_free char *value = NULL;
	size_t len = strcspn(raw, "=");
	int r;

	name = strndup(raw, len);
	if (!name)
		return -ENOMEM;
	r = remote_url_decode(raw[len] ? raw + len + 1 : "", &value);
	return r < 0 ? r : fn(arg, name, value, raw);
}

int remote_url_each_param(const char *query, remote_url_param_fn *fn, void *arg)
{
	for (const char *p = query; p && *p;) {
		size_t len = strcspn(p, "&");
		cleanup_free char *raw = strndup(p, len);
		int r;

		if (!raw)
			return -ENOMEM;
		r = len ? one_param(raw, fn, arg) : 0;
		if (r != 0)
			return r;
		p += len + (p[len] == '&');
	}
	return 0;
}

static bool names_secret(const char *name, size_t len)
{
	static const char *const words[] = {"password", "passwd",    "secret",
					    "token",	"signature", "credential"};
	char copy[64];

	if (len >= sizeof(copy))
		return true;
	memcpy(copy, name, len);
	copy[len] = '\0';
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcasestr(copy, words[i]))
			return true;
	return false;
}

/* The length of what must be hidden at p, 0 where nothing: a password behind `//user:`, or the
 * value of a parameter. `start` is the beginning of the URL. */
static size_t secret_at(const char *start, const char *p)
{
	if (p > start && p[-1] == ':' && p[0] != '/') {
		size_t end = strcspn(p, "/?#");
		const char *at = memrchr(p, '@', end);
		const char *slashes = memrchr(start, '/', (size_t)(p - start));

		if (at && slashes && slashes > start && slashes[-1] == '/')
			return (size_t)(at - p);
	}
	if (p > start && p[-1] == '=') {
		const char *name = p - 1;

		while (name > start && !strchr("?&", name[-1]))
			name--;
		if (names_secret(name, (size_t)(p - 1 - name)))
			return strcspn(p, "&");
	}
	return 0;
}

void remote_url_redact(const char *text, char *ret_text, size_t size)
{
	size_t used = 0;

	for (const char *p = text; *p && used + 4 < size;) {
		size_t secret = text[0] == '/' ? 0 : secret_at(text, p);

		if (secret) {
			memcpy(ret_text + used, "***", 3);
			used += 3;
			p += secret;
			continue;
		}
		ret_text[used++] = (unsigned char)*p < ' ' || *p == 0x7f ? '?' : *p;
		p++;
	}
	ret_text[used] = '\0';
}
