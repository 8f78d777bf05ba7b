/* SPDX-License-Identifier: Apache-2.0 */
/* The content store, getting: few requests, everything checked, other places where one is damaged. */
#include "lib/net/open.h"
#include "lib/store/store_impl.h"

#include "lib/format/index.h"
#include "tests/unit/store_fixture.h"

/* ---- what is read, and how ---- */

START_TEST(a_part_of_a_content_is_read)
{
	struct restored r = {.lock = MUTEX_INITIALIZER(LOCK_TEST)};
	size_t len = 4 * MIB, from, to, outside = 0;
	cleanup_free uint8_t *data = random_content(len, 1);
	cleanup_recipe struct recipe recipe = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct hash hash;

	put_file(f.store, 1, data, len, &hash);
	unit_ok(store_get_recipe(f.store, &hash, &recipe, NULL));
	ck_assert_uint_gt(recipe.count, 8);
	r.recipe = &recipe;
	r.data = calloc(1, len);
	unit_ok(store_get_segments(f.store, &recipe, 2, 3, restore_segment, &r, NULL));
	ck_assert_uint_eq(r.calls, 3);
	from = recipe.segments[2].offset;
	to = recipe.segments[5].offset;
	ck_assert_mem_eq(r.data + from, data + from, to - from);
	memset(r.data + from, 0, to - from);
	for (size_t i = 0; i < len; i++)
		outside += r.data[i] != 0;
	ck_assert_uint_eq(outside, 0);
	unit_ok(store_get_segments(f.store, &recipe, 0, 0, restore_segment, &r, NULL));
	unit_ok(store_get_segments(f.store, &recipe, recipe.count, 0, restore_segment, &r, NULL));
	ck_assert_uint_eq(r.calls, 3);
	unit_error(store_get_segments(f.store, &recipe, 2, recipe.count - 1, restore_segment, &r,
				      NULL),
		   -EINVAL);
	free(r.data);
	fixture_close(&f);
}
END_TEST

