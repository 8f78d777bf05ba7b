/* SPDX-License-Identifier: Apache-2.0 */
/* The head of an answer: what an enemy may have written, line by line. */
#include <string.h>
#include <strings.h>
#include "lib/remote/http_internal.h"
#include "lib/util/clock.h"

#define VALUE_MAX 4096 /* longer values are as if they were not there */

/* "HTTP/1.1 200 OK": another answer begins, after "100 Continue" or a redirect. */
static void status_line(struct http_transfer *t, const char *line)
{
	struct http_answer *a = t->answer;
	bool known = line[5] >= '1' &&
		     line[5] <= '3'; /* of another version, curl 7.74 takes it for 1.x */
	const char *p = known ? strchr(line, ' ') : NULL;
	int status = 0;

	buf_free(&a->body);
	*a = (struct http_answer){.length = UINT64_MAX};
	t->retry_after_ns = 0;
	for (unsigned i = 1; p && i <= 3 && p[i] >= '0' && p[i] <= '9'; i++)
		status = 10 * status + (p[i] - '0');
	a->status = status;
}

static void keep(char *to, size_t size, const char *value)
{
	size_t len = strlen(value);

	if (len < size)
		memcpy(to, value, len + 1);
}

static uint64_t number(const char *value)
{
	uint64_t n = 0;

	if (!*value)
		return UINT64_MAX;
	for (; *value; value++)
		if (*value < '0' || *value > '9' || __builtin_mul_overflow(n, 10U, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*value - '0'), &n))
			return UINT64_MAX;
	return n;
}

/* Wall clock in ns, or 0. */
static int64_t date(const char *value)
{
	time_t at = curl_getdate(value, NULL);

	return at <= 0 || at > INT64_MAX / NS_PER_S ? 0 : (int64_t)at * NS_PER_S;
}

/* Seconds, or a date: from now, by the server's clock where it tells the time. */
static int64_t retry_after(const struct http_answer *a, const char *value)
{
	uint64_t seconds = number(value);
	int64_t at_ns, now_ns = a->date_ns ? a->date_ns : clock_wall_ns();

	if (seconds != UINT64_MAX)
		return (int64_t)(seconds < 86400 ? seconds : 86400) * NS_PER_S;
	at_ns = date(value);
	return at_ns > now_ns ? at_ns - now_ns : 0;
}

static void header(struct http_transfer *t, const char *name, const char *value)
{
	struct http_answer *a = t->answer;

	if (strcasecmp(name, "Content-Length") == 0)
		a->length = number(value);
	else if (strcasecmp(name, "ETag") == 0)
		keep(a->etag, sizeof(a->etag), value);
	else if (strcasecmp(name, "Content-Range") == 0)
		keep(a->content_range, sizeof(a->content_range), value);
	else if (strcasecmp(name, "Location") == 0)
		keep(a->location, sizeof(a->location), value);
	else if (strcasecmp(name, "Allow") == 0)
		keep(a->allow, sizeof(a->allow), value);
	else if (strcasecmp(name, "DAV") == 0)
		keep(a->dav, sizeof(a->dav), value);
	else if (strcasecmp(name, "Server") == 0)
		keep(a->server, sizeof(a->server), value);
	else if (strcasecmp(name, "Lock-Token") == 0)
		keep(a->lock_token, sizeof(a->lock_token), value);
	else if (strcasecmp(name, "Date") == 0)
		a->date_ns = date(value);
	else if (strcasecmp(name, "Retry-After") == 0)
		t->retry_after_ns = retry_after(a, value);
}

void http_header_line(struct http_transfer *t, const char *line, size_t len)
{
	char text[VALUE_MAX];
	char *value;

	while (len > 0 && strchr("\r\n\t ", line[len - 1]))
		len--;
	if (len == 0 || len >= sizeof(text) || memchr(line, 0, len))
		return;
	memcpy(text, line, len);
	text[len] = '\0';
	if (strncmp(text, "HTTP/", 5) == 0) {
		status_line(t, text);
		return;
	}
	value = strchr(text, ':');
	if (!value)
		return;
	*value++ = '\0';
	header(t, text, value + strspn(value, " \t"));
}
