/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of several nodes: which parts belong together, and how trees are merged. */
#include <inttypes.h>

#include "lib/cache/context.h"
#include "lib/format/names.h"
#include "lib/meta/nodes_decide.h"
#include "lib/upload/nodes.h"
#include "lib/util/cleanup.h"
#include "tests/unit/unit.h"

/* ---- deciding ---- */

static struct nodes_part labelled(const char *node, uint64_t sequence, uint64_t step)
{
	return (struct nodes_part){
		.place = {.generation = 1, .has_step = true, .step = step},
		.node = node,
		.sequence = sequence,
		.nodes = 2,
		.sealed_ns = (int64_t)sequence,
	};
}

static struct nodes_part counted(const char *node, uint64_t sequence, int64_t after, uint64_t count)
{
	struct nodes_part p = labelled(node, sequence, 0);

	p.place.has_step = false;
	p.place.has_after = after >= 0;
	p.place.after = after >= 0 ? (uint64_t)after : 0;
	p.place.count = count;
	return p;
}

/* "whole 0 1; waiting 2; " */
static void check_groups(const struct nodes_part *parts, size_t count, uint64_t open,
			 const char *wanted)
{
	static const char *const names[] = {"merged", "whole", "closed", "waiting"};
	cleanup_buf struct buf text = {0};
	struct nodes_group *groups = NULL;
	size_t n = 0;

	unit_ok(nodes_groups(parts, count, open, &groups, &n));
	for (size_t i = 0; i < n; i++) {
		buf_printf(&text, "%s%s", i ? "; " : "", names[groups[i].verdict]);
		for (size_t k = 0; k < groups[i].count; k++)
			buf_printf(&text, " %zu", groups[i].parts[k]);
	}
	nodes_groups_free(groups, n);
	ck_assert_str_eq(buf_str(&text), wanted);
}

START_TEST(a_step_is_whole_once_all_have_it)
{
	struct nodes_part p[] = {labelled("b", 1, 10), labelled("a", 7, 10), labelled("a", 8, 20)};

	check_groups(p, 0, 0, "");
	check_groups(p, 1, 0, "waiting 0");
	/* In the order of the nodes, whatever their own numbers are. */
	check_groups(p, 2, 0, "whole 1 0");
	check_groups(p, 3, 0, "whole 1 0; waiting 2");
	p[0].merged = p[1].merged = 5;
	check_groups(p, 3, 0, "merged 1 0; waiting 2");
}
END_TEST

START_TEST(what_a_node_has_passed_never_comes)
{
	struct nodes_part p[] = {labelled("a", 1, 10), labelled("a", 2, 20), labelled("b", 1, 20)};

	check_groups(p, 2, 0, "waiting 0; waiting 1");
	check_groups(p, 3, 0, "closed 0; whole 1 2");
	/* One that is whole, and older on that node, closes nothing. */
	p[0].sequence = 3;
	p[0].sealed_ns = 3;
	check_groups(p, 3, 0, "whole 1 2; waiting 0");
}
END_TEST

START_TEST(of_an_attempt_that_is_over_nothing_waits)
{
	struct nodes_part p[] = {labelled("a", 1, 10), labelled("a", 2, 20), labelled("b", 3, 20)};

	p[1].place.generation = p[2].place.generation = 2;
	/* The attempts are told apart, also where nodes and steps are the same. */
	check_groups(p, 3, 1, "waiting 0; whole 1 2");
	check_groups(p, 3, 2, "closed 0; whole 1 2");
	p[1].place.step = p[2].place.step = 10;
	check_groups(p, 3, 2, "closed 0; whole 1 2");
}
END_TEST

START_TEST(a_part_that_is_continued_makes_it_whole_again)
{
	struct nodes_part p[] = {labelled("a", 1, 10), labelled("b", 1, 10), labelled("b", 2, 10)};

	p[0].merged = p[1].merged = 3;
	check_groups(p, 2, 0, "merged 0 1");
	check_groups(p, 3, 0, "whole 0 2");
	p[0].merged = p[2].merged = 4;
	check_groups(p, 3, 0, "merged 0 2");
	/* A part that came late to one that was closed. */
	p[0].merged = 3;
	p[1].merged = p[2].merged = 0;
	check_groups(p, 1, 0, "merged 0");
	check_groups(p, 2, 0, "whole 0 1");
}
END_TEST

