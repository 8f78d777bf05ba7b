/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the rows and the footer of a pack. */
#include "lib/format/pack.h"
#include "tests/fuzz/fuzz.h"

/* The bytes are rows and a footer of a pack that is as long as the footer asks for. */
static void check_tail(const uint8_t *data, size_t len)
{
	cleanup_pack_table struct pack_table t = {0};
	cleanup_buf struct buf again = {0};
	struct pack_footer f;
	const uint8_t *footer;
	uint64_t offset;
	struct reader r;

	if (len < PACK_FOOTER_LEN)
		return;
	footer = data + len - PACK_FOOTER_LEN;
	r = reader_of(footer, PACK_FOOTER_LEN);
	offset = reader_u64(&r);
	if (pack_footer_decode(footer, offset + len, &f) < 0)
		return;
	fuzz_assert(f.table_len == len - PACK_FOOTER_LEN);
	if (pack_table_decode(&f, data, &t) < 0)
		return;
	fuzz_assert(t.count == f.count && pack_len(&t) == offset + len);
	fuzz_assert(pack_finish(&t, &again) == 0);
	fuzz_same(&again, data, len);
}

/* The bytes are rows: gives them the footer that fits. */
static void check_rows(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf pack = {0};
	size_t count = len / PACK_ROW_LEN, rows = count * PACK_ROW_LEN;
	uint64_t end = PACK_HEADER_LEN;
	uint32_t crc;

	for (size_t i = 0; i < count; i++) {
		struct reader r = reader_of(data + i * PACK_ROW_LEN + HASH_SIZE, 4);

		end += reader_u32(&r);
	}
	buf_put(&pack, data, rows);
	buf_put_u64(&pack, end);
	buf_put_u32(&pack, (uint32_t)count);
	crc = crc32c(0, pack.data, pack.len);
	buf_put_u32(&pack, crc);
	buf_put(&pack, "EFPT\1\0\0", 8);
	check_tail(pack.data, pack.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	check_tail(data, len);
	check_rows(data, len);
	if (len >= PACK_HEADER_LEN)
		pack_header_check(data);
	return 0;
}
