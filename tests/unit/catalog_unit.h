/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes made without a mount, epoch by epoch, for tests of what reads them. */
#ifndef EPOCHFS_TESTS_CATALOG_UNIT_H
#define EPOCHFS_TESTS_CATALOG_UNIT_H

#include "lib/admin/catalog_internal.h"
#include "lib/format/record.h"
#include "lib/format/tree.h"
#include "lib/format/volume_info.h"
#include "lib/util/clock.h"
#include "tests/unit/store_fixture.h"

/* A volume in memory:t, written through a store; each epoch is one batch. */
struct made {
	struct fixture f;
	struct store_batch *batch; /* of the epoch in the making */
	struct buf tree;
	struct tree_writer *writer;
	uint64_t last;
};

__attribute__((unused)) static void made_start(struct made *m)
{
	cleanup_buf struct buf text = {0};
	struct volume_info info;

	*m = (struct made){.f = fixture_open("memory:t", 2)};
	unit_ok(volume_info_make(&info));
	unit_ok(volume_info_encode(&info, &text));
	unit_ok(remote_put(m->f.remote, KEY_VOLUME, text.data, text.len));
}

__attribute__((unused)) static void made_stop(struct made *m)
{
	buf_free(&m->tree);
	fixture_close(&m->f);
}

__attribute__((unused)) static void made_begin(struct made *m)
{
	const struct tree_entry root = {.name = "", .type = TREE_DIR, .mode = 0755, .mtime_ns = 5};

	buf_reset(&m->tree);
	unit_ok(store_batch_begin(m->f.store, ++m->last, &m->batch));
	unit_ok(tree_writer_new(&m->tree, 0, &m->writer));
	unit_ok(tree_writer_add(m->writer, &root));
}

/* In the order of a tree. What is 0 gets a default. */
__attribute__((unused)) static void made_add(struct made *m, uint32_t depth, const char *name,
					     struct tree_entry e)
{
	e.depth = depth;
	e.name = name;
	e.name_len = strlen(name);
	if (!e.type)
		e.type = TREE_REGULAR;
	if (!e.mode)
		e.mode = e.type == TREE_DIR ? 0755 : 0644;
	unit_ok(tree_writer_add(m->writer, &e));
}

__attribute__((unused)) static void made_dir(struct made *m, uint32_t depth, const char *name)
{
	made_add(m, depth, name, (struct tree_entry){.type = TREE_DIR});
}

/* A file whose content lies in a pack. */
__attribute__((unused)) static struct tree_entry made_content(struct made *m, const void *data,
							      size_t len)
{
	struct tree_entry e = {.type = TREE_REGULAR, .content = TREE_RECIPE, .size = len};

	unit_ok(put_bytes(m->batch, data, len, &e.u.recipe));
	return e;
}

/* The same within the tree. */
__attribute__((unused)) static struct tree_entry made_inline(const char *text)
{
	return (struct tree_entry){.type = TREE_REGULAR,
				   .content = TREE_INLINE,
				   .size = strlen(text),
				   .u.inline_data = text};
}

/* Ends the epoch; `record` may say what the caller wants to be in it. The epoch's number. */
__attribute__((unused)) static uint64_t made_end(struct made *m, struct epoch_record record)
{
	cleanup_buf struct buf text = {0};
	struct store_stats stats;
	char key[KEY_MAX];

	unit_ok(tree_writer_finish(m->writer));
	tree_writer_free(m->writer);
	unit_ok(store_put_tree(m->batch, m->tree.data, m->tree.len, &record));
	unit_ok(store_batch_finish(m->batch, &record, &stats));
	store_batch_free(m->batch);
	record.number = m->last;
	strcpy(record.volume, "0b0ec43d-6a7b-4b4d-8a0e-2f6a3a3a3a3a");
	if (!record.sealed_ns)
		record.sealed_ns = clock_wall_ns();
	unit_ok(record_encode(&record, &text));
	record_free(&record);
	epoch_key(m->last, key);
	unit_ok(remote_put_if_absent(m->f.remote, key, text.data, text.len));
	return m->last;
}

/* An epoch of one small file. */
__attribute__((unused)) static uint64_t made_epoch(struct made *m, struct epoch_record record)
{
	made_begin(m);
	made_add(m, 1, "file", made_inline("text"));
	return made_end(m, record);
}

__attribute__((unused)) static struct catalog *catalog_at(const char *url)
{
	struct catalog *c = NULL;
	char *message = NULL;
	int error = catalog_open(url, NULL, &c, &message);

	ck_assert_msg(!error, "catalog_open %s: %d: %s", url, error, message ? message : "");
	return c;
}

/* Flips a bit of these bytes where they lie, as they are, in a pack. */
__attribute__((unused)) static void damage_content(struct remote *r, const void *bytes, size_t len)
{
	struct key_list packs = list_keys(r, PREFIX_PACKS);

	for (size_t i = 0; i < packs.count; i++) {
		cleanup_buf struct buf pack = {0};
		const uint8_t *at;

		unit_ok(remote_get(r, packs.keys[i], 0, REMOTE_TO_END, &pack));
		at = memmem(pack.data, pack.len, bytes, len);
		if (at) {
			damage(r, packs.keys[i], (uint64_t)(at - pack.data) + len / 2);
			return;
		}
	}
	ck_abort_msg("no pack holds these bytes");
}

#endif
