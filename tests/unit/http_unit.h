/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP server in the test's own process that answers by a script, as badly as it is told. */
#ifndef EPOCHFS_TESTS_HTTP_UNIT_H
#define EPOCHFS_TESTS_HTTP_UNIT_H

/*
 *	struct scene scenes[] = {{.answer = OK_ANSWER}, {.answer = "HTTP/1.1 503 No\r\n\r\n", .then = CLOSE}};
 *	struct server s;
 *
 *	server_start(&s, scenes, 2);
 *	...one request is answered by one scene, in the order of their coming; the last one stays...
 *	server_stop(&s);
 */

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <strings.h>
#include <sys/socket.h>
#include "lib/net/http.h"
#include "lib/net/open.h"
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

enum ending {
	STAY,	/* the connection waits for another request */
	CLOSE,	/* it is closed in order */
	RESET,	/* it is cut with RST */
	HANG,	/* nothing more comes until the other side closes */
	REPEAT, /* `again` comes without end */
};

struct scene {
	const char *answer; /* as it goes on the wire; NULL: nothing */
	size_t answer_len;  /* 0: a string's */
	enum ending then;
	const char *again;
	unsigned pause_ms; /* after each `again` */
	unsigned delay_ms; /* before the answer */
	bool proceed;	   /* sends "100 Continue" before the body is read */
	bool before_body;  /* does not read the body */
};

#define SERVER_CONNECTIONS 64

struct server {
	const struct scene *scenes;
	size_t scene_count;
	int listener;
	char base[64]; /* "http://127.0.0.1:PORT" */
	pthread_t acceptor;
	pthread_t threads[SERVER_CONNECTIONS];
	int fds[SERVER_CONNECTIONS];
	struct mutex lock; /* guards what follows */
	pthread_cond_t changed;
	unsigned connections;
	unsigned requests;
	unsigned working; /* requests that were read and not answered */
	unsigned most_working;
	bool gated; /* requests wait before they are answered */
	bool stopping;
	uint64_t body_bytes;
	struct buf heads;  /* of all requests, one after the other */
	struct buf bodies; /* likewise */
};

struct server_connection {
	struct server *s;
	unsigned number;
};

/* Sends all, or says that the other side is gone. */
static bool server_send(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

/* Reads a head into `head`, up to its empty line; false where the other side is gone. */
static bool server_read_head(int fd, struct buf *head)
{
	char c;

	buf_reset(head);
	while (head->len < 4 || memcmp(head->data + head->len - 4, "\r\n\r\n", 4) != 0) {
		if (recv(fd, &c, 1, 0) != 1)
			return false;
		buf_put_u8(head, (uint8_t)c);
	}
	return true;
}

static uint64_t server_body_length(struct buf *head)
{
	const char *at = strcasestr(buf_str(head), "\r\nContent-Length:");

	return at ? strtoull(at + strlen("\r\nContent-Length:"), NULL, 10) : 0;
}

static bool server_read_body(struct server *s, int fd, uint64_t len)
{
	char piece[4096];

	while (len > 0) {
		ssize_t n = recv(fd, piece, len < sizeof(piece) ? (size_t)len : sizeof(piece), 0);
		if (n <= 0)
			return false;
		SCOPED_LOCK(&s->lock);
		buf_put(&s->bodies, piece, (size_t)n);
		s->body_bytes += (uint64_t)n;
		pthread_cond_broadcast(&s->changed);
		len -= (uint64_t)n;
	}
	return true;
}

/* Until the other side closes. */
static void server_drain(int fd)
{
	char piece[4096];

	while (recv(fd, piece, sizeof(piece), 0) > 0)
		;
}

static void server_end(const struct scene *scene, int fd)
{
	struct linger cut = {.l_onoff = 1, .l_linger = 0};

	if (scene->then == RESET)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut));
	while (scene->then == REPEAT && server_send(fd, scene->again, strlen(scene->again)))
		if (scene->pause_ms)
			usleep(scene->pause_ms * 1000);
	if (scene->then == HANG)
		server_drain(fd);
}

/* Which scene answers this request. Waits while the gate is closed. */
static const struct scene *server_next_scene(struct server *s, const struct buf *head)
{
	const struct scene *scene;
	SCOPED_LOCK(&s->lock);

	scene = &s->scenes[s->requests < s->scene_count ? s->requests : s->scene_count - 1];
	s->requests++;
	buf_put(&s->heads, head->data, head->len);
	if (++s->working > s->most_working)
		s->most_working = s->working;
	pthread_cond_broadcast(&s->changed);
	return scene;
}

static void server_wait_gate(struct server *s)
{
	SCOPED_LOCK(&s->lock);

	while (s->gated && !s->stopping)
		cond_wait(&s->changed, &s->lock);
}

static void server_worked(struct server *s)
{
	SCOPED_LOCK(&s->lock);

	s->working--;
}

/* One request; false where the connection ends with it. */
static bool server_serve(struct server *s, int fd, struct buf *head)
{
	static const char proceed[] = "HTTP/1.1 100 Continue\r\n\r\n";
	const struct scene *scene;
	bool whole;

	if (!server_read_head(fd, head))
		return false;
	scene = server_next_scene(s, head);
	whole = !scene->proceed || server_send(fd, proceed, strlen(proceed));
	whole = whole && (scene->before_body || server_read_body(s, fd, server_body_length(head)));
	server_wait_gate(s);
	server_worked(s);
	if (scene->delay_ms)
		usleep(scene->delay_ms * 1000);
	if (whole && scene->answer)
		whole = server_send(fd, scene->answer,
				    scene->answer_len ? scene->answer_len : strlen(scene->answer));
	if (whole && scene->then != STAY)
		server_end(scene, fd);
	return whole && scene->then == STAY;
}

