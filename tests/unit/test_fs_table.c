/* SPDX-License-Identifier: Apache-2.0 */
/* The table that a worker leaves to the next one, and the nodes that come back from it. */
#include "fs/node.h"
#include "fs/table.h"

#include <sys/mman.h>
#include <unistd.h>
#include "tests/unit/unit.h"

static struct table table;
static int fd = -1;

static void set_up(void)
{
	fd = table_make();
	ck_assert_int_ge(fd, 0);
	unit_ok(table_open(fd, &table));
}

static void tear_down(void)
{
	table_close(&table);
	close(fd);
}

static const struct node_key root_key = {.kind = NODE_LIVE, .a = 1};

static struct nodes *open_nodes(void)
{
	struct nodes *t;

	unit_ok(nodes_new(&root_key, &table, &t));
	return t;
}

static struct node *look_up(struct nodes *t, const struct node_key *key, struct node *root)
{
	struct node *n = nodes_lookup(t, key, root);

	ck_assert_ptr_nonnull(n);
	return n;
}

/* As if the worker had died: nothing is told to the table. */
static struct nodes *next_worker(struct nodes *t)
{
	nodes_free(t);
	table_close(&table);
	unit_ok(table_open(fd, &table));
	return open_nodes();
}

START_TEST(free_rows_are_given_again)
{
	struct table_rows rows = {.max = 3};
	uint32_t row[3], again;

	for (int i = 0; i < 3; i++)
		unit_ok(table_row_take(&rows, &row[i]));
	unit_error(table_row_take(&rows, &again), -ENFILE);
	table_row_give(&rows, row[1]);
	unit_ok(table_row_take(&rows, &again));
	ck_assert_uint_eq(again, row[1]);
	unit_error(table_row_take(&rows, &again), -ENFILE);
	table_rows_free(&rows);
}
END_TEST

START_TEST(a_table_of_another_version_is_refused)
{
	struct table other;
	int empty = memfd_create("empty", 0);

	table.start->version++;
	unit_error(table_open(fd, &other), -EPROTONOSUPPORT);
	table.start->version--;
	unit_ok(ftruncate(fd, 1 << 20));
	unit_error(table_open(fd, &other), -EPROTONOSUPPORT);
	unit_error(table_open(empty, &other), -EPROTONOSUPPORT);
	close(empty);
}
END_TEST

START_TEST(an_open_is_found_by_its_request)
{
	table.start->files = 3;
	table.files[1] = (struct table_file){.fh = 7, .unique = 40};
	table.files[2] = (struct table_file){.fh = 8, .unique = 42};
	ck_assert_ptr_eq(table_file_opened_by(&table, 42), &table.files[2]);
	ck_assert_ptr_null(table_file_opened_by(&table, 44));
	ck_assert_ptr_null(table_file_opened_by(&table, 0));
	table.files[2].abandoned = true;
	ck_assert_ptr_null(table_file_opened_by(&table, 42));
	table.files[1].fh = 0;
	ck_assert_ptr_null(table_file_opened_by(&table, 40));
}
END_TEST

START_TEST(nodes_come_back_with_their_ids)
{
	struct nodes *t = open_nodes();
	struct node_key file = {.kind = NODE_LIVE, .a = 12, .b = 34}, gone = {NODE_LIVE, 13, 1, 0};
	uint64_t file_id = look_up(t, &file, NULL)->id, gone_id = look_up(t, &gone, NULL)->id;
	struct node *n;

	look_up(t, &file, NULL);
	node_note(nodes_find(t, file_id), 0644, UINT64_C(7) << 32 | 8);
	nodes_forget(t, gone_id, 1);
	t = next_worker(t);
	ck_assert_uint_eq(nodes_count(t), 2);
	n = nodes_find(t, file_id);
	ck_assert_ptr_nonnull(n);
	ck_assert(n->kind == NODE_LIVE && n->a == 12 && n->b == 34 && n->mode == 0644);
	ck_assert_uint_eq(n->owner, UINT64_C(7) << 32 | 8);
	ck_assert_uint_eq(nodes_id_of(t, &file), file_id);
	ck_assert_ptr_null(nodes_find(t, gone_id));
	ck_assert_uint_gt(look_up(t, &gone, NULL)->id, gone_id);
	/* Two lookups were counted before. */
	nodes_forget(t, file_id, 1);
	ck_assert_ptr_nonnull(nodes_find(t, file_id));
	nodes_forget(t, file_id, 1);
	ck_assert_ptr_null(nodes_find(t, file_id));
	ck_assert_ptr_nonnull(nodes_find(t, 1));
	nodes_free(t);
}
END_TEST

