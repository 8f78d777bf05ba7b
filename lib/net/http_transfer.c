/* SPDX-License-Identifier: Apache-2.0 */
/* One transfer: its callbacks, its limits, and the loop that drives it. */
#include "lib/net/http_internal.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>

#include "lib/util/clock.h"
#include "lib/util/log.h"

#define HEADERS_MAX	(256U << 10) /* of all answers to one request together */
#define ERROR_TEXT_MAX	(64U << 10)  /* of the body of an answer other than 2xx */
#define ANSWER_MAX	(64U << 10)  /* of 2xx, where the request says nothing */
#define RESERVE_MAX	(64U << 20)  /* taken on the word of a Content-Length */
#define LOOK_MS		50	     /* between looks whether the owner is cancelled */
#define STALL_RATE	1024	     /* bytes a second */
#define DOUBLINGS_MAX	4	     /* 30 s become 8 min */
#define TOTAL_RATE	8192	     /* the total time grows by a second for so many bytes */
#define STALL_DEFAULT	(30 * NS_PER_S)
#define TOTAL_DEFAULT	(600 * NS_PER_S)
#define TOO_LONG	"the server's answer is longer than what was asked for"
#define BAD_CERTIFICATE "certificate" /* in the reason of a failed TLS handshake */

/* Ends the transfer from a callback. `why` is for people; NULL: there is nothing to say. */
static bool ended(struct http_transfer *t, int error, const char *why)
{
	if (error < 0 && t->error == 0) {
		t->error = error;
		t->why = why;
	}
	return error < 0;
}

/* Waits for the rate's turn: false where the transfer is to end. */
static bool wait_turn(struct http_transfer *t, struct rate *rate, size_t bytes)
{
	int64_t wait_ns = rate_take(rate, bytes, clock_mono_ns());

	t->waited_ns += wait_ns;
	return wait_ns == 0 || !ended(t, remote_sleep(t->http->owner, wait_ns), NULL);
}

/* How much may go before the caller is told of the half. */
static size_t until_half(struct http_transfer *t)
{
	size_t half = t->q->body_len / 2;

	if (!t->q->half_sent || t->half_told)
		return t->q->body_len - t->body_at;
	if (t->body_at < half)
		return half - t->body_at;
	t->half_told = true;
	t->q->half_sent(t->q->half_sent_arg);
	return t->q->body_len - t->body_at;
}

static size_t on_read(char *to, size_t size, size_t count, void *arg)
{
	struct http_transfer *t = arg;
	size_t left = until_half(t);
	size_t len = rate_piece(&t->http->up, size * count);

	if (len > left)
		len = left;
	if (len == 0)
		return 0;
	if (!wait_turn(t, &t->http->up, len))
		return CURL_READFUNC_ABORT;
	memcpy(to, (const char *)t->q->body + t->body_at, len);
	t->body_at += len;
	t->moved += len;
	return len;
}

static int on_seek(void *arg, curl_off_t offset, int origin)
{
	struct http_transfer *t = arg;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > t->q->body_len)
		return CURL_SEEKFUNC_FAIL;
	t->body_at = (size_t)offset;
	return CURL_SEEKFUNC_OK;
}

static bool is_success(int status)
{
	return status >= 200 && status < 300;
}

static size_t answer_max(const struct http_transfer *t)
{
	if (!is_success(t->answer->status))
		return ERROR_TEXT_MAX;
	return t->q->max_answer ? t->q->max_answer : ANSWER_MAX;
}

/* The empty line behind a head: what it says is known now. 0, or why no body is waited for. */
static int end_head(const struct http_transfer *t)
{
	uint64_t length = t->answer->length;

	if (t->answer->date_ns)
		remote_note_clock(t->http->owner, t->answer->date_ns);
	if (!is_success(t->answer->status) || length == UINT64_MAX ||
	    strcmp(t->q->method, "HEAD") == 0)
		return 0;
	return length > answer_max(t) ? -EFBIG : 0;
}

