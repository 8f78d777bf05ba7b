/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded JSON. */
#include "lib/format/json_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/parse.h"
#include "lib/util/text.h"

#define UUID_LEN    36
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

int json_wire_parse(const void *data, size_t len, size_t max, int format, json_t **ret_object)
{
	cleanup_json json_t *object = NULL;
	json_error_t error = {0};
	uint64_t found;

	if (len > max)
		return -EBADMSG;
	object = json_loadb(data, len, JSON_REJECT_DUPLICATES, &error);
	/* What is taken for damage may be repaired away. */
	if (!object && json_error_code(&error) == json_error_out_of_memory)
		return -ENOMEM;
	if (!json_is_object(object) ||
	    json_wire_u64(json_object_get(object, "format"), &found) < 0 || found < 1)
		return -EBADMSG;
	if (found > (uint64_t)format)
		return -EPROTONOSUPPORT;
	*ret_object = steal_ptr(object);
	return 0;
}

int json_wire_print(const json_t *object, size_t max, struct buf *out)
{
	cleanup_free char *text = json_dumps(object, JSON_INDENT(2));
	size_t len;

	if (!text)
		return -ENOMEM;
	len = strlen(text);
	if (len + 1 > max)
		return -EFBIG;
	buf_put(out, text, len);
	buf_put_u8(out, '\n');
	return buf_error(out);
}

int json_wire_u64(const json_t *value, uint64_t *ret_value)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -EBADMSG;
	*ret_value = (uint64_t)json_integer_value(value);
	return 0;
}

int json_wire_u32(const json_t *value, uint32_t min, uint32_t max, uint32_t *ret_value)
{
	uint64_t wide;

	if (json_wire_u64(value, &wide) < 0 || wide < min || wide > max)
		return -EBADMSG;
	*ret_value = (uint32_t)wide;
	return 0;
}

int json_wire_time(const json_t *value, int64_t *ret_ns)
{
	int64_t ns;

	if (!json_is_string(value) || parse_time(json_string_value(value), &ns) < 0 || ns < 0)
		return -EBADMSG;
	*ret_ns = ns;
	return 0;
}

int json_wire_uuid(const json_t *value, char ret_uuid[37])
{
	const char *text = json_string_value(value);

	if (!text || strlen(text) != UUID_LEN)
		return -EBADMSG;
	for (size_t i = 0; i < UUID_LEN; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? text[i] != '-' : !strchr("0123456789abcdef", text[i]))
			return -EBADMSG;
	}
	memcpy(ret_uuid, text, UUID_LEN + 1);
	return 0;
}

json_t *json_wire_text(const char *text, size_t max)
{
	cleanup_buf struct buf clean = {0};
	const char *wire;

	for (const uint8_t *p = (const uint8_t *)text; *p;) {
		size_t len = utf8_len(p);
		size_t more = len ? len : strlen(REPLACEMENT);

		if (clean.len + more > max)
			break;
		buf_put(&clean, len ? (const char *)p : REPLACEMENT, more);
		p += len ? len : 1;
	}
	/* It may need a byte more than there is. */
	wire = buf_str(&clean);
	return clean.failed ? NULL : json_stringn(wire, clean.len);
}
