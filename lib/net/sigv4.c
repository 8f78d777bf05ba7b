/* SPDX-License-Identifier: Apache-2.0 */
/* AWS Signature Version 4: canonical request, string to sign, signing key, Authorization. */
#include "lib/net/sigv4.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include "lib/net/s3_url.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/crypto.h"

#define LINES_MAX 32
#define STAMP_LEN sizeof("20130524T000000Z")
#define DAY_LEN	  8 /* of a stamp, its date */

const struct sigv4_scheme sigv4_amazon = {
	.name = "AWS4",
	.terminator = "aws4_request",
	.date_header = "x-amz-date",
	.hash_header = "x-amz-content-sha256",
	.token_header = "x-amz-security-token",
};

const struct sigv4_scheme sigv4_google = {
	.name = "GOOG4",
	.terminator = "goog4_request",
	.date_header = "x-goog-date",
	.hash_header = "x-goog-content-sha256",
	.token_header = "x-goog-security-token",
};

static void wipe_buf(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_free(b);
}
#define cleanup_secret_buf CLEANUP(wipe_buf)

/* ---- lines in order */

/* The query's parameters or the headers in canonical form, each ending in NUL, sorted. */
struct lines {
	struct buf
		text; /* has room for all from the beginning: it must not move, nor leave copies of a
			    token behind */
	const char *sorted[LINES_MAX];
	size_t count;
};

static void wipe_lines(struct lines *l)
{
	wipe_buf(&l->text);
}

/* By name, which ends with `end`. */
static int compare_names(const char *a, const char *b, char end)
{
	size_t a_len = (size_t)(strchr(a, end) - a), b_len = (size_t)(strchr(b, end) - b);
	int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return order ? order : (a_len > b_len) - (a_len < b_len);
}

/* Parameters of one name go by value; headers of one name stay as they come. */
static int compare(const char *a, const char *b, char end)
{
	int order = compare_names(a, b, end);

	return order || end == ':' ? order : strcmp(a, b);
}

/* Sorts in what was appended to the text from `start` on: 0 or -errno. */
static int add_line(struct lines *l, size_t start, char end)
{
	const char *line;
	size_t i = l->count;

	buf_put_u8(&l->text, 0);
	if (buf_error(&l->text) < 0)
		return -ENOMEM;
	if (l->count == LINES_MAX)
		return -EINVAL;
	line = (const char *)l->text.data + start;
	for (; i > 0 && compare(line, l->sorted[i - 1], end) < 0; i--)
		l->sorted[i] = l->sorted[i - 1];
	l->sorted[i] = line;
	l->count++;
	return 0;
}

/* ---- the URL */

/* Where the parts of an URL are. */
struct url_parts {
	const char *host, *path, *query;
	size_t host_len, path_len, query_len;
};

static bool ends_with(const char *text, size_t len, const char *end)
{
	size_t end_len = strlen(end);

	return len > end_len && memcmp(text + len - end_len, end, end_len) == 0;
}

static int split_url(const char *url, struct url_parts *u)
{
	const char *p = strstr(url, "://");

	if (!p || p[3] == '\0' || strchr("/?#", p[3]))
		return -EINVAL;
	u->host = p + 3;
	u->host_len = strcspn(u->host, "/?#");
	u->path = u->host + u->host_len;
	u->path_len = strcspn(u->path, "?#");
	u->query = u->path + u->path_len;
	u->query += *u->query == '?';
	u->query_len = strcspn(u->query, "#");
	/* As it is sent: a port that goes without saying is not said. */
	if (strncasecmp(url, "http:", 5) == 0 && ends_with(u->host, u->host_len, ":80"))
		u->host_len -= strlen(":80");
	else if (strncasecmp(url, "https:", 6) == 0 && ends_with(u->host, u->host_len, ":443"))
		u->host_len -= strlen(":443");
	return 0;
}

static unsigned hex_value(char c)
{
	return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a' + 10);
}

/* Appends a piece of the URL, encoded or not, as it is signed. */
static void put_encoded(struct buf *out, const char *text, size_t len, bool keep_slash)
{
	for (size_t i = 0; i < len; i++) {
		uint8_t byte = (uint8_t)text[i];

		if (byte == '%' && i + 2 < len && isxdigit((unsigned char)text[i + 1]) &&
		    isxdigit((unsigned char)text[i + 2])) {
			byte = (uint8_t)(hex_value(text[i + 1]) << 4 | hex_value(text[i + 2]));
			i += 2;
		}
		s3_encode_byte(out, byte, keep_slash);
	}
}

