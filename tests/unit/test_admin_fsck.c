/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a remote: a sound one has no problem; each damage is told with its object, epoch and path. */
#include "lib/admin/catalog.h"

#include "lib/format/record.h"
#include "lib/format/volume_info.h"
#include "lib/meta/records.h"
#include "tests/unit/store_fixture.h"

/* ---- a volume made by hand ---- */

#define BIG   (3 * MIB)
#define SMALL (100 * KIB)

struct made {
	struct fixture f;
	struct volume_info info;
	uint8_t *big, *small;
	struct key_list packs[4], indexes[4]; /* those that epoch i added */
};

static void add_entry(struct tree_writer *w, const char *name, const struct hash *recipe,
		      uint64_t size)
{
	struct tree_entry e = {.name = name,
			       .name_len = strlen(name),
			       .depth = *name ? 1 : 0,
			       .type = recipe ? TREE_REGULAR : TREE_DIR,
			       .mode = 0644};

	if (recipe) {
		e.content = TREE_RECIPE;
		e.size = size;
		e.u.recipe = *recipe;
	}
	unit_ok(tree_writer_add(w, &e));
}

static void put_record(struct made *m, struct epoch_record *record)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];

	unit_ok(record_encode(record, &text));
	epoch_key(record->number, key);
	unit_ok(remote_put(m->f.below, key, text.data, text.len));
}

/* One epoch with these files (name, content, length; sorted); keys that are new go to `m`. */
struct file {
	const char *name;
	const uint8_t *data;
	size_t len;
};

static struct key_list only_new(const struct key_list *after, const struct key_list *before)
{
	struct key_list fresh = {.count = 0};

	for (size_t i = 0; i < after->count; i++) {
		bool old = false;

		for (size_t k = 0; k < before->count; k++)
			old |= !strcmp(after->keys[i], before->keys[k]);
		if (!old)
			note_key(&fresh, after->keys[i], after->sizes[i]);
	}
	return fresh;
}

static void put_epoch(struct made *m, uint64_t number, const struct file *files, size_t count)
{
	struct key_list packs = list_keys(m->f.below, PREFIX_PACKS), now;
	struct key_list indexes = list_keys(m->f.below, PREFIX_INDEX);
	cleanup_record struct epoch_record record = {.number = number, .parent = number - 1};
	cleanup_tree_writer struct tree_writer *w = NULL;
	cleanup_buf struct buf tree = {0};
	struct store_batch *b = NULL;
	struct store_stats stats;

	unit_ok(store_batch_begin(m->f.store, number, &b));
	unit_ok(tree_writer_new(&tree, 0, &w));
	add_entry(w, "", NULL, 0);
	for (size_t i = 0; i < count; i++) {
		struct hash recipe;

		unit_ok(put_bytes(b, files[i].data, files[i].len, &recipe));
		add_entry(w, files[i].name, &recipe, files[i].len);
	}
	unit_ok(tree_writer_finish(w));
	unit_ok(store_put_tree(b, tree.data, tree.len, &record));
	unit_ok(store_batch_finish(b, &record, &stats));
	store_batch_free(b);
	strcpy(record.volume, m->info.uuid);
	record.complete = RECORD_COMPLETE;
	put_record(m, &record);
	now = list_keys(m->f.below, PREFIX_PACKS);
	m->packs[number] = only_new(&now, &packs);
	now = list_keys(m->f.below, PREFIX_INDEX);
	m->indexes[number] = only_new(&now, &indexes);
}

/* Epoch 1: big; 2: big and small; 3: small. Each pack of epoch 1 holds a part of big. */
static struct made *make_volume(void)
{
	struct made *m = calloc(1, sizeof(*m));
	cleanup_buf struct buf text = {0};
	struct file files[2];
	char tag[TAG_TEXT_MAX];

