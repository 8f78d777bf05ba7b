/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: chunk frames. */
#include "lib/format/chunk.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_free uint8_t *frame = fuzz_copy(data, len);
	cleanup_buf struct buf again = {0};
	struct chunk_header h, whole;
	uint32_t crc, sum = 0;

	chunk_frame_decode(frame, len, &whole);
	if (chunk_header_decode(frame, len, &h) < 0)
		return 0;
	fuzz_assert(h.header_len <= CHUNK_HEADER_MAX && h.header_len <= len);
	fuzz_assert(h.payload_len <= h.plain_len && h.plain_len <= CHUNK_PLAIN_MAX);
	for (uint8_t i = 0; i < h.planes; i++)
		sum += chunk_plane_plain_len(&h, i);
	fuzz_assert(sum == h.plain_len);
	if (len < (size_t)h.header_len + h.payload_len)
		return 0;
	len = h.header_len + h.payload_len;
	crc = crc32c(0, frame, h.header_len - 4);
	fuzz_put_u32(frame + h.header_len - 4, crc32c(crc, frame + h.header_len, h.payload_len));
	fuzz_assert(chunk_frame_decode(frame, len, &whole) == 0);
	fuzz_assert(chunk_frame_encode(&whole, frame + whole.header_len, &again) == 0);
	fuzz_same(&again, frame, len);
	return 0;
}
