/* SPDX-License-Identifier: Apache-2.0 */
/* Gives out the metrics of an open volume: by HTTP, or as a file. */
#ifndef EPOCHFS_METRICS_SERVER_H
#define EPOCHFS_METRICS_SERVER_H

struct metrics_server;
struct volume;

/*
 * `address` is as in address.h. HTTP, by libmicrohttpd, in one thread: GET /metrics, and nothing else; no authentication and no TLS. A file is replaced
 * every 15 s. A socket or file that is there at the path is taken for one that an earlier process left.
 *
 * 0, and metrics_server_stop ends it before the volume is closed; or -errno, with one line in `ret_message` (free with free(); NULL if memory ran
 * out). After who forks without exec has done so: else the port stays taken.
 */
int metrics_server_start(struct volume *vol, const char *address,
			 struct metrics_server **ret_server, char **ret_message);
/* Also removes the socket or file. NULL is allowed. */
void metrics_server_stop(struct metrics_server *s);

#endif