static int put_query(const struct url_parts *u, struct buf *out)
{
	CLEANUP(wipe_lines) struct lines l = {0};
	const char *p = u->query, *end = p + u->query_len;
	int r = buf_reserve(&l.text, 3 * u->query_len + 2 * LINES_MAX + 1);

	while (r == 0 && p < end) {
		const char *next = memchr(p, '&', (size_t)(end - p));
		size_t len = (size_t)((next ? next : end) - p), start = l.text.len;
		const char *value = memchr(p, '=', len);
		size_t name_len = value ? (size_t)(value - p) : len;

		put_encoded(&l.text, p, name_len, false);
		buf_put_u8(&l.text, '=');
		if (value)
			put_encoded(&l.text, value + 1, len - name_len - 1, false);
		if (len > 0)
			r = add_line(&l, start, '=');
		else
			l.text.len = start;
		p += len + 1;
	}
	for (size_t i = 0; r == 0 && i < l.count; i++)
		buf_printf(out, "%s%s", i > 0 ? "&" : "", l.sorted[i]);
	return r;
}

/* ---- headers */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* "name:value": the name in lower case, the value without the blanks around it and with single ones
 * in it. */
static void put_header(struct buf *out, const char *line, const char *colon)
{
	size_t start;

	for (const char *p = line; p < colon; p++)
		buf_put_u8(out, (uint8_t)tolower((unsigned char)*p));
	buf_put_u8(out, ':');
	start = out->len;
	for (const char *p = colon + 1; *p; p++) {
		if (!is_blank(*p))
			buf_put_u8(out, (uint8_t)*p);
		else if (out->len > start && !is_blank(p[1]) && p[1])
			buf_put_u8(out, ' ');
	}
}

static int sort_headers(const struct http_headers *headers, struct lines *l)
{
	size_t room = 0;
	int r;

	for (const struct curl_slist *h = headers->list; h; h = h->next)
		room += strlen(h->data) + 1;
	r = buf_reserve(&l->text, room);
	for (const struct curl_slist *h = headers->list; r == 0 && h; h = h->next) {
		const char *colon = strchr(h->data, ':');
		size_t start = l->text.len;

		/* curl sends none that has no value. */
		if (!colon || colon[1 + strspn(colon + 1, " \t")] == '\0')
			continue;
		put_header(&l->text, h->data, colon);
		r = add_line(l, start, ':');
	}
	return r;
}

/* One line for each name. */
static int put_headers(const struct http_headers *headers, struct buf *out, struct buf *names)
{
	CLEANUP(wipe_lines) struct lines l = {0};
	int r = sort_headers(headers, &l);

	for (size_t i = 0; r == 0 && i < l.count; i++) {
		const char *line = l.sorted[i], *colon = strchr(line, ':');

		if (i > 0 && compare_names(line, l.sorted[i - 1], ':') == 0) {
			buf_printf(out, ",%s", colon + 1);
			continue;
		}
		buf_printf(out, "%s%s", i > 0 ? "\n" : "", line);
		buf_printf(names, "%s%.*s", i > 0 ? ";" : "", (int)(colon - line), line);
	}
	return r;
}

/* ---- the request */

int sigv4_canonical_request(const struct sigv4 *s, const char *url,
			    const struct http_headers *headers, struct buf *out, struct buf *names)
{
	struct url_parts u;
	size_t room = 3 * strlen(url) + 256;
	int r = split_url(url, &u);

	for (const struct curl_slist *h = headers->list; h; h = h->next)
		room += 2 * strlen(h->data) + 2;
	if (r == 0)
		r = buf_reserve(out, room);
	if (r < 0)
		return r;
	buf_printf(out, "%s\n", s->method);
	put_encoded(out, u.path_len ? u.path : "/", u.path_len ? u.path_len : 1, true);
	buf_printf(out, "\n");
	r = put_query(&u, out);
	buf_printf(out, "\n");
	if (r == 0)
		r = put_headers(headers, out, names);
	buf_printf(out, "\n\n%s\n%s", buf_str(names), s->payload_hash);
	if (r < 0)
		return r;
	return buf_error(names) < 0 ? -ENOMEM : buf_error(out);
}

/* ---- the signature */

static int hmac(const void *key, size_t key_len, const char *text, size_t len,
		struct hash *ret_hash)
{
	struct mac *mac;
	int r = mac_new(key, key_len, &mac);

