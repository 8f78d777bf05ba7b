/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP engine: what is asked of curl, and what becomes of an answer, and the pool of its handles. */
#include "lib/net/http.h"

#include <errno.h>
#include <openssl/pem.h>
#include <string.h>
#include <strings.h>

#include "lib/net/http_internal.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

#define CONNECTIONS_MAX 256
#define CONNECT_DEFAULT (10 * NS_PER_S)
#define REDIRECTS_MAX	5
#define BUFFER_SIZE	(256L << 10)
#define CONTINUE_FROM	(1U << 20) /* bodies from here on wait for "100 Continue" */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready;

static void start_curl(void)
{
	curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ---- the engine */

static int copy_string(const char *from, const char **ret_to)
{
	if (!from)
		return 0;
	*ret_to = strdup(from);
	return *ret_to ? 0 : -ENOMEM;
}

static void config_free(struct http_config *c)
{
	free((char *)c->ca_file);
	free((char *)c->ca_dir);
	free((char *)c->client_cert);
	free((char *)c->client_key);
}

static int config_copy(const struct http_config *from, struct http_config *to)
{
	*to = (struct http_config){
		.limits = from->limits, .http1 = from->http1, .insecure = from->insecure};
	if (copy_string(from->ca_file, &to->ca_file) < 0 ||
	    copy_string(from->ca_dir, &to->ca_dir) < 0 ||
	    copy_string(from->client_cert, &to->client_cert) < 0 ||
	    copy_string(from->client_key, &to->client_key) < 0) {
		config_free(to);
		return -ENOMEM;
	}
	return 0;
}

/* Told when a remote is opened rather than with the first request. */
static int check_certificate(const char *path)
{
	cleanup_fclose FILE *f = NULL;
	X509 *cert;

	if (!path)
		return 0;
	f = fopen(path, "re");
	cert = f ? PEM_read_X509(f, NULL, NULL, NULL) : NULL;
	if (!cert)
		return -EINVAL;
	X509_free(cert);
	return 0;
}

static unsigned connections_of(const struct remote_limits *limits)
{
	if (limits->connections == 0)
		return REMOTE_CONNECTIONS;
	return limits->connections < CONNECTIONS_MAX ? limits->connections : CONNECTIONS_MAX;
}

static int init(struct http *h, const struct http_config *config)
{
	int r = config_copy(config, &h->config);

	if (r < 0)
		return r;
	rate_init(&h->up, config->limits.upload_rate);
	rate_init(&h->down, config->limits.download_rate);
	r = http_proxy_init(&h->proxy);
	if (r < 0)
		goto no_proxy;
	r = http_pool_init(&h->pool, connections_of(&config->limits));
	if (r == 0)
		return 0;
	http_proxy_free(&h->proxy);
no_proxy:
	rate_destroy(&h->down);
	rate_destroy(&h->up);
	config_free(&h->config);
	return r;
}

int http_new(struct remote *owner, const struct http_config *config, struct http **ret_http)
{
	struct http *h;
	int r;

	pthread_once(&curl_once, start_curl);
	if (curl_ready != CURLE_OK)
		return -ENOMEM;
	if (check_certificate(config->ca_file) < 0 || check_certificate(config->client_cert) < 0 ||
	    (config->client_key && access(config->client_key, R_OK) < 0))
		return -EINVAL;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->owner = owner;
	r = init(h, config);
	if (r < 0) {
		free(h);
		return r;
	}
	*ret_http = h;
	return 0;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	http_pool_destroy(&h->pool);
	http_proxy_free(&h->proxy);
	rate_destroy(&h->down);
	rate_destroy(&h->up);
	config_free(&h->config);
	free(h);
}

/* ---- headers and answers */

static bool has_control(const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		if (*p < ' ' || *p == 0x7f)
			return true;
	return false;
}

int http_headers_add(struct http_headers *hs, const char *name, const char *value)
{
	struct curl_slist *list;
	struct buf cleanup_buf line = {0};

	if (has_control(name) || has_control(value))
		return -EINVAL;
	buf_printf(&line, "%s: %s", name, value);
	list = buf_error(&line) < 0 ? NULL : curl_slist_append(hs->list, buf_str(&line));
	if (line.data)
		explicit_bzero(line.data, line.cap);
	if (!list)
		return -ENOMEM;
	hs->list = list;
	return 0;
}

void http_headers_free(struct http_headers *hs)
{
	for (struct curl_slist *l = hs->list; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	curl_slist_free_all(hs->list);
	hs->list = NULL;
}

void http_answer_free(struct http_answer *a)
{
	buf_free(&a->body);
	*a = (struct http_answer){0};
}

int http_errno_of(int status)
{
	if (status >= 200 && status < 300)
		return 0;
	switch (status) {
	case 401:
	case 403:
	case 407:
		return -EACCES;
	case 404:
	case 410:
		return -ENOENT;
	case 413:
		return -EFBIG;
	case 501:
		return -EOPNOTSUPP;
	case 507:
		return -ENOSPC;
	default:
		return -EIO;
	}
}

/* ---- a request */

#define SET(option, value) (c = c ? c : curl_easy_setopt(easy, option, value))

static CURLcode set_connection(const struct http *h, const char *url, CURL *easy)
{
	const struct http_config *config = &h->config;
	int64_t connect_ns = config->limits.connect_timeout_ns;
	CURLcode c = http_proxy_set(&h->proxy, url, easy);

	SET(CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700  /* 7.87 */
	SET(CURLOPT_QUICK_EXIT, 1L); /* a cancel does not wait for a name server */
#endif
#if LIBCURL_VERSION_NUM >= 0x075500 /* 7.85 */
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET(CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
	SET(CURLOPT_HTTP_VERSION,
	    (long)(config->http1 ? CURL_HTTP_VERSION_1_1 : CURL_HTTP_VERSION_2TLS));
	SET(CURLOPT_TCP_KEEPALIVE, 1L);
	SET(CURLOPT_TCP_KEEPIDLE, 30L);
	SET(CURLOPT_TCP_KEEPINTVL, 15L);
	SET(CURLOPT_CONNECTTIMEOUT_MS,
	    (long)((connect_ns > 0 ? connect_ns : CONNECT_DEFAULT) / NS_PER_MS));
	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	SET(CURLOPT_SSL_VERIFYPEER, config->insecure ? 0L : 1L);
	SET(CURLOPT_SSL_VERIFYHOST, config->insecure ? 0L : 2L);
	/* Refused where a request that failed early has left its buffers: then those are used. */
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_SIZE);
	curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_SIZE);
	if (config->ca_file) {
		SET(CURLOPT_CAINFO, config->ca_file);
		SET(CURLOPT_CAPATH, NULL);
	}
	if (config->ca_dir)
		SET(CURLOPT_CAPATH, config->ca_dir);
	if (config->client_cert) {
		SET(CURLOPT_SSLCERT, config->client_cert);
		SET(CURLOPT_SSLKEY, config->client_key ? config->client_key : config->client_cert);
	}
	return c;
}

static bool has_header(const struct http_headers *hs, const char *name)
{
	size_t len = strlen(name);

	for (const struct curl_slist *l = hs ? hs->list : NULL; l; l = l->next)
		if (strncasecmp(l->data, name, len) == 0 && l->data[len] == ':')
			return true;
	return false;
}

/* The caller's headers. Which small bodies wait for "100 Continue" differs between versions of curl, so
 * it is said here: mostly that costs a round trip for nothing. */
static CURLcode set_headers(struct http_transfer *t, CURL *easy)
{
	const struct http_request *q = t->q;
	struct curl_slist *list = t->headers ? t->headers->list : NULL;
	bool waits = q->expect_continue && q->body_len > 0;
	CURLcode c = CURLE_OK;

	if (q->has_body && (waits || q->body_len < CONTINUE_FROM) &&
	    !has_header(t->headers, "Expect")) {
		const char *expect = waits ? "Expect: 100-continue" : "Expect:";

		t->first_header = (struct curl_slist){.data = (char *)expect, .next = list};
		list = &t->first_header;
	}
	SET(CURLOPT_HTTPHEADER, list);
	return c;
}

static CURLcode set_credentials(const struct http_request *q, CURL *easy)
{
	CURLcode c = CURLE_OK;

	if (q->userpwd) {
		size_t len = strcspn(q->userpwd, ":");
		char *user = strndup(q->userpwd, len);

		if (!user)
			return CURLE_OUT_OF_MEMORY;
		SET(CURLOPT_USERNAME, user);
		SET(CURLOPT_PASSWORD, q->userpwd[len] ? q->userpwd + len + 1 : "");
		SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
		explicit_bzero(user, len);
		free(user);
	}
	if (q->bearer) {
		SET(CURLOPT_XOAUTH2_BEARER, q->bearer);
		SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
	}
	return c;
}

static CURLcode set_request(struct http_transfer *t, CURL *easy)
{
	const struct http_request *q = t->q;
	CURLcode c = CURLE_OK;

	SET(CURLOPT_URL, t->url);
	SET(CURLOPT_PATH_AS_IS, 1L);
	SET(CURLOPT_USERAGENT, "epochfs/" EPOCHFS_VERSION);
	if (q->has_body) {
		SET(CURLOPT_UPLOAD, 1L);
		SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)q->body_len);
	}
	if (strcmp(q->method, "HEAD") == 0)
		SET(CURLOPT_NOBODY, 1L);
	else
		SET(CURLOPT_CUSTOMREQUEST, q->method);
	c = c ? c : set_headers(t, easy);
	return c ? c : set_credentials(q, easy);
}
#undef SET