	m->f = fixture_open("memory:t", 2);
	m->big = random_content(BIG, 1);
	m->small = random_content(SMALL, 2);
	unit_ok(volume_info_make(&m->info));
	unit_ok(volume_info_encode(&m->info, &text));
	unit_ok(remote_put(m->f.below, KEY_VOLUME, text.data, text.len));
	files[0] = (struct file){"big", m->big, BIG};
	files[1] = (struct file){"small", m->small, SMALL};
	put_epoch(m, 1, files, 1);
	put_epoch(m, 2, files, 2);
	put_epoch(m, 3, files + 1, 1);
	tag_text(2, tag);
	unit_ok(remote_put(m->f.below, "tags/best", tag, strlen(tag)));
	ck_assert_uint_eq(m->packs[1].count, 2);
	ck_assert_uint_eq(m->packs[2].count, 1);
	return m;
}

static void made_free(struct made *m)
{
	fixture_close(&m->f);
	free(m->big);
	free(m->small);
	free(m);
}

/* ---- running fsck ---- */

struct found {
	struct buf lines; /* "KEY|WHERE|WHAT\n" */
	struct catalog_fsck_totals totals;
	struct catalog_progress last;
};

static void on_problem(void *arg, const char *key, const char *where, const char *what)
{
	buf_printf(&((struct found *)arg)->lines, "%s|%s|%s\n", key, where, what);
}

static void on_progress(void *arg, const struct catalog_progress *p)
{
	struct found *found = arg;

	ck_assert_uint_ge(p->files, found->last.files);
	ck_assert_uint_ge(p->bytes, found->last.bytes);
	found->last = *p;
}

static struct found run_fsck_at(const char *url, bool read_data)
{
	struct found found = {.lines = {0}};
	struct catalog_fsck how = {.read_data = read_data,
				   .problem = on_problem,
				   .progress = on_progress,
				   .arg = &found};
	cleanup_free char *message = NULL;

	unit_ok(catalog_fsck(url, &how, &found.totals, &message));
	ck_assert_ptr_null(message);
	return found;
}

static struct found run_fsck(bool read_data)
{
	return run_fsck_at("memory:t", read_data);
}

static void found_free(struct found *found)
{
	buf_free(&found->lines);
}

/* A line of this object, whose where and what contain these. */
static bool has_line(struct found *found, const char *key, const char *where, const char *what)
{
	cleanup_free char *text = strdup(buf_str(&found->lines));
	char *rest = NULL;

	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *first = strchr(line, '|'), *second = strchr(first + 1, '|');

		*first = *second = '\0';
		if (!strcmp(line, key) && !strcmp(first + 1, where) && strstr(second + 1, what))
			return true;
	}
	return false;
}

#define assert_line(found, key, where, what)                                                       \
	ck_assert_msg(has_line((found), (key), (where), (what)), "no line %s|%s|%s in:\n%s",       \
		      (key), (where), (what), buf_str(&(found)->lines))

/* ---- sound ---- */

START_TEST(a_sound_volume_has_no_problem)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = run_fsck(_i);

	ck_assert_str_eq(buf_str(&found.lines), "");
	ck_assert_uint_eq(found.totals.problems, 0);
	ck_assert_uint_eq(found.totals.epochs, 3);
	ck_assert_uint_eq(found.totals.files, 4);
	ck_assert_uint_eq(found.totals.packs, list_keys(m->f.below, PREFIX_PACKS).count);
	ck_assert_uint_eq(found.totals.index_objects, 3);
	ck_assert_uint_gt(found.totals.chunks, 7);
	ck_assert_uint_gt(found.totals.bytes_stored, BIG);
	ck_assert_uint_eq(found.totals.foreign, 0);
	ck_assert_uint_eq(found.totals.orphans, 0);
	ck_assert_uint_eq(found.last.files, found.last.files_total);
	ck_assert_uint_eq(found.last.bytes, found.last.bytes_total);
	made_free(m);
}
END_TEST

