/* SPDX-License-Identifier: Apache-2.0 */
/* Where an S3 or GCS remote is, and the URLs of requests. */
#include "lib/net/s3_url.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include "lib/remote/remote_ops.h"
#include "lib/util/cleanup.h"
#include "lib/util/text.h"

#define BUCKET_CHARS                                                                               \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ"                                                               \
	"abcdefghijklmnopqrstuvwxyz0123456789.-_"
#define REGION_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
#define BUCKET_MIN   3
#define BUCKET_MAX   255 /* of the oldest buckets; today's have up to 63 */
#define REGION_MAX   63
#define LIST_MAX     "1000"
/* Of a key, as S3 counts. */
#define FULL_KEY_MAX 1024

void s3_place_free(struct s3_place *place)
{
	free(place->bucket);
	free(place->prefix);
	free(place->region);
	free(place->base);
	free(place->profile);
	free(place->ca_file);
	*place = (struct s3_place){0};
}

/* The profile that counts where the URL names none. */
static const char *aws_default_profile(void)
{
	const char *profile = env_value("AWS_PROFILE");

	if (!profile)
		profile = env_value("AWS_DEFAULT_PROFILE");
	return profile ? profile : "default";
}

/* ---- the URL of the remote */

struct parsing {
	bool is_gs;
	char *endpoint, *region, *profile, *ca_file, *path_style; /* as given; NULL: not */
};

static void parsing_free(struct parsing *p)
{
	free(p->endpoint);
	free(p->region);
	free(p->profile);
	free(p->ca_file);
	free(p->path_style);
}

static int set_param(void *arg, const char *name, const char *value, const char *raw)
{
	struct parsing *p = arg;
	const struct {
		const char *name;
		char **value;
	} params[] = {{"endpoint", &p->endpoint},
		      {"region", &p->region},
		      {"ca-file", &p->ca_file},
		      {"path-style", &p->path_style},
		      {"profile", p->is_gs ? NULL : &p->profile}};

	(void)raw;
	for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++) {
		if (strcmp(params[i].name, name) != 0)
			continue;
		if (!params[i].value || !*value)
			break;
		free(*params[i].value);
		*params[i].value = strdup(value);
		return *params[i].value ? 0 : -ENOMEM;
	}
	return remote_open_reason(-EINVAL,
				  "%s is no parameter of this remote, or has no value; there are "
				  "endpoint, region, path-style, ca-file%s",
				  name, p->is_gs ? "" : ", profile");
}

static bool has_control(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return true;
	return false;
}

/* A part that a server or library might take for a way up, or fold, is none that we can sign. */
static bool prefix_valid(const char *prefix)
{
	if (has_control(prefix) || strlen(prefix) + REMOTE_KEY_MAX > FULL_KEY_MAX)
		return false;
	while (*prefix) {
		size_t len = strcspn(prefix, "/");

		if (len == 0 || (len <= 2 && strspn(prefix, ".") >= len))
			return false;
		prefix += len + (prefix[len] == '/');
	}
	return true;
}

/* BUCKET[/PREFIX[/]] */
static int set_bucket(const char *rest, struct s3_place *place)
{
	cleanup_free char *prefix = NULL;
	size_t len;
	int r;

	if (strncmp(rest, "//", 2) != 0)
		return -EINVAL;
	rest += 2;
	len = strcspn(rest, "/");
	if (len < BUCKET_MIN || len > BUCKET_MAX || strspn(rest, BUCKET_CHARS) < len)
		return remote_open_reason(-EINVAL,
					  "a bucket's name has 3 to 63 of a-z, 0-9, . and -");
	place->bucket = strndup(rest, len);
	rest += len + (rest[len] == '/');
	r = place->bucket ? remote_url_decode(rest, &prefix) : -ENOMEM;
	if (r < 0)
		return r;
	len = strlen(prefix);
	while (len && prefix[len - 1] == '/')
		prefix[--len] = '\0';
	if (!prefix_valid(prefix))
		return remote_open_reason(
			-EINVAL, "the prefix is too long, or has a part that is empty, . or "
				 "..; use another");
	return text_print(&place->prefix, "%s%s", prefix, len ? "/" : "") < 0 ? -ENOMEM : 0;
}