static int set_all(struct http_transfer *t, CURL *easy)
{
	CURLcode c = set_connection(t->http, t->url, easy);

	c = c ? c : set_request(t, easy);
	c = c ? c : http_transfer_set(t, easy);
	if (c == CURLE_OK)
		return 0;
	return c == CURLE_OUT_OF_MEMORY ? -ENOMEM : -EINVAL;
}

/* ---- redirects */

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
	char *of_a = NULL, *of_b = NULL;
	bool same = curl_url_get(a, part, &of_a, CURLU_DEFAULT_PORT) == CURLUE_OK &&
		    curl_url_get(b, part, &of_b, CURLU_DEFAULT_PORT) == CURLUE_OK &&
		    strcasecmp(of_a, of_b) == 0;

	curl_free(of_a);
	curl_free(of_b);
	return same;
}

/* `to` without the credentials that curl puts there, where it is on the server of `from`. Free it
 * with curl_free. NULL: it is elsewhere. */
static char *same_server(const char *from, const char *to)
{
	CURLU *a = curl_url(), *b = curl_url();
	char *url = NULL;

	if (a && b && curl_url_set(a, CURLUPART_URL, from, CURLU_PATH_AS_IS) == CURLUE_OK &&
	    curl_url_set(b, CURLUPART_URL, to, CURLU_PATH_AS_IS) == CURLUE_OK &&
	    curl_url_set(b, CURLUPART_USER, NULL, 0) == CURLUE_OK &&
	    curl_url_set(b, CURLUPART_PASSWORD, NULL, 0) == CURLUE_OK &&
	    same_part(a, b, CURLUPART_SCHEME) && same_part(a, b, CURLUPART_HOST) &&
	    same_part(a, b, CURLUPART_PORT) && curl_url_get(b, CURLUPART_URL, &url, 0) != CURLUE_OK)
		url = NULL;
	curl_url_cleanup(a);
	curl_url_cleanup(b);
	return url;
}

