/* SPDX-License-Identifier: Apache-2.0 */
/* Where Google's credentials come from. Private to lib/net. */
#ifndef EPOCHFS_NET_GS_SOURCE_H
#define EPOCHFS_NET_GS_SOURCE_H

#include "lib/net/credentials.h"
#include "lib/remote/remote_ops.h"

/*
 * The first of these that is there counts:
 *   1. GOOGLE_OAUTH_ACCESS_TOKEN: a bearer token (gcloud auth print-access-token), which lives an
 *      hour and cannot be renewed here
 *   2. GS_ACCESS_KEY_ID, GS_SECRET_ACCESS_KEY: an HMAC key of the bucket's project
 *   3. the metadata service of the instance (GCE_METADATA_HOST, else metadata.google.internal): the
 *      token of its service account, renewed
 * A key file of a service account (GOOGLE_APPLICATION_CREDENTIALS) is not read.
 */
struct gs_source;

/* Owner is borrowed and outlives it. 0 or -ENOMEM. */
int gs_source_new(struct remote *owner, struct gs_source **ret_source);
void gs_source_free(struct gs_source *source);

/* A credentials_fetch_fn; `source` is the struct gs_source. Errors as of aws_source_fetch. */
int gs_source_fetch(void *source, struct credentials *ret_credentials);

/* What the metadata service answers, {"access_token": ..., "expires_in": seconds, "token_type": "Bearer"}: 0, -EBADMSG, -ENOMEM. */
int gs_token_from_json(const void *data, size_t len, struct credentials *ret_credentials);

#endif