START_TEST(a_node_that_moved_stays_where_it_went)
{
	struct nodes *t = open_nodes();
	struct node_key key = {.kind = NODE_LIVE, .a = 12, .b = 34}, later = {NODE_LIVE, 12, 35, 0};
	struct node *n = look_up(t, &key, NULL);
	uint64_t old = n->id, fresh;

	ck_assert_int_eq(nodes_move(t, n, 35), 1);
	nodes_moved(t, n);
	unit_ok(nodes_move(t, n, 35));
	fresh = look_up(t, &key, NULL)->id;
	ck_assert_uint_ne(fresh, old);
	t = next_worker(t);
	ck_assert_ptr_nonnull(nodes_find(t, old));
	ck_assert_uint_eq(nodes_find(t, old)->b, 35);
	ck_assert_uint_eq(nodes_id_of(t, &key), fresh);
	ck_assert_uint_eq(nodes_id_of(t, &later), old);
	ck_assert(node_attr_timeout(nodes_find(t, old), 1) == 0);
	ck_assert(node_attr_timeout(nodes_find(t, fresh), 1) == 1);
	nodes_free(t);
}
END_TEST

START_TEST(a_node_that_is_open_does_not_move)
{
	struct nodes *t = open_nodes();
	struct node_key key = {.kind = NODE_LIVE, .a = 12, .b = 34};
	struct node *n = look_up(t, &key, NULL);

	nodes_io_begin(t, n);
	nodes_io_end(t, n);
	unit_error(nodes_move(t, n, 35), -EBUSY);
	ck_assert_uint_eq(nodes_id_of(t, &key), n->id);
	nodes_free(t);
}
END_TEST

START_TEST(what_is_in_an_epoch_keeps_its_root)
{
	struct nodes *t = open_nodes();
	struct node_key directory = {.kind = NODE_EPOCH, .a = 5}, file = {NODE_EPOCH, 5, 3, 0};
	struct node *root = look_up(t, &directory, NULL);
	uint64_t root_id = root->id, file_id = look_up(t, &file, root)->id;

	nodes_forget(t, root_id, 1);
	t = next_worker(t);
	ck_assert_ptr_eq(nodes_find(t, file_id)->root, nodes_find(t, root_id));
	nodes_forget(t, file_id, 1);
	ck_assert_uint_eq(nodes_count(t), 1);
	nodes_free(t);
}
END_TEST

/* The worker died between the two stores: the kernel was not told of the node yet. */
START_TEST(a_node_without_its_root_is_dropped)
{
	struct nodes *t = open_nodes();
	struct node_key directory = {.kind = NODE_EPOCH, .a = 5}, file = {NODE_EPOCH, 5, 3, 0};
	struct node *root = look_up(t, &directory, NULL);
	uint64_t file_id = look_up(t, &file, root)->id;

	nodes_find(t, file_id)->row->root = 0;
	t = next_worker(t);
	ck_assert_ptr_null(nodes_find(t, file_id));
	ck_assert_uint_eq(nodes_count(t), 2);
	nodes_free(t);
}
END_TEST

/* Their numbers are the worker's own. */
START_TEST(tags_do_not_come_back)
{
	struct nodes *t = open_nodes();
	struct node_key tag = {.kind = NODE_TAG, .a = 1};
	uint64_t id = look_up(t, &tag, NULL)->id;

	t = next_worker(t);
	ck_assert_ptr_null(nodes_find(t, id));
	nodes_free(t);
}
END_TEST

static void count_unused(void *arg, int32_t backing_id)
{
	*(int32_t *)arg += backing_id;
}

START_TEST(the_mode_of_open_nodes_comes_back)
{
	struct nodes *t = open_nodes();
	struct node_key keys[2] = {{NODE_LIVE, 12, 1, 0}, {NODE_LIVE, 13, 1, 0}};
	uint64_t ids[2];
	int32_t unused = 0, id;
	struct grant *grant;

	for (int i = 0; i < 2; i++) {
		struct node *n = look_up(t, &keys[i], NULL);

		ids[i] = n->id;
		nodes_io_begin(t, n);
		n->io = IO_PASSTHROUGH;
		n->backing_id = 10 + i;
		nodes_io_end(t, n);
	}
	t = next_worker(t);
	nodes_io_revive(t, nodes_find(t, ids[0]));
	nodes_io_revived(t, count_unused, &unused);
	ck_assert_int_eq(unused, 11);
	ck_assert_int_eq(nodes_find(t, ids[1])->io, IO_NONE);
	ck_assert_int_eq(nodes_find(t, ids[0])->io, IO_PASSTHROUGH);
	nodes_io_close(t, nodes_find(t, ids[0]), &id, &grant);
	ck_assert_int_eq(id, 10);
	t = next_worker(t);
	ck_assert_int_eq(nodes_find(t, ids[0])->io, IO_NONE);
	nodes_free(t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs_table");
	TCase *t = unit_case(s, "rows"), *n = unit_case(s, "nodes");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, free_rows_are_given_again);
	tcase_add_test(t, a_table_of_another_version_is_refused);
	tcase_add_test(t, an_open_is_found_by_its_request);
	tcase_add_checked_fixture(n, set_up, tear_down);
	tcase_add_test(n, nodes_come_back_with_their_ids);
	tcase_add_test(n, a_node_that_moved_stays_where_it_went);
	tcase_add_test(n, a_node_that_is_open_does_not_move);
	tcase_add_test(n, what_is_in_an_epoch_keeps_its_root);
	tcase_add_test(n, a_node_without_its_root_is_dropped);
	tcase_add_test(n, tags_do_not_come_back);
	tcase_add_test(n, the_mode_of_open_nodes_comes_back);
	return unit_run(s);
}
struct grant *grant;
