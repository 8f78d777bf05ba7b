/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between two trees. */
#include "lib/format/tree_diff.h"
#include "tests/unit/unit.h"

/* One entry of a test tree: "d/" is a directory, "f=text" a file, "l>target" a symlink; the depth is
 * that of the path. "@" in front changes its mtime. */
static void add(struct tree_writer *w, const char *spec)
{
	struct tree_entry e = {.mode = 0644, .mtime_ns = 5};
	char path[256];
	char *end, *name;

	if (*spec == '@') {
		e.mtime_ns = 6;
		spec++;
	}
	snprintf(path, sizeof(path), "%s", spec);
	end = path + strcspn(path, "=>");
	if (*end == '=') {
		e.type = TREE_REGULAR;
		e.content = TREE_INLINE;
		e.u.inline_data = end + 1;
		e.size = strlen(end + 1);
	} else if (*end == '>') {
		e.type = TREE_SYMLINK;
		e.u.target = end + 1;
	} else {
		e.type = TREE_DIR;
		end--; /* the last '/' */
	}
	*end = '\0';
	name = strrchr(path, '/');
	e.name = name ? name + 1 : path;
	e.name_len = strlen(e.name);
	e.depth = *path ? 1 : 0;
	for (const char *p = path; *p; p++)
		e.depth += *p == '/';
	unit_ok(tree_writer_add(w, &e));
}

/* The specs, with a blank between; the root is made. */
static struct tree *make(const char *specs)
{
	cleanup_tree_writer struct tree_writer *w = NULL;
	cleanup_free char *copy = strdup(specs);
	struct buf b = {0};
	struct tree *t = NULL;
	char *save = NULL;
	size_t len;
	void *data;

	unit_ok(tree_writer_new(&b, 0, &w));
	add(w, "/");
	for (char *spec = strtok_r(copy, " ", &save); spec; spec = strtok_r(NULL, " ", &save))
		add(w, spec);
	unit_ok(tree_writer_finish(w));
	data = buf_steal(&b, &len);
	unit_ok(tree_decode(data, len, 0, &t));
	return t;
}

static int note(const struct tree_change *c, void *arg)
{
	struct buf *out = arg;

	ck_assert((c->old_entry == NULL) == (c->kind == TREE_ADDED));
	ck_assert((c->new_entry == NULL) == (c->kind == TREE_REMOVED));
	ck_assert((c->old_id == TREE_NONE) == (c->kind == TREE_ADDED));
	ck_assert((c->new_id == TREE_NONE) == (c->kind == TREE_REMOVED));
	ck_assert(c->kind == TREE_CHANGED || !(c->content || c->meta));
	buf_printf(out, "%c%s%s%s ", "+~-"[c->kind], c -> content ? "c" : "", c->meta ? "m" : "",
		   c->kind == TREE_CHANGED ? ":" : "");
	buf_printf(out, "%s ", c->path);
	return 0;
}

static void check(const char *a, const char *b, const char *want)
{
	cleanup_tree struct tree *x = make(a), *y = make(b);
	cleanup_buf struct buf got = {0};

	unit_ok(tree_diff(x, y, note, &got));
	ck_assert_str_eq(buf_str(&got), want);
}

START_TEST(equal_trees_do_not_differ)
{
	check("", "", "");
	check("a/ a/b=1 c=2 d>x", "a/ a/b=1 c=2 d>x", "");
}
END_TEST

START_TEST(added_changed_and_removed_are_told)
{
	check("", "f=1", "+ f ");
	check("f=1", "", "- f ");
	check("f=1", "f=2", "~c: f ");
	check("f=1", "@f=1", "~m: f ");
	check("f=1", "@f=22", "~cm: f ");
	check("l>a", "l>b", "~c: l ");
	check("a/", "@a/", "~m: a ");
	check("a=1 c=1 e=1", "b=1 c=2 d=1", "- a + b ~c: c + d - e ");
}
END_TEST

START_TEST(whole_directories_come_and_go_entry_by_entry)
{
	check("", "d/ d/a/ d/a/x=1 d/b=1 e=1", "+ d + d/a + d/a/x + d/b + e ");
	check("d/ d/a/ d/a/x=1 d/b=1 e=1", "", "- d - d/a - d/a/x - d/b - e ");
	check("d/ d/a/ d/a/x=1 d/b=1", "d/ d/a/ d/a/x=2 d/b=1 d/c=1", "~c: d/a/x + d/c ");
	/* The path is right again after going into a directory. */
	check("d/ d/a/ d/a/x=1 d/b=1 e/ e/f=1", "d/ d/a/ d/b=2 e/ e/f=2",
	      "- d/a/x ~c: d/b ~c: e/f ");
}
END_TEST

