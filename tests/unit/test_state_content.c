/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: versions, epochs, tags, and what the store keeps there. */
#include "lib/state/state.h"

#include "tests/unit/state_unit.h"

/* ---- versions ---- */

static void fill_hash(struct hash *h, uint64_t n)
{
	hash_of(&n, sizeof(n), h);
}

START_TEST(a_version_comes_back_whole)
{
	struct state_version v = {.ino = 2,
				  .body = 3,
				  .state = VERSION_DURABLE,
				  .kind = VERSION_EDIT,
				  .size = 1000,
				  .born = 4,
				  .died = 5,
				  .fragile = true,
				  .torn = true,
				  .has_recipe = true,
				  .flushed_size = 6,
				  .flushed_ctime_ns = -7,
				  .local_bytes = 500,
				  .local_whole = true,
				  .used_ns = 8};
	struct state_version got;
	uint64_t id;

	fill_hash(&v.recipe, 1);
	unit_ok(state_version_new(s, &v, &id));
	reopen();
	memset(&got, 0, sizeof(got));
	unit_ok(state_version_get(s, id, &got));
	ck_assert_uint_eq(got.ino, 2);
	ck_assert_uint_eq(got.body, 3);
	ck_assert_int_eq(got.state, VERSION_DURABLE);
	ck_assert_int_eq(got.kind, VERSION_EDIT);
	ck_assert_uint_eq(got.size, 1000);
	ck_assert_uint_eq(got.born, 4);
	ck_assert_uint_eq(got.died, 5);
	ck_assert(got.fragile && !got.fsynced && got.torn && got.local_whole && got.has_recipe);
	ck_assert(hash_equal(&got.recipe, &v.recipe));
	ck_assert_uint_eq(got.flushed_size, 6);
	ck_assert_int_eq(got.flushed_ctime_ns, -7);
	ck_assert_uint_eq(got.local_bytes, 500);
	ck_assert_int_eq(got.used_ns, 8);

	v.fsynced = true;
	v.has_recipe = v.fragile = v.torn = v.local_whole = false;
	unit_ok(state_version_set(s, &v));
	unit_ok(state_version_get(s, id, &got));
	ck_assert(!got.fragile && got.fsynced && !got.torn && !got.local_whole && !got.has_recipe);
	ck_assert(state_version_exists(s, id));
	unit_ok(state_inline_set(s, id, "abc", 3));
	unit_ok(state_version_remove(s, id));
	ck_assert(!state_version_exists(s, id));
	unit_error(state_version_get(s, id, &got), -ENOENT);
	unit_error(state_version_set(s, &v), -ENOENT);
	unit_error(state_version_remove(s, id), -ENOENT);
}
END_TEST

START_TEST(totals_follow_every_change)
{
	struct state_version v = {.state = VERSION_STAGED, .local_bytes = 100};
	uint64_t a = new_version(&v), local = 0, dirty = 0, b;

	v.local_bytes = 30;
	b = new_version(&v);
	unit_ok(state_version_totals(s, &local, &dirty));
	ck_assert_uint_eq(local, 130);
	ck_assert_uint_eq(dirty, 130);
	unit_ok(state_version_get(s, a, &v));
	v.state = VERSION_DURABLE;
	v.local_bytes = 110;
	unit_ok(state_version_set(s, &v));
	unit_ok(state_version_totals(s, &local, &dirty));
	ck_assert_uint_eq(local, 140);
	ck_assert_uint_eq(dirty, 30);
	unit_ok(state_begin(s));
	unit_ok(state_version_remove(s, b));
	unit_ok(state_version_totals(s, &local, &dirty));
	ck_assert_uint_eq(dirty, 0);
	state_end(s, -EIO);
	unit_ok(state_version_totals(s, &local, &dirty));
	ck_assert_uint_eq(local, 140);
	ck_assert_uint_eq(dirty, 30);
	reopen();
	unit_ok(state_version_totals(s, &local, &dirty));
	ck_assert_uint_eq(local, 140);
	ck_assert_uint_eq(dirty, 30);
}
END_TEST

