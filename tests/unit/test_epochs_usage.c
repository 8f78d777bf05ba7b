/* SPDX-License-Identifier: Apache-2.0 */
/* What epochs take in the remote, and what is left of it when some are dropped, without a mount. */
#include "lib/epochs/usage.h"
#include "lib/format/pack.h"
#include "lib/meta/lease.h"
#include "lib/store/batch_impl.h"
#include "lib/store/store.h"
#include "tests/unit/catalog_unit.h"

static struct made m;
static struct catalog *c;

static void epoch_of(const uint8_t *const *contents, const size_t *lens, size_t count)
{
	char name[] = "a";

	made_begin(&m);
	for (size_t i = 0; i < count; i++) {
		name[0] = (char)('a' + i);
		made_add(&m, 1, name, made_content(&m, contents[i], lens[i]));
	}
	made_end(&m, (struct epoch_record){.complete = RECORD_COMPLETE, .bytes = 1000 * m.last});
}

/* 1: a content twice, and one that stays; 2: that one and another; 3: what 2 holds, and a small file. */
static void three_epochs(void)
{
	cleanup_free uint8_t *goes = random_content(300000, 1), *stays = random_content(200000, 2);
	cleanup_free uint8_t *comes = random_content(100000, 3);

	made_start(&m);
	epoch_of((const uint8_t *[]){goes, goes, stays}, (size_t[]){300000, 300000, 200000}, 3);
	epoch_of((const uint8_t *[]){stays, comes}, (size_t[]){200000, 100000}, 2);
	epoch_of((const uint8_t *[]){stays, comes, stays}, (size_t[]){200000, 100000, 5000}, 3);
	c = catalog_at("memory:t");
}

static void stop(void)
{
	catalog_close(c);
	made_stop(&m);
}

static uint64_t number_of(const json_t *o, const char *part, const char *key)
{
	const json_t *v = json_object_get(json_object_get(o, part), key);

	ck_assert_msg(json_is_integer(v), "%s.%s", part, key);
	return (uint64_t)json_integer_value(v);
}

static json_t *usage(bool read)
{
	json_t *u = NULL;

	unit_ok(catalog_usage(c, read, NULL, NULL, &u));
	return u;
}

static int add_size(void *arg, const char *key, uint64_t size)
{
	uint64_t *sum = arg;

	(void)key;
	sum[0] += size;
	sum[1]++;
	return 0;
}

/* Of all packs: what their chunks take. */
static uint64_t in_packs(void)
{
	uint64_t sum[2] = {0, 0};

	unit_ok(remote_list(m.f.below, PREFIX_PACKS, add_size, sum));
	return sum[0] - sum[1] * (PACK_HEADER_LEN + PACK_FOOTER_LEN);
}

static void hold(void)
{
	char *message = NULL;

	unit_ok(catalog_hold(c, NULL, NULL, &message));
}

START_TEST(what_all_epochs_take_is_all_that_there_is)
{
	json_t *u;

	three_epochs();
	u = usage(true);
	ck_assert_uint_eq(number_of(u, "live", "epoch"), 3);
	ck_assert_uint_eq(number_of(u, "live", "bytes"), 3000);
	ck_assert_uint_eq(number_of(u, "retained", "epochs"), 3);
	ck_assert_uint_eq(number_of(u, "retained", "bytes"), 6000);
	ck_assert_uint_eq(number_of(u, "retained", "bytes_stored"), in_packs());
	ck_assert_uint_eq(number_of(u, "packs", "bytes_unused"), 0);
	/* The two contents that it holds, the head of one, its tree and its recipes. */
	ck_assert_uint_gt(number_of(u, "live", "bytes_stored"), 305000);
	ck_assert_uint_lt(number_of(u, "live", "bytes_stored"), 307000);
	ck_assert_uint_gt(in_packs(), 605000);
	json_decref(u);
	stop();
}
END_TEST

