/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: recipes. */
#include "lib/format/recipe.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_recipe struct recipe r = {0};
	cleanup_buf struct buf again = {0};

	if (recipe_decode(data, len, &r) < 0)
		return 0;
	for (size_t i = 0; i < r.count; i++) {
		const struct recipe_segment *s = &r.segments[i];

		fuzz_assert(recipe_find(&r, s->offset) == i);
		fuzz_assert(recipe_find(&r, s->offset + s->length - 1) == i);
	}
	fuzz_assert(recipe_find(&r, r.size) == r.count);
	fuzz_assert(recipe_encode(&r, &again) == 0);
	fuzz_same(&again, data, len);
	return 0;
}
