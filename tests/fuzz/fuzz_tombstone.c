/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: tombstones of dropped epochs. */
#include "lib/format/tombstone.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf again = {0};
	uint64_t number, second;

	if (tombstone_decode(data, len, &number) < 0)
		return 0;
	fuzz_assert(tombstone_encode(number, 0, &again) == 0);
	fuzz_assert(tombstone_decode(again.data, again.len, &second) == 0 && second == number);
	return 0;
}
