/* SPDX-License-Identifier: Apache-2.0 */
/* Summary objects. */
#include "lib/meta/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "lib/format/names.h"
#include "lib/meta/records.h"
#include "lib/remote/remote.h"
#include "lib/util/cleanup.h"
#include "lib/util/log.h"

int summary_add(struct buf *out, const char *text)
{
	buf_printf(out, "%s%s", out->len ? ",\n" : "{\"format\":1,\"records\":[\n", text);
	return buf_error(out);
}

int summary_put(struct remote *remote, uint64_t last, struct buf *out)
{
	char key[KEY_MAX];

	buf_printf(out, "]}\n");
	if (buf_error(out))
		return -ENOMEM;
	if (out->len > SUMMARY_ENCODED_MAX)
		return 0;
	summary_key(last, key);
	return remote_put(remote, key, out->data, out->len);
}

struct summary_walk {
	struct remote *remote;
	uint64_t number; /* after this one */
	int (*fn)(void *arg, uint64_t number, const char *text);
	void *arg;
};

/* A summary may hold the epochs of its own hundred only, so that a drop knows which hold one. */
static bool may_hold(uint64_t last, uint64_t number)
{
	return number && number <= last && last - number < SUMMARY_EVERY;
}

static int give_records(uint64_t last, const json_t *records,
			int (*fn)(void *arg, uint64_t number, const char *text), void *arg)
{
	json_t *record;
	size_t i;

	json_array_foreach((json_t *)(uintptr_t)records, i, record)
	{
		json_int_t number = json_integer_value(json_object_get(record, "epoch"));
		cleanup_free char *text = json_dumps(record, JSON_COMPACT);
		int result;

		if (number <= 0 || !text || !may_hold(last, (uint64_t)number))
			continue;
		result = fn(arg, (uint64_t)number, text);
		if (result)
			return result;
	}
	return 0;
}

int summary_read(struct remote *remote, uint64_t last,
		 int (*fn)(void *arg, uint64_t number, const char *text), void *arg)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	json_t *object;
	int error;

	summary_key(last, key);
	error = remote_get(remote, key, 0, SUMMARY_ENCODED_MAX + 1, &text);
	if (error)
		return error;
	object = text.len > SUMMARY_ENCODED_MAX ? NULL
						: json_loadb((const char *)text.data, text.len,
							     JSON_REJECT_DUPLICATES, NULL);
	if (json_is_array(json_object_get(object, "records")))
		error = give_records(last, json_object_get(object, "records"), fn, arg);
	else
		error = -EBADMSG;
	json_decref(object);
	return error;
}

static int read_listed(void *arg, const char *key, uint64_t size)
{
	struct summary_walk *walk = arg;
	uint64_t last;
	int error;

	if (summary_key_parse(key, &last) || last <= walk->number || size > SUMMARY_ENCODED_MAX)
		return 0;
	error = summary_read(walk->remote, last, walk->fn, walk->arg);
	if (error == -EBADMSG) {
		log_warn("%s is damaged; the epochs are read one by one", key);
		error = 0;
	}
	return error == -ENOENT ? 0 : error;
}

int summary_each(struct remote *remote, uint64_t after,
		 int (*fn)(void *arg, uint64_t number, const char *text), void *arg)
{
	struct summary_walk walk = {.remote = remote, .number = after, .fn = fn, .arg = arg};

	return remote_list(remote, PREFIX_SUMMARIES, read_listed, &walk);
}

struct forgetting {
	uint64_t number;
	struct remote_keys keys;
};

static int collect_one(void *arg, const char *key, uint64_t size)
{
	struct forgetting *f = arg;
	uint64_t last;

	(void)size;
	if (summary_key_parse(key, &last) || !may_hold(last, f->number))
		return 0;
	return remote_keys_add(&f->keys, key);
}

int summary_forget(struct remote *remote, uint64_t number)
{
	struct forgetting f = {.number = number};
	int error = remote_list(remote, PREFIX_SUMMARIES, collect_one, &f);

	if (!error)
		error = remote_keys_delete(remote, &f.keys);
	remote_keys_free(&f.keys);
	return error;
}
