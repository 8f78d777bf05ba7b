/* SPDX-License-Identifier: Apache-2.0 */
/* Listing an ordinary directory: its entries, their attributes and link targets. */
#include "lib/import/import_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/format/xattrs.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/log.h"

#define OPEN_DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

void scan_free(struct scan *s)
{
	for (size_t i = 0; i < s->count; i++)
		free(s->nodes[i].data);
	free(s->nodes);
	free(s->trouble);
	buf_free(&s->names);
	buf_free(&s->extra);
	*s = (struct scan){0};
}

const char *scan_name(const struct scan *s, const struct scan_node *n)
{
	return (const char *)s->names.data + n->name;
}

int scan_path(const struct scan *s, size_t number, struct buf *out)
{
	const struct scan_node *n = &s->nodes[number];

	if (n->depth > 1) {
		if (scan_path(s, n->parent, out))
			return -ENOMEM;
		buf_put_u8(out, '/');
	}
	buf_put(out, scan_name(s, n), strlen(scan_name(s, n)));
	return buf_error(out);
}

void scan_node_stat(struct scan_node *n, const struct stat *st)
{
	n->mode = st->st_mode;
	n->uid = st->st_uid;
	n->gid = st->st_gid;
	n->nlink = (uint32_t)st->st_nlink;
	n->rdev_major = major(st->st_rdev);
	n->rdev_minor = minor(st->st_rdev);
	n->dev = st->st_dev;
	n->ino = st->st_ino;
	n->size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
	n->mtime_ns = clock_ns(st->st_mtim);
	n->ctime_ns = clock_ns(st->st_ctim);
}

/* ---- one directory ---- */

struct listing {
	char **names;
	size_t count, cap;
};

static void listing_free(struct listing *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->names[i]);
	free(l->names);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

bool scan_is_ours(const char *name)
{
	return !strcmp(name, ".epochs") || !strncmp(name, ".epochfs-export-", 16);
}

static int list(int fd, struct listing *l)
{
	cleanup_closedir DIR *d = NULL;
	const char *name;
	int got = io_opendir(fd, &d);

	if (got)
		return got;
	while ((got = io_readdir(d, &name)) > 0) {
		if (scan_is_ours(name))
			continue;
		if (array_reserve((void **)&l->names, &l->cap, l->count, sizeof(*l->names)))
			return -ENOMEM;
		l->names[l->count] = strdup(name);
		if (!l->names[l->count])
			return -ENOMEM;
		l->count++;
	}
	if (got)
		return got;
	if (l->count)
		qsort(l->names, l->count, sizeof(*l->names), compare_names);
	return 0;
}

/* ---- all ---- */

struct walk {
	struct scan *scan;
	const struct rules *rules;
};

static int add_node(struct scan *s, const char *name, uint32_t depth, uint32_t parent,
		    const struct stat *st)
{
	struct scan_node *n;

	if (s->count >= TREE_ENTRIES_MAX || depth > TREE_DEPTH_MAX)
		return -EFBIG;
	if (array_reserve((void **)&s->nodes, &s->cap, s->count, sizeof(*s->nodes)))
		return -ENOMEM;
	n = &s->nodes[s->count];
	*n = (struct scan_node){
		.depth = depth, .parent = parent, .name = s->names.len, .former = TREE_NONE};
	scan_node_stat(n, st);
	n->content = n->size ? SCAN_UNREAD : SCAN_EMPTY;
	buf_put(&s->names, name, strlen(name) + 1);
	if (buf_error(&s->names))
		return -ENOMEM;
	s->count++;
	return 0;
}

static int trouble(struct scan *s, size_t parent, const char *name, int error)
{
	cleanup_buf struct buf path = {0};

	if (s->trouble || !s->count)
		return error;
	if (scan_path(s, parent, &path) == 0) {
		if (path.len)
			buf_put_u8(&path, '/');
		buf_printf(&path, "%s", name);
		s->trouble = strdup(buf_str(&path));
	}
	return error;
}

static bool is_log(const struct walk *w, const struct scan_node *n)
{
	cleanup_buf struct buf path = {0};
	const char *name = scan_name(w->scan, n);

	if (!S_ISREG(n->mode))
		return false;
	if (!rules_want_path(w->rules))
		return rules_log(w->rules, name, NULL);
	return scan_path(w->scan, (size_t)(n - w->scan->nodes), &path) == 0 &&
	       rules_log(w->rules, name, buf_str(&path));
}

static int scan_below(struct walk *w, int fd, uint32_t number);

static int scan_subdirectory(struct walk *w, int parent_fd, uint32_t number, const char *name)
{
	cleanup_close int fd = openat(parent_fd, name, OPEN_DIRECTORY);

	if (fd < 0)
		return -errno;
	return scan_below(w, fd, number);
}

/* What has gone meanwhile, or become something else, makes the scan one of things in motion. */
static bool has_moved(int error)
{
	return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -ESTALE;
}