START_TEST(without_a_step_the_count_since_the_last_one_decides)
{
	struct nodes_part p[] = {counted("a", 1, -1, 1), labelled("a", 2, 0),
				 labelled("b", 1, 0),	 counted("a", 3, 0, 1),
				 counted("b", 2, 0, 1),	 counted("b", 3, 0, 2)};

	check_groups(p, 6, 0, "closed 0; whole 1 2; whole 3 4; waiting 5");
}
END_TEST

START_TEST(names_are_ordered_by_their_numbers)
{
	ck_assert_int_lt(nodes_compare_names("node2", "node10"), 0);
	ck_assert_int_lt(nodes_compare_names("a", "b"), 0);
	ck_assert_int_eq(nodes_compare_names("a", "a"), 0);
	ck_assert(node_name_valid("gpu-07.rack_1") && node_name_valid("0"));
	ck_assert(!node_name_valid("") && !node_name_valid(".a") && !node_name_valid("a/b") &&
		  !node_name_valid("a b") && !node_name_valid("-a"));
}
END_TEST

/* ---- merging ---- */

/*
 * A tree from lines, in the tree's order: depth, type, name, and content or target; d: directory, f: file, l: symlink,
 * 1 to 9: a file of that hard link group. "mtime=N" at the end.
 */
static struct tree *make(const char *lines)
{
	cleanup_tree_writer struct tree_writer *w = NULL;
	cleanup_buf struct buf data = {0};
	struct tree_entry e = {.name = "", .type = TREE_DIR, .mode = 0755, .mtime_ns = 1};
	struct tree *tree;
	char *copy = strdup(lines), *save = NULL;
	size_t len;
	void *bytes;

	unit_ok(tree_writer_new(&data, 0, &w));
	unit_ok(tree_writer_add(w, &e));
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char type, name[256], content[256] = "";
		const char *mtime = strstr(line, " mtime=");
		unsigned depth;

		ck_assert_int_ge(sscanf(line, "%u %c %255s %255s", &depth, &type, name, content),
				 3);
		e = (struct tree_entry){.depth = depth,
					.name = name,
					.name_len = strlen(name),
					.type = type == 'd'   ? TREE_DIR
						: type == 'l' ? TREE_SYMLINK
							      : TREE_REGULAR,
					.mode = 0644,
					.mtime_ns = mtime ? atoi(mtime + 7) : 1};
		if (type >= '1' && type <= '9')
			e.group = (uint64_t)(type - '0');
		if (e.type == TREE_SYMLINK) {
			e.u.target = content;
			e.size = strlen(content);
		} else if (e.type == TREE_REGULAR && *content) {
			e.content = TREE_INLINE;
			e.u.inline_data = content;
			e.size = strlen(content);
		}
		unit_ok(tree_writer_add(w, &e));
	}
	free(copy);
	unit_ok(tree_writer_finish(w));
	bytes = buf_steal(&data, &len);
	unit_ok(tree_decode(bytes, len, 0, &tree));
	return tree;
}

/* "d/ d/a=one l>t" in the tree's order; links as "x=one#2", with the number of names. */
static void show(const struct nodes_merged *m, struct buf *out)
{
	void *copy = malloc(m->tree.len);
	struct tree *t;

	memcpy(copy, m->tree.data, m->tree.len);
	unit_ok(tree_decode(copy, m->tree.len, 0, &t));
	for (uint32_t id = 1; id < tree_count(t); id++) {
		struct tree_entry e;

		tree_get(t, id, &e);
		buf_printf(out, "%s", id > 1 ? " " : "");
		unit_ok(tree_path(t, id, out));
		if (e.type == TREE_DIR)
			buf_printf(out, "/");
		else if (e.type == TREE_SYMLINK)
			buf_printf(out, ">%s", e.u.target);
		else if (e.size)
			buf_printf(out, "=%.*s", (int)e.size, (const char *)e.u.inline_data);
		if (e.type == TREE_REGULAR && tree_nlink(t, id) > 1)
			buf_printf(out, "#%u", tree_nlink(t, id));
	}
	tree_unref(t);
}