static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
	struct http_transfer *t = arg;
	size_t len = size * count;

	t->header_bytes += len;
	t->moved += len;
	if (t->header_bytes > HEADERS_MAX) {
		ended(t, -EIO, "the head of the server's answer does not end");
		return 0;
	}
	/* What comes behind a chunked body (trailers) says nothing that we ask for. */
	if (t->body_began)
		return len;
	http_header_line(t, line, len);
	return len <= 2 && ended(t, end_head(t), TOO_LONG) ? 0 : len;
}

/* Room for what is said to come, in one piece, as far as it is believed. */
static int begin_body(struct http_transfer *t, struct buf *to)
{
	uint64_t length = t->answer->length;

	t->body_began = true;
	if (length == UINT64_MAX || length > answer_max(t))
		return 0;
	return buf_reserve(to, length < RESERVE_MAX ? (size_t)length : RESERVE_MAX);
}

static size_t on_write(char *data, size_t size, size_t count, void *arg)
{
	struct http_transfer *t = arg;
	bool success = is_success(t->answer->status);
	struct buf *to = success && t->q->out ? t->q->out : &t->answer->body;
	size_t had = to == t->q->out ? t->out_start : 0;
	size_t len = size * count;

	if (!t->body_began && ended(t, begin_body(t, to), NULL))
		return 0;
	if (len > answer_max(t) - (to->len - had)) {
		if (success)
			ended(t, -EFBIG, TOO_LONG);
		t->cut = !success;
		return 0;
	}
	buf_put(to, data, len);
	if (ended(t, buf_error(to), NULL) || !wait_turn(t, &t->http->down, len))
		return 0;
	t->moved += len;
	return len;
}

/* True for what a server may be told twice without another result. curl repeats a request by itself
 * where a kept connection turns out to be closed, and then nobody knows whether the first was
 * carried out. */
static bool is_repeatable(const struct http_request *q)
{
	static const char *const any[] = {"GET", "HEAD", "OPTIONS", "PROPFIND"};
	static const char *const unconditional[] = {"PUT", "DELETE"};

	if (q->repeatable)
		return true;
	for (size_t i = 0; i < sizeof(any) / sizeof(any[0]); i++)
		if (strcmp(q->method, any[i]) == 0)
			return true;
	for (const struct curl_slist *l = q->headers ? q->headers->list : NULL; l; l = l->next)
		if (strncasecmp(l->data, "If-", 3) == 0 ||
		    strncasecmp(l->data, "x-goog-if-", 10) == 0)
			return false;
	for (size_t i = 0; i < sizeof(unconditional) / sizeof(unconditional[0]); i++)
		if (strcmp(q->method, unconditional[i]) == 0)
			return true;
	return false;
}

#if LIBCURL_VERSION_NUM >= 0x075000 /* 7.80 */
/* Before curl sends the request's head, each time. */
static int on_sending(void *arg, char *ip, char *local_ip, int port, int local_port)
{
	struct http_transfer *t = arg;

	(void)ip;
	(void)local_ip;
	(void)port;
	(void)local_port;
	if (t->sendings++ > 0 && !is_repeatable(t->q)) {
		ended(t, -EIO, "the connection was closed before the answer");
		return CURL_PREREQFUNC_ABORT;
	}
	return CURL_PREREQFUNC_OK;
}

static CURLcode forbid_repeating(struct http_transfer *t, CURL *easy)
{
	CURLcode c = curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_sending);

	return c ? c : curl_easy_setopt(easy, CURLOPT_PREREQDATA, t);
}
#else
/* Only a kept connection can prove dead. */
static CURLcode forbid_repeating(struct http_transfer *t, CURL *easy)
{
	return curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, is_repeatable(t->q) ? 0L : 1L);
}
#endif

