/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection beside others at work: collectors, writers, readers. */
#include <pthread.h>
#include "lib/admin/verify.h"
#include "lib/meta/collection.h"
#include "tests/unit/gc_unit.h"

static void on_damage(void *arg, const char *path, const char *what)
{
	(void)arg;
	ck_abort_msg("verify: %s: %s", path, what);
}

static int verify_epoch(void *arg, const struct epoch_info *e)
{
	const struct verify how = {.problem = on_damage};
	struct verify_totals t;

	return catalog_verify(arg, e->number, &how, &t);
}

static void *publish(void *arg)
{
	struct made *m = arg;
	cleanup_gc_list struct gc_list list = {.generation = 1, .host = "elsewhere"};
	int error;

	unit_ok(uuid_make(list.run));
	error = gc_lists_publish(m->f.below, &list);
	ck_assert(!error || error == -EEXIST);
	return NULL;
}

/* By a thread, as by another machine: progress is told with a lock held, under which nothing of the
 * remote is called. */
static void publish_another(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	pthread_t other;

	(void)phase, (void)done, (void)total;
	ck_assert_int_eq(pthread_create(&other, NULL, publish, arg), 0);
	pthread_join(other, NULL);
}

START_TEST(of_two_at_once_one_gives_way)
{
	struct gc how = {.keep_percent = GC_KEEP_PERCENT, .progress = publish_another};
	cleanup_free char *message = NULL;
	struct gc_totals t;
	uint64_t before;
	struct made m;

	made_start(&m);
	how.arg = &m;
	put_epoch(&m, 1, 1, 200 * KIB);
	drop(&m, 1);
	before = list_keys(m.f.below, PREFIX_PACKS).count;
	unit_error(quiet_gc(&how, &t, &message), -EEXIST);
	ck_assert(message && strstr(message, "another garbage collection"));
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_PACKS).count, before);
	collect(0);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_PACKS).count, 0);
	made_stop(&m);
}
END_TEST

static size_t condemned_packs(struct made *m)
{
	cleanup_gc_list struct gc_list list = {0};
	size_t n = 0;

	unit_ok(gc_lists_look(m->f.below, &list));
	for (size_t i = 0; i < list.count; i++)
		n += list.items[i].generation && !list.items[i].index;
	return n;
}

/* A writer that had not read the list builds on what it condemns, and puts its record. */
START_TEST(what_an_epoch_came_to_name_is_no_longer_condemned)
{
	struct gc_totals t;
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 3, 200 * KIB);
	drop(&m, 1);
	t = collect(DAY);
	ck_assert_uint_eq(t.store.waiting.packs, 1);
	put_epoch(&m, 1, 3, 200 * KIB);
	t = collect(0);
	ck_assert_uint_eq(t.store.deleted.packs, 0);
	ck_assert_uint_eq(condemned_packs(&m), 0);
	assert_whole(1, 0);
	/* Dropped, it goes after all. */
	drop(&m, 2);
	t = collect(DAY);
	ck_assert_uint_eq(t.store.deleted.packs, 0);
	collect(0);
	ck_assert_uint_eq(list_keys(m.f.below, PREFIX_PACKS).count, 0);
	made_stop(&m);
}
END_TEST

static void heed(struct made *m)
{
	cleanup_gc_list struct gc_list list = {0};
	struct hash packs[64];
	size_t n = 0;

	unit_ok(gc_lists_look(m->f.below, &list));
	for (size_t i = 0; i < list.count; i++)
		if (list.items[i].generation && !list.items[i].index)
			packs[n++] = list.items[i].id;
	unit_ok(store_heed(m->f.store, list.condemning, packs, n));
	ck_assert_uint_eq(store_heeded(m->f.store), list.condemning);
}

START_TEST(a_writer_that_heeds_stores_again)
{
	struct gc_totals t;
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 3, 200 * KIB);
	drop(&m, 1);
	collect(DAY);
	heed(&m);
	put_epoch(&m, 1, 3, 200 * KIB);
	/* The very same content, and yet the pack has another name: the old one may go at any time. */
	t = collect(0);
	ck_assert_uint_eq(t.store.deleted.packs, 1);
	assert_whole(1, 0);
	made_stop(&m);
}
END_TEST

/* Keeps what recipes need in a batch of its own, as an upload does before and after its record. */
static int keep(struct made *m, const struct hash *recipes, size_t count)
{
	cleanup_record struct epoch_record record = {0};
	struct store_stats stats;
	struct store_batch *b = NULL;
	int error = 0;

	unit_ok(store_look_at_packs(m->f.store));
	unit_ok(store_batch_begin(m->f.store, m->last + 1, &b));
	for (size_t i = 0; i < count && !error; i++)
		error = store_batch_keep(b, &recipes[i]);
	unit_ok(store_batch_finish(b, &record, &stats));
	store_batch_free(b);
	return error;
}

START_TEST(what_an_epoch_builds_on_is_kept)
{
	cleanup_free uint8_t *data = random_content(3 * MIB, 42);
	struct tree_entry e;
	struct made m;

	made_start(&m);
	made_begin(&m);
	e = made_content(&m, data, 3 * MIB);
	made_add(&m, 1, "f", e);
	made_end(&m, (struct epoch_record){0});
	drop(&m, 1);
	collect(DAY);
	heed(&m);
	unit_ok(keep(&m, &e.u.recipe, 1));
	/* The next epoch names the recipe, without having its bytes. */
	made_begin(&m);
	made_add(&m, 1, "f", e);
	made_end(&m, (struct epoch_record){0});
	collect(0);
	assert_whole(1, 0);
	/* With the packs gone it cannot be had from anywhere. */
	drop(&m, 2);
	collect(0);
	heed(&m);
	unit_error(keep(&m, &e.u.recipe, 1), -EIO);
	made_stop(&m);
}
END_TEST

/* As if reading all index objects took an hour, and had just been done: it is not repeated by itself. */
static void tire(struct store *s)
{
	SCOPED_LOCK(&s->lock);
	s->scan_took_ns = 3600 * NS_PER_S;
	s->scan_ended_ns = clock_mono_ns();
}

/* Packs move below a reader that knows the first places only. */
START_TEST(readers_go_on)
{
	const struct verify how = {.problem = on_damage};
	struct catalog *old, *fresh;
	struct verify_totals t;
	struct made m;

	made_start(&m);
	put_epoch(&m, 1, 8, 200 * KIB);
	put_epoch(&m, 8, 2, 200 * KIB);
	old = catalog_at("memory:t");
	unit_ok(catalog_each(old, verify_epoch, old)); /* all of the index is in its memory */
	drop(&m, 1);
	collect(0);
	tire(old->store);
	unit_ok(catalog_verify(old, 2, &how, &t));
	ck_assert_uint_eq(t.files, 2);
	fresh = catalog_at("memory:t");
	unit_ok(catalog_each(fresh, verify_epoch, fresh));
	catalog_close(old);
	catalog_close(fresh);
	made_stop(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_collection_others");
	TCase *t = unit_case(s, "others");

	tcase_add_test(t, of_two_at_once_one_gives_way);
	tcase_add_test(t, what_an_epoch_came_to_name_is_no_longer_condemned);
	tcase_add_test(t, a_writer_that_heeds_stores_again);
	tcase_add_test(t, what_an_epoch_builds_on_is_kept);
	tcase_add_test(t, readers_go_on);
	return unit_run(s);
}
