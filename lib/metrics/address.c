/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/metrics/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/un.h>
#include "lib/util/parse.h"

#define UNIX_PREFIX "unix:"
#define FILE_PREFIX "file:"

static int parse_unix(const char *path, struct metrics_address *a)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&a->socket;

	if (path[0] != '/')
		return -EINVAL;
	if (strlen(path) >= sizeof(un->sun_path))
		return -ENAMETOOLONG;
	un->sun_family = AF_UNIX;
	strcpy(un->sun_path, path);
	a->socket_len = sizeof(*un);
	a->path = path;
	return 0;
}

static int parse_file(const char *path, struct metrics_address *a)
{
	size_t len = strlen(path);

	if (path[0] != '/' || path[len - 1] == '/')
		return -EINVAL;
	a->socket.ss_family = AF_UNSPEC;
	a->path = path;
	return 0;
}

/* The host before the last ':', without the brackets that an IPv6 address has. */
static int parse_host(const char *text, size_t len, uint16_t port, struct metrics_address *a)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a->socket;
	struct sockaddr_in *in = (struct sockaddr_in *)&a->socket;
	char host[INET6_ADDRSTRLEN];
	bool v6 = len >= 2 && text[0] == '[' && text[len - 1] == ']';

	text += v6;
	len -= v6 ? 2 : 0;
	if (len >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, len);
	host[len] = '\0';
	if (v6) {
		*in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
		a->socket_len = sizeof(*in6);
		return inet_pton(AF_INET6, host, &in6->sin6_addr) == 1 ? 0 : -EINVAL;
	}
	*in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
	a->socket_len = sizeof(*in);
	return inet_pton(AF_INET, host, &in->sin_addr) == 1 ? 0 : -EINVAL;
}

int metrics_address_parse(const char *text, struct metrics_address *ret_address)
{
	const char *colon = strrchr(text, ':');
	uint64_t port;

	*ret_address = (struct metrics_address){0};
	if (!strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)))
		return parse_unix(text + strlen(UNIX_PREFIX), ret_address);
	if (!strncmp(text, FILE_PREFIX, strlen(FILE_PREFIX)))
		return parse_file(text + strlen(FILE_PREFIX), ret_address);
	if (!colon || parse_u64(colon + 1, &port) || port < 1 || port > UINT16_MAX)
		return -EINVAL;
	return parse_host(text, (size_t)(colon - text), (uint16_t)port, ret_address);
}