static int scan_one(struct walk *w, int fd, uint32_t parent, const char *name)
{
	struct scan *s = w->scan;
	size_t number = s->count;
	struct stat st;
	int error;

	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	error = add_node(s, name, s->nodes[parent].depth + 1, parent, &st);
	if (!error)
		error = import_attr_read(fd, name, &st, s, number);
	if (error)
		return error;
	s->nodes[number].log = is_log(w, &s->nodes[number]);
	return S_ISDIR(st.st_mode) ? scan_subdirectory(w, fd, (uint32_t)number, name) : 0;
}

static int scan_below(struct walk *w, int fd, uint32_t number)
{
	CLEANUP(listing_free) struct listing l = {0};
	int error = list(fd, &l);

	for (size_t i = 0; !error && i < l.count; i++) {
		error = scan_one(w, fd, number, l.names[i]);
		if (has_moved(error)) {
			w->scan->moved = true;
			error = 0;
		}
		if (error)
			trouble(w->scan, number, l.names[i], error);
	}
	return error;
}

/* ---- hard links ---- */

static int by_identity(const void *a, const void *b)
{
	const struct scan_node *x = *(struct scan_node *const *)a,
			       *y = *(struct scan_node *const *)b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return x < y ? -1 : x > y;
}

static bool same_identity(const struct scan_node *a, const struct scan_node *b)
{
	return a->dev == b->dev && a->ino == b->ino;
}

/* The regular files, or with `linked` all with several names but directories, by identity; of one, in the order of the scan. */
static int sort_by_identity(const struct scan *s, bool linked, struct scan_node ***ret_sorted,
			    size_t *ret_count)
{
	struct scan_node **sorted = calloc(s->count + 1, sizeof(*sorted));
	size_t count = 0;

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < s->count; i++) {
		struct scan_node *n = &s->nodes[i];

		if (linked ? !S_ISDIR(n->mode) && n->nlink > 1 : S_ISREG(n->mode))
			sorted[count++] = n;
	}
	qsort(sorted, count, sizeof(*sorted), by_identity);
	*ret_sorted = sorted;
	*ret_count = count;
	return 0;
}

static int find_groups(struct scan *s)
{
	cleanup_free struct scan_node **sorted = NULL;
	size_t count;
	int error = sort_by_identity(s, true, &sorted, &count);

	/* The number of the first name is the group's; the root is none, so it is not 0. */
	for (size_t i = 1; !error && i < count; i++) {
		if (!same_identity(sorted[i - 1], sorted[i]))
			continue;
		if (!sorted[i - 1]->group)
			sorted[i - 1]->group = (uint64_t)(sorted[i - 1] - s->nodes);
		sorted[i]->group = sorted[i - 1]->group;
	}
	return error;
}

int scan_of_tree(const struct tree *tree, struct scan *ret_scan)
{
	const struct stat nothing = {0};
	struct scan s = {0};
	int error = 0;

	for (uint32_t id = 0; !error && id < tree_count(tree); id++) {
		struct tree_entry e;

		tree_get(tree, id, &e);
		error = add_node(&s, e.name, e.depth, tree_parent(tree, id), &nothing);
		if (!error)
			s.nodes[id].former = id;
	}
	if (error) {
		scan_free(&s);
		return error;
	}
	*ret_scan = s;
	return 0;
}

int scan_directory(int root_fd, const struct rules *rules, struct scan *ret_scan)
{
	struct scan s = {0};
	struct walk w = {.scan = &s, .rules = rules};
	struct stat st;
	int error = fstat(root_fd, &st) < 0 ? -errno : add_node(&s, "", 0, 0, &st);

	if (!error)
		error = import_attr_read(root_fd, ".", &st, &s, 0);
	if (!error)
		error = scan_below(&w, root_fd, 0);
	if (!error)
		error = find_groups(&s);
	*ret_scan = s;
	return error;
}

/* ---- comparing ---- */

