/* SPDX-License-Identifier: Apache-2.0 */
/* Is an LMDB file whole? Its two meta pages, its roots, and the pages up to the last one. */
#include "lib/format/databases.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

#define TORN 1

#define MAGIC	      0xbeefc0deu
#define VERSION	      1u
#define NO_PAGE	      UINT64_MAX
#define PAGE_HEADER   16u
#define META_LEN      (PAGE_HEADER + 136u)
#define PAGE_SIZE_MIN 512u
#define PAGE_SIZE_MAX 65536u
#define PAGE_BRANCH   1u
#define PAGE_LEAF     2u
#define PAGE_META     8u
#define NODE_HEADER   8u
#define NODE_BIG      1u /* the value lies on pages of its own */
#define DEPTH_MAX     32u
#define VISITS_MAX    (1u << 16)

struct meta {
	uint32_t magic, version, page_size;
	uint64_t free_root, main_root, last_page, transaction;
};

struct env {
	const struct tail_source *in;
	uint64_t size;
	struct meta meta; /* the one that counts */
	uint64_t present; /* whole pages in the file */
};

static int read_full(const struct tail_source *in, void *data, size_t len, uint64_t offset)
{
	ssize_t got = in->read(in->arg, data, len, offset);

	if (got < 0)
		return (int)got;
	return (size_t)got == len ? 0 : TORN;
}

/* 0, TORN where the page is no meta page, or -errno. */
static int read_meta(const struct tail_source *in, uint64_t offset, struct meta *ret_meta)
{
	uint8_t data[META_LEN];
	struct meta m;
	struct reader r;
	unsigned flags;
	int error = read_full(in, data, sizeof(data), offset);

	if (error)
		return error;
	r = reader_of(data, sizeof(data));
	reader_skip(&r, 10);
	flags = reader_u16(&r);
	reader_skip(&r, 4);
	m.magic = reader_u32(&r);
	m.version = reader_u32(&r);
	reader_skip(&r, 16);
	m.page_size = reader_u32(&r);
	reader_skip(&r, 36);
	m.free_root = reader_u64(&r);
	reader_skip(&r, 40);
	m.main_root = reader_u64(&r);
	m.last_page = reader_u64(&r);
	m.transaction = reader_u64(&r);
	*ret_meta = m;
	return m.magic == MAGIC && (flags & PAGE_META) ? 0 : TORN;
}

static bool page_size_is_sound(uint32_t size)
{
	return size >= PAGE_SIZE_MIN && size <= PAGE_SIZE_MAX && (size & (size - 1)) == 0;
}

/* ---- pages that are missing at the end: are they all free? ---- */

struct walk {
	const struct env *env;
	uint64_t missing; /* how many, from page env->present on */
	uint64_t found;	  /* of them, in the list of free pages */
	uint64_t listed;  /* pages in that list */
	uint8_t *seen;	  /* a bit each */
	unsigned visits;
};

static void note_free(struct walk *w, uint64_t page)
{
	uint64_t i = page - w->env->present;

	if (page < w->env->present || i >= w->missing || (w->seen[i / 8] & (1u << (i % 8))))
		return;
	w->seen[i / 8] |= (uint8_t)(1u << (i % 8));
	w->found++;
}

/* A list of pages: their count, and the numbers. `at` is where it lies in the file. */
static int read_list(struct walk *w, uint64_t at, uint64_t len)
{
	uint8_t data[4096];
	struct reader r;
	uint64_t count;
	int error = len < 8 ? TORN : read_full(w->env->in, data, 8, at);

	if (error)
		return error;
	r = reader_of(data, 8);
	count = reader_u64(&r);
	if (count > len / 8 - 1 || count > w->env->meta.last_page - w->listed)
		return TORN;
	w->listed += count;
	for (uint64_t done = 0; done < count;) {
		size_t part =
			count - done < sizeof(data) / 8 ? (size_t)(count - done) : sizeof(data) / 8;

		error = read_full(w->env->in, data, part * 8, at + 8 + done * 8);
		if (error)
			return error;
		r = reader_of(data, part * 8);
		for (size_t i = 0; i < part; i++)
			note_free(w, reader_u64(&r));
		done += part;
	}
	return 0;
}

static int walk_page(struct walk *w, uint64_t page, unsigned depth);

