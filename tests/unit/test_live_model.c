/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree, changed at random: like a directory of the system, and by threads. */
#include "lib/live/live.h"

#include "tests/unit/live_unit.h"

/* ---- a directory of the system as the model ---- */

#define MODEL_OPS 3000

struct model {
	char *root;
	unsigned short seed[3];
	bool counts_subdirectories;
};

static unsigned pick(struct model *m, unsigned below)
{
	return (unsigned)nrand48(m->seed) % below;
}

/* A random path of few names, so that they meet: "" is the root. */
static void pick_path(struct model *m, char path[64])
{
	unsigned depth = pick(m, 4);

	path[0] = '\0';
	for (unsigned i = 0; i <= depth; i++)
		sprintf(path + strlen(path), "%s%c", i ? "/" : "", 'a' + (int)pick(m, 4));
}

/* Walks to the directory of the last component: 0 or -errno. */
static int walk(const char *path, uint64_t *ret_parent, const char **ret_name)
{
	uint64_t at = ROOT_INO;
	const char *slash;

	for (; (slash = strchr(path, '/')); path = slash + 1) {
		char name[8] = "";
		struct live_attr a;
		int error;

		memcpy(name, path, (size_t)(slash - path));
		error = live_lookup(vol, at, name, 0, &a);
		if (error)
			return error;
		if (!S_ISDIR(a.mode))
			return S_ISLNK(a.mode) ? -ENOENT : -ENOTDIR;
		at = a.ino;
	}
	*ret_parent = at;
	*ret_name = path;
	return 0;
}

enum {
	OP_MKDIR,
	OP_MKNOD,
	OP_FIFO,
	OP_SYMLINK,
	OP_LINK,
	OP_UNLINK,
	OP_RMDIR,
	OP_CHMOD,
	OP_RENAME,
	OP_RENAME_AGAIN,
	OP_NOREPLACE,
	OP_EXCHANGE,
	OP_COUNT
};

static int live_two(unsigned op, uint64_t p, const char *a, const char *to)
{
	static const unsigned flags[OP_COUNT] = {
		[OP_NOREPLACE] = RENAME_NOREPLACE, [OP_EXCHANGE] = RENAME_EXCHANGE};
	uint64_t q;
	struct live_attr at;
	const char *b;
	int error;

	if (op == OP_LINK) {
		error = live_lookup(vol, p, a, 0, &at);
		if (!error)
			error = walk(to, &q, &b);
		return error ? error : live_link(vol, at.ino, q, b, NULL, &at);
	}
	error = walk(to, &q, &b);
	return error ? error : live_rename(vol, p, a, q, b, flags[op], NULL);
}

static int live_op(unsigned op, const char *from, const char *to, mode_t mode)
{
	struct live_change c = {.set = LIVE_SET_MODE, .mode = mode};
	struct live_attr at;
	uint64_t p;
	const char *a;
	int error = walk(from, &p, &a);

	if (error)
		return error;
	switch (op) {
	case OP_MKDIR:
		return live_mkdir(vol, p, a, mode, &me, &at);
	case OP_MKNOD:
		return live_mknod(vol, p, a, S_IFREG | mode, 0, &me, &at);
	case OP_FIFO:
		return live_mknod(vol, p, a, S_IFIFO | mode, 0, &me, &at);
	case OP_SYMLINK:
		return live_symlink(vol, p, a, "dangling", &me, &at);
	case OP_UNLINK:
		return live_unlink(vol, p, a);
	case OP_RMDIR:
		return live_rmdir(vol, p, a);
	case OP_CHMOD:
		error = live_lookup(vol, p, a, 0, &at);
		if (!error && S_ISLNK(at.mode))
			return -ENOENT; /* chmod(2) follows it */
		return error ? error : live_setattr(vol, at.ino, at.body, &c, &at);
	}
	return live_two(op, p, a, to);
}