START_TEST(another_type_is_removed_and_added)
{
	check("x=1", "x/ x/y=1", "- x + x + x/y ");
	check("x/ x/y=1", "x>t", "- x - x/y + x ");
	check("d/ d/x/ d/x/y=1 d/z=1", "d/ d/x=1 d/z=2", "- d/x - d/x/y + d/x ~c: d/z ");
}
END_TEST

START_TEST(names_are_ordered_by_bytes_not_by_paths)
{
	check("a/ a/x=1 a-b=1", "a-b=2", "- a - a/x ~c: a-b ");
	check("a/ a/x=1", "a/ a/x=1 a-b=1", "+ a-b ");
}
END_TEST

static int stop(const struct tree_change *c, void *arg)
{
	(void)c;
	++*(int *)arg;
	return 42;
}

START_TEST(a_callback_ends_the_walk)
{
	cleanup_tree struct tree *a = make("a/ a/b=1 c=1"), *b = make("d/ d/e=1");
	int calls = 0;

	ck_assert_int_eq(tree_diff(a, b, stop, &calls), 42);
	ck_assert_int_eq(calls, 1);
}
END_TEST

START_TEST(contents_of_different_kinds_are_compared)
{
	struct tree_entry a = {.type = TREE_REGULAR, .content = TREE_RECIPE, .size = 5}, b = a;

	ck_assert(tree_same_content(&a, &b));
	b.u.recipe.bytes[31] = 1;
	ck_assert(!tree_same_content(&a, &b));
	b = (struct tree_entry){.type = TREE_REGULAR, .content = TREE_LOCAL, .size = 5};
	b.u.version = 3;
	ck_assert(tree_same_content(&a, &b));
	b.mtime_ns = 1;
	ck_assert(!tree_same_content(&a, &b));
	b.mtime_ns = 0;
	b.size = 6;
	ck_assert(!tree_same_content(&a, &b));
	a = b;
	ck_assert(tree_same_content(&a, &b));
	a.u.version = 4;
	ck_assert(!tree_same_content(&a, &b));
	b = (struct tree_entry){
		.type = TREE_REGULAR, .content = TREE_INLINE, .size = 6, .u.inline_data = "123456"};
	a = (struct tree_entry){.type = TREE_REGULAR, .content = TREE_RECIPE, .size = 6};
	ck_assert(!tree_same_content(&a, &b));
	a = (struct tree_entry){.type = TREE_CHAR, .rdev_major = 1, .rdev_minor = 3};
	b = a;
	ck_assert(tree_same_content(&a, &b));
	b.rdev_minor = 5;
	ck_assert(!tree_same_content(&a, &b));
}
END_TEST

START_TEST(each_attribute_counts_as_meta)
{
	const struct tree_entry a = {.type = TREE_DIR, .xattrs = "\1a\0\0", .xattrs_len = 4};
	struct tree_entry b;

#define DIFFERS(change)                                                                            \
	do {                                                                                       \
		b = a;                                                                             \
		ck_assert(tree_same_meta(&a, &b));                                                 \
		change;                                                                            \
		ck_assert(!tree_same_meta(&a, &b));                                                \
	} while (0)
	DIFFERS(b.mode = 1);
	DIFFERS(b.uid = 1);
	DIFFERS(b.gid = 1);
	DIFFERS(b.mtime_ns = 1);
	DIFFERS(b.flags = TREE_LOG);
	DIFFERS(b.xattrs_len = 0);
	DIFFERS(b.xattrs = "\1b\0\0");
#undef DIFFERS
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_tree_diff");
	TCase *t = unit_case(s, "diff");

	tcase_add_test(t, equal_trees_do_not_differ);
	tcase_add_test(t, added_changed_and_removed_are_told);
	tcase_add_test(t, whole_directories_come_and_go_entry_by_entry);
	tcase_add_test(t, another_type_is_removed_and_added);
	tcase_add_test(t, names_are_ordered_by_bytes_not_by_paths);
	tcase_add_test(t, a_callback_ends_the_walk);
	tcase_add_test(t, contents_of_different_kinds_are_compared);
	tcase_add_test(t, each_attribute_counts_as_meta);
	return unit_run(s);
}
