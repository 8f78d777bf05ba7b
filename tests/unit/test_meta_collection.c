/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection: what no epoch needs goes, what one needs stays. */
#include "lib/meta/collection.h"
#include "lib/meta/lease.h"
#include "lib/meta/records.h"
#include "tests/unit/gc_unit.h"

START_TEST(where_nothing_is_dead_nothing_changes)
{
	struct key_list before, after;
	struct gc_totals t;
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 3, 200 * KIB);
	before = list_keys(m.f.below, "");
	t = collect(0);
	after = list_keys(m.f.below, "");
	ck_assert_uint_eq(after.count, before.count);
	ck_assert_uint_eq(t.generation, 0);
	ck_assert_uint_eq(t.epochs, 1);
	ck_assert_uint_eq(t.store.before.bytes, t.after.bytes);
	made_stop(&m);
}
END_TEST

START_TEST(what_a_dropped_epoch_alone_used_goes_after_the_grace)
{
	struct gc_totals t;
	struct made m;
	uint64_t before;

	made_start(&m);
	put_epoch(&m, 1, 3, MIB);
	put_epoch(&m, 11, 3, MIB);
	drop(&m, 1);
	before = list_keys(m.f.below, PREFIX_PACKS).count;
	t = collect(DAY);
	ck_assert_uint_eq(t.store.condemned.packs, 2);
	ck_assert_uint_eq(t.store.deleted.packs, 0);
	ck_assert_uint_eq(t.store.waiting.packs, 2);
	ck_assert_int_gt(t.store.next_ns, clock_wall_ns());
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_PACKS).count, before);
	ck_assert_uint_eq(t.generation, 1);
	/* Again: nothing new to say. */
	t = collect(DAY);
	ck_assert_uint_eq(t.generation, 1);
	ck_assert_uint_eq(t.store.condemned.packs, 0);
	ck_assert_uint_eq(t.store.waiting.packs, 2);
	t = collect(0);
	ck_assert_uint_eq(t.store.deleted.packs, 2);
	ck_assert_uint_eq(t.store.waiting.packs, 0);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_PACKS).count, before - 2);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_PACKS).bytes +
				  list_keys(m.f.below, PREFIX_INDEX).bytes,
			  t.after.bytes);
	assert_whole(1, 0);
	made_stop(&m);
}
END_TEST

START_TEST(a_dry_run_tells_and_changes_nothing)
{
	const struct gc how = {.keep_percent = GC_KEEP_PERCENT, .dry_run = true};
	struct key_list before, after;
	struct gc_totals t, done;
	char *message = NULL;
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 8, 200 * KIB);
	put_epoch(&m, 8, 2, 200 * KIB);
	drop(&m, 1);
	before = list_keys(m.f.below, "");
	unit_ok(quiet_gc(&how, &t, &message));
	after = list_keys(m.f.below, "");
	ck_assert_uint_eq(before.count, after.count);
	ck_assert_uint_eq(before.bytes, after.bytes);
	done = collect(DAY);
	ck_assert_uint_gt(t.store.condemned.packs, 0);
	ck_assert_uint_eq(t.store.condemned.packs, done.store.condemned.packs);
	ck_assert_uint_eq(t.store.rewritten.packs, done.store.rewritten.packs);
	ck_assert_uint_eq(t.store.condemned.indexes, done.store.condemned.indexes);
	ck_assert_uint_eq(t.store.live_bytes, done.store.live_bytes);
	made_stop(&m);
}
END_TEST

START_TEST(a_pack_that_is_mostly_dead_is_written_anew)
{
	struct gc_totals t;
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 8, 200 * KIB);
	put_epoch(&m, 8, 1, 200 * KIB); /* the last of those */
	drop(&m, 1);
	t = collect(0);
	ck_assert_uint_eq(t.store.rewritten.packs, 1);
	ck_assert_uint_ge(t.store.deleted.packs, 1);
	ck_assert_uint_lt(t.after.bytes, 300 * KIB);
	assert_whole(1, 0);
	/* What it wrote is all live, so that there is an end to it. */
	t = collect(0);
	ck_assert_uint_eq(t.store.condemned.packs, 0);
	ck_assert_uint_eq(t.store.condemned.indexes, 0);
	made_stop(&m);
}
END_TEST

