/* SPDX-License-Identifier: Apache-2.0 */
/* Where Amazon's credentials come from: the chain, and STS. */
#include "lib/net/credential_sources.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <string.h>

#include "lib/net/s3_xml.h"
#include "lib/net/sigv4.h"
#include "lib/util/child.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/util/io.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"

/* A metadata service is on this host or next to it. */
#define NEAR_CONNECT_NS (1 * NS_PER_S)
#define NEAR_TOTAL_NS	(5 * NS_PER_S)
#define STS_TOTAL_NS	(30 * NS_PER_S)
/* Profiles that name each other. */
#define PROFILES_MAX 5

void aws_source_free(struct aws_source *source)
{
	if (!source)
		return;
	http_free(source->near);
	http_free(source->sts);
	free(source->profile);
	free(source->region);
	free(source);
}

int aws_source_new(struct remote *owner, const struct s3_place *place,
		   struct aws_source **ret_source)
{
	const struct http_config near = {.limits = {.connections = 1,
						    .connect_timeout_ns = NEAR_CONNECT_NS,
						    .total_timeout_ns = NEAR_TOTAL_NS}};
	const struct http_config sts = {
		.limits = {.connections = 1, .total_timeout_ns = STS_TOTAL_NS},
		.ca_file = place->ca_file};
	struct aws_source *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->owner = owner;
	s->profile_asked = place->profile_asked;
	s->profile = strdup(place->profile);
	s->region = strdup(place->region);
	if (!s->profile || !s->region)
		r = -ENOMEM;
	if (r == 0)
		r = http_new(owner, &near, &s->near);
	if (r == 0)
		r = http_new(owner, &sts, &s->sts);
	if (r < 0) {
		aws_source_free(s);
		return r;
	}
	*ret_source = s;
	return 0;
}

/* ---- the environment */

/* "2026-11-21T09:30:00Z", also with "+00:00": 0 or -EBADMSG. */
static int aws_expiry(const char *text, int64_t *ret_ns)
{
	size_t len = strlen(text);
	char utc[40];

	if (len > 6 && !strcmp(text + len - 6, "+00:00") && len - 6 + 2 <= sizeof(utc)) {
		snprintf(utc, sizeof(utc), "%.*sZ", (int)(len - 6), text);
		text = utc;
	}
	return parse_time(text, ret_ns) < 0 ? -EBADMSG : 0;
}

static int from_texts(const char *key, const char *secret, const char *token,
		      struct credentials *ret_credentials)
{
	const struct credentials c = {
		.key = (char *)key, .secret = (char *)secret, .token = (char *)token};

	return credentials_copy(&c, ret_credentials);
}