	if (r < 0)
		return r;
	mac_of(mac, text, len, "", 0, ret_hash);
	mac_free(mac);
	return 0;
}

/* The key of a day, a region and a service. Four hashes of a few bytes: keeping it would spare some
 * microseconds a request. */
static int signing_key(const struct sigv4 *s, const char *stamp, struct hash *key)
{
	cleanup_secret_buf struct buf secret = {0};
	const char *const parts[] = {s->region, s->service, s->scheme->terminator};
	int r = buf_reserve(&secret, strlen(s->scheme->name) + strlen(s->secret) + 1);

	if (r < 0)
		return r;
	buf_printf(&secret, "%s%s", s->scheme->name, s->secret);
	r = hmac(secret.data, secret.len, stamp, DAY_LEN, key);
	for (size_t i = 0; r == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
		r = hmac(key, sizeof(*key), parts[i], strlen(parts[i]), key);
	return r;
}

static int make_stamp(int64_t at, char ret_stamp[STAMP_LEN])
{
	time_t seconds = (time_t)at;
	struct tm tm;

	if (!gmtime_r(&seconds, &tm) || strftime(ret_stamp, STAMP_LEN, "%Y%m%dT%H%M%SZ", &tm) == 0)
		return -EINVAL;
	return 0;
}

static int sign_text(const struct sigv4 *s, const char *stamp, const struct buf *text,
		     struct hash *ret_signature)
{
	struct hash key;
	int r = signing_key(s, stamp, &key);

	if (r == 0)
		r = hmac(&key, sizeof(key), (const char *)text->data, text->len, ret_signature);
	explicit_bzero(&key, sizeof(key));
	return r;
}

int sigv4_authorization(const struct sigv4 *s, int64_t at, const char *url,
			const struct http_headers *headers, struct buf *out)
{
	cleanup_secret_buf struct buf request = {0};
	struct buf cleanup_buf names = {0}, scope = {0}, text = {0};
	char stamp[STAMP_LEN], hex[HASH_HEX];
	struct hash hash;
	int r = make_stamp(at, stamp);

	if (r == 0)
		r = sigv4_canonical_request(s, url, headers, &request, &names);
	if (r < 0)
		return r;
	hash_of(request.data, request.len, &hash);
	hash_to_hex(&hash, hex);
	buf_printf(&scope, "%.*s/%s/%s/%s", DAY_LEN, stamp, s->region, s->service,
		   s->scheme->terminator);
	buf_printf(&text, "%s-HMAC-SHA256\n%s\n%s\n%s", s->scheme->name, stamp, buf_str(&scope),
		   hex);
	if (buf_error(&scope) < 0 || buf_error(&text) < 0)
		return -ENOMEM;
	r = sign_text(s, stamp, &text, &hash);
	if (r < 0)
		return r;
	hash_to_hex(&hash, hex);
	buf_printf(out, "%s-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		   s->scheme->name, s->key, buf_str(&scope), buf_str(&names), hex);
	return buf_error(out);
}

/* ---- signing */

static int add_host(const char *url, struct http_headers *headers)
{
	struct buf cleanup_buf host = {0};
	struct url_parts u;
	int r = split_url(url, &u);

	if (r < 0)
		return r;
	buf_put(&host, u.host, u.host_len);
	r = buf_error(&host);
	return r < 0 ? r : http_headers_add(headers, "Host", buf_str(&host));
}

int sigv4_sign_at(const struct sigv4 *s, int64_t at, const char *url, struct http_headers *headers)
{
	struct buf cleanup_buf value = {0};
	char stamp[STAMP_LEN];
	int r = make_stamp(at, stamp);

	if (r == 0)
		r = add_host(url, headers);
	if (r == 0)
		r = http_headers_add(headers, s->scheme->date_header, stamp);
	if (r == 0)
		r = http_headers_add(headers, s->scheme->hash_header, s->payload_hash);
	if (r == 0 && s->token)
		r = http_headers_add(headers, s->scheme->token_header, s->token);
	if (r == 0)
		r = sigv4_authorization(s, at, url, headers, &value);
	if (r == 0)
		r = http_headers_add(headers, "Authorization", buf_str(&value));
	return r;
}

int sigv4_sign(void *arg, const char *url, struct http_headers *headers)
{
	const struct sigv4 *s = arg;

	return sigv4_sign_at(s, (clock_wall_ns() + s->skew_ns) / NS_PER_S, url, headers);
}