static int model_op(unsigned op, const char *from, const char *to, mode_t mode)
{
	int rc = -1;

	switch (op) {
	case OP_MKDIR:
		rc = mkdir(from, mode);
		break;
	case OP_MKNOD:
		rc = mknod(from, S_IFREG | mode, 0);
		break;
	case OP_FIFO:
		rc = mknod(from, S_IFIFO | mode, 0);
		break;
	case OP_SYMLINK:
		rc = symlink("dangling", from);
		break;
	case OP_LINK:
		rc = linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
		break;
	case OP_UNLINK:
		rc = unlink(from);
		break;
	case OP_RMDIR:
		rc = rmdir(from);
		break;
	case OP_CHMOD:
		rc = chmod(from, mode);
		break;
	case OP_RENAME:
	case OP_RENAME_AGAIN:
		rc = rename(from, to);
		break;
	case OP_NOREPLACE:
		rc = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
		break;
	case OP_EXCHANGE:
		rc = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE);
		break;
	}
	return rc < 0 ? -errno : 0;
}

struct compared {
	struct model *m;
	const char *path;
	unsigned count;
};

static void compare_dir(struct model *m, uint64_t ino, const char *path);

static int compare_entry(void *arg, const char *name, uint64_t cookie, const struct live_attr *a)
{
	struct compared *c = arg;
	char path[PATH_MAX];
	struct stat st;

	(void)cookie;
	c->count++;
	snprintf(path, sizeof(path), "%s/%s", c->path, name);
	ck_assert_msg(lstat(path, &st) == 0, "%s: %s", path, strerror(errno));
	ck_assert_msg(a->mode == st.st_mode, "%s: mode %o, not %o", path, a->mode, st.st_mode);
	if (!S_ISDIR(a->mode) || c->m->counts_subdirectories)
		ck_assert_msg(a->nlink == st.st_nlink, "%s: %u links, not %u", path, a->nlink,
			      (unsigned)st.st_nlink);
	if (!S_ISDIR(a->mode))
		ck_assert_uint_eq(a->size, (uint64_t)st.st_size);
	else
		compare_dir(c->m, a->ino, path);
	return 0;
}

static void compare_dir(struct model *m, uint64_t ino, const char *path)
{
	struct compared c = {.m = m, .path = path};
	unsigned count = 0;
	cleanup_closedir DIR *dir = opendir(path);

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	unit_ok(live_readdir(vol, ino, 0, 0, compare_entry, &c));
	ck_assert_uint_eq(c.count + 2, count);
}

/* The kernel looks at these paths before it asks a file system: nothing of ours. */
static bool kernels_own(unsigned op, const char *from, const char *to)
{
	size_t len = strlen(to);

	return op >= OP_RENAME && strncmp(from, to, len) == 0 && from[len] == '/';
}

START_TEST(random_changes_do_what_a_system_directory_does)
{
	const char *seed = getenv("SEED"); /* another run of changes */
	struct model m = {.root = unit_dir(), .seed = {1, 2, 3}};
	struct stat st;

	if (seed)
		m.seed[0] = (unsigned short)atoi(seed);
	umask(0);
	ck_assert_int_eq(chdir(m.root), 0);
	ck_assert_int_eq(stat(".", &st), 0);
	m.counts_subdirectories = st.st_nlink == 2;
	for (int i = 0; i < MODEL_OPS; i++) {
		unsigned op = pick(&m, OP_COUNT);
		mode_t mode = (mode_t)pick(&m, 01000) | 0700;
		char from[64], to[64];
		int got, want;

		pick_path(&m, from);
		pick_path(&m, to);
		if (kernels_own(op, from, to))
			continue;
		got = live_op(op, from, to, mode);
		want = model_op(op, from, to, mode);
		ck_assert_msg(got == want, "change %d: %u of %s (%s): %s, not %s", i, op, from, to,
			      strerror(-got), strerror(-want));
		if (i % 100 == 0)
			compare_dir(&m, ROOT_INO, m.root);
		if (i % 1000 == 999)
			reopen(false);
	}
	compare_dir(&m, ROOT_INO, m.root);
	ck_assert_int_eq(chdir("/"), 0);
	free(m.root);
}
END_TEST

