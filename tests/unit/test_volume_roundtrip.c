/* SPDX-License-Identifier: Apache-2.0 */
/* From the live tree of a real volume, through a directory as the remote, to a restored directory. */
#include "lib/admin/catalog.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "lib/format/tree.h"
#include "lib/epochs/epochs.h"
#include "lib/live/handle.h"
#include "lib/live/live.h"
#include "tests/unit/volume_unit.h"

#define MIB ((size_t)1 << 20)

static struct vu u;
static char *target;
static int to;

static void setup(void)
{
	u = (struct vu){.cache = unit_dir(), .remote = unit_dir()};
	vu_mount(&u);
	target = unit_dir();
	to = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(to, 0);
}

static void teardown(void)
{
	close(to);
	free(target);
	free(u.cache);
	free(u.remote);
}

/* Seals, uploads, closes: from here on there is only the remote. */
static void leave(void)
{
	unit_ok(volume_finish(u.vol, true, NULL, NULL));
	volume_close(u.vol);
	unit_ok(io_remove_tree(AT_FDCWD, u.cache));
}

static void restore(const char *epoch, const char *path)
{
	struct catalog_export how = {.path = path, .to_fd = to, .threads = 2, .privileged = true};
	struct catalog *c = NULL;
	char *message = NULL;
	uint64_t number = 0, failed = 0;

	unit_ok(catalog_open(u.remote, NULL, &c, &message));
	unit_ok(catalog_resolve(c, epoch, &number));
	unit_ok(catalog_export(c, number, &how, &failed));
	catalog_close(c);
}

static struct live_attr attr_of(uint64_t parent, const char *name)
{
	struct live_attr a = {0};

	unit_ok(live_lookup(u.vol, parent, name, 1, &a));
	return a;
}

static struct stat stat_of(const char *path)
{
	struct stat st;

	ck_assert_msg(fstatat(to, path, &st, AT_SYMLINK_NOFOLLOW) == 0, "%s: %s", path,
		      strerror(errno));
	return st;
}

/* What was restored has the attributes that the live tree had. */
static void same(const struct live_attr *a, const char *path)
{
	struct stat st = stat_of(path);

	ck_assert_msg(st.st_mode == a->mode, "%s: mode %o, not %o", path, st.st_mode, a->mode);
	ck_assert_int_eq(clock_ns(st.st_mtim), a->mtime_ns);
	ck_assert_uint_eq(st.st_uid, a->uid);
	ck_assert_uint_eq(st.st_gid, a->gid);
	if (S_ISREG(a->mode))
		ck_assert_uint_eq((uint64_t)st.st_size, a->size);
}

static void holds(const char *path, const void *data, size_t len)
{
	cleanup_buf struct buf found = {0};

	unit_ok(io_read_file(to, path, (size_t)1 << 30, &found));
	unit_same_bytes(found.data, found.len, data, len);
}

static uint8_t *noise(size_t len)
{
	uint8_t *data = malloc(len);
	uint64_t x = 88172645463325252u;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		data[i] = (uint8_t)x;
	}
	return data;
}

static void save_in(uint64_t parent, const char *name, const void *data, size_t len,
		    uint64_t offset)
{
	struct live_caller who = vu_caller(getpid());
	struct live_attr a;
	struct handle *h;

	unit_ok(handle_create(u.vol, parent, name, 0640, O_WRONLY | O_CREAT, &who, &a, &h));
	ck_assert_int_eq(handle_write(h, data, len, offset, NULL, NULL), (ssize_t)len);
	vu_close(h);
}