/* Where the answer sends us, as far as we go: to the same server, with the same method and body.
 * Anywhere else would be told our credentials, so there the answer is the caller's. NULL: nowhere;
 * else free it with curl_free. */
static char *redirected(const struct http_transfer *t, CURL *easy)
{
	const char *to = NULL;
	int status = t->answer->status;

	if ((status != 301 && status != 302 && status != 307 && status != 308) ||
	    curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &to) != CURLE_OK || !to)
		return NULL;
	return same_server(t->url, to);
}

/* ---- doing it */

/* The request's headers, and what signs them. */
static int sign(const struct http_request *q, const char *url, struct http_headers *headers)
{
	for (const struct curl_slist *l = q->headers ? q->headers->list : NULL; l; l = l->next) {
		struct curl_slist *list = curl_slist_append(headers->list, l->data);

		if (!list)
			return -ENOMEM;
		headers->list = list;
	}
	return q->sign(q->sign_arg, url, headers);
}

/* One attempt at one URL. */
static int attempt(struct http_transfer *t, struct http_slot *slot)
{
	const struct http_proxy *proxy = &t->http->proxy;
	struct http_headers cleanup_http_headers headers = {0};
	int r = t->q->sign ? sign(t->q, t->url, &headers) : 0;

	if (r < 0)
		return r;
	t->headers = t->q->sign ? &headers : t->q->headers;
	if (proxy->bad && http_proxy_serves(proxy, t->url))
		return remote_set_reason(t->http->owner, -EINVAL,
					 "%s in the environment is no URL of a proxy",
					 proxy->variable);
	r = set_all(t, slot->easy);
	if (r == 0)
		r = http_transfer_run(t, slot);
	t->headers = NULL;
	return r;
}

