/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a remote: what damage hits, one line for each path however many epochs it is in. */
#include "lib/admin/catalog_fsck.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/array.h"
#include "lib/util/cleanup.h"

#define TEXT_IN_PACK "a damaged chunk"

static void hit_id(const char *path, size_t pack, const char *key, const char *text,
		   struct hash *ret_id)
{
	cleanup_buf struct buf id = {0};

	buf_put_u64(&id, pack);
	/* A hit by its epoch's own record is that epoch's only. */
	buf_printf(&id, "%s\n%s\n%s", key ? key : "", text ? text : "", path);
	hash_of(id.data, id.len, ret_id);
}

static int add_hit(struct fsck *f, const struct fsck_hit *hit)
{
	struct fsck_hit *h;
	int error = array_reserve((void **)&f->hits, &f->hit_cap, f->hit_count, sizeof(*h));

	if (error)
		return error;
	h = &f->hits[f->hit_count];
	*h = *hit;
	h->path = strdup(hit->path);
	h->key = hit->key ? strdup(hit->key) : NULL;
	if (h->path && (h->key || !hit->key))
		error = hash_index_add(&f->hits_by_id, f->hits, sizeof(*h), (uint32_t)f->hit_count);
	else
		error = -ENOMEM;
	if (error) {
		free(h->path);
		free(h->key);
		return error;
	}
	f->hit_count++;
	return 0;
}

int fsck_hit(struct fsck *f, uint64_t epoch, const char *path, size_t pack, const char *key,
	     const char *text)
{
	struct fsck_hit hit = {.pack = pack,
			       .text = text,
			       .path = (char *)(uintptr_t)path,
			       .key = (char *)(uintptr_t)key,
			       .first = epoch,
			       .last = epoch,
			       .count = 1};
	uint32_t i;

	hit_id(path, pack, key, text, &hit.id);
	i = hash_index_find(&f->hits_by_id, f->hits, sizeof(hit), &hit.id);
	if (i == HASH_INDEX_NONE)
		return add_hit(f, &hit);
	if (f->hits[i].last != epoch) {
		f->hits[i].last = epoch;
		f->hits[i].count++;
	}
	return 0;
}

static void say_where(const struct fsck_hit *h, struct buf *out)
{
	if (h->count == 1)
		buf_printf(out, "epoch %" PRIu64, h->first);
	else
		buf_printf(out, "%" PRIu64 " epochs from %" PRIu64 " to %" PRIu64, h->count,
			   h->first, h->last);
	if (*h->path)
		buf_printf(out, ": %s", h->path);
	else
		buf_printf(out, ": all of its tree");
}

void fsck_hit_text(struct fsck *f, const struct fsck_hit *h, char ret_key[KEY_MAX],
		   struct buf *where, char ret_text[STORE_FSCK_TEXT])
{
	say_where(h, where);
	if (h->pack == STORE_FSCK_NONE) {
		snprintf(ret_key, KEY_MAX, "%s", h->key);
		snprintf(ret_text, STORE_FSCK_TEXT, "%s", h->text);
		return;
	}
	/* The pack may have been right but for a chunk that only reading it showed. */
	if (!store_fsck_pack(f->store, h->pack, ret_key, ret_text))
		memcpy(ret_text, TEXT_IN_PACK, sizeof(TEXT_IN_PACK));
}

static void report_hit(struct fsck *f, const struct fsck_hit *h)
{
	char key[KEY_MAX], text[STORE_FSCK_TEXT];
	cleanup_buf struct buf where = {0};

	fsck_hit_text(f, h, key, &where, text);
	fsck_problem(f, key, buf_str(&where), text);
}

static bool is_hit(const struct fsck *f, size_t pack)
{
	for (size_t i = 0; i < f->hit_count; i++)
		if (f->hits[i].pack == pack)
			return true;
	return false;
}

static void report_index(struct fsck *f, size_t i)
{
	char key[KEY_MAX], text[STORE_FSCK_TEXT];

	if (!store_fsck_index(f->store, i, key, text))
		return;
	if (fsck_condemned(f, key))
		fsck_note(f, key, "", "is damaged, and condemned: epochfs gc deletes it");
	else
		fsck_problem(f, key, "", text);
}

/* One that hits no path. */
static void report_pack(struct fsck *f, size_t i)
{
	char key[KEY_MAX], text[STORE_FSCK_TEXT];
	cleanup_buf struct buf note = {0};

	if (!store_fsck_pack(f->store, i, key, text) || is_hit(f, i))
		return;
	if (store_fsck_needed(f->store, i) && !fsck_condemned(f, key)) {
		fsck_problem(f, key, "", text);
		return;
	}
	buf_printf(&note, "%s; no epoch needs it%s", text,
		   fsck_condemned(f, key) ? ", and epochfs gc deletes it" : "");
	fsck_note(f, key, "", buf_str(&note));
}

void fsck_report(struct fsck *f)
{
	struct store_fsck_totals t;

	store_fsck_get_totals(f->store, &t);
	for (size_t i = 0; i < t.index_objects; i++)
		report_index(f, i);
	for (size_t i = 0; i < f->hit_count; i++)
		report_hit(f, &f->hits[i]);
	for (size_t i = 0; i < t.packs; i++)
		report_pack(f, i);
}
