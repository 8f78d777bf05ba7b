/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the chain of Amazon's credentials share. */
#ifndef EPOCHFS_NET_AWS_SOURCE_INTERNAL_H
#define EPOCHFS_NET_AWS_SOURCE_INTERNAL_H

#include "lib/net/aws_source.h"
#include "lib/net/http.h"

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
/* "2026-11-21T09:30:00Z", also with "+00:00": 0 or -EBADMSG. */
int aws_expiry(const char *text, int64_t *ret_ns);
/* The first line of a small file, without blanks at its end. Free with secret_free. 0 or -errno. */
int aws_read_token_file(const char *path, char **ret_text);

#endif
