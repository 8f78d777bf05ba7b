/* SPDX-License-Identifier: Apache-2.0 */
/* The chunk index of a mounted volume. */
#include "lib/cache/store_index.h"
#include "tests/unit/volume_unit.h"

#define CHUNKS 50000

static struct vu u;

static void setup(void)
{
	vu_start(&u);
}

static void teardown(void)
{
	vu_stop(&u);
}

/* Bytes that this process has given to write(2) and the like. */
static uint64_t bytes_written(void)
{
	cleanup_buf struct buf text = {0};
	const char *line;

	unit_ok(io_read_file(AT_FDCWD, "/proc/self/io", 4096, &text));
	line = strstr(buf_str(&text), "wchar: ");
	ck_assert_ptr_nonnull(line);
	return strtoull(line + strlen("wchar: "), NULL, 10);
}

START_TEST(a_large_index_is_taken_without_a_page_written_for_each_chunk)
{
	struct store_index index = volume_store_index(u.vol);
	struct hash *chunks = calloc(CHUNKS, sizeof(*chunks));
	struct store_place *places = calloc(CHUNKS, sizeof(*places)), found;
	uint64_t before;

	ck_assert(chunks && places);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		hash_of(&i, sizeof(i), &chunks[i]);
		places[i] = (struct store_place){chunks[i / 10000], i, 100, 200};
	}
	before = bytes_written();
	unit_ok(index.put(index.arg, "index/1-x", chunks, places, CHUNKS));
	ck_assert_uint_lt(bytes_written() - before, CHUNKS * 1000);
	ck_assert(index.loaded(index.arg, "index/1-x"));
	for (uint32_t i = 0; i < CHUNKS; i += 777) {
		unit_ok(index.get(index.arg, &chunks[i], &found));
		ck_assert(hash_equal(&found.pack, &places[i].pack));
		ck_assert_uint_eq(found.offset, i);
	}
	free(chunks);
	free(places);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_store_index");
	TCase *t = unit_case(s, "index");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_large_index_is_taken_without_a_page_written_for_each_chunk);
	return unit_run(s);
}
