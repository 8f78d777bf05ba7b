/* SPDX-License-Identifier: Apache-2.0 */
/* What S3 and STS answer in XML. Private to lib/net. */
#ifndef EPOCHFS_NET_S3_XML_H
#define EPOCHFS_NET_S3_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

/* ---- an untrusted answer, element by element ---- */

/* Longer or deeper documents, paths or texts of one element are refused. */
#define XML_MAX	     ((size_t)32 << 20)
#define XML_DEPTH    16
#define XML_PATH_MAX 256
#define XML_TEXT_MAX 8192

/*
 * At the end of each element: `path` is its names and those around it, without namespaces' prefixes,
 * as "Error/Code"; `text` what stood in it before any element in it. Anything but 0 ends the walk.
 */
typedef int xml_fn(void *arg, const char *path, const char *text);

/* Walks the document: 0, what fn returned, -EBADMSG where it is no XML or above a bound, has a
 * document type (nothing we read needs one, and bombs do) or a NUL in it, -ENOMEM. */
int xml_each(const void *data, size_t len, xml_fn *fn, void *arg);

/* Is `path` this path, or does it end with it at a `/`? */
bool xml_path_ends(const char *path, const char *end);

/* ---- the answers ---- */

/* What a page of a list may take; its 1,000 keys of 1,024 bytes may be encoded as three bytes each. */
#define S3_PAGE_MAX ((size_t)8 << 20)

struct s3_object {
	char *key; /* whole, decoded; whatever the server says */
	uint64_t size;
};

/* A page of ListObjectsV2. Zero-initialise; free with s3_page_free. */
struct s3_page {
	struct s3_object *objects;
	size_t count;
	char *next; /* the token of the next page; NULL: this is the last */
};

/* 0, -ENOMEM, -EBADMSG: it is no such page, or has more than 1,000 objects, a key or size that is
 * none, or says that it goes on and not where. */
int s3_page_decode(const void *data, size_t len, struct s3_page *ret_page);
void s3_page_free(struct s3_page *page);
#define cleanup_s3_page CLEANUP(s3_page_free)

/* A version of an object, or a marker that it was deleted there. The texts are the decoder's. */
struct s3_version {
	const char *key; /* whole; whatever the server says */
	const char *id;
	bool deleted;
};
/* Anything but 0 ends the decoding. */
typedef int s3_version_fn(void *arg, const struct s3_version *v);
/* The answer of ListObjectVersions, which was not asked to encode: calls fn for each, as they stand there. 0, what fn returned, -ENOMEM, -EBADMSG: it is no such answer, or one is without
 * key or version. */
int s3_versions_decode(const void *data, size_t len, s3_version_fn *fn, void *arg);

/* An error of S3 or STS; "" where the answer does not say. Control characters are as they came. */
struct s3_error {
	char code[64];
	char message[160];
	char region[64]; /* where the bucket is */
	char endpoint[160];
};

/* An answer that is no error of theirs gives one without a code. */
void s3_error_decode(const void *data, size_t len, struct s3_error *ret_error);

/* What DeleteObjects takes at once. */
#define S3_DELETE_MAX 1000

/* Anything but 0 ends the decoding. */
typedef int s3_failure_fn(void *arg, const struct s3_error *e);
/*
 * The answer to DeleteObjects: calls fn for each object that was not deleted, with its code and
 * message. 0, what fn returned, -ENOMEM, -EBADMSG: it is no such answer, or tells of more than
 * S3_DELETE_MAX failures, or of one without key or code.
 */
int s3_failures_decode(const void *data, size_t len, s3_failure_fn *fn, void *arg);
/* Appends the text of an element: with what XML would take for its own replaced. */
void s3_xml_escape(struct buf *out, const char *text);

#endif