/* ---- threads ---- */

#define THREADS		   4
#define CHANGES_PER_THREAD 300

static int count_entry(void *arg, const char *name, uint64_t cookie, const struct live_attr *a)
{
	(void)name;
	(void)cookie;
	(void)a;
	++*(int *)arg;
	return 0;
}

static int count_name(void *arg, const struct state_name *n, const char *name,
		      const struct state_file *f)
{
	(void)n;
	(void)name;
	(void)f;
	++*(unsigned *)arg;
	return 0;
}

struct links {
	unsigned dirs;
};

static void check_links(uint64_t ino);

static int check_entry(void *arg, const char *name, uint64_t cookie, const struct live_attr *a)
{
	struct links *l = arg;
	struct live_attr found;

	(void)name;
	(void)cookie;
	unit_ok(live_getattr(vol, a->ino, 0, &found));
	if (S_ISDIR(a->mode)) {
		l->dirs++;
		check_links(a->ino);
	} else {
		unsigned names = 0;

		unit_ok(state_names_of(vol->state, a->ino, count_name, &names));
		ck_assert_uint_eq(found.nlink, names);
	}
	return 0;
}

struct worker {
	pthread_t thread;
	struct model m;
	int failed;
};

static int change_at_random(struct model *m)
{
	unsigned op = pick(m, OP_COUNT + 2);
	struct live_caller who = {.pid = getpid()};
	char from[64], to[64];
	struct handle *h;
	struct live_attr a;
	uint64_t p;
	const char *name;
	int error;

	pick_path(m, from);
	pick_path(m, to);
	if (op < OP_COUNT)
		return live_op(op, from, to, 0700);
	error = walk(from, &p, &name);
	if (!error && op == OP_COUNT)
		return live_readdir(vol, p, 0, getpid(), count_entry, &(int){0});
	if (!error)
		error = handle_create(vol, p, name, 0600, O_WRONLY, &who, &a, &h);
	if (error)
		return error;
	if (handle_write(h, "text", 4, 0, NULL, NULL) != 4)
		return -EIO;
	error = handle_flush(h, getpid(), NULL, NULL);
	handle_release(h, false);
	return error;
}

static void *work(void *arg)
{
	static const int usual[] = {0, ENOENT, EEXIST, ENOTDIR, EISDIR, ENOTEMPTY, EINVAL, EPERM};
	struct worker *w = arg;

	for (int i = 0; i < CHANGES_PER_THREAD && !w->failed; i++) {
		int error = -change_at_random(&w->m);
		bool known = false;

		for (size_t k = 0; k < sizeof(usual) / sizeof(usual[0]); k++)
			known |= error == usual[k];
		if (!known)
			w->failed = error;
	}
	return NULL;
}

/* What the names say is what the link counts say. */
static void check_links(uint64_t ino)
{
	struct links l = {.dirs = 2};

	unit_ok(live_readdir(vol, ino, 0, 0, check_entry, &l));
	ck_assert_uint_eq(attr(ino).nlink, l.dirs);
}

START_TEST(threads_change_names_at_the_same_time)
{
	struct worker workers[THREADS] = {0};

	for (int i = 0; i < THREADS; i++) {
		workers[i].m.seed[0] = (unsigned short)(i + 1);
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
		ck_assert_msg(!workers[i].failed, "%s", strerror(workers[i].failed));
	}
	check_links(ROOT_INO);
	reopen(false);
	check_links(ROOT_INO);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("live_model");
	TCase *t;

	t = fixture(suite, "a directory of the system as the model");
	tcase_add_test(t, random_changes_do_what_a_system_directory_does);
	t = fixture(suite, "threads");
	tcase_add_test(t, threads_change_names_at_the_same_time);
	return unit_run(suite);
}
