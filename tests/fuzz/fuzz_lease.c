/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the lease's object. */
#include "lib/format/lease.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf text = {0}, again = {0};
	struct lease_info l, second;

	if (lease_decode(data, len, &l) < 0)
		return 0;
	fuzz_assert(strlen(l.host) <= LEASE_NAME_MAX && strlen(l.mountpoint) <= LEASE_PATH_MAX);
	for (const char *p = l.host; *p; p++)
		fuzz_assert((unsigned char)*p >= ' ' && *p != 0x7f);
	fuzz_assert(lease_encode(&l, &text) == 0);
	fuzz_assert(lease_decode(text.data, text.len, &second) == 0);
	fuzz_assert(lease_encode(&second, &again) == 0);
	fuzz_same(&again, text.data, text.len);
	return 0;
}
