/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: object keys, tag names and the content of tags. */
#include "lib/format/names.h"
#include "tests/fuzz/fuzz.h"

static void check_key(const char *key)
{
	char again[KEY_MAX], tag[TAG_NAME_MAX + 1];
	struct hash id;
	char node[NODE_NAME_MAX + 1];
	uint64_t number, sequence;

	if (epoch_key_parse(key, &number) == 0) {
		epoch_key(number, again);
		fuzz_assert(!strcmp(key, again));
	}
	if (summary_key_parse(key, &number) == 0) {
		summary_key(number, again);
		fuzz_assert(!strcmp(key, again));
	}
	if (pack_key_parse(key, &id) == 0) {
		pack_key(&id, again);
		fuzz_assert(!strcmp(key, again));
	}
	if (index_key_parse(key, &number, &id) == 0) {
		index_key(number, &id, again);
		fuzz_assert(!strcmp(key, again));
	}
	if (lease_key_parse(key, &number) == 0) {
		lease_key(number, again);
		fuzz_assert(!strcmp(key, again));
	}
	if (lease_base_key_parse(key, &number) == 0) {
		lease_base_key(number, again);
		fuzz_assert(!strcmp(key, again));
	}
	if (lease_node_key_parse(key, &number, node) == 0) {
		lease_node_key(number, node, again);
		fuzz_assert(!strcmp(key, again));
	}
	if (part_key_parse(key, &number, &sequence, node) == 0) {
		part_key(number, sequence, node, again);
		fuzz_assert(!strcmp(key, again));
	}
	if (gc_key_parse(key, &number) == 0) {
		gc_key(number, again);
		fuzz_assert(!strcmp(key, again));
	}
	if (tag_key_parse(key, tag) == 0) {
		fuzz_assert(tag_key(tag, again) == 0);
		fuzz_assert(!strcmp(key, again));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf text = {0};
	uint64_t number;

	if (tag_text_parse(data, len, &number) == 0) {
		char again[TAG_TEXT_MAX];

		tag_text(number, again);
		fuzz_assert(!memcmp(again, data, len) && strlen(again) - len <= 1);
	}
	buf_put(&text, data, len);
	check_key(buf_str(&text));
	return 0;
}
