/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials of a role, by Amazon's Security Token Service (its API of 2011-06-15). */
#include <errno.h>
#include <string.h>
#include "lib/net/aws_source_internal.h"
#include "lib/net/s3_xml.h"
#include "lib/net/sigv4.h"
#include "lib/net/xml.h"
#include "lib/util/hash.h"
#include "lib/util/text.h"

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