/* One node of a page of the tree of free pages. */
static int walk_node(struct walk *w, const uint8_t *page, uint64_t number, unsigned at, bool branch,
		     unsigned depth)
{
	uint32_t page_size = w->env->meta.page_size;
	struct reader r;
	uint64_t low, flags, key, len, value;

	if (at < PAGE_HEADER || at > page_size - NODE_HEADER)
		return TORN;
	r = reader_of(page + at, page_size - at);
	low = reader_u32(&r);
	flags = reader_u16(&r);
	key = reader_u16(&r);
	if (branch)
		return walk_page(w, low | flags << 32, depth + 1);
	len = low;
	value = at + NODE_HEADER + key;
	if (flags & NODE_BIG) {
		reader_skip(&r, key);
		number = reader_u64(&r);
		/* Each of its pages is in the file. */
		if (reader_error(&r) || number >= w->env->present ||
		    (len + PAGE_HEADER + page_size - 1) / page_size > w->env->present - number)
			return TORN;
		value = PAGE_HEADER;
	} else if (value + len > page_size) {
		return TORN;
	}
	return read_list(w, number * page_size + value, len);
}

static int walk_page(struct walk *w, uint64_t page, unsigned depth)
{
	uint32_t page_size = w->env->meta.page_size;
	cleanup_free uint8_t *data = NULL;
	struct reader r;
	unsigned flags, lower;
	int error;

	if (page >= w->env->present || depth >= DEPTH_MAX || ++w->visits > VISITS_MAX)
		return TORN;
	data = malloc(page_size);
	if (!data)
		return -ENOMEM;
	error = read_full(w->env->in, data, page_size, page * page_size);
	if (error)
		return error;
	r = reader_of(data, page_size);
	if (reader_u64(&r) != page)
		return TORN;
	reader_skip(&r, 2);
	flags = reader_u16(&r);
	lower = reader_u16(&r);
	if (!(flags & (PAGE_BRANCH | PAGE_LEAF)) || lower < PAGE_HEADER || lower > page_size)
		return TORN;
	r = reader_of(data + PAGE_HEADER, lower - PAGE_HEADER);
	while (!error && reader_left(&r) >= 2)
		error = walk_node(w, data, page, reader_u16(&r), flags & PAGE_BRANCH, depth);
	return error;
}

static int missing_are_free(const struct env *env)
{
	struct walk w = {.env = env, .missing = env->meta.last_page - env->present + 1};
	cleanup_free uint8_t *seen = NULL;
	int error;

	if (w.missing > LMDB_FREE_MAX || env->meta.free_root == NO_PAGE)
		return TORN;
	w.seen = seen = calloc(1, (size_t)(w.missing / 8 + 1));
	if (!seen)
		return -ENOMEM;
	error = walk_page(&w, env->meta.free_root, 0);
	if (error)
		return error;
	return w.found == w.missing ? 0 : TORN;
}

/* ---- the whole ---- */

static int check_root(const struct env *env, uint64_t root)
{
	uint8_t data[PAGE_HEADER];
	struct reader r;
	int error;

	if (root == NO_PAGE)
		return 0;
	if (root > env->meta.last_page || root >= env->present)
		return TORN;
	error = read_full(env->in, data, sizeof(data), root * env->meta.page_size);
	if (error)
		return error;
	r = reader_of(data, sizeof(data));
	if (reader_u64(&r) != root)
		return TORN;
	reader_skip(&r, 2);
	return reader_u16(&r) & (PAGE_BRANCH | PAGE_LEAF) ? 0 : TORN;
}

static int check_pages(const struct env *env, const char **ret_why)
{
	int error = 0;

	*ret_why = "LMDB's last page, as its meta page says, lies behind the end of the file";
	if (env->meta.last_page == NO_PAGE)
		return TORN;
	if (env->meta.last_page >= env->present)
		error = missing_are_free(env);
	if (error)
		return error;
	*ret_why = "a root page of LMDB is not where its meta page says";
	error = check_root(env, env->meta.free_root);
	return error ? error : check_root(env, env->meta.main_root);
}

/* 0 also for what is no LMDB, or one of another version. */
static int check_env(struct env *env, const char **ret_why)
{
	struct meta first, second;
	int error = read_meta(env->in, 0, &first);

	if (error)
		return error == TORN ? 0 : error;
	if (first.version != VERSION)
		return 0;
	*ret_why = "LMDB's meta pages have no page size";
	if (!page_size_is_sound(first.page_size))
		return TORN;
	*ret_why = "LMDB's second meta page is missing or damaged";
	error = read_meta(env->in, first.page_size, &second);
	if (error)
		return error;
	if (second.version != VERSION || second.page_size != first.page_size)
		return TORN;
	env->meta = second.transaction > first.transaction ? second : first;
	env->present = env->size / first.page_size;
	return check_pages(env, ret_why);
}

int lmdb_check(const struct tail_source *in, uint64_t size, const char **ret_why)
{
	struct env env = {.in = in, .size = size};
	const char *why = NULL;
	int result = check_env(&env, &why);

	if (result == TORN)
		*ret_why = why;
	return result;
}
