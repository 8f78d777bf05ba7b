/* SPDX-License-Identifier: Apache-2.0 */
/* What is in doubt in an import, by what the epoch before had in doubt: also of files that were renamed since. */
#include "lib/import/import_internal.h"
#include "tests/unit/tree_unit.h"

/*
 * A tree is PATH=CONTENT words, in its order. A content that ends with '~' is torn in the epoch before; one that ends with '!'
 * has another mtime. Doubts are paths, with a '*' where they count.
 */
static const struct {
	const char *name, *before, *killed, *companions, *after, *doubts;
} cases[] = {
	{"unchanged", "a=2 b=1", "b", "a", "a=2 b=1 c=3", "b*"},
	{"saved", "a=2 b=1", "b", "a", "a=2 b=2", ""},
	{"a companion saved", "a=2 b=1", "b", "a", "a=3 b=1", ""},
	{"a companion removed", "a=2 b=1", "b", "a", "b=1", ""},

	/* ---- a companion was renamed ---- */
	{"a companion renamed", "a=2 b=1", "b", "a", "b=1 z=2", "b*"},
	{"... into a directory", "a=2 b=1", "b", "a", "b=1 d/a=2", "b*"},
	{"... over another", "a=2 b=1 c=3", "b", "a", "b=1 c=2", "b*"},
	{"... and saved", "a=2 b=1", "b", "a", "b=1 z=3", ""},
	{"... and another has its name", "a=2 b=1", "b", "a", "a=3 b=1 z=2", ""},
	{"of two companions one", "a=2 b=1 c=3", "b", "a c", "b=1 c=4 z=2", "b*"},
	{"two that are equal", "a=2 b=1 c=2", "b", "a c", "b=1 y=2 z=2", "b*"},
	{"two that could be it", "a=2 b=1", "b", "a", "b=1 y=2 z=2", "b*"},
	{"removed, a copy was there before", "a=2 b=1 copy=2", "b", "a", "b=1 copy=2", ""},
	{"renamed, a copy was there before", "a=2 b=1 copy=2", "b", "a", "b=1 copy=2 z=2", "b*"},

	/* ---- a directory was renamed ---- */
	{"a temporary name", "tmp-x/a=2", "tmp-x/b", "tmp-x/a", "n=1 tmp-x/a=2", "tmp-x/b"},
	{"... becomes a final one", "tmp-x/a=2", "tmp-x/b", "tmp-x/a", "checkpoint-2/a=2",
	 "checkpoint-2/b*"},
	{"... and was saved", "tmp-x/a=2", "tmp-x/b", "tmp-x/a",
	 "checkpoint-2/a=2 checkpoint-2/b=2", ""},
	{"... below another", "o/tmp-x/a=2", "o/tmp-x/s/b", "o/tmp-x/a", "o/checkpoint-2/a=2",
	 "o/checkpoint-2/s/b*"},
	{"... by its only file", "tmp-x/a=1 tmp-x/b=2", "tmp-x/a", "tmp-x/b",
	 "checkpoint-2/a=1 checkpoint-2/b=2", "checkpoint-2/a*"},
	{"... of equal files", "tmp-x/a=2 tmp-x/c=2", "tmp-x/b", "tmp-x/a tmp-x/c",
	 "checkpoint-2/a=2 checkpoint-2/c=2", "checkpoint-2/b*"},
	{"one file leaves it", "d/a=2 d/c=3", "d/b", "d/a d/c", "d/c=3 e/a=2", "d/b*"},
	{"up to the root", "d/a=2", "d/b", "d/a", "a=2", "b*"},
	{"down from the root", "a=2 b=1", "b", "a", "d/a=2 d/b=1", "b*"},

	/* ---- the killed file was renamed ---- */
	{"renamed", "a=2 b=1", "b", "a", "a=2 z=1", "b*"},
	{"... and saved", "a=2 b=1", "b", "a", "a=2 b=2 z=1", ""},
	{"... and its companion saved", "a=2 b=1", "b", "a", "a=3 z=1", ""},
	{"removed", "a=2 b=1", "b", "a", "a=2", ""},

	/* ---- torn, and the end does not say so ---- */
	{"torn", "w=1~", "", "", "n=5 w=1", "w*"},
	{"... renamed", "w=1~", "", "", "z=1", "z*"},
	{"... renamed to a final name", "w.tmp=1~", "", "", "w=1", "w*"},
	{"... saved", "w=1~", "", "", "w=2", ""},
	{"... saved with the same content", "w=1~", "", "", "w=1!", ""},
	{"... removed", "w=1~", "", "", "x=2", ""},
};

struct building {
	struct tree_entry entries[32];
	char names[32][64];
	size_t count;
	char last[128];
};

static void add_entry(struct building *b, uint32_t depth, const char *name, size_t len)
{
	struct tree_entry *e = &b->entries[b->count];

	snprintf(b->names[b->count], sizeof(b->names[0]), "%.*s", (int)len, name);
	*e = make(depth, b->names[b->count++], TREE_DIR);
}

