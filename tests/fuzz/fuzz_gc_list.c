/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the list of a garbage collection. */
#include "lib/format/gc_list.h"
#include "lib/util/cleanup.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf text = {0}, again = {0};
	cleanup_gc_list struct gc_list l = {0}, second = {0};

	if (gc_list_decode(data, len, &l) < 0)
		return 0;
	fuzz_assert(l.count <= GC_LIST_ITEMS_MAX && l.condemning <= l.generation);
	for (const char *p = l.host; *p; p++)
		fuzz_assert(*p > ' ' && *p <= '~');
	fuzz_assert(gc_list_encode(&l, &text) == 0);
	fuzz_assert(gc_list_decode(text.data, text.len, &second) == 0);
	fuzz_assert(second.count == l.count);
	fuzz_assert(gc_list_encode(&second, &again) == 0);
	fuzz_same(&again, text.data, text.len);
	return 0;
}
