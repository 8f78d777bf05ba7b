/* SPDX-License-Identifier: Apache-2.0 */
/* The content store, putting: what goes in comes out, once; what fails ends cleanly. */
#include "lib/store/batch_impl.h"

#include "tests/unit/store_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* ---- what goes in comes out ---- */

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

START_TEST(zeros_come_back_and_cost_nothing)
{
	cleanup_free uint8_t *data = random_content(6 * MIB, 2);
	struct fixture f = fixture_open("memory:t", 2);
	struct store_stats stats;
	struct hash recipe, all_zero;

	memset(data, 0, MIB);
	memset(data + 2 * MIB, 0, MIB);
	memset(data + 4 * MIB, 0, 2 * MIB);
	stats = put_file(f.store, 1, data, 6 * MIB, &recipe);
	ck_assert_uint_eq(stats.plain, 6 * MIB);
	ck_assert_uint_le(stats.fresh, 2 * MIB + 64);
	assert_restores(f.store, &recipe, data, 6 * MIB);
	memset(data, 0, 6 * MIB);
	stats = put_file(f.store, 2, data, 6 * MIB, &all_zero);
	ck_assert_uint_eq(stats.fresh, 0);
	ck_assert_uint_lt(stats.stored, KIB);
	assert_restores(f.store, &all_zero, data, 6 * MIB);
	fixture_close(&f);
}
END_TEST

