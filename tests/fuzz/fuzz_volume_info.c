/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the volume's object. */
#include "lib/format/volume_info.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf text = {0}, again = {0};
	struct volume_info v, second;

	if (volume_info_decode(data, len, &v) < 0)
		return 0;
	fuzz_assert(volume_info_encode(&v, &text) == 0);
	fuzz_assert(volume_info_decode(text.data, text.len, &second) == 0);
	fuzz_assert(volume_info_encode(&second, &again) == 0);
	fuzz_same(&again, text.data, text.len);
	return 0;
}