START_TEST(without_reading_only_the_records_count)
{
	json_t *u;

	three_epochs();
	u = usage(false);
	ck_assert_uint_eq(number_of(u, "retained", "bytes"), 6000);
	ck_assert_ptr_null(json_object_get(json_object_get(u, "retained"), "bytes_stored"));
	ck_assert_ptr_null(json_object_get(u, "packs"));
	ck_assert_ptr_null(c->store);
	json_decref(u);
	stop();
}
END_TEST

START_TEST(what_a_dropped_epoch_alone_needs_is_unused)
{
	json_t *u;

	three_epochs();
	hold();
	unit_ok(catalog_drop(c, 1));
	u = usage(true);
	ck_assert_uint_eq(number_of(u, "retained", "epochs"), 2);
	ck_assert_uint_eq(number_of(u, "retained", "bytes_stored") +
				  number_of(u, "packs", "bytes_unused"),
			  in_packs());
	ck_assert_uint_gt(number_of(u, "packs", "bytes_unused"), 300000);
	ck_assert_uint_lt(number_of(u, "packs", "bytes_unused"), 301000);
	json_decref(u);
	stop();
}
END_TEST

static int add_record(void *arg, const struct epoch_info *e)
{
	cleanup_tree struct tree *tree = NULL;
	int error = catalog_tree(c, e->number, &tree);

	return error ? error : store_usage_add(arg, &e->record, tree);
}

START_TEST(an_index_that_has_all_is_enough)
{
	struct store_usage *set = NULL;

	three_epochs();
	unit_ok(store_usage_new(&m.f.index, NULL, &set)); /* the writer's own */
	unit_ok(catalog_each(c, add_record, set));
	ck_assert_uint_eq(store_usage_bytes(set), in_packs());
	store_usage_free(set);
	fixture_reopen(&m.f, "memory:t"); /* it has nothing any more */
	unit_ok(store_usage_new(&m.f.index, NULL, &set));
	unit_error(catalog_each(c, add_record, set), -ENODATA);
	store_usage_free(set);
	unit_ok(store_usage_new(&m.f.index, m.f.store, &set));
	unit_ok(catalog_each(c, add_record, set));
	ck_assert_uint_eq(store_usage_bytes(set), in_packs());
	store_usage_free(set);
	stop();
}
END_TEST

/* Its encoding is chunks of its own; those that it lists are nowhere, and take nothing. */
START_TEST(a_recipe_of_recipes_counts_whole)
{
	enum { SEGMENTS = 150000 };
	struct tree_entry e = {.type = TREE_REGULAR, .content = TREE_RECIPE, .size = SEGMENTS};
	cleanup_recipe struct recipe r = {0};
	struct store_usage *set = NULL;
	json_t *u;

	for (uint32_t i = 0; i < SEGMENTS; i++) {
		struct hash h;

		hash_of(&i, sizeof(i), &h);
		unit_ok(recipe_add_chunk(&r, &h, 1));
	}
	made_start(&m);
	made_begin(&m);
	unit_ok(batch_put_recipe(m.batch, &r, &e.u.recipe));
	made_add(&m, 1, "long", e);
	made_end(&m, (struct epoch_record){.complete = RECORD_COMPLETE});
	c = catalog_at("memory:t");
	u = usage(true);
	ck_assert_uint_gt(in_packs(), SEGMENTS * 32);
	ck_assert_uint_eq(number_of(u, "retained", "bytes_stored"), in_packs());
	/* Once it was read the index has it. */
	unit_ok(store_usage_new(&c->index, NULL, &set));
	unit_error(catalog_each(c, add_record, set), -ENODATA); /* the nowhere ones */
	store_usage_free(set);
	json_decref(u);
	stop();
}
END_TEST

/* ---- who may drop ---- */

