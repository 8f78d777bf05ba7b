/* SPDX-License-Identifier: Apache-2.0 */
/* Object keys and tag names. */
#include "lib/format/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/util/parse.h"

#define NUMBER_DIGITS 20
#define NUMBER_SUFFIX ".json"
#define BASE_SUFFIX   ".base"
/* What a directory of a file system takes as one name. */
#define COMPONENT_MAX 255

/* Takes `prefix` off the front of *text. */
static bool skip_prefix(const char **text, const char *prefix)
{
	size_t len = strlen(prefix);

	if (strncmp(*text, prefix, len))
		return false;
	*text += len;
	return true;
}

/* Takes exactly 20 digits off the front of *text: a number from 1 to INT64_MAX. */
static bool skip_number(const char **text, uint64_t *ret_number)
{
	char digits[NUMBER_DIGITS + 1];
	uint64_t number;

	if (strnlen(*text, NUMBER_DIGITS) < NUMBER_DIGITS)
		return false;
	memcpy(digits, *text, NUMBER_DIGITS);
	digits[NUMBER_DIGITS] = '\0';
	if (parse_u64(digits, &number) < 0 || number < 1 || number > INT64_MAX)
		return false;
	*text += NUMBER_DIGITS;
	*ret_number = number;
	return true;
}

static void number_key(const char *prefix, uint64_t number, char ret_key[KEY_MAX])
{
	snprintf(ret_key, KEY_MAX, "%s%020" PRIu64 NUMBER_SUFFIX, prefix, number);
}

static int number_key_parse(const char *key, const char *prefix, uint64_t *ret_number)
{
	uint64_t number;

	if (!skip_prefix(&key, prefix) || !skip_number(&key, &number) || strcmp(key, NUMBER_SUFFIX))
		return -EINVAL;
	*ret_number = number;
	return 0;
}

void epoch_key(uint64_t number, char ret_key[KEY_MAX])
{
	number_key(PREFIX_EPOCHS, number, ret_key);
}

int epoch_key_parse(const char *key, uint64_t *ret_number)
{
	return number_key_parse(key, PREFIX_EPOCHS, ret_number);
}

void summary_key(uint64_t last, char ret_key[KEY_MAX])
{
	number_key(PREFIX_SUMMARIES, last, ret_key);
}

int summary_key_parse(const char *key, uint64_t *ret_last)
{
	return number_key_parse(key, PREFIX_SUMMARIES, ret_last);
}

void lease_key(uint64_t generation, char ret_key[KEY_MAX])
{
	number_key(PREFIX_LEASE, generation, ret_key);
}

int lease_key_parse(const char *key, uint64_t *ret_generation)
{
	return number_key_parse(key, PREFIX_LEASE, ret_generation);
}

int lease_any_key_parse(const char *key, uint64_t *ret_generation)
{
	char node[NODE_NAME_MAX + 1];

	if (lease_key_parse(key, ret_generation) == 0 ||
	    lease_base_key_parse(key, ret_generation) == 0)
		return 0;
	return lease_node_key_parse(key, ret_generation, node);
}

/* The rest of a key: "-<node>.json". */
static bool take_node(const char *text, char ret_node[NODE_NAME_MAX + 1])
{
	size_t len = strlen(text), end = strlen(NUMBER_SUFFIX);
	char node[NODE_NAME_MAX + 1];

	if (len < 2 + end || len > 1 + NODE_NAME_MAX + end || text[0] != '-' ||
	    strcmp(text + len - end, NUMBER_SUFFIX) != 0)
		return false;
	memcpy(node, text + 1, len - end - 1);
	node[len - end - 1] = '\0';
	if (!node_name_valid(node))
		return false;
	memcpy(ret_node, node, len - end);
	return true;
}

void lease_node_key(uint64_t generation, const char *node, char ret_key[KEY_MAX])
{
	snprintf(ret_key, KEY_MAX, PREFIX_LEASE "%020" PRIu64 "-%.*s" NUMBER_SUFFIX, generation,
		 NODE_NAME_MAX, node);
}