static void *server_connection_main(void *arg)
{
	struct server_connection c = *(struct server_connection *)arg;
	struct buf cleanup_buf head = {0};
	int fd = c.s->fds[c.number];

	free(arg);
	while (server_serve(c.s, fd, &head))
		;
	SCOPED_LOCK(&c.s->lock);
	close(fd);
	c.s->fds[c.number] = -1;
	return NULL;
}

static void *server_main(void *arg)
{
	struct server *s = arg;
	int fd;

	while ((fd = accept(s->listener, NULL, NULL)) >= 0) {
		struct server_connection *c = calloc(1, sizeof(*c));
		SCOPED_LOCK(&s->lock);

		ck_assert(c && s->connections < SERVER_CONNECTIONS);
		*c = (struct server_connection){.s = s, .number = s->connections};
		s->fds[c->number] = fd;
		ck_assert_int_eq(
			pthread_create(&s->threads[c->number], NULL, server_connection_main, c), 0);
		s->connections++;
		pthread_cond_broadcast(&s->changed);
	}
	return NULL;
}

/* Listens on loopback; the scenes are borrowed. */
static void server_start(struct server *s, const struct scene *scenes, size_t count)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(at);

	*s = (struct server){.scenes = scenes, .scene_count = count};
	mutex_init(&s->lock, LOCK_TEST);
	ck_assert_int_eq(cond_init_mono(&s->changed), 0);
	s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(s->listener, 0);
	ck_assert_int_eq(bind(s->listener, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(s->listener, SERVER_CONNECTIONS), 0);
	ck_assert_int_eq(getsockname(s->listener, (struct sockaddr *)&at, &len), 0);
	snprintf(s->base, sizeof(s->base), "http://127.0.0.1:%u", ntohs(at.sin_port));
	ck_assert_int_eq(pthread_create(&s->acceptor, NULL, server_main, s), 0);
}

static void server_stop(struct server *s)
{
	shutdown(s->listener, SHUT_RDWR);
	pthread_join(s->acceptor, NULL);
	mutex_lock(&s->lock);
	s->stopping = true;
	pthread_cond_broadcast(&s->changed);
	for (unsigned i = 0; i < s->connections; i++)
		if (s->fds[i] >= 0)
			shutdown(s->fds[i], SHUT_RDWR);
	mutex_unlock(&s->lock);
	for (unsigned i = 0; i < s->connections; i++)
		pthread_join(s->threads[i], NULL);
	close(s->listener);
	pthread_cond_destroy(&s->changed);
	mutex_destroy(&s->lock);
	buf_free(&s->heads);
	buf_free(&s->bodies);
}

__attribute__((unused)) static void server_gate(struct server *s, bool closed)
{
	SCOPED_LOCK(&s->lock);

	s->gated = closed;
	pthread_cond_broadcast(&s->changed);
}

/* Until so many requests came in all; the test's own limit ends it. */
__attribute__((unused)) static void server_wait_requests(struct server *s, unsigned count)
{
	SCOPED_LOCK(&s->lock);

	while (s->requests < count)
		cond_wait(&s->changed, &s->lock);
}

__attribute__((unused)) static unsigned server_requests(struct server *s)
{
	SCOPED_LOCK(&s->lock);

	return s->requests;
}

__attribute__((unused)) static unsigned server_connections(struct server *s)
{
	SCOPED_LOCK(&s->lock);

	return s->connections;
}

/* The heads of all requests contain this text. */
__attribute__((unused)) static bool server_was_told(struct server *s, const char *text)
{
	SCOPED_LOCK(&s->lock);

	return strcasestr(buf_str(&s->heads), text) != NULL;
}

/* Forgets what was told and sent so far. */
__attribute__((unused)) static void server_forget(struct server *s)
{
	SCOPED_LOCK(&s->lock);

	buf_reset(&s->heads);
	buf_reset(&s->bodies);
	s->body_bytes = 0;
	s->most_working = s->working;
}

/* The bodies of all requests since then, one after the other. */
__attribute__((unused)) static void server_bodies(struct server *s, struct buf *ret_bodies)
{
	SCOPED_LOCK(&s->lock);

	buf_put(ret_bodies, s->bodies.data, s->bodies.len);
}

/* ---- an engine on that server */

struct engine {
	struct remote *owner; /* stands for the remote that the engine belongs to */
	struct http *http;
};

__attribute__((unused)) static struct engine engine_with(struct remote_limits limits)
{
	struct http_config config = {.limits = limits};
	struct engine e = {0};

	unit_ok(remote_open("memory:http", &e.owner));
	unit_ok(http_new(e.owner, &config, &e.http));
	return e;
}

__attribute__((unused)) static struct engine engine_new(void)
{
	return engine_with((struct remote_limits){0});
}

__attribute__((unused)) static void engine_free(struct engine *e)
{
	http_free(e->http);
	remote_close(e->owner);
}

/* METHOD PATH on the server, with what else the request says. */
__attribute__((unused)) static int engine_do(struct engine *e, const struct server *s,
					     const char *method, const char *path,
					     struct http_request q, struct http_answer *ret_answer)
{
	char url[256];

	snprintf(url, sizeof(url), "%s%s", s->base, path);
	q.method = method;
	q.url = url;
	return http_do(e->http, &q, ret_answer);
}

#endif
