/* SPDX-License-Identifier: Apache-2.0 */
/* Magic and version, shortest varints, texts, checksums; bounded JSON. */
#include "lib/format/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/parse.h"
#include "lib/util/text.h"

#define CRC_LEN 4

int wire_magic(struct reader *r, const char magic[4], uint8_t version)
{
	const uint8_t *p = reader_skip(r, 4);

	if (!p || memcmp(p, magic, 3) || p[3] == 0)
		return -EBADMSG;
	return p[3] > version ? -EPROTONOSUPPORT : 0;
}

void wire_put_magic(struct buf *out, const char magic[4], uint8_t version)
{
	buf_put(out, magic, 3);
	buf_put_u8(out, version);
}

uint64_t wire_varint(struct reader *r, uint64_t max)
{
	const uint8_t *start = r->p;
	uint64_t v = reader_varint(r);

	if (r->failed)
		return 0;
	if (v > max || (r->p - start > 1 && r->p[-1] == 0)) {
		r->failed = true;
		return 0;
	}
	return v;
}

const uint8_t *wire_bytes(struct reader *r, size_t max, size_t *ret_len)
{
	uint64_t len = wire_varint(r, max);
	const uint8_t *p = reader_skip(r, len);

	if (p)
		*ret_len = (size_t)len;
	return p;
}

const char *wire_text(struct reader *r, size_t max, size_t *ret_len)
{
	size_t len = 0;
	const uint8_t *p = wire_bytes(r, max, &len);
	const uint8_t *end = reader_skip(r, 1);

	if (!p || !end)
		return NULL;
	if (*end || memchr(p, '\0', len)) {
		r->failed = true;
		return NULL;
	}
	*ret_len = len;
	return (const char *)p;
}

void wire_put_text(struct buf *out, const char *text, size_t len)
{
	buf_put_bytes(out, text, len);
	buf_put_u8(out, 0);
}

void wire_hash(struct reader *r, struct hash *ret_hash)
{
	const uint8_t *p = reader_skip(r, HASH_SIZE);

	if (p)
		memcpy(ret_hash->bytes, p, HASH_SIZE);
}

void wire_put_crc(struct buf *out, size_t start)
{
	if (!out->failed)
		buf_put_u32(out, crc32c(0, out->data + start, out->len - start));
}

int wire_check_crc(const void *data, size_t len, size_t *ret_len)
{
	struct reader r;

	if (len < CRC_LEN)
		return -EBADMSG;
	r = reader_of((const uint8_t *)data + len - CRC_LEN, CRC_LEN);
	if (reader_u32(&r) != crc32c(0, data, len - CRC_LEN))
		return -EBADMSG;
	*ret_len = len - CRC_LEN;
	return 0;
}

/* ---- JSON ---- */

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