int lease_node_key_parse(const char *key, uint64_t *ret_generation,
			 char ret_node[NODE_NAME_MAX + 1])
{
	uint64_t generation;

	if (!skip_prefix(&key, PREFIX_LEASE) || !skip_number(&key, &generation) ||
	    !take_node(key, ret_node))
		return -EINVAL;
	*ret_generation = generation;
	return 0;
}

void lease_base_key(uint64_t generation, char ret_key[KEY_MAX])
{
	snprintf(ret_key, KEY_MAX, PREFIX_LEASE "%020" PRIu64 BASE_SUFFIX, generation);
}

int lease_base_key_parse(const char *key, uint64_t *ret_generation)
{
	uint64_t generation;

	if (!skip_prefix(&key, PREFIX_LEASE) || !skip_number(&key, &generation) ||
	    strcmp(key, BASE_SUFFIX) != 0)
		return -EINVAL;
	*ret_generation = generation;
	return 0;
}

void part_key(uint64_t generation, uint64_t sequence, const char *node, char ret_key[KEY_MAX])
{
	snprintf(ret_key, KEY_MAX, PREFIX_PARTS "%020" PRIu64 "/%020" PRIu64 "-%.*s" NUMBER_SUFFIX,
		 generation, sequence, NODE_NAME_MAX, node);
}

int part_key_parse(const char *key, uint64_t *ret_generation, uint64_t *ret_sequence,
		   char ret_node[NODE_NAME_MAX + 1])
{
	uint64_t generation, sequence;

	if (!skip_prefix(&key, PREFIX_PARTS) || !skip_number(&key, &generation) ||
	    !skip_prefix(&key, "/") || !skip_number(&key, &sequence) || !take_node(key, ret_node))
		return -EINVAL;
	*ret_generation = generation;
	*ret_sequence = sequence;
	return 0;
}

void gc_key(uint64_t generation, char ret_key[KEY_MAX])
{
	number_key(PREFIX_GC, generation, ret_key);
}

int gc_key_parse(const char *key, uint64_t *ret_generation)
{
	return number_key_parse(key, PREFIX_GC, ret_generation);
}

void slot_key(const char *id, char ret_key[KEY_MAX])
{
	snprintf(ret_key, KEY_MAX, PREFIX_KEYS "%s.json", id);
}

int slot_key_parse(const char *key, char ret_id[KEY_ID_MAX])
{
	size_t prefix = strlen(PREFIX_KEYS), digits = KEY_ID_MAX - 1;
	uint8_t bytes[(KEY_ID_MAX - 1) / 2];

	if (strncmp(key, PREFIX_KEYS, prefix) || strlen(key) != prefix + digits + strlen(".json") ||
	    strcmp(key + prefix + digits, ".json") ||
	    hex_decode(key + prefix, sizeof(bytes), bytes) < 0)
		return -EINVAL;
	memcpy(ret_id, key + prefix, digits);
	ret_id[digits] = '\0';
	return 0;
}

void pack_key(const struct hash *id, char ret_key[KEY_MAX])
{
	char hex[HASH_HEX];

	hash_to_hex(id, hex);
	snprintf(ret_key, KEY_MAX, PREFIX_PACKS "%.2s/%s", hex, hex);
}

int pack_key_parse(const char *key, struct hash *ret_id)
{
	const char *folder;

	if (!skip_prefix(&key, PREFIX_PACKS) || strnlen(key, 3) < 3 || key[2] != '/')
		return -EINVAL;
	folder = key;
	key += 3;
	if (strncmp(folder, key, 2))
		return -EINVAL;
	return hash_from_hex(key, ret_id);
}

void index_key(uint64_t epoch, const struct hash *id, char ret_key[KEY_MAX])
{
	char hex[HASH_HEX];

	hash_to_hex(id, hex);
	snprintf(ret_key, KEY_MAX, PREFIX_INDEX "%020" PRIu64 "-%s", epoch, hex);
}

