/* SPDX-License-Identifier: Apache-2.0 */
/* What of an encrypted volume is not authentic reads as zeros (lib/remote/encrypt.h), so no decoder may take them. */
#include "lib/format/gc_list.h"
#include "lib/format/index.h"
#include "lib/format/key_slot.h"
#include "lib/format/lease.h"
#include "lib/format/names.h"
#include "lib/format/pack.h"
#include "lib/format/recipe.h"
#include "lib/format/record.h"
#include "lib/format/tree.h"
#include "lib/format/volume_info.h"
#include "tests/unit/unit.h"

static void assert_refused(uint8_t *zeros, size_t len)
{
	struct epoch_record record = {0};
	struct volume_info info;
	struct lease_info lease;
	struct gc_list list = {0};
	struct key_slot slot;
	struct recipe recipe = {0};
	struct index_reader index;
	struct chunk_header chunk;
	struct tree *tree = NULL;
	struct tombstone tombstone;
	uint64_t number;

	unit_error(record_decode(zeros, len, &record), -EBADMSG);
	unit_error(tombstone_decode(zeros, len, &tombstone), -EBADMSG);
	unit_error(volume_info_decode(zeros, len, &info), -EBADMSG);
	unit_error(lease_decode(zeros, len, &lease), -EBADMSG);
	unit_error(gc_list_decode(zeros, len, &list), -EBADMSG);
	unit_error(key_slot_decode(zeros, len, &slot), -EBADMSG);
	unit_error(recipe_decode(zeros, len, &recipe), -EBADMSG);
	unit_error(index_reader_init(&index, zeros, len), -EBADMSG);
	unit_error(chunk_header_decode(zeros, len, &chunk), -EBADMSG);
	unit_error(tree_decode(zeros, len, 0, &tree), -EBADMSG);
	unit_error(tag_text_parse(zeros, len, &number), -EBADMSG);
}

START_TEST(no_decoder_takes_zeros)
{
	static uint8_t zeros[70000];
	struct pack_footer footer;

	for (size_t len = 0; len < 400; len++)
		assert_refused(zeros, len);
	assert_refused(zeros, sizeof(zeros));
	unit_error(pack_footer_decode(zeros, sizeof(zeros), &footer), -EBADMSG);
	unit_error(pack_header_check(zeros), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_zeros");

	tcase_add_test(unit_case(s, "zeros"), no_decoder_takes_zeros);
	return unit_run(s);
}