static int from_environment(struct aws_source *s, struct credentials *ret_credentials)
{
	const char *key = env_value("AWS_ACCESS_KEY_ID");
	const char *secret = env_value("AWS_SECRET_ACCESS_KEY");
	const char *expires = env_value("AWS_CREDENTIAL_EXPIRATION");
	int r;

	if (!key && !secret)
		return AWS_NOT_THERE;
	if (!key || !secret)
		return remote_set_reason(s->owner, -EACCES, "%s is set, and %s is not",
					 key ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
					 key ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
	r = from_texts(key, secret, env_value("AWS_SESSION_TOKEN"), ret_credentials);
	/* As `aws configure export-credentials --format env` says it. It is told to people only: the server says when they have ended. */
	if (r == 0 && expires && aws_expiry(expires, &ret_credentials->expires_ns) < 0)
		ret_credentials->expires_ns = 0;
	if (r == 0)
		ret_credentials->fixed = true;
	return r;
}

static int from_web_identity(struct aws_source *s, const struct aws_files *files,
			     struct credentials *ret_credentials)
{
	const struct aws_role role = {
		.arn = env_value("AWS_ROLE_ARN"),
		.session_name = env_value("AWS_ROLE_SESSION_NAME"),
		.token_file = env_value("AWS_WEB_IDENTITY_TOKEN_FILE"),
	};

	if (!role.token_file || !role.arn)
		return AWS_NOT_THERE;
	return aws_from_role(s, files, NULL, &role, ret_credentials);
}

/* ---- profiles */

static int from_profile(struct aws_source *s, const struct aws_files *files, const char *profile,
			unsigned depth, struct credentials *ret_credentials);

/* The credentials that a profile's role is asked for with. */
static int role_base(struct aws_source *s, const struct aws_files *files, const char *profile,
		     unsigned depth, struct credentials *ret_base)
{
	const char *source = aws_files_get(files, profile, "source_profile");
	const char *kind = aws_files_get(files, profile, "credential_source");
	int r = AWS_NOT_THERE;

	if (source)
		r = from_profile(s, files, source, depth + 1, ret_base);
	else if (kind && !strcmp(kind, "Environment"))
		r = from_environment(s, ret_base);
	else if (kind && !strcmp(kind, "EcsContainer"))
		r = aws_from_container(s, ret_base);
	else if (kind && !strcmp(kind, "Ec2InstanceMetadata"))
		r = aws_from_instance(s, ret_base);
	if (r == AWS_NOT_THERE)
		r = remote_set_reason(s->owner, -EACCES,
				      "profile %s: its role_arn needs a source_profile, "
				      "credential_source or web_identity_token_file that has "
				      "credentials",
				      profile);
	return r;
}

static int profile_role(struct aws_source *s, const struct aws_files *files, const char *profile,
			unsigned depth, struct credentials *ret_credentials)
{
	const struct aws_role role = {
		.arn = aws_files_get(files, profile, "role_arn"),
		.session_name = aws_files_get(files, profile, "role_session_name"),
		.external_id = aws_files_get(files, profile, "external_id"),
		.duration = aws_files_get(files, profile, "duration_seconds"),
		.token_file = aws_files_get(files, profile, "web_identity_token_file"),
	};
	struct credentials cleanup_credentials base = {0};
	int r = 0;

	if (!role.arn)
		return AWS_NOT_THERE;
	if (aws_files_get(files, profile, "mfa_serial"))
		return remote_set_reason(s->owner, -EACCES,
					 "profile %s: a role that asks for a second factor "
					 "(mfa_serial) cannot be used by a mount",
					 profile);
	if (!role.token_file)
		r = role_base(s, files, profile, depth, &base);
	return r < 0 ? r : aws_from_role(s, files, &base, &role, ret_credentials);
}

static int from_profile(struct aws_source *s, const struct aws_files *files, const char *profile,
			unsigned depth, struct credentials *ret_credentials)
{
	const char *key = aws_files_get(files, profile, "aws_access_key_id");
	const char *secret = aws_files_get(files, profile, "aws_secret_access_key");
	const char *own_source = aws_files_get(files, profile, "source_profile");
	const char *process = aws_files_get(files, profile, "credential_process");
	/* A profile that is its own source has the keys for its role. */
	bool is_own_base = depth && own_source && !strcmp(own_source, profile);
	int r = AWS_NOT_THERE;

	if (depth == PROFILES_MAX)
		return remote_set_reason(s->owner, -EACCES,
					 "profile %s: source_profile goes round in a circle",
					 profile);
	if (!is_own_base)
		r = profile_role(s, files, profile, depth, ret_credentials);
	if (r != AWS_NOT_THERE)
		return r;
	if (key && secret)
		return from_texts(key, secret, aws_files_get(files, profile, "aws_session_token"),
				  ret_credentials);
	if (process)
		return aws_from_process(s, process, ret_credentials);
	if (aws_files_get(files, profile, "sso_session") ||
	    aws_files_get(files, profile, "sso_start_url"))
		return remote_set_reason(
			s->owner, -EACCES,
			"profile %s uses SSO, which epochfs does not: give a profile "
			"credential_process = aws configure export-credentials --profile %s",
			profile, profile);
	return AWS_NOT_THERE;
}

/* ---- the chain */

static int nothing_found(struct aws_source *s)
{
	if (s->profile_asked || strcmp(s->profile, "default") != 0)
		return remote_set_reason(
			s->owner, -EACCES,
			"profile %s has no credentials in ~/.aws/credentials or "
			"~/.aws/config (or the files that AWS_SHARED_CREDENTIALS_FILE "
			"and AWS_CONFIG_FILE name)",
			s->profile);
	return remote_set_reason(s->owner, -EACCES,
				 "no credentials found: set AWS_ACCESS_KEY_ID and "
				 "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE");
}

static int from_chain(struct aws_source *s, const struct aws_files *files,
		      struct credentials *ret_credentials)
{
	int r = AWS_NOT_THERE;

	if (!s->profile_asked)
		r = from_environment(s, ret_credentials);
	if (r == AWS_NOT_THERE && !s->profile_asked)
		r = from_web_identity(s, files, ret_credentials);
	if (r == AWS_NOT_THERE)
		r = from_profile(s, files, s->profile, 0, ret_credentials);
	if (r == AWS_NOT_THERE && !s->profile_asked)
		r = aws_from_container(s, ret_credentials);
	if (r == AWS_NOT_THERE && !s->profile_asked)
		r = aws_from_instance(s, ret_credentials);
	return r == AWS_NOT_THERE ? nothing_found(s) : r;
}

int aws_source_fetch(void *source, struct credentials *ret_credentials)
{
	struct aws_source *s = source;
	struct aws_files cleanup_aws_files files = {0};
	cleanup_free char *path = NULL;
	int r = aws_files_read(&files, &path);

	if (r < 0 && r != -ENOMEM)
		return remote_set_reason(s->owner, -EACCES, "%s cannot be read: %s",
					 path ? path : "~/.aws", strerror(-r));
	return r < 0 ? r : from_chain(s, &files, ret_credentials);
}

/* ---- Credentials as JSON, and tokens in files. ---- */

#define TOKEN_MAX ((size_t)64 << 10)

static void json_free(json_t **object)
{
	json_decref(*object);
}

/* Takes a member's text and overwrites it where the parser keeps it. NULL: it has none. */
static char *take_secret(json_t *object, const char *name)
{
	json_t *member = json_object_get(object, name);
	size_t len = json_string_length(member);
	char *text = json_is_string(member) && len ? strdup(json_string_value(member)) : NULL;

	if (text)
		explicit_bzero((char *)json_string_value(member), len);
	return text;
}

int aws_credentials_from_json(const void *data, size_t len, const char *token_name,
			      struct credentials *ret_credentials)
{
	struct credentials cleanup_credentials c = {0};
	CLEANUP(json_free)
	json_t *object = json_loadb(data, len, JSON_REJECT_DUPLICATES, NULL);
	const char *expires;

	if (!json_is_object(object))
		return -EBADMSG;
	c.key = take_secret(object, "AccessKeyId");
	c.secret = take_secret(object, "SecretAccessKey");
	c.token = take_secret(object, token_name);
	expires = json_string_value(json_object_get(object, "Expiration"));
	if (!c.key || !c.secret)
		return -EBADMSG;
	if (expires && aws_expiry(expires, &c.expires_ns) < 0)
		return -EBADMSG;
	*ret_credentials = c;
	c = (struct credentials){0};
	return 0;
}

int aws_read_token_file(const char *path, char **ret_text)
{
	cleanup_buf struct buf text = {0};
	size_t len;
	int r = buf_reserve(&text, TOKEN_MAX + 1);

	if (r == 0)
		r = io_read_file(AT_FDCWD, path, TOKEN_MAX, &text);
	if (r == 0) {
		len = strcspn(buf_str(&text), "\r\n");
		*ret_text = strndup(buf_str(&text), len);
		r = *ret_text ? 0 : -ENOMEM;
	}
	if (text.data)
		explicit_bzero(text.data, text.cap);
	return r;
}

/* Credentials that a program prints: credential_process of a profile, by the shell as Amazon's tools
 * run it ("Process credential provider" in the AWS SDKs and Tools Reference Guide). */

#define OUTPUT_MAX  ((size_t)64 << 10)
#define PATIENCE_NS (60 * NS_PER_S)
#define LOOK_MS	    100 /* how soon a cancel is seen */

/* Takes what is there: 1 where more may come, 0 at the end, or -errno. */
static int take_output(struct child *c, struct buf *out)
{
	ssize_t n;

	if (out->len == OUTPUT_MAX)
		return -EBADMSG;
	n = read(c->out, out->data + out->len, OUTPUT_MAX - out->len);
	if (n > 0)
		out->len += (size_t)n;
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)) ? 1 : 0;
}

