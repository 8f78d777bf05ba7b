/* SPDX-License-Identifier: Apache-2.0 */
/* The content store: trees, by the hints of an epoch's record and without them. */
#include "tests/unit/store_fixture.h"

/* A record as store_batch_finish fills it for these bytes (to the store they are only bytes). */
static struct store_stats put_tree(struct store *s, uint64_t epoch, const void *data, size_t len,
				   struct epoch_record *record)
{
	struct store_batch *b = NULL;
	struct store_stats stats;

	unit_ok(store_batch_begin(s, epoch, &b));
	unit_ok(store_put_tree(b, data, len, record));
	unit_ok(store_batch_finish(b, record, &stats));
	store_batch_free(b);
	return stats;
}

static void delete_indexes(struct remote *r)
{
	struct key_list keys = list_keys(r, PREFIX_INDEX);

	for (size_t i = 0; i < keys.count; i++)
		unit_ok(remote_delete(r, keys.keys[i]));
}

#define assert_tree(s, record, data, len)                                                          \
	do {                                                                                       \
		cleanup_buf struct buf tree_ = {0};                                                \
		buf_put(&tree_, "before", 6);                                                      \
		unit_ok(store_get_tree((s), (record), &tree_));                                    \
		unit_same_bytes(tree_.data + 6, tree_.len - 6, (data), (len));                     \
	} while (0)

#define assert_no_tree(s, record, error)                                                           \
	do {                                                                                       \
		cleanup_buf struct buf tree_ = {0};                                                \
		buf_put(&tree_, "before", 6);                                                      \
		unit_error(store_get_tree((s), (record), &tree_), (error));                        \
		unit_same_bytes(tree_.data, tree_.len, "before", 6);                               \
	} while (0)

START_TEST(a_tree_is_read_by_the_hints_alone)
{
	size_t len = 5 * MIB;
	cleanup_free uint8_t *data = random_content(len, 1);
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct hash hash;

	/* Zeros too: a record's list has no holes. */
	memset(data + 200 * KIB, 0, MIB + 300 * KIB);
	put_tree(f.store, 1, data, len, &record);
	hash_of(data, len, &hash);
	ck_assert(hash_equal(&record.tree_hash, &hash));
	ck_assert_uint_eq(record.tree_size, len);
	ck_assert_uint_gt(record.chunk_count, 3);
	ck_assert_uint_gt(record.pack_count, 1);
	ck_assert_uint_eq(record.index_count, 1);
	for (size_t i = 0; i < record.chunk_count; i++)
		ck_assert_uint_lt(record.chunks[i].pack, record.pack_count);
	delete_indexes(f.below);
	fixture_reopen(&f, "memory:t");
	assert_tree(f.store, &record, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(a_tree_that_is_known_has_hints_too)
{
	size_t len = 900 * KIB;
	cleanup_free uint8_t *data = random_content(len, 2);
	cleanup_record struct epoch_record first = {0}, second = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct store_stats stats;

	put_tree(f.store, 1, data, len, &first);
	stats = put_tree(f.store, 2, data, len, &second);
	ck_assert_uint_eq(stats.stored, 0);
	ck_assert_uint_eq(stats.fresh, 0);
	ck_assert_uint_eq(second.index_count, 0);
	ck_assert_uint_eq(second.chunk_count, first.chunk_count);
	delete_indexes(f.below);
	fixture_reopen(&f, "memory:t");
	assert_tree(f.store, &second, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(a_tree_of_one_change_stores_little)
{
	size_t len = 8 * MIB;
	cleanup_free uint8_t *data = random_content(len, 3);
	cleanup_record struct epoch_record first = {0}, second = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct store_stats stats;

	put_tree(f.store, 1, data, len, &first);
	data[len / 2] ^= 1;
	stats = put_tree(f.store, 2, data, len, &second);
	ck_assert_uint_lt(stats.stored, 2 * MIB);
	assert_tree(f.store, &second, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(wrong_hints_are_put_right_by_the_index)
{
	size_t len = 2 * MIB;
	cleanup_free uint8_t *data = random_content(len, 4);
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open("memory:t", 2);

	put_tree(f.store, 1, data, len, &record);
	ck_assert_uint_gt(record.chunk_count, 2);
	if (_i == 0)
		record.chunks[1].offset += 3;
	else if (_i == 1)
		record.packs[0].bytes[0] ^= 1; /* a pack that is not there */
	else if (_i == 2)
		record.chunks[1].pack = RECORD_NO_PACK;
	else
		record.chunks[1].pack = 4000000;
	fixture_reopen(&f, "memory:t");
	assert_tree(f.store, &record, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(a_tree_that_is_not_the_one_named_is_refused)
{
	size_t len = 2 * MIB;
	cleanup_free uint8_t *data = random_content(len, 5);
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open("memory:t", 2);

	put_tree(f.store, 1, data, len, &record);
	switch (_i) {
	case 0:
		record.tree_hash.bytes[5] ^= 1;
		break;
	case 1:
		record.tree_size += 1;
		break;
	case 2:
		record.chunks[0].length++;
		record.tree_size++;
		break;
	case 3:
		record.chunks[0].hash = record.chunks[1].hash;
		break;
	case 4:
		record.chunk_count = 0;
		break;
	case 5:
		record.chunks[1].length = UINT32_MAX;
		break;
	default:
		damage(f.below, list_keys(f.below, PREFIX_PACKS).keys[0], 1000);
	}
	assert_no_tree(f.store, &record, -EIO);
	fixture_close(&f);
}
END_TEST

START_TEST(the_errors_of_the_remote_come_back)
{
	cleanup_free uint8_t *data = random_content(2 * MIB, 6);
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open("memory:t", 2);

	put_tree(f.store, 1, data, 2 * MIB, &record);
	fixture_reopen(&f, "fault+memory:t?get.denied=1");
	assert_no_tree(f.store, &record, -EACCES);
	fixture_close(&f);
}
END_TEST

START_TEST(an_empty_tree_is_refused)
{
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct store_batch *b = NULL;

	unit_ok(store_batch_begin(f.store, 1, &b));
	unit_error(store_put_tree(b, "", 0, &record), -EINVAL);
	ck_assert_ptr_null(record.chunks);
	store_batch_free(b);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_tree");
	TCase *t = unit_case(s, "tree");

	tcase_add_test(t, a_tree_is_read_by_the_hints_alone);
	tcase_add_test(t, a_tree_that_is_known_has_hints_too);
	tcase_add_test(t, a_tree_of_one_change_stores_little);
	tcase_add_loop_test(t, wrong_hints_are_put_right_by_the_index, 0, 4);
	tcase_add_loop_test(t, a_tree_that_is_not_the_one_named_is_refused, 0, 7);
	tcase_add_test(t, the_errors_of_the_remote_come_back);
	tcase_add_test(t, an_empty_tree_is_refused);
	return unit_run(s);
}