CURLcode http_transfer_set(struct http_transfer *t, CURL *easy)
{
	CURLcode c = CURLE_OK;

#define SET(option, value) (c = c ? c : curl_easy_setopt(easy, option, value))
	SET(CURLOPT_ERRORBUFFER, t->reason);
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, t);
	SET(CURLOPT_WRITEFUNCTION, on_write);
	SET(CURLOPT_WRITEDATA, t);
	SET(CURLOPT_READFUNCTION, on_read);
	SET(CURLOPT_READDATA, t);
	SET(CURLOPT_SEEKFUNCTION, on_seek);
	SET(CURLOPT_SEEKDATA, t);
#undef SET
	return c ? c : forbid_repeating(t, easy);
}

/* Where a transfer stands against its times. */
struct progress {
	int64_t started_ns;
	int64_t window_ns; /* began then; without what was waited for the rates */
	uint64_t window_moved;
};

/* What still lies in the socket: on a slow line much of a body does. */
static uint64_t queued(CURL *easy)
{
	curl_socket_t fd = CURL_SOCKET_BAD;
	int bytes = 0;

	if (curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK ||
	    fd == CURL_SOCKET_BAD || ioctl(fd, SIOCOUTQ, &bytes) < 0 || bytes < 0)
		return 0;
	return (uint64_t)bytes;
}

static int64_t or_default(int64_t ns, int64_t otherwise)
{
	return ns > 0 ? ns : otherwise;
}

/* True for a body that was taken whole and has no answer yet: that may take a multiple. */
static bool waits_for_answer(const struct http_transfer *t, uint64_t in_socket)
{
	return t->q->body_len > 0 && t->body_at == t->q->body_len && in_socket == 0 &&
	       t->answer->status < 200;
}

/* At the end of a window of time in which less than the lowest rate was moved. */
static bool stalled(struct http_transfer *t, int64_t quiet_ns, int64_t stall_ns, bool waits)
{
	unsigned had = t->doublings;

	if (waits && quiet_ns < stall_ns << had)
		return false;
	if (waits && had < DOUBLINGS_MAX)
		atomic_compare_exchange_strong(&t->http->doublings, &had, had + 1);
	return ended(t, -ETIMEDOUT, "the server takes and gives nothing; check the network");
}

/* True where the transfer is to end. */
static bool out_of_time(struct http_transfer *t, CURL *easy, struct progress *p)
{
	const struct remote_limits *limits = &t->http->config.limits;
	int64_t stall_ns = or_default(limits->stall_timeout_ns, STALL_DEFAULT);
	int64_t total_ns = or_default(limits->total_timeout_ns, TOTAL_DEFAULT);
	int64_t now_ns = clock_mono_ns() - t->waited_ns;
	uint64_t in_socket, moved;

	if (atomic_load(&t->http->owner->cancelled))
		return ended(t, -ECANCELED, NULL);
	total_ns += (int64_t)(t->moved / TOTAL_RATE) * NS_PER_S;
	if (now_ns - p->started_ns >= total_ns)
		return ended(t, -ETIMEDOUT, "a transfer took too long; check the network");
	if (now_ns - p->window_ns < stall_ns)
		return false;
	in_socket = queued(easy);
	moved = t->moved > in_socket ? t->moved - in_socket : 0;
	if (moved < p->window_moved + (uint64_t)(stall_ns / NS_PER_MS) * STALL_RATE / 1000)
		return stalled(t, now_ns - p->window_ns, stall_ns, waits_for_answer(t, in_socket));
	p->window_ns = now_ns;
	p->window_moved = moved;
	return false;
}

/* Until curl is done, or ended() was called. */
static CURLcode drive(struct http_transfer *t, struct http_slot *slot)
{
	struct progress progress = {.started_ns = clock_mono_ns()};

	t->doublings = atomic_load(&t->http->doublings);
	progress.window_ns = progress.started_ns;
	for (;;) {
		int running = 0, messages = 0;
		const CURLMsg *message;

		if (curl_multi_perform(slot->multi, &running) != CURLM_OK)
			return CURLE_OUT_OF_MEMORY;
		message = curl_multi_info_read(slot->multi, &messages);
		if (message && message->msg == CURLMSG_DONE)
			return message->data.result;
		if (out_of_time(t, slot->easy, &progress) ||
		    curl_multi_poll(slot->multi, NULL, 0, LOOK_MS, NULL) != CURLM_OK)
			return CURLE_ABORTED_BY_CALLBACK;
	}
}

