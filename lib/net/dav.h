/* SPDX-License-Identifier: Apache-2.0 */
/* The WebDAV remote (http, https): what its files share. Private to it. */
#ifndef EPOCHFS_NET_DAV_H
#define EPOCHFS_NET_DAV_H

#include <stdatomic.h>
#include "lib/net/dav_list.h"
#include "lib/net/dav_url.h"
#include "lib/net/http.h"
#include "lib/util/lock.h"

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
