/* SPDX-License-Identifier: Apache-2.0 */
/* Where an S3 or GCS remote is: its URL, the environment and the configuration files put together;
 * and URLs of requests in the form that signatures need. Private to lib/net. */
#ifndef EPOCHFS_NET_S3_URL_H
#define EPOCHFS_NET_S3_URL_H

#include <stdbool.h>
#include "lib/net/aws_files.h"
#include "lib/remote/remote_url.h"
#include "lib/util/buf.h"

/*
 * s3://BUCKET[/PREFIX][?PARAMETERS], gs:// likewise. Parameters, all optional:
 *   endpoint=URL     http(s)://host[:port][/path] of the server; else AWS_ENDPOINT_URL_S3,
 *                    AWS_ENDPOINT_URL, or endpoint_url of the profile (also of its services
 *                    section), which AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true leaves out; else
 *                    Amazon's of the region. gs: GCS_ENDPOINT_URL, else Google's
 *   region=R         else AWS_REGION, AWS_DEFAULT_REGION, `region` of the profile, us-east-1.
 *                    gs: "auto"
 *   path-style=1|0   the bucket in the path or in the host's name. Default: `addressing_style` of
 *                    the profile's `s3`; else the host's name at Amazon (but for a bucket with a
 *                    dot, which no certificate covers), the path anywhere else
 *   profile=P        s3: of the two files; else AWS_PROFILE, AWS_DEFAULT_PROFILE, "default"
 *   ca-file=PATH     PEM, the authorities that may vouch for the server; else AWS_CA_BUNDLE,
 *                    `ca_bundle` of the profile, the system's
 */
struct s3_place {
	bool is_gs;
	char *bucket;
	char *prefix; /* plain, "" or ending in `/` */
	char *region;
	char *base;	    /* the bucket's URL, without a `/` at its end */
	char *profile;	    /* never NULL; "" for gs */
	bool profile_asked; /* by profile= in the URL */
	char *ca_file;	    /* NULL: the system's */
};

/* Zero-initialise *ret_place; free with s3_place_free. 0, -ENOMEM, -EINVAL for a bad URL, parameter
 * or setting. */
int s3_place_resolve(const struct remote_url *url, const struct aws_files *files,
		     struct s3_place *ret_place);
void s3_place_free(struct s3_place *place);
#define cleanup_s3_place CLEANUP(s3_place_free)

/* Appends `text` as RFC 3986 has it in canonical form: unreserved characters as they are, all else as
 * upper-case %XX; `/` stays where keep_slash. Or one byte of it. */
void s3_encode(struct buf *out, const char *text, bool keep_slash);
void s3_encode_byte(struct buf *out, uint8_t byte, bool keep_slash);
/* Appends the URL of the object `key` (below the prefix). */
void s3_object_url(const struct s3_place *place, const char *key, struct buf *out);
/* The same for one version of it. */
void s3_version_url(const struct s3_place *place, const char *key, const char *version,
		    struct buf *out);
/* Appends the URL that asks for the first 1,000 versions of objects whose keys, below place's prefix, begin with `begin`. */
void s3_versions_url(const struct s3_place *place, const char *begin, struct buf *out);
/* Appends the URL to which keys of objects to delete are sent. */
void s3_delete_url(const struct s3_place *place, struct buf *out);
/* Appends the URL that asks for a page of the list of what is below place's prefix and `prefix`;
 * `token` is where the last page said to go on, NULL at first. Its query is sorted by name. */
void s3_list_url(const struct s3_place *place, const char *prefix, const char *token,
		 struct buf *out);

#endif