START_TEST(foreign_objects_and_orphans_are_counted)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};
	cleanup_free uint8_t *lost = random_content(MIB, 9);
	struct hash recipe;

	unit_ok(remote_put(m->f.below, "README.txt", "hello", 5));
	unit_ok(remote_put(m->f.below, "epochs/notes", "hello", 5));
	unit_ok(remote_put(m->f.below, "packs/aa/x", "hello", 5));
	put_file(m->f.store, 4, lost, MIB, &recipe);
	found = run_fsck(_i);
	ck_assert_str_eq(buf_str(&found.lines), "");
	ck_assert_uint_eq(found.totals.foreign, 3);
	ck_assert_uint_eq(found.totals.orphans, 2);
	made_free(m);
}
END_TEST

START_TEST(a_dropped_epoch_is_no_problem)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};

	unit_ok(records_drop(m->f.below, 1, NULL));
	found = run_fsck(false);
	ck_assert_str_eq(buf_str(&found.lines), "");
	ck_assert_uint_eq(found.totals.epochs, 2);
	made_free(m);
}
END_TEST

/* ---- damaged ---- */

START_TEST(a_missing_pack_is_told_with_what_it_hits)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};
	size_t big = m->packs[1].sizes[0] < m->packs[1].sizes[1];

	unit_ok(remote_delete(m->f.below, m->packs[1].keys[big]));
	found = run_fsck(_i);
	assert_line(&found, m->packs[1].keys[big], "2 epochs from 1 to 2: big", "is missing");
	ck_assert_ptr_null(strstr(buf_str(&found.lines), "small"));
	made_free(m);
}
END_TEST

START_TEST(a_damaged_chunk_is_told_where_data_is_read)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found without = {.lines = {0}}, with = {.lines = {0}};
	size_t big = m->packs[1].sizes[0] < m->packs[1].sizes[1];

	damage(m->f.below, m->packs[1].keys[big], 1000);
	without = run_fsck(false);
	ck_assert_uint_eq(without.totals.problems, 0);
	with = run_fsck(true);
	ck_assert_uint_eq(with.totals.problems, 1);
	assert_line(&with, m->packs[1].keys[big], "2 epochs from 1 to 2: big", "1 damaged chunk,");
	made_free(m);
}
END_TEST

START_TEST(a_cut_pack_is_told)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};
	size_t big = m->packs[1].sizes[0] < m->packs[1].sizes[1];
	cleanup_buf struct buf pack = {0};

	unit_ok(remote_get(m->f.below, m->packs[1].keys[big], 0, MIB / 2, &pack));
	unit_ok(remote_put(m->f.below, m->packs[1].keys[big], pack.data, pack.len));
	found = run_fsck(_i);
	assert_line(&found, m->packs[1].keys[big], "2 epochs from 1 to 2: big", "is cut off");
	made_free(m);
}
END_TEST

START_TEST(a_damaged_table_is_told_though_nothing_is_lost)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};

	damage(m->f.below, m->packs[1].keys[0], m->packs[1].sizes[0] - 40);
	found = run_fsck(_i);
	ck_assert_uint_eq(found.totals.problems, 1);
	assert_line(&found, m->packs[1].keys[0], "", "its table is damaged");
	made_free(m);
}
END_TEST

START_TEST(a_damaged_tree_is_told)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};
	cleanup_record struct epoch_record record = {0};

	/* Epoch 3 stored nothing but its tree. */
	unit_ok(records_get(m->f.below, 3, &record, NULL));
	ck_assert_uint_eq(record.chunk_count, 1);
	damage(m->f.below, m->packs[3].keys[0], record.chunks[0].offset + 20);
	found = run_fsck(_i);
	assert_line(&found, m->packs[3].keys[0], "epoch 3: all of its tree", "damaged");
	ck_assert_uint_eq(found.totals.problems, 1);
	made_free(m);
}
END_TEST