static int read_all(struct aws_source *s, struct child *c, struct buf *out)
{
	int64_t deadline = clock_mono_ns() + PATIENCE_NS;
	int r = 1;

	while (r > 0) {
		struct pollfd fds[] = {{.fd = c->out, .events = POLLIN},
				       {.fd = c->err, .events = POLLIN}};

		if (atomic_load(&s->owner->cancelled))
			return -ECANCELED;
		if (clock_mono_ns() >= deadline)
			return -ETIMEDOUT;
		if (poll(fds, 2, LOOK_MS) < 0 && errno != EINTR)
			return -EIO;
		if (fds[0].revents)
			r = take_output(c, out);
		child_listen(c);
	}
	return r;
}

int aws_from_process(struct aws_source *s, const char *command, struct credentials *ret_credentials)
{
	const char *const argv[] = {"/bin/sh", "-c", command, NULL};
	struct child cleanup_child c = NO_CHILD;
	cleanup_buf struct buf out = {0};
	int r = buf_reserve(&out, OUTPUT_MAX);

	if (r == 0)
		r = child_start(argv, -1, &c);
	if (r < 0)
		return r;
	close(steal_fd(&c.in));
	r = read_all(s, &c, &out);
	if (r == 0)
		r = aws_credentials_from_json(out.data, out.len, "SessionToken", ret_credentials);
	explicit_bzero(out.data, out.cap);
	if (r == 0 || r == -ECANCELED || r == -ENOMEM)
		return r;
	if (r == -EBADMSG)
		r = -EACCES;
	return remote_set_reason(
		s->owner, r, "profile %s: credential_process printed no credentials: %s",
		s->profile, *child_last_line(&c) ? child_last_line(&c) : strerror(-r));
}

