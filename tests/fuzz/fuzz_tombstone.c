/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: tombstones of dropped epochs. */
#include <string.h>
#include "lib/format/record.h"
#include "lib/format/tombstone.h"
#include "lib/util/cleanup.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf again = {0};
	cleanup_free char *record = NULL;
	uint64_t number, continues, second, same;

	if (tombstone_decode_record(data, len, &number, &continues, &record) < 0)
		return 0;
	/* One that was cut out of a longer text may not fit into it again. */
	if (tombstone_encode(number, 0, continues, record, &again) != 0) {
		fuzz_assert(record && strlen(record) > RECORD_ENCODED_MAX / 8);
		return 0;
	}
	fuzz_assert(tombstone_decode_record(again.data, again.len, &second, &same, NULL) == 0);
	fuzz_assert(second == number && same == continues);
	return 0;
}