START_TEST(index_objects_that_are_gone_or_damaged_are_told)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};
	char key[KEY_MAX];

	epoch_key(2, key);
	if (_i) {
		unit_ok(remote_delete(m->f.below, m->indexes[2].keys[0]));
		found = run_fsck(false);
		assert_line(&found, m->indexes[2].keys[0], "epoch 2: small", "is missing");
	} else {
		damage(m->f.below, m->indexes[2].keys[0], 50);
		found = run_fsck(false);
		assert_line(&found, m->indexes[2].keys[0], "", "is damaged");
		assert_line(&found, key, "epoch 2: small", "no index object names");
	}
	made_free(m);
}
END_TEST

START_TEST(damaged_records_and_tags_are_told)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};
	cleanup_record struct epoch_record foreign = {0};
	char key[KEY_MAX], other[KEY_MAX];

	epoch_key(1, key);
	damage(m->f.below, key, 0);
	unit_ok(records_get(m->f.below, 3, &foreign, NULL));
	foreign.volume[0] = foreign.volume[0] == 'a' ? 'b' : 'a';
	put_record(m, &foreign);
	epoch_key(3, other);
	unit_ok(remote_put(m->f.below, "tags/odd", "many", 4));
	unit_ok(remote_put(m->f.below, "tags/gone", "77\n", 3));
	found = run_fsck(false);
	assert_line(&found, key, "epoch 1", "is damaged");
	assert_line(&found, other, "epoch 3", "belongs to another volume");
	assert_line(&found, "tags/odd", "tag odd", "is damaged");
	assert_line(&found, "tags/gone", "tag gone", "names epoch 77");
	ck_assert_uint_eq(found.totals.problems, 5);
	ck_assert_uint_eq(found.totals.epochs, 3);
	made_free(m);
}
END_TEST

START_TEST(a_size_that_is_not_the_recipes_is_told)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};
	cleanup_record struct epoch_record record = {.number = 4};
	cleanup_tree_writer struct tree_writer *w = NULL;
	cleanup_buf struct buf tree = {0};
	struct store_batch *b = NULL;
	struct store_stats stats;
	struct hash recipe;
	char key[KEY_MAX];

	unit_ok(store_batch_begin(m->f.store, 4, &b));
	unit_ok(put_bytes(b, m->small, SMALL, &recipe));
	unit_ok(tree_writer_new(&tree, 0, &w));
	add_entry(w, "", NULL, 0);
	add_entry(w, "long", &recipe, SMALL + 1);
	unit_ok(tree_writer_finish(w));
	unit_ok(store_put_tree(b, tree.data, tree.len, &record));
	unit_ok(store_batch_finish(b, &record, &stats));
	store_batch_free(b);
	strcpy(record.volume, m->info.uuid);
	put_record(m, &record);
	found = run_fsck(false);
	epoch_key(4, key);
	assert_line(&found, key, "epoch 4: long", "another size");
	ck_assert_uint_eq(found.totals.problems, 1);
	made_free(m);
}
END_TEST

START_TEST(a_summary_that_says_otherwise_is_told)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};
	cleanup_record struct epoch_record record = {0};
	cleanup_buf struct buf one = {0}, text = {0};

	unit_ok(records_get(m->f.below, 2, &record, NULL));
	for (int wrong = 0; wrong < 2; wrong++) {
		buf_reset(&one);
		buf_reset(&text);
		record.tree_hash.bytes[0] ^= (uint8_t)wrong;
		unit_ok(record_encode(&record, &one));
		buf_printf(&text, "{\"format\":1,\"records\":[%s]}", buf_str(&one));
		unit_ok(remote_put(m->f.below, "summaries/00000000000000000100.json", text.data,
				   text.len));
		found_free(&found);
		found = run_fsck(false);
		ck_assert_uint_eq(found.totals.problems, (unsigned)wrong);
	}
	assert_line(&found, "summaries/00000000000000000100.json", "epoch 2", "says otherwise");
	made_free(m);
}
END_TEST