/* Credentials of a role, by Amazon's Security Token Service (its API of 2011-06-15). */

#define SESSION_NAME "epochfs"

struct answer {
	struct credentials credentials;
	char expires[64];
	int error;
};

static int keep(char **place, const char *text)
{
	secret_free(*place);
	*place = strdup(text);
	return *place ? 0 : -ENOMEM;
}

static int element(void *arg, const char *path, const char *text)
{
	struct answer *a = arg;

	if (xml_path_ends(path, "Credentials/AccessKeyId"))
		return keep(&a->credentials.key, text);
	if (xml_path_ends(path, "Credentials/SecretAccessKey"))
		return keep(&a->credentials.secret, text);
	if (xml_path_ends(path, "Credentials/SessionToken"))
		return keep(&a->credentials.token, text);
	if (xml_path_ends(path, "Credentials/Expiration"))
		snprintf(a->expires, sizeof(a->expires), "%s", text);
	return 0;
}

int aws_credentials_from_xml(const void *data, size_t len, struct credentials *ret_credentials)
{
	struct answer a = {0};
	int r = xml_each(data, len, element, &a);

	if (r == 0 && (!a.credentials.key || !a.credentials.secret || !a.credentials.token))
		r = -EBADMSG;
	if (r == 0)
		r = aws_expiry(a.expires, &a.credentials.expires_ns);
	if (r < 0) {
		credentials_free(&a.credentials);
		return r;
	}
	*ret_credentials = a.credentials;
	return 0;
}

static void put_field(struct buf *form, const char *name, const char *value)
{
	if (!value)
		return;
	buf_printf(form, "&%s=", name);
	s3_encode(form, value, false);
}

static int make_form(const struct aws_role *role, struct buf *form)
{
	cleanup_secret char *token = NULL;
	int r = role->token_file ? aws_read_token_file(role->token_file, &token) : 0;

	if (r < 0)
		return r;
	buf_printf(form, "Action=%s&Version=2011-06-15",
		   token ? "AssumeRoleWithWebIdentity" : "AssumeRole");
	put_field(form, "RoleArn", role->arn);
	put_field(form, "RoleSessionName", role->session_name ? role->session_name : SESSION_NAME);
	put_field(form, "DurationSeconds", role->duration);
	put_field(form, "ExternalId", role->external_id);
	/* Reserved now, so that growing leaves no copy of it behind. */
	if (token)
		buf_reserve(form, 3 * strlen(token) + sizeof("&WebIdentityToken="));
	put_field(form, "WebIdentityToken", token);
	return buf_error(form);
}

