/* SPDX-License-Identifier: Apache-2.0 */
/* The URLs of remotes, taken apart. */
#ifndef EPOCHFS_REMOTE_REMOTE_URL_H
#define EPOCHFS_REMOTE_REMOTE_URL_H

#include <stddef.h>
#include "lib/remote/remote.h"

/*
 * The parts of a URL, all still %-encoded:
 *   /abs/dir             scheme "file", rest "/abs/dir" taken literally (`plain`), no query
 *   scheme:rest?query
 *   scheme               a bare word, as `none`
 *   layer+rest?query     scheme "layer" (`layered`); rest is the inner URL without its query
 * Zero-initialise; free with remote_url_free or mark cleanup_remote_url.
 */
struct remote_url {
	char *scheme; /* [a-z0-9]+ */
	char *rest;
	char *query; /* NULL: none */
	bool plain;
	bool layered;
};

/* 0, -EINVAL where it is none of the forms above, or -ENOMEM. */
int remote_url_parse(const char *text, struct remote_url *ret_url);
void remote_url_free(struct remote_url *url);
#define cleanup_remote_url CLEANUP(remote_url_free)

/* Decodes %XX. 0, -EINVAL for a malformed escape or %00, -ENOMEM. Free the result. */
int remote_url_decode(const char *text, char **ret_text);

/* One `name=value` of a query, value decoded; `raw` is the pair as it stood. 0 goes on. */
typedef int remote_url_param_fn(void *arg, const char *name, const char *value, const char *raw);
/* Calls fn for each pair of the query (NULL: none); `name` alone has the value "". Returns what fn
 * returned when it was not 0, -EINVAL for a malformed escape, -ENOMEM. */
int remote_url_each_param(const char *query, remote_url_param_fn *fn, void *arg);

/* The URL as it may be shown: the password of `//user:password@`, and the value of every parameter
 * that is called after a secret, are replaced by `***`, control characters by `?`. Cut where it is
 * too long. */
void remote_url_redact(const char *text, char *ret_text, size_t size);

#endif
