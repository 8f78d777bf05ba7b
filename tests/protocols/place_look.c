/* SPDX-License-Identifier: Apache-2.0 */
/* Trees are read as a person would read them: each file whole, through the cache. */
#include "tests/protocols/place_look.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include "lib/cache/content.h"
#include "lib/cache/trees.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/fact_log.h"
#include "lib/live/live.h"

#define ROOT  1
#define CHUNK (64 * 1024)

static int take_number(void *arg, uint64_t number, int64_t sealed_ns)
{
	(void)sealed_ns;
	*(uint64_t *)arg = number;
	return 1;
}

uint64_t look_next_epoch(struct volume *vol, uint64_t after)
{
	uint64_t number = 0;

	epochs_numbers(vol, after, take_number, &number);
	return number;
}

/* ---- a file ---- */

/* Reads some bytes at an offset: 0 at the end, or -errno. */
typedef ssize_t read_fn(void *arg, void *data, size_t len, uint64_t offset);

/* [size, SHA-1 in hex], or [-errno, ""]. */
static json_t *file_json(read_fn *fn, void *arg)
{
	EVP_MD_CTX *sum = EVP_MD_CTX_new();
	unsigned char digest[EVP_MAX_MD_SIZE];
	static char data[CHUNK];
	unsigned length = 0;
	uint64_t size = 0;
	char hex[64] = "";
	ssize_t n;

	EVP_DigestInit_ex(sum, EVP_sha1(), NULL);
	while ((n = fn(arg, data, sizeof(data), size)) > 0) {
		EVP_DigestUpdate(sum, data, (size_t)n);
		size += (size_t)n;
	}
	EVP_DigestFinal_ex(sum, digest, &length);
	EVP_MD_CTX_free(sum);
	if (n < 0)
		return json_pack("[I, s]", (json_int_t)n, "");
	for (unsigned i = 0; i < length; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	return json_pack("[I, s]", (json_int_t)size, hex);
}

static ssize_t read_content(void *arg, void *data, size_t len, uint64_t offset)
{
	return arg ? content_read(arg, data, len, offset, NULL, NULL) : 0;
}

static ssize_t read_live(void *arg, void *data, size_t len, uint64_t offset)
{
	return vfile_pread(arg, data, len, offset);
}

static ssize_t read_text(void *arg, void *data, size_t len, uint64_t offset)
{
	const char *text = arg;
	size_t left = strlen(text) - (size_t)offset;

	len = left < len ? left : len;
	memcpy(data, text + offset, len);
	return (ssize_t)len;
}

static json_t *link_json(const char *target)
{
	return file_json(read_text, (void *)(uintptr_t)target);
}

static json_t *entry_json(struct volume *vol, const struct tree_entry *e)
{
	struct content *c = NULL;
	json_t *json;
	int r;

	if (e->type == TREE_SYMLINK)
		return link_json(e->u.target);
	r = e->size ? content_get_entry(vol, e, "a protocol", &c) : 0;
	if (r)
		return json_pack("[i, s]", r, "");
	json = file_json(read_content, c);
	content_put(c);
	return json;
}

/* ---- an epoch ---- */

static json_t *epoch_tree(struct volume *vol, uint64_t number)
{
	cleanup_tree struct tree *t = NULL;
	json_t *json = json_object();
	int r = epochs_tree(vol, number, &t);

	for (uint32_t id = 0; !r && id < tree_count(t); id++) {
		cleanup_buf struct buf path = {0};
		struct tree_entry e;

		tree_get(t, id, &e);
		if ((e.type != TREE_REGULAR && e.type != TREE_SYMLINK) || tree_path(t, id, &path))
			continue;
		buf_put_u8(&path, 0);
		json_object_set_new(json, (const char *)path.data, entry_json(vol, &e));
	}
	return json;
}

static const char *verdict(const struct epoch_info *e)
{
	if (e->superseded)
		return "part";
	if (e->record.complete == RECORD_UNKNOWN)
		return "unknown";
	return e->complete ? "whole" : "not whole";
}

static int add_epoch(void *arg, const struct epoch_info *e)
{
	json_array_append_new(arg, json_pack("[I, s, s]", (json_int_t)e->number, verdict(e),
					     record_trigger_name(e->record.trigger)));
	return 0;
}

/* ---- the live tree ---- */

struct listing {
	char name[256][256];
	unsigned count;
};

static int add_name(void *arg, const char *name, uint64_t cookie, const struct live_attr *attr)
{
	struct listing *l = arg;

	(void)cookie, (void)attr;
	if (l->count < 256)
		snprintf(l->name[l->count++], 256, "%s", name);
	return 0;
}

struct live_look {
	const struct look *look;
	json_t *json;
};

static void look_dir(struct live_look *l, uint64_t dir, const char *path);

static void look_link(struct live_look *l, uint64_t ino, const char *path)
{
	cleanup_buf struct buf target = {0};

	if (live_readlink(l->look->vol, ino, &target))
		return;
	buf_put_u8(&target, 0);
	json_object_set_new(l->json, path, link_json((const char *)target.data));
}

static void look_name(struct live_look *l, uint64_t dir, const char *path, const char *name)
{
	struct live_attr attr;
	struct vfile *f;
	char below[4096];

	snprintf(below, sizeof(below), "%s%s%s", path, *path ? "/" : "", name);
	if (live_lookup(l->look->vol, dir, name, l->look->pid, &attr))
		return;
	if (S_ISDIR(attr.mode))
		look_dir(l, attr.ino, below);
	if (S_ISLNK(attr.mode))
		look_link(l, attr.ino, below);
	if (!S_ISREG(attr.mode))
		return;
	if (live_goes_back(l->look->vol, attr.ino, O_RDONLY, l->look->pid))
		live_go_back(l->look->vol, attr.ino, O_RDONLY, l->look->pid);
	if (vfile_open(l->look->nodes, dir, name, O_RDONLY, l->look->pid, &f))
		return;
	json_object_set_new(l->json, below, file_json(read_live, f));
	vfile_flush(f, l->look->pid);
	vfile_release(f);
}

static void look_dir(struct live_look *l, uint64_t dir, const char *path)
{
	struct listing *names = calloc(1, sizeof(*names));

	if (!names)
		abort();
	if (live_goes_back(l->look->vol, dir, O_RDONLY, l->look->pid))
		live_go_back(l->look->vol, dir, O_RDONLY, l->look->pid);
	live_readdir(l->look->vol, dir, 0, l->look->pid, add_name, names);
	for (unsigned i = 0; i < names->count; i++)
		look_name(l, dir, path, names->name[i]);
	free(names);
}

/* ---- all ---- */

static int add_size(void *arg, const char *key, uint64_t size)
{
	(void)key;
	*(uint64_t *)arg += size;
	return 0;
}

static json_t *all_trees(struct volume *vol)
{
	json_t *json = json_object();
	char key[24];

	for (uint64_t number = 0; (number = look_next_epoch(vol, number));) {
		snprintf(key, sizeof(key), "%llu", (unsigned long long)number);
		json_object_set_new(json, key, epoch_tree(vol, number));
	}
	return json;
}

void look_at(const struct look *l, FILE *out)
{
	json_t *epochs = json_array(), *all;
	uint64_t latest, stored = 0;

	latest = epochs_latest(l->vol);
	epochs_each(l->vol, add_epoch, epochs);
	remote_list(l->remote, "packs/", add_size, &stored);
	all = json_pack("{s:o, s:I, s:I}", "epochs", epochs, "latest", (json_int_t)latest, "stored",
			(json_int_t)stored);
	if (!strcmp(l->what, "tree"))
		json_object_set_new(all, "tree",
				    latest ? epoch_tree(l->vol, latest) : json_object());
	if (!strcmp(l->what, "trees"))
		json_object_set_new(all, "trees", all_trees(l->vol));
	if (!strcmp(l->what, "facts"))
		json_object_set_new(all, "facts", fact_log_json(l->vol));
	if (!strcmp(l->what, "live")) {
		struct live_look live = {l, json_object()};

		look_dir(&live, ROOT, "");
		json_object_set_new(all, "live", live.json);
	}
	json_dumpf(all, out, JSON_COMPACT);
	fputc('\n', out);
	json_decref(all);
}