/* Attempts until something other than a redirect answers. */
static int follow(struct http *h, const struct http_request *q, struct http_slot *slot,
		  struct http_answer *answer)
{
	char *url = NULL;
	size_t out_start = q->out ? q->out->len : 0;
	unsigned i;
	int r;

	for (i = 0;; i++) {
		struct http_transfer t = {
			.http = h,
			.q = q,
			.url = url ? url : q->url,
			.answer = answer,
			.out_start = out_start,
		};
		char *next = NULL;

		r = attempt(&t, slot);
		if (r == 0 && (answer->status == 429 || answer->status == 503))
			remote_hold_off(h->owner, t.retry_after_ns);
		if (r == 0 && i < REDIRECTS_MAX)
			next = redirected(&t, slot->easy);
		/* Forgets secrets, callbacks and what lies on this stack; keeps the connection. */
		curl_easy_reset(slot->easy);
		curl_free(url);
		url = next;
		if (!next)
			break;
	}
	answer->redirected = i > 0;
	if (r < 0 && q->out)
		q->out->len = out_start;
	return r;
}

static enum http_outcome outcome_of(int r, int status)
{
	if (r == -ETIMEDOUT || (r == 0 && (status == 429 || status == 503)))
		return HTTP_OVERLOADED;
	return r == 0 && status < 500 ? HTTP_WENT_WELL : HTTP_SAYS_NOTHING;
}

int http_do(struct http *h, const struct http_request *q, struct http_answer *ret_answer)
{
	struct http_answer cleanup_http_answer answer = {.length = UINT64_MAX};
	struct http_slot *slot;
	int r = http_pool_take(&h->pool, h->owner, &slot);

	if (r < 0)
		return r;
	r = follow(h, q, slot, &answer);
	http_pool_give(&h->pool, slot, outcome_of(r, answer.status));
	if (r < 0)
		return r;
	*ret_answer = answer;
	answer = (struct http_answer){0};
	return 0;
}

/* ---- The handles of an HTTP engine. ---- */

#define LOOK_NS	  (50 * NS_PER_MS) /* between looks whether the owner is cancelled */
#define KEPT_EACH 2L		   /* idle connections of a slot: to a server and one more host */

static void share_lock(CURL *easy, curl_lock_data data, curl_lock_access access, void *arg)
{
	struct http_pool *p = arg;

	(void)easy;
	(void)access;
	mutex_lock(&p->share_locks[data]);
}

static void share_unlock(CURL *easy, curl_lock_data data, void *arg)
{
	struct http_pool *p = arg;

	(void)easy;
	mutex_unlock(&p->share_locks[data]);
}

static int share_new(struct http_pool *p)
{
	CURLSH *share = curl_share_init();

	if (!share)
		return -ENOMEM;
	if (curl_share_setopt(share, CURLSHOPT_LOCKFUNC, share_lock) != CURLSHE_OK ||
	    curl_share_setopt(share, CURLSHOPT_UNLOCKFUNC, share_unlock) != CURLSHE_OK ||
	    curl_share_setopt(share, CURLSHOPT_USERDATA, p) != CURLSHE_OK ||
	    curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS) != CURLSHE_OK ||
	    curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) != CURLSHE_OK) {
		curl_share_cleanup(share);
		return -ENOMEM;
	}
	p->share = share;
	return 0;
}

