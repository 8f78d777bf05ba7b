/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests of sealing and epochs need: a volume without a mount, files by path. */
#ifndef EPOCHFS_TESTS_EPOCHS_UNIT_H
#define EPOCHFS_TESTS_EPOCHS_UNIT_H

#include <sys/stat.h>
#include "lib/format/xattrs.h"
#include "lib/live/body.h"
#include "lib/cache/content.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"
#include "lib/cache/trees.h"
#include "tests/unit/volume_unit.h"

#define EU_LONG (3600 * NS_PER_S)

static struct vu u;
static struct volume_options eu_options;
/* Most of these tests are of the sealer's own rules (sealer.h). */
static bool eu_by_saves;

/* As eu_options say, but for remote and cache. */
static void eu_mount(void)
{
	char *message = NULL;
	int error;

	eu_options.remote = u.remote;
	eu_options.cache_dir = u.cache;
	error = volume_open(&eu_options, &u.vol, &message);
	ck_assert_msg(!error, "volume_open: %d: %s", error, message ? message : "");
}

/* A place for a volume without a remote, where nothing seals by itself; not opened yet. */
static void eu_prepare(void)
{
	u.cache = unit_dir();
	u.remote = strdup("none");
	volume_options_init(&eu_options);
	eu_options.settle_ns = EU_LONG;
	eu_options.patience_ns = 2 * EU_LONG; /* what is open holds longer than quiet */
	eu_options.min_free_percent = 0;
	eu_options.by_saves = eu_by_saves;
	if (unit_is_hurried())
		eu_options.lease_ns = LEASE_MIN_NS;
	eu_options.node = "testnode";
	eu_options.run_id = "run7";
}

__attribute__((unused)) static void eu_start(void)
{
	eu_prepare();
	eu_mount();
}

/* With a remote: a directory. */
__attribute__((unused)) static void eu_start_remote(void)
{
	eu_start();
	volume_close(u.vol);
	free(u.remote);
	u.remote = unit_dir();
	eu_mount();
}

__attribute__((unused)) static void eu_stop(void)
{
	volume_close(u.vol);
	free(u.cache);
	free(u.remote);
}

__attribute__((unused)) static TCase *eu_case(Suite *s, const char *name)
{
	TCase *t = unit_case(s, name);

	tcase_add_checked_fixture(t, eu_start, eu_stop);
	return t;
}

__attribute__((unused)) static TCase *eu_remote_case(Suite *s, const char *name)
{
	TCase *t = unit_case(s, name);

	tcase_add_checked_fixture(t, eu_start_remote, eu_stop);
	return t;
}

__attribute__((unused)) static void eu_remount(void)
{
	volume_close(u.vol);
	eu_mount();
}

/* The directory of a path; ret_name points into the path. */
static uint64_t eu_parent(const char *path, const char **ret_name)
{
	uint64_t dir = ROOT_INO;
	const char *slash;

	while ((slash = strchr(path, '/'))) {
		char name[256];
		struct live_attr attr;

		ck_assert_int_lt(slash - path, (int)sizeof(name));
		memcpy(name, path, (size_t)(slash - path));
		name[slash - path] = '\0';
		unit_ok(live_lookup(u.vol, dir, name, 1, &attr));
		dir = attr.ino;
		path = slash + 1;
	}
	*ret_name = path;
	return dir;
}

__attribute__((unused)) static uint64_t eu_ino(const char *path)
{
	const char *name;
	uint64_t dir = eu_parent(path, &name);
	struct live_attr attr;

	unit_ok(live_lookup(u.vol, dir, name, 1, &attr));
	return attr.ino;
}

__attribute__((unused)) static bool eu_there(const char *path)
{
	const char *name;
	uint64_t dir = eu_parent(path, &name);
	struct live_attr attr;

	return live_lookup(u.vol, dir, name, 1, &attr) == 0;
}

__attribute__((unused)) static uint64_t eu_mkdir(const char *path)
{
	const char *name;
	uint64_t dir = eu_parent(path, &name);
	struct live_caller who = vu_caller(getpid());
	struct live_attr attr;

	unit_ok(live_mkdir(u.vol, dir, name, 0755, &who, &attr));
	return attr.ino;
}

__attribute__((unused)) static void eu_symlink(const char *path, const char *target)
{
	const char *name;
	uint64_t dir = eu_parent(path, &name);
	struct live_caller who = vu_caller(getpid());
	struct live_attr attr;

	unit_ok(live_symlink(u.vol, dir, name, target, &who, &attr));
}

__attribute__((unused)) static void eu_link(const char *from, const char *to)
{
	uint64_t ino = eu_ino(from);
	const char *name;
	uint64_t dir = eu_parent(to, &name);
	struct live_attr attr;

	unit_ok(live_link(u.vol, ino, dir, name, NULL, &attr));
}

__attribute__((unused)) static void eu_rename(const char *from, const char *to)
{
	const char *old_name, *name;
	uint64_t old_dir = eu_parent(from, &old_name), dir = eu_parent(to, &name);

	unit_ok(live_rename(u.vol, old_dir, old_name, dir, name, 0, NULL));
}