int index_key_parse(const char *key, uint64_t *ret_epoch, struct hash *ret_id)
{
	uint64_t epoch;
	int error;

	if (!skip_prefix(&key, PREFIX_INDEX) || !skip_number(&key, &epoch) ||
	    !skip_prefix(&key, "-"))
		return -EINVAL;
	error = hash_from_hex(key, ret_id);
	if (!error)
		*ret_epoch = epoch;
	return error;
}

/* Bytes of a tag's name that stand for themselves in a key: what every remote takes, without the
 * escape itself. */
static bool is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '-';
}

int tag_key(const char *name, char ret_key[KEY_MAX])
{
	char *p = ret_key + strlen(PREFIX_TAGS);

	if (!tag_name_valid(name))
		return -EINVAL;
	memcpy(ret_key, PREFIX_TAGS, strlen(PREFIX_TAGS));
	for (; *name; name++) {
		if (is_plain(*name)) {
			*p++ = *name;
			continue;
		}
		*p++ = '_';
		hex_encode(name, 1, p);
		p += 2;
	}
	*p = '\0';
	return 0;
}

int tag_key_parse(const char *key, char ret_name[TAG_NAME_MAX + 1])
{
	char name[TAG_NAME_MAX + 1], again[KEY_MAX];
	const char *text = key;
	size_t n = 0;

	if (!skip_prefix(&text, PREFIX_TAGS))
		return -EINVAL;
	while (*text && n < TAG_NAME_MAX) {
		if (is_plain(*text)) {
			name[n++] = *text++;
		} else if (*text == '_' && hex_decode(text + 1, 1, &name[n]) == 0 && name[n]) {
			n++;
			text += 3;
		} else {
			return -EINVAL;
		}
	}
	name[n] = '\0';
	/* One name has one key. */
	if (*text || tag_key(name, again) || strcmp(again, key))
		return -EINVAL;
	memcpy(ret_name, name, n + 1);
	return 0;
}

static size_t escaped_len(const char *name)
{
	size_t n = 0;

	for (; *name; name++)
		n += is_plain(*name) ? 1 : 3;
	return n;
}

bool tag_name_valid(const char *name)
{
	static const char *const reserved[] = {"latest", "current", "torn"};
	size_t len = strnlen(name, TAG_NAME_MAX + 1);

	if (len < 1 || len > TAG_NAME_MAX || name[0] == '.' || strchr(name, '/') ||
	    strspn(name, "0123456789") == len || escaped_len(name) > COMPONENT_MAX)
		return false;
	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
		if (!strcmp(name, reserved[i]))
			return false;
	return true;
}

bool tag_name_is_step(const char *name)
{
	return !strncmp(name, TAG_STEP_PREFIX, strlen(TAG_STEP_PREFIX));
}

bool node_name_valid(const char *name)
{
	size_t len = strnlen(name, NODE_NAME_MAX + 1);

	if (len < 1 || len > NODE_NAME_MAX || name[0] == '.' || name[0] == '-' || name[0] == '_')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_plain(name[i]) && name[i] != '_')
			return false;
	return true;
}

void tag_text(uint64_t number, char ret_text[TAG_TEXT_MAX])
{
	snprintf(ret_text, TAG_TEXT_MAX, "%" PRIu64 "\n", number);
}

int tag_text_parse(const void *data, size_t len, uint64_t *ret_number)
{
	char text[TAG_TEXT_MAX];
	uint64_t number;

	if (len < 1 || len >= sizeof(text))
		return -EBADMSG;
	memcpy(text, data, len);
	if (text[len - 1] == '\n')
		len--;
	text[len] = '\0';
	if (strlen(text) != len || text[0] == '0' || parse_u64(text, &number) < 0 ||
	    number > INT64_MAX)
		return -EBADMSG;
	*ret_number = number;
	return 0;
}