START_TEST(what_is_needed_stays)
{
	three_epochs();
	unit_ok(catalog_tag(c, "best", 1, false));
	hold();
	unit_error(catalog_drop(c, 1), -EBUSY);
	unit_error(catalog_drop(c, 3), -EBUSY);
	unit_error(catalog_drop(c, 4), -ENOENT);
	unit_ok(catalog_drop(c, 2));
	unit_error(catalog_drop(c, 2), -ENOENT);
	catalog_release(c);
	unit_ok(catalog_untag(c, "best"));
	hold();
	unit_ok(catalog_drop(c, 1));
	stop();
}
END_TEST

START_TEST(the_newest_complete_one_stays)
{
	made_start(&m);
	made_epoch(&m, (struct epoch_record){.complete = RECORD_COMPLETE});
	made_epoch(&m, (struct epoch_record){.complete = RECORD_COMPLETE});
	made_epoch(&m, (struct epoch_record){.complete = RECORD_INCOMPLETE});
	made_epoch(&m, (struct epoch_record){.complete = RECORD_INCOMPLETE});
	c = catalog_at("memory:t");
	hold();
	unit_error(catalog_drop(c, 4), -EBUSY);
	unit_error(catalog_drop(c, 2), -EBUSY);
	unit_ok(catalog_drop(c, 3));
	unit_ok(catalog_drop(c, 1));
	stop();
}
END_TEST

START_TEST(who_lost_the_lease_drops_nothing)
{
	struct lease_terms terms = {.take_over = true};
	struct lease_info before;
	struct lease *lease;
	char *message = NULL;
	struct catalog *second;

	three_epochs();
	hold();
	/* A second one is told who has it. */
	second = catalog_at("memory:t");
	unit_error(catalog_hold(second, NULL, NULL, &message), -EBUSY);
	ck_assert(message && strstr(message, "held for writing by"));
	free(message);
	catalog_close(second);
	unit_ok(catalog_drop(c, 1));
	unit_ok(lease_process_self(&terms.self));
	terms.self.ttl_ns = 60 * NS_PER_S;
	unit_ok(lease_take(m.f.below, &terms, &lease, &before));
	usleep(1100000); /* a confirmation is believed for a second */
	unit_error(catalog_drop(c, 2), -ESTALE);
	lease_free(lease);
	stop();
}
END_TEST

static void note_waiting(void *arg, const char *text)
{
	unsigned *calls = arg;

	ck_assert_ptr_nonnull(strstr(text, "elsewhere"));
	++*calls;
}

START_TEST(a_killed_writer_elsewhere_is_waited_for)
{
	struct lease_terms terms = {.self = {.ttl_ns = NS_PER_S, .host = "elsewhere"}};
	struct lease_info before;
	char *message = NULL;
	struct lease *lease;
	unsigned waited = 0;

	three_epochs();
	unit_ok(uuid_make(terms.self.boot_id));
	unit_ok(lease_take(m.f.below, &terms, &lease, &before));
	lease_free(lease);
	unit_ok(catalog_hold(c, note_waiting, &waited, &message));
	ck_assert_uint_eq(waited, 1);
	unit_ok(catalog_drop(c, 1));
	catalog_release(c);
	/* It was given back: nobody waits for it. */
	unit_ok(catalog_hold(c, note_waiting, &waited, &message));
	ck_assert_uint_eq(waited, 1);
	stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_usage");
	TCase *counting = unit_case(s, "counting"), *dropping = unit_case(s, "dropping");

	tcase_add_test(counting, what_all_epochs_take_is_all_that_there_is);
	tcase_add_test(counting, without_reading_only_the_records_count);
	tcase_add_test(counting, what_a_dropped_epoch_alone_needs_is_unused);
	tcase_add_test(counting, an_index_that_has_all_is_enough);
	tcase_add_test(counting, a_recipe_of_recipes_counts_whole);
	tcase_add_test(dropping, what_is_needed_stays);
	tcase_add_test(dropping, the_newest_complete_one_stays);
	tcase_add_test(dropping, a_killed_writer_elsewhere_is_waited_for);
	tcase_add_test(dropping, who_lost_the_lease_drops_nothing);
	return unit_run(s);
}
