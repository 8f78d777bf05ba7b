/* SPDX-License-Identifier: Apache-2.0 */
/* Where credentials come from. Private to lib/net. */
#ifndef EPOCHFS_NET_CREDENTIAL_SOURCES_H
#define EPOCHFS_NET_CREDENTIAL_SOURCES_H

#include "lib/net/credentials.h"
#include "lib/net/http.h"
#include "lib/net/s3_url.h"
#include "lib/remote/remote_ops.h"

/* ---- Amazon's: the chain that its own tools follow ---- */

/*
 * The first of these that is there counts; one that is there and fails ends the search:
 *   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
 *   2. AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN (AWS_ROLE_SESSION_NAME), by STS
 *   3. the profile, of the credentials and configuration files: role_arn with source_profile,
 *      credential_source or web_identity_token_file, by STS; keys; credential_process
 *   4. AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, with AWS_CONTAINER_AUTHORIZATION_TOKEN or
 *      its _FILE (ECS, EKS pod identity)
 *   5. the instance's metadata service, version 2 of its protocol only (IMDSv2), unless
 *      AWS_EC2_METADATA_DISABLED=true; AWS_EC2_METADATA_SERVICE_ENDPOINT
 * A profile that the remote's URL names is the only source. SSO and roles that ask for a second
 * factor are told apart and refused: `aws configure export-credentials` as credential_process does
 * the former. STS is asked at AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL, the profile's likewise (in
 * services: sts), else at Amazon's in the region.
 *
 * Files are read again at each fetch. Where a source fails, the reason is given to the owner
 * (remote_set_reason).
 */
struct aws_source;

/* Owner is borrowed and outlives it; of the place profile, region and ca_file are copied. 0, -ENOMEM,
 * -EINVAL for a bad ca_file. */
int aws_source_new(struct remote *owner, const struct s3_place *place,
		   struct aws_source **ret_source);
void aws_source_free(struct aws_source *source);

/* A credentials_fetch_fn; `source` is the struct aws_source. -EACCES: there are none, or they are
 * refused; other errors of remote.h: it may work later. */
int aws_source_fetch(void *source, struct credentials *ret_credentials);

/* ---- for aws_source*.c alone ---- */

struct aws_source {
	struct remote *owner;
	char *profile;
	bool profile_asked;
	char *region;
	struct http *near; /* for the metadata services: answers in a moment, or is not there */
	struct http *sts;
	bool was_instance; /* the instance's metadata service once gave credentials */
};

/* What the chain may give beyond 0 and errors of remote.h: this source is not there, ask the next. */
#define AWS_NOT_THERE 1

/* An AssumeRole; NULL for what is not given. */
struct aws_role {
	const char *arn;
	const char *session_name;
	const char *external_id;
	const char *duration;	/* seconds */
	const char *token_file; /* of a web identity */
};

/* aws_source_http.c: all return 0, AWS_NOT_THERE, or an error with its reason told. */
int aws_from_container(struct aws_source *s, struct credentials *ret_credentials);
int aws_from_instance(struct aws_source *s, struct credentials *ret_credentials);

/* aws_source.c: what the command prints. */
int aws_from_process(struct aws_source *s, const char *command,
		     struct credentials *ret_credentials);

/* aws_source.c: AssumeRole signed with `base`, or AssumeRoleWithWebIdentity where role has a
 * token_file (then `base` is not looked at). */
int aws_from_role(struct aws_source *s, const struct aws_files *files,
		  const struct credentials *base, const struct aws_role *role,
		  struct credentials *ret_credentials);

/* The credentials in what STS answers to AssumeRole and AssumeRoleWithWebIdentity: 0, -EBADMSG, -ENOMEM. */
int aws_credentials_from_xml(const void *data, size_t len, struct credentials *ret_credentials);

/* aws_source.c: the members AccessKeyId, SecretAccessKey, Expiration, and `token_name` of an
 * object: 0, -EBADMSG, -ENOMEM. */
int aws_credentials_from_json(const void *data, size_t len, const char *token_name,
			      struct credentials *ret_credentials);
/* The first line of a small file, without blanks at its end. Free with secret_free. 0 or -errno. */
int aws_read_token_file(const char *path, char **ret_text);

/* ---- Google's (gs_source.c) ---- */

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
