/* SPDX-License-Identifier: Apache-2.0 */
/* The lease's object. */
#include "lib/format/lease.h"

#include <errno.h>
#include <string.h>

#include "lib/format/wire.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"

static bool is_uuid(const char *text)
{
	cleanup_json json_t *value = json_string(text);
	char uuid[37];

	return value && json_wire_uuid(value, uuid) == 0;
}

static bool valid(const struct lease_info *l)
{
	return l->generation >= 1 && l->generation <= INT64_MAX && l->pid <= INT64_MAX &&
	       l->pid_started <= INT64_MAX && l->pid_namespace <= INT64_MAX &&
	       l->renewed <= INT64_MAX && l->pending <= INT64_MAX && l->since_ns >= 0 &&
	       (!l->nodes || (l->nodes >= LEASE_NODES_MIN && l->nodes <= LEASE_NODES_MAX)) &&
	       l->ttl_ns >= LEASE_TTL_MIN_NS && l->ttl_ns <= LEASE_TTL_MAX_NS &&
	       is_uuid(l->holder) && is_uuid(l->boot_id);
}

int lease_encode(const struct lease_info *l, struct buf *out)
{
	cleanup_json json_t *object = NULL;
	char since[FORMAT_MAX];

	if (!valid(l))
		return -EINVAL;
	format_time(l->since_ns, since);
	object = json_pack("{s:i, s:I, s:s, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:b, "
			   "s:I}",
			   "format", l->nodes ? LEASE_FORMAT_SET : LEASE_FORMAT, "generation",
			   (json_int_t)l->generation, "holder", l->holder, "host",
			   json_wire_text(l->host, LEASE_NAME_MAX), "node",
			   json_wire_text(l->node, LEASE_NAME_MAX), "mountpoint",
			   json_wire_text(l->mountpoint, LEASE_PATH_MAX), "boot_id", l->boot_id,
			   "pid", (json_int_t)l->pid, "pid_started", (json_int_t)l->pid_started,
			   "pid_namespace", (json_int_t)l->pid_namespace, "since", since, "renewed",
			   (json_int_t)l->renewed, "ttl_ms", (json_int_t)(l->ttl_ns / NS_PER_MS),
			   "released", (int)l->released, "pending", (json_int_t)l->pending);
	if (object && l->nodes &&
	    (json_object_set_new(object, "run", json_wire_text(l->run, LEASE_NAME_MAX)) ||
	     json_object_set_new(object, "nodes", json_integer(l->nodes))))
		return -ENOMEM;
	return object ? json_wire_print(object, LEASE_ENCODED_MAX, out) : -ENOMEM;
}

/* A string of at most `max` bytes, fit to be printed. */
static int decode_text(const json_t *value, size_t max, char *ret_text)
{
	const char *text = json_string_value(value);
	size_t len = json_string_length(value);

	if (!text || len > max || strlen(text) != len)
		return -EBADMSG;
	memcpy(ret_text, text, len + 1);
	printable_mask(ret_text);
	return 0;
}

static int decode_names(const json_t *o, struct lease_info *l)
{
	if (decode_text(json_object_get(o, "host"), LEASE_NAME_MAX, l->host) < 0 ||
	    decode_text(json_object_get(o, "node"), LEASE_NAME_MAX, l->node) < 0 ||
	    decode_text(json_object_get(o, "mountpoint"), LEASE_PATH_MAX, l->mountpoint) < 0 ||
	    json_wire_uuid(json_object_get(o, "holder"), l->holder) < 0 ||
	    json_wire_uuid(json_object_get(o, "boot_id"), l->boot_id) < 0)
		return -EBADMSG;
	return 0;
}

static int decode_numbers(const json_t *o, struct lease_info *l)
{
	uint32_t ttl_ms;

	if (json_wire_u64(json_object_get(o, "generation"), &l->generation) < 0 ||
	    json_wire_u64(json_object_get(o, "pid"), &l->pid) < 0 ||
	    json_wire_u64(json_object_get(o, "pid_started"), &l->pid_started) < 0 ||
	    json_wire_u64(json_object_get(o, "pid_namespace"), &l->pid_namespace) < 0 ||
	    json_wire_u64(json_object_get(o, "renewed"), &l->renewed) < 0 ||
	    json_wire_u64(json_object_get(o, "pending"), &l->pending) < 0 ||
	    json_wire_time(json_object_get(o, "since"), &l->since_ns) < 0 ||
	    json_wire_u32(json_object_get(o, "ttl_ms"), LEASE_TTL_MIN_NS / NS_PER_MS,
			  LEASE_TTL_MAX_NS / NS_PER_MS, &ttl_ms) < 0 ||
	    !json_is_boolean(json_object_get(o, "released")) || !l->generation)
		return -EBADMSG;
	l->ttl_ns = ttl_ms * NS_PER_MS;
	l->released = json_is_true(json_object_get(o, "released"));
	return 0;
}

static int decode_set(const json_t *o, struct lease_info *l)
{
	if (json_integer_value(json_object_get(o, "format")) != LEASE_FORMAT_SET)
		return 0;
	if (decode_text(json_object_get(o, "run"), LEASE_NAME_MAX, l->run) < 0 ||
	    json_wire_u32(json_object_get(o, "nodes"), LEASE_NODES_MIN, LEASE_NODES_MAX,
			  &l->nodes) < 0)
		return -EBADMSG;
	return 0;
}

int lease_decode(const void *data, size_t len, struct lease_info *ret_lease)
{
	cleanup_json json_t *object = NULL;
	struct lease_info l = {0};
	int error = json_wire_parse(data, len, LEASE_ENCODED_MAX, LEASE_FORMAT_SET, &object);

	if (!error)
		error = decode_names(object, &l);
	if (!error)
		error = decode_numbers(object, &l);
	if (!error)
		error = decode_set(object, &l);
	if (!error)
		*ret_lease = l;
	return error;
}