/* ---- what the URL leaves to the environment and the files */

static const char *first_of(const char *a, const char *b)
{
	return a && *a ? a : b;
}

static bool is_true(const char *text)
{
	return text && (!strcasecmp(text, "true") || !strcmp(text, "1"));
}

static const char *configured_endpoint(const char *profile, const struct aws_files *files)
{
	const char *services = aws_files_get(files, profile, "services");
	const char *endpoint = env_value("AWS_ENDPOINT_URL_S3");
	cleanup_free char *section = NULL;

	if (is_true(first_of(env_value("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"),
			     aws_files_get(files, profile, "ignore_configured_endpoint_urls"))))
		return NULL;
	endpoint = first_of(endpoint, env_value("AWS_ENDPOINT_URL"));
	if (!endpoint && services && text_print(&section, "services %s", services) > 0)
		endpoint = aws_files_get(files, section, "s3.endpoint_url");
	return first_of(endpoint, aws_files_get(files, profile, "endpoint_url"));
}

static bool is_amazon(const char *endpoint)
{
	static const char *const ends[] = {".amazonaws.com", ".amazonaws.com.cn"};
	const char *host = strstr(endpoint, "//") + 2;
	size_t len = strcspn(host, ":/");

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		size_t end = strlen(ends[i]);

		if (len > end && !strncasecmp(host + len - end, ends[i], end))
			return true;
	}
	return false;
}

/* http(s)://host[:port][/path], nothing hidden in it. */
static bool endpoint_valid(const char *endpoint)
{
	const char *host = strstr(endpoint, "://");

	if (!host ||
	    (strncasecmp(endpoint, "http:", 5) != 0 && strncasecmp(endpoint, "https:", 6) != 0))
		return false;
	if (host - endpoint > 5 || !host[3] || host[3] == '/')
		return false;
	return !has_control(endpoint) && !strpbrk(endpoint, "@?# \\%\"<>");
}

/* Is the bucket in the path? 1, 0, or -EINVAL. */
static int path_style(const struct parsing *p, const struct s3_place *place, const char *endpoint,
		      const struct aws_files *files)
{
	const char *style =
		p->is_gs ? "path" : aws_files_get(files, place->profile, "s3.addressing_style");

	if (p->path_style) {
		if (strcmp(p->path_style, "0") != 0 && strcmp(p->path_style, "1") != 0)
			return remote_open_reason(-EINVAL, "path-style is 1 or 0");
		return p->path_style[0] == '1';
	}
	if (style && !strcmp(style, "path"))
		return 1;
	if (style && !strcmp(style, "virtual"))
		return 0;
	return !is_amazon(endpoint) || strchr(place->bucket, '.');
}

static int set_base(const struct parsing *p, const struct aws_files *files, struct s3_place *place)
{
	const char *given = p->endpoint;
	cleanup_free char *endpoint = NULL;
	size_t len, scheme;
	int in_path, r;

	if (!given && p->is_gs)
		given = first_of(env_value("GCS_ENDPOINT_URL"), "https://storage.googleapis.com");
	else if (!given)
		given = configured_endpoint(place->profile, files);
	r = given ? text_print(&endpoint, "%s", given)
		  : text_print(&endpoint, "https://s3.%s.amazonaws.com%s", place->region,
			       strncmp(place->region, "cn-", 3) == 0 ? ".cn" : "");
	if (r < 0)
		return -ENOMEM;
	if (!endpoint_valid(endpoint))
		return remote_open_reason(-EINVAL,
					  "the endpoint is no http(s)://HOST[:PORT][/PATH]");
	len = strlen(endpoint);
	while (endpoint[len - 1] == '/')
		endpoint[--len] = '\0';
	in_path = path_style(p, place, endpoint, files);
	if (in_path < 0)
		return in_path;
	scheme = (size_t)(strstr(endpoint, "//") + 2 - endpoint);
	r = in_path ? text_print(&place->base, "%s/%s", endpoint, place->bucket)
		    : text_print(&place->base, "%.*s%s.%s", (int)scheme, endpoint, place->bucket,
				 endpoint + scheme);
	return r < 0 ? -ENOMEM : 0;
}

