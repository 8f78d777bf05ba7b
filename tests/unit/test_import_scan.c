/* SPDX-License-Identifier: Apache-2.0 */
/* Listings of an ordinary directory: their order, what is compared, what is carried from one to the next. */
#include <sys/stat.h>
#include "lib/import/import_scan.h"
#include "tests/unit/unit.h"

struct place {
	char *dir;
	int fd;
	struct rules *rules;
};

static void place_start(struct place *p)
{
	static struct volume_options options;

	*p = (struct place){.dir = unit_dir()};
	p->fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(p->fd, 0);
	unit_ok(rules_new(&options, &p->rules));
}

static void place_stop(struct place *p)
{
	close(p->fd);
	free(p->dir);
	rules_free(p->rules);
}

static void save(struct place *p, const char *name, const char *text)
{
	int fd = openat(p->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	unit_ok(io_write_full(fd, text, strlen(text)));
	close(fd);
}

static struct scan scan(struct place *p)
{
	struct scan s;

	unit_ok(scan_directory(p->fd, p->rules, &s));
	return s;
}

static size_t find(const struct scan *s, const char *wanted)
{
	for (size_t i = 0; i < s->count; i++) {
		cleanup_buf struct buf path = {0};

		unit_ok(scan_path(s, i, &path));
		if (!strcmp(buf_str(&path), wanted))
			return i;
	}
	ck_abort_msg("%s is not there", wanted);
}

START_TEST(names_come_in_the_order_of_a_tree)
{
	static const char *const order[] = {"", "a", "a/z", "a-b", "b", "b.log", "l"};
	struct place p;
	struct scan s;

	place_start(&p);
	ck_assert_int_eq(mkdirat(p.fd, "a", 0700), 0);
	ck_assert_int_eq(mkdirat(p.fd, ".epochs", 0700), 0);
	save(&p, "b", "x");
	save(&p, "a/z", "x");
	save(&p, "a-b", "");
	save(&p, "b.log", "x");
	ck_assert_int_eq(symlinkat("target", p.fd, "l"), 0);
	s = scan(&p);
	ck_assert_uint_eq(s.count, sizeof(order) / sizeof(order[0]));
	for (size_t i = 0; i < s.count; i++)
		ck_assert_uint_eq(find(&s, order[i]), i);
	ck_assert(s.nodes[find(&s, "b.log")].log && !s.nodes[find(&s, "b")].log);
	ck_assert_int_eq(s.nodes[find(&s, "a-b")].content, SCAN_EMPTY);
	ck_assert_str_eq((char *)s.extra.data + s.nodes[find(&s, "l")].target, "target");
	scan_free(&s);
	place_stop(&p);
}
END_TEST

START_TEST(names_of_one_file_are_a_group)
{
	struct place p;
	struct scan s;

	place_start(&p);
	save(&p, "b", "x");
	save(&p, "alone", "x");
	ck_assert_int_eq(linkat(p.fd, "b", p.fd, "a", 0), 0);
	ck_assert_int_eq(linkat(p.fd, "b", p.fd, "c", 0), 0);
	s = scan(&p);
	ck_assert_uint_eq(s.nodes[find(&s, "a")].group, find(&s, "a"));
	ck_assert_uint_eq(s.nodes[find(&s, "b")].group, find(&s, "a"));
	ck_assert_uint_eq(s.nodes[find(&s, "c")].group, find(&s, "a"));
	ck_assert_uint_eq(s.nodes[find(&s, "alone")].group, 0);
	scan_free(&s);
	place_stop(&p);
}
END_TEST

/* What each of these does must be seen by a comparison. */
static void write_more(struct place *p)
{
	save(p, "d/file", "other");
}

static void add_name(struct place *p)
{
	save(p, "d/new", "");
}

static void remove_name(struct place *p)
{
	unlinkat(p->fd, "link", 0);
}

static void change_mode(struct place *p)
{
	ck_assert_int_eq(fchmodat(p->fd, "d", 0711, 0), 0);
}

static void replace_same(struct place *p)
{
	save(p, "d/.file", "text");
	renameat(p->fd, "d/.file", p->fd, "d/file");
}

static void point_elsewhere(struct place *p)
{
	unlinkat(p->fd, "link", 0);
	ck_assert_int_eq(symlinkat("b", p->fd, "link"), 0);
}

static void (*const changes[])(struct place *p) = {write_more,	change_mode,  add_name,
						   remove_name, replace_same, point_elsewhere};

START_TEST(every_change_is_seen_but_that_of_a_log)
{
	struct scan before, same, after;
	struct place p;
	size_t first;

	place_start(&p);
	ck_assert_int_eq(mkdirat(p.fd, "d", 0700), 0);
	save(&p, "d/file", "text");
	save(&p, "train.log", "line");
	ck_assert_int_eq(symlinkat("a", p.fd, "link"), 0);
	before = scan(&p);
	save(&p, "train.log", "line and line");
	same = scan(&p);
	ck_assert(scan_equal(&before, &same, &first));
	changes[_i](&p);
	after = scan(&p);
	ck_assert(!scan_equal(&before, &after, &first));
	ck_assert_uint_le(first, before.count);
	/* A new symlink may get the old one's inode number. */
	if (changes[_i] != point_elsewhere)
		ck_assert(scan_same_names(&before, &after) == (_i < 2));
	scan_free(&before);
	scan_free(&same);
	scan_free(&after);
	place_stop(&p);
}
END_TEST

START_TEST(what_was_read_is_carried_to_where_it_is_unchanged)
{
	struct scan before, after;
	struct place p;

	place_start(&p);
	save(&p, "kept", "one");
	save(&p, "changed", "two");
	save(&p, "unsteady", "three");
	before = scan(&p);
	for (size_t i = 1; i < before.count; i++) {
		before.nodes[i].content = SCAN_RECIPE;
		before.nodes[i].recipe.bytes[0] = (uint8_t)i;
		before.nodes[i].changes = i == find(&before, "unsteady");
	}
	save(&p, "changed", "2");
	ck_assert_int_eq(linkat(p.fd, "changed", p.fd, "a link of it", 0), 0);
	after = scan(&p);
	unit_ok(scan_carry(&before, &after));
	ck_assert_int_eq(after.nodes[find(&after, "kept")].content, SCAN_RECIPE);
	ck_assert_uint_eq(after.nodes[find(&after, "kept")].recipe.bytes[0], find(&before, "kept"));
	ck_assert_int_eq(after.nodes[find(&after, "changed")].content, SCAN_UNREAD);
	ck_assert_int_eq(after.nodes[find(&after, "unsteady")].content, SCAN_UNREAD);
	scan_free(&before);
	scan_free(&after);
	place_stop(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("import_scan");
	TCase *t = unit_case(s, "scan");

	tcase_add_test(t, names_come_in_the_order_of_a_tree);
	tcase_add_test(t, names_of_one_file_are_a_group);
	tcase_add_loop_test(t, every_change_is_seen_but_that_of_a_log, 0,
			    sizeof(changes) / sizeof(changes[0]));
	tcase_add_test(t, what_was_read_is_carried_to_where_it_is_unchanged);
	return unit_run(s);
}