START_TEST(a_long_content_fills_several_packs)
{
	size_t len = 5 * MIB;
	cleanup_free uint8_t *data = random_content(len, 3);
	struct fixture f = fixture_open("memory:t", 2);
	struct store_stats stats;
	struct key_list packs;
	struct hash recipe;

	stats = put_file(f.store, 1, data, len, &recipe);
	packs = list_keys(f.below, PREFIX_PACKS);
	ck_assert_uint_eq(packs.count, 3);
	for (size_t i = 0; i < packs.count; i++)
		ck_assert_uint_lt(packs.sizes[i], PACK_LEN + MIB + 64 * KIB);
	ck_assert_uint_eq(stats.plain, len);
	ck_assert_uint_eq(stats.fresh, len);
	ck_assert_uint_eq(stats.stored, packs.bytes + list_keys(f.below, PREFIX_INDEX).bytes);
	assert_restores(f.store, &recipe, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(a_recipe_longer_than_a_chunk_comes_back)
{
	cleanup_recipe struct recipe r = {0}, back = {0};
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct store_batch *b = NULL;
	struct store_stats stats;
	struct hash hash, chunk;
	struct key_list packs;

	for (uint32_t i = 1; i <= 150000; i++) {
		hash_of(&i, sizeof(i), &chunk);
		unit_ok(recipe_add_chunk(&r, &chunk, i % CHUNK_PLAIN_MAX + 1));
		unit_ok(recipe_add_zeros(&r, i % 7 ? 0 : i));
	}
	unit_ok(store_batch_begin(f.store, 1, &b));
	unit_ok(batch_put_recipe(b, &r, &hash));
	unit_ok(store_batch_finish(b, &record, &stats));
	store_batch_free(b);
	fixture_reopen(&f, "memory:t");
	unit_ok(store_get_recipe(f.store, &hash, &back, NULL));
	ck_assert_uint_eq(back.level, 0);
	ck_assert_uint_eq(back.size, r.size);
	ck_assert_uint_eq(back.count, r.count);
	for (size_t i = 0; i < r.count; i++) {
		ck_assert_uint_eq(back.segments[i].length, r.segments[i].length);
		ck_assert(hash_equal(&back.segments[i].hash, &r.segments[i].hash));
	}
	/* Then it is all in the cache. */
	recipe_free(&back);
	packs = list_keys(f.below, PREFIX_PACKS);
	for (size_t i = 0; i < packs.count; i++)
		unit_ok(remote_delete(f.below, packs.keys[i]));
	unit_ok(store_get_recipe(f.store, &hash, &back, NULL));
	ck_assert_uint_eq(back.count, r.count);
	fixture_close(&f);
}
END_TEST

/* ---- once ---- */

START_TEST(what_comes_again_is_not_stored_again)
{
	size_t len = 6 * MIB + 100;
	cleanup_free uint8_t *data = random_content(len, 4);
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct store_batch *b = NULL;
	struct store_stats stats;
	struct hash first, second, third;

	/* Twice in one batch, ... */
	unit_ok(store_batch_begin(f.store, 1, &b));
	unit_ok(put_bytes(b, data, len, &first));
	unit_ok(put_bytes(b, data, len, &second));
	unit_ok(store_batch_finish(b, &record, &stats));
	store_batch_free(b);
	ck_assert(hash_equal(&first, &second));
	ck_assert_uint_eq(stats.plain, 2 * len);
	ck_assert_uint_eq(stats.fresh, len);
	ck_assert_uint_eq(record.bytes_new, stats.fresh);
	ck_assert_uint_eq(record.bytes_stored, stats.stored);
	ck_assert_uint_eq(record.index_count, 1);
	/* in a later batch, ... */
	stats = put_file(f.store, 2, data, len, &second);
	ck_assert(hash_equal(&first, &second));
	ck_assert_uint_eq(stats.stored, 0);
	/* and from a machine that has no index yet. */
	fixture_reopen(&f, "memory:t");
	stats = put_file(f.store, 3, data, len, &third);
	ck_assert(hash_equal(&first, &third));
	ck_assert_uint_eq(stats.fresh, 0);
	ck_assert_uint_eq(stats.stored, 0);
	fixture_close(&f);
}
END_TEST

START_TEST(equal_chunks_in_flight_are_stored_once)
{
	size_t len = 20 * MIB, period = 8 * KIB;
	cleanup_free uint8_t *data = malloc(len);
	cleanup_free uint8_t *pattern = random_content(period, 5);
	struct fixture f = fixture_open("memory:t", 4);
	struct store_stats stats;
	struct hash recipe;

	ck_assert_ptr_nonnull(data);
	for (size_t i = 0; i < len; i += period)
		memcpy(data + i, pattern, period);
	stats = put_file(f.store, 1, data, len, &recipe);
	/* All chunks but the last are cut alike. */
	ck_assert_uint_le(stats.fresh, 2 * MIB);
	assert_restores(f.store, &recipe, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(one_changed_byte_stores_little)
{
	size_t len = 24 * MIB;
	cleanup_free uint8_t *data = random_content(len, 6);
	struct fixture f = fixture_open("memory:t", 2);
	struct store_stats stats;
	struct hash before, after;

	put_file(f.store, 1, data, len, &before);
	data[len / 2 + 77] ^= 1;
	stats = put_file(f.store, 2, data, len, &after);
	ck_assert(!hash_equal(&before, &after));
	ck_assert_uint_gt(stats.fresh, 0);
	ck_assert_uint_lt(stats.stored, 4 * MIB);
	assert_restores(f.store, &after, data, len);
	data[len / 2 + 77] ^= 1;
	assert_restores(f.store, &before, data, len);
	fixture_close(&f);
}
END_TEST

/* ---- beginning again ---- */

START_TEST(the_packs_do_not_depend_on_the_threads)
{
	size_t len = 5 * MIB / 2;
	cleanup_free uint8_t *data = random_content(len, 7);
	struct key_list packs[2], indexes[2];
	struct hash recipe;

	for (int i = 0; i < 2; i++) {
		struct fixture f = fixture_open("memory:t", i ? 5 : 1);

		put_file(f.store, 1, data, len, &recipe);
		packs[i] = list_keys(f.below, PREFIX_PACKS);
		indexes[i] = list_keys(f.below, PREFIX_INDEX);
		fixture_close(&f);
	}
	ck_assert_uint_eq(packs[0].count, 2);
	ck_assert_uint_eq(packs[1].count, 2);
	for (size_t i = 0; i < 2; i++)
		ck_assert_str_eq(packs[0].keys[i], packs[1].keys[i]);
	ck_assert_str_eq(indexes[0].keys[0], indexes[1].keys[0]);
}
END_TEST

/* As after a try that ended when only its first pack was put; gives that pack's key. */
static void interrupted_try(struct fixture *f, const void *data, size_t len, char ret_pack[KEY_MAX])
{
	struct key_list packs;
	struct hash recipe;

	put_file(f->store, 1, data, len, &recipe);
	packs = list_keys(f->below, PREFIX_PACKS);
	ck_assert_uint_eq(packs.count, 2);
	ck_assert_uint_gt(packs.sizes[0] + packs.sizes[1], len);
	strcpy(ret_pack, packs.keys[packs.sizes[0] < packs.sizes[1]]);
	unit_ok(remote_delete(f->below, packs.keys[packs.sizes[0] >= packs.sizes[1]]));
	unit_ok(remote_delete(f->below, list_keys(f->below, PREFIX_INDEX).keys[0]));
	fixture_reopen(f, "memory:t");
}

START_TEST(a_new_try_puts_only_what_is_missing)
{
	size_t len = 5 * MIB / 2;
	cleanup_free uint8_t *data = random_content(len, 8);
	struct fixture f = fixture_open("memory:t", 2);
	struct store_stats stats;
	struct hash recipe;
	char pack[KEY_MAX];

	interrupted_try(&f, data, len, pack);
	/* A mark in a frame: were the pack put again, it would be gone, and the second damage would
	 * be one. */
	damage(f.below, pack, 1000);
	stats = put_file(f.store, 1, data, len, &recipe);
	ck_assert_uint_eq(stats.fresh, len);
	ck_assert_uint_gt(stats.stored, len);
	ck_assert_uint_eq(list_keys(f.below, PREFIX_PACKS).count, 2);
	damage(f.below, pack, 1000);
	assert_restores(f.store, &recipe, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(a_new_try_puts_again_what_is_cut_or_has_another_table)
{
	size_t len = 5 * MIB / 2;
	cleanup_free uint8_t *data = random_content(len, 9);
	struct fixture f = fixture_open("memory:t", 2);
	cleanup_buf struct buf pack = {0};
	struct hash recipe;
	char key[KEY_MAX];

	interrupted_try(&f, data, len, key);
	unit_ok(remote_get(f.below, key, 0, REMOTE_TO_END, &pack));
	memset(pack.data + 1000, 0, 100);
	if (_i)
		memset(pack.data + pack.len - 500, 0, 400);
	unit_ok(remote_put(f.below, key, pack.data, _i ? pack.len : pack.len - 1));
	put_file(f.store, 1, data, len, &recipe);
	assert_restores(f.store, &recipe, data, len);
	fixture_close(&f);
}
END_TEST

/* ---- building on what is there ---- */

START_TEST(a_lost_pack_is_not_built_on)
{
	size_t len = MIB;
	cleanup_free uint8_t *data = random_content(len, 10);
	struct fixture f = fixture_open("memory:t", 2);
	struct store_stats stats;
	struct hash recipe;

	put_file(f.store, 1, data, len, &recipe);
	fixture_reopen(&f, "memory:t");
	unit_ok(store_index_refresh(f.store));
	unit_ok(remote_delete(f.below, list_keys(f.below, PREFIX_PACKS).keys[0]));
	stats = put_file(f.store, 2, data, len, &recipe);
	ck_assert_uint_eq(stats.fresh, len);
	assert_restores(f.store, &recipe, data, len);
	fixture_reopen(&f, "memory:t");
	assert_restores(f.store, &recipe, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(a_remote_that_is_not_mounted_is_not_filled)
{
	cleanup_free uint8_t *data = random_content(MIB, 11);
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open("memory:t", 2);
	struct store_batch *b = NULL;
	struct store_stats stats;
	struct hash recipe;

	put_file(f.store, 1, data, MIB, &recipe);
	fixture_reopen(&f, "memory:t");
	unit_ok(store_index_refresh(f.store));
	unit_ok(remote_delete(f.below, list_keys(f.below, PREFIX_PACKS).keys[0]));
	unit_ok(remote_delete(f.below, KEY_VOLUME));
	unit_ok(store_batch_begin(f.store, 2, &b));
	(void)put_bytes(b, data, MIB, &recipe);
	unit_error(store_batch_finish(b, &record, &stats), -EIO);
	store_batch_free(b);
	ck_assert_uint_eq(list_keys(f.below, PREFIX_PACKS).count, 0);
	fixture_close(&f);
}
END_TEST

START_TEST(a_chunk_found_damaged_is_stored_again)
{
	size_t len = 3 * MIB;
	cleanup_free uint8_t *data = random_content(len, 12), *back = NULL;
	struct fixture f = fixture_open("memory:t", 2);
	struct store_stats stats;
	struct hash recipe;
	size_t back_len;

	put_file(f.store, 1, data, len, &recipe);
	damage(f.below, list_keys(f.below, PREFIX_PACKS).keys[0], 1000);
	unit_error(restore(f.store, &recipe, &back, &back_len, NULL), -EIO);
	stats = put_file(f.store, 2, data, len, &recipe);
	ck_assert_uint_gt(stats.fresh, 0);
	ck_assert_uint_lt(stats.fresh, len);
	assert_restores(f.store, &recipe, data, len);
	fixture_reopen(&f, "memory:t");
	assert_restores(f.store, &recipe, data, len);
	fixture_close(&f);
}
END_TEST

START_TEST(one_store_learns_what_another_found)
{
	size_t len = 3 * MIB, back_len;
	cleanup_free uint8_t *data = random_content(len, 17), *back = NULL;
	struct fixture f = fixture_open("memory:t", 2);
	struct store *writer = NULL;
	struct store_stats stats;
	struct hash recipe;

	put_file(f.store, 1, data, len, &recipe);
	unit_ok(store_open(f.remote, &f.index, 2, &writer));
	store_learn_with(writer, f.store);
	damage(f.below, list_keys(f.below, PREFIX_PACKS).keys[0], 1000);
	unit_error(restore(f.store, &recipe, &back, &back_len, NULL), -EIO);
	stats = put_file(writer, 2, data, len, &recipe);
	ck_assert_uint_gt(stats.fresh, 0);
	assert_restores(f.store, &recipe, data, len);
	fixture_close(&f);
	store_close(writer);
}
END_TEST

/* ---- what fails ---- */

START_TEST(an_error_of_the_remote_ends_the_batch)
{
	static const struct {
		const char *url;
		int error;
	} faults[] = {
		{"fault+memory:t?put.denied=1", -EACCES},
		{"fault+memory:t?put.enospc=1", -ENOSPC},
		{"fault+memory:t?put.error=1", -EIO},
		{"fault+memory:t?put.denied=1&only=index/", -EACCES},
		{"none", -EROFS},
	};
	size_t len = 10 * MIB;
	cleanup_free uint8_t *data = random_content(len, 13);
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open(faults[_i].url, 2);
	struct store_batch *b = NULL;
	struct store_stats stats;
	struct hash recipe;

	unit_ok(store_batch_begin(f.store, 1, &b));
	(void)put_bytes(b, data, len, &recipe);
	unit_error(store_batch_finish(b, &record, &stats), faults[_i].error);
	unit_error(store_batch_finish(b, &record, &stats), faults[_i].error);
	unit_error(store_put_tree(b, data, 10, &record), faults[_i].error);
	store_batch_free(b);
	/* The store itself goes on. */
	fixture_reopen(&f, "memory:t");
	put_file(f.store, 1, data, MIB, &recipe);
	assert_restores(f.store, &recipe, data, MIB);
	fixture_close(&f);
}
END_TEST

START_TEST(an_error_of_the_file_leaves_the_batch_sound)
{
	cleanup_free uint8_t *data = random_content(3 * MIB, 14);
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open("memory:t", 2);
	cleanup_close int fd = content_fd(data, 2 * MIB), bad = open("/dev/null", O_WRONLY);
	struct store_batch *b = NULL;
	struct store_stats stats;
	struct hash recipe, untouched = {0}, zero = {0};

	unit_ok(store_batch_begin(f.store, 1, &b));
	unit_error(store_put_fd(b, fd, 3 * MIB, &untouched, NULL), -ENODATA);
	unit_ok(store_batch_error(b));
	unit_error(store_put_fd(b, bad, 3 * MIB, &untouched, NULL), -EBADF);
	unit_error(store_put_fd(b, fd, 0, &untouched, NULL), -EINVAL);
	unit_ok(store_batch_error(b));
	ck_assert(hash_equal(&untouched, &zero));
	unit_ok(store_put_fd(b, fd, 2 * MIB, &recipe, NULL));
	unit_ok(store_batch_finish(b, &record, &stats));
	store_batch_free(b);
	assert_restores(f.store, &recipe, data, 2 * MIB);
	fixture_close(&f);
}
END_TEST

static void *cancel_when_waiting(void *arg)
{
	struct remote *r = arg;
	struct remote_state state = {0};

	while (!state.waiting)
		remote_get_state(r, &state);
	remote_cancel(r);
	return NULL;
}

START_TEST(cancelling_ends_puts_that_wait)
{
	size_t len = 20 * MIB;
	cleanup_free uint8_t *data = random_content(len, 15);
	cleanup_record struct epoch_record record = {0};
	struct fixture f = fixture_open("fault+memory:t?put.down=1&only=packs/", 2);
	struct remote *retry = NULL;
	struct store *store = NULL;
	struct store_batch *b = NULL;
	struct store_stats stats;
	struct hash recipe;
	pthread_t thread;

	unit_ok(remote_retry_new(remote_ref(f.remote), NULL, &retry));
	unit_ok(store_open(retry, &f.index, 2, &store));
	store->pack_len = PACK_LEN;
	unit_ok(store_batch_begin(store, 1, &b));
	ck_assert_int_eq(pthread_create(&thread, NULL, cancel_when_waiting, retry), 0);
	/* More than the packs that may be under way: it must wait until the cancel. */
	unit_error(put_bytes(b, data, len, &recipe), -ECANCELED);
	unit_error(store_batch_finish(b, &record, &stats), -ECANCELED);
	store_batch_free(b);
	pthread_join(thread, NULL);
	store_close(store);
	remote_close(retry);
	fixture_close(&f);
}
END_TEST

START_TEST(an_abandoned_batch_leaves_nothing_visible)
{
	cleanup_free uint8_t *data = random_content(3 * MIB, 16);
	struct fixture f = fixture_open("memory:t", 2);
	struct store_batch *b = NULL;
	struct hash recipe;

	unit_ok(store_batch_begin(f.store, 1, &b));
	unit_ok(put_bytes(b, data, 3 * MIB, &recipe));
	store_batch_free(b);
	ck_assert_uint_eq(list_keys(f.below, PREFIX_INDEX).count, 0);
	fixture_close(&f);
}
END_TEST

/* ---- memory ---- */

static size_t peak_memory(void)
{
	cleanup_fclose FILE *status = fopen("/proc/self/status", "re");
	char line[256];
	size_t kib = 0;

	ck_assert_ptr_nonnull(status);
	while (!kib && fgets(line, sizeof(line), status))
		(void)sscanf(line, "VmHWM: %zu kB", &kib);
	ck_assert_uint_gt(kib, 0);
	return kib * KIB;
}

START_TEST(memory_is_bounded)
{
	cleanup_free char *dir = unit_dir();
	cleanup_close int fd = memfd_create("content", MFD_CLOEXEC);
	struct fixture f = fixture_open(dir, 2);
	cleanup_record struct epoch_record record = {0};
	struct store_batch *b = NULL;
	struct store_stats stats;
	size_t len = 256 * MIB;
	struct hash recipe;

	if (!SANITIZED) {
		f.store->pack_len = STORE_PACK_LEN;
		for (size_t i = 0; i < len / MIB; i++) {
			cleanup_free uint8_t *data = random_content(MIB, i + 100);

			unit_ok(io_pwrite_full(fd, data, MIB, i * MIB));
		}
		unit_ok(store_batch_begin(f.store, 1, &b));
		unit_ok(store_put_fd(b, fd, len, &recipe, NULL));
		unit_ok(store_batch_finish(b, &record, &stats));
		store_batch_free(b);
		/* The packs, and what is on its way to them. */
		ck_assert_uint_lt(peak_memory(), PACKER_PACKS * STORE_PACK_LEN + 52 * MIB);
	}
	fixture_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_batch");
	TCase *t = unit_case(s, "round trip");

	tcase_add_loop_test(t, a_content_comes_back_from_an_empty_index, 0, 6);
	tcase_add_test(t, zeros_come_back_and_cost_nothing);
	tcase_add_test(t, a_long_content_fills_several_packs);
	tcase_add_test(t, a_recipe_longer_than_a_chunk_comes_back);
	t = unit_case(s, "once");
	tcase_add_test(t, what_comes_again_is_not_stored_again);
	tcase_add_test(t, equal_chunks_in_flight_are_stored_once);
	tcase_add_test(t, one_changed_byte_stores_little);
	t = unit_case(s, "again");
	tcase_add_test(t, the_packs_do_not_depend_on_the_threads);
	tcase_add_test(t, a_new_try_puts_only_what_is_missing);
	tcase_add_loop_test(t, a_new_try_puts_again_what_is_cut_or_has_another_table, 0, 2);
	tcase_add_test(t, a_lost_pack_is_not_built_on);
	tcase_add_test(t, a_remote_that_is_not_mounted_is_not_filled);
	tcase_add_test(t, a_chunk_found_damaged_is_stored_again);
	tcase_add_test(t, one_store_learns_what_another_found);
	t = unit_case(s, "failures");
	tcase_add_loop_test(t, an_error_of_the_remote_ends_the_batch, 0, 5);
	tcase_add_test(t, an_error_of_the_file_leaves_the_batch_sound);
	tcase_add_test(t, cancelling_ends_puts_that_wait);
	tcase_add_test(t, an_abandoned_batch_leaves_nothing_visible);
	tcase_add_test(t, memory_is_bounded);
	return unit_run(s);
}