START_TEST(a_pack_with_enough_that_is_live_stays)
{
	struct gc_totals t;
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 8, 200 * KIB);
	put_epoch(&m, 1, 5, 200 * KIB);
	drop(&m, 1);
	t = collect(0);
	ck_assert_uint_eq(t.store.rewritten.packs, 0);
	assert_whole(1, 0);
	made_stop(&m);
}
END_TEST

START_TEST(many_small_index_objects_become_one)
{
	struct gc_totals t;
	struct made m;

	made_start(&m);
	for (uint64_t i = 0; i < 20; i++)
		put_epoch(&m, 10 * i, 1, 20 * KIB);
	t = collect(0);
	ck_assert_uint_eq(t.store.condemned.indexes, 20);
	ck_assert_uint_eq(t.store.deleted.indexes, 20);
	ck_assert_uint_eq(t.store.deleted.packs, 0);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_INDEX).count, 1);
	assert_whole(20, 0);
	made_stop(&m);
}
END_TEST

START_TEST(all_epochs_may_be_gone)
{
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 3, 200 * KIB);
	drop(&m, 1);
	collect(0);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_PACKS).count, 0);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_INDEX).count, 0);
	assert_whole(0, 0);
	made_stop(&m);
}
END_TEST

/* The same record as of a node of a set, whose epoch waits for others. */
START_TEST(what_a_nodes_part_names_stays)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX], part[KEY_MAX];
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 3, 200 * KIB);
	epoch_key(1, key);
	part_key(1, 1, "node1", part);
	unit_ok(remote_get(m.f.below, key, 0, REMOTE_TO_END, &text));
	unit_ok(remote_put(m.f.below, part, text.data, text.len));
	drop(&m, 1);
	collect(0);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_PACKS).count, 1);
	damage(m.f.below, part, 3);
	assert_refuses(-EBADMSG, part);
	unit_ok(remote_delete(m.f.below, part));
	collect(0);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_PACKS).count, 0);
	made_stop(&m);
}
END_TEST

START_TEST(packs_without_a_name_are_left_for_the_grace)
{
	cleanup_free uint8_t *data = random_content(MIB, 77);
	cleanup_record struct epoch_record record = {0};
	struct gc_totals t;
	struct hash recipe;
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 1, 200 * KIB);
	/* An upload that was interrupted. */
	unit_ok(store_batch_begin(m.f.store, 2, &m.batch));
	unit_ok(put_bytes(m.batch, data, MIB, &recipe));
	unit_ok(store_batch_flush(m.batch, &record, &(struct store_stats){0}));
	store_batch_free(m.batch);
	t = collect(DAY);
	ck_assert_uint_eq(t.store.unnamed.packs, 1);
	ck_assert_uint_eq(t.store.condemned.packs, 0);
	ck_assert_uint_eq(t.generation, 1);
	t = collect(DAY);
	ck_assert_uint_eq(t.generation, 1);
	t = collect(0);
	ck_assert_uint_eq(t.store.condemned.packs, 1);
	ck_assert_uint_eq(t.store.deleted.packs, 1);
	assert_whole(1, 0);
	made_stop(&m);
}
END_TEST