__attribute__((unused)) static void eu_unlink(const char *path)
{
	const char *name;
	uint64_t dir = eu_parent(path, &name);

	unit_ok(live_unlink(u.vol, dir, name));
}

__attribute__((unused)) static struct handle *eu_open_as(const char *path, int flags, pid_t pid)
{
	const char *name;
	uint64_t dir = eu_parent(path, &name);
	struct live_caller who = vu_caller(pid);
	struct handle *h = NULL;
	struct live_attr attr;
	int error = -ESTALE;

	for (int i = 0; i < 2 && error == -ESTALE; i++) {
		error = live_lookup(u.vol, dir, name, pid, &attr);
		if (error == -ENOENT && (flags & O_CREAT))
			error = handle_create(u.vol, dir, name, 0644, flags, &who, &attr, &h);
		else if (!error)
			error = handle_open(u.vol, attr.ino, attr.body, flags & ~O_CREAT, &who,
					    NULL, NULL, &h);
	}
	unit_ok(error);
	return h;
}

__attribute__((unused)) static struct handle *eu_open(const char *path, int flags)
{
	return eu_open_as(path, flags, getpid());
}

__attribute__((unused)) static void eu_save_as(const char *path, const void *data, size_t len,
					       pid_t pid)
{
	struct handle *h = eu_open_as(path, O_WRONLY | O_CREAT | O_TRUNC, pid);

	ck_assert_int_eq(handle_write(h, data, len, 0, NULL, NULL), (ssize_t)len);
	unit_ok(handle_flush(h, pid, NULL, NULL));
	handle_release(h, false);
}

__attribute__((unused)) static void eu_save_bytes(const char *path, const void *data, size_t len)
{
	eu_save_as(path, data, len, getpid());
}

__attribute__((unused)) static void eu_save(const char *path, const char *text)
{
	eu_save_bytes(path, text, strlen(text));
}

__attribute__((unused)) static void eu_live_holds(const char *path, const char *text)
{
	struct handle *h = eu_open(path, O_RDONLY);

	vu_handle_holds(h, text);
	handle_release(h, false);
}

/* ---- epochs ---- */

__attribute__((unused)) static uint64_t eu_seal_by(const char *trigger)
{
	struct epochs_seal how = {.trigger = trigger};
	uint64_t number = 99;

	unit_ok(epochs_seal(u.vol, &how, &number));
	return number;
}

__attribute__((unused)) static uint64_t eu_seal(void)
{
	return eu_seal_by("commit");
}

/* Waits until the epoch is there; sealed by the sealer's own thread. */
__attribute__((unused)) static void eu_wait_for_epoch(uint64_t number)
{
	int64_t sealed_ns;

	unit_until(epochs_sealed_ns(u.vol, number, &sealed_ns) == 0);
}

__attribute__((unused)) static struct epoch_info eu_info(uint64_t number)
{
	struct epoch_info info = {0};

	unit_ok(epochs_get(u.vol, number, &info));
	return info;
}

__attribute__((unused)) static uint64_t eu_count(void)
{
	uint64_t count;

	mutex_lock(&u.vol->lock);
	count = epochs_index_locked(u.vol)->count;
	mutex_unlock(&u.vol->lock);
	return count;
}

/* The entry of a path; its pointers live as long as the tree. */
__attribute__((unused)) static bool eu_find(const struct tree *tree, const char *path,
					    struct tree_entry *ret_entry)
{
	uint32_t id;

	if (tree_resolve(tree, path, &id) != 0)
		return false;
	tree_get(tree, id, ret_entry);
	return true;
}

__attribute__((unused)) static bool eu_has(uint64_t number, const char *path)
{
	cleanup_tree struct tree *tree = NULL;
	struct tree_entry e;

	unit_ok(epochs_tree(u.vol, number, &tree));
	return eu_find(tree, path, &e);
}

__attribute__((unused)) static void eu_epoch_holds(uint64_t number, const char *path,
						   const char *text)
{
	cleanup_tree struct tree *tree = NULL;
	struct content *c = NULL;
	struct tree_entry e;
	char data[4096];
	ssize_t n;

	unit_ok(epochs_tree(u.vol, number, &tree));
	ck_assert_msg(eu_find(tree, path, &e), "epoch %d has no %s", (int)number, path);
	unit_ok(content_get_entry(u.vol, &e, path, &c));
	n = content_read(c, data, sizeof(data) - 1, 0, NULL, NULL);
	ck_assert_int_ge(n, 0);
	data[n] = '\0';
	ck_assert_str_eq(data, text);
	ck_assert_uint_eq(e.size, strlen(text));
	content_put(c);
}

/* What the sealer would do now. */
__attribute__((unused)) static struct settle_answer eu_look(void)
{
	struct settle_answer answer;

	mutex_lock(&u.vol->lock);
	unit_ok(sealer_look_locked(u.vol, &answer, NULL));
	mutex_unlock(&u.vol->lock);
	return answer;
}

#endif
