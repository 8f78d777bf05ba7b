/* SPDX-License-Identifier: Apache-2.0 */
/* Trees and their differences as JSON. */
#include "lib/meta/listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/record.h"
#include "lib/format/tree_diff.h"
#include "lib/util/buf.h"

/* Length of the UTF-8 sequence at s, 0 where it is none (Unicode 15, table 3-7). */
static size_t utf8_len(const unsigned char *s)
{
	size_t len = s[0] < 0x80   ? 1
		     : s[0] < 0xc2 ? 0
		     : s[0] < 0xe0 ? 2
		     : s[0] < 0xf0 ? 3
		     : s[0] < 0xf5 ? 4
				   : 0;

	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

json_t *listing_string(const char *bytes)
{
	cleanup_buf struct buf text = {0};
	json_t *plain = json_string(bytes);

	if (plain)
		return plain;
	for (const unsigned char *p = (const unsigned char *)bytes; *p;) {
		size_t len = utf8_len(p);

		if (len)
			buf_put(&text, p, len);
		else
			buf_put(&text, "\xef\xbf\xbd", 3);
		p += len ? len : 1;
	}
	return json_string(buf_str(&text));
}

static const char *type_name(enum tree_type type)
{
	switch (type) {
	case TREE_DIR:
		return "directory";
	case TREE_REGULAR:
		return "file";
	case TREE_SYMLINK:
		return "symlink";
	case TREE_FIFO:
		return "fifo";
	case TREE_SOCKET:
		return "socket";
	case TREE_BLOCK:
		return "block device";
	default:
		return "character device";
	}
}

static json_t *entry_object(const char *path, const struct tree_entry *e)
{
	return json_pack("{s:o, s:s, s:I}", "path", listing_string(path), "type",
			 type_name(e->type), "size", (json_int_t)e->size);
}

json_t *listing_files(const struct tree *t)
{
	json_t *files = json_array();

	for (uint32_t id = 1; files && id < tree_count(t); id++) {
		cleanup_buf struct buf path = {0};
		struct tree_entry e;
		json_t *object;

		tree_get(t, id, &e);
		tree_path(t, id, &path);
		object = entry_object(buf_str(&path), &e);
		json_object_set_new(object, "mode", json_integer(e.mode));
		json_object_set_new(object, "mtime_ns", json_integer(e.mtime_ns));
		if (e.type == TREE_SYMLINK)
			json_object_set_new(object, "target", listing_string(e.u.target));
		if (e.flags & TREE_TORN)
			json_object_set_new(object, "torn", json_true());
		if (e.flags & TREE_LOG)
			json_object_set_new(object, "log", json_true());
		if (json_array_append_new(files, object) < 0) {
			json_decref(files);
			return NULL;
		}
	}
	return files;
}

struct diff_lists {
	json_t *added, *changed, *removed;
	uint64_t bytes_added, bytes_removed;
};

static int add_change(const struct tree_change *c, void *arg)
{
	struct diff_lists *lists = arg;
	const struct tree_entry *e = c->new_entry ? c->new_entry : c->old_entry;
	json_t *object;

	if (!tree_change_counts(c))
		return 0;
	object = entry_object(*c->path ? c->path : ".", e);
	if (!object)
		return -ENOMEM;
	if (c->old_entry && (c->content || c->kind == TREE_REMOVED))
		lists->bytes_removed += c->old_entry->size;
	if (c->new_entry && (c->content || c->kind == TREE_ADDED))
		lists->bytes_added += c->new_entry->size;
	if (c->kind == TREE_CHANGED) {
		json_object_set_new(object, "old_size",
				    json_integer((json_int_t)c->old_entry->size));
		if (!c->content)
			json_object_set_new(object, "meta", json_true());
		return json_array_append_new(lists->changed, object) ? -ENOMEM : 0;
	}
	return json_array_append_new(c->kind == TREE_ADDED ? lists->added : lists->removed, object)
		       ? -ENOMEM
		       : 0;
}

int listing_diff(const struct tree *a, const struct tree *b, json_t **ret_diff)
{
	struct diff_lists lists = {json_array(), json_array(), json_array(), 0, 0};
	cleanup_tree struct tree *nothing = NULL;
	uint32_t id = 0;
	struct tree_entry root;
	int error = a ? 0 : tree_resolve(b, "", &id);
	json_t *diff;

	/* The root itself is no change: it was there, and whose it is makes no epoch. */
	if (!a && !error) {
		tree_get(b, id, &root);
		error = tree_of_root(&root, &nothing);
	}
	if (!error)
		error = tree_diff(a ? a : nothing, b, add_change, &lists);
	diff = json_pack("{s:o, s:o, s:o, s:I, s:I}", "added", lists.added, "changed",
			 lists.changed, "removed", lists.removed, "bytes_added",
			 (json_int_t)lists.bytes_added, "bytes_removed",
			 (json_int_t)lists.bytes_removed);

	if (!error && !diff)
		error = -ENOMEM;
	if (error) {
		json_decref(diff);
		return error;
	}
	*ret_diff = diff;
	return 0;
}

/* "sealed", "uploading", "durable", "failed", "dropped". */
static const char *epoch_state_name(enum epoch_state state)
{
	switch (state) {
	case EPOCH_SEALED:
		return "sealed";
	case EPOCH_UPLOADING:
		return "uploading";
	case EPOCH_DURABLE:
		return "durable";
	case EPOCH_FAILED:
		return "failed";
	default:
		return "dropped";
	}
}

json_t *listing_brief(const json_t *epoch)
{
	static const char *const keys[] = {"epoch", "step", "sealed", "durable", "state", "bytes"};
	json_t *brief = json_object();

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (json_object_get(epoch, keys[i]))
			json_object_set(brief, keys[i], json_object_get(epoch, keys[i]));
	return brief;
}

json_t *listing_epoch(const struct epoch_info *e)
{
	cleanup_buf struct buf text = {0};
	json_t *object;

	if (record_encode(&e->record, &text) < 0)
		return NULL;
	object = json_loadb((const char *)text.data, text.len, 0, NULL);
	if (!object)
		return NULL;
	json_object_del(object, "tree");
	json_object_del(object, "packs");
	json_object_del(object, "indexes");
	json_object_set_new(object, "state", json_string(epoch_state_name(e->state)));
	if (e->record.complete != RECORD_UNKNOWN)
		json_object_set_new(object, "complete", json_boolean(e->complete));
	if (e->superseded)
		json_object_set_new(object, "continued", json_true());
	if (e->error)
		json_object_set_new(object, "error", listing_string(e->error));
	return object;
}