/* The directories of a path that the one before has not. */
static uint32_t add_directories(struct building *b, const char *path)
{
	const char *slash = path, *next;
	uint32_t depth = 1;

	while ((next = strchr(slash, '/'))) {
		if (strncmp(b->last, path, (size_t)(next - path) + 1) != 0)
			add_entry(b, depth, slash, (size_t)(next - slash));
		slash = next + 1;
		depth++;
	}
	return depth;
}

static void add_file(struct building *b, char *word)
{
	char *text = strchr(word, '='), *mark;
	uint32_t depth;
	const char *name;

	*text++ = '\0';
	mark = strpbrk(text, "~!");
	depth = add_directories(b, word);
	name = strrchr(word, '/') ? strrchr(word, '/') + 1 : word;
	snprintf(b->names[b->count], sizeof(b->names[0]), "%s", name);
	b->entries[b->count] = make_inline(depth, b->names[b->count], text);
	if (mark && *mark == '~')
		b->entries[b->count].flags = TREE_TORN;
	if (mark && *mark == '!')
		b->entries[b->count].mtime_ns++;
	if (mark)
		b->entries[b->count].size--;
	b->count++;
	snprintf(b->last, sizeof(b->last), "%s", word);
}

static void make_tree(const char *words, struct tree **ret_tree)
{
	char text[256], *word, *rest = NULL;
	cleanup_buf struct buf bytes = {0};
	struct building b = {0};
	size_t len;
	void *data;

	snprintf(text, sizeof(text), "%s", words);
	add_entry(&b, 0, "", 0);
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		add_file(&b, word);
	encode(b.entries, b.count, 0, &bytes);
	data = buf_steal(&bytes, &len);
	unit_ok(tree_decode(data, len, 0, ret_tree));
}

/* As if a directory were read that has this tree. */
static void make_scan(const struct tree *tree, struct scan *ret_scan)
{
	unit_ok(scan_of_tree(tree, ret_scan));
	for (uint32_t id = 0; id < tree_count(tree); id++) {
		struct scan_node *n = &ret_scan->nodes[id];
		struct tree_entry e;

		tree_get(tree, id, &e);
		n->former = TREE_NONE;
		n->mode = e.type == TREE_DIR ? S_IFDIR | 0755 : S_IFREG | 0644;
		n->mtime_ns = e.mtime_ns;
		n->size = e.size;
		if (e.type == TREE_DIR)
			continue;
		n->content = SCAN_INLINE;
		n->data = malloc(e.size);
		memcpy(n->data, e.u.inline_data, e.size);
	}
}

/* The record of the epoch before, its doubt and the companions of that; `text` is cut into them. */
static void set_doubt(struct record_doubt *d, char *path, char *text, char **companions)
{
	char *word, *rest = NULL;

	*d = (struct record_doubt){
		.path = path, .kind = (char *)(uintptr_t) "undone", .since = 1, .counts = true};
	d->companions = companions;
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		companions[d->companion_count++] = word;
}

static void judge(struct import_job *j, struct buf *out)
{
	const struct doubt *list;
	size_t count;

	unit_ok(import_doubts_begin(j));
	for (size_t i = 1; i < j->scan.count; i++) {
		struct tree_entry e;

		import_entry(j, i, &e);
		unit_ok(import_doubts_file(j, i, &e));
	}
	unit_ok(import_doubts_gone(j));
	unit_ok(doubts_decide(j->doubts));
	list = doubts_list(j->doubts, &count);
	for (size_t i = 0; i < count; i++)
		if (list[i].stands)
			buf_printf(out, "%s%s%s", out->len ? " " : "", list[i].path,
				   list[i].counts ? "*" : "");
}

START_TEST(a_directory_and_the_epoch_before)
{
	static const struct volume_options options;
	char path[64], text[64], *companions[8];
	cleanup_tree struct tree *before = NULL, *after = NULL;
	cleanup_buf struct buf found = {0};
	struct record_doubt doubt;
	struct import imp = {0};
	struct import_how how = {0};
	struct import_job j = {.imp = &imp, .how = &how};

	unit_ok(rules_new(&options, &imp.rules));
	make_tree(cases[_i].before, &before);
	make_tree(cases[_i].after, &after);
	snprintf(path, sizeof(path), "%s", cases[_i].killed);
	snprintf(text, sizeof(text), "%s", cases[_i].companions);
	set_doubt(&doubt, path, text, companions);
	j.parent.number = 1;
	j.parent_tree = before;
	j.parent.doubts = &doubt;
	j.parent.doubt_count = *path ? 1 : 0;
	j.record.number = 2;
	make_scan(after, &j.scan);
	judge(&j, &found);
	ck_assert_msg(!strcmp(buf_str(&found), cases[_i].doubts), "%s: '%s'", cases[_i].name,
		      buf_str(&found));
	scan_free(&j.scan);
	doubts_free(j.doubts);
	import_moved_free(&j);
	free(j.torn);
	rules_free(imp.rules);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("import_doubts");
	TCase *c = unit_case(s, "doubts");

	tcase_add_loop_test(c, a_directory_and_the_epoch_before, 0,
			    (int)(sizeof(cases) / sizeof(*cases)));
	return unit_run(s);
}
