/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials from a metadata service: that of the container, or of the instance.
 *
 * The protocols are Amazon's, from "Container credential provider" and "IMDS credential provider" in
 * the AWS SDKs and Tools Reference Guide and "Use IMDSv2" in the EC2 User Guide. */
#include <errno.h>
#include <string.h>
#include <strings.h>
#include "lib/net/credential_sources.h"
#include "lib/util/text.h"

#define CONTAINER_HOST "http://169.254.170.2"
#define INSTANCE_HOST  "http://169.254.169.254"
#define INSTANCE_HOST6 "http://[fd00:ec2::254]"
#define ROLES_PATH     "/latest/meta-data/iam/security-credentials/"
#define TOKEN_PATH     "/latest/api/token"
#define TOKEN_LIFE     "21600"
#define ROLE_MAX       128

static void wipe_answer(struct http_answer *a)
{
	if (a->body.data)
		explicit_bzero(a->body.data, a->body.cap);
	http_answer_free(a);
}
#define cleanup_secret_answer CLEANUP(wipe_answer)

/* ---- the container */

/* Plain http only to where the token cannot be overheard. */
static bool may_be_asked(const char *url)
{
	static const char *const hosts[] = {"localhost",     "127.0.0.1",      "[::1]",
					    "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
	const char *host = url + strlen("http://");

	if (!strncasecmp(url, "https://", strlen("https://")))
		return true;
	if (strncasecmp(url, "http://", strlen("http://")) != 0)
		return false;
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		size_t len = strlen(hosts[i]);

		if (!strncasecmp(host, hosts[i], len) && (!host[len] || strchr(":/?", host[len])))
			return true;
	}
	return false;
}