bool scan_same_file(const struct scan_node *a, const struct scan_node *b)
{
	return same_identity(a, b) && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

static bool same_name(const struct scan *a, const struct scan *b, size_t i)
{
	const struct scan_node *x = &a->nodes[i], *y = &b->nodes[i];

	return x->depth == y->depth && same_identity(x, y) &&
	       (x->mode & S_IFMT) == (y->mode & S_IFMT) &&
	       !strcmp(scan_name(a, x), scan_name(b, y));
}

static bool same_attributes(const struct scan *a, const struct scan *b, size_t i)
{
	const struct scan_node *x = &a->nodes[i], *y = &b->nodes[i];

	if (x->mode != y->mode || x->uid != y->uid || x->gid != y->gid || x->group != y->group ||
	    x->xattrs_len != y->xattrs_len)
		return false;
	if (x->xattrs_len &&
	    memcmp(a->extra.data + x->xattrs, b->extra.data + y->xattrs, x->xattrs_len) != 0)
		return false;
	return x->log || scan_same_file(x, y);
}

bool scan_equal(const struct scan *a, const struct scan *b, size_t *ret_first)
{
	size_t i = 0;

	while (i < a->count && i < b->count && same_name(a, b, i) && same_attributes(a, b, i))
		i++;
	*ret_first = i;
	return i == a->count && i == b->count && !a->moved && !b->moved;
}

bool scan_same_names(const struct scan *a, const struct scan *b)
{
	if (a->count != b->count || a->moved || b->moved)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (!same_name(a, b, i))
			return false;
	return true;
}

static void carry_one(struct scan_node *from, struct scan_node *to)
{
	to->content = from->content;
	to->recipe = from->recipe;
	to->torn = from->torn;
	to->why = from->why;
	to->data = steal_ptr(from->data);
	if (from->data == NULL && from->content == SCAN_INLINE)
		from->content = SCAN_UNREAD;
}

int scan_carry(struct scan *from, struct scan *to)
{
	cleanup_free struct scan_node **old = NULL, **new = NULL;
	size_t old_count, new_count, i = 0;
	int error = sort_by_identity(from, false, &old, &old_count);

	if (!error)
		error = sort_by_identity(to, false, &new, &new_count);
	if (error)
		return error;
	for (size_t k = 0; k < new_count; k++) {
		/* Of several names the first has the content, there and here. */
		if (k && same_identity(new[k - 1], new[k]))
			continue;
		while (i < old_count && by_identity(&old[i], &new[k]) < 0 &&
		       !same_identity(old[i], new[k]))
			i++;
		if (i < old_count && same_identity(old[i], new[k]) && !old[i]->changes &&
		    old[i]->content != SCAN_UNREAD && scan_same_file(old[i], new[k]))
			carry_one(old[i], new[k]);
	}
	return 0;
}

/* ---- Extended attributes and the targets of symlinks. ---- */

/* Leads to the name itself, also where it is a symlink, however deep the directory lies. */
#define PROC_PATH_MAX (40 + TREE_NAME_MAX)

static bool is_kept(const char *name)
{
	return !strncmp(name, "user.", 5) || !strncmp(name, "trusted.", 8) ||
	       !strcmp(name, "security.capability");
}

/* Gone, or not for us, since it was listed. */
static bool is_gone(int error)
{
	return error == ENODATA || error == EPERM || error == EACCES || error == ENOTSUP;
}

static int read_value(const char *path, const char *name, struct buf *value)
{
	ssize_t got;

	buf_reset(value);
	if (buf_reserve(value, XATTR_VALUE_BYTES_MAX))
		return -ENOMEM;
	got = lgetxattr(path, name, value->data, XATTR_VALUE_BYTES_MAX);
	if (got < 0)
		return -errno;
	value->len = (size_t)got;
	return 0;
}

static int add_value(const char *path, const char *name, struct buf *attrs)
{
	cleanup_buf struct buf value = {0};
	int error = read_value(path, name, &value);

	if (error == -ENOMEM)
		return error;
	if (error)
		return is_gone(-error) ? 0 : error;
	error = xattrs_set(attrs, name, value.data, value.len);
	if (error == -ENOMEM)
		return error;
	if (error)
		log_warn("%s: its attribute %s does not fit and is left out",
			 strrchr(path, '/') + 1, name);
	return 0;
}

static int read_xattrs(const char *path, struct buf *attrs)
{
	char names[XATTR_LIST_MAX];
	ssize_t len = llistxattr(path, names, sizeof(names));
	int error = 0;

	if (len < 0)
		return is_gone(errno) ? 0 : -errno;
	for (ssize_t at = 0; !error && at < len; at += (ssize_t)strlen(names + at) + 1)
		if (is_kept(names + at))
			error = add_value(path, names + at, attrs);
	return error;
}

static int read_target(int dir_fd, const char *name, struct scan *s, size_t number)
{
	char target[TREE_TARGET_MAX + 1];
	ssize_t len = readlinkat(dir_fd, name, target, sizeof(target));

	if (len < 0)
		return errno == EINVAL ? -ESTALE : -errno;
	if (!len || len > TREE_TARGET_MAX)
		return -ENAMETOOLONG;
	target[len] = '\0';
	s->nodes[number].target = s->extra.len;
	s->nodes[number].size = (uint64_t)len;
	buf_put(&s->extra, target, (size_t)len + 1);
	return buf_error(&s->extra);
}

int import_attr_read(int dir_fd, const char *name, const struct stat *st, struct scan *s,
		     size_t number)
{
	cleanup_buf struct buf attrs = {0};
	char path[PROC_PATH_MAX];
	int error;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir_fd, name);
	error = read_xattrs(path, &attrs);
	if (error)
		return error;
	s->nodes[number].xattrs = s->extra.len;
	s->nodes[number].xattrs_len = attrs.len;
	buf_put(&s->extra, attrs.data, attrs.len);
	if (buf_error(&s->extra))
		return -ENOMEM;
	return S_ISLNK(st->st_mode) ? read_target(dir_fd, name, s, number) : 0;
}
