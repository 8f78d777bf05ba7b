/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: LevelDB's manifest, with its checksums as they are and put right, and what verify makes of a directory with it. */
#include <errno.h>

#include "lib/format/databases.h"
#include "tests/fuzz/fuzz.h"

struct input {
	const uint8_t *data;
	size_t len;
	unsigned problems;
};

/* All tables of an even number are there. */
static int find(void *arg, const char *name, uint64_t *ret_size)
{
	const struct input *in = arg;
	size_t len = strlen(name);

	*ret_size = strcmp(name, "MANIFEST-1") == 0 ? in->len : 11;
	if (len > 4 && strcmp(name + len - 4, ".ldb") == 0)
		return (name[len - 5] & 1) ? -ENOENT : 0;
	return strcmp(name, "CURRENT") == 0 || strcmp(name, "MANIFEST-1") == 0 ? 0 : -ENOENT;
}

static ssize_t read_file(void *arg, const char *name, void *data, size_t len, uint64_t offset)
{
	const struct input *in = arg;

	if (strcmp(name, "MANIFEST-1") != 0) {
		memcpy(data, "MANIFEST-1\n", len < 11 ? len : 11);
		return len < 11 ? (ssize_t)len : 11;
	}
	if (offset >= in->len)
		return 0;
	if (len > in->len - offset)
		len = (size_t)(in->len - offset);
	memcpy(data, in->data + offset, len);
	return (ssize_t)len;
}

static void problem(void *arg, const char *name, const char *what)
{
	struct input *in = arg;

	fuzz_assert(*name && *what);
	in->problems++;
}

/* The checksum of each record, by the lengths that are there. */
static void repair(uint8_t *data, size_t len)
{
	for (size_t at = 0; at + 7 <= len;) {
		size_t size = data[at + 4] | (size_t)data[at + 5] << 8, left = 32768 - at % 32768;
		uint32_t crc;

		if (left < 7) {
			at += left;
			continue;
		}
		if (size > left - 7 || size > len - at - 7)
			return;
		crc = crc32c(0, data + at + 6, size + 1);
		fuzz_put_u32(data + at, (crc >> 15 | crc << 17) + 0xa282ead8u);
		at += 7 + size;
	}
}

static void check(const uint8_t *data, size_t len)
{
	struct input in = {data, len, 0};
	const struct database_dir dir = {
		.find = find, .read = read_file, .problem = problem, .arg = &in};

	fuzz_assert(leveldb_check(&dir) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_free uint8_t *copy = fuzz_copy(data, len);

	check(copy, len);
	repair(copy, len);
	check(copy, len);
	return 0;
}