static const char *first_of(const char *a, const char *b)
{
	return a ? a : b;
}

/* Where STS is; free it. */
static char *sts_url(const struct aws_source *s, const struct aws_files *files)
{
	const char *services = aws_files_get(files, s->profile, "services");
	const char *endpoint = env_value("AWS_ENDPOINT_URL_STS");
	cleanup_free char *section = NULL;
	char *url = NULL;

	endpoint = first_of(endpoint, env_value("AWS_ENDPOINT_URL"));
	if (services && text_print(&section, "services %s", services) > 0)
		endpoint = first_of(endpoint, aws_files_get(files, section, "sts.endpoint_url"));
	endpoint = first_of(endpoint, aws_files_get(files, s->profile, "endpoint_url"));
	if (endpoint) {
		size_t len = strlen(endpoint);

		while (len && endpoint[len - 1] == '/')
			len--;
		return text_print(&url, "%.*s/", (int)len, endpoint) < 0 ? NULL : url;
	}
	return text_print(&url, "https://sts.%s.amazonaws.com%s/", s->region,
			  strncmp(s->region, "cn-", 3) == 0 ? ".cn" : "") < 0
		       ? NULL
		       : url;
}

static int ask(struct aws_source *s, const char *url, const struct credentials *base,
	       const struct buf *form, struct http_answer *ret_answer)
{
	struct http_headers cleanup_http_headers headers = {0};
	char hex[HASH_HEX];
	struct hash hash;
	struct sigv4 signer = {
		.scheme = &sigv4_amazon,
		.region = s->region,
		.service = "sts",
		.method = "POST",
		.payload_hash = hex,
	};
	struct http_request q = {
		.method = "POST",
		.url = url,
		.headers = &headers,
		.body = form->data,
		.body_len = form->len,
		.has_body = true,
		.sign_arg = &signer,
	};
	int r = http_headers_add(&headers, "Content-Type", "application/x-www-form-urlencoded");

	if (base) {
		hash_of(form->data, form->len, &hash);
		hash_to_hex(&hash, hex);
		signer.key = base->key;
		signer.secret = base->secret;
		signer.token = base->token;
		q.sign = sigv4_sign;
	}
	return r < 0 ? r : http_do(s->sts, &q, ret_answer);
}

/* What STS said instead of credentials. */
static int refused(struct aws_source *s, const struct aws_role *role,
		   const struct http_answer *answer)
{
	bool later = answer->status >= 500 || answer->status == 429;
	struct s3_error e;

	s3_error_decode(answer->body.data, answer->body.len, &e);
	return remote_set_reason(s->owner, later ? -EIO : -EACCES,
				 "STS does not give the role %s: status %d %s %s", role->arn,
				 answer->status, e.code, e.message);
}

int aws_from_role(struct aws_source *s, const struct aws_files *files,
		  const struct credentials *base, const struct aws_role *role,
		  struct credentials *ret_credentials)
{
	struct http_answer cleanup_http_answer answer = {0};
	cleanup_free char *url = sts_url(s, files);
	cleanup_buf struct buf form = {0};
	int r = url ? make_form(role, &form) : -ENOMEM;

	if (r < 0 && r != -ENOMEM)
		return remote_set_reason(s->owner, -EACCES,
					 "the web identity's token %s cannot be read: %s",
					 role->token_file, strerror(-r));
	if (r == 0)
		r = ask(s, url, role->token_file ? NULL : base, &form, &answer);
	if (form.data)
		explicit_bzero(form.data, form.cap);
	if (r < 0)
		return remote_set_reason(s->owner, r == -EINVAL ? -EACCES : r,
					 "STS at %s does not answer: %s", url ? url : "",
					 strerror(-r));
	if (answer.status != 200)
		return refused(s, role, &answer);
	r = aws_credentials_from_xml(answer.body.data, answer.body.len, ret_credentials);
	if (answer.body.data)
		explicit_bzero(answer.body.data, answer.body.cap);
	if (r == -EBADMSG)
		r = remote_set_reason(s->owner, -EIO, "STS at %s answered with no credentials",
				      url);
	return r;
}
