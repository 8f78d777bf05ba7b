/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs.json. */
#include "lib/format/volume_info.h"

#include <errno.h>
#include <string.h>

#include "lib/format/chunk.h"
#include "lib/format/wire.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/util/parse.h"

#define HASH_NAME      "sha256"
#define KEYED_NAME     "hmac-sha256" /* of an encrypted volume */
#define CIPHER_NAME    "aes-256-gcm"
#define ALGORITHM_NAME "gear64"
#define CHUNK_MIN_MIN  4096u
#define WORD	       8u /* cuts are at multiples of it */

int volume_info_make(struct volume_info *ret_info)
{
	struct volume_info v = {
		.chunk_min = 64 << 10,
		.chunk_avg = 256 << 10,
		.chunk_max = 1 << 20,
		.created_ns = clock_wall_ns(),
	};
	int error = uuid_make(v.uuid);

	if (!error)
		*ret_info = v;
	return error;
}

static bool valid(const struct volume_info *v)
{
	return v->chunk_min >= CHUNK_MIN_MIN && v->chunk_min <= v->chunk_avg &&
	       v->chunk_avg <= v->chunk_max && v->chunk_max <= CHUNK_PLAIN_MAX &&
	       v->chunk_min % WORD == 0 && v->chunk_avg % WORD == 0 && v->chunk_max % WORD == 0;
}

static json_t *encryption_json(const struct volume_info *v, bool checked)
{
	json_t *object = json_pack("{s:s, s:i}", "cipher", CIPHER_NAME, "segment", VOLUME_SEGMENT);
	char hex[HASH_HEX];

	hash_to_hex(&v->check, hex);
	if (object && checked)
		json_object_set_new(object, "check", json_string(hex));
	return object;
}

static int print(const struct volume_info *v, bool checked, struct buf *out)
{
	cleanup_json json_t *object = NULL, *uuid = json_string(v->uuid);
	char created[FORMAT_MAX], valid_uuid[37];

	if (!valid(v) || v->created_ns < 0 || json_wire_uuid(uuid, valid_uuid) < 0)
		return -EINVAL;
	format_time(v->created_ns, created);
	object = json_pack("{s:i, s:s, s:s, s:{s:s, s:I, s:I, s:I}, s:s}", "format", VOLUME_FORMAT,
			   "uuid", v->uuid, "hash", v->encrypted ? KEYED_NAME : HASH_NAME,
			   "chunker", "algorithm", ALGORITHM_NAME, "min", (json_int_t)v->chunk_min,
			   "average", (json_int_t)v->chunk_avg, "max", (json_int_t)v->chunk_max,
			   "created", created);
	if (!object || (v->encrypted &&
			json_object_set_new(object, "encryption", encryption_json(v, checked))))
		return -ENOMEM;
	return json_wire_print(object, VOLUME_INFO_ENCODED_MAX, out);
}

int volume_info_encode(const struct volume_info *v, struct buf *out)
{
	return print(v, true, out);
}

int volume_info_unchecked(const struct volume_info *v, struct buf *out)
{
	return print(v, false, out);
}

/* The string member is the one name that this program knows. */
static int check_name(const json_t *object, const char *key, const char *known)
{
	const char *text = json_string_value(json_object_get(object, key));

	if (!text)
		return -EBADMSG;
	return strcmp(text, known) ? -EPROTONOSUPPORT : 0;
}

static int decode_chunker(const json_t *chunker, struct volume_info *v)
{
	int error = check_name(chunker, "algorithm", ALGORITHM_NAME);

	if (error)
		return error;
	if (json_wire_u32(json_object_get(chunker, "min"), 0, UINT32_MAX, &v->chunk_min) < 0 ||
	    json_wire_u32(json_object_get(chunker, "average"), 0, UINT32_MAX, &v->chunk_avg) < 0 ||
	    json_wire_u32(json_object_get(chunker, "max"), 0, UINT32_MAX, &v->chunk_max) < 0)
		return -EBADMSG;
	return valid(v) ? 0 : -EBADMSG;
}

/* How it is encrypted. The name of the hash says whether it is, so that a program that knows no encryption
 * does not know the hash, either. */
static int decode_encryption(const json_t *object, struct volume_info *v)
{
	const json_t *encryption = json_object_get(object, "encryption");
	const char *hash = json_string_value(json_object_get(object, "hash")), *check;
	uint32_t segment;
	int error;

	if (!hash || strcmp(hash, KEYED_NAME))
		return encryption ? -EBADMSG : check_name(object, "hash", HASH_NAME);
	error = check_name(encryption, "cipher", CIPHER_NAME);
	if (error)
		return error;
	check = json_string_value(json_object_get(encryption, "check"));
	if (json_wire_u32(json_object_get(encryption, "segment"), 1, UINT32_MAX, &segment) < 0 ||
	    !check || hash_from_hex(check, &v->check) < 0)
		return -EBADMSG;
	v->encrypted = true;
	return segment == VOLUME_SEGMENT ? 0 : -EPROTONOSUPPORT;
}

int volume_info_decode(const void *data, size_t len, struct volume_info *ret_info)
{
	cleanup_json json_t *object = NULL;
	struct volume_info v = {0};
	int error = json_wire_parse(data, len, VOLUME_INFO_ENCODED_MAX, VOLUME_FORMAT, &object);

	if (error)
		return error;
	if (json_wire_uuid(json_object_get(object, "uuid"), v.uuid) < 0 ||
	    json_wire_time(json_object_get(object, "created"), &v.created_ns) < 0)
		return -EBADMSG;
	error = decode_encryption(object, &v);
	if (!error)
		error = decode_chunker(json_object_get(object, "chunker"), &v);
	if (!error)
		*ret_info = v;
	return error;
}