static int set_region(const struct parsing *p, const struct aws_files *files,
		      struct s3_place *place)
{
	const char *region = p->region;

	if (p->is_gs) {
		region = first_of(region, "auto");
	} else {
		region = first_of(region, env_value("AWS_REGION"));
		region = first_of(region, env_value("AWS_DEFAULT_REGION"));
		region = first_of(region, aws_files_get(files, place->profile, "region"));
		region = first_of(region, "us-east-1");
	}
	if (strlen(region) > REGION_MAX || region[strspn(region, REGION_CHARS)])
		return remote_open_reason(-EINVAL, "the region has a character that none has");
	place->region = strdup(region);
	return place->region ? 0 : -ENOMEM;
}

/* Takes over what the URL gave, then asks the rest. */
static int set_profile_and_ca(struct parsing *p, const struct aws_files *files,
			      struct s3_place *place)
{
	const char *ca = NULL;

	place->profile_asked = p->profile != NULL;
	if (p->profile)
		place->profile = steal_ptr(p->profile);
	else
		place->profile = strdup(p->is_gs ? "" : aws_default_profile());
	if (!place->profile)
		return -ENOMEM;
	if (p->ca_file)
		place->ca_file = steal_ptr(p->ca_file);
	else if (!p->is_gs)
		ca = first_of(env_value("AWS_CA_BUNDLE"),
			      aws_files_get(files, place->profile, "ca_bundle"));
	if (ca && !(place->ca_file = strdup(ca)))
		return -ENOMEM;
	return 0;
}

int s3_place_resolve(const struct remote_url *url, const struct aws_files *files,
		     struct s3_place *ret_place)
{
	struct s3_place cleanup_s3_place place = {.is_gs = !strcmp(url->scheme, "gs")};
	CLEANUP(parsing_free) struct parsing p = {.is_gs = place.is_gs};
	int r = remote_url_each_param(url->query, set_param, &p);

	if (r == 0)
		r = set_bucket(url->rest, &place);
	if (r == 0)
		r = set_profile_and_ca(&p, files, &place);
	if (r == 0)
		r = set_region(&p, files, &place);
	if (r == 0)
		r = set_base(&p, files, &place);
	if (r < 0)
		return r;
	*ret_place = place;
	place = (struct s3_place){0};
	return 0;
}

/* ---- URLs of requests */

void s3_encode_byte(struct buf *out, uint8_t byte, bool keep_slash)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789-._~";

	if (memchr(plain, byte, sizeof(plain) - 1) || (keep_slash && byte == '/'))
		buf_put_u8(out, byte);
	else
		buf_printf(out, "%%%02X", byte);
}

void s3_encode(struct buf *out, const char *text, bool keep_slash)
{
	for (; *text; text++)
		s3_encode_byte(out, (uint8_t)*text, keep_slash);
}

void s3_object_url(const struct s3_place *place, const char *key, struct buf *out)
{
	buf_printf(out, "%s/", place->base);
	s3_encode(out, place->prefix, true);
	s3_encode(out, key, true);
}

void s3_version_url(const struct s3_place *place, const char *key, const char *version,
		    struct buf *out)
{
	s3_object_url(place, key, out);
	buf_printf(out, "?versionId=");
	s3_encode(out, version, false);
}

void s3_versions_url(const struct s3_place *place, const char *begin, struct buf *out)
{
	buf_printf(out, "%s/?max-keys=" LIST_MAX "&prefix=", place->base);
	s3_encode(out, place->prefix, false);
	s3_encode(out, begin, false);
	buf_printf(out, "&versions=");
}

void s3_delete_url(const struct s3_place *place, struct buf *out)
{
	buf_printf(out, "%s/?delete=", place->base);
}

void s3_list_url(const struct s3_place *place, const char *prefix, const char *token,
		 struct buf *out)
{
	buf_printf(out, "%s/?", place->base);
	if (token) {
		buf_printf(out, "continuation-token=");
		s3_encode(out, token, false);
		buf_printf(out, "&");
	}
	buf_printf(out, "encoding-type=url&list-type=2&max-keys=" LIST_MAX "&prefix=");
	s3_encode(out, place->prefix, false);
	s3_encode(out, prefix, false);
}
