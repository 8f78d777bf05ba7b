/* SPDX-License-Identifier: Apache-2.0 */
/* The URL of a WebDAV remote, taken apart, and who we are there. Private to the dav remote. */
#ifndef EPOCHFS_NET_DAV_URL_H
#define EPOCHFS_NET_DAV_URL_H

#include <stdbool.h>
#include "lib/remote/remote_url.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

/*
 *   http[s]://[user[:password]@]host[:port]/path?name=value&...
 *     cert=FILE   client certificate (PEM, also an X.509 proxy with its key and chain)
 *     key=FILE    its key, where it is in a file of its own
 *     ca=FILE     trust the authorities in this PEM file only; a folder (hashed) works too
 *     create=conditional|mkcol|lock|checked
 *                 how an object is created only if it is absent (dav_create.c), where its own
 *                 choice is wrong for this server
 *
 * Name and password: from the URL, else EPOCHFS_DAV_USER and EPOCHFS_DAV_PASSWORD, or the first line
 * of the file that EPOCHFS_DAV_PASSWORD_FILE names. Over https only, where the URL or these name
 * nobody and nothing:
 *   a bearer token, as WLCG Bearer Token Discovery 1.0 finds it: BEARER_TOKEN, the file that
 *   BEARER_TOKEN_FILE names, $XDG_RUNTIME_DIR/bt_u$UID, /tmp/bt_u$UID; files are read again for each
 *   request, since tokens expire
 *   a client certificate: X509_USER_PROXY, X509_USER_CERT with X509_USER_KEY; without a user also /tmp/x509up_u$UID
 *   authorities: the folder X509_CERT_DIR
 */
enum dav_create_means {
	DAV_CREATE_UNKNOWN, /* not found out yet */
	DAV_CREATE_CONDITIONAL,
	DAV_CREATE_MKCOL,
	DAV_CREATE_LOCK,
	DAV_CREATE_CHECKED,
};

struct dav_url {
	char *origin;	 /* "https://host:port", as typed */
	char *authority; /* "host:port", as typed */
	char *path;	 /* "" or "/a%20b/c": %-encoded, without a `/` at its end */
	char *path_decoded;
	char *userpwd;			     /* "user:password"; NULL: none */
	char *token_file;		     /* NULL: none */
	char *token;			     /* of the environment; NULL: none */
	char *cert, *key, *ca_file, *ca_dir; /* NULL: none */
	enum dav_create_means create;	     /* DAV_CREATE_UNKNOWN: not given */
	bool tls;
};

/* 0, -EINVAL, -ENOMEM; *ret_url is zero-initialised and freed with dav_url_free. */
int dav_url_parse(const struct remote_url *url, struct dav_url *ret_url);
void dav_url_free(struct dav_url *u);
#define cleanup_dav_url CLEANUP(dav_url_free)

/* The bearer token for a request now, appended to `out`, which stays empty where there is none: 0,
 * -EACCES where a file holds none that can be sent, -ENOMEM. Wipe it. */
int dav_url_token(const struct dav_url *u, struct buf *out);

#endif