START_TEST(inline_content_goes_with_its_version)
{
	uint64_t id = new_version(&(struct state_version){.state = VERSION_DURABLE});
	cleanup_buf struct buf b = {0};

	unit_error(state_inline_get(s, id, &b), -ENOENT);
	unit_ok(state_inline_set(s, id, "a\0b", 3));
	unit_ok(state_inline_get(s, id, &b));
	unit_same_bytes(b.data, b.len, "a\0b", 3);
	unit_ok(state_version_remove(s, id));
	unit_error(state_inline_get(s, id, &b), -ENOENT);
}
END_TEST

START_TEST(a_recipe_finds_its_version_local_ones_first)
{
	struct state_version v = {.state = VERSION_DURABLE, .has_recipe = true}, got;
	struct hash other;
	uint64_t local;

	fill_hash(&v.recipe, 1);
	fill_hash(&other, 2);
	new_version(&v);
	v.local_bytes = 5;
	local = new_version(&v);
	v.local_bytes = 9;
	v.state = VERSION_CLOSED;
	new_version(&v);
	unit_ok(state_version_by_recipe(s, &v.recipe, v.size, &got));
	ck_assert_uint_eq(got.id, local);
	unit_error(state_version_by_recipe(s, &other, v.size, &got), -ENOENT);
	unit_error(state_version_by_recipe(s, &v.recipe, v.size + 1, &got), -ENOENT);
}
END_TEST

struct ids {
	uint64_t id[16];
	int count;
	bool remove;
};

static int note_version(void *arg, const struct state_version *v)
{
	struct ids *ids = arg;

	ids->id[ids->count++] = v->id;
	if (ids->remove) {
		unit_ok(state_version_remove(s, v->id));
		new_version(v);
	}
	return 0;
}

START_TEST(versions_are_told_by_what_they_need)
{
	struct ids unsafe = {.remove = true}, dead = {0}, two = {0}, evictable = {0}, again = {0};
	uint64_t staged = new_version(&(struct state_version){.state = VERSION_STAGED});
	uint64_t closed = new_version(&(struct state_version){.state = VERSION_CLOSED, .died = 9});
	uint64_t old = new_version(&(struct state_version){
		.state = VERSION_DURABLE, .local_bytes = 1, .used_ns = 50, .died = 3});
	uint64_t older = new_version(
		&(struct state_version){.state = VERSION_DURABLE, .local_bytes = 1, .used_ns = 20});
	uint64_t empty = new_version(
		&(struct state_version){.state = VERSION_DURABLE, .kind = VERSION_CACHE});

	new_version(&(struct state_version){.state = VERSION_DURABLE});
	unit_ok(state_version_each_dead(s, 100, note_version, &dead));
	ck_assert_int_eq(dead.count, 3);
	ck_assert_uint_eq(dead.id[0], empty);
	ck_assert_uint_eq(dead.id[1], old);
	ck_assert_uint_eq(dead.id[2], closed);
	unit_ok(state_version_each_dead(s, 2, note_version, &two));
	ck_assert_int_eq(two.count, 2);
	unit_ok(state_version_each_evictable(s, note_version, &evictable));
	ck_assert_int_eq(evictable.count, 2);
	ck_assert_uint_eq(evictable.id[0], older);
	ck_assert_uint_eq(evictable.id[1], old);
	unit_ok(state_version_each_unsafe(s, note_version, &unsafe));
	ck_assert_int_eq(unsafe.count, 2);
	ck_assert_uint_eq(unsafe.id[0], staged);
	ck_assert_uint_eq(unsafe.id[1], closed);
	unit_ok(state_version_each_unsafe(s, note_version, &again));
	ck_assert_int_eq(again.count, 2);
	ck_assert_uint_gt(again.id[0], empty);
}
END_TEST

/* ---- epochs and tags ---- */

static void set_epoch(uint64_t number, enum epoch_state state)
{
	struct state_epoch e = {.number = number, .state = state, .record = (char *)"{}"};

	unit_ok(state_epoch_set(s, &e));
}

