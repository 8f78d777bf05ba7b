/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a request. */
#include "lib/admin/control_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "lib/epochs/epochs.h"

int request_fail(struct request *r, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->message, sizeof(r->message), fmt, ap);
	va_end(ap);
	return error;
}

const char *request_text(const struct request *r, const char *key)
{
	return json_string_value(json_object_get(r->json, key));
}

int request_number(struct request *r, const char *key, uint64_t *ret_number)
{
	const json_t *value = json_object_get(r->json, key);
	json_int_t number = json_integer_value(value);

	if (!value || json_is_null(value))
		return -ENOENT;
	if (!json_is_integer(value) || number < 0)
		return request_fail(r, -EINVAL, "\"%s\" is not a number from 0", key);
	*ret_number = (uint64_t)number;
	return 0;
}

/* An each_fn that stops at the first. */
static int there_is_one(void *arg, uint64_t number, int64_t sealed_ns)
{
	(void)arg;
	(void)number;
	(void)sealed_ns;
	return 1;
}

static int no_such_epoch(struct request *r, const char *text)
{
	int some = strcmp(text, "latest") ? 0 : epochs_numbers(r->vol, 0, there_is_one, NULL);

	if (some > 0)
		return request_fail(
			r, -ENOENT,
			"no epoch is complete: name one by its number (`epochfs log` says which there are, and why)");
	if (!strcmp(text, "latest"))
		return request_fail(r, -ENOENT, "there is no epoch yet");
	return request_fail(r, -ENOENT, "there is no epoch %s: `epochfs log` lists those there are",
			    text);
}

int request_epoch(struct request *r, const char *key, uint64_t *ret_number)
{
	const char *text = request_text(r, key);
	char digits[24];
	uint64_t number;
	int error;

	if (!text) {
		error = request_number(r, key, &number);
		if (error == -ENOENT)
			return request_fail(r, -EINVAL, "no epoch is given");
		if (error)
			return error;
		snprintf(digits, sizeof(digits), "%" PRIu64, number);
		text = digits;
	}
	error = epochs_resolve(r->vol, text, ret_number);
	if (error == -ENOENT)
		return no_such_epoch(r, text);
	if (error == -EINVAL)
		return request_fail(
			r, error,
			"%s names no epoch: give a number, step=N, latest, current, a tag, or "
			"@AGE such as @2h",
			text);
	return error;
}
