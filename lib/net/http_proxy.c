/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy that the environment names. curl would find it by itself, but would also print it whole
 * where it cannot be understood, password and all. */
#include "lib/net/http_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

#define FLAGS (CURLU_GUESS_SCHEME | CURLU_NON_SUPPORT_SCHEME)

static const char *find(const char **ret_variable)
{
	static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = getenv(names[i]);

		if (!value || !value[0])
			continue;
		*ret_variable = names[i];
		return value;
	}
	return NULL;
}

static void forget(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
}

static void curl_forget(char **secret)
{
	forget(*secret);
	curl_free(*secret);
}

/* As curl takes it: both still encoded. */
static int take_userpwd(struct http_proxy *p, CURLU *url)
{
	CLEANUP(curl_forget) char *user = NULL, *password = NULL;
	struct buf text = {0};

	if (curl_url_get(url, CURLUPART_USER, &user, 0) == CURLUE_OUT_OF_MEMORY ||
	    curl_url_get(url, CURLUPART_PASSWORD, &password, 0) == CURLUE_OUT_OF_MEMORY)
		return -ENOMEM;
	if (!user && !password)
		return 0;
	buf_printf(&text, "%s:%s", user ? user : "", password ? password : "");
	p->userpwd = buf_error(&text) ? NULL : strdup(buf_str(&text));
	if (text.data)
		explicit_bzero(text.data, text.cap);
	buf_free(&text);
	return p->userpwd ? 0 : -ENOMEM;
}

static int take_url(struct http_proxy *p, CURLU *url)
{
	char *text = NULL;

	curl_url_set(url, CURLUPART_USER, NULL, 0);
	curl_url_set(url, CURLUPART_PASSWORD, NULL, 0);
	if (curl_url_get(url, CURLUPART_URL, &text, 0) != CURLUE_OK)
		return -ENOMEM;
	p->url = strdup(text);
	curl_free(text);
	return p->url ? 0 : -ENOMEM;
}

int http_proxy_init(struct http_proxy *p)
{
	const char *value;
	CURLU *url;
	int error;

	*p = (struct http_proxy){0};
	value = find(&p->variable);
	if (!value)
		return 0;
	url = curl_url();
	if (!url)
		return -ENOMEM;
	p->bad = curl_url_set(url, CURLUPART_URL, value, FLAGS) != CURLUE_OK;
	error = p->bad ? 0 : take_userpwd(p, url);
	if (!error && !p->bad)
		error = take_url(p, url);
	curl_url_cleanup(url);
	if (error)
		http_proxy_free(p);
	return error;
}

void http_proxy_free(struct http_proxy *p)
{
	forget(p->userpwd);
	free(p->userpwd);
	free(p->url);
	*p = (struct http_proxy){0};
}

bool http_proxy_serves(const struct http_proxy *p, const char *url)
{
	return (p->url || p->bad) && strncasecmp(url, "https://", strlen("https://")) == 0;
}

#define SET(option, value) (c = c ? c : curl_easy_setopt(easy, option, value))

CURLcode http_proxy_set(const struct http_proxy *p, const char *url, CURL *easy)
{
	bool serves = http_proxy_serves(p, url);
	CURLcode c = CURLE_OK;

	/* "": none, whatever the environment says. curl itself looks at no_proxy. */
	SET(CURLOPT_PROXY, serves && p->url ? p->url : "");
	if (serves && p->userpwd)
		SET(CURLOPT_PROXYUSERPWD, p->userpwd);
	SET(CURLOPT_HTTPPROXYTUNNEL, 1L);
	SET(CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE); /* ours are for the server */
	SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);	   /* what a proxy says is no answer */
	return c;
}