START_TEST(an_epoch_comes_back_whole)
{
	struct state_epoch e = {.number = 7,
				.state = EPOCH_FAILED,
				.record = (char *)"{\"a\":1}",
				.error = (char *)"no space",
				.remote_delete_pending = true};
	struct state_epoch got;

	unit_error(state_epoch_get(s, 7, &got), -ENOENT);
	unit_ok(state_epoch_set(s, &e));
	reopen();
	unit_ok(state_epoch_get(s, 7, &got));
	ck_assert_int_eq(got.state, EPOCH_FAILED);
	ck_assert_str_eq(got.record, "{\"a\":1}");
	ck_assert_str_eq(got.error, "no space");
	ck_assert(got.remote_delete_pending && !got.superseded);
	state_epoch_free(&got);
	e = (struct state_epoch){.number = 7, .state = EPOCH_DROPPED, .superseded = true};
	unit_ok(state_epoch_set(s, &e));
	unit_ok(state_epoch_get(s, 7, &got));
	ck_assert_ptr_null(got.record);
	ck_assert_ptr_null(got.error);
	ck_assert(!got.remote_delete_pending && got.superseded);
}
END_TEST

static int drop_epoch(void *arg, const struct state_epoch *e)
{
	uint64_t *sum = arg;

	*sum = *sum * 10 + e->number;
	set_epoch(e->number + 100, EPOCH_DROPPED);
	return 0;
}

START_TEST(epochs_are_told_ascending_and_may_change)
{
	uint64_t sum = 0;

	set_epoch(3, EPOCH_SEALED);
	set_epoch(1, EPOCH_DROPPED);
	set_epoch(2, EPOCH_DURABLE);
	unit_ok(state_epoch_each(s, drop_epoch, &sum));
	ck_assert_uint_eq(sum, 123);
}
END_TEST

START_TEST(pending_epochs_are_found)
{
	uint64_t first = 0;

	unit_error(state_epoch_first_pending(s, &first), -ENOENT);
	set_epoch(1, EPOCH_DURABLE);
	set_epoch(2, EPOCH_DROPPED);
	unit_error(state_epoch_first_pending(s, &first), -ENOENT);
	ck_assert(!state_epoch_pending_in(s, 1, 0));
	set_epoch(5, EPOCH_UPLOADING);
	set_epoch(4, EPOCH_FAILED);
	set_epoch(6, EPOCH_SEALED);
	unit_ok(state_epoch_first_pending(s, &first));
	ck_assert_uint_eq(first, 4);
	ck_assert(state_epoch_pending_in(s, 1, 0));
	ck_assert(state_epoch_pending_in(s, 6, 7));
	ck_assert(!state_epoch_pending_in(s, 1, 4));
	ck_assert(state_epoch_pending_in(s, 1, 5));
	ck_assert(!state_epoch_pending_in(s, 7, 0));
	ck_assert(!state_epoch_pending_in(s, 5, 5));
}
END_TEST

static int sync_tag(void *arg, const char *name, uint64_t number)
{
	char *told = arg;

	sprintf(told + strlen(told), "%s=%d ", name, (int)number);
	return state_tag_synced(s, name, number);
}

static int note_number(void *arg, const struct state_epoch *e)
{
	*(uint64_t *)arg = *(uint64_t *)arg * 10 + e->number;
	return 0;
}

START_TEST(what_waits_for_the_remote_is_counted)
{
	struct state_epoch drop = {
		.number = 3, .state = EPOCH_DROPPED, .remote_delete_pending = true};
	uint64_t pending = 9, oldest = 9, deletes = 9, numbers = 0;

	unit_ok(state_epoch_count_waiting(s, &pending, &oldest, &deletes));
	ck_assert(pending == 0 && oldest == 0 && deletes == 0);
	set_epoch(1, EPOCH_DURABLE);
	set_epoch(2, EPOCH_DROPPED);
	unit_ok(state_epoch_set(s, &drop));
	drop.number = 8;
	unit_ok(state_epoch_set(s, &drop));
	set_epoch(6, EPOCH_UPLOADING);
	set_epoch(5, EPOCH_FAILED);
	set_epoch(7, EPOCH_SEALED);
	unit_ok(state_epoch_count_waiting(s, &pending, &oldest, &deletes));
	ck_assert(pending == 3 && oldest == 5 && deletes == 2);
	unit_ok(state_epoch_each_delete(s, note_number, &numbers));
	ck_assert_uint_eq(numbers, 38);
}
END_TEST

