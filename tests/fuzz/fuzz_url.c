/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: URLs of remotes, their parts, and the form in which they are shown. */
#include "lib/net/dav.h"
#include "lib/net/s3_url.h"
#include "tests/fuzz/fuzz.h"

static int see(void *arg, const char *name, const char *value, const char *raw)
{
	(void)arg;
	fuzz_assert(!strchr(name, '=') && !strchr(raw, '&') && strlen(value) <= strlen(raw));
	return 0;
}

static void check_s3(const struct remote_url *url)
{
	static const struct aws_files files;
	struct s3_place cleanup_s3_place place = {0};
	cleanup_buf struct buf text = {0};

	if (s3_place_resolve(url, &files, &place))
		return;
	fuzz_assert(place.bucket[0] && !strchr(place.bucket, '/'));
	fuzz_assert(!place.prefix[0] || place.prefix[strlen(place.prefix) - 1] == '/');
	s3_object_url(&place, "epochs/1", &text);
	s3_list_url(&place, "epochs/", "token&", &text);
	s3_delete_url(&place, &text);
	for (size_t i = 0; i < text.len; i++)
		fuzz_assert(text.data[i] > ' ' && text.data[i] != 0x7f);
}

static void check_dav(const struct remote_url *url)
{
	struct dav_url cleanup_dav_url d = {0};

	if (dav_url_parse(url, &d))
		return;
	fuzz_assert(strlen(d.path_decoded) <= strlen(d.path) && !strchr(d.authority, '/'));
	fuzz_assert(!strstr(d.path, "/../") && !strchr(d.path, '?'));
}

static void check_shown(const char *text)
{
	char shown[64], all[1024];

	remote_url_redact(text, shown, sizeof(shown));
	remote_url_redact(text, all, sizeof(all));
	for (const char *p = all; *p; p++)
		fuzz_assert((unsigned char)*p >= ' ' && *p != 0x7f);
	fuzz_assert(strlen(shown) < sizeof(shown));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct remote_url cleanup_remote_url url = {0};
	cleanup_buf struct buf text = {0};
	char *decoded = NULL;

	buf_put(&text, data, len);
	check_shown(buf_str(&text));
	if (remote_url_decode(buf_str(&text), &decoded) == 0)
		fuzz_assert(strlen(decoded) <= strlen(buf_str(&text)));
	free(decoded);
	if (remote_url_parse(buf_str(&text), &url))
		return 0;
	remote_url_each_param(url.query, see, NULL);
	if (!strcmp(url.scheme, "s3") || !strcmp(url.scheme, "gs"))
		check_s3(&url);
	if (!strcmp(url.scheme, "http") || !strcmp(url.scheme, "https"))
		check_dav(&url);
	return 0;
}
