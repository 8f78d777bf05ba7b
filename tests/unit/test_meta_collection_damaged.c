/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection of a volume that is damaged: it stops, or keeps what is right. */
#include "tests/unit/gc_unit.h"

static void assert_unchanged(struct made *m, const struct key_list *before)
{
	struct key_list after = list_keys(m->f.below, "");

	ck_assert_uint_eq(before->count, after.count);
	for (size_t i = 0; i < before->count; i++)
		ck_assert(is_there(m, before->keys[i]));
}

START_TEST(what_cannot_be_read_stops_it)
{
	struct key_list packs, before;
	char key[KEY_MAX];
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 1, 200 * KIB);
	put_epoch(&m, 2, 1, 200 * KIB);
	drop(&m, 1);
	packs = list_keys(m.f.below, PREFIX_PACKS);
	epoch_key(2, key);
	if (_i == 0)
		damage(m.f.below, key, 5);
	else if (_i == 1) /* all of it: tree, recipe, content */
		for (size_t i = 0; i < packs.count; i++)
			for (uint64_t at = 4; at < packs.sizes[i]; at += 30)
				damage(m.f.below, packs.keys[i], at);
	else if (_i == 2)
		for (size_t i = 0; i < packs.count; i++)
			unit_ok(remote_delete(m.f.below, packs.keys[i]));
	else
		for (size_t i = 0; i < 2; i++)
			damage(m.f.below, list_keys(m.f.below, PREFIX_INDEX).keys[i], 50);
	before = list_keys(m.f.below, "");
	assert_refuses(-EBADMSG, _i == 3 ? "index object index/" : "epoch 2");
	assert_unchanged(&m, &before);
	made_stop(&m);
}
END_TEST

START_TEST(a_file_whose_pack_is_gone_is_named)
{
	cleanup_free uint8_t *data = random_content(MIB, 5);
	struct key_list first, before;
	struct made m;

	made_start(&m);
	put_epoch(&m, 5, 1, MIB);
	first = list_keys(m.f.below, PREFIX_PACKS);
	ck_assert_uint_eq(first.count, 1);
	made_begin(&m);
	made_add(&m, 1, "model.pt", made_content(&m, data, MIB));
	made_end(&m, (struct epoch_record){0});
	drop(&m, 1);
	put_epoch(&m, 9, 1, KIB);
	unit_ok(remote_delete(m.f.below, first.keys[0]));
	before = list_keys(m.f.below, "");
	assert_refuses(-EBADMSG, "epoch 2: model.pt");
	assert_unchanged(&m, &before);
	/* Whoever drops it can go on. */
	drop(&m, 2);
	collect(0);
	assert_whole(1, 0);
	made_stop(&m);
}
END_TEST

/* Epoch 1's pack is damaged; a reader found that, so epoch 2 has stored the same again. */
START_TEST(of_two_copies_the_right_one_stays)
{
	cleanup_free uint8_t *data = random_content(MIB, 3), *got = NULL;
	struct tree_entry e;
	struct store_failure failure = {0};
	size_t len;
	struct made m;

	made_start(&m);
	made_begin(&m);
	e = made_content(&m, data, MIB);
	made_add(&m, 1, "f", e);
	made_end(&m, (struct epoch_record){0});
	if (_i < 2)
		damage_content(m.f.below, data + MIB / 2, 64);
	unit_error(restore(m.f.store, &e.u.recipe, &got, &len, &failure), _i < 2 ? -EIO : 0);
	if (_i == 2) { /* the new copy goes bad instead */
		struct key_list packs = list_keys(m.f.below, PREFIX_PACKS);

		fixture_reopen(&m.f, "memory:t");
		unit_ok(store_heed(m.f.store, 1, NULL, 0));
		for (size_t i = 0; i < packs.count; i++) {
			struct hash id;

			unit_ok(pack_key_parse(packs.keys[i], &id));
			unit_ok(store_heed(m.f.store, 1, &id, 1));
		}
	}
	put_epoch(&m, 3, 1, MIB);
	if (_i == 2) {
		struct key_list packs = list_keys(m.f.below, PREFIX_PACKS);

		ck_assert_uint_eq(packs.count, 2);
		/* The larger by a frame is that of the later generation. */
		damage(m.f.below, packs.keys[packs.sizes[0] < packs.sizes[1]], MIB / 2);
	}
	if (_i == 1)
		drop(&m, 1);
	collect(0);
	assert_whole(_i == 1 ? 1 : 2, 0);
	made_stop(&m);
}
END_TEST

START_TEST(a_damaged_list_is_replaced)
{
	struct gc_totals t;
	char key[KEY_MAX];
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 1, 200 * KIB);
	drop(&m, 1);
	collect(DAY);
	gc_key(1, key);
	damage(m.f.below, key, 10);
	/* Condemned again, so that the grace begins again. */
	t = collect(DAY);
	ck_assert_uint_eq(t.generation, 2);
	ck_assert_uint_eq(t.store.condemned.packs, 1);
	ck_assert_uint_eq(t.store.deleted.packs, 0);
	t = collect(0);
	ck_assert_uint_eq(t.store.deleted.packs, 1);
	made_stop(&m);
}
END_TEST

START_TEST(a_list_of_a_newer_version_stops_it)
{
	char key[KEY_MAX];
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 1, 20 * KIB);
	gc_key(4, key);
	unit_ok(remote_put(m.f.below, key, "{\"format\": 2}", 13));
	assert_refuses(-EPROTONOSUPPORT, "");
	made_stop(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_collection_damaged");
	TCase *t = unit_case(s, "damaged");

	tcase_add_loop_test(t, what_cannot_be_read_stops_it, 0, 4);
	tcase_add_test(t, a_file_whose_pack_is_gone_is_named);
	tcase_add_loop_test(t, of_two_copies_the_right_one_stays, 0, 3);
	tcase_add_test(t, a_damaged_list_is_replaced);
	tcase_add_test(t, a_list_of_a_newer_version_stops_it);
	return unit_run(s);
}
