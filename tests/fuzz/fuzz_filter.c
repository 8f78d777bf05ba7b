/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the payloads of chunk frames. */
#include "lib/format/chunk.h"
#include "lib/store/filter.h"
#include "tests/fuzz/fuzz.h"

/* Decodes into exactly what the header says, with the checksum put right. */
static void decode(struct filter *f, uint8_t *frame, size_t len)
{
	cleanup_free uint8_t *plain = NULL;
	cleanup_free uint8_t *back = NULL;
	cleanup_buf struct buf again = {0};
	const uint8_t *bytes = NULL;
	struct chunk_header h;
	uint32_t crc;

	if (chunk_header_decode(frame, len, &h) < 0 || len < (size_t)h.header_len + h.payload_len)
		return;
	len = h.header_len + h.payload_len;
	crc = crc32c(0, frame, h.header_len - 4);
	fuzz_put_u32(frame + h.header_len - 4, crc32c(crc, frame + h.header_len, h.payload_len));
	plain = malloc(h.plain_len);
	back = malloc(h.plain_len);
	fuzz_assert(plain && back);
	if (filter_decode(f, frame, len, plain, h.plain_len) < 0)
		return;
	fuzz_assert(filter_decode_within(f, frame, len, false, back, h.plain_len, &bytes) == 0);
	fuzz_assert(memcmp(plain, bytes, h.plain_len) == 0);
	/* What it decoded to has a frame of its own, perhaps another one. */
	fuzz_assert(filter_encode(f, plain, h.plain_len, &again) == 0);
	fuzz_assert(again.len <= h.plain_len + CHUNK_HEADER_MAX);
	fuzz_assert(filter_decode(f, again.data, again.len, back, h.plain_len) == 0);
	fuzz_assert(memcmp(plain, back, h.plain_len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_free uint8_t *frame = fuzz_copy(data, len);
	cleanup_filter struct filter *f = NULL;
	uint8_t plain[64];

	fuzz_assert(filter_new(&f) == 0);
	filter_decode(f, frame, len, plain, sizeof(plain));
	decode(f, frame, len);
	return 0;
}
