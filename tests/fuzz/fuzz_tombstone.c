/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: tombstones of dropped epochs. */
#include <string.h>
#include "lib/format/record.h"
#include "lib/util/cleanup.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf again = {0};
	cleanup_free char *record = NULL;
	struct tombstone t, same;

	if (tombstone_decode_record(data, len, &t, &record) < 0)
		return 0;
	/* One that was cut out of a longer text may not fit into it again. */
	t.dropped_ns = 0;
	if (tombstone_encode(&t, record, &again) != 0) {
		fuzz_assert(record && strlen(record) > RECORD_ENCODED_MAX / 8);
		return 0;
	}
	fuzz_assert(tombstone_decode(again.data, again.len, &same) == 0);
	fuzz_assert(same.number == t.number && same.continues == t.continues &&
		    same.continues_from == t.continues_from);
	return 0;
}