START_TEST(every_kind_of_entry_comes_back)
{
	struct live_caller who = vu_caller(getpid());
	struct live_attr dir, file, small, link, fifo, device, empty;
	uint8_t *data = noise(3 * MIB);
	char text[64] = "", value[16];

	unit_ok(live_mkdir(u.vol, ROOT_INO, "dir", 0750, &who, &dir));
	save_in(dir.ino, "big", data, 3 * MIB, 0);
	save_in(dir.ino, "small", "text", 4, 0);
	unit_ok(live_link(u.vol, attr_of(dir.ino, "small").ino, ROOT_INO, "also small", NULL,
			  &small));
	unit_ok(live_symlink(u.vol, ROOT_INO, "link", "dir/\xff", &who, &link));
	unit_ok(live_mknod(u.vol, dir.ino, "fifo", S_IFIFO | 0600, 0, &who, &fifo));
	if (geteuid() == 0) /* nobody else restores it */
		unit_ok(live_mknod(u.vol, ROOT_INO, "device", S_IFCHR | 0600, makedev(1, 3), &who,
				   &device));
	unit_ok(live_mknod(u.vol, ROOT_INO, "empty", S_IFREG | 0600, 0, &who, &empty));
	unit_ok(live_setxattr(u.vol, attr_of(dir.ino, "big").ino, "user.note", "kept", 4, 0));
	dir = attr_of(ROOT_INO, "dir");
	file = attr_of(dir.ino, "big");
	small = attr_of(dir.ino, "small");
	leave();
	restore("latest", "");
	same(&dir, "dir");
	same(&file, "dir/big");
	same(&small, "dir/small");
	same(&link, "link");
	same(&fifo, "dir/fifo");
	if (geteuid() == 0)
		same(&device, "device");
	same(&empty, "empty");
	holds("dir/big", data, 3 * MIB);
	holds("dir/small", "text", 4);
	ck_assert_uint_eq(stat_of("also small").st_ino, stat_of("dir/small").st_ino);
	ck_assert_int_eq(readlinkat(to, "link", text, sizeof(text) - 1), 5);
	ck_assert_str_eq(text, "dir/\xff");
	ck_assert_int_eq(fchdir(to), 0);
	if (getxattr("dir/big", "user.note", value, sizeof(value)) != 4)
		ck_assert_int_eq(errno, ENOTSUP);
	free(data);
}
END_TEST

START_TEST(holes_stay_holes)
{
	struct stat st;

	save_in(ROOT_INO, "sparse", "end", 3, 256 * MIB);
	leave();
	restore("latest", "");
	st = stat_of("sparse");
	ck_assert_uint_eq((uint64_t)st.st_size, 256 * MIB + 3);
	ck_assert_int_lt(st.st_blocks * 512, 2 * MIB);
}
END_TEST

START_TEST(each_epoch_has_its_own_bytes)
{
	uint8_t *old = noise(MIB), *new = noise(2 * MIB);

	memset(new, 7, MIB);
	save_in(ROOT_INO, "model", old, MIB, 0);
	vu_seal(&u);
	unit_ok(live_unlink(u.vol, ROOT_INO, "model"));
	save_in(ROOT_INO, "model", new, 2 * MIB, 0);
	leave();
	restore("1", "model");
	holds("model", old, MIB);
	ck_assert_int_eq(unlinkat(to, "model", 0), 0);
	restore("2", "model");
	holds("model", new, 2 * MIB);
	free(old);
	free(new);
}
END_TEST

#define SMALL	    4096
#define SMALL_FILES 4200

static void small_text(unsigned i, char ret_text[SMALL + 1])
{
	snprintf(ret_text, SMALL + 1, "%0*u", SMALL, i);
}

static void save_small(unsigned from, unsigned count)
{
	char text[SMALL + 1], name[16];

	for (unsigned i = from; i < from + count; i++) {
		small_text(i, text);
		snprintf(name, sizeof(name), "s%u", i);
		save_in(ROOT_INO, name, text, SMALL, 0);
	}
}

/* Bytes of files that the epoch's tree holds itself. */
static uint64_t inline_bytes(uint64_t number)
{
	cleanup_tree struct tree *tree = NULL;
	struct catalog *c = NULL;
	char *message = NULL;
	uint64_t bytes = 0;

	unit_ok(catalog_open(u.remote, NULL, &c, &message));
	unit_ok(catalog_tree(c, number, &tree));
	for (uint32_t id = 0; id < tree_count(tree); id++) {
		struct tree_entry e;

		tree_get(tree, id, &e);
		if (e.type == TREE_REGULAR && e.content == TREE_INLINE)
			bytes += e.size;
	}
	catalog_close(c);
	return bytes;
}

/* A tree is in memory as a whole. */
START_TEST(many_small_files_do_not_make_a_tree_large)
{
	char text[SMALL + 1], name[16];

	save_small(0, 10);
	vu_seal(&u);
	save_small(10, SMALL_FILES - 10);
	vu_seal(&u);
	save_small(SMALL_FILES, 10);
	leave();
	ck_assert_uint_eq(inline_bytes(1), 10 * SMALL);
	ck_assert_uint_eq(inline_bytes(2), 16 * MIB);
	ck_assert_uint_eq(inline_bytes(3), 16 * MIB);
	restore("latest", "");
	for (unsigned i = 0; i < SMALL_FILES + 10; i++) {
		small_text(i, text);
		snprintf(name, sizeof(name), "s%u", i);
		holds(name, text, SMALL);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_roundtrip");
	TCase *t = unit_case(s, "round trip");

	vu_by_saves = false;
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, every_kind_of_entry_comes_back);
	tcase_add_test(t, holes_stay_holes);
	tcase_add_test(t, each_epoch_has_its_own_bytes);
	tcase_add_test(t, many_small_files_do_not_make_a_tree_large);
	return unit_run(s);
}
