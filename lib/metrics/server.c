/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/metrics/server.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/metrics/address.h"
#include "lib/metrics/metrics.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"

#define FILE_EVERY_NS	  (15 * NS_PER_S)
#define CONNECTIONS	  16u
#define CONNECTION_IDLE_S 30u
#define LISTEN_BACKLOG	  16

struct metrics_server {
	struct volume *vol;
	char *path;		      /* of a socket with a name, or the file; NULL: neither */
	struct MHD_Daemon *http;      /* NULL: a file */
	struct background background; /* that writes the file */
	bool writes;
};

/* ---- HTTP ---- */

static enum MHD_Result reply_empty(struct MHD_Connection *connection, unsigned status)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result queued;

	if (!response)
		return MHD_NO;
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, MHD_HTTP_METHOD_GET);
	queued = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return queued;
}

/* Prometheus asks for OpenMetrics by name; who asks for text alone reads no other. */
static enum metrics_format format_for(struct MHD_Connection *connection)
{
	const char *accept =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);

	return accept && strstr(accept, "text/plain") &&
			       !strstr(accept, "application/openmetrics-text")
		       ? METRICS_CLASSIC
		       : METRICS_OPENMETRICS;
}

static enum MHD_Result reply_metrics(struct MHD_Connection *connection, struct volume *vol)
{
	enum metrics_format format = format_for(connection);
	cleanup_buf struct buf text = {0};
	struct MHD_Response *response;
	enum MHD_Result queued;
	size_t len;
	void *data;

	if (metrics_put(vol, format, &text))
		return reply_empty(connection, MHD_HTTP_INTERNAL_SERVER_ERROR);
	data = buf_steal(&text, &len);
	response = MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(data);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
				metrics_content_type(format));
	queued = MHD_queue_response(connection, MHD_HTTP_OK, response);
	MHD_destroy_response(response);
	return queued;
}

/* Called once when the head is there, and again at the end of the request: who is answered at the first call loses the connection. */
static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *body,
			      size_t *body_len, void **request)
{
	struct metrics_server *s = arg;

	(void)version, (void)body;
	if (strcmp(url, "/metrics") != 0)
		return reply_empty(connection, MHD_HTTP_NOT_FOUND);
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
		return reply_empty(connection, MHD_HTTP_METHOD_NOT_ALLOWED);
	if (!*request || *body_len) {
		*request = s;
		*body_len = 0;
		return MHD_YES;
	}
	return reply_metrics(connection, s->vol);
}

/* What an earlier process left; nothing that is no socket. */
static void remove_socket(const char *path)
{
	struct stat st;

	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		unlink(path);
}

/* A socket that listens there, or -errno. */
static int listen_at(const struct metrics_address *a)
{
	const int on = 1;
	cleanup_close int fd = socket(a->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (a->path)
		remove_socket(a->path);
	else
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* [::]:PORT and 0.0.0.0:PORT are two addresses. */
	if (a->socket.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, (const struct sockaddr *)&a->socket, a->socket_len) < 0 ||
	    listen(fd, LISTEN_BACKLOG) < 0)
		return -errno;
	return steal_fd(&fd);
}

/* With all signals blocked in the thread of libmicrohttpd, too (thread.h). */
static int start_http(struct metrics_server *s, const struct metrics_address *a)
{
	sigset_t all, before;
	int fd = listen_at(a);

	if (fd < 0)
		return fd;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	s->http = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL, answer, s,
				   MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
				   CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, CONNECTION_IDLE_S,
				   MHD_OPTION_END);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (s->http)
		return 0;
	close(fd);
	return -ENOMEM;
}

/* ---- a file ---- */

static int write_new(const char *path, const struct buf *text)
{
	cleanup_close int fd = -1;

	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	return fd < 0 ? -errno : io_write_full(fd, text->data, text->len);
}

/* By a name beside it that does not end in ".prom", which is what node_exporter reads. Others may read it, and a power loss takes nothing of worth. */
static int write_file(struct metrics_server *s)
{
	cleanup_buf struct buf text = {0};
	cleanup_free char *beside = NULL;
	int error = metrics_put(s->vol, METRICS_CLASSIC, &text);

	if (error || text_print(&beside, "%s.new", s->path) < 0)
		return -ENOMEM;
	error = write_new(beside, &text);
	if (!error && rename(beside, s->path) < 0)
		error = -errno;
	if (error)
		unlink(beside);
	return error;
}

static void *keep_file(void *arg)
{
	struct metrics_server *s = arg;
	bool failed = false;

	while (background_next_until(&s->background, clock_mono_ns() + FILE_EVERY_NS)) {
		int error = write_file(s);

		if (error && !failed)
			log_warn("metrics: cannot write %s: %s", s->path, strerror(-error));
		failed = error != 0;
	}
	return NULL;
}

static int start_file(struct metrics_server *s)
{
	int error = write_file(s);

	if (!error)
		error = background_init(&s->background, LOCK_METRICS);
	if (error)
		return error;
	s->writes = true;
	return background_start(&s->background, keep_file, s);
}

/* ---- both ---- */

void metrics_server_stop(struct metrics_server *s)
{
	if (!s)
		return;
	if (s->http)
		MHD_stop_daemon(s->http);
	if (s->writes) {
		background_stop(&s->background);
		background_destroy(&s->background);
	}
	if (s->path && (s->http || s->writes))
		unlink(s->path);
	free(s->path);
	free(s);
}

int metrics_server_start(struct volume *vol, const char *address,
			 struct metrics_server **ret_server, char **ret_message)
{
	struct metrics_server *s = calloc(1, sizeof(*s));
	struct metrics_address a;
	int error = metrics_address_parse(address, &a);

	*ret_message = NULL;
	if (!s)
		return -ENOMEM;
	s->vol = vol;
	if (!error && a.path) {
		s->path = strdup(a.path);
		error = s->path ? 0 : -ENOMEM;
	}
	if (!error)
		error = a.socket.ss_family == AF_UNSPEC ? start_file(s) : start_http(s, &a);
	if (!error) {
		*ret_server = s;
		return 0;
	}
	text_print(ret_message, "option metrics=%s: %s", address, strerror(-error));
	metrics_server_stop(s);
	return error;
}
