/* SPDX-License-Identifier: Apache-2.0 */
/* The WebDAV remote (http, https): what its files share. Private to it. */
#ifndef EPOCHFS_NET_DAV_H
#define EPOCHFS_NET_DAV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/net/http.h"
#include "lib/remote/remote_url.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

/* Decodes what a WebDAV server lists (RFC 4918, 14.16: multistatus). Private to the dav remote. */

#define DAV_LIST_MAX	 (64U << 20) /* bytes of one answer; more is refused by the request */
#define DAV_HREF_MAX	 4096
#define DAV_MODIFIED_MAX 64
#define DAV_NO_SIZE	 UINT64_MAX

/* The request's body: asks for the properties below. */
extern const char dav_list_request[];

/* One resource. Strings are a server's: any bytes but NUL. */
struct dav_entry {
	char href[DAV_HREF_MAX]; /* as it came, %-encoded */
	bool collection;
	uint64_t size;			 /* DAV_NO_SIZE: not said */
	char modified[DAV_MODIFIED_MAX]; /* getlastmodified as it came; "": not said */
};

/* Anything but 0 ends the decoding, and dav_list_parse returns it. */
typedef int dav_list_fn(void *arg, const struct dav_entry *entry);

/*
 * Calls fn for each response that has an href of less than DAV_HREF_MAX bytes and no status of its
 * own other than 2xx; properties count from a propstat of 2xx only. -EBADMSG where the bytes are not
 * well-formed XML, hold a document type (so no entities), nest deeper than 64 elements, or are no
 * multistatus; entries before the fault have been passed on. -ENOMEM. Pure: any thread.
 */
int dav_list_parse(const void *data, size_t len, dav_list_fn *fn, void *arg);

/* Where resources are told apart from foreign ones: all decoded. */
struct dav_place {
	const char *authority; /* "host" or "host:port" */
	const char *path;      /* of the collection: "/a/b/" */
};

/* The name of the entry in the collection, into ret_name (of at least DAV_HREF_MAX bytes): 0, or
 * -ENOENT for one that is no direct member of it: the collection itself, another host's, one that
 * lies elsewhere, or whose name has a `/`, a NUL or a malformed escape in it. */
int dav_member_name(const struct dav_place *place, const char *href, char *ret_name);

/* The URL of a WebDAV remote, taken apart, and who we are there. Private to the dav remote. */

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

/*
 * An object is a resource, its key the path below the URL's; a folder of keys is a collection. What
 * begins with `.tmp-` there is ours and no object.
 *
 * Servers differ; what is done rests on what a server was seen to do:
 *   reading    a range that the server gets wrong is asked for again once the size is known, and
 *              from then on the size is asked for first (dav.c)
 *   writing    PUT where a reader sees the old object until the new one is whole, else a temporary
 *              name and MOVE (dav_put.c)
 *   creating   dav_create.c
 */
enum dav_placement { DAV_PLACE_UNKNOWN, DAV_PLACE_PUT, DAV_PLACE_MOVE };

struct dav {
	struct remote base;
	struct dav_url url; /* never changed */
	struct http *http;
	/* For short requests that must not wait behind transfers of data: those of a mutex's holder,
	 * and those made while another is under way. Its times are short. */
	struct http *control;
	atomic_bool exact_ranges;    /* the server is right only with ranges inside the object */
	atomic_bool raw_destination; /* MOVE takes a Destination that is not %-encoded */
	atomic_bool swept;	     /* stale temporaries were removed */
	atomic_int placement;	     /* enum dav_placement */
	atomic_int create;	     /* enum dav_create_means */
	struct mutex lock;	     /* guards the two below; nothing else is locked under it */
	char **folders;		     /* that are there, as far as we know */
	size_t folder_count;
};

/* How long one short request may take at most; dav_create.c builds on it. */
#define DAV_CONTROL_LIMIT (8 * NS_PER_S)

#define DAV_TEMP_PREFIX ".tmp-"
#define DAV_TEMP_MAX	32

/* "PREFIX/key" as it goes on the wire, behind the origin; a key may end with `/` here. Free it; NULL
 * where there is no memory. */
char *dav_path(const struct dav *d, const char *key);
/* Makes the request `q`, of which method, headers and body are set, on a path: 0 for any answer, or
 * what http_do gives. Follows to another host (a data server), without our credentials. */
int dav_do_at(struct dav *d, struct http *h, const char *path, struct http_request *q,
	      struct http_answer *ret_answer);
/* The same for a key. */
int dav_do(struct dav *d, struct http *h, const char *key, struct http_request *q,
	   struct http_answer *ret_answer);
/* The errno for an answer that is no success, with its reason kept for people. */
int dav_refused(struct dav *d, const char *method, const struct http_answer *a);
/* The same, but 0 for 2xx; `r` is what dav_do gave, and comes first. */
int dav_result(struct dav *d, int r, const char *method, const struct http_answer *a);

/* What lies under a key (href is not to be used): 0, -ENOENT, or another error. */
int dav_stat(struct dav *d, struct http *h, const char *key, struct dav_entry *ret_entry);
int dav_stat_at(struct dav *d, struct http *h, const char *path, struct dav_entry *ret_entry);
/* Calls fn with each direct member of a collection ("" or a key and `/`): its name, not yet looked
 * at. -ENOENT where there is no such collection. */
typedef int dav_member_fn(void *arg, const char *name, const struct dav_entry *entry);
int dav_members(struct dav *d, const char *folder, dav_member_fn *fn, void *arg);
int dav_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg);

int dav_put(struct remote *r, const char *key, const void *data, size_t len);
/* One PUT, not necessarily atomic, that makes missing collections above; `absent`: with the
 * condition that nothing is there, -EEXIST where something is. */
int dav_put_at(struct dav *d, const char *key, const void *data, size_t len, bool absent);
/* MOVE; -EEXIST where something is there and `replace` is false, as far as the server looks. */
int dav_move(struct dav *d, struct http *h, const char *from, const char *to, bool replace);
/* DELETE of a resource that is no collection, or of an empty collection of ours. */
int dav_remove(struct dav *d, struct http *h, const char *key);
/* A fresh temporary name. */
int dav_temp_name(char ret_name[DAV_TEMP_MAX]);
/* The collections above a key were made, or found, by us. */
bool dav_has_parents(struct dav *d, const char *key);
/* Makes the collections above a key. */
int dav_make_parents(struct dav *d, const char *key);

int dav_put_if_absent(struct remote *r, const char *key, const void *data, size_t len);
int dav_check_create(struct remote *r, enum remote_create *ret_create);

static inline struct dav *dav_of(struct remote *r)
{
	return (struct dav *)r;
}

#endif
