/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes what a WebDAV server lists (RFC 4918, 14.16: multistatus). Private to the dav remote. */
#ifndef EPOCHFS_NET_DAV_LIST_H
#define EPOCHFS_NET_DAV_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
