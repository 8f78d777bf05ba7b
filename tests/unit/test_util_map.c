/* SPDX-License-Identifier: Apache-2.0 */
/* A map: what was added is found, also of many and of the same hash, and what was removed is not. */
#include "lib/util/map.h"

#include <stdbool.h>
#include "tests/unit/unit.h"

#define COUNT 3000

struct thing {
	uint64_t key;
	struct map_link link;
	bool seen;
};

static struct thing things[COUNT];

static struct thing *thing_of(const struct map_link *l)
{
	return map_item(l, struct thing, link);
}

static struct thing *find(const struct map *m, uint64_t key, uint64_t hash)
{
	for (struct map_link *l = map_find(m, hash); l; l = map_find_next(l))
		if (thing_of(l)->key == key)
			return thing_of(l);
	return NULL;
}

static void add(struct map *m, size_t i, uint64_t hash)
{
	things[i] = (struct thing){.key = i};
	unit_ok(map_add(m, &things[i].link, hash));
}

START_TEST(an_empty_one_has_nothing)
{
	struct map m = {0};

	ck_assert_ptr_null(map_find(&m, 0));
	ck_assert_ptr_null(map_next(&m, NULL));
	map_free(&m);
}
END_TEST

START_TEST(each_of_many_is_found)
{
	struct map m = {0};

	for (size_t i = 0; i < COUNT; i++)
		add(&m, i, map_hash(i));
	ck_assert_uint_eq(m.count, COUNT);
	for (size_t i = 0; i < COUNT; i++)
		ck_assert_ptr_eq(find(&m, i, map_hash(i)), &things[i]);
	ck_assert_ptr_null(find(&m, COUNT, map_hash(COUNT)));
	map_free(&m);
	ck_assert_ptr_null(find(&m, 1, map_hash(1)));
}
END_TEST

/* Through every widening. */
START_TEST(the_last_of_one_hash_comes_first)
{
	struct map m = {0};
	size_t expected = COUNT;

	for (size_t i = 0; i < COUNT; i++)
		add(&m, i, i % 2);
	for (struct map_link *l = map_find(&m, 1); l; l = map_find_next(l)) {
		ck_assert_uint_eq(thing_of(l)->key, expected - 1);
		expected -= 2;
	}
	ck_assert_uint_eq(expected, 0);
	map_free(&m);
}
END_TEST

START_TEST(all_are_met_once_and_may_go)
{
	struct map m = {0};
	struct map_link *next;
	size_t met = 0;

	for (size_t i = 0; i < COUNT; i++)
		add(&m, i, map_hash(i / 3));
	for (struct map_link *l = map_next(&m, NULL); l; l = next) {
		struct thing *t = thing_of(l);

		next = map_next(&m, l);
		ck_assert(!t->seen);
		t->seen = true;
		met++;
		if (t->key % 2)
			map_remove(&m, l);
	}
	ck_assert_uint_eq(met, COUNT);
	ck_assert_uint_eq(m.count, COUNT / 2);
	for (size_t i = 0; i < COUNT; i++)
		ck_assert_ptr_eq(find(&m, i, map_hash(i / 3)), i % 2 ? NULL : &things[i]);
	map_free(&m);
}
END_TEST

START_TEST(what_moves_is_found_by_its_new_hash_alone)
{
	struct map m = {0};

	for (size_t i = 0; i < COUNT; i++)
		add(&m, i, map_hash(i));
	for (size_t i = 0; i < COUNT; i += 2)
		map_move(&m, &things[i].link, map_hash(COUNT + i));
	ck_assert_uint_eq(m.count, COUNT);
	for (size_t i = 0; i < COUNT; i++) {
		bool moved = i % 2 == 0;

		ck_assert_ptr_eq(find(&m, i, map_hash(i)), moved ? NULL : &things[i]);
		ck_assert_ptr_eq(find(&m, i, map_hash(COUNT + i)), moved ? &things[i] : NULL);
	}
	map_free(&m);
}
END_TEST

/* For each that is met another is added, far more than the table is wide. */
START_TEST(what_is_added_meanwhile_keeps_nobody_from_being_met)
{
	size_t before = 60, added = before, met = 0;
	struct map m = {0};

	for (size_t i = 0; i < before; i++)
		add(&m, i, map_hash(i));
	map_hold(&m);
	for (struct map_link *l = map_next(&m, NULL); l; l = map_next(&m, l)) {
		struct thing *t = thing_of(l);

		ck_assert(!t->seen);
		t->seen = true;
		met += t->key < before;
		for (int i = 0; i < 10 && added < COUNT; i++, added++)
			add(&m, added, map_hash(added));
	}
	map_unhold(&m);
	ck_assert_uint_eq(met, before);
	ck_assert_uint_lt(m.bucket_count, m.count);
	map_remove(&m, &things[0].link);
	add(&m, 0, map_hash(0));
	ck_assert_uint_gt(m.bucket_count, before * 2);
	for (size_t i = 0; i < added; i++)
		ck_assert_ptr_eq(find(&m, i, map_hash(i)), &things[i]);
	map_free(&m);
}
END_TEST

/* A bucket at a time, and the table doubles again and again meanwhile. */
START_TEST(who_goes_on_at_the_next_bucket_misses_nobody)
{
	size_t before = 60, added = before;
	struct map m = {0};

	for (size_t i = 0; i < before; i++)
		add(&m, i, map_hash(i));
	for (size_t place = 0; place < m.bucket_count; place++) {
		for (struct map_link *l = map_bucket(&m, place); l; l = l->next)
			thing_of(l)->seen = true;
		for (int i = 0; i < 20 && added < COUNT; i++, added++)
			add(&m, added, map_hash(added));
	}
	for (size_t i = 0; i < before; i++)
		ck_assert(things[i].seen);
	ck_assert_ptr_null(map_bucket(&m, m.bucket_count));
	map_free(&m);
}
END_TEST

START_TEST(texts_hash_apart)
{
	ck_assert_uint_ne(map_hash_text(0, "a"), map_hash_text(0, "b"));
	ck_assert_uint_ne(map_hash_text(1, "a"), map_hash_text(2, "a"));
	ck_assert_uint_eq(map_hash_text(1, "a"), map_hash_text(1, "a"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_map");
	TCase *t = unit_case(s, "map");

	tcase_add_test(t, an_empty_one_has_nothing);
	tcase_add_test(t, each_of_many_is_found);
	tcase_add_test(t, the_last_of_one_hash_comes_first);
	tcase_add_test(t, all_are_met_once_and_may_go);
	tcase_add_test(t, what_moves_is_found_by_its_new_hash_alone);
	tcase_add_test(t, what_is_added_meanwhile_keeps_nobody_from_being_met);
	tcase_add_test(t, who_goes_on_at_the_next_bucket_misses_nobody);
	tcase_add_test(t, texts_hash_apart);
	return unit_run(s);
}