/* Two nodes, a and b, from one base (NULL: none). */
static void check_merge(const char *base, const char *a, const char *b, const char *wanted,
			size_t conflicts)
{
	struct tree *bt = base ? make(base) : NULL, *at = make(a), *ct = make(b);
	const struct nodes_tree parts[] = {{"a", at, bt, base ? 3 : 0},
					   {"b", ct, bt, base ? 3 : 0}};
	cleanup_nodes_merged struct nodes_merged merged = {0};
	cleanup_buf struct buf text = {0};

	unit_ok(nodes_merge(parts, 2, &merged));
	show(&merged, &text);
	ck_assert_str_eq(buf_str(&text), wanted);
	ck_assert_uint_eq(merged.conflict_count, conflicts);
	tree_unref(bt);
	tree_unref(at);
	tree_unref(ct);
}

START_TEST(files_of_all_are_there)
{
	check_merge(NULL, "", "", "", 0);
	check_merge(NULL, "1 d s\n2 f a one\n", "1 d s\n2 f b two\n1 l t x\n",
		    "s/ s/a=one s/b=two t>x", 0);
	check_merge(NULL, "1 f empty\n", "1 f empty\n", "empty", 0);
	/* The same content is no conflict. */
	check_merge(NULL, "1 f x one mtime=2\n", "1 f x one mtime=9\n", "x=one", 0);
}
END_TEST

START_TEST(different_contents_are_all_kept)
{
	check_merge(NULL, "1 f x one\n", "1 f x two\n", "x=one x.b=two", 1);
	check_merge(NULL, "1 f x one\n1 f x.b taken\n", "1 f x two\n", "x=one x.b=taken x.b.2=two",
		    1);
	check_merge(NULL, "1 f x one\n", "1 d x\n2 f y two\n", "x=one x.b/ x.b/y=two", 1);
	check_merge(NULL, "1 d x\n2 f y two\n", "1 f x one\n", "x/ x/y=two x.b=one", 1);
	check_merge(NULL, "1 l x here\n", "1 l x there\n", "x>here x.b>there", 1);
	/* New names sort where they belong. */
	check_merge(NULL, "1 f x one\n1 f x-y z\n", "1 f x two\n", "x=one x-y=z x.b=two", 1);
}
END_TEST

START_TEST(what_is_inherited_is_no_opinion)
{
	const char *base = "1 d d\n2 f old one\n1 f x one\n1 f y one\n";

	check_merge(base, base, base, "d/ d/old=one x=one y=one", 0);
	check_merge(base, "1 d d\n2 f old one\n1 f x two\n1 f y one\n", base,
		    "d/ d/old=one x=two y=one", 0);
	check_merge(base, base, "1 d d\n2 f old one\n1 f x two\n", "d/ d/old=one x=two", 0);
	check_merge(base, "1 f x one\n1 f y one\n", base, "x=one y=one", 0);
	/* Content wins over a removal, that over attributes. */
	check_merge(base, "1 d d\n2 f old one\n1 f y one\n",
		    "1 d d\n2 f old one\n1 f x two\n1 f y one\n", "d/ d/old=one x=two y=one", 0);
	check_merge(base, "1 d d\n2 f old one\n1 f y one\n",
		    "1 d d\n2 f old one\n1 f x one mtime=5\n1 f y one\n", "d/ d/old=one y=one", 0);
	/* Both made the same of it, and both something else. */
	check_merge(base, "1 f x two\n", "1 f x two\n", "x=two", 0);
	check_merge(base, "1 f x two\n", "1 f x three\n", "x=two x.b=three", 1);
}
END_TEST

START_TEST(a_directory_stays_for_what_is_new_in_it)
{
	const char *base = "1 d d\n2 d e\n3 f old one\n2 f f one\n";

	check_merge(base, "", base, "", 0);
	check_merge(base, "", "1 d d\n2 d e\n3 f new two\n3 f old one\n2 f f one\n",
		    "d/ d/e/ d/e/new=two", 0);
	check_merge(base, "1 f d file\n", "1 d d\n2 d e\n3 f new two\n3 f old one\n2 f f one\n",
		    "d=file d.b/ d.b/e/ d.b/e/new=two", 1);
	check_merge(base, "1 f d file\n", base, "d=file", 0);
}
END_TEST

