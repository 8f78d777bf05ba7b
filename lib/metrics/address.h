/* SPDX-License-Identifier: Apache-2.0 */
/* Where metrics are to be had: the value of the option `metrics`. */
#ifndef EPOCHFS_METRICS_ADDRESS_H
#define EPOCHFS_METRICS_ADDRESS_H

#include <sys/socket.h>

/*
 * 127.0.0.1:PORT or any other IPv4 address, [::1]:PORT or any other IPv6 address, unix:PATH, file:PATH. A port is from 1 to 65535; a path
 * begins with a '/'. Names of hosts are not looked up.
 */
struct metrics_address {
	struct sockaddr_storage socket; /* ss_family AF_UNSPEC: a file */
	socklen_t socket_len;
	const char
		*path; /* of a socket with a name, and of a file: borrowed of the text; else NULL */
};

/* 0; -EINVAL; -ENAMETOOLONG where no socket can have this path. */
int metrics_address_parse(const char *text, struct metrics_address *ret_address);

#endif
