/* SPDX-License-Identifier: Apache-2.0 */
/* The content store, putting: what goes in comes out, once; what fails ends cleanly. */
#include "tests/unit/store_fixture.h"

START_TEST(a_content_comes_back_from_an_empty_index)
{
	static const size_t lengths[] = {1, 4097, 64 * KIB, 300 * KIB, MIB, 5 * MIB + 13};
	size_t len = lengths[_i];
	cleanup_free uint8_t *data = random_content(len, 1);
	struct fixture f = fixture_open("memory:t", 2);
	struct hash recipe;

	put_file(f.store, 1, data, len, &recipe);
	assert_restores(f.store, &recipe, data, len);
	fixture_reopen(&f, "memory:t");
	assert_restores(f.store, &recipe, data, len);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_batch");
	TCase *t = unit_case(s, "batch");

	tcase_add_loop_test(t, a_content_comes_back_from_an_empty_index, 0, 6);
	return unit_run(s);
}