START_TEST(old_leases_lists_and_false_summaries_go)
{
	cleanup_buf struct buf summary = {0}, text = {0};
	struct gc_totals t;
	char key[KEY_MAX];
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 1, 20 * KIB);
	put_epoch(&m, 2, 1, 20 * KIB);
	epoch_key(1, key);
	unit_ok(remote_get(m.f.below, key, 0, REMOTE_TO_END, &text));
	unit_ok(summary_add(&summary, buf_str(&text)));
	drop(&m, 1);
	unit_ok(summary_put(m.f.below, 100, &summary));
	for (uint64_t g = 1; g <= LEASE_KEEP + 3; g++) {
		lease_key(g, key);
		unit_ok(remote_put(m.f.below, key, "{}", 2));
	}
	t = collect(DAY);
	ck_assert_uint_eq(t.others, 1 + 2);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_SUMMARIES).count, 0);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_LEASE).count, LEASE_KEEP + 1);
	/* Beside somebody who may hold it, a collection without a grace waits. */
	for (uint64_t g = 1; g <= LEASE_KEEP + 3; g++) {
		lease_key(g, key);
		unit_ok(remote_delete(m.f.below, key));
	}
	for (uint64_t i = 0; i < 3 * GC_LISTS_KEEP; i++) {
		put_epoch(&m, 100 + i, 1, 20 * KIB);
		drop(&m, m.last);
		collect(0);
	}
	ck_assert_uint_le(list_keys(m.f.below, PREFIX_GC).count, GC_LISTS_KEEP + 2);
	assert_whole(1, 0);
	made_stop(&m);
}
END_TEST

START_TEST(what_is_foreign_stays)
{
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 1, 20 * KIB);
	drop(&m, 1);
	unit_ok(remote_put(m.f.below, "packs/readme", "x", 1));
	unit_ok(remote_put(m.f.below, "index/mine", "x", 1));
	unit_ok(remote_put(m.f.below, "gc/notes", "x", 1));
	unit_ok(remote_put(m.f.below, "other", "x", 1));
	collect(0);
	ck_assert(is_there(&m, "packs/readme") && is_there(&m, "index/mine") &&
		  is_there(&m, "gc/notes") && is_there(&m, "other"));
	made_stop(&m);
}
END_TEST

START_TEST(a_time_in_the_future_counts_as_now)
{
	cleanup_gc_list struct gc_list list = {0};
	cleanup_buf struct buf text = {0};
	struct gc_totals t;
	char key[KEY_MAX];
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 1, 200 * KIB);
	drop(&m, 1);
	collect(DAY);
	unit_ok(gc_lists_look(m.f.below, &list));
	for (size_t i = 0; i < list.count; i++)
		list.items[i].since_ns += 400 * DAY;
	unit_ok(gc_list_encode(&list, &text));
	gc_key(1, key);
	unit_ok(remote_put(m.f.below, key, text.data, text.len));
	t = collect(DAY);
	ck_assert_uint_eq(t.store.deleted.packs, 0);
	ck_assert_int_le(t.store.next_ns, clock_wall_ns() + DAY);
	ck_assert_uint_eq(t.generation, 2);
	t = collect(0);
	ck_assert_uint_eq(t.store.deleted.packs, 1);
	made_stop(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_collection");
	TCase *t = unit_case(s, "goes");

	tcase_add_test(t, where_nothing_is_dead_nothing_changes);
	tcase_add_test(t, what_a_dropped_epoch_alone_used_goes_after_the_grace);
	tcase_add_test(t, a_dry_run_tells_and_changes_nothing);
	tcase_add_test(t, a_pack_that_is_mostly_dead_is_written_anew);
	tcase_add_test(t, a_pack_with_enough_that_is_live_stays);
	tcase_add_test(t, many_small_index_objects_become_one);
	tcase_add_test(t, all_epochs_may_be_gone);
	tcase_add_test(t, what_a_nodes_part_names_stays);
	tcase_add_test(t, packs_without_a_name_are_left_for_the_grace);
	tcase_add_test(t, old_leases_lists_and_false_summaries_go);
	tcase_add_test(t, what_is_foreign_stays);
	tcase_add_test(t, a_time_in_the_future_counts_as_now);
	return unit_run(s);
}