static int errno_of(const struct http_transfer *t, CURL *easy, CURLcode code)
{
	long sent = 0;

	switch (code) {
	case CURLE_OK:
		return 0;
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
		return -ECONNREFUSED;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
		return -EACCES;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_RECV_ERROR:
		/* The server refused ours: only the text says so. */
		return strstr(t->reason, BAD_CERTIFICATE) ? -EACCES : -EIO;
	case CURLE_URL_MALFORMAT:
		return -EINVAL;
	case CURLE_UNSUPPORTED_PROTOCOL:
		/* Of the URL, or of an answer that is no HTTP. */
		curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &sent);
		return sent > 0 ? -EIO : -EINVAL;
	default:
		/* Also CURLE_OUT_OF_MEMORY, which a line of 100 kB in an answer's head gives. */
		return -EIO;
	}
}

/* Where a proxy would not make the tunnel: the status that it gave; else 0. */
static long refused_by_proxy(CURL *easy, CURLcode code)
{
	long status = 0;

	if (code == CURLE_OK ||
	    curl_easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &status) != CURLE_OK ||
	    status / 100 == 2)
		return 0;
	return status;
}

static int blame_proxy(struct http_transfer *t, long status)
{
	switch (status) {
	case 407:
		t->why = "the proxy does not know us: check user and password in https_proxy";
		return -EACCES;
	case 403:
		t->why = "the proxy does not allow a connection to this server; check https_proxy "
			 "and no_proxy";
		return -EACCES;
	default:
		return -ECONNREFUSED;
	}
}

/* Says in words what the wire did. */
static int failed(const struct http_transfer *t, int error)
{
	char url[REMOTE_TEXT_MAX];
	const char *why = t->why;

	if (!why && t->error == 0)
		why = t->reason[0]	 ? t->reason
		      : error == -EINVAL ? "not a URL: check its host and port"
					 : "the server's answer is no HTTP";
	remote_url_redact(t->url, url, sizeof(url));
	log_debug("%s %s: %s", t->q->method, url, why ? why : strerror(-error));
	return why ? remote_set_reason(t->http->owner, error, "%s", why) : error;
}

/* After an answer that did not need the longer time. */
static void trust_more(struct http_transfer *t, int64_t took_ns)
{
	int64_t stall_ns = or_default(t->http->config.limits.stall_timeout_ns, STALL_DEFAULT);
	unsigned had = t->doublings;

	if (had > 0 && t->q->body_len > 0 && took_ns - t->waited_ns < stall_ns)
		atomic_compare_exchange_strong(&t->http->doublings, &had, had - 1);
}

int http_transfer_run(struct http_transfer *t, struct http_slot *slot)
{
	int64_t began_ns = clock_mono_ns();
	CURLcode code;
	long refused;
	int r;

	if (curl_multi_add_handle(slot->multi, slot->easy) != CURLM_OK)
		return -ENOMEM;
	code = drive(t, slot);
	curl_multi_remove_handle(slot->multi, slot->easy);
	if (t->cut)
		return 0;
	refused = refused_by_proxy(slot->easy, code);
	r = t->error < 0 ? t->error
	    : refused	 ? blame_proxy(t, refused)
			 : errno_of(t, slot->easy, code);
	/* A head without a status is none. */
	if (r == 0 && t->answer->status < 200)
		r = -EIO;
	if (r == 0)
		trust_more(t, clock_mono_ns() - began_ns);
	return r < 0 && r != -ECANCELED ? failed(t, r) : r;
}

/* ---- The head of an answer, which is untrusted, line by line. ---- */

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
	else if (strcasecmp(name, "x-amz-version-id") == 0)
		keep(a->version_id, sizeof(a->version_id), value);
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