/* The Authorization header; *ret_token NULL: none is asked for. */
static int container_token(struct aws_source *s, char **ret_token)
{
	const char *path = env_value("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *token = env_value("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	int r = 0;

	*ret_token = NULL;
	if (path)
		r = aws_read_token_file(path, ret_token);
	else if (token && !(*ret_token = strdup(token)))
		r = -ENOMEM;
	if (r < 0)
		return remote_set_reason(s->owner, -EACCES,
					 "the token in AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE "
					 "(%s) cannot be read: %s",
					 path ? path : "", strerror(-r));
	return 0;
}

/* 0: the answer is there, with status 200. */
static int get(struct aws_source *s, const char *url, const struct http_headers *headers,
	       struct http_answer *ret_answer)
{
	struct http_request q = {.method = "GET", .url = url, .headers = headers};
	int r = http_do(s->near, &q, ret_answer);

	if (r == 0 && ret_answer->status != 200)
		r = ret_answer->status >= 500 || ret_answer->status == 429 ? -EIO : -EACCES;
	return r;
}

int aws_from_container(struct aws_source *s, struct credentials *ret_credentials)
{
	const char *relative = env_value("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = env_value("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	struct http_answer cleanup_secret_answer answer = {0};
	struct http_headers cleanup_http_headers headers = {0};
	cleanup_secret char *token = NULL;
	cleanup_free char *url = NULL;
	int r;

	if (!relative && !full)
		return AWS_NOT_THERE;
	if (text_print(&url, "%s%s", relative ? CONTAINER_HOST : "", relative ? relative : full) <
	    0)
		return -ENOMEM;
	if (!may_be_asked(url))
		return remote_set_reason(s->owner, -EACCES,
					 "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor "
					 "on this host");
	r = container_token(s, &token);
	if (r < 0)
		return r;
	if (token)
		r = http_headers_add(&headers, "Authorization", token);
	if (r == 0)
		r = get(s, url, &headers, &answer);
	if (r == 0)
		r = aws_credentials_from_json(answer.body.data, answer.body.len, "Token",
					      ret_credentials);
	if (r == -EBADMSG || r == -EINVAL)
		r = -EACCES;
	if (r < 0)
		remote_set_reason(s->owner, r,
				  "the container's credentials service gave none (status %d, %s)",
				  answer.status, strerror(-r));
	return r;
}

/* ---- the instance */

static const char *instance_host(void)
{
	const char *host = env_value("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	const char *mode = env_value("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");

	if (host)
		return host;
	return mode && !strcasecmp(mode, "IPv6") ? INSTANCE_HOST6 : INSTANCE_HOST;
}

/* The URL of a path on the metadata service; free it. */
static char *instance_url(const char *path, const char *role)
{
	const char *host = instance_host();
	size_t len = strlen(host);
	char *url = NULL;

	while (len && host[len - 1] == '/')
		len--;
	return text_print(&url, "%.*s%s%s", (int)len, host, path, role) < 0 ? NULL : url;
}

static int instance_get(struct aws_source *s, const char *role, const struct http_headers *headers,
			struct http_answer *ret_answer)
{
	cleanup_free char *url = instance_url(ROLES_PATH, role);

	return url ? get(s, url, headers, ret_answer) : -ENOMEM;
}

/* A session of the protocol: its token as a header. */
static int begin_session(struct aws_source *s, struct http_headers *headers)
{
	struct http_headers cleanup_http_headers life = {0};
	struct http_answer cleanup_secret_answer answer = {0};
	cleanup_free char *url = instance_url(TOKEN_PATH, "");
	struct http_request q = {
		.method = "PUT", .url = url, .headers = &life, .body = "", .has_body = true};
	int r = url ? http_headers_add(&life, "X-aws-ec2-metadata-token-ttl-seconds", TOKEN_LIFE)
		    : -ENOMEM;

	if (r == 0)
		r = http_do(s->near, &q, &answer);
	if (r < 0)
		return r;
	if (answer.status != 200)
		return -EIO;
	return http_headers_add(headers, "X-aws-ec2-metadata-token", buf_str(&answer.body));
}

/* The name of the role that the instance has: the first line. */
static int instance_role(struct aws_source *s, const struct http_headers *headers,
			 char ret_role[ROLE_MAX])
{
	struct http_answer cleanup_http_answer answer = {0};
	int r = instance_get(s, "", headers, &answer);
	size_t len;

	if (r < 0)
		return answer.status == 404 ? AWS_NOT_THERE : r;
	len = strcspn(buf_str(&answer.body), "\r\n");
	if (len == 0 || len >= ROLE_MAX)
		return AWS_NOT_THERE;
	memcpy(ret_role, answer.body.data, len);
	ret_role[len] = '\0';
	return strpbrk(ret_role, "/?# \t") ? AWS_NOT_THERE : 0;
}

static int ask_instance(struct aws_source *s, struct credentials *ret_credentials)
{
	struct http_headers cleanup_http_headers headers = {0};
	struct http_answer cleanup_secret_answer answer = {0};
	char role[ROLE_MAX];
	int r = begin_session(s, &headers);

	if (r == 0)
		r = instance_role(s, &headers, role);
	if (r == 0)
		r = instance_get(s, role, &headers, &answer);
	if (r == 0)
		r = aws_credentials_from_json(answer.body.data, answer.body.len, "Token",
					      ret_credentials);
	return r;
}

int aws_from_instance(struct aws_source *s, struct credentials *ret_credentials)
{
	const char *disabled = env_value("AWS_EC2_METADATA_DISABLED");
	int r;

	if (disabled && !strcasecmp(disabled, "true"))
		return AWS_NOT_THERE;
	r = ask_instance(s, ret_credentials);
	if (r == 0) {
		s->was_instance = true;
		return 0;
	}
	if (r == -ENOMEM || r == -ECANCELED)
		return r;
	/* Most machines have no such service: only where it was there before has it failed. */
	if (!s->was_instance)
		return AWS_NOT_THERE;
	if (!remote_may_retry(r))
		r = -EIO;
	return remote_set_reason(s->owner, r,
				 "the instance's metadata service gave no credentials");
}
