/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials as JSON, and tokens in files. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include "lib/remote/aws_source_internal.h"
#include "lib/util/io.h"
#include "lib/util/parse.h"

#define TOKEN_MAX ((size_t)64 << 10)

static void json_free(json_t **object)
{
	json_decref(*object);
}

int aws_expiry(const char *text, int64_t *ret_ns)
{
	size_t len = strlen(text);
	char utc[40];

	if (len > 6 && !strcmp(text + len - 6, "+00:00") && len - 6 + 2 <= sizeof(utc)) {
		snprintf(utc, sizeof(utc), "%.*sZ", (int)(len - 6), text);
		text = utc;
	}
	return parse_time(text, ret_ns) < 0 ? -EBADMSG : 0;
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
