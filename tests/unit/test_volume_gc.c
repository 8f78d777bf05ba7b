/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection: what no epoch needs goes, what one needs stays, whoever writes or reads beside it. */
#include "lib/volume/gc.h"
#include "lib/volume/gc_lists.h"
#include "lib/volume/lease.h"
#include "lib/volume/records.h"
#include "lib/volume/summary.h"
#include "lib/volume/verify.h"
#include "tests/unit/catalog_unit.h"

#include <inttypes.h>
#include <pthread.h>

#define DAY (24 * 3600 * NS_PER_S)

/* ---- volumes ---- */

/* An epoch with files "f<seed>" of `len` random bytes each, seeds [first, first + count). */
static uint64_t put_epoch(struct made *m, uint64_t first, size_t count, size_t len)
{
	made_begin(m);
	for (size_t i = 0; i < count; i++) {
		cleanup_free uint8_t *data = random_content(len, first + i);
		char name[16];

		snprintf(name, sizeof(name), "f%02" PRIu64, first + i);
		made_add(m, 1, name, made_content(m, data, len));
	}
	return made_end(m, (struct epoch_record){0});
}

static void drop(struct made *m, uint64_t number)
{
	unit_ok(records_drop(m->f.below, number, NULL));
}

static int quiet_gc(const struct gc *how, struct gc_totals *ret_totals, char **ret_message)
{
	*ret_message = NULL;
	memset(ret_totals, 0, sizeof(*ret_totals));
	return gc_run("memory:t", how, ret_totals, ret_message);
}

static struct gc_totals collect(int64_t grace_ns)
{
	const struct gc how = {.grace_ns = grace_ns, .keep_percent = GC_KEEP_PERCENT};
	cleanup_free char *message = NULL;
	struct gc_totals t;
	int error = quiet_gc(&how, &t, &message);

	ck_assert_msg(!error, "gc: %d: %s", error, message ? message : "");
	return t;
}

static void assert_refuses(int want, const char *part)
{
	const struct gc how = {.grace_ns = 0, .keep_percent = GC_KEEP_PERCENT};
	cleanup_free char *message = NULL;
	struct gc_totals t;

	unit_error(quiet_gc(&how, &t, &message), want);
	ck_assert_msg(message && strstr(message, part), "%s", message ? message : "no message");
}

static void on_problem(void *arg, const char *key, const char *where, const char *what)
{
	(void)arg;
	/* As catalog_unit.h makes them. */
	ck_assert_msg(!strcmp(what, "belongs to another volume"), "fsck: %s: %s: %s", key, where,
		      what);
}

static void on_damage(void *arg, const char *path, const char *what)
{
	(void)arg;
	ck_abort_msg("verify: %s: %s", path, what);
}

/* Everything that is there can be read, from a cold start; and so much is left over. */
static void assert_whole(uint64_t epochs, uint64_t orphans)
{
	const struct catalog_fsck how = {.read_data = true, .problem = on_problem};
	struct catalog_fsck_totals t = {0};
	char *message = NULL;

	unit_ok(catalog_fsck("memory:t", &how, &t, &message));
	ck_assert_uint_eq(t.epochs, epochs);
	ck_assert_uint_eq(t.orphans, orphans);
}

static int verify_epoch(void *arg, const struct epoch_info *e)
{
	const struct verify how = {.problem = on_damage};
	struct verify_totals t;

	return catalog_verify(arg, e->number, &how, &t);
}

static bool is_there(struct made *m, const char *key)
{
	uint64_t size;

	return remote_size(m->f.below, key, &size) == 0;
}

/* ---- what goes ---- */

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

/* ---- what is damaged ---- */

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
	/* Condemned anew, so that the grace begins again. */
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

/* ---- others at work ---- */

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

/* ---- readers ---- */

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

/* ---- clocks ---- */

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
	Suite *s = suite_create("volume_gc");
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
	t = unit_case(s, "damaged");
	tcase_add_loop_test(t, what_cannot_be_read_stops_it, 0, 4);
	tcase_add_test(t, a_file_whose_pack_is_gone_is_named);
	tcase_add_loop_test(t, of_two_copies_the_right_one_stays, 0, 3);
	tcase_add_test(t, a_damaged_list_is_replaced);
	tcase_add_test(t, a_list_of_a_newer_version_stops_it);
	t = unit_case(s, "others");
	tcase_add_test(t, of_two_at_once_one_gives_way);
	tcase_add_test(t, what_an_epoch_came_to_name_is_no_longer_condemned);
	tcase_add_test(t, a_writer_that_heeds_stores_again);
	tcase_add_test(t, what_an_epoch_builds_on_is_kept);
	tcase_add_test(t, readers_go_on);
	tcase_add_test(t, a_time_in_the_future_counts_as_now);
	return unit_run(s);
}
