/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: lists of extended attributes. */
#include "lib/format/xattrs.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct xattrs_iter it = xattrs_iter_of(data, len);
	cleanup_buf struct buf again = {0};
	const char *name;
	const void *value, *found;
	size_t value_len, found_len;

	if (xattrs_check(data, len) < 0)
		return 0;
	while (xattrs_next(&it, &name, &value, &value_len)) {
		fuzz_assert(xattrs_get(data, len, name, &found, &found_len) == 0);
		fuzz_assert(found == value && found_len == value_len);
		/* Twice, for the second time replaces. */
		fuzz_assert(xattrs_set(&again, name, "", 0) == 0);
		fuzz_assert(xattrs_set(&again, name, value, value_len) == 0);
	}
	fuzz_same(&again, data, len);
	it = xattrs_iter_of(data, len);
	while (xattrs_next(&it, &name, &value, &value_len))
		fuzz_assert(xattrs_remove(&again, name) == 0);
	fuzz_assert(again.len == 0);
	return 0;
}