START_TEST(hard_links_stay_with_their_node)
{
	check_merge(NULL, "1 1 a one\n1 1 b one\n", "1 1 c two\n1 1 d two\n",
		    "a=one#2 b=one#2 c=two#2 d=two#2", 0);
	/* A further name for what is in the base: all names come from that node. */
	check_merge("1 f a one\n", "1 f a one\n", "1 1 a one\n1 1 b one\n", "a=one#2 b=one#2", 0);
}
END_TEST

START_TEST(bases_may_differ)
{
	struct tree *old = make("1 f x one\n1 f y one\n"), *new = make("1 f x two\n1 f z two\n");
	const struct nodes_tree parts[] = {{"a", old, old, 3}, {"b", new, new, 5}};
	cleanup_nodes_merged struct nodes_merged merged = {0};
	cleanup_buf struct buf text = {0};

	unit_ok(nodes_merge(parts, 2, &merged));
	show(&merged, &text);
	ck_assert_str_eq(buf_str(&text), "x=two y=one z=two");
	tree_unref(old);
	tree_unref(new);
}
END_TEST

START_TEST(many_conflicts_are_counted)
{
	cleanup_buf struct buf a = {0}, b = {0};
	struct tree *at, *bt;
	cleanup_nodes_merged struct nodes_merged merged = {0};

	for (int i = 0; i < NODES_CONFLICTS_MAX + 3; i++) {
		buf_printf(&a, "1 f n%03d one\n", i);
		buf_printf(&b, "1 f n%03d two\n", i);
	}
	at = make(buf_str(&a));
	bt = make(buf_str(&b));
	unit_ok(nodes_merge((struct nodes_tree[]){{"a", at, NULL, 0}, {"b", bt, NULL, 0}}, 2,
			    &merged));
	ck_assert_uint_eq(merged.conflict_count, NODES_CONFLICTS_MAX + 1);
	ck_assert_str_eq(merged.conflicts[NODES_CONFLICTS_MAX], "and 3 more");
	tree_unref(at);
	tree_unref(bt);
}
END_TEST

START_TEST(a_long_name_is_cut_for_the_node)
{
	char line[300], long_name[256];
	struct tree *at, *bt;
	cleanup_nodes_merged struct nodes_merged merged = {0};
	cleanup_buf struct buf text = {0};

	memset(long_name, 'n', 255);
	long_name[255] = '\0';
	snprintf(line, sizeof(line), "1 f %s one\n", long_name);
	at = make(line);
	snprintf(line, sizeof(line), "1 f %s two\n", long_name);
	bt = make(line);
	unit_ok(nodes_merge((struct nodes_tree[]){{"a", at, NULL, 0}, {"b", bt, NULL, 0}}, 2,
			    &merged));
	show(&merged, &text);
	ck_assert_ptr_nonnull(strstr(buf_str(&text), "nnn.b=two"));
	tree_unref(at);
	tree_unref(bt);
}
END_TEST

/* ---- the record of an epoch that is put together ---- */

/* What a node sealed; a doubt of it: "PATH SINCE", and "PATH SINCE!" where it counts there. */
static struct nodes_known part(const char *node, bool doubted, const char *reason,
			       const char *const *doubts)
{
	struct nodes_known k = {.generation = 1, .record.part.sequence = 1};
	struct epoch_record *r = &k.record;

	r->part.node = strdup(node);
	r->complete = reason ? RECORD_INCOMPLETE : RECORD_COMPLETE;
	r->reason = reason ? strdup(reason) : NULL;
	r->doubted = doubted;
	r->doubts = calloc(4, sizeof(*r->doubts));
	ck_assert(r->part.node && r->doubts);
	for (size_t i = 0; doubts[i]; i++) {
		struct record_doubt *d = &r->doubts[r->doubt_count++];
		char path[64], counts = 0;

		ck_assert_int_ge(sscanf(doubts[i], "%63s %" SCNu64 "%c", path, &d->since, &counts),
				 2);
		if (!d->since)
			d->since = NODES_FIRST;
		d->path = strdup(path);
		d->kind = strdup("undone");
		d->counts = counts == '!';
	}
	return k;
}

