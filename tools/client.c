/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a mounted volume. */
#include "tools/client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "tools/cli.h"

#define RESPONSE_MAX ((size_t)1 << 30)

static int control_path(const char *path, char ret_path[PATH_MAX])
{
	int n = snprintf(ret_path, PATH_MAX, "%s/.epochs/.control", path);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* A request that was under way when the connection ended is told so by another error than later ones. */
static int dead_or_none(void)
{
	return errno == ENOTCONN || errno == ECONNABORTED ? -ENOTCONN : 0;
}

int client_is_mount(const char *path)
{
	char control[PATH_MAX];
	struct stat st;

	/* The kernel may still know the root of a dead mount by heart. */
	if (stat(path, &st) < 0)
		return dead_or_none();
	if (!S_ISDIR(st.st_mode) || control_path(path, control) < 0)
		return 0;
	if (stat(control, &st) < 0)
		return dead_or_none();
	return S_ISREG(st.st_mode);
}

/* Reads until the end: the answer has no size that stat could tell. */
static int read_all(int fd, struct buf *out)
{
	for (;;) {
		ssize_t n;

		if (out->len > RESPONSE_MAX)
			return -EFBIG;
		if (buf_reserve(out, 1 << 16) < 0)
			return -ENOMEM;
		n = read(fd, out->data + out->len, 1 << 16);
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		out->len += (size_t)n;
	}
}

static int open_control(const char *path)
{
	char control[PATH_MAX];
	int error = control_path(path, control), fd;

	if (error)
		return error;
	fd = open(control, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int exchange_on(int fd, const json_t *request, struct buf *answer)
{
	cleanup_free char *text = json_dumps(request, JSON_COMPACT);
	int error;

	if (!text)
		return -ENOMEM;
	error = io_write_full(fd, text, strlen(text));
	if (!error)
		error = io_write_full(fd, "\n", 1);
	return error ? error : read_all(fd, answer);
}

static int exchange(const char *path, const json_t *request, struct buf *answer)
{
	cleanup_close int fd = open_control(path);

	return fd < 0 ? fd : exchange_on(fd, request, answer);
}

/* Takes the request over. 0 and the answer, or -errno where there is none that makes sense. */
static int ask_on(int fd, json_t *request, json_t **ret_response)
{
	cleanup_buf struct buf answer = {0};
	json_t *response;
	int error = exchange_on(fd, request, &answer);

	json_decref(request);
	if (error)
		return error;
	response = json_loadb((const char *)answer.data, answer.len, 0, NULL);
	if (!json_is_object(response)) {
		json_decref(response);
		return -EBADMSG;
	}
	*ret_response = response;
	return 0;
}

int client_ask(const char *path, json_t *request, json_t **ret_response)
{
	cleanup_close int fd = open_control(path);

	if (fd < 0) {
		json_decref(request);
		return fd;
	}
	return ask_on(fd, request, ret_response);
}

/* Of an answer that says no more than that it was done. */
static int done_on(int fd, json_t *request)
{
	json_t *response;
	int error = ask_on(fd, request, &response);

	if (error)
		return error;
	error = -(int)json_integer_value(json_object_get(response, "errno"));
	json_decref(response);
	return error;
}

int client_hold(const char *path, bool mounted, int *ret_fd)
{
	cleanup_close int fd = open_control(path);
	int error = fd < 0 ? fd
			   : done_on(fd, json_pack("{s:s, s:b}", "op", "hold", "mounted", mounted));

	if (!error)
		*ret_fd = steal_fd(&fd);
	return error;
}

int client_release(int fd, bool unmount)
{
	int error = done_on(fd, json_pack("{s:s, s:b}", "op", "release", "unmount", unmount));

	close(fd);
	return error;
}

int client_call(const char *path, json_t *request, json_t **ret_response)
{
	return client_call_unless(path, request, 0, ret_response);
}

int client_call_unless(const char *path, json_t *request, int fine, json_t **ret_response)
{
	cleanup_buf struct buf answer = {0};
	json_error_t where;
	json_t *response;
	const char *message;
	int error = exchange(path, request, &answer), number;

	json_decref(request);
	if (error == -EROFS)
		return cli_error(EXIT_FAILED,
				 "%s: it was remounted read-only, and takes no requests: `mount -o "
				 "remount,rw %s` first (plain umount works)",
				 path, path);
	if (error == -EACCES)
		return cli_error(
			exit_code_of(error),
			"%s: not allowed: in a shared mount this is for its owner, who mounted it, and for root",
			path);
	if (error)
		return cli_error(exit_code_of(error), "%s: the mount does not answer: %s", path,
				 strerror(-error));
	response = json_loadb((const char *)answer.data, answer.len, 0, &where);
	if (!json_is_object(response)) {
		json_decref(response);
		return cli_error(EXIT_FAILED, "%s: the mount gave no answer that makes sense: %s",
				 path, where.text);
	}
	message = json_string_value(json_object_get(response, "error"));
	number = (int)json_integer_value(json_object_get(response, "errno"));
	if (message && (!fine || number != fine)) {
		int code = exit_code_of(-number);

		cli_error(code == EXIT_DONE ? EXIT_FAILED : code, "%s: %s", path, message);
		json_decref(response);
		return code == EXIT_DONE ? EXIT_FAILED : code;
	}
	*ret_response = response;
	return EXIT_DONE;
}