int http_pool_init(struct http_pool *p, unsigned most)
{
	*p = (struct http_pool){.most = most, .allowed = most};
	if (cond_init_mono(&p->freed) < 0)
		return -ENOMEM;
	mutex_init(&p->lock, LOCK_HTTP_POOL);
	for (int i = 0; i < CURL_LOCK_DATA_LAST; i++)
		mutex_init(&p->share_locks[i], LOCK_HTTP_SHARE);
	if (share_new(p) == 0)
		return 0;
	http_pool_destroy(p);
	return -ENOMEM;
}

static void slot_free(struct http_slot *slot)
{
	if (slot->easy)
		curl_easy_cleanup(slot->easy);
	if (slot->multi)
		curl_multi_cleanup(slot->multi);
	free(slot);
}

void http_pool_destroy(struct http_pool *p)
{
	while (p->idle) {
		struct http_slot *slot = p->idle;

		p->idle = slot->next;
		slot_free(slot);
	}
	if (p->share)
		curl_share_cleanup(p->share);
	for (int i = 0; i < CURL_LOCK_DATA_LAST; i++)
		mutex_destroy(&p->share_locks[i]);
	pthread_cond_destroy(&p->freed);
	mutex_destroy(&p->lock);
}

static struct http_slot *slot_new(struct http_pool *p)
{
	struct http_slot *slot = calloc(1, sizeof(*slot));

	if (!slot)
		return NULL;
	slot->easy = curl_easy_init();
	slot->multi = curl_multi_init();
	if (slot->easy && slot->multi &&
	    curl_multi_setopt(slot->multi, CURLMOPT_MAXCONNECTS, KEPT_EACH) == CURLM_OK &&
	    curl_easy_setopt(slot->easy, CURLOPT_SHARE, p->share) == CURLE_OK)
		return slot;
	slot_free(slot);
	return NULL;
}

/* Waits until another may work, and counts it: 0 or -ECANCELED. *ret_slot is NULL where none is
 * idle. */
static int claim(struct http_pool *p, struct remote *owner, struct http_slot **ret_slot)
{
	SCOPED_LOCK(&p->lock);

	while (p->taken >= p->allowed) {
		if (atomic_load(&owner->cancelled))
			return -ECANCELED;
		cond_wait_until(&p->freed, &p->lock, clock_mono_ns() + LOOK_NS);
	}
	p->taken++;
	*ret_slot = p->idle;
	if (p->idle) {
		p->idle = p->idle->next;
		(*ret_slot)->halvings = p->halvings;
	}
	return 0;
}

int http_pool_take(struct http_pool *p, struct remote *owner, struct http_slot **ret_slot)
{
	struct http_slot *slot = NULL;
	int r = claim(p, owner, &slot);

	if (r < 0)
		return r;
	if (!slot) {
		slot = slot_new(p);
		SCOPED_LOCK(&p->lock);
		if (!slot) {
			p->taken--;
			pthread_cond_signal(&p->freed);
			return -ENOMEM;
		}
		slot->halvings = p->halvings;
	}
	*ret_slot = slot;
	return 0;
}

static void adapt_locked(struct http_pool *p, const struct http_slot *slot,
			 enum http_outcome outcome)
{
	if (outcome == HTTP_OVERLOADED && slot->halvings == p->halvings) {
		p->allowed = p->allowed > 1 ? p->allowed / 2 : 1;
		p->successes = 0;
		p->halvings++;
	} else if (outcome == HTTP_WENT_WELL && p->allowed < p->most &&
		   ++p->successes >= p->allowed) {
		p->allowed++;
		p->successes = 0;
	}
}

void http_pool_give(struct http_pool *p, struct http_slot *slot, enum http_outcome outcome)
{
	SCOPED_LOCK(&p->lock);

	adapt_locked(p, slot, outcome);
	slot->next = p->idle;
	p->idle = slot;
	p->taken--;
	pthread_cond_broadcast(&p->freed);
}

unsigned http_pool_allowed(struct http_pool *p)
{
	SCOPED_LOCK(&p->lock);

	return p->allowed;
}