START_TEST(neighbours_are_read_together)
{
	size_t len = 16 * MIB;
	cleanup_free uint8_t *data = random_content(len, 2);
	struct fixture f = fixture_open("memory:t", 2);
	struct hash hash;

	f.store->pack_len = STORE_PACK_LEN;
	put_file(f.store, 1, data, len, &hash);
	ck_assert_uint_eq(list_keys(f.below, PREFIX_PACKS).count, 1);
	/* A listing, the index object, the recipe, and no more than six ranges of 4 MiB. */
	fixture_reopen(&f, "fault+memory:t?get.denied=1&after=9");
	assert_restores(f.store, &hash, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(a_chunk_in_many_places_is_given_to_all)
{
	size_t len = 12 * MIB, period = 8 * KIB;
	cleanup_free uint8_t *pattern = random_content(period, 3), *data = malloc(len);
	struct fixture f = fixture_open("memory:t", 2);
	struct hash hash;

	for (size_t i = 0; i < len; i += period)
		memcpy(data + i, pattern, period);
	put_file(f.store, 1, data, len, &hash);
	assert_restores(f.store, &hash, data, len);
	fixture_close(&f);
}
END_TEST

static int refuse(void *arg, size_t segment, const void *plain, size_t len)
{
	(void)arg, (void)segment, (void)plain, (void)len;
	return -EDQUOT;
}

START_TEST(the_error_of_the_sink_comes_back)
{
	cleanup_free uint8_t *data = random_content(3 * MIB, 4);
	cleanup_recipe struct recipe recipe = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct hash hash;

	put_file(f.store, 1, data, 3 * MIB, &hash);
	unit_ok(store_get_recipe(f.store, &hash, &recipe, NULL));
	unit_error(store_get_segments(f.store, &recipe, 0, recipe.count, refuse, NULL, NULL),
		   -EDQUOT);
	fixture_close(&f);
}
END_TEST

/* ---- damage ---- */

START_TEST(damage_on_the_way_does_no_harm)
{
	static const char *const urls[] = {
		"fault+memory:t?get.damage=1&times=2",
		"fault+memory:t?get.short=1&times=2",
		"fault+memory:t?get.damage=1&times=2&only=packs/",
		"fault+memory:t?get.short=1&times=2&only=packs/",
	};
	cleanup_free uint8_t *data = random_content(3 * MIB, 5);
	struct fixture f = fixture_open("memory:t", 2);
	struct hash hash;

	put_file(f.store, 1, data, 3 * MIB, &hash);
	fixture_reopen(&f, urls[_i]);
	assert_restores(f.store, &hash, data, 3 * MIB);
	fixture_close(&f);
}
END_TEST

/* Where `got` is not `data`, it is zero: nothing wrong was given. The bytes that are missing. */
static size_t count_missing(const uint8_t *got, const uint8_t *data, size_t len)
{
	size_t missing = 0, wrong = 0;

	for (size_t i = 0; i < len; i++) {
		missing += got[i] != data[i];
		wrong += got[i] != data[i] && got[i];
	}
	ck_assert_uint_eq(wrong, 0);
	return missing;
}

START_TEST(a_damaged_chunk_is_told_and_the_others_come)
{
	size_t len = 6 * MIB, back_len, missing;
	cleanup_free uint8_t *data = random_content(len, 6), *back = NULL;
	struct fixture f = fixture_open("memory:t", 2);
	struct store_failure failure = {""};
	struct key_list packs;
	struct hash hash;

	put_file(f.store, 1, data, len, &hash);
	packs = list_keys(f.below, PREFIX_PACKS);
	damage(f.below, packs.keys[1], packs.sizes[1] / 2);
	unit_error(restore(f.store, &hash, &back, &back_len, &failure), -EIO);
	ck_assert_str_eq(failure.pack, strrchr(packs.keys[1], '/') + 1);
	missing = count_missing(back, data, len);
	ck_assert_uint_gt(missing, 0);
	ck_assert_uint_le(missing, MIB);
	/* Not for ever: what is repaired is read. */
	damage(f.below, packs.keys[1], packs.sizes[1] / 2);
	assert_restores(f.store, &hash, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(a_missing_or_cut_pack_is_told)
{
	size_t len = 6 * MIB, back_len;
	cleanup_free uint8_t *data = random_content(len, 7), *back = NULL, *again = NULL;
	struct fixture f = fixture_open("memory:t", 2);
	struct store_failure failure = {""};
	cleanup_buf struct buf pack = {0};
	struct key_list packs;
	struct hash hash;

	put_file(f.store, 1, data, len, &hash);
	packs = list_keys(f.below, PREFIX_PACKS);
	unit_ok(remote_get(f.below, packs.keys[0], 0, REMOTE_TO_END, &pack));
	if (_i)
		unit_ok(remote_put(f.below, packs.keys[0], pack.data, pack.len / 2));
	else
		unit_ok(remote_delete(f.below, packs.keys[0]));
	unit_error(restore(f.store, &hash, &back, &back_len, &failure), -EIO);
	ck_assert_str_eq(failure.pack, strrchr(packs.keys[0], '/') + 1);
	ck_assert_uint_gt(count_missing(back, data, len), 0);
	/* The same from an empty index, ... */
	fixture_reopen(&f, "memory:t");
	failure.pack[0] = '\0';
	unit_error(restore(f.store, &hash, &again, &back_len, &failure), -EIO);
	ck_assert_str_eq(failure.pack, strrchr(packs.keys[0], '/') + 1);
	/* and once it is back, all is well. */
	unit_ok(remote_put(f.below, packs.keys[0], pack.data, pack.len));
	assert_restores(f.store, &hash, data, len);
	fixture_close(&f);
}
END_TEST

/* A second remote whose packs hold the same chunks in other packs; all of it is copied to `f`. */
static void copy_from_elsewhere(struct fixture *f, const void *data, size_t len)
{
	cleanup_free uint8_t *other = random_content(300 * KIB, 8);
	struct store_index index;
	struct store *store = NULL;
	struct remote *remote = NULL;
	struct key_list keys;
	struct hash hash;

	unit_ok(remote_open("memory:elsewhere", &remote));
	unit_ok(store_memory_index_new(&index));
	unit_ok(store_open(remote, &index, 1, &store));
	put_file(store, 7, other, 300 * KIB, &hash);
	put_file(store, 7, data, len, &hash);
	keys = list_keys(remote, "");
	for (size_t i = 0; i < keys.count; i++) {
		cleanup_buf struct buf object = {0};

		unit_ok(remote_get(remote, keys.keys[i], 0, REMOTE_TO_END, &object));
		unit_ok(remote_put(f->below, keys.keys[i], object.data, object.len));
	}
	store_close(store);
	store_memory_index_free(&index);
	remote_close(remote);
}

START_TEST(a_damaged_chunk_is_found_in_another_pack)
{
	size_t len = 5 * MIB;
	cleanup_free uint8_t *data = random_content(len, 9);
	struct fixture f = fixture_open("memory:t", 2);
	struct key_list before;
	struct hash hash;

	put_file(f.store, 1, data, len, &hash);
	before = list_keys(f.below, PREFIX_PACKS);
	copy_from_elsewhere(&f, data, len);
	for (size_t i = 0; i < before.count; i++) {
		if (_i)
			unit_ok(remote_delete(f.below, before.keys[i]));
		else
			damage(f.below, before.keys[i], 5000 + 100 * KIB * i);
	}
	/* This index knows only the first places, ... */
	assert_restores(f.store, &hash, data, len);
	/* and one that is new may know either. */
	fixture_reopen(&f, "memory:t");
	assert_restores(f.store, &hash, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(an_older_place_serves_where_the_newest_is_gone)
{
	size_t len = 5 * MIB;
	cleanup_free uint8_t *data = random_content(len, 10);
	struct fixture f = fixture_open("memory:t", 2);
	struct key_list before, after;
	struct hash hash;

	put_file(f.store, 1, data, len, &hash);
	before = list_keys(f.below, PREFIX_PACKS);
	copy_from_elsewhere(&f, data, len);
	after = list_keys(f.below, PREFIX_PACKS);
	fixture_reopen(&f, "memory:t");
	unit_ok(store_index_refresh(f.store));
	for (size_t i = 0; i < after.count; i++) {
		bool old = false;

		for (size_t k = 0; k < before.count; k++)
			old |= !strcmp(after.keys[i], before.keys[k]);
		if (!old)
			unit_ok(remote_delete(f.below, after.keys[i]));
	}
	assert_restores(f.store, &hash, data, len);
	fixture_close(&f);
}
END_TEST

/* ---- the index ---- */

START_TEST(a_chunk_that_nobody_knows_is_told)
{
	struct fixture f = fixture_open("memory:t", 2);
	struct store_failure failure = {"not touched"};
	cleanup_recipe struct recipe recipe = {0};
	struct hash hash;

	hash_of("nobody", 6, &hash);
	unit_error(store_get_recipe(f.store, &hash, &recipe, &failure), -EIO);
	ck_assert_str_eq(failure.pack, "");
	unit_error(store_get_recipe(f.store, &hash, &recipe, NULL), -EIO);
	fixture_close(&f);
}
END_TEST

START_TEST(what_another_put_is_found)
{
	cleanup_free uint8_t *data = random_content(2 * MIB, 11);
	struct fixture writer = fixture_open("memory:t", 2), reader = fixture_open("memory:t", 2);
	struct hash hash;

	unit_ok(store_index_refresh(reader.store));
	put_file(writer.store, 1, data, 2 * MIB, &hash);
	assert_restores(reader.store, &hash, data, 2 * MIB);
	fixture_close(&reader);
	fixture_close(&writer);
}
END_TEST

START_TEST(damaged_and_foreign_index_objects_are_left_out)
{
	cleanup_free uint8_t *data = random_content(2 * MIB, 12), *more = random_content(MIB, 13);
	struct fixture f = fixture_open("memory:t", 2);
	struct key_list indexes;
	struct hash first, second;
	char key[KEY_MAX];

	put_file(f.store, 1, data, 2 * MIB, &first);
	indexes = list_keys(f.below, PREFIX_INDEX);
	put_file(f.store, 2, more, MIB, &second);
	damage(f.below, indexes.keys[0], indexes.sizes[0] / 2);
	unit_ok(remote_put(f.below, "index/README", "hello", 5));
	index_key(3, &first, key);
	unit_ok(remote_put(f.below, key, "not an index", 12));
	fixture_reopen(&f, "memory:t");
	unit_ok(store_index_refresh(f.store));
	assert_restores(f.store, &second, more, MIB);
	unit_error(store_get_recipe(f.store, &first, &(struct recipe){0}, NULL), -EIO);
	/* Repaired, it is loaded. */
	damage(f.below, indexes.keys[0], indexes.sizes[0] / 2);
	assert_restores(f.store, &first, data, 2 * MIB);
	fixture_close(&f);
}
END_TEST

/* An index object of one chunk that is said to lie at this place. */
static void put_lie(struct remote *r, uint64_t epoch, const struct hash *chunk,
		    const struct store_place *place)
{
	struct pack_entry entry = {*chunk, place->offset, place->stored_len, place->plain_len};
	struct index_pack pack = {place->pack, &entry, 1};
	cleanup_buf struct buf data = {0};
	char key[KEY_MAX];
	struct hash id;

	unit_ok(index_encode(&pack, 1, &data));
	hash_of(data.data, data.len, &id);
	index_key(epoch, &id, key);
	unit_ok(remote_put(r, key, data.data, data.len));
}

START_TEST(an_index_that_lies_gives_no_wrong_bytes)
{
	cleanup_free uint8_t *data = random_content(700 * KIB, 14);
	cleanup_recipe struct recipe recipe = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct store_place place, lie;
	struct hash hash;

	put_file(f.store, 1, data, 700 * KIB, &hash);
	unit_ok(store_get_recipe(f.store, &hash, &recipe, NULL));
	ck_assert_uint_gt(recipe.count, 1);
	unit_ok(f.index.get(f.index.arg, &recipe.segments[0].hash, &place));
	/* Another chunk's place; another length; beyond the pack's end; into nothing. */
	lie = place;
	if (_i == 0)
		unit_ok(f.index.get(f.index.arg, &recipe.segments[1].hash, &lie));
	else if (_i == 1)
		lie.plain_len = CHUNK_PLAIN_MAX;
	else if (_i == 2)
		lie.offset = 900 << 20;
	else
		lie.pack = hash;
	put_lie(f.below, 9, &recipe.segments[0].hash, &lie);
	fixture_reopen(&f, "memory:t");
	unit_ok(store_index_refresh(f.store));
	unit_ok(f.index.get(f.index.arg, &recipe.segments[0].hash, &place));
	ck_assert_uint_eq(place.offset, lie.offset);
	/* The truth is in the older object. */
	assert_restores(f.store, &hash, data, 700 * KIB);
	fixture_close(&f);
}
END_TEST

START_TEST(a_damaged_cached_recipe_is_fetched_again)
{
	cleanup_free uint8_t *data = random_content(MIB, 15);
	struct fixture f = fixture_open("memory:t", 2);
	cleanup_buf struct buf cached = {0};
	struct hash hash;

	put_file(f.store, 1, data, MIB, &hash);
	unit_ok(f.index.recipe_put(f.index.arg, &hash, "EFR?", 4));
	assert_restores(f.store, &hash, data, MIB);
	unit_ok(f.index.recipe_get(f.index.arg, &hash, &cached));
	ck_assert_uint_gt(cached.len, 4);
	fixture_close(&f);
}
END_TEST

START_TEST(a_forgotten_pack_is_forgotten)
{
	cleanup_free uint8_t *data = random_content(MIB, 16);
	cleanup_recipe struct recipe recipe = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct store_place place;
	struct hash hash;

	put_file(f.store, 1, data, MIB, &hash);
	unit_ok(store_get_recipe(f.store, &hash, &recipe, NULL));
	unit_ok(f.index.get(f.index.arg, &recipe.segments[0].hash, &place));
	unit_ok(f.index.forget_pack(f.index.arg, &hash));
	unit_ok(f.index.get(f.index.arg, &recipe.segments[0].hash, &place));
	unit_ok(f.index.forget_pack(f.index.arg, &place.pack));
	unit_error(f.index.get(f.index.arg, &recipe.segments[0].hash, &place), -ENOENT);
	/* The search in all index objects finds it still. */
	assert_restores(f.store, &hash, data, MIB);
	fixture_close(&f);
}
END_TEST

/* ---- errors of the remote ---- */

START_TEST(errors_of_the_remote_come_back)
{
	static const struct {
		const char *url;
		int error;
	} faults[] = {
		{"fault+memory:t?get.denied=1", -EACCES},
		{"fault+memory:t?get.down=1", -ECONNREFUSED},
		{"fault+memory:t?list.error=1", -EIO},
		{"fault+memory:t?get.denied=1&only=packs/", -EACCES},
	};
	cleanup_free uint8_t *data = random_content(MIB, 17), *back = NULL;
	struct fixture f = fixture_open("memory:t", 2);
	struct store_failure failure = {""};
	struct hash hash;
	size_t len;

	put_file(f.store, 1, data, MIB, &hash);
	fixture_reopen(&f, faults[_i].url);
	unit_error(restore(f.store, &hash, &back, &len, &failure), faults[_i].error);
	remote_cancel(f.remote);
	unit_error(restore(f.store, &hash, &back, &len, &failure), -ECANCELED);
	fixture_close(&f);
}
END_TEST

/* ---- reading beside others ---- */

START_TEST(reads_do_not_wait_for_puts_that_hang)
{
	cleanup_free uint8_t *data = random_content(2 * MIB, 18),
			     *more = random_content(20 * MIB, 19);
	struct fixture f = fixture_open("memory:t", 2);
	struct remote *faulty = NULL, *retry = NULL;
	struct store *store = NULL;
	struct store_batch *b = NULL;
	struct remote_state state = {0};
	struct hash hash, other;

	put_file(f.store, 1, data, 2 * MIB, &hash);
	unit_ok(remote_open("fault+memory:t?put.down=1", &faulty));
	unit_ok(remote_retry_new(faulty, NULL, &retry));
	unit_ok(store_open(retry, &f.index, 2, &store));
	store->pack_len = PACK_LEN;
	unit_ok(store_batch_begin(store, 2, &b));
	unit_ok(put_bytes(b, more, 5 * MIB, &other));
	unit_until((remote_get_state(retry, &state), state.waiting >= 2));
	assert_restores(store, &hash, data, 2 * MIB);
	remote_cancel(retry);
	store_batch_free(b);
	store_close(store);
	remote_close(retry);
	fixture_close(&f);
}
END_TEST

struct reader_thread {
	pthread_t thread;
	struct store *store;
	const struct hash *hash;
	const uint8_t *data;
	size_t len;
};

static void *read_often(void *arg)
{
	const struct reader_thread *r = arg;

	for (int i = 0; i < 4; i++)
		assert_restores(r->store, r->hash, r->data, r->len);
	return NULL;
}

START_TEST(many_read_while_one_puts)
{
	cleanup_free uint8_t *data = random_content(3 * MIB, 20),
			     *more = random_content(5 * MIB, 21);
	struct fixture f = fixture_open("memory:t", 3);
	struct reader_thread readers[4];
	struct hash hash, other;

	put_file(f.store, 1, data, 3 * MIB, &hash);
	fixture_reopen(&f, "fault+memory:t?get.damage=0.05");
	for (size_t i = 0; i < 4; i++) {
		readers[i] = (struct reader_thread){
			.store = f.store, .hash = &hash, .data = data, .len = 3 * MIB};
		ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, read_often, &readers[i]),
				 0);
	}
	put_file(f.store, 2, more, 5 * MIB, &other);
	for (size_t i = 0; i < 4; i++)
		pthread_join(readers[i].thread, NULL);
	assert_restores(f.store, &other, more, 5 * MIB);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_read");
	TCase *t = unit_case(s, "requests");

	tcase_add_test(t, a_part_of_a_content_is_read);
	tcase_add_test(t, neighbours_are_read_together);
	tcase_add_test(t, a_chunk_in_many_places_is_given_to_all);
	tcase_add_test(t, the_error_of_the_sink_comes_back);
	t = unit_case(s, "damage");
	tcase_add_loop_test(t, damage_on_the_way_does_no_harm, 0, 4);
	tcase_add_test(t, a_damaged_chunk_is_told_and_the_others_come);
	tcase_add_loop_test(t, a_missing_or_cut_pack_is_told, 0, 2);
	tcase_add_loop_test(t, a_damaged_chunk_is_found_in_another_pack, 0, 2);
	tcase_add_test(t, an_older_place_serves_where_the_newest_is_gone);
	t = unit_case(s, "index");
	tcase_add_test(t, a_chunk_that_nobody_knows_is_told);
	tcase_add_test(t, what_another_put_is_found);
	tcase_add_test(t, damaged_and_foreign_index_objects_are_left_out);
	tcase_add_loop_test(t, an_index_that_lies_gives_no_wrong_bytes, 0, 4);
	tcase_add_test(t, a_damaged_cached_recipe_is_fetched_again);
	tcase_add_test(t, a_forgotten_pack_is_forgotten);
	t = unit_case(s, "errors");
	tcase_add_loop_test(t, errors_of_the_remote_come_back, 0, 4);
	t = unit_case(s, "together");
	tcase_add_test(t, reads_do_not_wait_for_puts_that_hang);
	tcase_add_test(t, many_read_while_one_puts);
	return unit_run(s);
}
