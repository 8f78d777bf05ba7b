/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy that the environment names, for requests by https. Private to the HTTP engine. */
#ifndef EPOCHFS_NET_HTTP_PROXY_H
#define EPOCHFS_NET_HTTP_PROXY_H

#include <curl/curl.h>
#include <stdbool.h>

/*
 * The first of https_proxy, HTTPS_PROXY, all_proxy and ALL_PROXY that is there and not empty, as curl
 * looks for them: [http://][USER:PASSWORD@]HOST:PORT, or https, socks4, socks4a, socks5 and socks5h in
 * place of http; without a port, curl's 1080. The hosts of no_proxy or NO_PROXY (by commas, domains with all
 * below them, `*`) are reached without it.
 *
 * Only https goes through a proxy, in a tunnel (CONNECT): the proxy learns the server's name and port,
 * and nothing of requests, which are inside TLS. Plain http never does: there the proxy would read
 * the credentials; the services that give keys to machines and containers are plain http, too.
 */
struct http_proxy {
	char *url;	      /* without user and password; NULL: none */
	char *userpwd;	      /* "user:password", %-encoded; NULL: none */
	const char *variable; /* of the environment; static */
	bool bad; /* what the variable says is no URL; never shown: a password may be in it */
};

/* Reads the environment. 0 or -ENOMEM; free with http_proxy_free. */
int http_proxy_init(struct http_proxy *p);
void http_proxy_free(struct http_proxy *p);

/* True where a request of this URL goes through it, unless no_proxy has its host. */
bool http_proxy_serves(const struct http_proxy *p, const char *url);
/* Sets it, or none, on a handle that is to ask for `url`. */
CURLcode http_proxy_set(const struct http_proxy *p, const char *url, CURL *easy);

#endif