/* Two parts, a and b: why the epoch is not complete (NULL: it is), and what is in doubt in it. */
static void check_record(struct nodes_known a, struct nodes_known b, const char *reason,
			 const char *doubts)
{
	const struct nodes_known *const parts[] = {&a, &b};
	const struct nodes_group group = {.verdict = NODES_WHOLE, .count = 2};
	struct volume *vol = calloc(1, sizeof(*vol));
	cleanup_record struct epoch_record r = {0};
	cleanup_buf struct buf text = {0};

	ck_assert_ptr_nonnull(vol);
	unit_ok(nodes_record(vol, parts, 2, &group, false, NULL, 0, &r));
	ck_assert_int_eq(r.complete, reason ? RECORD_INCOMPLETE : RECORD_COMPLETE);
	if (reason)
		ck_assert_str_eq(r.reason, reason);
	for (size_t i = 0; i < r.doubt_count; i++)
		buf_printf(&text, "%s%s%s", i ? " " : "", r.doubts[i].path,
			   r.doubts[i].counts ? "!" : "");
	ck_assert_str_eq(buf_str(&text), doubts);
	record_free(&a.record);
	record_free(&b.record);
	free(vol);
}

#define DOUBTS(...) ((const char *const[]){__VA_ARGS__})

START_TEST(an_epoch_of_parts_is_as_complete_as_its_doubts_say)
{
	check_record(part("a", false, NULL, DOUBTS(NULL)), part("b", false, NULL, DOUBTS(NULL)),
		     NULL, "");
	/* A kill on one node. */
	check_record(part("a", true, "x: killed", DOUBTS("x 0!", NULL)),
		     part("b", false, NULL, DOUBTS(NULL)), "a: x: killed", "x!");
	/* A doubt of the base that another node has settled. */
	check_record(part("a", true, "x: killed", DOUBTS("x 3!", NULL)),
		     part("b", false, NULL, DOUBTS(NULL)), NULL, "");
	/* One that stands in both. */
	check_record(part("a", true, "x: killed", DOUBTS("x 3!", NULL)),
		     part("b", true, "x: killed", DOUBTS("x 3!", NULL)),
		     "a: x: killed; b: x: killed", "x!");
	/* One that is of an older unit for the node that has the newest. */
	check_record(part("a", true, "x: killed", DOUBTS("x 3!", NULL)),
		     part("b", false, NULL, DOUBTS("x 3", NULL)), NULL, "x");
	/* One of an older unit, that costs nothing. */
	check_record(part("a", false, NULL, DOUBTS("x 0", NULL)),
		     part("b", false, NULL, DOUBTS(NULL)), NULL, "x");
	/* One of two is settled. */
	check_record(part("a", true, "x: killed; y: killed", DOUBTS("x 3!", "y 0!", NULL)),
		     part("b", false, NULL, DOUBTS(NULL)), "a: x: killed; y: killed", "y!");
	/* Not for its doubts alone, or a part of an older program, which does not say. */
	check_record(part("a", false, "lost", DOUBTS("x 3!", NULL)),
		     part("b", false, NULL, DOUBTS(NULL)), "a: lost", "");
	check_record(part("a", false, "lost", DOUBTS(NULL)), part("b", false, NULL, DOUBTS(NULL)),
		     "a: lost", "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("upload_nodes");
	TCase *t = unit_case(s, "decide");

	tcase_add_test(t, a_step_is_whole_once_all_have_it);
	tcase_add_test(t, what_a_node_has_passed_never_comes);
	tcase_add_test(t, of_an_attempt_that_is_over_nothing_waits);
	tcase_add_test(t, a_part_that_is_continued_makes_it_whole_again);
	tcase_add_test(t, without_a_step_the_count_since_the_last_one_decides);
	tcase_add_test(t, names_are_ordered_by_their_numbers);
	t = unit_case(s, "merge");
	tcase_add_test(t, files_of_all_are_there);
	tcase_add_test(t, different_contents_are_all_kept);
	tcase_add_test(t, what_is_inherited_is_no_opinion);
	tcase_add_test(t, a_directory_stays_for_what_is_new_in_it);
	tcase_add_test(t, hard_links_stay_with_their_node);
	tcase_add_test(t, bases_may_differ);
	tcase_add_test(t, many_conflicts_are_counted);
	tcase_add_test(t, a_long_name_is_cut_for_the_node);
	t = unit_case(s, "record");
	tcase_add_test(t, an_epoch_of_parts_is_as_complete_as_its_doubts_say);
	return unit_run(s);
}
