/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: records of epochs. */
#include <errno.h>

#include "lib/format/record.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_record struct epoch_record r = {0}, copy = {0}, second = {0};
	cleanup_buf struct buf text = {0}, again = {0};
	int error;

	if (record_decode(data, len, &r) < 0)
		return 0;
	fuzz_assert(record_copy(&r, &copy) == 0);
	error = record_encode(&copy, &text);
	if (error == -EFBIG) /* indenting made it longer than the limit */
		return 0;
	fuzz_assert(error == 0 && text.data[text.len - 1] == '\n');
	fuzz_assert(record_decode(text.data, text.len, &second) == 0);
	fuzz_assert(record_encode(&second, &again) == 0);
	fuzz_same(&again, text.data, text.len);
	return 0;
}