START_TEST(tags_remember_what_the_remote_has_not_seen)
{
	char told[100] = "", all[100] = "", none[100] = "";
	uint64_t n;

	unit_error(state_tag_get(s, "best", &n), -ENOENT);
	unit_error(state_tag_remove(s, "best"), -ENOENT);
	unit_ok(state_tag_set(s, "best", 4));
	unit_ok(state_tag_set(s, "best", 5));
	unit_ok(state_tag_set(s, "a", 1));
	unit_ok(state_tag_set(s, "gone", 2));
	unit_ok(state_tag_remove(s, "gone"));
	unit_ok(state_tag_get(s, "best", &n));
	ck_assert_uint_eq(n, 5);
	unit_ok(state_tag_synced(s, "best", 4));
	unit_ok(state_tag_each_unsynced(s, sync_tag, told));
	ck_assert_str_eq(told, "a=1 best=5 gone=0 ");
	unit_ok(state_tag_each_unsynced(s, sync_tag, none));
	ck_assert_str_eq(none, "");
	unit_ok(state_tag_each(s, sync_tag, all));
	ck_assert_str_eq(all, "a=1 best=5 ");
}
END_TEST

/* ---- the store's ---- */

START_TEST(chunks_know_their_pack)
{
	struct state_chunk c = {.offset = 77, .stored_len = 10, .plain_len = UINT32_MAX}, got;
	struct hash one, two, three, pack_b;

	fill_hash(&one, 1);
	fill_hash(&two, 2);
	fill_hash(&three, 3);
	fill_hash(&c.pack, 10);
	fill_hash(&pack_b, 11);
	unit_error(state_chunk_get(s, &one, &got), -ENOENT);
	unit_ok(state_chunk_put(s, &one, &c));
	unit_ok(state_begin(s));
	c.pack = pack_b;
	unit_ok(state_chunk_put(s, &two, &c));
	state_end(s, -EIO);
	unit_ok(state_chunk_put(s, &three, &c));
	unit_error(state_chunk_get(s, &two, &got), -ENOENT);
	unit_ok(state_chunk_get(s, &three, &got));
	ck_assert(hash_equal(&got.pack, &pack_b));
	ck_assert_uint_eq(got.offset, 77);
	ck_assert_uint_eq(got.stored_len, 10);
	ck_assert_uint_eq(got.plain_len, UINT32_MAX);
	unit_ok(state_chunk_forget_pack(s, &pack_b));
	unit_ok(state_chunk_forget_pack(s, &two));
	unit_error(state_chunk_get(s, &three, &got), -ENOENT);
	unit_ok(state_chunk_get(s, &one, &got));
	unit_ok(state_chunk_put(s, &three, &c));
	unit_ok(state_chunk_get(s, &three, &got));
	ck_assert(hash_equal(&got.pack, &pack_b));
}
END_TEST

START_TEST(recipes_and_indexes_are_remembered)
{
	cleanup_buf struct buf b = {0};
	struct hash h;

	fill_hash(&h, 1);
	ck_assert(!state_index_loaded(s, "index/a"));
	unit_ok(state_index_mark_loaded(s, "index/a"));
	unit_ok(state_index_mark_loaded(s, "index/a"));
	unit_error(state_recipe_get(s, &h, &b), -ENOENT);
	unit_ok(state_recipe_put(s, &h, "re\0cipe", 7));
	reopen();
	ck_assert(state_index_loaded(s, "index/a"));
	ck_assert(!state_index_loaded(s, "index/b"));
	unit_ok(state_recipe_get(s, &h, &b));
	unit_same_bytes(b.data, b.len, "re\0cipe", 7);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("state_content");
	TCase *t;

	t = fixture(suite, "versions");
	tcase_add_test(t, a_version_comes_back_whole);
	tcase_add_test(t, totals_follow_every_change);
	tcase_add_test(t, inline_content_goes_with_its_version);
	tcase_add_test(t, a_recipe_finds_its_version_local_ones_first);
	tcase_add_test(t, versions_are_told_by_what_they_need);
	t = fixture(suite, "epochs and tags");
	tcase_add_test(t, an_epoch_comes_back_whole);
	tcase_add_test(t, epochs_are_told_ascending_and_may_change);
	tcase_add_test(t, pending_epochs_are_found);
	tcase_add_test(t, what_waits_for_the_remote_is_counted);
	tcase_add_test(t, tags_remember_what_the_remote_has_not_seen);
	t = fixture(suite, "the store's");
	tcase_add_test(t, chunks_know_their_pack);
	tcase_add_test(t, recipes_and_indexes_are_remembered);
	return unit_run(suite);
}
