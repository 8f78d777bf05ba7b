/* SPDX-License-Identifier: Apache-2.0 */
/* Where Google's credentials come from. The metadata service's protocol is Google's, from "About VM
 * metadata" and "Access tokens" in the Compute Engine documentation. */
#include "lib/net/credential_sources.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include "lib/net/aws_files.h"
#include "lib/net/http.h"
#include "lib/util/clock.h"
#include "lib/util/text.h"

#define METADATA_HOST	"metadata.google.internal"
#define TOKEN_PATH	"/computeMetadata/v1/instance/service-accounts/default/token"
#define NEAR_CONNECT_NS (2 * NS_PER_S)
#define NEAR_TOTAL_NS	(10 * NS_PER_S)
#define LIFE_MAX_S	86400

struct gs_source {
	struct remote *owner;
	struct http *near;
	bool was_instance; /* the metadata service once gave a token */
};

int gs_source_new(struct remote *owner, struct gs_source **ret_source)
{
	const struct http_config near = {.limits = {.connections = 1,
						    .connect_timeout_ns = NEAR_CONNECT_NS,
						    .total_timeout_ns = NEAR_TOTAL_NS}};
	struct gs_source *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->owner = owner;
	r = http_new(owner, &near, &s->near);
	if (r < 0) {
		free(s);
		return r;
	}
	*ret_source = s;
	return 0;
}

void gs_source_free(struct gs_source *source)
{
	if (source)
		http_free(source->near);
	free(source);
}

int gs_token_from_json(const void *data, size_t len, struct credentials *ret_credentials)
{
	json_t *object = json_loadb(data, len, 0, NULL);
	json_t *token = json_object_get(object, "access_token");
	json_int_t life = json_integer_value(json_object_get(object, "expires_in"));
	struct credentials c = {0};
	int r = -EBADMSG;

	if (json_string_length(token) && life > 0) {
		c.token = strdup(json_string_value(token));
		c.expires_ns = clock_wall_ns() + (life < LIFE_MAX_S ? life : LIFE_MAX_S) * NS_PER_S;
		r = c.token ? 0 : -ENOMEM;
		explicit_bzero((char *)json_string_value(token), json_string_length(token));
	}
	json_decref(object);
	if (r == 0)
		*ret_credentials = c;
	return r;
}

static int ask_instance(struct gs_source *s, struct credentials *ret_credentials)
{
	const char *host = env_value("GCE_METADATA_HOST");
	struct http_headers cleanup_http_headers headers = {0};
	struct http_answer cleanup_http_answer answer = {0};
	cleanup_free char *url = NULL;
	struct http_request q = {.method = "GET", .headers = &headers};
	int r = http_headers_add(&headers, "Metadata-Flavor", "Google");

	if (r < 0)
		return r;
	if (text_print(&url, "http://%s" TOKEN_PATH, host ? host : METADATA_HOST) < 0)
		return -ENOMEM;
	q.url = url;
	r = http_do(s->near, &q, &answer);
	if (r == 0 && answer.status != 200)
		r = -EIO;
	if (r == 0)
		r = gs_token_from_json(answer.body.data, answer.body.len, ret_credentials);
	if (answer.body.data)
		explicit_bzero(answer.body.data, answer.body.cap);
	return r;
}

static int from_instance(struct gs_source *s, struct credentials *ret_credentials)
{
	int r = ask_instance(s, ret_credentials);

	if (r == 0) {
		s->was_instance = true;
		return 0;
	}
	if (r == -ENOMEM || r == -ECANCELED)
		return r;
	if (!s->was_instance)
		return remote_set_reason(s->owner, -EACCES,
					 "no credentials found: set GOOGLE_OAUTH_ACCESS_TOKEN, or "
					 "GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, or run where "
					 "the metadata service gives a service account's");
	return remote_set_reason(s->owner, remote_may_retry(r) ? r : -EIO,
				 "the metadata service gave no token");
}

int gs_source_fetch(void *source, struct credentials *ret_credentials)
{
	struct gs_source *s = source;
	const char *token = env_value("GOOGLE_OAUTH_ACCESS_TOKEN");
	const char *key = env_value("GS_ACCESS_KEY_ID");
	const char *secret = env_value("GS_SECRET_ACCESS_KEY");
	const struct credentials bearer = {.token = (char *)token};
	const struct credentials hmac = {.key = (char *)key, .secret = (char *)secret};

	if (token)
		return credentials_copy(&bearer, ret_credentials);
	if (key && secret)
		return credentials_copy(&hmac, ret_credentials);
	if (key || secret)
		return remote_set_reason(s->owner, -EACCES,
					 "of GS_ACCESS_KEY_ID and "
					 "GS_SECRET_ACCESS_KEY only one is set");
	return from_instance(s, ret_credentials);
}