START_TEST(without_the_volumes_object_the_rest_is_checked)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};

	if (_i)
		unit_ok(remote_delete(m->f.below, KEY_VOLUME));
	else
		unit_ok(remote_put(m->f.below, KEY_VOLUME, "{}", 2));
	found = run_fsck(false);
	assert_line(&found, KEY_VOLUME, "", _i ? "is missing" : "is damaged");
	ck_assert_uint_eq(found.totals.problems, 1);
	ck_assert_uint_eq(found.totals.files, 4);
	made_free(m);
}
END_TEST

/* ---- remotes that are no volume, or cannot be read ---- */

static void assert_fails(const char *url, int error)
{
	struct catalog_fsck how = {.problem = NULL};
	struct catalog_fsck_totals totals;
	cleanup_free char *message = NULL;

	unit_error(catalog_fsck(url, &how, &totals, &message), error);
	ck_assert_ptr_nonnull(message);
	ck_assert_ptr_null(strchr(message, '\n'));
}

START_TEST(what_is_no_volume_is_refused)
{
	cleanup_free char *dir = unit_dir(), *path = unit_path(dir, "letter.txt");
	struct made *m = make_volume();

	assert_fails(dir, -ENOENT);
	unit_ok(io_replace_file(AT_FDCWD, path, "dear", 4));
	assert_fails(dir, -EBADMSG);
	assert_fails("none", -ENOENT);
	assert_fails("gopher://x", -EINVAL);
	assert_fails("fault+memory:t?list.denied=1", -EACCES);
	assert_fails("fault+memory:t?get.denied=1&only=epochfs.json", -EACCES);
	made_free(m);
}
END_TEST

START_TEST(what_cannot_be_read_is_a_problem_and_the_rest_goes_on)
{
	struct made *m = make_volume();
	CLEANUP(found_free) struct found found = {.lines = {0}};
	size_t big = m->packs[1].sizes[0] < m->packs[1].sizes[1];
	char url[2 * KEY_MAX];

	snprintf(url, sizeof(url), "fault+memory:t?get.denied=1&only=%s", m->packs[1].keys[big]);
	found = run_fsck_at(url, _i);
	assert_line(&found, m->packs[1].keys[big], "2 epochs from 1 to 2: big", "cannot be read");
	made_free(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admin_fsck");
	TCase *t = unit_case(s, "sound");

	tcase_add_loop_test(t, a_sound_volume_has_no_problem, 0, 2);
	tcase_add_loop_test(t, foreign_objects_and_orphans_are_counted, 0, 2);
	tcase_add_test(t, a_dropped_epoch_is_no_problem);
	t = unit_case(s, "damaged");
	tcase_add_loop_test(t, a_missing_pack_is_told_with_what_it_hits, 0, 2);
	tcase_add_test(t, a_damaged_chunk_is_told_where_data_is_read);
	tcase_add_loop_test(t, a_cut_pack_is_told, 0, 2);
	tcase_add_loop_test(t, a_damaged_table_is_told_though_nothing_is_lost, 0, 2);
	tcase_add_loop_test(t, a_damaged_tree_is_told, 0, 2);
	tcase_add_loop_test(t, index_objects_that_are_gone_or_damaged_are_told, 0, 2);
	tcase_add_test(t, damaged_records_and_tags_are_told);
	tcase_add_test(t, a_size_that_is_not_the_recipes_is_told);
	tcase_add_test(t, a_summary_that_says_otherwise_is_told);
	tcase_add_loop_test(t, without_the_volumes_object_the_rest_is_checked, 0, 2);
	t = unit_case(s, "refused");
	tcase_add_test(t, what_is_no_volume_is_refused);
	tcase_add_loop_test(t, what_cannot_be_read_is_a_problem_and_the_rest_goes_on, 0, 2);
	return unit_run(s);
}
