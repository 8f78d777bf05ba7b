/* SPDX-License-Identifier: Apache-2.0 */
/* Keys to be deleted together. */
#include "lib/remote/remote_keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int remote_keys_add(struct remote_keys *keys, const char *key)
{
	buf_put(&keys->text, key, strlen(key) + 1);
	keys->count++;
	return buf_error(&keys->text);
}

void remote_keys_free(struct remote_keys *keys)
{
	buf_free(&keys->text);
	keys->count = 0;
}

int remote_keys_delete(struct remote *r, const struct remote_keys *keys)
{
	cleanup_free const char **each = NULL;
	const char *key = (const char *)keys->text.data;

	if (buf_error(&keys->text) < 0)
		return -ENOMEM;
	if (!keys->count)
		return 0;
	each = calloc(keys->count, sizeof(*each));
	if (!each)
		return -ENOMEM;
	for (size_t i = 0; i < keys->count; i++, key += strlen(key) + 1)
		each[i] = key;
	return remote_delete_many(r, each, keys->count);
}
